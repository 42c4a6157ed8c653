//! Exact issue times: the real program loop with a simulated clock and simulated calls. Each thread has its own time.
//! Waiting for a step of another thread sets it to the end of that step, so the outcome does not depend on the machine.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use ioreel_replay::{
    PlanOptions, plan,
    plan::{
        chunk::Chunk,
        dependencies::{FINISH, Stamp},
        program::{Act, Plan},
    },
    reel::input::Input,
    run::{
        engine::{Called, Engine, Outcome, Reaped, run_program},
        pace::{Base, CatchUp, Clockwork, Factor, Pace},
    },
};
use ioreel_traces::Reel;

use crate::reel::{Draft, THREAD, at};

#[derive(Default)]
struct Shared {
    /// When each step ended, and when it would have ended without lateness.
    ends: Mutex<HashMap<(u32, u32), (i64, i64)>>,
    changed: Condvar,
    /// Recorded time and issue time of each.
    issued: Mutex<Vec<(i64, i64)>>,
    shift_ns: Mutex<i64>,
    /// How late threads wake.
    late_ns: i64,
}

/// Duration of a call, ns, by its recorded start.
type Cost = fn(i64) -> i64;

struct Mock {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    clockwork: Clockwork,
    task: u32,
    now_ns: i64,
    /// Duration of a call by its recorded start.
    cost_ns: Cost,
    called: Option<Called>,
    children: Vec<thread::JoinHandle<()>>,
}

impl Mock {
    fn run(plan: Arc<Plan>, shared: Arc<Shared>, clockwork: Clockwork, cost_ns: Cost, task: u32, birth: Base) {
        let mut m =
            Self { plan, shared, clockwork, task, now_ns: birth.now_ns, cost_ns, called: None, children: Vec::new() };
        let plan = m.plan.clone();
        let base = run_program(&plan, task, clockwork, birth, &mut m);
        let recorded = plan.tasks[task as usize].exit_ns.unwrap_or(base.recorded_ns);
        let end_ns = base.due_ns(recorded);
        m.tell(FINISH, end_ns, end_ns);
        m.children.into_iter().for_each(|c| c.join().unwrap());
    }

    fn tell(&self, step: u32, now_ns: i64, at_ns: i64) {
        self.shared.ends.lock().unwrap().insert((self.task, step), (now_ns, at_ns));
        self.shared.changed.notify_all();
    }

    fn end_of(&self, s: Stamp) -> (i64, i64) {
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
        if due_ns > self.now_ns {
            self.now_ns = due_ns + self.shared.late_ns;
        }
    }
    fn wait_for(&mut self, s: Stamp) -> Option<i64> {
        // The end of a thread matters only at pace `think`.
        let (now_ns, at_ns) = self.end_of(s);
        if s.step == FINISH {
            return None;
        }
        if now_ns > self.now_ns {
            self.now_ns = now_ns + self.shared.late_ns;
        }
        Some(at_ns)
    }
    fn publish(&mut self, step: u32, at_ns: i64) {
        self.tell(step, self.now_ns, at_ns);
    }
    fn chunk(&mut self, index: usize) -> Option<Arc<Chunk>> {
        self.plan.chunk(self.task, index)
    }
    fn happened(&mut self, _: Vec<Outcome>) {}
    fn act(&mut self, chunk: &Chunk, act: &Act) -> i64 {
        match act {
            Act::Call { rec, .. } => {
                let r = &chunk.recs[*rec as usize];
                self.shared.issued.lock().unwrap().push((r.start_ns, self.now_ns));
                let start_ns = self.now_ns;
                self.now_ns += (self.cost_ns)(r.start_ns);
                self.called = Some(Called { row: r.row, times_ns: Some((start_ns, self.now_ns)) });
                r.ret
            }
            _ => 0,
        }
    }
    fn called(&mut self) -> Option<Called> {
        self.called.take()
    }
    fn submit(&mut self, _: &Chunk, _: &Act, _: i64, _: i64) {}
    fn flush(&mut self) {}
    fn reap(&mut self, _: &Chunk, _: &Act) -> Reaped {
        Reaped { due_ns: 0, free_ns: 0, start_ns: 0, end_ns: 0, ret: 0 }
    }
    fn spawn(&mut self, task: u32, base: Base, _: Option<i64>) {
        let (plan, shared, clockwork, cost) = (self.plan.clone(), self.shared.clone(), self.clockwork, self.cost_ns);
        self.children.push(thread::spawn(move || Self::run(plan, shared, clockwork, cost, task, base)));
    }
    fn shift_ns(&mut self) -> i64 {
        *self.shared.shift_ns.lock().unwrap()
    }
    fn shift_to(&mut self, ns: i64) {
        let mut shift = self.shared.shift_ns.lock().unwrap();
        *shift = ns.max(*shift);
    }
    fn enter(&mut self, _: i64, _: u32, _: Option<i64>) -> i64 {
        i64::MIN
    }
    fn leave(&mut self) {}
    fn ended_ns(&mut self, task: u32) -> i64 {
        self.end_of(Stamp { task, step: FINISH }).1
    }
}

