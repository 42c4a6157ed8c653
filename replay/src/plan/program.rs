//! The plan: what each thread does, and what each step waits for. Made from a reel alone, without
//! touching any file system.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use ioreel_traces::rows;

use crate::{
    Skip,
    contents::data::RecordedData,
    model::{
        attributes::Attributes,
        credentials::Credentials,
        data_keys::Keys,
        names::{Names, NodeId},
        processes::Slot,
        sizes::Sizes,
    },
    plan::{
        chunk::{CHUNK_STEPS, Chunk},
        initial_descriptors::Begin,
        store::{Store, Stored},
    },
    reel::{recorder::Recorder, slice::Slice, submission::Phase},
};

/// A range of one of the lists of a [`Chunk`].
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
        /// Index in [`Chunk::recs`].
        rec: u32,
        /// Slot of the descriptor, or of the directory that the path is relative to; [`BAD_FD`](crate::model::operands::BAD_FD), `CWD`, `TOP`.
        fd: i32,
        /// Slot of the second.
        fd2: i32,
        /// Slot that receives the new descriptor or address.
        slot: u32,
        /// Open descriptors (`close_range`) or mappings it acts on, in [`Chunk::lists`].
        list: Range,
    },
    /// Starts a thread.
    Spawn {
        /// Its index in [`Plan::tasks`].
        task: u32,
    },
    /// Closes descriptors that closed without a call (exec, replaced by one that is not replayed).
    Close(Range),
    /// Unmaps what an exec or exit unmapped; cells in [`Chunk::lists`].
    Unmap(Range),
    /// Submits a request, whose end is a [`Act::Call`] later on.
    Submit {
        /// Index in [`Chunk::recs`].
        rec: u32,
        /// As of a call.
        fd: i32,
        /// Likewise.
        fd2: i32,
        /// It belongs to the batch of the request before it: both are submitted by one call.
        joins: bool,
    },
    /// A call about requests returned then in the recording: what follows computed from there on.
    Returned {
        /// When it was entered, ns of the reel: what was computed before is still to be.
        entered_ns: i64,
        /// And returned.
        recorded_ns: i64,
    },
    /// Goes on where it had read from a pipe, or wrote to one, which is not done again.
    Passed {
        /// Since when it had nothing else to do, ns.
        idle_ns: i64,
        /// When it could go on: its computing time counts from there.
        recorded_ns: i64,
    },
    /// Makes the thread's descriptor table its own: exec of a thread that shared it. Pairs (old, new slot).
    Unshare(Range),
    /// Makes the thread somebody else: exec of a program that runs as its owner. Ids in [`Chunk::lists`].
    Become(Range),
}

/// A step of a thread's program.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub act: Act,
    /// What it waits for, in [`Chunk::edges`].
    pub after: Range,
}

/// A thread's program, in pieces.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The pieces, each of [`CHUNK_STEPS`] steps but the last.
    pub chunks: Vec<Stored<Chunk>>,
    /// Of each piece, what comes first in it.
    heads: Vec<Head>,
    /// Steps that others wait for: a bit each.
    awaited: Vec<u64>,
    /// Number of steps.
    pub steps: u32,
    /// Of these, calls.
    pub calls: u32,
    /// Entry of the first call, ns of the reel.
    pub first_ns: i64,
    /// Threads it starts.
    spawned: Vec<u32>,
    /// It reads from pipes, or writes to them.
    passes: bool,
}

/// The beginning of a piece.
#[derive(Clone, Debug, Default)]
struct Head {
    /// Turn of its first call.
    turn_ns: Option<i64>,
    /// Threads started before that.
    spawns: Vec<u32>,
}

impl Program {
    /// A step was added.
    pub(crate) fn added(&mut self, act: Act, turn_ns: i64, start_ns: i64, issues: bool) {
        let chunk = self.steps as usize / CHUNK_STEPS;
        if self.heads.len() <= chunk {
            self.heads.push(Head::default());
        }
        let head = &mut self.heads[chunk];
        match act {
            Act::Submit { .. } => {
                head.turn_ns.get_or_insert(turn_ns);
            }
            Act::Call { .. } => {
                if issues {
                    head.turn_ns.get_or_insert(turn_ns);
                }
                if self.calls == 0 {
                    self.first_ns = start_ns;
                }
                self.calls += 1;
            }
            Act::Spawn { task } => {
                self.spawned.push(task);
                if head.turn_ns.is_none() {
                    head.spawns.push(task);
                }
            }
            Act::Passed { .. } => self.passes = true,
            _ => {}
        }
        self.steps += 1;
    }

