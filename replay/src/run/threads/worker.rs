//! A replaying thread.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use rustix::{
    thread::{ClockId, UnshareFlags, clock_nanosleep_absolute, unshare_unsafe},
    time::Timespec,
};

use super::{Group, World};
use crate::{
    base::clock::{monotonic_ns, not_before},
    base::ids::take_on,
    plan::{chunk::Chunk, dependencies::Stamp, program::Act},
    run::credentials::{of_list, ready_for},
    run::issue::syscall::call,
    run::{
        engine::{Called, Engine, Outcome, Reaped},
        issue::{Issuer, stamp},
        pace::{Base, Pace},
        rings::Rings,
    },
};

/// How long a thread sleeps without looking whether the replay has been given up.
const LONGEST_SLEEP_NS: i64 = 1_000_000_000;

/// State of a replaying thread.
pub(super) struct Worker<'a> {
    pub(super) world: &'a Arc<World>,
    pub(super) task: u32,
    pub(super) issuer: Issuer<'a>,
    pub(super) rings: Rings<'a>,
    /// The last two pieces: requests in the batch refer to them.
    pub(super) pieces: [Option<Arc<Chunk>>; 2],
    pub(super) group: Group,
    pub(super) spun_ns: i64,
}

impl Engine for Worker<'_> {
    fn now_ns(&mut self) -> i64 {
        monotonic_ns() - self.world.epoch_ns()
    }

    fn cpu(&mut self) -> i32 {
        // SAFETY: takes no arguments, and only reads the CPU number.
        unsafe { libc::sched_getcpu() }
    }

    fn sleep_until(&mut self, due_ns: i64) {
        let due = due_ns.saturating_add(self.world.epoch_ns());
        let wake = due - self.world.spin_ns;
        let mut now = monotonic_ns();
        while now < wake && !self.world.space.is_exhausted() {
            // In parts, so that a replay that is given up ends soon.
            let wake = wake.min(now.saturating_add(LONGEST_SLEEP_NS));
            let at = Timespec { tv_sec: wake.div_euclid(1_000_000_000), tv_nsec: wake.rem_euclid(1_000_000_000) };
            // If a signal interrupts the sleep, the loop sleeps again.
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
            now = monotonic_ns();
        }
        let began = now;
        while now < due {
            std::hint::spin_loop();
            now = monotonic_ns();
        }
        self.spun_ns += now - began;
    }

    fn wait_for(&mut self, step: Stamp) -> Option<i64> {
        let done_ns = self.world.progress.wait(step);
        not_before();
        done_ns
    }

    fn publish(&mut self, step: u32, at_ns: i64) {
        self.world.progress.publish(self.task, step, at_ns);
    }

    fn chunk(&mut self, index: usize) -> Option<Arc<Chunk>> {
        if self.world.space.is_exhausted() {
            return None;
        }
        let piece = self.world.pieces.get(&self.world.plan, self.task, index);
        self.pieces = [self.pieces[1].take(), piece.clone()];
        piece
    }

    fn submit(&mut self, chunk: &Chunk, act: &Act, due_ns: i64, free_ns: i64) {
        if let Act::Submit { rec, fd, fd2, .. } = *act
            && !self.world.skip_calls
        {
            let epoch_ns = self.world.epoch_ns();
            ready_for(&chunk.recs[rec as usize]);
            self.rings.submit(chunk, rec, (fd, fd2), (due_ns, free_ns), || monotonic_ns() - epoch_ns);
        }
    }

    fn flush(&mut self) {
        let epoch_ns = self.world.epoch_ns();
        self.rings.flush(|| monotonic_ns() - epoch_ns);
    }

    fn reap(&mut self, chunk: &Chunk, act: &Act) -> Reaped {
        let epoch_ns = self.world.epoch_ns();
        let now = || monotonic_ns() - epoch_ns;
        let issued_now =
            |due_ns: i64, start_ns: i64, ret: i64| Reaped { due_ns, free_ns: i64::MIN, start_ns, end_ns: now(), ret };
        let Act::Call { rec, fd, slot, .. } = *act else { return issued_now(now(), now(), 0) };
        let r = &chunk.recs[rec as usize];
        if self.world.skip_calls {
            return issued_now(now(), now(), r.ret);
        }
        match self.rings.reap(r, fd, slot, now) {
            Ok(mut reaped) => {
                if let (Act::Call { fd2, .. }, true) = (*act, r.ret >= 0)
                    && reaped.ret == -i64::from(libc::EINVAL)
                    && let Some(ret) = self.issuer.without_direct(chunk, rec, (fd, fd2), slot)
                {
                    (reaped.ret, reaped.end_ns) = (ret, now());
                }
                if let Some(checks) = &self.world.checks {
                    checks.changed(r, reaped.ret);
                    if r.call.reads() && r.regular && reaped.ret > 0 {
                        checks.read(&self.world.data, (r, reaped.ret), self.rings.got(reaped.ret as usize));
                    }
                }
                self.rings.shrink();
                reaped
            }
            Err(due_ns) => {
                self.issuer.make_ready(r);
                let start_ns = now();
                let ret = self.act(chunk, act);
                let reaped = issued_now(due_ns, start_ns, ret);
                self.done(chunk, act, ret);
                reaped
            }
        }
    }

    fn room(&mut self, calls: usize) -> Vec<Outcome> {
        self.world.scribe.room(calls)
    }

    fn happened(&mut self, outcomes: Vec<Outcome>) {
        self.world.scribe.note(self.task, outcomes);
    }

    fn ready(&mut self, chunk: &Chunk, act: &Act) {
        if let Act::Call { rec, .. } = *act
            && !self.world.skip_calls
        {
            self.issuer.make_ready(&chunk.recs[rec as usize]);
        }
    }

    fn done(&mut self, chunk: &Chunk, act: &Act, ret: i64) {
        if let (Some(checks), Act::Call { rec, .. }) = (&self.world.checks, *act) {
            let r = &chunk.recs[rec as usize];
            checks.changed(r, ret);
            if r.call.reads() && r.regular && ret > 0 && !self.world.skip_calls {
                checks.read(&self.world.data, (r, ret), self.issuer.got(ret as usize));
            }
        }
        self.issuer.shrink();
    }

    fn called(&mut self) -> Option<Called> {
        let epoch_ns = self.world.epoch_ns();
        let Called { row, times_ns } = stamp::take();
        let times_ns = times_ns.map(|(entered, returned)| (entered - epoch_ns, returned - epoch_ns));
        (!self.world.skip_calls).then_some(Called { row, times_ns })
    }

    fn act(&mut self, chunk: &Chunk, act: &Act) -> i64 {
        let world = self.world;
        if world.skip_calls {
            return match *act {
                Act::Call { rec, .. } => chunk.recs[rec as usize].ret,
                _ => 0,
            };
        }
        match *act {
            Act::Call { rec, fd, fd2, slot, list } => {
                let ret = self.issuer.issue(chunk, rec, fd, fd2, slot, list);
                if ret == -i64::from(libc::EINVAL) && chunk.recs[rec as usize].ret >= 0 {
                    return self.issuer.without_direct(chunk, rec, (fd, fd2), slot).unwrap_or(ret);
                }
                ret
            }
            Act::Close(list) => {
                for slot in list.of(&chunk.lists) {
                    world.cells.close(*slot);
                }
                0
            }
            Act::Unmap(list) => {
                for cell in list.of(&chunk.lists) {
                    world.cells.unmap(*cell);
                }
                0
            }
            Act::Unshare(pairs) => {
                // SAFETY: no Rust value owns descriptors of this thread.
                let made = unsafe { unshare_unsafe(UnshareFlags::FILES) };
                self.group = Group::default();
                for (from, to) in pairs.of(&chunk.pairs) {
                    world.cells.set(*to, world.cells.fd(*from as i32));
                }
                made.map_or_else(|e| -i64::from(e.raw_os_error()), |()| 0)
            }
            Act::Become(list) => of_list(list, &chunk.lists).map_or(0, |ids| take_on(call, ids, None)),
            Act::HandIn { slot, place } => {
                world.handover.hand_in(place, world.cells.fd(slot as i32));
                0
            }
            Act::Receive { place, slot } => {
                world.cells.set(slot, world.handover.receive(place));
                0
            }
            Act::Spawn { .. } | Act::Submit { .. } | Act::Returned { .. } | Act::Passed { .. } => 0,
        }
    }

    fn spawn(&mut self, task: u32, base: Base, next_ns: Option<i64>) {
        if !self.world.plan.tasks[task as usize].program.is_empty() {
            if self.world.clockwork.pace == Pace::Load {
                self.world.load.set(task, self.world.plan.tasks[task as usize].first_turn_ns);
                self.world.load.set(self.task, next_ns);
            }
            self.world.start(task, base, Some(&self.group));
        }
    }

    fn shift_ns(&mut self) -> i64 {
        self.world.shift_ns()
    }

    fn shift_to(&mut self, ns: i64) {
        self.world.shift_ns.fetch_max(ns, SeqCst);
    }

    fn enter(&mut self, turn_ns: i64, together: u32, next_ns: Option<i64>) -> i64 {
        let let_go_ns = self.world.load.enter(self.task, turn_ns, together, next_ns);
        let_go_ns.map_or(i64::MIN, |at| at - self.world.epoch_ns())
    }

    fn leave(&mut self) {
        self.world.load.leave();
    }

    fn ended_ns(&mut self, task: u32) -> i64 {
        self.world.ended_ns[task as usize].load(SeqCst)
    }
}