/// Issue times by recorded start.
pub(crate) fn issued(draft: Draft, pace: Pace, cost_ns: Cost) -> Vec<(i64, i64)> {
    issued_after_stalls(draft, at(pace), cost_ns)
}

fn issued_after_stalls(draft: Draft, clockwork: Clockwork, cost_ns: Cost) -> Vec<(i64, i64)> {
    issued_late(draft, clockwork, cost_ns, 0)
}

fn issued_late(draft: Draft, clockwork: Clockwork, cost_ns: Cost, late_ns: i64) -> Vec<(i64, i64)> {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::read(&Reel::open(draft.write(dir.path())).unwrap()).unwrap();
    let plan = Arc::new(plan(input, PlanOptions { privileged: true, ..Default::default() }).unwrap());
    let shared = Arc::new(Shared { late_ns, ..Shared::default() });
    Mock::run(plan.clone(), shared.clone(), clockwork, cost_ns, 0, Base::default());
    let mut out = shared.issued.lock().unwrap().clone();
    out.sort_unstable();
    out
}

/// At 1,000 ns the first thread creates a file; at 11,000 the second opens it; at 1,000,000 the first makes another
/// call.
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
    // Calls take 50 us instead of 1: the second thread waits for the creation, the third call is on time again.
    let got = issued(two_threads(), Pace::Original, |_| 50_000);
    assert_eq!(got, [(1_000, 1_000), (11_000, 51_000), (1_000_000, 1_000_000)]);
}

#[test]
fn think_keeps_computing_time_and_lets_fast_calls_win() {
    // Recorded calls take 1 us, so the third call starts 998 us after the return of the first.
    let got = issued(two_threads(), Pace::Think, |_| 100);
    assert_eq!(got, [(1_000, 1_000), (11_000, 11_000), (1_000_000, 1_000 + 100 + 998_000)]);
}

#[test]
fn think_makes_up_for_late_wakes() {
    // Calls of 1 us with 99 us in between, once 13 us. Threads wake 30 us late.
    let issued = |late_ns: i64| -> Vec<i64> {
        let mut d = Draft::new();
        for pause in [90_000, 90_000, 4_000, 90_000, 90_000, 90_000] {
            d.on(1, "stat", "x", -2);
            d.pause(pause);
        }
        issued_late(d, at(Pace::Think), |_| 1_000, late_ns).iter().map(|(_, issued)| *issued).collect()
    };
    let by: Vec<i64> = issued(30_000).iter().zip(issued(0)).map(|(late, on_time)| late - on_time).collect();
    assert_eq!(by, [30_000, 30_000, 30_000, 17_000, 30_000, 30_000]);
}

