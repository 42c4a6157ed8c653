//! `--cpu-budget`: limits the CPU time of the recorder by reading the rings less often.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    host::{self, signals},
    pipeline::{Message, Pipeline},
    probes::session::Session,
};

/// Records per pass. A pass may exceed the budget for a moment.
const PASS_RECORDS: usize = 1024;
/// Interval at which the budget is checked at the end of a recording.
const TICK: Duration = Duration::from_millis(2);

/// Accounts for CPU time.
#[derive(Debug)]
pub(super) struct Budget {
    /// Share of one CPU; may be above 1.
    share: f64,
    /// Time of the last check, and CPU time of all threads at that time.
    at: Instant,
    cpu_ns: i64,
    /// CPU time used beyond the share, ns. Unused time is not credited, so no second gets more than its share.
    debt_ns: f64,
    waiting: bool,
    /// Total time in which the rings were not read.
    pub(super) waited: Duration,
}

impl Budget {
    pub(super) fn new(share: f64) -> Self {
        Self { share, at: Instant::now(), cpu_ns: own_cpu_ns(), debt_ns: 0.0, waiting: false, waited: Duration::ZERO }
    }

    fn may_go_on(&mut self, now: Instant, cpu_ns: i64) -> bool {
        let elapsed = now - self.at;
        if self.waiting {
            self.waited += elapsed;
        }
        let used = (cpu_ns - self.cpu_ns) as f64;
        self.debt_ns = (self.debt_ns + used - elapsed.as_nanos() as f64 * self.share).max(0.0);
        (self.at, self.cpu_ns) = (now, cpu_ns);
        self.waiting = self.debt_ns > 0.0;
        !self.waiting
    }

    /// Makes one pass over the rings if the budget allows. Returns the time up to which records are complete, and
    /// whether records remain.
    pub(super) fn drain(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Option<(i64, bool)> {
        // Queued records are work not yet accounted for.
        if !self.may_go_on(Instant::now(), own_cpu_ns()) || pipeline.progress.is_behind() {
            return None;
        }
        let pass = session.drain_some(pipeline.spare(), PASS_RECORDS);
        if !pass.bytes.is_empty() {
            pipeline.send(Message::Records { bytes: pass.bytes, complete_to_ns: pass.complete_to_ns });
        }
        Some((pass.complete_to_ns, pass.more))
    }

    /// Takes everything that the rings hold at the end, but not what arrives meanwhile, which could be endless on busy
    /// disks. A signal ends the waiting; the caller then takes the rest at once.
    pub(super) fn drain_all(&mut self, session: &Session<'_>, pipeline: &Pipeline) {
        let begun_ns = host::monotonic_ns();
        while signals::take().is_none() {
            if self.drain(session, pipeline).is_some_and(|(complete_to_ns, more)| !more || complete_to_ns >= begun_ns) {
                return;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// CPU time of all threads of this process, ns.
fn own_cpu_ns() -> i64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_beyond_the_share_is_waited_for() {
        let mut budget = Budget::new(0.05);
        let (start, cpu) = (budget.at, budget.cpu_ns);
        let at = |ms| start + Duration::from_millis(ms);
        // Idle time is not credited.
        assert!(budget.may_go_on(at(10_000), cpu));
        assert!(!budget.may_go_on(at(10_010), cpu + 5_000_000));
        assert!(!budget.may_go_on(at(10_099), cpu + 5_000_000));
        assert!(budget.may_go_on(at(10_101), cpu + 5_000_000));
        assert_eq!(budget.waited, Duration::from_millis(91));
    }
}
