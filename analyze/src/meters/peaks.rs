//! Maximum number of requests in flight per time bin.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::meters::bins::Bins;

/// Follows one device. Memory: the bins, and one entry per request in flight.
#[derive(Clone, Debug)]
pub struct DepthPeaks {
    bins: Bins,
    /// Completion times of the requests in flight.
    ends_ns: BinaryHeap<Reverse<i64>>,
    /// Time of the last change.
    at_ns: i64,
    /// Start and end of the bins.
    window: (i64, i64),
    peaks: Vec<u64>,
}

impl DepthPeaks {
    /// Empty.
    pub fn new(bins: Bins) -> Self {
        let window = (bins.edges_ns(0).0, bins.edges_ns(bins.count() - 1).1);
        Self { bins, ends_ns: BinaryHeap::new(), at_ns: i64::MIN, window, peaks: vec![0; bins.count()] }
    }

    /// Adds the next request in issue order, in flight during `[issue_ns, complete_ns)`.
    pub fn push(&mut self, issue_ns: i64, complete_ns: i64) {
        while let Some(Reverse(end_ns)) = self.ends_ns.peek().copied()
            && end_ns <= issue_ns
        {
            self.go_to(end_ns);
            self.ends_ns.pop();
        }
        self.go_to(issue_ns);
        self.ends_ns.push(Reverse(complete_ns.max(issue_ns)));
        if let Some(bin) = self.bins.index(issue_ns) {
            self.peak(bin);
        }
    }

    /// Applies the current depth to all bins from the last change until just before `t_ns`.
    fn go_to(&mut self, t_ns: i64) {
        let from_ns = self.at_ns;
        self.at_ns = t_ns.max(from_ns);
        let (start_ns, end_ns) = self.window;
        let (first_ns, last_ns) = (from_ns.max(start_ns), t_ns.saturating_sub(1).min(end_ns));
        if self.ends_ns.is_empty() || first_ns > last_ns {
            return;
        }
        if let (Some(first), Some(last)) = (self.bins.index(first_ns), self.bins.index(last_ns)) {
            (first..=last).for_each(|bin| self.peak(bin));
        }
    }

    fn peak(&mut self, bin: usize) {
        let depth = self.ends_ns.len() as u64;
        if let Some(peak) = self.peaks.get_mut(bin) {
            *peak = (*peak).max(depth);
        }
    }

    /// The maximum depth in each bin.
    pub fn peaks(mut self) -> Vec<u64> {
        while let Some(Reverse(end_ns)) = self.ends_ns.peek().copied() {
            self.go_to(end_ns);
            self.ends_ns.pop();
        }
        self.peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_equal_brute_force() {
        let mut state = 3u64;
        let mut next = |below: i64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) as i64) % below
        };
        for _ in 0..50 {
            let bins = Bins::new(20, 180, 1 + next(40));
            let mut requests: Vec<(i64, i64)> = (0..40)
                .map(|_| {
                    let t = next(200);
                    (t, t + next(60))
                })
                .collect();
            requests.sort_unstable();
            let mut meter = DepthPeaks::new(bins);
            requests.iter().for_each(|(a, b)| meter.push(*a, *b));
            let got = meter.peaks();
            for (i, got) in got.iter().enumerate() {
                let (left, right) = bins.edges_ns(i);
                let last = if i + 1 == bins.count() { right } else { right - 1 };
                // Requests of length zero count at their time, as for `qd_max`.
                let at = |t: i64| {
                    let long = requests.iter().filter(|(a, b)| *a <= t && t < *b).count();
                    let issued: Vec<usize> = (0..requests.len())
                        .filter(|k| requests[*k].0 == t && requests[*k].1 == t)
                        .map(|k| 1 + requests[..k].iter().filter(|(a, b)| *a <= t && t < *b).count())
                        .collect();
                    issued.into_iter().max().unwrap_or(0).max(long)
                };
                let want = (left..=last).map(at).max().unwrap_or(0);
                assert_eq!(*got as usize, want, "bin {i} of {left}..{right}: {requests:?}");
            }
        }
    }
}
