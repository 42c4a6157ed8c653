//! Runs a thread's program. Everything that touches a clock, a file or another thread is behind the trait [`Engine`],
//! so that tests can check the scheduling to the nanosecond.

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

/// Outcomes that a thread hands over at a time, at most. Handing over wakes another thread, which takes as long as
/// several calls.
pub const BATCH_CALLS: usize = 8 * CHUNK_STEPS;

/// Outcome of one operation. Times are ns of the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Step in the thread's program.
    pub step: u32,
    /// CPU on which it returned.
    pub cpu: i32,
    /// Deadline. At paces without a schedule, `verdict::timing` sets it after the replay.
    pub due_ns: i64,
    /// Time of issue.
    pub start_ns: i64,
    /// Time of return.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
    /// For a request: when its thread reached the submission. Since submitting takes time, that may be later than the
    /// end of what it waits for. For a call at pace `load`: when it was admitted. For a call after a read from a pipe:
    /// when the data had been written. Otherwise `i64::MIN`.
    pub free_ns: i64,
    /// Row of the operation that was actually issued, or deliberately carried out without a call.
    /// [`NONE`](crate::reel::input::NONE) if there was none.
    pub row: u32,
}

/// What a thread issued for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// See [`Outcome::row`].
    pub row: u32,
    /// When it entered the kernel, and when it returned. `None` if no call was made.
    pub times_ns: Option<(i64, i64)>,
}

/// Outcome of a request. Times are ns of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Deadline of the submission.
    pub due_ns: i64,
    /// See [`Outcome::free_ns`].
    pub free_ns: i64,
    /// Time of submission.
    pub start_ns: i64,
    /// Time of completion.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
}

/// What a thread's program needs from outside: clock, other threads, system calls.
pub trait Engine {
    /// ns since time 0 of the replay.
    fn now_ns(&mut self) -> i64;
    /// The CPU on which the thread runs.
    fn cpu(&mut self) -> i32;
    /// Returns at `due_ns`, never earlier.
    fn sleep_until(&mut self, due_ns: i64);
    /// Returns once the step is done. The result is its published time, if that is still known.
    fn wait_for(&mut self, step: Stamp) -> Option<i64>;
    /// Marks a step as done and wakes the threads that wait for it. `at_ns`: when it was done, without the replayer's
    /// own lateness at pace `think`.
    fn publish(&mut self, step: u32, at_ns: i64);
    /// The piece of the thread's program with this index. `None` after the last.
    fn chunk(&mut self, index: usize) -> Option<Arc<Chunk>>;
    /// An empty buffer for outcomes, for a thread that will make `calls` more calls.
    fn room(&mut self, calls: usize) -> Vec<Outcome> {
        Vec::with_capacity(calls.min(BATCH_CALLS))
    }
    /// Takes outcomes, in order.
    fn happened(&mut self, outcomes: Vec<Outcome>);
    /// Prepares an operation before it is due: generates the data that it writes.
    fn ready(&mut self, _chunk: &Chunk, _act: &Act) {}
    /// Checks an operation after its times are taken: the data that it read.
    fn done(&mut self, _chunk: &Chunk, _act: &Act, _ret: i64) {}
    /// Executes a step. Returns the result of a call.
    fn act(&mut self, chunk: &Chunk, act: &Act) -> i64;
    /// What was issued since the last call of this function. `None` if the engine does not record that.
    fn called(&mut self) -> Option<Called> {
        None
    }
    /// Adds a request with this deadline to the batch. `free_ns`: when the thread reached it.
    fn submit(&mut self, chunk: &Chunk, act: &Act, due_ns: i64, free_ns: i64);
    /// Submits the batch, unless it is empty.
    fn flush(&mut self);
    /// Waits for the end of a request.
    fn reap(&mut self, chunk: &Chunk, act: &Act) -> Reaped;
    /// Starts a thread. `base`: the event from which its think time counts. `next_ns`: the next turn of the calling
    /// thread.
    fn spawn(&mut self, task: u32, base: Base, next_ns: Option<i64>);
    /// How much the schedule has moved later for all threads, ns.
    fn shift_ns(&mut self) -> i64;
    /// Moves the schedule to at least this much later.
    fn shift_to(&mut self, ns: i64);
    /// Pace `load`: returns once it is this turn and fewer than `together` operations are in flight, and counts this
    /// operation as in flight. `next_ns`: the thread's next turn. Returns when the operation was admitted, ns of the
    /// replay, or `i64::MIN` if it did not have to wait.
    fn enter(&mut self, turn_ns: i64, together: u32, next_ns: Option<i64>) -> i64;
    /// Pace `load`: one operation fewer is in flight.
    fn leave(&mut self);
    /// When the think time of an ended thread was over, ns of the replay.
    fn ended_ns(&mut self, task: u32) -> i64;
}

