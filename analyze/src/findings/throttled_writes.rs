//! `throttled-writes`: writers held back because too many pages are dirty, or by a limit of their control group.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, S, busiest_processes},
};
use crate::facts::{Facts, Throttles};

/// Fewer waits show no pattern.
const LEAST_WAITS: u64 = 3;
/// With a limit on dirty pages of at least this size, a writer that is held back is as fast as the device.
const LARGE_LIMIT_BYTES: i64 = 256 << 20;
/// A device that is busy for more than this share of the time is the limit itself, unless others use it too.
const SATURATED: f64 = 0.9;

/// The limits that hold writers back, with their remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Dirty,
    Wbt,
    Block,
}

impl Limit {
    /// Each with its recorded waits, longest first. Without recorded waits: a limit on dirty pages.
    fn all(throttles: &Throttles) -> Vec<(Self, f64)> {
        let mut all = vec![
            (Self::Dirty, throttles.dirty_limit_ns),
            (Self::Wbt, throttles.wbt_ns),
            (Self::Block, throttles.block_throttle_ns),
        ];
        all.retain(|(_, ns)| *ns > 0.0);
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        if all.is_empty() { vec![(Self::Dirty, 0.0)] } else { all }
    }

    fn cause(self) -> &'static str {
        match self {
            Self::Dirty => "too many pages are dirty",
            Self::Wbt => "the device has write-back throttling (wbt), which favours reads",
            Self::Block => "their control group has a limit or weight for I/O (iocost, iolatency)",
        }
    }

    fn remedy(self, facts: &Facts) -> String {
        match self {
            Self::Dirty => {
                "Dirty limit: raise vm.dirty_bytes (or dirty_ratio, memory.max of the control group), start write-back \
                            earlier (vm.dirty_background_bytes), or write with O_DIRECT."
                    .to_owned()
            }
            Self::Wbt => {
                let own = facts.own_devices();
                let devices =
                    facts.manifest.devices.iter().filter(|d| own.contains(&d.dev) && d.wbt_lat_usec > Some(0));
                let set: Vec<String> =
                    devices.map(|d| format!("{} has {}", d.name, d.wbt_lat_usec.unwrap_or_default())).collect();
                let set = if set.is_empty() { String::new() } else { format!(" ({})", set.join(", ")) };
                format!(
                    "Write-back throttling: raise queue/wbt_lat_usec of the device{set}, or set it to 0 if no reader shares it."
                )
            }
            Self::Block => {
                "Block throttling: raise io.weight or io.latency of the control group, or change io.cost.qos and \
                            io.cost.model of the device."
                    .to_owned()
            }
        }
    }
}

const SQL: &str = "SELECT reason, task_id, op, count(*), sum(dur_ns) FROM 'waits/*.parquet' WHERE reason IN ('dirty_limit', 'wbt', \
                   'block_throttle', 'write_back_throttle') GROUP BY ALL ORDER BY 5 DESC";
const SQL_WITHOUT_WAITS: &str = "SELECT task_id, op, count(*), sum(dur_ns) FROM 'ops/*.parquet' WHERE op LIKE '%write%' AND \
                                 dur_ns > 1000000 GROUP BY ALL ORDER BY 4 DESC";

/// Greatest number of dirty bytes that the machine, or the control group with the least memory, allowed. `None` if not
/// recorded.
fn dirty_limit_bytes(facts: &Facts) -> Option<i64> {
    let dirty = &facts.manifest.host.vm_dirty;
    let ratio = dirty.get("dirty_ratio").copied().unwrap_or(0);
    let machine = match dirty.get("dirty_bytes") {
        Some(bytes) if *bytes > 0 => Some(*bytes),
        _ => (ratio > 0).then(|| facts.manifest.host.mem_bytes / 100 * ratio),
    };
    let group = facts.manifest.cgroups.iter().filter_map(|g| g.memory_max_bytes).min();
    let group = group.filter(|_| ratio > 0).map(|bytes| bytes / 100 * ratio);
    machine.into_iter().chain(group).min()
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let throttled = facts.calls.throttled;
    if throttled.count < LEAST_WAITS {
        return None;
    }
    let limits = Limit::all(&facts.calls.throttles);
    let (first, _) = limits.first().copied()?;
    let limit = dirty_limit_bytes(facts);
    let small_limit = limit.is_some_and(|l| l < LARGE_LIMIT_BYTES);
    let busy_ns = facts.own_devices().into_iter().map(|dev| facts.busy_ns_of(dev)).fold(0.0, f64::max);
    let busy = busy_ns / facts.elapsed_ns;
    let written: u64 = facts.traffic.files.values().map(|f| f.write.bytes).sum();
    let by_others = written > 2 * facts.calls.writes.bytes.max(1);
    if first == Limit::Dirty && !small_limit && !by_others && busy > SATURATED {
        // The device is the limit; a larger one would only move the wait to the end.
        return None;
    }
    let limit_mib = limit.map_or(f64::NAN, |l| l as f64 / f64::from(1 << 20));
    let known = facts.calls.waits_recorded;
    let mut evidence = Evidence { processes: busiest_processes(facts), ..Evidence::default() }
        .window(throttled.first_ns, throttled.last_ns)
        .figure("operations held back", throttled.count as f64)
        .figure("the longest, ms", throttled.max_ns as f64 / 1e6)
        .figure("busy share of the devices", busy)
        .sql(if known { SQL } else { SQL_WITHOUT_WAITS });
    if limit_mib.is_finite() {
        evidence = evidence.figure("limit on dirty pages, MiB", limit_mib);
    }
    for (limit, ns) in limits.iter().filter(|(_, ns)| *ns > 0.0) {
        let name = match limit {
            Limit::Dirty => "waits for the dirty limit, s",
            Limit::Wbt => "waits for wbt, s",
            Limit::Block => "waits for block throttling, s",
        };
        evidence = evidence.figure(name, ns / S);
    }
    // Where a second limit matters, its remedy is needed too.
    let all_ns: f64 = limits.iter().map(|(_, ns)| ns).sum();
    let remedies: Vec<String> =
        limits.iter().filter(|(_, ns)| *ns >= 0.1 * all_ns).map(|(limit, _)| limit.remedy(facts)).collect();
    Some(Draft {
        summary: format!(
            "{} operations are held back for {:.2} s, because {}",
            throttled.count,
            throttled.share_ns / S,
            first.cause()
        ),
        cost_ns: throttled.share_ns,
        time_ns: Some(facts.calls.parts.throttle_ns),
        confidence: if known { Confidence::High } else { Confidence::Low },
        evidence,
        remedy: remedies.join(" "),
        check: "Record with --waits and compare the waits dirty_limit, wbt and block_throttle: ioreel info".into(),
    })
}
