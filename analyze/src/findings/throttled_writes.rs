//! `throttled-writes`: writers held back because too many pages are dirty, or by a limit of their control group.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, S, busiest_processes},
};
use crate::facts::Facts;

/// Fewer waits show no pattern.
const LEAST_WAITS: u64 = 3;
/// With a limit on dirty pages of at least this size, a writer that is held back is as fast as the device.
const LARGE_LIMIT_BYTES: i64 = 256 << 20;
/// A device that is busy for more than this share of the time is the limit itself, unless others use it too.
const SATURATED: f64 = 0.9;

const SQL: &str = "SELECT task_id, op, count(*), sum(dur_ns) FROM 'ops/*.parquet' WHERE op LIKE '%write%' AND dur_ns > 1000000 GROUP BY \
                   ALL ORDER BY 4 DESC";

/// Greatest number of dirty bytes that the machine allowed. `None` if not recorded.
fn dirty_limit_bytes(facts: &Facts) -> Option<i64> {
    let dirty = &facts.manifest.host.vm_dirty;
    match dirty.get("dirty_bytes") {
        Some(bytes) if *bytes > 0 => Some(*bytes),
        _ => dirty.get("dirty_ratio").map(|ratio| facts.manifest.host.mem_bytes / 100 * ratio),
    }
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let throttled = facts.calls.throttled;
    if throttled.count < LEAST_WAITS {
        return None;
    }
    let limit = dirty_limit_bytes(facts);
    let small_limit = limit.is_some_and(|l| l < LARGE_LIMIT_BYTES);
    let busy_ns = facts.own_devices().into_iter().map(|dev| facts.busy_ns_of(dev)).fold(0.0, f64::max);
    let busy = busy_ns / facts.elapsed_ns;
    let written: u64 = facts.traffic.files.values().map(|f| f.write.bytes).sum();
    let by_others = written > 2 * facts.calls.writes.bytes.max(1);
    if !small_limit && !by_others && busy > SATURATED {
        // The device is the limit; a larger one would only move the wait to the end.
        return None;
    }
    let limit_mib = limit.map_or(f64::NAN, |l| l as f64 / f64::from(1 << 20));
    let mut evidence = Evidence { processes: busiest_processes(facts), ..Evidence::default() }
        .window(throttled.first_ns, throttled.last_ns)
        .figure("writes held back", throttled.count as f64)
        .figure("the longest, ms", throttled.max_ns as f64 / 1e6)
        .figure("busy share of the devices", busy)
        .sql(SQL);
    if limit_mib.is_finite() {
        evidence = evidence.figure("limit on dirty pages, MiB", limit_mib);
    }
    Some(Draft {
        summary: format!(
            "{} writes into the page cache are held back for {:.2} s, because too many pages are dirty",
            throttled.count,
            throttled.share_ns / S
        ),
        cost_ns: throttled.share_ns,
        time_ns: Some(facts.calls.parts.throttle_ns),
        confidence: if facts.calls.waits_recorded { Confidence::High } else { Confidence::Low },
        evidence,
        remedy: "Raise vm.dirty_bytes (or dirty_ratio, memory.max of the control group), start write-back earlier \
                 (vm.dirty_background_bytes), or write with O_DIRECT."
            .into(),
        check: "Record with --waits and compare the waits write_back_throttle: ioreel info".into(),
    })
}
