//! `flush-cost`: flushes of the device's cache in the way of reads and writes.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, disk_cost_ns, over_disks, over_groups, own_disks, percent},
};
use crate::{events::requests::Class, facts::Facts};

/// Least part of the busy time.
const LEAST_PART: f64 = 0.1;
/// Fewer show no pattern.
const LEAST_FLUSHES: u64 = 20;

const SQL: &str = "SELECT dev, count(*), avg(complete_ns - issue_ns), sum(complete_ns - issue_ns) FROM 'block/*.parquet' WHERE op = \
                   'flush' GROUP BY dev ORDER BY 4 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let flush_ns = |d: &crate::facts::Disk| d.of(Class::Flush).share_ns;
    let busy_ns: f64 = own_disks(facts).iter().map(|(d, _)| d.busy_ns).sum();
    let disks = own_disks(facts);
    let share_ns: f64 = disks.iter().map(|(d, _)| flush_ns(d)).sum();
    let count: u64 = disks.iter().map(|(d, _)| d.of(Class::Flush).count).sum();
    if count < LEAST_FLUSHES || share_ns < LEAST_PART * busy_ns {
        return None;
    }
    let empty = over_groups(facts, |g| g.op == Class::Flush);
    let mean_ns = share_ns / count as f64;
    Some(Draft {
        summary: format!(
            "{count} flushes of device caches take {:.2} ms each, {} of the busy time",
            mean_ns / 1e6,
            percent(share_ns / busy_ns.max(1.0))
        ),
        cost_ns: disk_cost_ns(facts, flush_ns),
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence { devices: over_disks(facts, flush_ns), ..Evidence::default() }
            .figure("flushes", count as f64)
            .figure("flushes without data", empty.flow.count as f64)
            .figure("mean time, ms", mean_ns / 1e6)
            .sql(SQL),
        remedy: "Sync less often; a device with power-loss protection answers flushes at once (write cache `write through` in \
                 /sys/block/DEV/queue/write_cache)."
            .into(),
        check: "Compare flushes per sync: ioreel stats (fsync.flushes)".into(),
    })
}
