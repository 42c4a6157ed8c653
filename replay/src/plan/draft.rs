//! Makes programs, piece by piece.

use std::{collections::HashMap, mem};

use crate::{
    plan::{
        chunk::{CHUNK_STEPS, Chunk},
        dependencies::{FINISH, Stamp},
        edge::EdgeKind,
        planner::Planner,
        program::{Act, Range, Step},
    },
    reel::{
        input::{NONE, Rec},
        submission::Phase,
    },
};

/// A piece in the making.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) chunk: Chunk,
    /// Index in its own texts by index in the input's.
    pub(crate) texts: HashMap<u32, u32>,
}

impl Planner {
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

    /// Adds a step to a thread's program; `uses` names its resources.
    pub(crate) fn push(&mut self, task: usize, act: Act, start_ns: i64, uses: impl FnOnce(&mut Self)) -> Stamp {
        self.push_step(task, act, start_ns, true, uses)
    }

    /// The same; `issues` is false where the end of what was issued before is waited for.
    fn push_step(&mut self, task: usize, act: Act, start_ns: i64, issues: bool, uses: impl FnOnce(&mut Self)) -> Stamp {
        if self.silent {
            self.drafts[task] = Draft::default();
            return Stamp { task: task as u32, step: 0 };
        }
        let step = self.tasks[task].program.steps;
        self.order.begin(task, step as usize);
        // What began before the child's end cannot have waited for it.
        let (ended, still): (Vec<u32>, Vec<u32>) = mem::take(&mut self.joins[task])
            .into_iter()
            .partition(|c| self.tasks[*c as usize].exit_ns.is_none_or(|e| e <= start_ns));
        self.joins[task] = still;
        for child in ended {
            self.order.after(Stamp { task: child, step: FINISH }, EdgeKind::Life);
        }
        uses(self);
        self.take_turn(task, start_ns);
        let edges = mem::take(&mut self.order.edges);
        for e in edges.iter().filter(|e| e.on.step != FINISH) {
            self.tasks[e.on.task as usize].program.await_step(e.on.step);
        }
        let chunk = &mut self.drafts[task].chunk;
        let after = Range { from: chunk.edges.len() as u32, len: edges.len() as u32 };
        chunk.edges.extend_from_slice(&edges);
        chunk.steps.push(Step { act, after });
        self.order.edges = edges;
        self.tasks[task].program.added(act, self.turns[task], start_ns, issues);
        self.calls += i64::from(matches!(act, Act::Call { .. }));
        if self.drafts[task].chunk.steps.len() == CHUNK_STEPS && !matches!(act, Act::Call { .. } | Act::Submit { .. }) {
            self.seal(task);
        }
        Stamp { task: task as u32, step }
    }

    /// Adds the step that issues `rec`, whose texts are the input's.
    pub(crate) fn push_call(&mut self, mut act: Act, mut rec: Rec, uses: impl FnOnce(&mut Self, &Act)) {
        if self.silent {
            return self.written_before(rec);
        }
        let task = rec.task as usize;
        let end_ns = rec.end_ns;
        // What had begun before the slice is entered with its beginning.
        rec.start_ns = rec.start_ns.saturating_sub(self.zero_ns).max(0);
        rec.end_ns = rec.end_ns.saturating_sub(self.zero_ns).max(0);
        if let Some(residence) = &mut self.input.residence
            && (rec.call.reads() || rec.call.writes() || rec.call.touches())
            && let Some(pre) = self.sizes.place_of(rec.file)
        {
            residence.touched(&rec, end_ns, pre);
        }
        self.options.scale.apply(&mut rec);
        let draft = &mut self.drafts[task];
        for index in [&mut rec.path, &mut rec.path2, &mut rec.name, &mut rec.value] {
            if *index != NONE {
                let (texts, chunk) = (&self.input.texts.paths, &mut draft.chunk);
                *index = *draft.texts.entry(*index).or_insert_with(|| chunk.paths.push(texts.bytes(*index)));
            }
        }
        if let Act::Call { rec, .. } | Act::Submit { rec, .. } = &mut act {
            *rec = draft.chunk.recs.len() as u32;
        }
        if rec.call.writes() {
            self.told.add(&rec);
            self.longest_write_bytes = self.longest_write_bytes.max(rec.len_bytes);
        }
        self.push_step(task, act, rec.start_ns, rec.phase != Phase::Ended, |p| uses(p, &act));
        rec.turn_ns = self.turns[task];
        if rec.phase != Phase::Submitted {
            self.order.returned();
        }
        self.drafts[task].chunk.recs.push(rec);
        if self.drafts[task].chunk.steps.len() == CHUNK_STEPS {
            self.seal(task);
        }
    }

    /// Puts the piece that is being made away.
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

    /// Gives the step a turn: by recorded start, and later than all it waits for. What keeps the recorded
    /// number in flight issues by turns, and cannot wait for one that waits for it.
    fn take_turn(&mut self, task: usize, start_ns: i64) {
        let after = self.order.edges.iter();
        let last = after.map(|e| self.turns[e.on.task as usize].saturating_add(1)).max().unwrap_or(i64::MIN);
        // Steps that are no calls have no time of their own.
        let start_ns = if start_ns == i64::MAX { i64::MIN } else { start_ns };
        self.turns[task] = self.turns[task].max(last).max(start_ns);
    }
}
