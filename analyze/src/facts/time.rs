//! What the duration of an operation consists of.
//!
//! Recorded waits (`record --waits`) say it directly. Without them, it is derived: while a bio of the operation was in
//! flight, it waited for the device; a sync also waits for the journal. What remains of a short operation is CPU time.

use serde::Serialize;

use super::{operation::Operation, own_io::OwnIo};
use crate::events::calls::{Kind, Source};

/// What remains of an operation up to this long without a recorded wait is CPU time: no device is that fast, and a
/// thread that loses its CPU waits longer.
const COMPUTED_NS: f64 = 1_000_000.0;

/// Parts of a duration or of a sum of durations, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parts {
    /// On a CPU.
    pub cpu_ns: f64,
    /// Waiting for requests to a device.
    pub device_ns: f64,
    /// Waiting for the journal or log of the file system.
    pub journal_ns: f64,
    /// Waiting for a lock of an inode, a page or the file system.
    pub lock_ns: f64,
    /// Held back because too many pages are dirty, or by a limit on requests.
    pub throttle_ns: f64,
    /// Waiting for memory.
    pub reclaim_ns: f64,
    /// Runnable, waiting for a CPU.
    pub run_queue_ns: f64,
    /// Waiting for another program: a pipe, a socket, a child, a lock on a file.
    pub peer_ns: f64,
    /// Not known.
    pub unknown_ns: f64,
}

impl Parts {
    /// The sum of all parts.
    pub fn total_ns(&self) -> f64 {
        self.named().iter().map(|(_, ns)| ns).sum()
    }

    /// Each part with its name.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("cpu", self.cpu_ns),
            ("device", self.device_ns),
            ("journal", self.journal_ns),
            ("lock", self.lock_ns),
            ("throttle", self.throttle_ns),
            ("reclaim", self.reclaim_ns),
            ("run_queue", self.run_queue_ns),
            ("peer", self.peer_ns),
            ("unknown", self.unknown_ns),
        ]
    }

    /// Adds other parts.
    pub fn add(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.device_ns += other.device_ns;
        self.journal_ns += other.journal_ns;
        self.lock_ns += other.lock_ns;
        self.throttle_ns += other.throttle_ns;
        self.reclaim_ns += other.reclaim_ns;
        self.run_queue_ns += other.run_queue_ns;
        self.peer_ns += other.peer_ns;
        self.unknown_ns += other.unknown_ns;
    }

    /// The part for a word of `waits.reason`.
    fn of_reason(&mut self, reason: &str) -> &mut f64 {
        match reason {
            "device" | "page_under_write_back" => &mut self.device_ns,
            "journal" => &mut self.journal_ns,
            "inode_lock" | "lock" | "page_lock" => &mut self.lock_ns,
            "write_back_throttle" | "dirty_limit" | "wbt" | "block_throttle" => &mut self.throttle_ns,
            "memory_reclaim" => &mut self.reclaim_ns,
            "run_queue" => &mut self.run_queue_ns,
            "peer" => &mut self.peer_ns,
            _ => &mut self.unknown_ns,
        }
    }
}

/// Recorded waits of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waited {
    /// By what it waited for.
    pub(super) parts: Parts,
    /// Waiting for requests to io_uring or Linux AIO, ns.
    request_ns: f64,
}

impl Waited {
    /// The part for a word of `waits.reason`.
    pub(super) fn of_reason(&mut self, reason: &str) -> &mut f64 {
        if reason == "request" { &mut self.request_ns } else { self.parts.of_reason(reason) }
    }

    fn total_ns(&self) -> f64 {
        self.parts.total_ns() + self.request_ns
    }

    /// Whether it may have waited for a commit: see [`super::commits::may_ride`].
    pub(super) fn may_ride(&self, op: &Operation) -> bool {
        super::commits::may_ride(self.parts.journal_ns > 0.0, self.total_ns() > 0.0, op.off_cpu_ns)
    }

    /// What the duration of an operation with these waits consists of. The parts add up to it.
    pub(super) fn parts(self, op: &Operation, is_sync: bool, io: &OwnIo) -> Parts {
        let Self { mut parts, mut request_ns } = self;
        let split = Split::of(op.dur_ns(), self.total_ns(), op.off_cpu_ns);
        if split.scale < 1.0 {
            scale(&mut parts, split.scale);
            request_ns *= split.scale;
        }
        parts.cpu_ns += split.cpu_ns;
        if op.is_peer {
            parts.peer_ns += split.rest_ns;
        } else {
            parts.add(&derive(op, is_sync, split.rest_ns, op.off_cpu_ns.is_some(), io));
        }
        if request_ns > 0.0 {
            // The rest of the requests are those to other programs: sockets, pipes, timers.
            let device_ns = (io.timelines.own.overlap_ns(op.start_ns, op.end_ns) as f64).min(request_ns);
            parts.device_ns += device_ns;
            parts.peer_ns += request_ns - device_ns;
        }
        parts
    }
}

/// How a duration divides into recorded waits, time on a CPU and the rest: the rule of diagnoses and of stories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Factor of the recorded waits: both ends of a wait may be a few ns outside the call.
    pub scale: f64,
    /// On a CPU, ns.
    pub cpu_ns: f64,
    /// Neither on a CPU nor in a recorded wait, as far as is known, ns.
    pub rest_ns: f64,
}

