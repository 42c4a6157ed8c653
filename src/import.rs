//! `ioreel import`: converts another tool's trace to a reel.

use std::{path::PathBuf, process::ExitCode};

use ioreel_traces::{Manifest, confine::Needs, import};

use crate::{
    columns::count,
    output::{out, tell},
    units::duration,
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  ioreel import blktrace sda -o disk.reel            sda.blktrace.0, sda.blktrace.1, …
  ioreel import blktrace sda sdb -o both.reel        two devices in one reel
  ioreel import fio job.log -o job.reel              a log of fio's write_iolog
  ioreel import strace calls.txt -o calls.reel       output of `strace -f -ttt -T -y -o calls.txt`
  ioreel import csv disk.csv --table block --columns issue_s,-,op,sector,len_sectors,d2c_us -o disk.reel

docs/import-export.md describes what each format can and cannot represent.";

#[derive(clap::Subcommand, Debug)]
enum Format {
    /// blktrace files, or a dump of `blkparse -d`
    Blktrace {
        /// Base name (sda for sda.blktrace.0, …), any one of its files, a folder of such files, or a dump
        #[arg(required = true, value_name = "TRACE")]
        inputs: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// fio I/O log (write_iolog), version 2 or 3
    Fio {
        /// Log to read
        input: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Output of `strace -f -ttt -T -y -o FILE`
    Strace {
        /// File to read
        input: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// CSV: one request or operation per line
    Csv {
        /// File to read
        input: PathBuf,
        /// What each line describes
        #[arg(long, value_enum)]
        table: Table,
        /// Column names in order; `-` skips a column. Names: docs/import-export.md [default: taken from the first line]
        #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
        columns: Vec<String>,
        /// Field separator: one character, or `tab`
        #[arg(long, default_value = ",", value_parser = separator)]
        separator: u8,
        /// Number of lines to skip at the start
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: u32,
        #[command(flatten)]
        output: Output,
    },
}

/// What a line of CSV describes.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Table {
    /// Block requests
    Block,
    /// File operations
    Ops,
}

fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [one] if *one != b'"' => Ok(*one),
        _ => Err("expected one character, or tab".into()),
    }
}

#[derive(clap::Args, Debug)]
struct Output {
    /// Reel to write; must not exist
    #[arg(short, long, value_name = "REEL")]
    output: PathBuf,
}

impl Args {
    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        let output = match &self.format {
            Format::Blktrace { output, .. }
            | Format::Fio { output, .. }
            | Format::Strace { output, .. }
            | Format::Csv { output, .. } => output,
        };
        Needs::to_write([&*output.output])
    }
}

/// Runs `ioreel import`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (manifest, output) = match args.format {
        Format::Blktrace { inputs, output } => (import::blktrace::import(&inputs, &output.output)?, output.output),
        Format::Fio { input, output } => (import::fio::import(&input, &output.output)?, output.output),
        Format::Strace { input, output } => (import::strace::import(&input, &output.output)?, output.output),
        Format::Csv { input, table, columns, separator, skip, output } => {
            let rows = match table {
                Table::Block => import::csv::Rows::Block,
                Table::Ops => import::csv::Rows::Ops,
            };
            let options = import::csv::Options { rows, columns, separator, skip: i64::from(skip) };
            (import::csv::import(&input, &output.output, &options)?, output.output)
        }
    };
    for warning in &manifest.warnings {
        tell!("ioreel: warning: {warning}");
    }
    out!("{}: {}", output.display(), described(&manifest));
    Ok(ExitCode::SUCCESS)
}

/// The imported rows, on one line.
fn described(m: &Manifest) -> String {
    let records = m.import.as_ref().map_or(0, |i| i.records);
    let tables = ["ops", "block", "bio"].into_iter().zip(["operations", "requests", "bios"]);
    let rows = tables.filter_map(|(table, what)| {
        let n: i64 = m.segments.get(table)?.iter().map(|s| s.rows).sum();
        Some(format!("{} {what}", count(n.max(0) as u64)))
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    let rows = if rows.is_empty() { "no operations, no requests".to_owned() } else { rows };
    format!("{rows} over {}, from {} records", duration(m.span.elapsed_ns), count(records.max(0) as u64))
}
