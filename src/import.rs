//! `ioreel import`: makes a reel of another tool's trace.

use std::{path::PathBuf, process::ExitCode};

use ioreel_traces::{Manifest, import};

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
  ioreel import blktrace sda -o disk.reel            all of sda.blktrace.0, sda.blktrace.1, …
  ioreel import blktrace sda sdb -o both.reel        two devices, one reel
  ioreel import fio job.log -o job.reel              what fio wrote with write_iolog
  ioreel import strace calls.txt -o calls.reel       what `strace -f -ttt -T -y -o calls.txt` wrote
  ioreel import csv disk.csv --table block --columns issue_s,-,op,sector,len_sectors,d2c_us -o disk.reel

docs/import-export.md tells what each format can say and what it cannot.";

#[derive(clap::Subcommand, Debug)]
enum Format {
    /// Block traces of blktrace, or dumps of `blkparse -d`
    Blktrace {
        /// Traces: a base (sda for sda.blktrace.0 …), any one of its files, a folder of such files, or a dump
        #[arg(required = true, value_name = "TRACE")]
        inputs: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Logs of fio's write_iolog, version 2 or 3
    Fio {
        /// The log
        input: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// The text of `strace -f -ttt -T -y -o FILE`
    Strace {
        /// The text
        input: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Requests or operations, one per line
    Csv {
        /// The file
        input: PathBuf,
        /// What the lines are
        #[arg(long, value_enum)]
        table: Table,
        /// Names of the columns in order, - for one to leave out; without this, the words of the first line.
        /// docs/import-export.md lists the names
        #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
        columns: Vec<String>,
        /// Character between fields
        #[arg(long, default_value = ",", value_parser = separator)]
        separator: u8,
        /// Lines to leave out at the start
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: u32,
        #[command(flatten)]
        output: Output,
    },
}

/// What lines of CSV are.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Table {
    /// Requests of devices
    Block,
    /// Operations on files
    Ops,
}

fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [one] if *one != b'"' => Ok(*one),
        _ => Err("one character, or tab".into()),
    }
}

#[derive(clap::Args, Debug)]
struct Output {
    /// The reel to make
    #[arg(short, long, value_name = "REEL")]
    output: PathBuf,
}

/// Runs it.
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

/// What came in, in one line.
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
