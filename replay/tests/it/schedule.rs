//! The schedule to the nanosecond: the real program loop on a clock and calls made up here. Each thread has its
//! own time; waiting for another's step moves it to that step's end, so the outcome does not depend on
//! how fast anything runs.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use ioreel_replay::{
    PlanOptions,
    engine::{Engine, Outcome, run_program},
    input::Input,
    order::{FINISH, Stamp},
    pace::{Base, Pace},
    plan,
    plan::{Act, Plan},
};
use ioreel_traces::Reel;

use crate::reel::{Draft, THREAD};

#[derive(Default)]
struct Shared {
    /// When each step ended.
    ends: Mutex<HashMap<(u32, u32), i64>>,
    changed: Condvar,
    outcomes: Mutex<Vec<Outcome>>,
}

struct Mock {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    pace: Pace,
    task: u32,
    now_ns: i64,
    /// What every call takes.
    cost_ns: i64,
    children: Vec<thread::JoinHandle<()>>,
}

impl Mock {
    fn run(plan: Arc<Plan>, shared: Arc<Shared>, pace: Pace, cost_ns: i64, task: u32, birth: Base) {
        let mut m = Self { plan, shared, pace, task, now_ns: birth.now_ns, cost_ns, children: Vec::new() };
        let mut outcomes = Vec::new();
        let plan = m.plan.clone();
        let base = run_program(&plan, task, pace, birth, &mut m, &mut outcomes);
        let recorded = plan.tasks[task as usize].exit_ns.unwrap_or(base.recorded_ns);
        m.tell(FINISH, base.due_ns(recorded));
        m.shared.outcomes.lock().unwrap().append(&mut outcomes);
        m.children.into_iter().for_each(|c| c.join().unwrap());
    }

    fn tell(&self, step: u32, at: i64) {
        self.shared.ends.lock().unwrap().insert((self.task, step), at);
        self.shared.changed.notify_all();
    }

    fn end_of(&self, s: Stamp) -> i64 {
        let mut ends = self.shared.ends.lock().unwrap();
        loop {
            if let Some(at) = ends.get(&(s.task, s.step)) {
                return *at;
            }
            ends = self.shared.changed.wait(ends).unwrap();
        }
    }
}

impl Engine for Mock {
    fn now_ns(&mut self) -> i64 {
        self.now_ns
    }
    fn cpu(&mut self) -> i32 {
        0
    }
    fn sleep_until(&mut self, due_ns: i64) {
        self.now_ns = self.now_ns.max(due_ns);
    }
    fn wait_for(&mut self, s: Stamp) {
        // The end of a thread's computing matters to think time alone.
        let at = self.end_of(s);
        if s.step != FINISH {
            self.now_ns = self.now_ns.max(at);
        }
    }
    fn publish(&mut self, step: u32) {
        self.tell(step, self.now_ns);
    }
    fn act(&mut self, act: &Act) -> i64 {
        match act {
            Act::Call { rec, .. } => {
                self.now_ns += self.cost_ns;
                self.plan.recs[*rec as usize].ret
            }
            _ => 0,
        }
    }
    fn spawn(&mut self, task: u32, base: Base) {
        let (plan, shared, pace, cost) = (self.plan.clone(), self.shared.clone(), self.pace, self.cost_ns);
        self.children.push(thread::spawn(move || Self::run(plan, shared, pace, cost, task, base)));
    }
    fn ended_ns(&mut self, task: u32) -> i64 {
        self.end_of(Stamp { task, step: FINISH })
    }
}

/// Issue times by recorded start.
fn issued(draft: Draft, pace: Pace, cost_ns: i64) -> Vec<(i64, i64)> {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::read(&Reel::open(draft.write(dir.path())).unwrap()).unwrap();
    let plan = Arc::new(plan(input, PlanOptions { privileged: true, ..Default::default() }));
    let shared = Arc::new(Shared::default());
    Mock::run(plan.clone(), shared.clone(), pace, cost_ns, 0, Base { recorded_ns: 0, now_ns: 0 });
    let mut out: Vec<_> =
        shared.outcomes.lock().unwrap().iter().map(|o| (plan.recs[o.rec as usize].start_ns, o.start_ns)).collect();
    out.sort_unstable();
    out
}

/// At 1000 a create; at 11 000 the other thread opens it; at 1 000 000 the first looks again.
fn two_threads() -> Draft {
    let mut d = Draft::new();
    d.tasks[0].cwd = Some("/w".into());
    d.create(1, "f", 1, 3);
    let at = d.now();
    d.open(2, "f", libc::O_RDONLY, 1, 4);
    d.tasks.push(ioreel_traces::rows::Task {
        task_id: 2,
        parent: Some(1),
        start_ns: 500,
        clone_flags: THREAD,
        ..Default::default()
    });
    d.pause(1_000_000 - at - 10_000);
    d.on(1, "stat", "f", 0).mode = Some(0o100_644);
    d
}

#[test]
fn original_pace_catches_up_after_a_slow_call() {
    // Calls take 50 us instead of 1: the second thread waits for the create, the third call is on time again.
    let got = issued(two_threads(), Pace::Original, 50_000);
    assert_eq!(got, [(1_000, 1_000), (11_000, 51_000), (1_000_000, 1_000_000)]);
}

#[test]
fn think_keeps_computing_time_and_lets_fast_calls_win() {
    // Recorded: 1 us a call, so the third comes 998 us after the first's return.
    let got = issued(two_threads(), Pace::Think, 100);
    assert_eq!(got, [(1_000, 1_000), (11_000, 11_000), (1_000_000, 1_000 + 100 + 998_000)]);
}

#[test]
fn max_waits_for_order_alone() {
    let got = issued(two_threads(), Pace::Max, 100);
    assert_eq!(got, [(1_000, 0), (11_000, 100), (1_000_000, 100)]);
}

#[test]
fn a_parent_that_waited_for_its_child_thinks_from_the_childs_end() {
    let mut d = Draft::new();
    d.on(1, "stat", "a", -2);
    d.fork(1, 2, 0);
    let first = d.now();
    // The child works for 5 ms in one call and ends 10 us after it.
    let o = d.on(2, "stat", "b", -2);
    o.dur_ns = 5_000_000;
    d.pause(5_000_000);
    let exit = d.now();
    d.exit(2);
    let last = d.now();
    d.on(1, "stat", "c", -2);
    // Its call takes 1 us here.
    let got = issued(d, Pace::Think, 1_000);
    let child_end = first + 1_000;
    let child_exit = child_end + (exit - (first + 5_000_000));
    assert_eq!(got, [(1_000, 1_000), (first, first), (last, child_exit + (last - exit))]);
}
