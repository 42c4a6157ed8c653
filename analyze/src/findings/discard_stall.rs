//! `discard-stall`: discards in the way of reads and writes.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, disk_cost_ns, over_disks, own_disks, percent},
};
use crate::{events::requests::Class, facts::Facts};

/// Least part of the busy time.
const LEAST_PART: f64 = 0.05;
/// Fewer show no pattern.
const LEAST_DISCARDS: u64 = 3;

const SQL: &str =
    "SELECT * FROM 'block/*.parquet' WHERE op IN ('discard', 'secure_erase') ORDER BY complete_ns - issue_ns DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let discards_ns = |d: &crate::facts::Disk| d.of(Class::Discard).share_ns + d.of(Class::SecureErase).share_ns;
    let disks = own_disks(facts);
    let share_ns: f64 = disks.iter().map(|(d, _)| discards_ns(d)).sum();
    let busy_ns: f64 = own_disks(facts).iter().map(|(d, _)| d.busy_ns).sum();
    let count: u64 = disks.iter().map(|(d, _)| d.of(Class::Discard).count + d.of(Class::SecureErase).count).sum();
    if count < LEAST_DISCARDS || share_ns < LEAST_PART * busy_ns {
        return None;
    }
    Some(Draft {
        summary: format!("{count} discards take {} of the devices' busy time", percent(share_ns / busy_ns.max(1.0))),
        cost_ns: disk_cost_ns(facts, discards_ns),
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence { devices: over_disks(facts, discards_ns), ..Evidence::default() }
            .figure("discards", count as f64)
            .figure("share of the busy time", share_ns / busy_ns.max(1.0))
            .sql(SQL),
        remedy: "Mount without `discard` and run fstrim weekly; on btrfs use discard=async; lower \
                 /sys/block/DEV/queue/discard_max_bytes."
            .into(),
        check: "Compare the latency of reads during discards: ioreel plot --panels latency".into(),
    })
}
