//! Lets threads wait for each other's steps: a counter per thread, a bounded spin, then a futex.

use std::sync::{
    OnceLock,
    atomic::{
        AtomicI64, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};

use rustix::thread::futex;

use crate::plan::dependencies::{FINISH, Stamp};

/// Spins before sleeping. A wake-up takes about 5 us on bare metal and 50 us in a guest; a step of a cached workload
/// takes 1 us.
const SPINS: u32 = 200;

/// Awaited steps of each thread whose times are remembered, at most. A power of two.
const REMEMBERED: usize = 64;

/// When a step was done. Written only by its thread, read by any.
#[derive(Debug)]
struct Done {
    /// The step plus 1. 0: none, or the time is being written.
    step: AtomicU64,
    at_ns: AtomicI64,
}

/// A thread's counter, on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Counter {
    /// Number of steps done. Steps that nobody waits for are not always counted. `u32::MAX` at the end.
    done: AtomicU32,
    /// Lowest step that a sleeping thread waits for.
    wanted: AtomicU32,
    /// The futex word. Changes when sleeping threads are woken.
    turn: AtomicU32,
    /// When the last awaited step was done.
    at_ns: AtomicI64,
    /// When the last awaited steps were done, each at its number modulo [`REMEMBERED`].
    recent: OnceLock<Box<[Done; REMEMBERED]>>,
}

impl Counter {
    fn remember(&self, step: u32, at_ns: i64) {
        let recent = self.recent.get_or_init(|| {
            Box::new([const { Done { step: AtomicU64::new(0), at_ns: AtomicI64::new(0) } }; REMEMBERED])
        });
        let done = &recent[step as usize % REMEMBERED];
        done.step.store(0, Relaxed);
        fence(Release);
        done.at_ns.store(at_ns, Relaxed);
        done.step.store(u64::from(step) + 1, Release);
    }

    /// When the step was done. `None` if a later step has overwritten it.
    fn recall(&self, step: u32) -> Option<i64> {
        let done = &self.recent.get()?[step as usize % REMEMBERED];
        let step = u64::from(step) + 1;
        if done.step.load(Acquire) != step {
            return None;
        }
        let at_ns = done.at_ns.load(Relaxed);
        fence(Acquire);
        (done.step.load(Relaxed) == step).then_some(at_ns)
    }

    fn tell(&self, step: u32) {
        self.done.store(step.saturating_add(1), SeqCst);
        if self.wanted.load(SeqCst) <= step {
            // Threads that wait for a later step register again when they wake up.
            self.wanted.store(u32::MAX, SeqCst);
            self.turn.fetch_add(1, SeqCst);
            // Waking fails only for an invalid address.
            let _ = futex::wake(&self.turn, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

/// The counters of all threads.
#[derive(Debug)]
pub struct Progress(Box<[Counter]>);

impl Progress {
    /// Counters for this number of threads, no step done.
    pub fn new(threads: usize) -> Self {
        let counter = || Counter {
            done: AtomicU32::new(0),
            wanted: AtomicU32::new(u32::MAX),
            turn: AtomicU32::new(0),
            at_ns: AtomicI64::new(i64::MIN),
            recent: OnceLock::new(),
        };
        Self((0..threads).map(|_| counter()).collect())
    }

    /// Thread `task` has done step `step`, at `at_ns`.
    pub fn publish(&self, task: u32, step: u32, at_ns: i64) {
        let c = &self.0[task as usize];
        c.at_ns.store(at_ns, Relaxed);
        c.remember(step, at_ns);
        c.tell(step);
    }

    /// Thread `task` has ended.
    pub fn finish(&self, task: u32) {
        self.0[task as usize].tell(FINISH);
    }

    /// Whether the step is done.
    pub fn is_done(&self, s: Stamp) -> bool {
        self.0[s.task as usize].done.load(SeqCst) > s.step
    }

    /// Returns once the step is done. The result is its time, if still known.
    pub fn wait(&self, s: Stamp) -> Option<i64> {
        let c = &self.0[s.task as usize];
        if self.is_done(s) {
            return c.recall(s.step);
        }
        self.sleep(s);
        // This thread woke up so late that the step's time was overwritten. The other thread's latest time serves
        // instead.
        c.recall(s.step).or_else(|| Some(c.at_ns.load(Relaxed)))
    }

    fn sleep(&self, s: Stamp) {
        let c = &self.0[s.task as usize];
        for _ in 0..SPINS {
            if c.done.load(SeqCst) > s.step {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            let turn = c.turn.load(SeqCst);
            c.wanted.fetch_min(s.step, SeqCst);
            // Checked after registering: a step published before is seen here, one published later changes `turn`.
            if c.done.load(SeqCst) > s.step {
                return;
            }
            // Returns early if `turn` has changed, or after a signal.
            let _ = futex::wait(&c.turn, futex::Flags::PRIVATE, turn, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        const STEPS: u32 = 20_000;
        let p = Arc::new(Progress::new(2));
        // Two threads in lock step: each waits for the other's step before its own.
        let spawn = |me: u32| {
            let p = p.clone();
            thread::spawn(move || {
                for step in 0..STEPS {
                    if step + me > 0 {
                        let on = step + me - 1;
                        // The other may be one step further, not more.
                        assert_eq!(p.wait(Stamp { task: 1 - me, step: on }), Some(i64::from(on)));
                    }
                    p.publish(me, step, i64::from(step));
                }
                p.finish(me);
            })
        };
        for t in [spawn(0), spawn(1)] {
            t.join().expect("no panic");
        }
        assert!(p.is_done(Stamp { task: 0, step: FINISH }));
    }
}