    /// Somebody waits for a step.
    pub(crate) fn await_step(&mut self, step: u32) {
        let word = step as usize / 64;
        if self.awaited.len() <= word {
            self.awaited.resize(word + 1, 0);
        }
        self.awaited[word] |= 1 << (step % 64);
    }

    /// Whether somebody waits for a step.
    pub fn is_awaited(&self, step: u32) -> bool {
        self.awaited.get(step as usize / 64).is_some_and(|w| w & 1 << (step % 64) != 0)
    }

    /// Threads it starts.
    pub fn spawned(&self) -> &[u32] {
        &self.spawned
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps == 0
    }
}

/// A recorded thread as it is replayed.
#[derive(Clone, Debug, Default)]
pub struct TaskPlan {
    /// Its steps.
    pub program: Program,
    /// `CLONE_*` flags.
    pub clone_flags: i64,
    /// Descriptors it inherits by copy: parent's slot, own slot.
    pub copies: Box<[(Slot, Slot)]>,
    /// Born, ns of the reel.
    pub start_ns: i64,
    /// Ended, ns of the reel.
    pub exit_ns: Option<i64>,
    /// The first turn of it and the threads it starts.
    pub first_turn_ns: Option<i64>,
    /// Set when it was not started by another recorded thread, or before the slice that is replayed, unless it shares all this
    /// with the one that starts it.
    pub root: Option<Root>,
    /// As whom it begins, when that is not as the thread that starts it, and `root` does not tell.
    pub begins_as: Option<Credentials>,
    /// It is there from the start, not made by a step of another.
    pub at_start: bool,
    /// It ends with locks that others meet: it is started even if it makes no call.
    pub holds_locks: bool,
}

/// The state of a thread that the recording began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Root directory.
    pub root: Vec<u8>,
    /// The one that whoever starts it has: that of the replay, unless another thread does.
    pub root_of_starter: Vec<u8>,
    /// File creation mask.
    pub umask: i32,
    /// User and group.
    pub who: Credentials,
    /// Working directory, in place of `cwd`, where it has no name: index in [`Begin::opens`].
    pub cwd_open: Option<u32>,
    /// Open file descriptions that its descriptor table refers to, by index in [`Begin::opens`], and the cells.
    pub fds: Vec<(u32, Slot)>,
}

/// All that is to be done, and what is not.
#[derive(Debug)]
pub struct Plan {
    /// Threads.
    pub tasks: Vec<TaskPlan>,
    /// Index in `tasks` by task id.
    pub task_index: HashMap<i64, u32>,
    /// Where their programs are.
    pub store: Store,
    /// Number of descriptor cells.
    pub fd_slots: usize,
    /// Number of mapping cells.
    pub map_slots: usize,
    /// The reel's name space before the workload.
    pub tree: Vec<rows::Tree>,
    /// Number of operations to issue.
    pub calls: i64,
    /// Operations that are not replayed.
    pub skipped: BTreeMap<Skip, i64>,
    /// Calls that made, entered or ended rings and contexts of asynchronous requests: carried out by the requests.
    pub implied: i64,
    /// How rings of io_uring were set up (`IORING_SETUP_*`), by number.
    pub ring_flags: HashMap<i64, i64>,
    /// Of those that are not replayed, calls that a replay does not know, by name.
    pub unknown: BTreeMap<String, i64>,
    /// Places outside the roots that something was moved or linked from, or to, over their border: for the plan to be right they
    /// have to be roots, too.
    pub strayed: BTreeSet<Vec<u8>>,
    /// The name space as the workload left it, and what it says of the start.
    pub names: Names,
    /// Lengths of files at the end, by place, where they are known for certain.
    pub end_sizes: HashMap<NodeId, i64>,
    /// Sizes and room.
    pub sizes: Sizes,
    /// The longest write, bytes.
    pub longest_write_bytes: i64,
    /// When the last operation returned, ns after the start of what is replayed.
    pub last_end_ns: i64,
    /// Pages that the page cache held, by place of the file; empty where that was not to be found out.
    pub resident: HashMap<NodeId, Vec<std::ops::Range<i64>>>,
    /// What the data of files depends on.
    pub keys: Keys,
    /// What the reel tells of the data that was written.
    pub told: RecordedData,
    /// Threads become other users than root on their way.
    pub users_change: bool,
    /// Extended attributes before the start, by place.
    pub attributes: HashMap<NodeId, Attributes>,
    /// What threads have open, and mapped, before their first step.
    pub begin: Begin,
    /// Set-ID bits and privileged attributes are replayed: see [`crate::base::privileges`].
    pub set_ids: bool,
    /// Operations that are issued without the set-ID bits of their mode.
    pub set_ids_left_out: i64,
    /// The part of the reel that is replayed: times of the plan count from its start.
    pub slice: Slice,
    /// What recording cost the program.
    pub recorder: Recorder,
    /// Operations begin at the target's root in threads that have another.
    pub from_top: bool,
}

