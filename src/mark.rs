//! `ioreel mark`.

use std::{path::PathBuf, process::ExitCode};

use ioreel_capture::record::marks;

/// The moment's name, and whose recording.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 at least one recording took the mark; 1 none did.")]
pub(crate) struct Args {
    /// What the moment is called: up to 200 bytes
    name: String,
    /// Marks the recording of this reel only. Default: all running recordings of this user, or, for root, of all
    #[arg(long, value_name = "REEL")]
    reel: Option<PathBuf>,
}

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    marks::mark(&args.name, args.reel.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
