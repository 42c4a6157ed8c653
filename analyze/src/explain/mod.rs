//! The story of one operation, for `ioreel explain`.
//!
//! In: a reel and a choice of operations. Out: [`Story`]s: what each waited for, its own bios and those of others in that
//! time, and what it caused afterwards. May use: `events`, `facts`.
//!
//! * `find` picks the operations; `around` reads what happened around them: waits, with who held locks (`holders`), bios,
//!   and the commit that a sync rode on (`commits`). Only segments of that time are read.

mod around;
mod commits;
mod find;
mod holders;

use ioreel_traces::Reel;
use serde::Serialize;

pub use self::find::{Choice, PathFilter};
use crate::{Result, facts::Names};

/// Maximum number of moments of a story. Further ones are counted.
pub const MOST_MOMENTS: usize = 1000;

/// One moment of the story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Time since the operation's start, ns.
    pub at_ns: i64,
    /// Duration, ns. Null if its end was not seen.
    pub dur_ns: Option<i64>,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// The thread was off its CPU.
    Wait {
        /// The word of `waits.reason`.
        reason: String,
        /// Last part of it, spent waiting for a CPU, ns.
        run_queue_ns: i64,
        /// Innermost functions of the kernel's stack, outermost first.
        stack: Vec<String>,
        /// Who woke it. Null: an interrupt did, or it was preempted, or that is not known.
        waker: Option<Actor>,
        /// Kind of the lock that it waited for, and how it was wanted: a word of `waits.lock_kind`.
        lock_kind: Option<String>,
        /// Who held that lock when the wait began. Null: no lock, or the lock does not tell.
        holder: Option<Actor>,
    },
    /// A bio that the operation caused.
    OwnBio(BioOf),
    /// A bio of the journal or a flush, while a sync waited.
    Commit(BioOf),
}

/// A thread, and what it was doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Actor {
    /// Name of the thread.
    pub comm: String,
    /// Process id. Null if the thread was not recorded.
    pub pid: Option<i32>,
    /// The operation that it was in: key into `ops`. Null: in none, or not recorded.
    pub op_id: Option<i64>,
    /// The kernel's name of that call.
    pub op: Option<String>,
    /// Path of its file, or the path argument.
    pub path: Option<String>,
}

/// The commit that a sync rode on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommitOf {
    /// The word of `commits.kind`.
    pub kind: String,
    /// Number of the transaction.
    pub transaction: Option<i64>,
    /// Start since the operation's start, ns; negative before it. Null if not known.
    pub at_ns: Option<i64>,
    /// End since the operation's start, ns.
    pub end_ns: i64,
    /// Time in which it waited for changes in progress, ns. Null if not known.
    pub locking_ns: Option<i64>,
    /// Time in which it wrote the data of files, ns.
    pub data_ns: Option<i64>,
    /// Time in which it wrote to the journal, ns.
    pub logging_ns: Option<i64>,
    /// Changes by file system calls in the transaction.
    pub handles: Option<i64>,
    /// Blocks of metadata.
    pub blocks: Option<i64>,
    /// Bytes written to the journal or log.
    pub len_bytes: Option<i64>,
    /// Name of the thread that made it.
    pub comm: Option<String>,
    /// Bytes of file data that this thread wrote during the commit.
    pub data_bytes: u64,
    /// Paths of the files with the most of them.
    pub data_files: Vec<String>,
}

/// A bio, in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BioOf {
    /// `read`, `write`, `flush`, …
    pub op: String,
    /// Length.
    pub len_bytes: i64,
    /// First sector, negative if it has none.
    pub sector: i64,
    /// Name of the device.
    pub device: String,
    /// Class of its content.
    pub class: String,
    /// Path of the file whose data it carries.
    pub file: Option<String>,
    /// Name of the thread that queued it.
    pub comm: String,
}

/// Bios of one kind that were in flight during the operation and were not its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Others {
    /// Name of the thread that queued them.
    pub comm: String,
    /// Name of the device.
    pub device: String,
    /// `read`, `write`, …
    pub op: String,
    /// Class of their content.
    pub class: String,
    /// Bios.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Paths of the files with the most bytes.
    pub files: Vec<String>,
}

/// Bios of the operation's file after it had returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Afterwards {
    /// Writes of its data.
    pub writes: u64,
    /// Bytes of these.
    pub write_bytes: u64,
    /// When the last one completed, ns since the operation's start.
    pub last_ns: Option<i64>,
}

/// The story of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Story {
    /// Its id.
    pub op_id: i64,
    /// The kernel's name of the call.
    pub op: String,
    /// Start, ns since the start of the reel.
    pub start_ns: i64,
    /// Duration, ns.
    pub dur_ns: i64,
    /// Result or -errno.
    pub ret: Option<i64>,
    /// Path of its file, or the path argument.
    pub path: Option<String>,
    /// Position in the file.
    pub offset_bytes: Option<i64>,
    /// Bytes requested.
    pub len_bytes: Option<i64>,
    /// Name of the thread.
    pub comm: String,
    /// Process id.
    pub pid: i32,
    /// Time by reason, ns; also `cpu`, and `unknown` for time off the CPU whose wait is not kept. Null if waits were not
    /// recorded.
    pub waited_ns: Option<Vec<Reason>>,
    /// For a sync that was recorded with `--waits`: the commit that it rode on, the last to end in it.
    pub commit: Option<CommitOf>,
    /// What happened, by time.
    pub moments: Vec<Moment>,
    /// Moments beyond the first [`MOST_MOMENTS`].
    pub left_out: u64,
    /// Bios of others in that time, most bytes first.
    pub others: Vec<Others>,
    /// Write-back of its file within 35 s after it.
    pub afterwards: Afterwards,
}

/// Time for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// A word of `waits.reason`, `cpu` or `unknown`.
    pub reason: String,
    /// ns.
    pub ns: i64,
}

/// The stories of the chosen operations, longest first.
///
/// # Errors
/// When the reel cannot be read.
pub fn explain(reel: &Reel, choice: &Choice) -> Result<Vec<Story>> {
    let names = Names::of(reel)?;
    let found = find::operations(reel, choice, &names)?;
    around::stories(reel, found, &names)
}
