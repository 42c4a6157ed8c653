//! Caused lateness: how late operations were because of the replayer, consequences included.
//!
//! Own lateness covers one operation alone. Operations after it are late too, because their thread or what they wait
//! for is late, and that looks as if the target were slow. So this module simulates the replay with a replayer that
//! takes no time: each operation takes as long as it did, and is issued as soon as it is due and everything that it
//! waits for has ended. An operation's caused lateness is its issue time minus its issue time in this simulation.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    base::distribution::{Spread, Times},
    plan::{
        chunk::Chunk,
        dependencies::{FINISH, Stamp},
        program::{Act, Plan},
    },
    reel::{input::Rec, submission::Phase},
    run::{engine::Outcome, outcomes::Outcomes, pace::Pace},
};

/// Operations remembered per thread for others that wait for them. An older one counts as on time, which can only make
/// the replayer's share smaller.
const REMEMBERED: usize = 4096;

/// The replayer's effect on the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blame {
    /// Caused lateness of each operation.
    pub(crate) caused_ns: Spread,
    /// Increase of the elapsed time.
    pub(crate) cost_ns: i64,
    /// End of the last operation, ns of the replay.
    pub(crate) end_ns: i64,
}

/// State of a thread in the simulation.
#[derive(Default)]
struct Thread {
    chunk: Option<Arc<Chunk>>,
    index: usize,
    at: usize,
    /// When it could go on: as it was, and without the replayer's time.
    free_ns: i64,
    ideal_ns: i64,
    /// Caused lateness of its last operation.
    late_ns: i64,
    /// The next deadline already makes up for `late_ns` (pace `think`).
    made_up: bool,
    /// Recorded end of its last operation.
    recorded_ns: Option<i64>,
    /// Steps and their caused lateness.
    recent: VecDeque<(u32, i64)>,
    /// By row of a request in flight: when it could have been submitted without the replayer's time.
    submitted: HashMap<u32, i64>,
}

struct Walk<'a> {
    plan: &'a Plan,
    outcomes: &'a Outcomes,
    pace: Pace,
    threads: Vec<Thread>,
    caused: Times,
    end_ns: i64,
    ideal_end_ns: i64,
}

/// Runs the simulation.
pub(crate) fn blame(plan: &Plan, pace: Pace, outcomes: &Outcomes) -> Blame {
    let mut threads: Vec<Thread> = Vec::new();
    threads.resize_with(plan.tasks.len(), || Thread { free_ns: i64::MIN, ideal_ns: i64::MIN, ..Thread::default() });
    let mut walk =
        Walk { plan, outcomes, pace, threads, caused: Times::default(), end_ns: i64::MIN, ideal_end_ns: i64::MIN };
    // In the order of ends: everything that an operation waited for comes before it.
    let mut next: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
    for (task, planned) in plan.tasks.iter().enumerate() {
        if !planned.program.is_empty() {
            next.extend(walk.settle(task as u32, i64::MIN).map(|end| Reverse((end, task as u32))));
        }
    }
    while let Some(Reverse((end, task))) = next.pop() {
        walk.step(task);
        next.extend(walk.settle(task, end).map(|end| Reverse((end, task))));
    }
    let cost_ns = walk.end_ns.saturating_sub(walk.ideal_end_ns).max(0);
    Blame { caused_ns: walk.caused.spread(), cost_ns, end_ns: walk.end_ns }
}

