//! `ioreel export`: writes a reel in another tool's format.

use std::{path::PathBuf, process::ExitCode};

use ioreel_traces::{Reel, export};

use crate::{
    columns::count,
    output::{out, tell},
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The reel
    reel: PathBuf,
    #[command(subcommand)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  ioreel export disk.reel blktrace -o sda            sda.blktrace.0, …: for blkparse, iowatcher, seekwatcher
  ioreel export disk.reel blktrace --dump -o sda.bin one file: for btt and fio

docs/import-export.md tells what each format can say and what it cannot.";

#[derive(clap::Subcommand, Debug)]
enum Format {
    /// Block traces, as blktrace writes them
    Blktrace {
        /// Base name, to which .blktrace.CPU is added; or a folder
        #[arg(short, long, value_name = "BASE")]
        output: PathBuf,
        /// Writes one file ordered by time, as `blkparse -d` does: what btt and fio read
        #[arg(long)]
        dump: bool,
    },
}

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    match args.format {
        Format::Blktrace { output, dump } => {
            let made = export::blktrace::export(&reel, &output, dump)?;
            tell_notes(&made.notes);
            let first = made.files.first().map(|f| f.display().to_string()).unwrap_or_default();
            let more = if made.files.len() > 1 { format!(" … ({} files)", made.files.len()) } else { String::new() };
            out!("{first}{more}: {} records", count(made.records.max(0) as u64));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_notes(notes: &[String]) {
    for note in notes {
        tell!("ioreel: note: {note}");
    }
}
