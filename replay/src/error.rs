//! Errors of a replay. Each message is one line: the thing, the cause, the remedy.

use std::{io, path::PathBuf};

use ioreel_traces::ReelError;

fn mib(bytes: i64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// Why a replay cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The reel cannot be read, or the result reel cannot be written.
    #[error(transparent)]
    Reel(#[from] ReelError),
    /// The reel's writer did not finish: the manifest does not list its tables yet.
    #[error("{path}: the recording was not completed; run `ioreel validate --repair` first", path = path.display())]
    Unfinished {
        /// The reel.
        path: PathBuf,
    },
    /// A path to be written lies inside the reel that is replayed.
    #[error(
        "{what} {path}: this is inside the replayed reel {reel}, which must not change; name a place outside it",
        path = path.display(), reel = reel.display()
    )]
    InReel {
        /// The option that names the path.
        what: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The reel.
        reel: PathBuf,
    },
    /// `--layout`, but the reel does not contain the on-disk layout of files.
    #[error("{path}: this reel contains no on-disk layout; record with --extents, or replay without --layout", path = path.display())]
    NoLayout {
        /// The reel.
        path: PathBuf,
    },
    /// The target does not exist or is not a directory.
    #[error("{path}: cannot use this as target: {why}; name a directory on a mounted file system", path = path.display())]
    Target {
        /// The path as given.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The target is not empty.
    #[error("{path}: not empty (contains {found:?}); empty it, or use --force to replay over it", path = path.display())]
    NotEmpty {
        /// The path as given.
        path: PathBuf,
        /// The first name found.
        found: String,
    },
    /// This user cannot create files in the target.
    #[error("{path}: cannot write here: {source}; use a directory of your own, or run as root", path = path.display())]
    NotWritable {
        /// The path as given.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The target has too little free space for the workload.
    #[error(
        "{path}: not enough space: needs {needed} ({prepare} to prepare, {growth} to write), {free} free; use a \
         larger target, limit the replay with --root, or try it with --force-room",
        path = path.display(), needed = mib(*needed_bytes), prepare = mib(*prepare_bytes),
        growth = mib(*growth_bytes), free = mib(*free_bytes)
    )]
    NoRoom {
        /// The path as given.
        path: PathBuf,
        /// Bytes needed in total.
        needed_bytes: i64,
        /// Bytes of the initial tree.
        prepare_bytes: i64,
        /// Bytes that the workload adds, at its peak.
        growth_bytes: i64,
        /// Free bytes available to this user.
        free_bytes: i64,
    },
    /// The slice starts after the last operation.
    #[error("--from {}s: after the end of the reel; the last operation returned at {}s", seconds(*from_ns), seconds(*last_ns))]
    NothingAfter {
        /// Start of the slice, ns of the reel.
        from_ns: i64,
        /// Return of the last operation, ns of the reel.
        last_ns: i64,
    },
    /// No name of the reel is in a root.
    #[error("--root {root}: no name in the reel is at or below it; paths in a reel are without symbolic links", root = root.display())]
    NothingInRoot {
        /// The first root.
        root: PathBuf,
    },
    /// The slice is empty.
    #[error("--from {}s --to {}s: empty window; --to must be later than --from", seconds(*from_ns), seconds(*to_ns))]
    NoSlice {
        /// Start of the slice, ns of the reel.
        from_ns: i64,
        /// End of the slice, ns of the reel.
        to_ns: i64,
    },
    /// The replay needs more space than `--max-bytes` allows.
    #[error(
        "{path}: this replay needs {needed}, but may take {max}; raise --max-bytes, limit the replay with --root, or try it \
         with --force-room",
        path = path.display(), needed = mib(*needed_bytes), max = mib(*max_bytes)
    )]
    TooMuch {
        /// The reel.
        path: PathBuf,
        /// Bytes of the initial tree and those that the workload adds at its peak.
        needed_bytes: i64,
        /// The value of `--max-bytes`, or half of the free space for a reel that is not trusted.
        max_bytes: i64,
    },
    /// The replay took more space than it may.
    #[error(
        "{path}: the replay was given up: it would have taken more than {max} on the target's disk, as much as --max-bytes \
         or the free space allows; the reel understates what it writes, or others filled the disk",
        path = path.display(), max = mib(*max_bytes)
    )]
    SpaceExhausted {
        /// The reel.
        path: PathBuf,
        /// The limit, bytes.
        max_bytes: i64,
    },
    /// Planning costs far more than a reel of this size needs.
    #[error(
        "{path}: planning this replay takes too much: {why}; replay an earlier part with --to, or fewer files with --root",
        path = path.display()
    )]
    TooMuchToPlan {
        /// The reel.
        path: PathBuf,
        /// What is too much.
        why: String,
    },
    /// The memory of this process cannot be limited.
    #[error(
        "--memory-limit: {why}; it needs cgroup2 with the memory controller, and root or a cgroup delegated to this user"
    )]
    MemoryLimit {
        /// The cause.
        why: String,
    },
    /// Options that only a trusted reel may have.
    #[error(
        "{path}: --set-ids and --seed could let its maker compose a program that runs as root, and the reel is not trusted; \
         omit them, or give --trusted",
        path = path.display()
    )]
    Untrusted {
        /// The reel.
        path: PathBuf,
    },
    /// `--repeat` and `--restore` remove everything that was not prepared, so everything in the target must be known.
    #[error(
        "--repeat and --restore remove everything that ioreel did not prepare; use them without --force and --skip-prepare"
    )]
    Foreign,
    /// A directory cannot take the place of a directory of the reel.
    #[error("--map {from}={to}: {why}; use FROM=TO: a directory of the reel, and an empty directory to replace it", from = from.display(), to = to.display())]
    Map {
        /// The directory of the reel.
        from: PathBuf,
        /// The directory that should take its place.
        to: PathBuf,
        /// The cause.
        why: &'static str,
    },
    /// The kernel does not let this user set up the containment.
    #[error(
        "cannot confine the replay to its target: {doing}: {source}; run as root, or allow unprivileged user namespaces"
    )]
    Contain {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A part of the initial tree could not be created.
    #[error("preparing {path}: {source}", path = path.display())]
    Prepare {
        /// Path inside the target.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Bios cannot be replayed.
    #[error("{path}: {why}", path = path.display())]
    Block {
        /// The reel or the device.
        path: PathBuf,
        /// The cause and the remedy.
        why: String,
    },
    /// Another system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}
