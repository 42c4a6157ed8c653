//! How long calls took, then and now, by call.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    outcomes::Outcomes,
    plan::Plan,
    results::each_call,
    spread::{Distance, Spread, Times},
};

/// Latencies of one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The call.
    pub op: &'static str,
    /// Of the replayed operations in the original.
    pub original_ns: Spread,
    /// In the replay.
    pub replay_ns: Spread,
    /// How far the distributions are apart.
    pub distance: Option<Distance>,
}

/// Latencies by call, most of the replay's time first, and all time inside calls, original and replay, ns.
pub fn latencies(plan: &Plan, outcomes: &Outcomes) -> (Vec<Latency>, (i64, i64)) {
    let mut by_call: BTreeMap<&'static str, (Times, Times)> = BTreeMap::new();
    each_call(plan, outcomes, |r, o, _| {
        let (then, now) = by_call.entry(r.call.name()).or_default();
        then.add(r.end_ns - r.start_ns);
        now.add(o.end_ns - o.start_ns);
    });
    let sum = |which: fn(&(Times, Times)) -> i64| by_call.values().map(which).fold(0, i64::saturating_add);
    let sums = (sum(|c| c.0.sum()), sum(|c| c.1.sum()));
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
