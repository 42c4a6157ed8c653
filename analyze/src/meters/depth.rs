//! Requests in flight at a device, weighted by time.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Follows one device. Memory: one entry per request in flight.
#[derive(Clone, Debug, Default)]
pub struct DepthMeter {
    /// Completion times of the requests in flight.
    ends_ns: BinaryHeap<Reverse<i64>>,
    max: u64,
    in_flight_ns: u64,
    busy_ns: u64,
    busy_until_ns: Option<i64>,
    /// Time with exactly one in flight, up to `at_ns`.
    alone_ns: u64,
    at_ns: i64,
}

impl DepthMeter {
    /// Adds the next request in issue order, in flight during `[issue_ns, complete_ns)`.
    pub fn push(&mut self, issue_ns: i64, complete_ns: i64) {
        let complete_ns = complete_ns.max(issue_ns);
        while let Some(Reverse(end_ns)) = self.ends_ns.peek().copied()
            && end_ns <= issue_ns
        {
            self.go_to(end_ns);
            self.ends_ns.pop();
        }
        self.go_to(issue_ns);
        self.ends_ns.push(Reverse(complete_ns));
        self.max = self.max.max(self.ends_ns.len() as u64);
        self.in_flight_ns = self.in_flight_ns.saturating_add(complete_ns.abs_diff(issue_ns));
        let from = self.busy_until_ns.map_or(issue_ns, |until| until.max(issue_ns));
        self.busy_ns = self.busy_ns.saturating_add(u64::try_from(complete_ns.saturating_sub(from)).unwrap_or(0));
        self.busy_until_ns = Some(self.busy_until_ns.map_or(complete_ns, |until| until.max(complete_ns)));
    }

    fn go_to(&mut self, t_ns: i64) {
        if self.ends_ns.len() == 1 {
            self.alone_ns = self.alone_ns.saturating_add(u64::try_from(t_ns.saturating_sub(self.at_ns)).unwrap_or(0));
        }
        self.at_ns = t_ns;
    }

    /// Time with exactly one request in flight; divided by the busy time this is `sync_qd1`.
    pub fn alone_ns(&self) -> u64 {
        let mut rest = self.clone();
        while let Some(Reverse(end_ns)) = rest.ends_ns.peek().copied() {
            rest.go_to(end_ns);
            rest.ends_ns.pop();
        }
        rest.alone_ns
    }

    /// `qd_max`: maximum number of requests in flight.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Sum of the times in flight; divided by the time observed this is `qd_mean` (Little's law).
    pub fn in_flight_ns(&self) -> u64 {
        self.in_flight_ns
    }

    /// Time with at least one request in flight.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Busy time up to `until_ns`, which is after the last issue. Divided by the observed time, this is `util`.
    pub fn busy_until(&self, until_ns: i64) -> u64 {
        // After the last issue there are only completions, so the part beyond `until_ns` is contiguous.
        let beyond = self.busy_until_ns.map_or(0, |end| end.saturating_sub(until_ns).max(0));
        self.busy_ns.saturating_sub(beyond.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_add_to_depth_and_not_to_busy_time() {
        let mut m = DepthMeter::default();
        for (from, to) in [(0, 10), (2, 4), (3, 20), (20, 25), (40, 50)] {
            m.push(from, to);
        }
        assert_eq!(m.max(), 3);
        assert_eq!(m.in_flight_ns(), 10 + 2 + 17 + 5 + 10);
        assert_eq!(m.busy_ns(), 25 + 10);
        assert_eq!([m.busy_until(60), m.busy_until(50), m.busy_until(44)], [35, 35, 29]);
        // [4,10) is two, [0,2), [10,20), [20,25), [40,50) one at a time; [2,3) two, [3,4) three.
        assert_eq!(m.alone_ns(), 2 + 10 + 5 + 10);
    }

    #[test]
    fn back_to_back_is_depth_one() {
        let mut m = DepthMeter::default();
        (0..100).for_each(|i| m.push(i * 10, i * 10 + 10));
        assert_eq!((m.max(), m.busy_ns(), m.in_flight_ns()), (1, 1000, 1000));
    }
}