impl Plan {
    /// Operations that are not replayed, for people and manifests.
    pub fn skipped_by_label(&self) -> BTreeMap<String, i64> {
        self.skipped.iter().map(|(k, n)| (k.label().to_owned(), *n)).collect()
    }

    /// A piece of a thread's program; `None` at its end, or when it cannot be read any more.
    pub fn chunk(&self, task: u32, index: usize) -> Option<Arc<Chunk>> {
        let kept = self.tasks[task as usize].program.chunks.get(index)?;
        self.store.get(kept).map_err(|e| log::error!("the plan cannot be read back: {e}")).ok()
    }

    /// Each step of a thread's program.
    pub fn each_step(&self, task: u32, mut each: impl FnMut(u32, &Step, &Chunk)) {
        let mut index = 0;
        while let Some(chunk) = self.chunk(task, index) {
            for (i, step) in chunk.steps.iter().enumerate() {
                each(chunk.first + i as u32, step, &chunk);
            }
            index += 1;
        }
    }

    /// The turn of the first call that `task`, from step `from` of this piece on, or a thread that it starts before, issues.
    pub fn next_turn(&self, task: u32, chunk: &Chunk, from: usize) -> Option<i64> {
        let mut first: Option<i64> = None;
        for step in chunk.steps.iter().skip(from) {
            match step.act {
                Act::Call { rec, .. } | Act::Submit { rec, .. } => {
                    let r = &chunk.recs[rec as usize];
                    if r.phase != Phase::Ended {
                        return at_most(first, Some(r.turn_ns));
                    }
                }
                Act::Spawn { task } => first = at_most(first, self.tasks[task as usize].first_turn_ns),
                _ => {}
            }
        }
        at_most(first, self.turn_from(task, chunk.first as usize / CHUNK_STEPS + 1))
    }

    fn turn_from(&self, task: u32, chunk: usize) -> Option<i64> {
        let mut first = None;
        for head in self.tasks[task as usize].program.heads.iter().skip(chunk) {
            for child in &head.spawns {
                first = at_most(first, self.tasks[*child as usize].first_turn_ns);
            }
            if head.turn_ns.is_some() {
                return at_most(first, head.turn_ns);
            }
        }
        first
    }

    /// Removes threads that do nothing, and finds first turns.
    pub(crate) fn finish(&mut self) {
        // Threads come after those that start them.
        for i in (0..self.tasks.len()).rev() {
            let program = &self.tasks[i].program;
            let busy = |task: &u32| !self.tasks[*task as usize].program.is_empty();
            // Steps keep their index, which edges name: a program goes only as a whole.
            let idle = program.calls == 0 && !program.passes;
            if idle && !self.tasks[i].holds_locks && !program.spawned.iter().any(busy) {
                self.tasks[i].program = Program::default();
            }
            self.tasks[i].first_turn_ns = self.turn_from(i as u32, 0);
        }
    }
}

fn at_most(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
