//! Fault injection: replays by a replayer that makes a mistake. Between the program and the real engine, an operation
//! is delayed, left out, exchanged with another, or does not wait. What examines the outcomes does not know. Each fault
//! must make the replay unfaithful.

use std::{cell::Cell, sync::Arc, thread::sleep, time::Duration};

use super::worker::Worker;
use crate::{
    Call,
    plan::{
        chunk::Chunk,
        dependencies::Stamp,
        program::{Act, Plan},
    },
    run::{
        engine::{Called, Engine, Outcome, Reaped, run_program},
        pace::{Base, Clockwork},
    },
};

/// Where a delay happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// When an operation is due, before it is issued.
    Before,
    /// After it has returned.
    Behind,
    /// On waking up.
    Asleep,
}

/// The fault. Operations are counted by thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// A delay of this length at every n-th operation.
    Delay(Where, Duration, u32),
    /// The first such operation is not issued. Its recorded result is returned.
    Unissued(Call),
    /// Each thread's program ends one operation early.
    Short,
    /// The first such operation returns this result.
    Result(Call, i64),
    /// The first such operation and the next one are issued in place of each other.
    Swapped(Call),
    /// The same, in the program itself.
    Misread(Call),
    /// The outcome of the last operation is reported twice.
    Twice,
    /// No thread waits for another.
    Unordered,
}

thread_local! {
    /// The fault of the next replay that this thread starts.
    static PLANTED: Cell<Fault> = const { Cell::new(Fault::None) };
}

/// The fault of a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planted(Fault);

/// Takes the fault that was set.
pub(super) fn planted() -> Planted {
    Planted(PLANTED.take())
}

/// Runs a program with this fault.
pub(super) fn run(
    plan: &Plan,
    task: u32,
    clockwork: Clockwork,
    birth: Base,
    worker: &mut Worker<'_>,
    p: Planted,
) -> Base {
    let mut engine = Faulty { worker, fault: p.0, count: 0, done: false, swapped: None };
    run_program(plan, task, clockwork, birth, &mut engine)
}

/// The real engine with a fault.
struct Faulty<'a, 'w> {
    worker: &'a mut Worker<'w>,
    fault: Fault,
    count: u32,
    /// A fault that happens once has happened.
    done: bool,
    /// The operation to issue in place of the next one.
    swapped: Option<Act>,
}

fn call_of(chunk: &Chunk, act: &Act) -> Option<Call> {
    if let Act::Call { rec, .. } = *act { Some(chunk.recs[rec as usize].call) } else { None }
}

impl Faulty<'_, '_> {
    fn delay(&mut self, here: Where) {
        if let Fault::Delay(place, time, every) = self.fault
            && place == here
            && self.count % every == every - 1
        {
            sleep(time);
        }
    }

    /// Whether this is the first such call.
    fn first(&mut self, chunk: &Chunk, act: &Act, call: Call) -> bool {
        let first = !self.done && call_of(chunk, act) == Some(call);
        self.done |= first;
        first
    }

    fn is_at(chunk: &Chunk, act: &Act) -> usize {
        chunk.steps.iter().position(|s| s.act == *act).unwrap_or(0)
    }
}

impl Engine for Faulty<'_, '_> {
    fn act(&mut self, chunk: &Chunk, act: &Act) -> i64 {
        self.delay(Where::Before);
        if let Some(other) = self.swapped.take() {
            return self.worker.act(chunk, &other);
        }
        let fault = self.fault;
        match fault {
            Fault::Unissued(call) if self.first(chunk, act, call) => match *act {
                Act::Call { rec, .. } => chunk.recs[rec as usize].ret,
                _ => 0,
            },
            Fault::Result(call, ret) if self.first(chunk, act, call) => {
                self.worker.act(chunk, act);
                ret
            }
            Fault::Swapped(call) if self.first(chunk, act, call) => {
                self.swapped = Some(*act);
                let next = chunk.steps[Self::is_at(chunk, act) + 1].act;
                self.worker.act(chunk, &next)
            }
            _ => self.worker.act(chunk, act),
        }
    }
    fn cpu(&mut self) -> i32 {
        self.delay(Where::Behind);
        self.count += 1;
        self.worker.cpu()
    }
    fn sleep_until(&mut self, due_ns: i64) {
        self.worker.sleep_until(due_ns);
        self.delay(Where::Asleep);
    }
    fn wait_for(&mut self, step: Stamp) -> Option<i64> {
        if self.fault == Fault::Unordered { None } else { self.worker.wait_for(step) }
    }
    fn chunk(&mut self, index: usize) -> Option<Arc<Chunk>> {
        let piece = self.worker.chunk(index)?;
        let mut changed = Chunk::clone(&piece);
        let of = |call: Call| piece.steps.iter().position(|s| call_of(&piece, &s.act) == Some(call));
        match self.fault {
            Fault::Short => _ = changed.steps.pop(),
            Fault::Misread(call) => {
                if let Some(i) = of(call) {
                    changed.steps.swap(i, i + 1);
                }
            }
            _ => return Some(piece),
        }
        Some(Arc::new(changed))
    }
    fn happened(&mut self, mut outcomes: Vec<Outcome>) {
        if let (Fault::Twice, Some(last)) = (self.fault, outcomes.last().copied()) {
            outcomes.push(last);
        }
        self.worker.happened(outcomes);
    }
    fn called(&mut self) -> Option<Called> {
        self.worker.called()
    }
    fn now_ns(&mut self) -> i64 {
        self.worker.now_ns()
    }
    fn publish(&mut self, step: u32, at_ns: i64) {
        self.worker.publish(step, at_ns);
    }
    fn ready(&mut self, chunk: &Chunk, act: &Act) {
        self.worker.ready(chunk, act);
    }
    fn done(&mut self, chunk: &Chunk, act: &Act, ret: i64) {
        self.worker.done(chunk, act, ret);
    }
    fn submit(&mut self, chunk: &Chunk, act: &Act, due_ns: i64, free_ns: i64) {
        self.worker.submit(chunk, act, due_ns, free_ns);
    }
    fn flush(&mut self) {
        self.worker.flush();
    }
    fn reap(&mut self, chunk: &Chunk, act: &Act) -> Reaped {
        self.worker.reap(chunk, act)
    }
    fn spawn(&mut self, task: u32, base: Base, next_ns: Option<i64>) {
        self.worker.spawn(task, base, next_ns);
    }
    fn shift_ns(&mut self) -> i64 {
        self.worker.shift_ns()
    }
    fn shift_to(&mut self, ns: i64) {
        self.worker.shift_to(ns);
    }
    fn enter(&mut self, turn_ns: i64, together: u32, next_ns: Option<i64>) -> i64 {
        self.worker.enter(turn_ns, together, next_ns)
    }
    fn leave(&mut self) {
        self.worker.leave();
    }
    fn ended_ns(&mut self, task: u32) -> i64 {
        self.worker.ended_ns(task)
    }
}

#[path = "../../../tests/it/reel.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "tests, and made for more than these")]
mod reel;

mod tests;
