//! Merges the replayed operations of all threads in recorded order, with one piece of each program in memory.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use crate::{
    plan::{
        chunk::Chunk,
        dependencies::Stamp,
        program::{Act, Plan, Step},
    },
    reel::input::Rec,
    run::{engine::Outcome, outcomes::Outcomes},
};

/// Position in one thread's program.
#[derive(Debug, Default)]
struct Cursor {
    chunk: Option<Arc<Chunk>>,
    index: usize,
    at: usize,
}

impl Cursor {
    /// Advances to the next call, this position included. Returns its recorded entry.
    fn settle(&mut self, plan: &Plan, task: u32) -> Option<i64> {
        loop {
            let chunk = match &self.chunk {
                Some(chunk) => chunk,
                None => &*self.chunk.insert(plan.chunk(task, self.index)?),
            };
            while let Some(step) = chunk.steps.get(self.at) {
                if let Act::Call { rec, .. } = step.act {
                    return Some(chunk.recs[rec as usize].start_ns);
                }
                self.at += 1;
            }
            (self.chunk, self.index, self.at) = (None, self.index + 1, 0);
        }
    }
}

/// Calls `each` for every replayed operation, in the order of recorded entry.
pub(crate) fn by_recorded_start(plan: &Plan, outcomes: &Outcomes, mut each: impl FnMut(Stamp, &Step, &Rec, &Outcome)) {
    let mut cursors: Vec<Cursor> = Vec::new();
    cursors.resize_with(plan.tasks.len(), Cursor::default);
    let mut next: BinaryHeap<Reverse<(i64, u32)>> = plan
        .tasks
        .iter()
        .enumerate()
        .filter(|(_, t)| t.program.calls > 0)
        .map(|(i, t)| Reverse((t.program.first_ns, i as u32)))
        .collect();
    while let Some(Reverse((_, task))) = next.pop() {
        let cursor = &mut cursors[task as usize];
        if cursor.settle(plan, task).is_none() {
            continue;
        }
        if let Some(chunk) = &cursor.chunk
            && let Some(step) = chunk.steps.get(cursor.at)
            && let Act::Call { rec, .. } = step.act
        {
            let at = Stamp { task, step: chunk.first + cursor.at as u32 };
            if let Some(outcome) = outcomes.of(at.task, at.step) {
                each(at, step, &chunk.recs[rec as usize], &outcome);
            }
        }
        cursor.at += 1;
        next.extend(cursor.settle(plan, task).map(|start| Reverse((start, task))));
    }
}
