//! Errors of a replay, each one line: the thing, the cause, the remedy.

use std::{io, path::PathBuf};

use ioreel_traces::ReelError;

fn mib(bytes: i64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// What can keep a replay from happening.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The reel cannot be read, or the result not written.
    #[error(transparent)]
    Reel(#[from] ReelError),
    /// Its tables are not listed yet.
    #[error("{path}: this reel was not closed by its writer; `ioreel validate --repair` makes what is there a good one", path = path.display())]
    Unfinished {
        /// The reel.
        path: PathBuf,
    },
    /// What would be written is a part of what is read.
    #[error(
        "{what} {path}: this lies in the reel that is replayed ({reel}), which has to stay as it is; name a place outside of it",
        path = path.display(), reel = reel.display()
    )]
    InReel {
        /// The option.
        what: &'static str,
        /// As given.
        path: PathBuf,
        /// The reel.
        reel: PathBuf,
    },
    /// It does not tell where files lay.
    #[error("{path}: this reel does not tell where files lay; record with --extents, or replay without --layout", path = path.display())]
    NoLayout {
        /// The reel.
        path: PathBuf,
    },
    /// The target is not there or no directory.
    #[error("{path}: cannot replay into this: {why}; name a directory on a mounted file system", path = path.display())]
    Target {
        /// As given.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The target has something in it.
    #[error("{path}: not empty (it holds {found:?}); empty it, or replay over it with --force", path = path.display())]
    NotEmpty {
        /// As given.
        path: PathBuf,
        /// The first name found.
        found: String,
    },
    /// This user cannot make anything in the target.
    #[error("{path}: cannot write here: {source}; name a directory of your own, or replay as root", path = path.display())]
    NotWritable {
        /// As given.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The workload would not fit.
    #[error(
        "{path}: too little room: {needed} needed ({prepare} to prepare, {growth} written), {free} free; choose a \
         larger target, or limit the replay with --root",
        path = path.display(), needed = mib(*needed_bytes), prepare = mib(*prepare_bytes),
        growth = mib(*growth_bytes), free = mib(*free_bytes)
    )]
    NoRoom {
        /// As given.
        path: PathBuf,
        /// In all.
        needed_bytes: i64,
        /// Of which before the start.
        prepare_bytes: i64,
        /// Of which by the workload, at its peak.
        growth_bytes: i64,
        /// Available to this user.
        free_bytes: i64,
    },
    /// The slice begins after the last operation.
    #[error("--from {}s: nothing was recorded from then on: the last operation returned at {}s", seconds(*from_ns), seconds(*last_ns))]
    NothingAfter {
        /// The slice's start, ns of the reel.
        from_ns: i64,
        /// The last return, ns of the reel.
        last_ns: i64,
    },
    /// The slice is none.
    #[error("--from {}s --to {}s: nothing lies between; let --to be later than --from", seconds(*from_ns), seconds(*to_ns))]
    NoSlice {
        /// The slice's start, ns of the reel.
        from_ns: i64,
        /// Its end.
        to_ns: i64,
    },
    /// More than was allowed.
    #[error(
        "{path}: this replay takes {needed}, more than the {max} of --max-bytes; allow more, or limit it with --root",
        path = path.display(), needed = mib(*needed_bytes), max = mib(*max_bytes)
    )]
    TooMuch {
        /// The reel.
        path: PathBuf,
        /// What it takes: to prepare, and what the workload adds at its peak.
        needed_bytes: i64,
        /// What was allowed.
        max_bytes: i64,
    },
    /// Memory cannot be limited.
    #[error(
        "--memory-limit: {why}; it needs control groups of version 2 that control memory, and root or a group delegated to this user"
    )]
    MemoryLimit {
        /// The cause.
        why: String,
    },
    /// What is there is not all known.
    #[error("--repeat and --restore remove all that was not prepared: leave out --force and --skip-prepare")]
    Foreign,
    /// A directory cannot take the place of one of the reel's.
    #[error("--map {from}={to}: {why}; name a directory of the reel and an empty one to take its place", from = from.display(), to = to.display())]
    Map {
        /// The reel's.
        from: PathBuf,
        /// The other.
        to: PathBuf,
        /// The cause.
        why: &'static str,
    },
    /// The kernel does not let this user build the containment.
    #[error(
        "cannot contain the replay in its target: {doing}: {source}; run as root, or where unprivileged user namespaces are allowed"
    )]
    Contain {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The tree could not be made.
    #[error("preparing {path}: {source}", path = path.display())]
    Prepare {
        /// Path inside the target.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Bios cannot be replayed: what, and what to do.
    #[error("{path}: {why}", path = path.display())]
    Block {
        /// The reel, or the device.
        path: PathBuf,
        /// The cause and the remedy.
        why: String,
    },
    /// Something else the kernel refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}
