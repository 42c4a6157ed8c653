//! Latency by call, in the original and in the replay.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use serde::Serialize;

use crate::{
    base::distribution::{Distance, Spread, Times},
    plan::program::Plan,
    run::outcomes::Outcomes,
    verdict::results::each_call,
};

/// Latency of one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The call.
    pub op: &'static str,
    /// Latency in the original, of operations that were replayed.
    pub original_ns: Spread,
    /// Latency in the replay.
    pub replay_ns: Spread,
    /// Distance of the two distributions.
    pub distance: Option<Distance>,
}

/// Latencies by call, in decreasing order of time spent in the replay. Also the time that threads spent inside calls or
/// with requests in flight, in the original and in the replay, ns.
pub fn latencies(plan: &Plan, outcomes: &Outcomes) -> (Vec<Latency>, (i64, i64)) {
    let mut by_call: BTreeMap<&'static str, (Times, Times)> = BTreeMap::new();
    let (mut task, mut sums) = (None, (0i64, 0i64));
    let (mut busy_then, mut busy_now) = (Busy::default(), Busy::default());
    each_call(plan, outcomes, |r, o, _| {
        let (then, now) = by_call.entry(r.call.name()).or_default();
        then.add(r.end_ns - r.start_ns);
        now.add(o.end_ns - o.start_ns);
        if task.replace(r.task) != Some(r.task) {
            sums.0 = sums.0.saturating_add(mem::take(&mut busy_then).total_ns());
            sums.1 = sums.1.saturating_add(mem::take(&mut busy_now).total_ns());
        }
        busy_then.add(r.start_ns, r.end_ns);
        busy_now.add(o.start_ns, o.end_ns);
    });
    let sums = (sums.0.saturating_add(busy_then.total_ns()), sums.1.saturating_add(busy_now.total_ns()));
    let mut out: Vec<(i64, Latency)> = by_call
        .into_iter()
        .map(|(op, (then, now))| {
            let latency =
                Latency { op, original_ns: then.spread(), replay_ns: now.spread(), distance: then.distance(&now) };
            (now.sum(), latency)
        })
        .collect();
    out.sort_by_key(|(time, _)| -time);
    (out.into_iter().map(|(_, l)| l).collect(), sums)
}

/// Time that one thread has anything in progress. Overlaps (requests in flight) count once.
#[derive(Debug, Default)]
struct Busy {
    /// Disjoint intervals, in order.
    recent: VecDeque<(i64, i64)>,
    /// Total length of all earlier intervals, and the end of the last of them.
    past: Option<(i64, i64)>,
}

/// Intervals that a later addition may still touch. No thread has more requests in flight.
const RECENT: usize = 8192;

impl Busy {
    fn add(&mut self, from_ns: i64, to_ns: i64) {
        let (mut from, mut to) = (from_ns.max(self.past.map_or(i64::MIN, |(_, end)| end)), to_ns);
        if from >= to {
            return;
        }
        if self.recent.back().is_none_or(|(_, end)| *end < from) {
            self.recent.push_back((from, to));
        } else {
            // Merge with the intervals that this one touches.
            let end = self.recent.partition_point(|(start, _)| *start <= to);
            let begin = self.recent.partition_point(|(_, end)| *end < from);
            for (start, end) in self.recent.range(begin..end) {
                (from, to) = (from.min(*start), to.max(*end));
            }
            self.recent.drain(begin..end);
            self.recent.insert(begin, (from, to));
        }
        if self.recent.len() > RECENT
            && let Some((start, end)) = self.recent.pop_front()
        {
            let so_far = self.past.map_or(0, |(time, _)| time);
            self.past = Some((so_far.saturating_add(end - start), end));
        }
    }

    fn total_ns(&self) -> i64 {
        let past = self.past.map_or(0, |(time, _)| time);
        self.recent.iter().fold(past, |sum, (from, to)| sum.saturating_add(to - from))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let busy = |all: &[(i64, i64)]| {
            let mut b = Busy::default();
            all.iter().for_each(|(from, to)| b.add(*from, *to));
            b.total_ns()
        };
        assert_eq!(busy(&[]), 0);
        assert_eq!(busy(&[(0, 10), (20, 30)]), 20);
        assert_eq!(busy(&[(0, 10), (5, 7), (5, 15), (15, 16)]), 16);
        assert_eq!(busy(&[(20, 30), (0, 10), (40, 50), (8, 45)]), 50, "in any order");
        assert_eq!(busy(&[(5, 5), (9, 3)]), 0);
    }

    #[test]
    fn the_past_is_summed_up() {
        let mut b = Busy::default();
        for i in 0..3 * RECENT as i64 {
            b.add(i * 10, i * 10 + 4);
        }
        assert_eq!(b.recent.len(), RECENT);
        assert_eq!(b.total_ns(), 3 * RECENT as i64 * 4);
        // An interval that comes too late is counted only from the end of the past on.
        let past = b.past.unwrap().1;
        b.add(0, past + 2);
        assert_eq!(b.total_ns(), 3 * RECENT as i64 * 4 + 2);
    }
}
