//! `slow-delete`: removals, renames and truncations that take long.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, S, busiest_processes},
};
use crate::facts::Facts;

/// Fewer show no pattern.
const LEAST_SLOW: u64 = 3;

const SQL: &str = "SELECT op, path, dur_ns FROM 'ops/*.parquet' WHERE op IN ('unlink', 'unlinkat', 'rename', 'renameat2', 'ftruncate', \
                   'truncate', 'rmdir') ORDER BY dur_ns DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (slow, all) = (facts.calls.slow_removals, facts.calls.removals);
    if slow.count < LEAST_SLOW {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{} of {} removals, renames and truncations take {:.1} ms on average",
            slow.count,
            all.count,
            slow.mean_ns() / 1e6
        ),
        cost_ns: slow.share_ns,
        time_ns: Some(slow.time_ns),
        confidence: Confidence::Medium,
        evidence: Evidence { processes: busiest_processes(facts), ..Evidence::default() }
            .window(slow.first_ns, slow.last_ns)
            .figure("slow ones", slow.count as f64)
            .figure("the longest, ms", slow.max_ns as f64 / 1e6)
            .figure("their time, s", slow.time_ns / S)
            .sql(SQL),
        remedy: "Delete in the background, truncate large files in steps, avoid fragmented files (preallocate them), mount without \
                 `discard`."
            .into(),
        check: "Compare the latency of unlink and rename: ioreel info".into(),
    })
}
