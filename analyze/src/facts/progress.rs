//! By how much each operation lengthens the whole.
//!
//! At each moment, the threads that are active divide the elapsed time: if two threads of a compile work at a time, a
//! second spent in calls of one of them lengthens the whole by half a second. A thread is active in a call, unless the
//! call waits for another program, and for a short time after it, in which it computes. What the thread does outside
//! calls is not recorded, so a longer absence counts as sleep.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use rustc_hash::FxHashMap;

use super::operation::Operation;
use crate::events::calls::Source;

/// A thread that makes no call for this long after its last one counts as asleep.
pub(super) const COMPUTES_NS: i64 = 10_000_000;

/// Divides the elapsed time among the active threads. Memory: operations in flight and threads.
#[derive(Debug)]
pub(super) struct Progress {
    cpus: usize,
    /// By end, then by slot.
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    in_flight: Vec<(Operation, f64)>,
    free: Vec<usize>,
    /// Operations in flight that do not wait for another program.
    active: usize,
    /// Requests to io_uring or Linux AIO in flight. Their threads wait for them in calls of their own.
    requests: usize,
    /// Threads that compute after a call, with the number of that call.
    computing: FxHashMap<i64, u64>,
    expiries: VecDeque<(i64, i64, u64)>,
    calls: u64,
    now_ns: i64,
    share_ns: f64,
    /// The same, divided once more among the requests in flight.
    request_share_ns: f64,
}

impl Progress {
    /// For a machine with this number of CPUs. No more threads compute at a time.
    pub(super) fn new(cpus: u32) -> Self {
        Self {
            cpus: (cpus as usize).max(1),
            ends: BinaryHeap::new(),
            in_flight: Vec::new(),
            free: Vec::new(),
            active: 0,
            requests: 0,
            computing: FxHashMap::default(),
            expiries: VecDeque::new(),
            calls: 0,
            now_ns: 0,
            share_ns: 0.0,
            request_share_ns: 0.0,
        }
    }

    /// Adds an operation, not earlier than the previous one. Passes each one that ended before to `ended`, with its share.
    pub(super) fn start(&mut self, op: Operation, ended: &mut impl FnMut(&Operation, f64)) {
        self.run_until(op.start_ns, ended);
        let is_request = op.source == Source::Request;
        if is_request {
            self.requests += 1;
        } else {
            self.computing.remove(&op.task);
            self.active += usize::from(!op.is_peer);
        }
        let item = (op, if is_request { self.request_share_ns } else { self.share_ns });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.in_flight[slot] = item;
                slot
            }
            None => {
                self.in_flight.push(item);
                self.in_flight.len() - 1
            }
        };
        self.ends.push(Reverse((op.end_ns, slot)));
    }

    /// Ends all operations.
    pub(super) fn finish(&mut self, ended: &mut impl FnMut(&Operation, f64)) {
        self.run_until(i64::MAX, ended);
    }

    fn run_until(&mut self, t_ns: i64, ended: &mut impl FnMut(&Operation, f64)) {
        while let Some(Reverse((end_ns, slot))) = self.ends.peek().copied()
            && end_ns <= t_ns
        {
            self.expire(end_ns);
            self.advance(end_ns);
            self.ends.pop();
            let (op, start_share_ns) = self.in_flight[slot];
            self.free.push(slot);
            if op.source == Source::Request {
                self.requests -= 1;
                ended(&op, self.request_share_ns - start_share_ns);
                continue;
            }
            self.active -= usize::from(!op.is_peer);
            ended(&op, if op.is_peer { 0.0 } else { self.share_ns - start_share_ns });
            self.compute(&op, end_ns);
        }
        if t_ns != i64::MAX {
            self.expire(t_ns);
            self.advance(t_ns);
        }
    }

    fn compute(&mut self, op: &Operation, end_ns: i64) {
        self.calls += 1;
        self.computing.insert(op.task, self.calls);
        self.expiries.push_back((end_ns.saturating_add(COMPUTES_NS), op.task, self.calls));
    }

    /// Threads that made no further call go to sleep.
    fn expire(&mut self, t_ns: i64) {
        while let Some((at_ns, task, call)) = self.expiries.front().copied()
            && at_ns <= t_ns
        {
            self.expiries.pop_front();
            if self.computing.get(&task) == Some(&call) {
                self.advance(at_ns);
                self.computing.remove(&task);
            }
        }
    }

    fn advance(&mut self, t_ns: i64) {
        if t_ns <= self.now_ns {
            return;
        }
        let active = self.active + self.computing.len().min(self.cpus);
        let share_ns = (t_ns - self.now_ns) as f64 / active.max(1) as f64;
        if active > 0 {
            self.share_ns += share_ns;
        }
        if self.requests > 0 {
            self.request_share_ns += share_ns / self.requests as f64;
        }
        self.now_ns = t_ns;
    }
}
