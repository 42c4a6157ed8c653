//! A recording of something else, to run a producer beside.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::Bench;

/// Arguments of every recording here: only what the calls themselves cost is asked for.
pub(crate) const RECORD: &[&str] = &["record", "--settle", "none", "--no-snapshot"];

/// `ioreel record -- cat`, recording a cat that waits.
pub(crate) struct Idle {
    child: Child,
    reel: PathBuf,
}

impl Idle {
    /// Starts it; returns when the probes are active, since only then the cat answers.
    pub(crate) fn start(bench: &Bench) -> Result<Self> {
        let reel = bench.reels.path().join("idle.reel");
        remove(&reel)?;
        let mut child = Command::new(&bench.ioreel)
            .args(RECORD)
            .arg("-o")
            .arg(&reel)
            .args(["--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting ioreel")?;
        child.stdin.as_mut().context("no pipe to cat")?.write_all(b"ready\n")?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("no pipe from cat")?).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("ioreel record -- cat answers {line:?}");
        }
        Ok(Self { child, reel })
    }

    /// Ends the cat, and with it the recording.
    pub(crate) fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            bail!("ioreel record -- cat: {status}");
        }
        remove(&self.reel)
    }
}

/// Removes a reel of the round before.
pub(crate) fn remove(reel: &Path) -> Result<()> {
    match fs::remove_dir_all(reel) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context(reel.display().to_string()),
        _ => Ok(()),
    }
}
