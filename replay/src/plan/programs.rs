//! Builds the programs of threads: steps, what they wait for, and their turns.

use std::{
    collections::{BTreeMap, HashMap},
    io, mem,
};

use crate::{
    Skip,
    contents::data::RecordedData,
    model::{
        machine::Machine,
        operands::{BAD_FD, Operands},
    },
    plan::{
        chunk::{CHUNK_STEPS, Chunk},
        dependencies::{FINISH, Order, Stamp},
        edge::EdgeKind,
        gaps::Gaps,
        program::{Act, Range, Step, TaskPlan},
        store::Store,
    },
    reel::{
        input::{NONE, Rec},
        submission::Phase,
    },
};

/// The unfinished last piece of a program.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) chunk: Chunk,
    /// Index in the piece's texts, by index in the input's.
    pub(crate) texts: HashMap<u32, u32>,
}

/// The programs of all threads while they are built, and the order between their steps.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) tasks: Vec<TaskPlan>,
    /// By thread: the unfinished piece of its program.
    pub(crate) drafts: Vec<Draft>,
    pub(crate) store: Store,
    pub(crate) dependencies: Order,
    /// By thread: children that ended since its last step.
    pub(crate) joins: Vec<Vec<u32>>,
    /// By thread: the turn of its last step.
    pub(crate) turns: Vec<i64>,
    pub(crate) calls: i64,
    pub(crate) longest_write_bytes: i64,
    /// What the reel says about the data written.
    pub(crate) recorded_data: RecordedData,
    /// The current operation is before the slice: nothing is planned.
    pub(crate) before_slice: bool,
    /// Start of the plan, ns of the reel.
    pub(crate) zero_ns: i64,
    /// Number of skipped operations, by reason.
    pub(crate) skipped: BTreeMap<Skip, i64>,
    /// Those on replayed files.
    pub(crate) gaps: Gaps,
    /// A piece could not be stored.
    pub(crate) failed: Option<io::Error>,
}

impl Programs {
    /// No programs yet. At most `memory_bytes` of them stay in memory.
    pub(crate) fn new(dependencies: Order, memory_bytes: usize, before_slice: bool) -> Self {
        Self {
            tasks: Vec::new(),
            drafts: Vec::new(),
            store: Store::new(memory_bytes),
            dependencies,
            joins: Vec::new(),
            turns: Vec::new(),
            calls: 0,
            longest_write_bytes: 0,
            recorded_data: RecordedData::default(),
            before_slice,
            zero_ns: 0,
            skipped: BTreeMap::new(),
            gaps: Gaps::default(),
            failed: None,
        }
    }

    /// Makes room for threads that appear only in operations.
    pub(crate) fn grow(&mut self, tasks: usize) {
        if self.tasks.len() < tasks {
            self.tasks.resize_with(tasks, TaskPlan::default);
            self.drafts.resize_with(tasks, Draft::default);
            self.joins.resize_with(tasks, Vec::new);
            self.turns.resize(tasks, i64::MIN);
        }
    }

    /// Counts a skipped operation, and whether it is missing from the work on replayed files.
    pub(crate) fn leave_out(&mut self, machine: &Machine, r: &Rec, v: &Operands, why: Skip) {
        self.skip(why);
        if !self.before_slice {
            self.gaps.left_out(machine, r, v, why);
        }
    }

    /// Counts a skipped operation.
    pub(crate) fn skip(&mut self, why: Skip) {
        if !self.before_slice {
            *self.skipped.entry(why).or_default() += 1;
        }
    }

    pub(crate) fn pair_list(&mut self, task: usize, pairs: &[(u32, u32)]) -> Range {
        let all = &mut self.drafts[task].chunk.pairs;
        let from = all.len() as u32;
        all.extend_from_slice(pairs);
        Range { from, len: pairs.len() as u32 }
    }

    pub(crate) fn slot_list(&mut self, task: usize, slots: impl IntoIterator<Item = u32>) -> Range {
        let all = &mut self.drafts[task].chunk.lists;
        let from = all.len() as u32;
        all.extend(slots);
        Range { from, len: all.len() as u32 - from }
    }

    /// Adds a step to a thread's program; `uses` registers its resources.
    pub(crate) fn push(&mut self, task: usize, act: Act, start_ns: i64, uses: impl FnOnce(&mut Order)) -> Stamp {
        self.push_step(task, act, start_ns, true, |order, _| uses(order))
    }

