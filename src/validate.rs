//! `ioreel validate`: holds a reel against its own promises.

use crate::output::{out, print_json};
use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use ioreel_traces::validate::{Report, validate};

/// Done, but the reel does not keep its promises.
const EXIT_INVALID: u8 = 3;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 the reel is valid; 3 it is not; 1 it cannot be read at all.")]
pub(crate) struct Args {
    /// The reel
    reel: PathBuf,
    /// Takes in segments that a dead writer did not list, removes half-written files, moves damaged segments aside
    #[arg(long)]
    repair: bool,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut report = validate(&args.reel, args.repair)?;
    if args.repair && report.valid {
        match completed(&args.reel) {
            Ok(Some(done)) => {
                report = Report { repaired: [report.repaired, vec![done]].concat(), ..validate(&args.reel, false)? };
            }
            Ok(None) => {}
            Err(e) => report.notes.push(format!("the tables tree and names are missing and could not be derived: {e}")),
        }
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(if report.valid { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INVALID) })
}

/// Derives what a recorder that died did not come to.
#[cfg(feature = "capture")]
fn completed(reel: &std::path::Path) -> Result<Option<String>> {
    Ok(ioreel_capture::before::derive::complete(reel)?)
}

/// Deriving is the recorder's.
#[cfg(not(feature = "capture"))]
fn completed(_: &std::path::Path) -> Result<Option<String>> {
    Ok(None)
}

fn print(report: &Report) {
    for line in &report.repaired {
        out!("repaired: {line}");
    }
    for problem in &report.problems {
        out!("problem: {problem}");
    }
    let shown: u64 = report.problems.iter().map(|p| p.times).sum();
    if report.problem_count > shown {
        out!("problem: {} more", report.problem_count - shown);
    }
    for note in &report.notes {
        out!("note: {note}");
    }
    let rows: i64 = report.tables.iter().map(|t| t.rows).sum();
    let segments: u64 = report.tables.iter().map(|t| t.segments).sum();
    let what = format!("{rows} rows in {segments} segments of {} tables", report.tables.len());
    match report.problem_count {
        0 => out!("{}: valid, {what}", report.reel),
        1 => out!("{}: NOT VALID, 1 problem, {what}", report.reel),
        n => out!("{}: NOT VALID, {n} problems, {what}", report.reel),
    }
}
