//! How many operations were in flight, then and now.

use std::{cmp::Reverse, collections::BinaryHeap};

use serde::Serialize;

use crate::{plan::program::Plan, run::outcomes::Outcomes, verdict::merge::by_recorded_start};

/// Of the operations in flight when one is entered, so many are looked at for whether they overlap again.
const PARTNERS: usize = 16;

/// In flight, original against replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Concurrency {
    /// Mean over the time in which any were, of the original's replayed operations.
    pub original_mean: f64,
    /// Most.
    pub original_max: i64,
    /// The same of the replay.
    pub replay_mean: f64,
    /// Most.
    pub replay_max: i64,
    /// How far the two distributions of the number over time are apart (Wasserstein-1, operations), times with none left out.
    pub distance: f64,
    /// Of pairs that overlapped in the original, the share that did in the replay; null without any.
    pub overlapping_again: Option<f64>,
}

/// Time with n in flight, by n.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    time: Vec<f64>,
    n: usize,
    at: i64,
}

impl Level {
    /// From now on so many are in flight.
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

    /// Shares of the time in which any were.
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

/// The same from operations by entry.
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

    /// The next by entry; how many are in flight then, itself included.
    pub(crate) fn add(&mut self, start: i64, end: i64) -> usize {
        self.end_until(start);
        self.ends.push(Reverse(end));
        self.level.set(start, self.ends.len());
        self.ends.len()
    }

    /// All have been added.
    pub(crate) fn level(mut self) -> Level {
        self.end_until(i64::MAX);
        self.level
    }

    fn shares(self) -> Vec<f64> {
        self.level().shares()
    }
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().enumerate().map(|(n, s)| n as f64 * s).sum()
}

fn most(shares: &[f64]) -> i64 {
    shares.iter().rposition(|s| *s > 0.0).unwrap_or(0) as i64
}

/// Finds it out.
pub fn concurrency(plan: &Plan, outcomes: &Outcomes) -> Concurrency {
    let (mut then, mut now) = (InFlight::default(), InFlight::default());
    // In flight in the original: recorded end, and when it was in the replay.
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
    /// From the shares of time with n in flight, by n, then and now.
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
        // One for 10, two for 10, none for 10 (left out), one for 20.
        let mut flight = InFlight::default();
        [(0, 20), (10, 20), (30, 50)].iter().for_each(|(start, end)| _ = flight.add(*start, *end));
        let s = flight.shares();
        assert_eq!(s, [0.0, 0.75, 0.25]);
        assert_eq!((mean(&s), most(&s)), (1.25, 2));
        assert_eq!(InFlight::default().shares(), Vec::<f64>::new());
    }
}