impl Split {
    /// Of an operation with this sum of recorded waits. `off_cpu_ns`: its time off the CPU, where recorded.
    pub fn of(dur_ns: i64, waited_ns: f64, off_cpu_ns: Option<i64>) -> Self {
        let dur_ns = dur_ns.max(0) as f64;
        let scale = if waited_ns > dur_ns { dur_ns / waited_ns } else { 1.0 };
        let rest_ns = (dur_ns - waited_ns).max(0.0);
        let cpu_ns = match off_cpu_ns {
            Some(off_ns) => (dur_ns - off_ns as f64).clamp(0.0, rest_ns),
            None if waited_ns > 0.0 => rest_ns,
            None => 0.0,
        };
        Self { scale, cpu_ns, rest_ns: rest_ns - cpu_ns }
    }
}

fn scale(parts: &mut Parts, by: f64) {
    *parts = Parts {
        cpu_ns: parts.cpu_ns * by,
        device_ns: parts.device_ns * by,
        journal_ns: parts.journal_ns * by,
        lock_ns: parts.lock_ns * by,
        throttle_ns: parts.throttle_ns * by,
        reclaim_ns: parts.reclaim_ns * by,
        run_queue_ns: parts.run_queue_ns * by,
        peer_ns: parts.peer_ns * by,
        unknown_ns: parts.unknown_ns * by,
    };
}

/// Parts of `rest_ns` of an operation without recorded waits. `off_cpu`: all of it was spent off the CPU.
fn derive(op: &Operation, is_sync: bool, rest_ns: f64, off_cpu: bool, io: &OwnIo) -> Parts {
    let mut parts = Parts::default();
    if rest_ns <= 0.0 {
        return parts;
    }
    let (own_ns, io) = (io.waited_ns(op), &io.timelines);
    let mut left_ns = rest_ns;
    let mut take = |part: &mut f64, ns: f64| {
        let ns = ns.min(left_ns);
        *part += ns;
        left_ns -= ns;
    };
    take(&mut parts.device_ns, own_ns as f64);
    if op.source == Source::Request || op.awaits_requests {
        take(&mut parts.device_ns, io.own.overlap_ns(op.start_ns, op.end_ns) as f64);
    }
    if op.awaits_requests {
        // For requests to other programs: sockets, pipes, timers.
        take(&mut parts.peer_ns, rest_ns);
    }
    if is_sync {
        take(&mut parts.journal_ns, io.journal.overlap_ns(op.start_ns, op.end_ns) as f64);
        take(&mut parts.device_ns, io.flushes.overlap_ns(op.start_ns, op.end_ns) as f64);
        take(&mut parts.device_ns, io.writes.overlap_ns(op.start_ns, op.end_ns) as f64);
    }
    let long = rest_ns > COMPUTED_NS;
    let cached_write = matches!(op.kind, Kind::Write | Kind::Copy) && !is_sync;
    match (off_cpu, long) {
        (false, false) => take(&mut parts.cpu_ns, rest_ns),
        // Nothing but a limit on dirty pages makes a write into the cache wait that long.
        (_, true) if cached_write && io.writes.overlap_ns(op.start_ns, op.end_ns) as f64 > 0.5 * rest_ns => {
            take(&mut parts.throttle_ns, rest_ns);
        }
        // What is written for a sync is written; the rest is the commit.
        (true, _) | (_, true) if is_sync => take(&mut parts.journal_ns, rest_ns),
        _ => take(&mut parts.unknown_ns, rest_ns),
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(dur_ns: i64, off_cpu_ns: Option<i64>) -> Operation {
        Operation { start_ns: 100, end_ns: 100 + dur_ns, off_cpu_ns, ..Operation::of_kind(Kind::Write) }
    }

    fn waited(waits: &[(&str, f64)]) -> Waited {
        let mut waited = Waited::default();
        waits.iter().for_each(|(reason, ns)| *waited.of_reason(reason) += ns);
        waited
    }

    #[test]
    fn time_on_the_cpu_is_what_the_probes_did_not_see_off_it() {
        let io = OwnIo::default();
        let parts = waited(&[("device", 60.0), ("wbt", 10.0)]).parts(&operation(100, Some(90)), false, &io);
        // 20 ns off the CPU have no wait of their own.
        let expected = Parts { cpu_ns: 10.0, device_ns: 60.0, throttle_ns: 10.0, unknown_ns: 20.0, ..Parts::default() };
        assert_eq!(parts, expected);
        assert_eq!(Waited::default().parts(&operation(100, Some(0)), false, &io).cpu_ns, 100.0);
        // Not known how long it was off the CPU: what is no wait is CPU time.
        assert_eq!(waited(&[("lock", 30.0)]).parts(&operation(100, None), false, &io).cpu_ns, 70.0);
    }

    #[test]
    fn parts_never_exceed_the_operation_and_a_pipe_is_not_all_waiting() {
        let io = OwnIo::default();
        let long = waited(&[("device", 150.0), ("request", 50.0)]).parts(&operation(100, Some(100)), false, &io);
        assert_eq!((long.device_ns, long.peer_ns, long.total_ns()), (75.0, 25.0, 100.0));
        let pipe = Operation { is_peer: true, ..operation(100, Some(60)) };
        let parts = waited(&[("peer", 50.0)]).parts(&pipe, false, &io);
        assert_eq!((parts.cpu_ns, parts.peer_ns), (40.0, 60.0));
        assert_eq!(Waited::default().parts(&Operation { off_cpu_ns: None, ..pipe }, false, &io).peer_ns, 100.0);
    }
}