    /// Likewise. `issues`: false if the step only waits for the end of a request.
    fn push_step(
        &mut self,
        task: usize,
        act: Act,
        start_ns: i64,
        issues: bool,
        uses: impl FnOnce(&mut Order, &[u32]),
    ) -> Stamp {
        if self.before_slice {
            self.drafts[task] = Draft::default();
            return Stamp { task: task as u32, step: 0 };
        }
        let step = self.tasks[task].program.steps;
        self.dependencies.begin(task, step as usize);
        self.dependencies.work += self.joins[task].len() as u64 / 16;
        // A step that started before the child's end cannot have waited for it.
        let (ended, still): (Vec<u32>, Vec<u32>) = mem::take(&mut self.joins[task])
            .into_iter()
            .partition(|c| self.tasks[*c as usize].exit_ns.is_none_or(|e| e <= start_ns));
        self.joins[task] = still;
        for child in ended {
            self.dependencies.after(Stamp { task: child, step: FINISH }, EdgeKind::Life);
        }
        uses(&mut self.dependencies, &self.drafts[task].chunk.lists);
        self.take_turn(task, start_ns);
        let edges = mem::take(&mut self.dependencies.edges);
        for e in edges.iter().filter(|e| e.on.step != FINISH) {
            self.tasks[e.on.task as usize].program.await_step(e.on.step);
        }
        let chunk = &mut self.drafts[task].chunk;
        let after = Range { from: chunk.edges.len() as u32, len: edges.len() as u32 };
        chunk.edges.extend_from_slice(&edges);
        chunk.steps.push(Step { act, after });
        self.dependencies.edges = edges;
        self.tasks[task].program.added(act, self.turns[task], start_ns, issues);
        self.calls += i64::from(matches!(act, Act::Call { .. }));
        if self.drafts[task].chunk.steps.len() == CHUNK_STEPS && !matches!(act, Act::Call { .. } | Act::Submit { .. }) {
            self.seal(task);
        }
        Stamp { task: task as u32, step }
    }

    /// Adds the step that issues `rec`, whose texts are in the input. Before a slice, only applies it to file contents.
    pub(crate) fn push_call(
        &mut self,
        machine: &mut Machine,
        mut act: Act,
        mut rec: Rec,
        uses: impl FnOnce(&mut Machine, &mut Order, &[u32], &Act),
    ) {
        if self.before_slice {
            return machine.written_before(rec);
        }
        let task = rec.task as usize;
        let end_ns = rec.end_ns;
        // A call in flight when the slice starts is entered at the start of the slice.
        rec.start_ns = rec.start_ns.saturating_sub(self.zero_ns).max(0);
        rec.end_ns = rec.end_ns.saturating_sub(self.zero_ns).max(0);
        if let Some(residence) = &mut machine.reel.residence
            && (rec.call.reads() || rec.call.writes() || rec.call.touches())
            && let Some(pre) = machine.sizes.place_of(rec.file)
        {
            residence.touched(&rec, end_ns, pre);
        }
        machine.footprint.apply(&mut rec);
        let draft = &mut self.drafts[task];
        for index in [&mut rec.path, &mut rec.path2, &mut rec.name, &mut rec.value] {
            if *index != NONE {
                let (texts, chunk) = (&machine.reel.texts.paths, &mut draft.chunk);
                *index = *draft.texts.entry(*index).or_insert_with(|| chunk.paths.push(texts.bytes(*index)));
            }
        }
        if let Act::Call { rec, .. } | Act::Submit { rec, .. } = &mut act {
            *rec = draft.chunk.recs.len() as u32;
        }
        if rec.call.writes() {
            self.recorded_data.add(&rec);
            self.longest_write_bytes = self.longest_write_bytes.max(rec.len_bytes);
        } else if rec.call.copies() && matches!(act, Act::Call { fd: BAD_FD, .. }) {
            // Only the destination is replayed: the copy becomes a write.
            self.longest_write_bytes = self.longest_write_bytes.max(rec.ret);
        }
        self.push_step(task, act, rec.start_ns, rec.phase != Phase::Ended, |order, lists| {
            uses(machine, order, lists, &act);
        });
        rec.turn_ns = self.turns[task];
        if rec.phase != Phase::Submitted {
            self.dependencies.returned();
        }
        self.drafts[task].chunk.recs.push(rec);
        if self.drafts[task].chunk.steps.len() == CHUNK_STEPS {
            self.seal(task);
        }
    }

    /// Stores the unfinished piece.
    pub(crate) fn seal(&mut self, task: usize) {
        let chunk = mem::take(&mut self.drafts[task]).chunk;
        if chunk.steps.is_empty() {
            return;
        }
        self.drafts[task].chunk.first = chunk.first + chunk.steps.len() as u32;
        match self.store.put(chunk) {
            Ok(kept) => self.tasks[task].program.chunks.push(kept),
            Err(e) => self.failed = Some(e),
        }
    }

    /// Gives the step a turn: its recorded start, but later than the turns of all it waits for. `--pace load` issues
    /// calls by turn, so a call must not wait for one with a later turn.
    fn take_turn(&mut self, task: usize, start_ns: i64) {
        let after = self.dependencies.edges.iter();
        let last = after.map(|e| self.turns[e.on.task as usize].saturating_add(1)).max().unwrap_or(i64::MIN);
        // Steps other than calls have no time of their own.
        let start_ns = if start_ns == i64::MAX { i64::MIN } else { start_ns };
        self.turns[task] = self.turns[task].max(last).max(start_ns);
    }
}
