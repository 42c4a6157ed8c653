//! What recording costs: `make bench`, as root, on a machine with nothing else to do.
//!
//! Everything is measured in one run and interleaved, round by round, so that what disturbs the machine disturbs all
//! alike; figures are medians over rounds. Nothing here passes or fails: the aims stand beside the figures.

mod block;
mod calls;
mod floor;
mod jobs;
mod producer;
mod session;
mod stats;
mod sustained;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

/// What one run measures with.
struct Bench {
    /// The program under measure.
    ioreel: PathBuf,
    /// This program, which is also the workload.
    own: PathBuf,
    /// Where the workloads' files go; removed at the end.
    dir: tempfile::TempDir,
    /// Where reels go: memory, so that writing them disturbs no disk that is being measured.
    reels: tempfile::TempDir,
    /// The CPU that producers are pinned to.
    cpu: usize,
}

const USAGE: &str = "\
usage: cost [--rounds N] [--archive FILE.tar] [calls|sustained|jobs|block]…
  --rounds N      rounds of each comparison (11)
  --archive FILE  an archive to unpack; made of 3 000 small files when not given
  calls sustained jobs block   measure only these";

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Rounds of each comparison: an odd number, so that the median is one of them.
const DEFAULT_ROUNDS: usize = 11;

fn main() -> Result<ExitCode> {
    // Cargo says how it calls a bench.
    let words: Vec<String> = env::args().skip(1).filter(|w| w != "--bench").collect();
    match words.first().map(String::as_str) {
        Some("produce") => return producer::main(&words[1..]).map(|()| ExitCode::SUCCESS),
        Some("time") => return jobs::timed(&words[1..]),
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let (mut rounds, mut archive, mut parts) = (DEFAULT_ROUNDS, None, Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" => rounds = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0).context(USAGE)?,
            "--archive" => archive = Some(PathBuf::from(words.next().context(USAGE)?)),
            "calls" | "sustained" | "jobs" | "block" => parts.push(word),
            _ => bail!(USAGE),
        }
    }
    if !rustix::process::geteuid().is_root() {
        bail!("recording needs root: run `make bench` as root");
    }
    let own = env::current_exe().context("finding this program")?;
    let bench = Bench {
        ioreel: env!("CARGO_BIN_EXE_ioreel").into(),
        own,
        dir: tempfile::tempdir().context("making a folder to work in")?,
        reels: tempfile::tempdir_in(if Path::new(MEMORY).is_dir() {
            Path::new(MEMORY).into()
        } else {
            env::temp_dir()
        })
        .context("making a folder for reels")?,
        cpu: producer::last_cpu()?,
    };
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    // Minutes pass between the tables.
    let told = |what: &str| eprintln!("measuring {what}");
    if wanted("calls") {
        told("the cost of a call");
        calls::measure(&bench, rounds)?;
    }
    if wanted("sustained") {
        told("the highest rate without loss");
        sustained::measure(&bench)?;
    }
    if wanted("jobs") {
        told("an unpacking and a search");
        jobs::measure(&bench, rounds, archive)?;
    }
    if wanted("block") {
        told("the block layer");
        block::measure(&bench, rounds)?;
    }
    Ok(ExitCode::SUCCESS)
}
