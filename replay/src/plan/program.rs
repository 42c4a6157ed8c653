//! The plan: the program of each thread, and what each step waits for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
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
        gaps::Gaps,
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
    /// Number of elements.
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
    /// Issues a recorded call, or waits for the end of a submitted request.
    Call {
        /// Index in [`Chunk::recs`].
        rec: u32,
        /// Slot of the descriptor, or of the directory that the path starts from; or
        /// [`BAD_FD`](crate::model::operands::BAD_FD), `CWD`, `TOP`.
        fd: i32,
        /// Slot of the second one.
        fd2: i32,
        /// Slot that receives the new descriptor or address.
        slot: u32,
        /// Slots of the descriptors (`close_range`) or mappings that it acts on, in [`Chunk::lists`].
        list: Range,
    },
    /// Starts a thread.
    Spawn {
        /// Its index in [`Plan::tasks`].
        task: u32,
    },
    /// Closes descriptors that were closed without a call (by exec, or replaced in an operation that is not replayed).
    Close(Range),
    /// Unmaps what an exec or exit unmapped; slots in [`Chunk::lists`].
    Unmap(Range),
    /// Submits a request. Its end is a later [`Act::Call`].
    Submit {
        /// Index in [`Chunk::recs`].
        rec: u32,
        /// As in `Call`.
        fd: i32,
        /// As in `Call`.
        fd2: i32,
        /// Submitted by the same call as the request before it.
        joins: bool,
    },
    /// Return of a call about rings (not replayed): think time counts from here.
    Returned {
        /// Its entry, ns of the plan: think time before it is kept.
        entered_ns: i64,
        /// Its return, ns of the plan.
        recorded_ns: i64,
    },
    /// A read from, or write to, a pipe or socket, which is not replayed: the thread waits for its edges.
    Passed {
        /// Since when the thread had nothing else to do, ns of the plan.
        idle_ns: i64,
        /// When it could go on, ns of the plan: think time counts from here.
        recorded_ns: i64,
    },
    /// Gives the thread its own descriptor table (exec, unshare). Pairs of old and new slot in [`Chunk::pairs`].
    Unshare(Range),
    /// Sets credentials (exec of a set-ID program). Ids in [`Chunk::lists`].
    Become(Range),
    /// Hands a descriptor in for those that receive it by message later.
    HandIn {
        /// Slot of the descriptor.
        slot: u32,
        /// Index in [`Plan::receipts`].
        place: u32,
    },
    /// Receives a descriptor that was handed in.
    Receive {
        /// Index in [`Plan::receipts`].
        place: u32,
        /// Slot of the new descriptor.
        slot: u32,
    },
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
    /// The pieces. All but the last have [`CHUNK_STEPS`] steps.
    pub chunks: Vec<Stored<Chunk>>,
    /// By piece: what it starts with.
    heads: Vec<Head>,
    /// Bitmap of the steps that others wait for.
    awaited: Vec<u64>,
    /// Number of steps.
    pub steps: u32,
    /// Number of calls among them.
    pub calls: u32,
    /// Entry of the first call, ns of the plan.
    pub first_ns: i64,
    /// Threads that it starts.
    spawned: Vec<u32>,
    /// It reads from or writes to pipes or sockets, or hands descriptors in.
    passes: bool,
    /// It submits requests to io_uring or AIO contexts.
    submits: bool,
}

/// What a piece starts with.
#[derive(Clone, Debug, Default)]
struct Head {
    /// Turn of its first call: its place in the issue order of `--pace load`, ns of the plan.
    turn_ns: Option<i64>,
    /// Threads started before that call.
    spawns: Vec<u32>,
}

impl Program {
    /// Accounts for a new step. `issues`: it issues something, rather than waits for a request.
    pub(crate) fn added(&mut self, act: Act, turn_ns: i64, start_ns: i64, issues: bool) {
        let chunk = self.steps as usize / CHUNK_STEPS;
        if self.heads.len() <= chunk {
            self.heads.push(Head::default());
        }
        let head = &mut self.heads[chunk];
        match act {
            Act::Submit { .. } => {
                head.turn_ns.get_or_insert(turn_ns);
                self.submits = true;
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
            Act::Passed { .. } | Act::HandIn { .. } => self.passes = true,
            _ => {}
        }
        self.steps += 1;
    }

    /// Another step waits for this one.
    pub(crate) fn await_step(&mut self, step: u32) {
        let word = step as usize / 64;
        if self.awaited.len() <= word {
            self.awaited.resize(word + 1, 0);
        }
        self.awaited[word] |= 1 << (step % 64);
    }

    /// Whether another step waits for this one.
    pub fn is_awaited(&self, step: u32) -> bool {
        self.awaited.get(step as usize / 64).is_some_and(|w| w & 1 << (step % 64) != 0)
    }

    /// Threads that it starts.
    pub fn spawned(&self) -> &[u32] {
        &self.spawned
    }

    /// Whether it submits requests to io_uring or AIO contexts.
    pub fn submits(&self) -> bool {
        self.submits
    }

    /// Whether it has no steps.
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
    /// Descriptors that it inherits by copy: parent's slot, own slot.
    pub copies: Box<[(Slot, Slot)]>,
    /// Start, ns of the plan.
    pub start_ns: i64,
    /// End, ns of the plan.
    pub exit_ns: Option<i64>,
    /// First turn of its calls and of the threads it starts.
    pub first_turn_ns: Option<i64>,
    /// Initial state, if no recorded thread started it, or if it runs when the slice starts and does not share this
    /// state with the thread that starts it.
    pub root: Option<Root>,
    /// Initial credentials, if they differ from those of the thread that starts it and `root` is not set.
    pub begins_as: Option<Credentials>,
    /// Runs from the start, not started by a step of another thread.
    pub at_start: bool,
    /// Holds locks that affect others: it is started even without calls.
    pub holds_locks: bool,
}

/// Initial state of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Root directory.
    pub root: Vec<u8>,
    /// Root directory of the thread that starts it; the target's if none does.
    pub root_of_starter: Vec<u8>,
    /// File creation mask (umask).
    pub umask: i32,
    /// User and group ids.
    pub who: Credentials,
    /// The working directory, instead of `cwd`, if it was removed: index in [`Begin::opens`].
    pub cwd_open: Option<u32>,
    /// Descriptor table: index in [`Begin::opens`], and slot.
    pub fds: Vec<(u32, Slot)>,
}

