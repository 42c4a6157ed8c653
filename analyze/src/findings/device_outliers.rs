//! `device-outliers`: requests that take long although no queue explains it.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, over_disks, own_disks},
};
use crate::facts::Facts;

/// Fewer show no pattern.
const LEAST_OUTLIERS: u64 = 3;
/// More are no outliers: the device has two speeds.
const MOST_PART: f64 = 0.1;

const SQL: &str =
    "SELECT * FROM 'block/*.parquet' WHERE op IN ('read', 'write') ORDER BY complete_ns - issue_ns DESC LIMIT 100";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (mut count, mut cost_ns, mut time_ns) = (0, 0.0, 0.0);
    let guilty = |d: &crate::facts::Disk| {
        let all = d.seeks.count + d.sequential.count;
        d.outliers.count >= LEAST_OUTLIERS && d.outliers.count as f64 <= MOST_PART * all as f64
    };
    for (disk, weight) in own_disks(facts).into_iter().filter(|(d, _)| guilty(d)) {
        count += disk.outliers.count;
        cost_ns += disk.outliers.share_ns * weight;
        time_ns += disk.outliers.time_ns;
    }
    if count == 0 {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{count} requests take {:.1} ms on average, ten times as long as others, while no more than one other is in flight",
            time_ns / count as f64 / 1e6
        ),
        cost_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence {
            devices: over_disks(facts, |d| if guilty(d) { d.outliers.share_ns } else { 0.0 }),
            ..Evidence::default()
        }
        .figure("outliers", count as f64)
        .figure("their mean time, ms", time_ns / count as f64 / 1e6)
        .sql(SQL),
        remedy: "Look at the device: SMART errors, retries in the kernel's log, firmware, thermal limits, garbage collection of a full \
                 SSD, a power-saving state."
            .into(),
        check: "Watch the 99.9th percentile of D2C: ioreel stats; repeat with another device".into(),
    })
}