#[test]
fn think_makes_up_for_late_wakes_of_others() {
    // The second thread opens a file that the first creates in 50 us, and makes a call 199 us later. All threads wake
    // 30 us late. The open is late by two wakes, the next call by one.
    let issued = |late_ns: i64| -> Vec<i64> {
        let mut d = Draft::new();
        d.fork(1, 2, THREAD);
        d.create(1, "f", 1, 3);
        d.open(2, "f", libc::O_RDONLY, 1, 4);
        d.pause(190_000);
        d.on(2, "stat", "x", -2);
        issued_late(d, at(Pace::Think), |_| 50_000, late_ns).iter().map(|(_, issued)| *issued).collect()
    };
    let by: Vec<i64> = issued(30_000).iter().zip(issued(0)).map(|(late, on_time)| late - on_time).collect();
    assert_eq!(by, [30_000, 60_000, 30_000]);
}

#[test]
fn think_makes_up_for_no_more_than_the_replayer_was_late() {
    // As before; the first thread also creates another file in 75 us, which exists when the second thread uses it.
    // Without lateness the second one would have waited for it: only its lateness beyond that wait is the replayer's.
    let issued = |late_ns: i64| -> Vec<i64> {
        let mut d = Draft::new();
        d.fork(1, 2, THREAD);
        d.create(1, "f", 1, 3);
        d.open(2, "f", libc::O_RDONLY, 1, 4);
        d.create(1, "g", 2, 5);
        d.open(2, "g", libc::O_RDONLY, 2, 6);
        d.pause(190_000);
        d.on(2, "stat", "x", -2);
        let cost = |at| if at == 31_000 { 75_000 } else { 50_000 };
        issued_late(d, at(Pace::Think), cost, late_ns).iter().map(|(_, issued)| *issued).collect()
    };
    let by: Vec<i64> = issued(30_000).iter().zip(issued(0)).map(|(late, on_time)| late - on_time).collect();
    assert_eq!(by, [30_000, 60_000, 11_000, 16_000, 30_000]);
}

#[test]
fn think_computes_before_calls_about_requests() {
    // The context is created 499 us after the return of the first call; the second call starts 9 us after that.
    let mut d = Draft::new();
    d.on(1, "stat", "x", -2);
    d.pause(490_000);
    d.op(1, "io_setup", 0);
    d.on(1, "stat", "x", -2);
    assert_eq!(issued(d, Pace::Think, |_| 500), [(1_000, 1_000), (511_000, 1_500 + 499_000 + 9_000)]);
}

#[test]
fn think_leaves_out_what_recording_cost() {
    // Calls of 1 us with 9 us in between, 2 us of which are overhead of the recording. The last gap is shorter than
    // that.
    let issued = |pace: Pace, call_ns: Option<i64>| -> Vec<i64> {
        let mut d = Draft::new();
        d.call_ns = call_ns;
        for pause in [0, 0, -8_500] {
            d.on(1, "stat", "x", -2);
            d.pause(pause);
        }
        d.on(1, "stat", "x", -2);
        issued(d, pace, |_| 1_000).iter().map(|(_, issued)| *issued).collect()
    };
    assert_eq!(issued(Pace::Think, None), [1_000, 11_000, 21_000, 22_500]);
    assert_eq!(issued(Pace::Think, Some(2_000)), [1_000, 9_000, 17_000, 18_000]);
    assert_eq!(issued(Pace::Original, Some(2_000)), [1_000, 11_000, 21_000, 22_500]);
}

#[test]
fn max_waits_for_order_alone() {
    let got = issued(two_threads(), Pace::Max, |_| 100);
    assert_eq!(got, [(1_000, 0), (11_000, 100), (1_000_000, 100)]);
}

#[test]
fn a_parent_that_waited_for_its_child_thinks_from_the_childs_end() {
    let mut d = Draft::new();
    d.on(1, "stat", "a", -2);
    d.fork(1, 2, 0);
    let first = d.now();
    // The child makes one call of 5 ms and ends 10 us later.
    let o = d.on(2, "stat", "b", -2);
    o.dur_ns = 5_000_000;
    d.pause(5_000_000);
    let exit = d.now();
    d.exit(2);
    let last = d.now();
    d.on(1, "stat", "c", -2);
    // Its call takes 1 us here.
    let got = issued(d, Pace::Think, |_| 1_000);
    let child_end = first + 1_000;
    let child_exit = child_end + (exit - (first + 5_000_000));
    assert_eq!(got, [(1_000, 1_000), (first, first), (last, child_exit + (last - exit))]);
}

