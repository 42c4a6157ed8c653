//! Runs a thread's program. All that touches a clock, a file or another thread is behind [`Engine`], so
//! that the scheduling can be tested to the nanosecond.

use std::{mem, sync::Arc};

use crate::{
    plan::{
        chunk::{CHUNK_STEPS, Chunk},
        dependencies::{FINISH, Stamp},
        edge::Edge,
        program::{Act, Plan, Step},
    },
    reel::submission::{Phase, sqe},
    run::pace::{Base, CatchUp, Clockwork, Pace, STALL_NS},
};

/// Of how many operations a thread tells at a time, at most: telling wakes another thread, which takes as long as some calls.
pub const BATCH_CALLS: usize = 8 * CHUNK_STEPS;

/// How one operation went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its step in its thread's program.
    pub step: u32,
    /// CPU it returned on.
    pub cpu: i32,
    /// When it was to be issued by the schedule; at pace max [`crate::verdict::judgement::lateness`] says. ns of the replay.
    pub due_ns: i64,
    /// Issued.
    pub start_ns: i64,
    /// Returned.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
    /// Of a request: when its thread came to it, which may be later than the end of what it waits for, since submitting takes time;
    /// of a call at pace `load`, when the number in flight let it go; when what its thread read from a pipe had been written;
    /// else `i64::MIN`.
    pub free_ns: i64,
    /// Row of the operation that calls were made for, or knowingly were not; [`NONE`](crate::reel::input::NONE) when none was issued.
    pub row: u32,
}

/// What a thread issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// See [`Outcome::row`].
    pub row: u32,
    /// When it entered the kernel, and had come back; `None` when no call was made.
    pub times_ns: Option<(i64, i64)>,
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// When it was to be submitted.
    pub due_ns: i64,
    /// See [`Outcome::free_ns`].
    pub free_ns: i64,
    /// Submitted.
    pub start_ns: i64,
    /// Ended.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
}

/// What a thread's program needs of the world.
pub trait Engine {
    /// ns since the replay's epoch.
    fn now_ns(&mut self) -> i64;
    /// The CPU it runs on.
    fn cpu(&mut self) -> i32;
    /// Returns at `due_ns`, never earlier.
    fn sleep_until(&mut self, due_ns: i64);
    /// Returns once the step is done; when that was, by what was published, if that is still known.
    fn wait_for(&mut self, step: Stamp) -> Option<i64>;
    /// Tells those who wait; `at_ns` is when it was done, or would have been had the replayer taken no time.
    fn publish(&mut self, step: u32, at_ns: i64);
    /// The piece of the thread's program with this index; `None` at its end.
    fn chunk(&mut self, index: usize) -> Option<Arc<Chunk>>;
    /// Room for outcomes of a thread that makes so many more calls.
    fn room(&mut self, calls: usize) -> Vec<Outcome> {
        Vec::with_capacity(calls.min(BATCH_CALLS))
    }
    /// Some outcomes, in order.
    fn happened(&mut self, outcomes: Vec<Outcome>);
    /// Makes ready what it needs, before it is due.
    fn ready(&mut self, _chunk: &Chunk, _act: &Act) {}
    /// Looks at what it did, once that is timed.
    fn done(&mut self, _chunk: &Chunk, _act: &Act, _ret: i64) {}
    /// Does it; for a call, its result.
    fn act(&mut self, chunk: &Chunk, act: &Act) -> i64;
    /// What it issued since it was asked last, ns of the replay; `None` where nobody keeps track.
    fn called(&mut self) -> Option<Called> {
        None
    }
    /// Puts a request, which was due then, into its batch; the thread came to it at `free_ns`.
    fn submit(&mut self, chunk: &Chunk, act: &Act, due_ns: i64, free_ns: i64);
    /// Submits the batch, if there is one.
    fn flush(&mut self);
    /// Waits for a request's end.
    fn reap(&mut self, chunk: &Chunk, act: &Act) -> Reaped;
    /// Starts a thread; `base` is what its computing time counts from, `next_ns` the next turn of the one that starts it.
    fn spawn(&mut self, task: u32, base: Base, next_ns: Option<i64>);
    /// By how much the schedule has moved later for all threads.
    fn shift_ns(&mut self) -> i64;
    /// Moves it to at least that much.
    fn shift_to(&mut self, ns: i64);
    /// Returns when it is this turn's, and less than `together` operations are in flight; one more is then.
    /// `next_ns` is the thread's next turn. When it could go, ns of the replay; `i64::MIN` when it had not to wait.
    fn enter(&mut self, turn_ns: i64, together: u32, next_ns: Option<i64>) -> i64;
    /// One operation less is in flight.
    fn leave(&mut self);
    /// When an ended thread's computing was over, ns of the replay.
    fn ended_ns(&mut self, task: u32) -> i64;
}

