//! What a replay is asked for, and what it says of itself.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use crate::{
    contents::{data::DataOptions, read_checks::DataCheck},
    plan::edge::{Kinds, OrderMode},
    prepare::{
        layout::LayoutReport,
        page_cache::{CacheReport, CacheStart},
        restore::{Memory, Restored},
    },
    reel::{footprint::Scale, slice::Slice},
    run::{memory_limit::MemoryReport, pace::Clockwork},
    verdict::judgement::{Judgement, Limits},
};

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reel.
    pub reel: PathBuf,
    /// The reel may be made to harm: what reads it, and what issues its operations, is confined (Landlock, seccomp). Limits
    /// are strict: [`Self::set_ids`] must not be set, at most half of the free space is taken, at most
    /// [`MOST_UNTRUSTED_THREADS`](crate::run::threads::MOST_UNTRUSTED_THREADS) threads run at once.
    pub untrusted: bool,
    /// The process enters a control group with limits on memory and tasks, where it can make one.
    pub control_group: bool,
    /// The directory.
    pub target: PathBuf,
    /// How time passes.
    pub clockwork: Clockwork,
    /// What is kept in order.
    pub order: OrderMode,
    /// Kinds of constraints that are not.
    pub without: Kinds,
    /// Where the result goes, if anywhere.
    pub result: Option<PathBuf>,
    /// Replay over what is in the target.
    pub force: bool,
    /// The part of the reel to replay.
    pub slice: Slice,
    /// What data is like.
    pub data: DataOptions,
    /// How much smaller files are than they were.
    pub scale: Scale,
    /// Set-user-ID and set-group-ID bits and attributes that give privileges are prepared and replayed: whoever made the reel
    /// can then leave programs in the target that run as root.
    pub set_ids: bool,
    /// Device nodes are prepared and replayed by root: whoever made the reel can then leave access to this machine's disks
    /// in the target.
    pub device_nodes: bool,
    /// Limits of what is prepared and replayed.
    pub roots: Vec<PathBuf>,
    /// Directories of the reel, and others that take their places: see [`crate::prepare::path_map`].
    pub maps: Vec<(PathBuf, PathBuf)>,
    /// The tree is there, made by [`Replay::prepare`](crate::Replay::prepare): nothing is made, and what is there is kept.
    pub skip_prepare: bool,
    /// Files that were there before lie on the disk as they did, as far as the reel tells.
    pub layout: bool,
    /// What is remembered for a restoration after the replay; given once more after that, nothing is made.
    pub memory: Option<Memory>,
    /// The tree is there, just as it would be made, and nothing else: as a restoration left it.
    pub restored: bool,
    /// The most that the prepared tree and what is written may take, bytes.
    pub max_bytes: Option<i64>,
    /// The estimate of the room that the replay needs refuses nothing.
    pub force_room: bool,
    /// What the page cache holds at the start; with a limit on memory, at least cold.
    pub cache: CacheStart,
    /// The most memory that the replay may take, page cache and ioreel's own included.
    pub memory_limit: Option<i64>,
    /// Spun away before each deadline.
    pub spin_ns: i64,
    /// From where on the replay is not faithful.
    pub limits: Limits,
    /// Calls are skipped, and nothing is written: to measure the replayer itself.
    pub dry_run: bool,
    /// Of the plan, and of what became of it, so much each is kept in memory, the rest in unnamed files.
    pub memory_bytes: usize,
}

/// What is about to be done.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Operations to issue.
    pub operations: i64,
    /// Threads that issue them.
    pub threads: i64,
    /// Operations that cannot be, by reason.
    pub skipped: BTreeMap<String, i64>,
    /// Calls that made, entered or ended rings and contexts of asynchronous requests: carried out by the requests, neither
    /// issued for themselves nor left out.
    pub implied: i64,
    /// Of those that cannot be issued, calls that a replay does not know, by name.
    pub unknown: BTreeMap<String, i64>,
    /// Places outside `--root` that are replayed as well, since files were moved or linked from there, or to there.
    pub strayed: i64,
    /// Files prepared, and operations issued, without set-ID bits or attributes that give privileges.
    pub set_ids_left_out: i64,
    /// Device nodes that are neither prepared nor created.
    pub device_nodes_left_out: i64,
    /// Seed of the data that is prepared and written.
    pub seed: u64,
    /// Files, directories and links to make first.
    pub prepare_items: i64,
    /// Of these, regular files.
    pub prepare_files: i64,
    /// Their room.
    pub prepare_bytes: i64,
    /// Room the workload takes beyond, at its peak.
    pub growth_bytes: i64,
    /// Room there is.
    pub free_bytes: i64,
    /// The target's file system.
    pub fstype: String,
}

/// How it went.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was planned.
    pub summary: Summary,
    /// As on the command line.
    pub pace: String,
    /// Likewise.
    pub order: &'static str,
    /// Likewise.
    pub catch_up: &'static str,
    /// Calls were skipped.
    pub dry_run: bool,
    /// How much smaller files were made; 1 for not.
    pub scale_footprint: f64,
    /// The part of the reel that was replayed; null for all of it.
    pub slice: Option<Slice>,
    /// Operations issued.
    pub done: i64,
    /// From the start to the end of the last operation.
    pub elapsed_ns: i64,
    /// The same in the original.
    pub original_elapsed_ns: i64,
    /// From the start to the end of syncfs of the target; null in a dry run.
    pub synced_ns: Option<i64>,
    /// From the start until the original's file systems were synced and quiet; null for a slice that ends before that.
    pub original_synced_ns: Option<i64>,
    /// By how much stalls moved the schedule later.
    pub shift_ns: i64,
    /// Time spent spinning before deadlines, all threads together; times without a CPU meanwhile are in it.
    pub spun_ns: i64,
    /// CPU time of the whole process while operations were issued, that of calls included.
    pub cpu_ns: i64,
    /// How it compares.
    pub verdict: Judgement,
    /// What the page cache held at the start; null where that was left as it came.
    pub cache: Option<CacheReport>,
    /// How near files came to how they lay; null where that was not wanted.
    pub layout: Option<LayoutReport>,
    /// What memory was taken; null without a limit.
    pub memory: Option<MemoryReport>,
    /// What checking of data found; null when it was not wanted.
    pub data: Option<DataCheck>,
    /// What was restored afterwards; null when nothing was to be.
    pub restored: Option<Restored>,
    /// What else there is to say.
    pub warnings: Vec<String>,
}

/// What to tell while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// So many of so many things are made.
    Preparing(usize, usize),
    /// All is made: what is cached is seen to.
    Prepared,
    /// Operations are being issued.
    Running,
    /// The file system writes out.
    Settling,
}
