//! `ioreel report`: a page of a reel that needs nothing but a browser.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use ioreel_traces::Reel;
use ioreel_visualize::{ReportOptions, report};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The reel
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// The page, a .html file of at most 15 MB
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Heading of the page instead of the reel's name
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

const NOTES: &str = "\
The page is one file that loads nothing. Of a large reel it holds densities, rates and tables of all events, and singly the slowest
and a sample, which it says; see docs/report.md.";

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let kind = args.output.extension().map(|e| e.to_ascii_lowercase());
    if !kind.is_some_and(|k| k == "html" || k == "htm") {
        bail!("{}: a report is a page, .html; name the file so", args.output.display());
    }
    let reel = Reel::open(&args.reel)?;
    let page = report(&reel, &ReportOptions { title: args.title, ..ReportOptions::default() })?;
    fs::write(&args.output, page)
        // Half a page is worse than none.
        .inspect_err(|_| _ = fs::remove_file(&args.output))
        .with_context(|| format!("{}: writing the page", args.output.display()))?;
    Ok(ExitCode::SUCCESS)
}
