//! `ioreel export`: writes a reel in another tool's format.

use std::{path::PathBuf, process::ExitCode};

use ioreel_traces::{Reel, export};

use crate::{
    columns::count,
    output::{out, tell},
    units::seconds,
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
  ioreel export job.reel fio -o job.log              for fio --read_iolog=job.log
  ioreel export job.reel perfetto -o job.pftrace      open it in https://ui.perfetto.dev
  ioreel export job.reel csv --table ops -o ops.csv
  ioreel export job.reel jsonl --table ops | jq …

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
    /// A log for fio's read_iolog: reads, writes, synchronisations and trims of files
    Fio {
        /// The log to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Version of the log: 3 has a time on each line (fio 3.31 and later), 2 has waits
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=3))]
        log_version: u32,
    },
    /// A trace for ui.perfetto.dev: calls per thread, requests per disk, flows between them, rates
    Perfetto {
        /// The trace to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Slices at most: beyond, the slowest calls and requests and a sample of the others; rates stay complete
        #[arg(long, value_name = "N", default_value_t = export::perfetto::DEFAULT_MOST_SLICES)]
        most_slices: u64,
        /// Only from this moment on, in seconds since the reel's start
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        from: Option<i64>,
        /// Only up to this moment, in seconds since the reel's start
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        to: Option<i64>,
    },
    /// A table as CSV, in order of time
    Csv(TableArgs),
    /// A table as JSON, an object per line, in order of time
    Jsonl(TableArgs),
}

#[derive(clap::Args, Debug)]
struct TableArgs {
    /// The table: ops, block, bio, tasks, execs, files, fds, tree, actions
    #[arg(long, default_value = "ops")]
    table: String,
    /// The file to write; standard output without
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    /// Whether it writes to standard output alone.
    pub(crate) fn only_prints(&self) -> bool {
        matches!(&self.format, Format::Csv(table) | Format::Jsonl(table) if table.output.is_none())
    }
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
        Format::Fio { output, log_version } => {
            let made = export::fio::export(&reel, &output, log_version)?;
            for (why, n) in &made.left_out {
                tell!("ioreel: note: {} operations are not in the log: {why}", count((*n).max(0) as u64));
            }
            out!("{}: {} operations", output.display(), count(made.operations.max(0) as u64));
        }
        Format::Perfetto { output, most_slices, from, to } => {
            let options =
                export::perfetto::Options { most_slices, from_ns: from.unwrap_or(0), to_ns: to.unwrap_or(i64::MAX) };
            let made = export::perfetto::export(&reel, &output, &options)?;
            if made.slices < made.events {
                tell!(
                    "ioreel: note: {} of {} calls and requests are slices, the slowest among them; rates are complete. \
                     --from and --to show a window whole, --most-slices more",
                    count(made.slices),
                    count(made.events)
                );
            }
            out!("{}: {} slices, {} requests led to by flows", output.display(), count(made.slices), count(made.flows));
        }
        Format::Csv(args) => write_table(&reel, &args, export::table::Form::Csv)?,
        Format::Jsonl(args) => write_table(&reel, &args, export::table::Form::JsonLines)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_table(reel: &Reel, args: &TableArgs, form: export::table::Form) -> anyhow::Result<()> {
    let rows = export::table::export(reel, &args.table, form, args.output.as_deref())?;
    if let Some(path) = &args.output {
        out!("{}: {} rows of {}", path.display(), count(rows.max(0) as u64), args.table);
    }
    Ok(())
}

fn tell_notes(notes: &[String]) {
    for note in notes {
        tell!("ioreel: note: {note}");
    }
}
