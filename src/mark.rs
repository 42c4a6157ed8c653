//! `ioreel mark`.

use std::{path::PathBuf, process::ExitCode};

use ioreel_capture::record::marks;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 at least one recording took the marker; 1 none did.")]
pub(crate) struct Args {
    /// Name of the marker, at most 200 bytes
    name: String,
    /// Mark only the recording that writes this reel [default: all running recordings of this user; for root, of all
    /// users]
    #[arg(long, value_name = "REEL")]
    reel: Option<PathBuf>,
}

/// Runs `ioreel mark`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    marks::mark(&args.name, args.reel.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
