//! `ioreel anonymize`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use ioreel_traces::{
    Reel,
    anonymize::{Key, anonymize},
};

/// Which reel, and where to.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The reel
    reel: PathBuf,
    /// The reel to make: a folder that does not exist yet
    #[arg(short, long, value_name = "REEL")]
    output: PathBuf,
    /// Hashes names with the content of this file, 16 bytes at least: the same key gives the same names, so that reels
    /// can be compared. Default: a random key that nobody keeps
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// The key of a file, or a random one.
pub(crate) fn key(file: Option<&Path>) -> ioreel_traces::Result<Key> {
    file.map_or_else(Key::random, Key::from_file)
}

const NOTES: &str = "\
Paths, names of threads, programs, hosts, mounts and marks become keyed hashes, component by component: the shape of
the tree, known extensions and which names are equal stay, as do sizes, times, results, and user and group numbers.";

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = key(args.key_file.as_deref())?;
    anonymize(&Reel::open(&args.reel)?, &args.output, &key)?;
    Ok(ExitCode::SUCCESS)
}
