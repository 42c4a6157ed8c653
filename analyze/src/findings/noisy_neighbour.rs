//! `noisy-neighbour`: own requests share the device with those of other programs.

use std::collections::BTreeMap;

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, is_kernel_thread, percent},
};
use crate::facts::{Facts, Flow};

/// Least part of the devices' time that others take.
const LEAST_PART: f64 = 0.1;

const SQL: &str =
    "SELECT comm, op, count(*), sum(len_bytes) FROM 'bio/*.parquet' WHERE task_id IS NULL GROUP BY ALL ORDER BY 4 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    // With operations of one job recorded, what others queue has no thread of the reel.
    if !facts.has_operations {
        return None;
    }
    let mut others: BTreeMap<&str, Part> = BTreeMap::new();
    let (mut cost_ns, mut busy_ns) = (0.0, 0.0);
    for dev in facts.own_devices() {
        busy_ns += facts.busy_ns_of(dev);
        // While others are served, the workload waits: for the part of the busy time that they take.
        let wait_per_busy_ns = facts.waits_for(dev) / facts.busy_ns_of(dev).max(1.0);
        for (name, flow) in flows_of_others(facts, dev) {
            let part =
                others.entry(name).or_insert_with(|| Part { name: name.to_owned(), count: 0, bytes: 0, share_s: 0.0 });
            part.count += flow.count;
            part.bytes += flow.bytes;
            part.share_s += flow.share_ns / S;
            cost_ns += flow.share_ns * wait_per_busy_ns;
        }
    }
    let total_ns: f64 = others.values().map(|p| p.share_s * S).sum();
    let part = total_ns / f64::max(busy_ns, 1.0);
    if part < LEAST_PART {
        return None;
    }
    let mut processes: Vec<Part> =
        others.into_iter().map(|(name, part)| Part { name: name.to_owned(), ..part }).collect();
    processes.sort_by(|a, b| b.share_s.total_cmp(&a.share_s));
    processes.truncate(5);
    let waited_ns: f64 = facts.own_devices().into_iter().map(|dev| facts.waits_for(dev)).sum();
    Some(Draft {
        summary: format!(
            "Other programs ({}) take {} of the time of the devices that the workload waits for",
            processes.first().map_or("", |p| &p.name),
            percent(part)
        ),
        cost_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence { processes, ..Evidence::default() }
            .figure("share of the devices' busy time", part)
            .figure("time that the workload waits for devices, s", waited_ns / S)
            .sql(SQL),
        remedy: "Run the others at another time, limit them (io.max, io.weight, ionice with bfq), or move one of them to another \
                 device."
            .into(),
        check: "Record again without the others and compare: ioreel stats A.reel B.reel".into(),
    })
}

/// What others queue to a device, by name.
fn flows_of_others(facts: &Facts, dev: i64) -> Vec<(&str, Flow)> {
    let mut flows: Vec<(&str, Flow)> = Vec::new();
    for (group, flow) in facts.traffic.groups.iter().filter(|(group, _)| group.dev == dev) {
        if !group.recorded && !is_kernel_thread(&group.comm) && &*group.comm != "ioreel" {
            flows.push((&group.comm, *flow));
        }
    }
    // Written back by the kernel for files that the workload never used.
    for (file, flow) in facts.traffic.files.iter().filter(|(_, flow)| flow.dev == dev) {
        if !facts.calls.files.contains_key(file) && flow.write.count > 0 {
            flows.push(("write-back of files of others", flow.write));
        }
    }
    flows
}
