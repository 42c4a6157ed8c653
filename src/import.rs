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