/// A thread makes a call every ms, 10 times. Another thread makes one 500 us later each time.
fn two_clocks() -> Draft {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 1..=10 {
        for (task, at) in [(1, i * 1_000_000), (2, i * 1_000_000 + 500_000)] {
            d.on(task, "stat", "nothing", -2).start_ns = at;
        }
    }
    d
}

/// The first thread's call at 3 ms takes 20 ms, all others 1 us.
fn stall(recorded_ns: i64) -> i64 {
    if recorded_ns == 3_000_000 { 20_000_000 } else { 1_000 }
}

fn by_thread(issued: &[(i64, i64)]) -> [Vec<i64>; 2] {
    let of = |part: i64| issued.iter().filter(|(r, _)| r % 1_000_000 == part).map(|(_, at)| *at).collect();
    [of(0), of(500_000)]
}

#[test]
fn compress_makes_up_for_a_stall() {
    let clockwork = Clockwork { pace: Pace::Original, catch_up: CatchUp::Compress };
    let [first, second] = by_thread(&issued_after_stalls(two_clocks(), clockwork, stall));
    // Seven calls are left when the stall ends. They are issued back to back.
    let late = |i: i64| 23_000_000 + (i - 4) * 1_000;
    let expected: Vec<i64> = (1..=10).map(|i| if i <= 3 { i * 1_000_000 } else { late(i) }).collect();
    assert_eq!(first, expected);
    assert_eq!(second, (1..=10).map(|i| i * 1_000_000 + 500_000).collect::<Vec<_>>());
}

#[test]
fn without_catching_up_only_the_thread_that_stalled_is_later() {
    let clockwork = Clockwork { pace: Pace::Original, catch_up: CatchUp::None };
    let [first, second] = by_thread(&issued_after_stalls(two_clocks(), clockwork, stall));
    // The fourth was due at 4 ms and was possible at 23 ms: all later ones are 19 ms later.
    let expected: Vec<i64> = (1..=10).map(|i| i * 1_000_000 + if i <= 3 { 0 } else { 19_000_000 }).collect();
    assert_eq!(first, expected);
    assert_eq!(second, (1..=10).map(|i| i * 1_000_000 + 500_000).collect::<Vec<_>>());
}

#[test]
fn shift_moves_the_schedule_of_all() {
    let clockwork = Clockwork { pace: Pace::Original, catch_up: CatchUp::Shift };
    // A single thread: simulated threads share no clock, so when another one sees the shift is not deterministic.
    let mut d = Draft::new();
    for i in 1..=10 {
        d.on(1, "stat", "nothing", -2).start_ns = i * 1_000_000;
    }
    let issued = issued_after_stalls(d, clockwork, stall);
    for (recorded, at) in &issued {
        assert_eq!(*at, recorded + if *recorded <= 3_000_000 { 0 } else { 19_000_000 });
    }
}

#[test]
fn a_small_delay_is_no_stall() {
    for catch_up in [CatchUp::Shift, CatchUp::None] {
        let mut d = Draft::new();
        for i in 1..=10 {
            d.on(1, "stat", "nothing", -2).start_ns = i * 1_000_000;
        }
        let clockwork = Clockwork { pace: Pace::Original, catch_up };
        // Every other call ends 900 us after the next one is due: delays do not add up.
        let issued = issued_after_stalls(d, clockwork, |at| if at % 2_000_000 == 0 { 1_900_000 } else { 1_000 });
        for (recorded, at) in &issued {
            assert_eq!(at - recorded, if recorded % 2_000_000 != 0 && *recorded > 2_000_000 { 900_000 } else { 0 });
        }
    }
}

#[test]
fn scale_stretches_time() {
    let issued = issued(two_clocks(), Pace::Scale(Factor::new(2.5).unwrap()), |_| 1_000);
    assert!(issued.iter().all(|(recorded, at)| *at == recorded * 5 / 2), "{issued:?}");
}
