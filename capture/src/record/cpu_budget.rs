//! `--cpu-budget`: the recorder's own use of CPUs, held to a share of one by letting the rings wait.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    host::{self, signals},
    pipeline::{Message, Pipeline},
    probes::session::Session,
};

/// Records taken in one pass: a pass is what the budget may be exceeded by for a moment.
const PASS_RECORDS: usize = 1024;
/// How often it is looked whether the rings may be emptied on.
const TICK: Duration = Duration::from_millis(2);

/// Keeps the books of CPU time.
#[derive(Debug)]
pub(super) struct Budget {
    /// Of one CPU, 1 and more for all of one and more.
    share: f64,
    /// When last looked: the time, and the CPU time of all threads by then.
    at: Instant,
    cpu_ns: i64,
    /// CPU time used beyond the share. What was not used before is not credited: no second gets more than its share.
    debt_ns: f64,
    waiting: bool,
    /// How long the rings were left alone.
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

    /// One pass over the rings, if it may be; until when that is complete, and whether something was left.
    pub(super) fn drain(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Option<(i64, bool)> {
        // What the writer has not taken yet has not been paid for.
        if !self.may_go_on(Instant::now(), own_cpu_ns()) || pipeline.progress.is_behind() {
            return None;
        }
        let pass = session.drain_some(pipeline.spare(), PASS_RECORDS);
        if !pass.bytes.is_empty() {
            pipeline.send(Message::Records { bytes: pass.bytes, complete_to_ns: pass.complete_to_ns });
        }
        Some((pass.complete_to_ns, pass.more))
    }

    /// Takes what the rings hold at the end; what comes meanwhile, from disks that others keep busy, would be without end. A signal
    /// says that there is no time for that: then what is left is taken at once.
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
        // Idle time is not saved up.
        assert!(budget.may_go_on(at(10_000), cpu));
        assert!(!budget.may_go_on(at(10_010), cpu + 5_000_000));
        assert!(!budget.may_go_on(at(10_099), cpu + 5_000_000));
        assert!(budget.may_go_on(at(10_101), cpu + 5_000_000));
        assert_eq!(budget.waited, Duration::from_millis(91));
    }
}