/// The plan of a replay.
#[derive(Debug)]
pub struct Plan {
    /// Threads.
    pub tasks: Vec<TaskPlan>,
    /// Index in `tasks` by task id.
    pub task_index: HashMap<i64, u32>,
    /// Storage of the programs.
    pub store: Store,
    /// Number of descriptor slots.
    pub fd_slots: usize,
    /// Number of mapping slots.
    pub map_slots: usize,
    /// The name space before the workload.
    pub tree: Vec<rows::Tree>,
    /// Number of operations to issue.
    pub calls: i64,
    /// Number of skipped operations, by reason.
    pub skipped: BTreeMap<Skip, i64>,
    /// Operations on replayed files among them that succeeded in the original.
    pub gaps: Gaps,
    /// Number of calls about rings and AIO contexts, which are carried out by the requests.
    pub implied: i64,
    /// How often each descriptor that is handed in is received.
    pub receipts: Vec<u32>,
    /// Setup flags (`IORING_SETUP_*`) of io_uring rings, by ring.
    pub ring_flags: HashMap<i64, i64>,
    /// Number of calls that a replay does not know, by name.
    pub unknown: BTreeMap<String, i64>,
    /// Paths outside the roots from or to which something was moved or linked across the boundary. The plan is right
    /// only if these are roots, too.
    pub strayed: BTreeSet<Vec<u8>>,
    /// The name space at the end of the workload, with what results proved about the start.
    pub names: Names,
    /// Known lengths of regular files at the end, bytes on the target, by name.
    pub end_sizes: HashMap<NodeId, i64>,
    /// Sizes to prepare, and space needed.
    pub sizes: Sizes,
    /// The longest write, bytes.
    pub longest_write_bytes: i64,
    /// Return of the last operation, ns of the plan.
    pub last_end_ns: i64,
    /// Pages in the page cache at the start, by initial name; empty if not asked for.
    pub resident: HashMap<NodeId, Vec<std::ops::Range<i64>>>,
    /// Keys of generated data.
    pub keys: Keys,
    /// What the reel says about the data written.
    pub told: RecordedData,
    /// Threads change to users other than root.
    pub users_change: bool,
    /// Initial extended attributes, by name.
    pub attributes: HashMap<NodeId, Attributes>,
    /// Initial names of directories that are subvolumes of btrfs.
    pub subvolumes: HashSet<NodeId>,
    /// What threads have open and mapped before their first step.
    pub begin: Begin,
    /// The replay runs as root, so owners can be set.
    pub privileged: bool,
    /// Set-ID bits and privileged attributes are replayed: see [`crate::base::privileges`].
    pub set_ids: bool,
    /// Number of operations issued without the set-ID bits of their mode.
    pub set_ids_left_out: i64,
    /// Device nodes are created.
    pub makes_devices: bool,
    /// Number of device nodes that operations created and the replay does not.
    pub device_nodes_left_out: i64,
    /// The replayed part of the reel. Times of the plan count from its start.
    pub slice: Slice,
    /// Overhead of the recording.
    pub recorder: Recorder,
    /// Some operations start at the target's root although their thread has another root directory.
    pub from_top: bool,
}

impl Plan {
    /// Number of skipped operations by label, for users and manifests.
    pub fn skipped_by_label(&self) -> BTreeMap<String, i64> {
        self.skipped.iter().map(|(k, n)| (k.label().to_owned(), *n)).collect()
    }

    /// A piece of a thread's program; `None` at its end, or if it cannot be read back.
    pub fn chunk(&self, task: u32, index: usize) -> Option<Arc<Chunk>> {
        let kept = self.tasks[task as usize].program.chunks.get(index)?;
        self.store.get(kept).map_err(|e| log::error!("cannot read the stored plan: {e}")).ok()
    }

    /// Calls `each` for every step of a thread's program.
    pub fn each_step(&self, task: u32, mut each: impl FnMut(u32, &Step, &Chunk)) {
        let mut index = 0;
        while let Some(chunk) = self.chunk(task, index) {
            for (i, step) in chunk.steps.iter().enumerate() {
                each(chunk.first + i as u32, step, &chunk);
            }
            index += 1;
        }
    }

    /// Turn of the next call that is issued by `task`, from step `from` of this piece on, or by a thread that it starts
    /// before that.
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

    /// Empties the programs of threads that do nothing, and sets first turns.
    pub(crate) fn finish(&mut self) {
        // Threads come after those that start them.
        for i in (0..self.tasks.len()).rev() {
            let program = &self.tasks[i].program;
            let busy = |task: &u32| !self.tasks[*task as usize].program.is_empty();
            // Edges refer to steps by index, so a program is removed only as a whole.
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