/// Runs thread `task` from birth to end. Returns what its computing time after its end counts from.
pub fn run_program<E: Engine>(plan: &Plan, task: u32, clockwork: Clockwork, birth: Base, engine: &mut E) -> Base {
    let mut base = birth;
    let program = &plan.tasks[task as usize].program;
    let mut left = program.calls as usize;
    let mut outcomes = engine.room(left);
    let mut index = 0;
    while let Some(chunk) = engine.chunk(index) {
        if outcomes.capacity() - outcomes.len() < chunk.recs.len() && !outcomes.is_empty() {
            left = left.saturating_sub(outcomes.len());
            let room = engine.room(left);
            engine.happened(mem::replace(&mut outcomes, room));
        }
        run_chunk(plan, task, clockwork, &chunk, &mut base, engine, &mut outcomes);
        index += 1;
    }
    engine.flush();
    engine.happened(outcomes);
    base
}

/// Whether a step submits a request together with the one before.
fn joins(step: Option<&Step>) -> bool {
    step.is_some_and(|s| matches!(s.act, Act::Submit { joins: true, .. }))
}

/// Runs one piece of it.
fn run_chunk<E: Engine>(
    plan: &Plan,
    task: u32,
    clockwork: Clockwork,
    chunk: &Chunk,
    base: &mut Base,
    engine: &mut E,
    outcomes: &mut Vec<Outcome>,
) {
    let Clockwork { pace, catch_up } = clockwork;
    let program = &plan.tasks[task as usize].program;
    for (i, step) in chunk.steps.iter().enumerate() {
        let number = chunk.first + i as u32;
        if !joins(Some(step)) {
            engine.flush();
        }
        let mut came_ns = None;
        for Edge { on, .. } in step.after.of(&chunk.edges) {
            came_ns = came_ns.max(engine.wait_for(*on));
            // The time of a child that does nothing here (only computed, since a slice began) is its parent's.
            let child = &plan.tasks[on.task as usize];
            if on.step == FINISH && pace == Pace::Think && !child.program.is_empty() {
                let recorded_ns = child.exit_ns.unwrap_or(base.recorded_ns);
                *base = base.later(Base { recorded_ns, now_ns: engine.ended_ns(on.task), ..*base });
            }
        }
        let mut done_ns = None;
        match step.act {
            Act::Call { rec, .. } if chunk.recs[rec as usize].phase == Phase::Ended => {
                let r = &chunk.recs[rec as usize];
                let Reaped { due_ns, free_ns, start_ns, end_ns, ret } = engine.reap(chunk, &step.act);
                if pace == Pace::Load {
                    engine.leave();
                }
                let (cpu, row) = (engine.cpu(), r.row);
                outcomes.push(Outcome { step: number, cpu, due_ns, start_ns, end_ns, ret, free_ns, row });
                *base = base.at(r.end_ns, engine.now_ns());
            }
            Act::Call { rec, .. } | Act::Submit { rec, .. } => {
                let r = &chunk.recs[rec as usize];
                engine.ready(chunk, &step.act);
                let mut free_ns = base.passed_ns.unwrap_or(i64::MIN);
                if pace == Pace::Load {
                    free_ns = free_ns.max(engine.enter(r.turn_ns, r.together, plan.next_turn(task, chunk, i + 1)));
                }
                if let Act::Submit { .. } = step.act {
                    free_ns = engine.now_ns();
                }
                let due_ns = match pace.due_ns(r.start_ns, *base) {
                    Some(due_ns) if pace.has_schedule() => on_schedule(engine, catch_up, due_ns, &mut base.lag_ns),
                    Some(due_ns) => {
                        engine.sleep_until(due_ns);
                        due_ns
                    }
                    None => base.now_ns,
                };
                if let Act::Submit { .. } = step.act {
                    engine.submit(chunk, &step.act, due_ns, free_ns);
                    let next = chunk.steps.get(i + 1);
                    let chained = r.sqe_flags & (sqe::LINK | sqe::HARDLINK) != 0;
                    if next.is_some() && !joins(next) || next.is_none() && !chained {
                        engine.flush();
                    }
                    *base = base.at(r.start_ns, engine.now_ns());
                } else {
                    // While the kernel is at work.
                    chunk.fetch_ahead(i + 1, rec as usize + 1);
                    let ret = engine.act(chunk, &step.act);
                    let Called { row, times_ns } = engine.called().unwrap_or(Called { row: r.row, times_ns: None });
                    let (start_ns, end_ns) = times_ns.unwrap_or_else(|| {
                        let now_ns = engine.now_ns();
                        (now_ns, now_ns)
                    });
                    if pace == Pace::Load {
                        engine.leave();
                    }
                    engine.done(chunk, &step.act, ret);
                    let cpu = engine.cpu();
                    outcomes.push(Outcome { step: number, cpu, due_ns, start_ns, end_ns, ret, free_ns, row });
                    let owed_ns = pace.owed_ns(came_ns.map_or(due_ns, |came_ns| due_ns.max(came_ns)), start_ns);
                    done_ns = Some(end_ns - owed_ns);
                    *base = base.at(r.end_ns, end_ns - owed_ns - pace.recorder_ns(plan.recorder));
                }
            }
            Act::Returned { entered_ns, recorded_ns } => {
                if pace == Pace::Think && recorded_ns > base.recorded_ns {
                    *base = base.at(recorded_ns, engine.now_ns().max(base.due_ns(entered_ns)));
                }
            }
            Act::Passed { idle_ns, recorded_ns } => {
                base.passed_ns = base.passed_ns.max(came_ns);
                if pace == Pace::Think {
                    let now_ns = base.due_ns(idle_ns).max(came_ns.unwrap_or(i64::MIN));
                    // Whoever waits for it waits for the computing before it, too.
                    if program.is_awaited(number) {
                        engine.sleep_until(now_ns);
                    }
                    *base = Base { passed_ns: Some(now_ns), ..base.at(recorded_ns, now_ns) };
                    done_ns = Some(now_ns);
                }
            }
            Act::Spawn { task: child } => {
                let recorded_ns = plan.tasks[child as usize].start_ns;
                let now_ns = if pace == Pace::Think { base.due_ns(recorded_ns) } else { base.now_ns };
                let next_ns = (pace == Pace::Load).then(|| plan.next_turn(task, chunk, i + 1)).flatten();
                engine.spawn(child, Base { recorded_ns, now_ns, ..*base }, next_ns);
            }
            _ => {
                engine.act(chunk, &step.act);
            }
        }
        if program.is_awaited(number) {
            let done_ns = done_ns.unwrap_or_else(|| engine.now_ns());
            engine.publish(number, done_ns);
        }
    }
}

