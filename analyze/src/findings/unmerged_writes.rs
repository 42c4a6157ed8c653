//! `unmerged-writes`: contiguous writes that are dispatched one by one.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, over_disks, own_disks, percent},
};
use crate::{events::requests::Class, facts::Facts};

/// Fewer show no pattern.
const LEAST_WRITES: u64 = 50;
/// Least part of a device's writes.
const LEAST_PART: f64 = 0.1;
/// Larger requests gain little by a merge.
const MOST_MEAN_BYTES: f64 = 131_072.0;
/// The remedy joins so many in one.
const MERGED: f64 = 8.0;

const SQL: &str = "SELECT * FROM (SELECT *, lag(sector + len_bytes // 512) OVER (PARTITION BY dev ORDER BY issue_ns) AS head FROM \
                   'block/*.parquet' WHERE op = 'write') WHERE sector = head";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (mut count, mut writes, mut cost_ns, mut bytes) = (0, 0, 0.0, 0);
    let guilty = |d: &crate::facts::Disk| {
        let writes = d.of(Class::Write).count;
        d.unmerged.count >= LEAST_WRITES
            && d.unmerged.count as f64 >= LEAST_PART * writes as f64
            && d.unmerged.mean_bytes() <= MOST_MEAN_BYTES
    };
    for (disk, weight) in own_disks(facts).into_iter().filter(|(d, _)| guilty(d)) {
        count += disk.unmerged.count;
        bytes += disk.unmerged.bytes;
        writes += disk.of(Class::Write).count;
        cost_ns += disk.unmerged.share_ns * weight;
    }
    if count == 0 {
        return None;
    }
    let mean = bytes as f64 / count as f64;
    Some(Draft {
        summary: format!(
            "{count} of {writes} writes ({}) continue a write that was still waiting, and were not merged with it; {:.0} KiB each",
            percent(count as f64 / writes as f64),
            mean / 1024.0
        ),
        cost_ns: cost_ns * (1.0 - 1.0 / MERGED),
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence {
            devices: over_disks(facts, |d| if guilty(d) { d.unmerged.share_ns } else { 0.0 }),
            ..Evidence::default()
        }
        .figure("adjacent writes not merged", count as f64)
        .figure("their mean size, bytes", mean)
        .sql(SQL),
        remedy: "Submit larger writes, or several at once (writev, io_uring, a plug), so that the block layer merges them; check \
                 that /sys/block/DEV/queue/nomerges is 0 and that max_sectors_kb is not small."
            .into(),
        check: "Compare merge_ratio and unmerged_adjacent: ioreel stats".into(),
    })
}