/// Runs thread `task` from birth to end. Returns the event from which its last think time counts.
pub fn run_program<E: Engine>(plan: &Plan, task: u32, clockwork: Clockwork, birth: Base, engine: &mut E) -> Base {
    let mut left = plan.tasks[task as usize].program.calls as usize;
    let outcomes = engine.room(left);
    let mut running = Running { plan, task, clockwork, base: birth, engine, outcomes };
    let mut index = 0;
    while let Some(chunk) = running.engine.chunk(index) {
        let outcomes = &mut running.outcomes;
        if outcomes.capacity() - outcomes.len() < chunk.recs.len() && !outcomes.is_empty() {
            left = left.saturating_sub(outcomes.len());
            let room = running.engine.room(left);
            running.engine.happened(mem::replace(outcomes, room));
        }
        running.run_chunk(&chunk);
        index += 1;
    }
    running.engine.flush();
    running.engine.happened(running.outcomes);
    running.base
}

/// Whether a step submits a request in the same batch as the request before it.
fn joins(step: Option<&Step>) -> bool {
    step.is_some_and(|s| matches!(s.act, Act::Submit { joins: true, .. }))
}

/// Execution of a thread's program.
struct Running<'a, E> {
    plan: &'a Plan,
    task: u32,
    clockwork: Clockwork,
    /// The event from which its think time counts.
    base: Base,
    engine: &'a mut E,
    outcomes: Vec<Outcome>,
}