/// Waits until an operation is due that would be at `nominal_ns` without stalls; the moment it was due. The one that finds the
/// schedule stalled was due by the old one: a stall must not excuse itself.
fn on_schedule<E: Engine>(engine: &mut E, catch_up: CatchUp, nominal_ns: i64, lag_ns: &mut i64) -> i64 {
    match catch_up {
        CatchUp::Compress => {
            engine.sleep_until(nominal_ns);
            nominal_ns
        }
        CatchUp::None => {
            let late_ns = engine.now_ns() - nominal_ns;
            if late_ns > lag_ns.saturating_add(STALL_NS) {
                let due_ns = nominal_ns.saturating_add(*lag_ns);
                *lag_ns = late_ns;
                return due_ns;
            }
            engine.sleep_until(nominal_ns.saturating_add(*lag_ns));
            nominal_ns.saturating_add(*lag_ns)
        }
        CatchUp::Shift => {
            let late_ns = engine.now_ns() - nominal_ns;
            let mut stalled_ns = None;
            if late_ns > engine.shift_ns().saturating_add(STALL_NS) {
                stalled_ns = Some(nominal_ns.saturating_add(engine.shift_ns()));
                engine.shift_to(late_ns);
            }
            loop {
                let shift_ns = engine.shift_ns();
                engine.sleep_until(nominal_ns.saturating_add(shift_ns));
                // Another thread may have stalled meanwhile.
                if engine.shift_ns() == shift_ns {
                    return stalled_ns.unwrap_or(nominal_ns.saturating_add(shift_ns));
                }
            }
        }
    }
}
