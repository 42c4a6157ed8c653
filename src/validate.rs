//! `ioreel validate`: checks a reel for consistency.

use crate::output::{out, print_json};
use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use ioreel_traces::{
    confine::Needs,
    validate::{Report, validate},
};
use serde::Serialize;

/// Exit status if the reel is not valid.
const EXIT_INVALID: u8 = 3;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 valid; 3 not valid; 1 the reel cannot be read.")]
pub(crate) struct Args {
    /// Reel to check
    reel: PathBuf,
    /// Repair a reel whose recorder died: list closed segments, remove partly written files, rename damaged segments to
    /// *.damaged, derive the tables tree and names
    #[arg(long)]
    repair: bool,
    /// Print the report as JSON (schema ioreel.validate/1, docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Args {
    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        Needs { folders: if self.repair { vec![self.reel.clone()] } else { Vec::new() }, ..Needs::default() }
    }
}

/// The JSON of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs `ioreel validate`.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut report = validate(&args.reel, args.repair)?;
    if args.repair && report.valid {
        match completed(&args.reel) {
            Ok(Some(done)) => {
                report = Report { repaired: [report.repaired, vec![done]].concat(), ..validate(&args.reel, false)? };
            }
            Ok(None) => {}
            Err(e) => report.notes.push(format!("tables tree and names are missing and cannot be derived: {e}")),
        }
    }
    if args.json {
        print_json(&Document { schema: "ioreel.validate/1", report: &report })?;
    } else {
        print(&report);
    }
    Ok(if report.valid { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INVALID) })
}

/// Derives the tables that a recorder writes at its end.
#[cfg(feature = "capture")]
fn completed(reel: &std::path::Path) -> Result<Option<String>> {
    Ok(ioreel_capture::before::derive::complete(reel)?)
}

/// Without the recorder nothing is derived.
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
