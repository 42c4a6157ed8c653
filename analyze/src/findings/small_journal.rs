//! `small-journal`: the log wraps so often that writers wait for checkpoints.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S},
};
use crate::facts::Facts;

/// Fewer wraps show no pattern.
const LEAST_WRAPS: usize = 3;
/// A log that lasts longer than this does not limit anybody.
const MOST_INTERVAL_NS: i64 = 60_000_000_000;

const SQL: &str = "SELECT queue_ns, sector, len_bytes FROM 'bio/*.parquet' WHERE class = 'journal' AND op = 'write' ORDER BY queue_ns";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (dev, log) = facts
        .traffic
        .logs
        .iter()
        .filter(|(_, log)| log.wraps_ns.len() >= LEAST_WRAPS)
        .max_by_key(|(dev, log)| (log.wraps_ns.len(), **dev))?;
    let (first, last) = (*log.wraps_ns.first()?, *log.wraps_ns.last()?);
    let interval_ns = (last - first) / (log.wraps_ns.len() as i64 - 1);
    if interval_ns > MOST_INTERVAL_NS {
        return None;
    }
    // A sync waits for a commit whatever the size of the log; others wait for a checkpoint.
    let waits = facts.calls.share_parts.journal_ns - facts.calls.journal_of_syncs_ns;
    let cost_ns = waits.max(0.0) + facts.calls.stalls_of_changes_ns;
    let name = facts.disks.iter().find(|d| d.dev == *dev).map_or_else(String::new, |d| d.name.clone());
    Some(Draft {
        summary: format!(
            "The log of {:.1} MiB wraps {} times, every {:.2} s: changes wait until it is checkpointed",
            log.size_bytes() as f64 / f64::from(1 << 20),
            log.wraps_ns.len(),
            interval_ns as f64 / S
        ),
        cost_ns,
        time_ns: None,
        confidence: if facts.calls.waits_recorded { Confidence::High } else { Confidence::Medium },
        evidence: Evidence {
            devices: vec![Part { name, count: log.wraps_ns.len() as u64, bytes: 0, share_s: cost_ns / S }],
            ..Evidence::default()
        }
        .window(first, last)
        .figure("wraps", log.wraps_ns.len() as f64)
        .figure("time between wraps, s", interval_ns as f64 / S)
        .figure("size of the log as written, MiB", log.size_bytes() as f64 / f64::from(1 << 20))
        .sql(SQL),
        remedy: "Make a larger log: ext4 `tune2fs -J size=1024` on the unmounted file system, XFS `mkfs.xfs -l size=1g` or an \
                 external log device."
            .into(),
        check: "Record again and look for the wraps in `ioreel plot` (offsets): they should be minutes apart".into(),
    })
}
