//! `ioreel export`: converts a reel to another tool's format.

use std::{path::PathBuf, process::ExitCode};

use ioreel_traces::{Reel, confine::Needs, export};

use crate::{
    columns::count,
    output::{out, tell},
    units::seconds,
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Reel to read
    reel: PathBuf,
    #[command(subcommand)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  ioreel export disk.reel blktrace -o sda            sda.blktrace.0, … for blkparse, iowatcher, seekwatcher
  ioreel export disk.reel blktrace --dump -o sda.bin one file for btt and fio
  ioreel export job.reel fio -o job.log              for fio --read_iolog=job.log
  ioreel export job.reel perfetto -o job.pftrace     open in https://ui.perfetto.dev
  ioreel export job.reel csv --table ops -o ops.csv
  ioreel export job.reel jsonl --table ops | jq …

docs/import-export.md describes what each format can and cannot represent.";

#[derive(clap::Subcommand, Debug)]
enum Format {
    /// blktrace files, one per CPU, or one dump
    Blktrace {
        /// Base name, completed by .blktrace.CPU; or a folder
        #[arg(short, long, value_name = "BASE")]
        output: PathBuf,
        /// Write one file ordered by time, as `blkparse -d` does (for btt and fio)
        #[arg(long)]
        dump: bool,
    },
    /// fio I/O log (read_iolog): reads, writes, syncs and trims of files
    Fio {
        /// Log to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Log version: 3 has a timestamp per line (fio 3.31 and later), 2 has waits
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=3))]
        log_version: u32,
        /// Folder that the log names files in: /a/b becomes DIR/a/b. fio writes there [default: FILE with the extension
        /// .files]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// Replace recorded block device OLD by NEW, which fio writes to; repeatable. Other devices are left out
        #[arg(long, value_name = "OLD=NEW", value_parser = device_pair)]
        device_map: Vec<(String, PathBuf)>,
    },
    /// Perfetto trace: calls per thread, requests per disk, flows between them, rates
    Perfetto {
        /// Trace to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Maximum number of slices. Beyond it, keep the slowest calls and requests and a sample of the rest; rates stay
        /// complete
        #[arg(long, value_name = "N", default_value_t = export::perfetto::DEFAULT_MOST_SLICES)]
        most_slices: u64,
        /// Start of the exported window: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m [default: its start]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        from: Option<i64>,
        /// End of the exported window: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m [default: its end]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        to: Option<i64>,
    },
    /// One table as CSV, ordered by time
    Csv(TableArgs),
    /// One table as JSON, one object per line, ordered by time
    Jsonl(TableArgs),
}

#[derive(clap::Args, Debug)]
struct TableArgs {
    /// Table: ops, block, bio, tasks, execs, files, fds, tree, actions, …
    #[arg(long, default_value = "ops")]
    table: String,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    /// Whether the command writes only to standard output.
    pub(crate) fn only_prints(&self) -> bool {
        matches!(&self.format, Format::Csv(table) | Format::Jsonl(table) if table.output.is_none())
    }
}

impl Args {
    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        Needs::to_write(match &self.format {
            Format::Blktrace { output, .. } | Format::Fio { output, .. } | Format::Perfetto { output, .. } => {
                Some(&**output)
            }
            Format::Csv(table) | Format::Jsonl(table) => table.output.as_deref(),
        })
    }
}

/// Runs `ioreel export`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    match args.format {
        Format::Blktrace { output, dump } => {
            let made = export::blktrace::export(&reel, &output, dump)?;
            print_notes(&made.notes);
            let first = made.files.first().map(|f| f.display().to_string()).unwrap_or_default();
            let more = if made.files.len() > 1 { format!(" … ({} files)", made.files.len()) } else { String::new() };
            out!("{first}{more}: {} records", count(made.records.max(0) as u64));
        }
        Format::Fio { output, log_version, root, device_map } => {
            let options =
                export::fio::Options { version: log_version, root, devices: device_map.into_iter().collect() };
            let made = export::fio::export(&reel, &output, &options)?;
            tell!(
                "ioreel: warning: fio overwrites what the log names: files below {}; put copies of the recorded files there",
                made.root.display()
            );
            for device in &made.devices {
                tell!("ioreel: warning: fio overwrites the device {}", device.display());
            }
            for (why, n) in &made.left_out {
                tell!("ioreel: note: {} operations not exported: {why}", count((*n).max(0) as u64));
            }
            out!("{}: {} operations", output.display(), count(made.operations.max(0) as u64));
        }
        Format::Perfetto { output, most_slices, from, to } => {
            let options =
                export::perfetto::Options { most_slices, from_ns: from.unwrap_or(0), to_ns: to.unwrap_or(i64::MAX) };
            let made = export::perfetto::export(&reel, &output, &options)?;
            if made.slices < made.events {
                tell!(
                    "ioreel: note: exported {} of {} calls and requests: the slowest and a sample; rates are complete. \
                     Use --from and --to for a complete window, or raise --most-slices",
                    count(made.slices),
                    count(made.events)
                );
            }
            out!(
                "{}: {} slices, {} flows from calls to requests",
                output.display(),
                count(made.slices),
                count(made.flows)
            );
        }
        Format::Csv(args) => write_table(&reel, &args, export::table::Form::Csv)?,
        Format::Jsonl(args) => write_table(&reel, &args, export::table::Form::JsonLines)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses OLD=NEW.
fn device_pair(text: &str) -> Result<(String, PathBuf), String> {
    let (old, new) = text.split_once('=').ok_or("expected OLD=NEW, for example /dev/sda=/dev/loop7")?;
    if old.is_empty() || !new.starts_with('/') {
        return Err("expected OLD=NEW, where NEW is an absolute path".into());
    }
    Ok((old.into(), new.into()))
}

fn write_table(reel: &Reel, args: &TableArgs, form: export::table::Form) -> anyhow::Result<()> {
    let rows = export::table::export(reel, &args.table, form, args.output.as_deref())?;
    if let Some(path) = &args.output {
        out!("{}: {} rows of table {}", path.display(), count(rows.max(0) as u64), args.table);
    }
    Ok(())
}

fn print_notes(notes: &[String]) {
    for note in notes {
        tell!("ioreel: note: {note}");
    }
}
