//! Number of operations in flight over time, in the original and in the replay.

use std::{cmp::Reverse, collections::BinaryHeap};

use serde::Serialize;

use crate::{plan::program::Plan, run::outcomes::Outcomes, verdict::merge::by_recorded_start};

/// At most this many of the operations in flight at an entry are checked for overlapping again.
const PARTNERS: usize = 16;

/// Number in flight, original and replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Concurrency {
    /// Mean over the time in which any operation was in flight. Only operations that were replayed count.
    pub original_mean: f64,
    /// Maximum.
    pub original_max: i64,
    /// The same for the replay.
    pub replay_mean: f64,
    /// Maximum.
    pub replay_max: i64,
    /// Wasserstein-1 distance of the two distributions of the number over time, in operations. Idle time is left out.
    pub distance: f64,
    /// Share of the pairs that overlapped in the original and overlap in the replay. Null if no pairs overlapped.
    pub overlapping_again: Option<f64>,
}

/// Time spent with n operations in flight, by n.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    time: Vec<f64>,
    n: usize,
    at: i64,
}

impl Level {
    /// From `now_ns` on, `n` operations are in flight.
    pub(crate) fn set(&mut self, now_ns: i64, n: usize) {
        if self.time.is_empty() {
            self.at = now_ns;
        }
        if self.time.len() <= self.n {
            self.time.resize(self.n + 1, 0.0);
        }
        self.time[self.n] += now_ns.saturating_sub(self.at).max(0) as f64;
        self.at = self.at.max(now_ns);
        self.n = n;
    }

    /// Share of the time with n in flight, by n. Idle time is left out.
    pub(crate) fn shares(mut self) -> Vec<f64> {
        if let Some(none) = self.time.first_mut() {
            *none = 0.0;
        }
        let all: f64 = self.time.iter().sum();
        if all > 0.0 {
            self.time.iter_mut().for_each(|t| *t /= all);
        }
        self.time
    }
}

/// Computes a [`Level`] from operations in the order of their entry.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    level: Level,
    ends: BinaryHeap<Reverse<i64>>,
}

impl InFlight {
    fn end_until(&mut self, ns: i64) {
        while let Some(Reverse(end)) = self.ends.peek().copied().filter(|Reverse(end)| *end <= ns) {
            self.ends.pop();
            self.level.set(end, self.ends.len());
        }
    }

    /// Adds the next operation. Returns how many are in flight at its entry, itself included.
    pub(crate) fn add(&mut self, start: i64, end: i64) -> usize {
        self.end_until(start);
        self.ends.push(Reverse(end));
        self.level.set(start, self.ends.len());
        self.ends.len()
    }

    /// The result, after the last operation.
    pub(crate) fn level(mut self) -> Level {
        self.end_until(i64::MAX);
        self.level
    }

    fn shares(self) -> Vec<f64> {
        self.level().shares()
    }
}

fn mean(shares: &[f64]) -> f64 {
    // The sum of no numbers is -0.
    shares.iter().enumerate().map(|(n, s)| n as f64 * s).fold(0.0, std::ops::Add::add)
}

fn most(shares: &[f64]) -> i64 {
    shares.iter().rposition(|s| *s > 0.0).unwrap_or(0) as i64
}

/// Compares the numbers in flight.
pub fn concurrency(plan: &Plan, outcomes: &Outcomes) -> Concurrency {
    let (mut then, mut now) = (InFlight::default(), InFlight::default());
    // Operations in flight in the original: recorded end, then entry and return in the replay.
    let mut open: Vec<(i64, (i64, i64))> = Vec::new();
    let (mut pairs, mut again) = (0_i64, 0_i64);
    by_recorded_start(plan, outcomes, |_, _, r, o| {
        let me = (o.start_ns, o.end_ns);
        open.retain(|(until, _)| *until > r.start_ns);
        for (_, other) in open.iter().take(PARTNERS) {
            pairs += 1;
            again += i64::from(me.0 < other.1 && other.0 < me.1);
        }
        open.push((r.end_ns, me));
        then.add(r.start_ns, r.end_ns);
    });
    outcomes.by_issue().for_each(|o| _ = now.add(o.start_ns, o.end_ns));
    Concurrency::of(&then.shares(), &now.shares(), (pairs > 0).then(|| again as f64 / pairs as f64))
}

impl Concurrency {
    /// From the shares of the time with n in flight, by n, in the original and in the replay.
    pub(crate) fn of(then: &[f64], now: &[f64], overlapping_again: Option<f64>) -> Self {
        let (mut apart, mut distance) = (0.0, 0.0);
        for n in 0..then.len().max(now.len()) {
            apart += then.get(n).unwrap_or(&0.0) - now.get(n).unwrap_or(&0.0);
            distance += f64::abs(apart);
        }
        Self {
            original_mean: mean(then),
            original_max: most(then),
            replay_mean: mean(now),
            replay_max: most(now),
            distance,
            overlapping_again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_out_by_the_number_in_flight() {
        // One in flight for 10 ns, two for 10, none for 10 (left out), one for 20.
        let mut flight = InFlight::default();
        [(0, 20), (10, 20), (30, 50)].iter().for_each(|(start, end)| _ = flight.add(*start, *end));
        let s = flight.shares();
        assert_eq!(s, [0.0, 0.75, 0.25]);
        assert_eq!((mean(&s), most(&s)), (1.25, 2));
        assert_eq!(InFlight::default().shares(), Vec::<f64>::new());
        assert_eq!(format!("{:.2}", mean(&[])), "0.00");
    }
}
