//! `allocation-gaps`: gaps left between files made in sequence.

use super::{
    finding::{Confidence, Evidence},
    seek_storm::seek_cost_ns,
    support::{Draft, disk_cost_ns, percent},
};
use crate::facts::Facts;

/// Fewer files show no pattern.
const LEAST_FILES: u64 = 20;
/// Least part of the steps from one new file to the next that leave a gap.
const LEAST_PART: f64 = 0.5;

const SQL: &str = "SELECT file, min(sector), max(sector + len_bytes // 512), min(queue_ns) FROM 'bio/*.parquet' WHERE class = 'data' AND op = \
                   'write' GROUP BY file ORDER BY 4";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let gaps = &facts.traffic.gaps;
    if gaps.steps < LEAST_FILES || (gaps.with_gap as f64) < LEAST_PART * gaps.steps as f64 {
        return None;
    }
    let part = gaps.with_gap as f64 / gaps.steps as f64;
    let mean = gaps.gap_sectors as f64 * 512.0 / gaps.with_gap.max(1) as f64;
    let cost_ns = disk_cost_ns(facts, seek_cost_ns);
    Some(Draft {
        summary: format!(
            "{} of {} new files begin a gap of {:.0} KiB after the previous one",
            gaps.with_gap,
            gaps.steps,
            mean / 1024.0
        ),
        cost_ns: cost_ns * part,
        time_ns: None,
        confidence: Confidence::Low,
        evidence: Evidence::default()
            .figure("new files", gaps.steps as f64)
            .figure("share with a gap", part)
            .figure("mean gap, bytes", mean)
            .sql(SQL),
        remedy: format!(
            "Close files before the next is written, so that preallocation is trimmed; use delayed allocation; lower XFS's allocsize. {} \
             of the files are affected.",
            percent(part)
        ),
        check: "Compare the picture of offsets: ioreel plot --panels offsets".into(),
    })
}
