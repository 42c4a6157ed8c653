//! `ioreel anonymize`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use ioreel_traces::{Reel, anonymize::Key, anonymized::anonymize, confine::Needs};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reel to read
    reel: PathBuf,
    /// Reel to write; must not exist
    #[arg(short, long, value_name = "REEL")]
    output: PathBuf,
    /// Use the content of this file (at least 16 bytes) as the key. The same key gives the same names, so that reels
    /// can be compared [default: a random key, discarded at exit]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// The key derived from `file`, or a random key.
pub(crate) fn key(file: Option<&Path>) -> ioreel_traces::Result<Key> {
    file.map_or_else(Key::random, Key::from_file)
}

const NOTES: &str = "\
Paths and the names of threads, programs, hosts, mounts and marks are replaced by keyed hashes, component by component.
Preserved: tree shape, known file extensions, equality of names, sizes, times, results, user and group ids.
Details: docs/anonymize.md.";

impl Args {
    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        Needs::to_write([&*self.output])
    }
}

/// Runs `ioreel anonymize`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = key(args.key_file.as_deref())?;
    anonymize(&Reel::open(&args.reel)?, &args.output, &key)?;
    Ok(ExitCode::SUCCESS)
}