impl Walk<'_> {
    /// The thread's current piece.
    fn chunk(&mut self, task: u32) -> Option<Arc<Chunk>> {
        let thread = &mut self.threads[task as usize];
        if thread.chunk.is_none() {
            thread.chunk = self.plan.chunk(task, thread.index);
        }
        thread.chunk.clone()
    }

    /// Advances to the thread's next operation. Returns its end, or `after` if that is later.
    fn settle(&mut self, task: u32, after: i64) -> Option<i64> {
        loop {
            let chunk = self.chunk(task)?;
            while let Some(step) = chunk.steps.get(self.threads[task as usize].at) {
                let number = chunk.first + self.threads[task as usize].at as u32;
                match step.act {
                    Act::Call { .. } => {
                        if let Some(o) = self.outcomes.of(task, number) {
                            return Some(o.end_ns.max(after));
                        }
                    }
                    Act::Spawn { task: child } => {
                        self.wait(task, number, &chunk);
                        let Thread { free_ns, ideal_ns, late_ns, made_up, .. } = self.threads[task as usize];
                        let child = &mut self.threads[child as usize];
                        (child.free_ns, child.ideal_ns) = (free_ns, ideal_ns);
                        (child.late_ns, child.made_up) = (late_ns, made_up);
                    }
                    Act::Submit { rec, .. } => {
                        self.wait(task, number, &chunk);
                        let thread = &mut self.threads[task as usize];
                        thread.submitted.insert(chunk.recs[rec as usize].row, thread.ideal_ns);
                    }
                    _ => self.wait(task, number, &chunk),
                }
                self.threads[task as usize].at += 1;
            }
            let thread = &mut self.threads[task as usize];
            (thread.chunk, thread.index, thread.at) = (None, thread.index + 1, 0);
        }
    }

    /// Makes the thread wait for the edges of this step.
    fn wait(&mut self, task: u32, number: u32, chunk: &Chunk) {
        let Some(step) = chunk.steps.get((number - chunk.first) as usize) else { return };
        for edge in step.after.of(&chunk.edges) {
            let Stamp { task: on, step } = edge.on;
            let Some(done) = self.outcomes.until(edge.on) else { continue };
            let other = &self.threads[on as usize];
            let late_ns = if step == FINISH {
                other.late_ns
            } else {
                let found = other.recent.binary_search_by_key(&done.step, |(s, _)| *s);
                found.ok().map_or(0, |i| other.recent[i].1)
            };
            let thread = &mut self.threads[task as usize];
            if done.end_ns > thread.free_ns {
                (thread.free_ns, thread.late_ns) = (done.end_ns, late_ns);
            }
            thread.ideal_ns = thread.ideal_ns.max(done.end_ns - late_ns);
        }
    }

    /// Simulates the thread's next operation.
    fn step(&mut self, task: u32) {
        let Some(chunk) = self.chunk(task) else { return };
        let number = chunk.first + self.threads[task as usize].at as u32;
        let Some(step) = chunk.steps.get(self.threads[task as usize].at) else { return };
        self.wait(task, number, &chunk);
        self.threads[task as usize].at += 1;
        let (Act::Call { rec, .. }, Some(o)) = (step.act, self.outcomes.of(task, number)) else { return };
        let r = &chunk.recs[rec as usize];
        let late_ns = self.late_ns(task, r, &o);
        self.caused.add(late_ns);
        self.end_ns = self.end_ns.max(o.end_ns);
        self.ideal_end_ns = self.ideal_end_ns.max(o.end_ns - late_ns);
        let thread = &mut self.threads[task as usize];
        thread.late_ns = late_ns;
        thread.made_up = self.pace == Pace::Think && r.phase != Phase::Ended;
        thread.free_ns = thread.free_ns.max(o.end_ns);
        thread.ideal_ns = thread.ideal_ns.max(o.end_ns - late_ns);
        thread.recorded_ns = Some(r.end_ns);
        thread.recent.push_back((number, late_ns));
        if thread.recent.len() > REMEMBERED {
            thread.recent.pop_front();
        }
    }

    /// Caused lateness of an operation, ns.
    fn late_ns(&mut self, task: u32, r: &Rec, o: &Outcome) -> i64 {
        let thread = &mut self.threads[task as usize];
        let mut could_ns = thread.submitted.remove(&r.row).unwrap_or(thread.ideal_ns);
        if self.pace.has_schedule()
            && let Some(last_ns) = thread.recorded_ns
            && could_ns > i64::MIN
        {
            // A thread behind schedule need not be faster between two calls than its program was.
            let gap_ns = self.pace.stretched_ns(r.start_ns.saturating_sub(last_ns)).max(0);
            could_ns += gap_ns.min(o.start_ns.saturating_sub(thread.free_ns)).max(0);
        }
        let carried_ns = if thread.made_up { 0 } else { thread.late_ns };
        let due_ns = match self.pace {
            Pace::Original | Pace::Scale(_) => o.due_ns,
            Pace::Think => o.due_ns.saturating_sub(carried_ns),
            Pace::Load | Pace::Max => 0,
        };
        // When the thread reached the submission of a request, or when pace `load` admitted a call.
        let came_ns = if o.free_ns == i64::MIN { i64::MIN } else { o.free_ns - carried_ns };
        o.start_ns.saturating_sub(could_ns.max(due_ns).max(came_ns)).max(0)
    }
}
