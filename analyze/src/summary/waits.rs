//! Waits of operations, by reason.

use std::collections::BTreeMap;

use ioreel_traces::{Reel, rows::Wait};
use serde::Serialize;

use crate::{Result, events::scope::Scope};

/// Waits of one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitSummary {
    /// The word of `waits.reason`.
    pub reason: String,
    /// Waits.
    pub count: u64,
    /// Time off the CPU, ns, summed over threads.
    pub total_ns: i64,
    /// The part of it spent runnable, waiting for a CPU.
    pub run_queue_ns: i64,
    /// The longest.
    pub max_ns: i64,
}

/// Sums over the waits of the table `waits` that start in the scope's window, most time first. Empty if waits were not
/// recorded.
pub fn waits(reel: &Reel, scope: &Scope) -> Result<Vec<WaitSummary>> {
    let mut by_reason: BTreeMap<String, WaitSummary> = BTreeMap::new();
    for wait in reel.rows::<Wait>() {
        let w = wait?;
        if !scope.holds_time(w.start_ns) {
            continue;
        }
        let sum = by_reason.entry(w.reason.to_string()).or_default();
        sum.count += 1;
        sum.total_ns = sum.total_ns.saturating_add(w.dur_ns);
        sum.run_queue_ns = sum.run_queue_ns.saturating_add(w.run_queue_ns);
        sum.max_ns = sum.max_ns.max(w.dur_ns);
    }
    let mut all: Vec<WaitSummary> = by_reason.into_iter().map(|(reason, sum)| WaitSummary { reason, ..sum }).collect();
    all.sort_by_key(|w| std::cmp::Reverse(w.total_ns));
    Ok(all)
}
