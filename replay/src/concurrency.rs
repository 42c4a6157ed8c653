//! How many operations were in flight, then and now.

use serde::Serialize;

use crate::{order::Stamp, outcomes::Outcomes, plan::Plan, timing::by_recorded_start};

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

/// Share of time with n in flight, by n.
fn shares(mut spans: Vec<(i64, i64)>) -> Vec<f64> {
    spans.sort_unstable();
    let mut ends: Vec<i64> = spans.iter().map(|s| s.1).collect();
    ends.sort_unstable();
    let mut time: Vec<f64> = Vec::new();
    let (mut next_end, mut now, mut at) = (0, 0_usize, spans.first().map_or(0, |s| s.0));
    let mut pass = |n: usize, ns: i64| {
        if time.len() <= n {
            time.resize(n + 1, 0.0);
        }
        time[n] += ns as f64;
    };
    for (start, _) in &spans {
        while ends.get(next_end).is_some_and(|e| e <= start) {
            pass(now, ends[next_end] - at);
            at = ends[next_end];
            now = now.saturating_sub(1);
            next_end += 1;
        }
        pass(now, start - at);
        at = *start;
        now += 1;
    }
    for end in &ends[next_end..] {
        pass(now, end - at);
        at = *end;
        now = now.saturating_sub(1);
    }
    if let Some(none) = time.first_mut() {
        *none = 0.0;
    }
    let all: f64 = time.iter().sum();
    if all > 0.0 {
        time.iter_mut().for_each(|t| *t /= all);
    }
    time
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().enumerate().map(|(n, s)| n as f64 * s).sum()
}

fn most(shares: &[f64]) -> i64 {
    shares.iter().rposition(|s| *s > 0.0).unwrap_or(0) as i64
}

/// Finds it out.
pub fn concurrency(plan: &Plan, outcomes: &Outcomes) -> Concurrency {
    let all = by_recorded_start(plan, outcomes);
    let issued = |at: &Stamp| outcomes.of(at.task, at.step);
    let mut now: Vec<(i64, i64)> = Vec::with_capacity(all.len());
    let mut then: Vec<(i64, i64)> = Vec::with_capacity(all.len());
    // In flight in the original: recorded end, and when it was in the replay.
    let mut open: Vec<(i64, (i64, i64))> = Vec::new();
    let (mut pairs, mut again) = (0_i64, 0_i64);
    for (start, end, at) in &all {
        let Some(o) = issued(at) else { continue };
        let me = (o.start_ns, o.end_ns);
        open.retain(|(until, _)| until > start);
        for (_, other) in open.iter().take(PARTNERS) {
            pairs += 1;
            again += i64::from(me.0 < other.1 && other.0 < me.1);
        }
        open.push((*end, me));
        then.push((*start, *end));
        now.push(me);
    }
    let (then, now) = (shares(then), shares(now));
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
        let s = shares(vec![(0, 20), (10, 20), (30, 50)]);
        assert_eq!(s, [0.0, 0.75, 0.25]);
        assert_eq!((mean(&s), most(&s)), (1.25, 2));
        assert_eq!(shares(Vec::new()), Vec::<f64>::new());
    }
}