impl<E: Engine> Running<'_, E> {
    /// Executes one piece of the program.
    fn run_chunk(&mut self, chunk: &Chunk) {
        for (i, step) in chunk.steps.iter().enumerate() {
            let number = chunk.first + i as u32;
            if !joins(Some(step)) {
                self.engine.flush();
            }
            let came_ns = self.wait_for_edges(chunk, step);
            let done_ns = match step.act {
                Act::Call { rec, .. } if chunk.recs[rec as usize].phase == Phase::Ended => {
                    self.reap(chunk, number, &step.act, rec);
                    None
                }
                Act::Call { rec, .. } => self.call(chunk, i, rec, came_ns),
                Act::Submit { rec, .. } => {
                    self.submit(chunk, i, rec);
                    None
                }
                Act::Returned { entered_ns, recorded_ns } => {
                    if self.clockwork.pace == Pace::Think && recorded_ns > self.base.recorded_ns {
                        let now_ns = self.engine.now_ns().max(self.base.due_ns(entered_ns));
                        self.base = self.base.at(recorded_ns, now_ns);
                    }
                    None
                }
                Act::Passed { idle_ns, recorded_ns } => self.passed(number, came_ns, idle_ns, recorded_ns),
                Act::Spawn { task: child } => {
                    self.spawn(chunk, i, child);
                    None
                }
                _ => {
                    self.engine.act(chunk, &step.act);
                    None
                }
            };
            if self.plan.tasks[self.task as usize].program.is_awaited(number) {
                let done_ns = done_ns.unwrap_or_else(|| self.engine.now_ns());
                self.engine.publish(number, done_ns);
            }
        }
    }

    /// Returns once everything that a step waits for is done. The result is the time of the last of these, if known.
    fn wait_for_edges(&mut self, chunk: &Chunk, step: &Step) -> Option<i64> {
        let mut came_ns = None;
        for Edge { on, .. } in step.after.of(&chunk.edges) {
            came_ns = came_ns.max(self.engine.wait_for(*on));
            // A child that does nothing in this slice, except compute, has no time of its own.
            let child = &self.plan.tasks[on.task as usize];
            if on.step == FINISH && self.clockwork.pace == Pace::Think && !child.program.is_empty() {
                let recorded_ns = child.exit_ns.unwrap_or(self.base.recorded_ns);
                let now_ns = self.engine.ended_ns(on.task);
                self.base = self.base.later(Base { recorded_ns, now_ns, ..self.base });
            }
        }
        came_ns
    }

    /// Waits for the end of a request.
    fn reap(&mut self, chunk: &Chunk, number: u32, act: &Act, rec: u32) {
        let r = &chunk.recs[rec as usize];
        let Reaped { due_ns, free_ns, start_ns, end_ns, ret } = self.engine.reap(chunk, act);
        if self.clockwork.pace == Pace::Load {
            self.engine.leave();
        }
        let (cpu, row) = (self.engine.cpu(), r.row);
        self.outcomes.push(Outcome { step: number, cpu, due_ns, start_ns, end_ns, ret, free_ns, row });
        self.base = self.base.at(r.end_ns, self.engine.now_ns());
    }

    /// Prepares what a step issues. At pace `load`, waits until it is admitted. Returns [`Outcome::free_ns`].
    fn enter(&mut self, chunk: &Chunk, i: usize, rec: u32) -> i64 {
        let r = &chunk.recs[rec as usize];
        self.engine.ready(chunk, &chunk.steps[i].act);
        let free_ns = self.base.passed_ns.unwrap_or(i64::MIN);
        if self.clockwork.pace != Pace::Load {
            return free_ns;
        }
        free_ns.max(self.engine.enter(r.turn_ns, r.together, self.plan.next_turn(self.task, chunk, i + 1)))
    }

    /// Waits for the deadline of an operation that was recorded at `start_ns`. Returns the deadline.
    fn sleep_until_due(&mut self, start_ns: i64) -> i64 {
        let Clockwork { pace, catch_up } = self.clockwork;
        match pace.due_ns(start_ns, self.base) {
            Some(due_ns) if pace.has_schedule() => on_schedule(self.engine, catch_up, due_ns, &mut self.base.lag_ns),
            Some(due_ns) => {
                self.engine.sleep_until(due_ns);
                due_ns
            }
            None => self.base.now_ns,
        }
    }

    /// Submits a request, in one batch with those that join it.
    fn submit(&mut self, chunk: &Chunk, i: usize, rec: u32) {
        let r = &chunk.recs[rec as usize];
        self.enter(chunk, i, rec);
        let free_ns = self.engine.now_ns();
        let due_ns = self.sleep_until_due(r.start_ns);
        self.engine.submit(chunk, &chunk.steps[i].act, due_ns, free_ns);
        let next = chunk.steps.get(i + 1);
        let chained = r.sqe_flags & (sqe::LINK | sqe::HARDLINK) != 0;
        if next.is_some() && !joins(next) || next.is_none() && !chained {
            self.engine.flush();
        }
        self.base = self.base.at(r.start_ns, self.engine.now_ns());
    }

    /// Issues a call. Returns when it was done, without the replayer's own lateness at pace `think`.
    fn call(&mut self, chunk: &Chunk, i: usize, rec: u32, came_ns: Option<i64>) -> Option<i64> {
        let (r, act) = (&chunk.recs[rec as usize], &chunk.steps[i].act);
        let pace = self.clockwork.pace;
        let free_ns = self.enter(chunk, i, rec);
        let due_ns = self.sleep_until_due(r.start_ns);
        // Prefetches the next step, so that it is loaded while the kernel executes the call.
        chunk.fetch_ahead(i + 1, rec as usize + 1);
        let ret = self.engine.act(chunk, act);
        let Called { row, times_ns } = self.engine.called().unwrap_or(Called { row: r.row, times_ns: None });
        let (start_ns, end_ns) = times_ns.unwrap_or_else(|| {
            let now_ns = self.engine.now_ns();
            (now_ns, now_ns)
        });
        if pace == Pace::Load {
            self.engine.leave();
        }
        self.engine.done(chunk, act, ret);
        let (step, cpu) = (chunk.first + i as u32, self.engine.cpu());
        self.outcomes.push(Outcome { step, cpu, due_ns, start_ns, end_ns, ret, free_ns, row });
        let owed_ns = pace.owed_ns(came_ns.map_or(due_ns, |came_ns| due_ns.max(came_ns)), start_ns);
        self.base = self.base.at(r.end_ns, end_ns - owed_ns - pace.recorder_ns(self.plan.recorder));
        Some(end_ns - owed_ns)
    }

    /// Passes a read from a pipe, or a write to one, which is not issued. At pace `think`, returns the time at which it
    /// happens.
    fn passed(&mut self, number: u32, came_ns: Option<i64>, idle_ns: i64, recorded_ns: i64) -> Option<i64> {
        self.base.passed_ns = self.base.passed_ns.max(came_ns);
        if self.clockwork.pace != Pace::Think {
            return None;
        }
        let now_ns = self.base.due_ns(idle_ns).max(came_ns.unwrap_or(i64::MIN));
        // A step that waits for this one must also wait for the think time before it.
        if self.plan.tasks[self.task as usize].program.is_awaited(number) {
            self.engine.sleep_until(now_ns);
        }
        self.base = Base { passed_ns: Some(now_ns), ..self.base.at(recorded_ns, now_ns) };
        Some(now_ns)
    }

    fn spawn(&mut self, chunk: &Chunk, i: usize, child: u32) {
        let (pace, base) = (self.clockwork.pace, self.base);
        let recorded_ns = self.plan.tasks[child as usize].start_ns;
        let now_ns = if pace == Pace::Think { base.due_ns(recorded_ns) } else { base.now_ns };
        let next_ns = (pace == Pace::Load).then(|| self.plan.next_turn(self.task, chunk, i + 1)).flatten();
        self.engine.spawn(child, Base { recorded_ns, now_ns, ..base }, next_ns);
    }
}

/// Waits for the deadline of an operation that is due at `nominal_ns` without stalls. Returns the deadline. The
/// operation that finds a stall keeps its old deadline, so that the stall counts as lateness.
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
                // Another thread may have met a stall meanwhile.
                if engine.shift_ns() == shift_ns {
                    return stalled_ns.unwrap_or(nominal_ns.saturating_add(shift_ns));
                }
            }
        }
    }
}
