//! How many operations were in flight, then and now.

use std::{cmp::Reverse, collections::BinaryHeap};

use serde::Serialize;

use crate::{merge::by_recorded_start, outcomes::Outcomes, plan::Plan};

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

/// Time with n in flight, by n, from operations by entry.
#[derive(Default)]
struct InFlight {
    time: Vec<f64>,
    ends: BinaryHeap<Reverse<i64>>,
    at: i64,
}

impl InFlight {
    fn pass(&mut self, to: i64) {
        let n = self.ends.len();
        if self.time.len() <= n {
            self.time.resize(n + 1, 0.0);
        }
        self.time[n] += (to - self.at).max(0) as f64;
        self.at = to;
    }

    fn end_until(&mut self, ns: i64) {
        while let Some(Reverse(end)) = self.ends.peek().copied().filter(|Reverse(end)| *end <= ns) {
            self.pass(end);
            self.ends.pop();
        }
    }

    fn add(&mut self, start: i64, end: i64) {
        if self.time.is_empty() {
            self.at = start;
        }
        self.end_until(start);
        self.pass(start);
        self.ends.push(Reverse(end));
    }

    /// Shares of the time in which any were.
    fn shares(mut self) -> Vec<f64> {
        self.end_until(i64::MAX);
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
    outcomes.by_issue().for_each(|o| now.add(o.start_ns, o.end_ns));
    let (then, now) = (then.shares(), now.shares());
    let (mut apart, mut distance) = (0.0, 0.0);
    for n in 0..then.len().max(now.len()) {
        apart += then.get(n).unwrap_or(&0.0) - now.get(n).unwrap_or(&0.0);
        distance += f64::abs(apart);
    }
    Concurrency {
        original_mean: mean(&then),
        original_max: most(&then),
        replay_mean: mean(&now),
        replay_max: most(&now),
        distance,
        overlapping_again: (pairs > 0).then(|| again as f64 / pairs as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_out_by_the_number_in_flight() {
        // One for 10, two for 10, none for 10 (left out), one for 20.
        let mut flight = InFlight::default();
        [(0, 20), (10, 20), (30, 50)].iter().for_each(|(start, end)| flight.add(*start, *end));
        let s = flight.shares();
        assert_eq!(s, [0.0, 0.75, 0.25]);
        assert_eq!((mean(&s), most(&s)), (1.25, 2));
        assert_eq!(InFlight::default().shares(), Vec::<f64>::new());
    }
}
