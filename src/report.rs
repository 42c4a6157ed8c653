//! `ioreel report`: an HTML report in one file.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use ioreel_traces::{Reel, confine::Needs};
use ioreel_visualize::{ReportOptions, report};

use crate::{
    WrongUsage,
    beside::beside,
    output::{say, write_private},
    progress::Progress,
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reel to read
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// Report to write (.html, at most 15 MB) [default: REEL with .html for .reel]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Title of the report [default: the reel's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

const NOTES: &str = "\
The report is one file and works offline. For a large reel it contains densities, rates and tables of all events; single
events are the slowest ones and a sample, and the report says so. See docs/report.md.";

impl Args {
    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        Needs::to_write([&*self.output()])
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| beside(std::slice::from_ref(&self.reel), "html"))
    }
}

/// Runs `ioreel report`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let output = args.output();
    let kind = output.extension().map(|e| e.to_ascii_lowercase());
    if !kind.is_some_and(|k| k == "html" || k == "htm") {
        let what = "a report is an HTML file; expected a name ending in .html";
        return Err(WrongUsage(format!("{}: {what}", output.display())).into());
    }
    let reel = Reel::open(&args.reel)?;
    let progress = Progress::start(&format!("writing {}", output.display()));
    let page = report(&reel, &ReportOptions { title: args.title, ..ReportOptions::default() })?;
    write_private(&output, page.as_bytes()).with_context(|| format!("{}: writing the report", output.display()))?;
    drop(progress);
    if args.output.is_none() {
        say!("ioreel: wrote {}", output.display());
    }
    Ok(ExitCode::SUCCESS)
}
