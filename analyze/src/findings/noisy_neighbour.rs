//! `noisy-neighbour`: own requests share the device with those of other programs.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

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
    let own = facts.own_devices();
    let busy_ns: f64 = own.iter().map(|dev| facts.busy_ns_of(*dev)).sum();
    // While others are served, the workload waits: for the part of the busy time that they take.
    let wait_per_busy_ns: FxHashMap<i64, f64> =
        own.iter().map(|dev| (*dev, facts.waits_for(*dev) / facts.busy_ns_of(*dev).max(1.0))).collect();
    let mut others: BTreeMap<&str, Part> = BTreeMap::new();
    let mut cost_ns = 0.0;
    for (dev, name, flow) in flows_of_others(facts) {
        let Some(wait_per_busy_ns) = wait_per_busy_ns.get(&dev) else { continue };
        let part =
            others.entry(name).or_insert_with(|| Part { name: name.to_owned(), count: 0, bytes: 0, share_s: 0.0 });
        part.count += flow.count;
        part.bytes += flow.bytes;
        part.share_s += flow.share_ns / S;
        cost_ns += flow.share_ns * wait_per_busy_ns;
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
    let waited_ns: f64 = own.iter().map(|dev| facts.waits_for(*dev)).sum();
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

/// What others queue: device, name, bios.
fn flows_of_others(facts: &Facts) -> impl Iterator<Item = (i64, &str, Flow)> {
    let groups = facts.traffic.groups.iter();
    let programs =
        groups.filter(|(group, _)| !group.recorded && !is_kernel_thread(&group.comm) && &*group.comm != "ioreel");
    // Written back by the kernel for files that the workload never used.
    let files = facts.traffic.files.iter();
    let written_back = files.filter(|(file, flow)| !facts.calls.files.contains_key(file) && flow.write.count > 0);
    programs
        .map(|(group, flow)| (group.dev, &*group.comm, *flow))
        .chain(written_back.map(|(_, flow)| (flow.dev, "write-back of files of others", flow.write)))
}
