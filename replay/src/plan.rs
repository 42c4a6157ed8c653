//! The plan: what each thread does, and what each step waits for. Made from a reel alone, without
//! touching any file system.

use std::collections::{BTreeMap, HashMap};

use ioreel_traces::rows;

use crate::{
    Skip,
    edge::Edge,
    input::{Paths, Rec},
    names::{Names, NodeId},
    procs::Slot,
    sizes::Sizes,
};

/// In place of a slot: no valid descriptor, the call is to fail with EBADF.
pub const BAD_FD: i32 = -1;
/// In place of a slot: the working directory.
pub const CWD: i32 = libc::AT_FDCWD;

/// A range of one of the plan's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First index.
    pub from: u32,
    /// Number.
    pub len: u32,
}

impl Range {
    /// The elements.
    pub fn of<T>(self, list: &[T]) -> &[T] {
        list.get(self.from as usize..(self.from + self.len) as usize).unwrap_or_default()
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Issues a recorded call.
    Call {
        /// Index in [`Plan::recs`].
        rec: u32,
        /// Slot of the descriptor, or of the directory that the path is relative to; [`BAD_FD`], [`CWD`].
        fd: i32,
        /// Slot of the second.
        fd2: i32,
        /// Slot that receives the new descriptor or address.
        slot: u32,
        /// Open descriptors (`close_range`) or mappings it acts on, in [`Plan::lists`].
        list: Range,
    },
    /// Starts a thread.
    Spawn {
        /// Its index in [`Plan::tasks`].
        task: u32,
    },
    /// Closes descriptors that closed without a call (exec, replaced by one that is not replayed).
    Close(Range),
    /// Unmaps what an exec or exit unmapped; cells in [`Plan::lists`].
    Unmap(Range),
    /// Makes the thread's descriptor table its own: exec of a thread that shared it. Pairs (old, new slot).
    Unshare(Range),
}

/// A step of a thread's program.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub act: Act,
    /// What it waits for, in [`Plan::edges`].
    pub after: Range,
    /// Someone waits for it.
    pub awaited: bool,
}

/// A recorded thread as it is replayed.
#[derive(Clone, Debug, Default)]
pub struct TaskPlan {
    /// Its steps.
    pub program: Vec<Step>,
    /// `CLONE_*` flags.
    pub clone_flags: i64,
    /// Descriptors it inherits by copy: pairs (parent's slot, own slot) in [`Plan::pairs`].
    pub copies: Range,
    /// Born, ns of the reel.
    pub start_ns: i64,
    /// Ended, ns of the reel.
    pub exit_ns: Option<i64>,
    /// The first turn of it and the threads it starts.
    pub first_turn_ns: Option<i64>,
    /// Set when it was not started by another recorded thread.
    pub root: Option<Root>,
}

/// The state of a thread that the recording began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Root directory.
    pub root: Vec<u8>,
    /// File creation mask.
    pub umask: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Files it had open.
    pub fds: Vec<OpenAtStart>,
}

/// An open file description at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAtStart {
    /// Absolute path.
    pub path: Vec<u8>,
    /// Open flags.
    pub flags: i32,
    /// Position.
    pub offset_bytes: i64,
    /// Cells of the descriptors that refer to it.
    pub slots: Vec<Slot>,
}

/// All that is to be done, and what is not.
#[derive(Debug)]
pub struct Plan {
    /// Recorded operations, by return.
    pub recs: Vec<Rec>,
    /// Paths of `recs`.
    pub paths: Paths,
    /// Values of extended attributes.
    pub values: Vec<Box<[u8]>>,
    /// Threads.
    pub tasks: Vec<TaskPlan>,
    /// Edges of all steps.
    pub edges: Vec<Edge>,
    /// Lists of slots.
    pub lists: Vec<u32>,
    /// Pairs of slots.
    pub pairs: Vec<(Slot, Slot)>,
    /// Number of descriptor cells.
    pub fd_slots: usize,
    /// Mapping cells: the length of each mapping.
    pub map_bytes: Vec<i64>,
    /// The reel's name space before the workload.
    pub tree: Vec<rows::Tree>,
    /// Number of operations to issue.
    pub calls: i64,
    /// Operations that are not replayed.
    pub skipped: BTreeMap<Skip, i64>,
    /// The name space as the workload left it, and what it says of the start.
    pub names: Names,
    /// Lengths of files at the end, by place, where they are known for certain.
    pub end_sizes: HashMap<NodeId, i64>,
    /// Sizes and room.
    pub sizes: Sizes,
    /// Whether the file of a byte-counting call is regular, by `recs` index: a bit each.
    pub regular: Vec<bool>,
    /// Names of files by id, where known: for messages.
    pub file_paths: HashMap<i64, String>,
    /// When the last recorded operation returned, ns of the reel.
    pub last_end_ns: i64,
}

impl Plan {
    /// Operations that are not replayed, for people and manifests.
    pub fn skipped_by_label(&self) -> BTreeMap<String, i64> {
        self.skipped.iter().map(|(k, n)| (k.label().to_owned(), *n)).collect()
    }

    /// The turn of the first call that `task`, from this step on, or a thread that it starts before, issues.
    pub fn next_turn(&self, task: u32, from: usize) -> Option<i64> {
        let mut first: Option<i64> = None;
        let mut at_most = |turn: i64| first = Some(first.map_or(turn, |f: i64| f.min(turn)));
        for step in self.tasks[task as usize].program.iter().skip(from) {
            match step.act {
                Act::Call { rec, .. } => {
                    at_most(self.recs[rec as usize].turn_ns);
                    break;
                }
                Act::Spawn { task } => {
                    if let Some(turn) = self.tasks[task as usize].first_turn_ns {
                        at_most(turn);
                    }
                }
                _ => {}
            }
        }
        first
    }

    /// Removes threads that do nothing, and marks the steps that others wait for.
    pub(crate) fn finish(&mut self) {
        for i in (0..self.tasks.len()).rev() {
            let empty: Vec<bool> = self.tasks[i]
                .program
                .iter()
                .map(|s| match s.act {
                    Act::Spawn { task } => self.tasks[task as usize].program.is_empty(),
                    _ => false,
                })
                .collect();
            // Steps keep their index, which edges name: a program goes only as a whole.
            if self.tasks[i]
                .program
                .iter()
                .zip(&empty)
                .all(|(s, e)| *e || !matches!(s.act, Act::Call { .. } | Act::Spawn { .. }))
            {
                self.tasks[i].program = Vec::new();
            }
        }
        // Threads come after those that start them.
        for task in (0..self.tasks.len()).rev() {
            self.tasks[task].first_turn_ns = self.next_turn(task as u32, 0);
        }
        for s in &self.edges {
            if let Some(step) = self.tasks[s.on.task as usize].program.get_mut(s.on.step as usize) {
                step.awaited = true;
            }
        }
        self.paths.freeze();
    }
}
