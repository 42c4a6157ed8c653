//! What detectors share: sums over files, processes and devices.

use std::collections::{BTreeMap, btree_map::Entry};

use serde::Serialize;

use super::finding::{Confidence, Evidence, Finding, Part};
use crate::{
    events::requests::Class,
    facts::{Disk, Facts, FileUse, Flow, Group, Tally},
};

/// Number of files, processes or devices listed.
const MOST_LISTED: usize = 5;
/// Nanoseconds of a second.
pub(super) const S: f64 = 1e9;

/// A finding before its share is known.
pub(super) struct Draft {
    pub(super) summary: String,
    pub(super) cost_ns: f64,
    /// Time in the calls of the pattern, ns.
    pub(super) time_ns: Option<f64>,
    pub(super) confidence: Confidence,
    pub(super) evidence: Evidence,
    pub(super) remedy: String,
    pub(super) check: String,
}

impl Draft {
    pub(super) fn finish(self, id: &'static str, facts: &Facts) -> Finding {
        let cost_ns = self.cost_ns.clamp(0.0, facts.elapsed_ns);
        Finding {
            id,
            summary: self.summary,
            cost_s: cost_ns / S,
            share: cost_ns / facts.elapsed_ns,
            call_time_share: self.time_ns.map(|ns| ns / facts.calls.all.time_ns.max(1.0)),
            confidence: self.confidence,
            evidence: self.evidence,
            remedy: self.remedy,
            check: self.check,
        }
    }
}

/// The sum of a tally over files, and the files, most costly first.
pub(super) fn over_files(
    facts: &Facts,
    of: impl Fn(&FileUse) -> &Tally,
    keep: impl Fn(i64, &FileUse) -> bool,
) -> (Tally, Vec<Part>) {
    let mut sum = Tally::default();
    let mut parts = Vec::new();
    for (file, used) in &facts.calls.files {
        let tally = of(used);
        if tally.count == 0 || !keep(*file, used) {
            continue;
        }
        sum.add(tally);
        parts.push((*file, *tally));
    }
    (sum, listed(parts, |file| facts.names.path(file)))
}

/// Names the most costly.
fn listed(mut parts: Vec<(i64, Tally)>, name: impl Fn(i64) -> String) -> Vec<Part> {
    parts.sort_by(|a, b| b.1.share_ns.total_cmp(&a.1.share_ns).then(a.0.cmp(&b.0)));
    parts
        .into_iter()
        .take(MOST_LISTED)
        .map(|(id, t)| Part { name: name(id), count: t.count, bytes: t.bytes, share_s: t.share_ns / S })
        .collect()
}

/// The processes with the most time in calls, `comm[pid]`.
pub(super) fn busiest_processes(facts: &Facts) -> Vec<Part> {
    let parts: Vec<(i64, Tally)> = facts.calls.tasks.iter().map(|(task, used)| (*task, used.calls)).collect();
    listed(parts, |task| {
        let task = facts.names.task(task);
        format!("{}[{}]", task.comm, task.pid)
    })
}

/// Waits for locks that one holder caused.
#[derive(Clone, Debug, Serialize)]
pub struct LockHolder {
    /// `comm[pid]`, or `comm` of a thread that was not recorded. Null: the lock does not tell.
    pub name: Option<String>,
    /// The call that it was in when the waits began. Null: in none, or not recorded.
    pub op: Option<String>,
    /// The path of the file of that call.
    pub path: Option<String>,
    /// Kind of the lock, and how it was wanted: a word of `waits.lock_kind`.
    pub lock_kind: Option<String>,
    /// `held`; `released` where the lock does not tell its holder, and this is who woke the threads that waited.
    pub how: &'static str,
    /// Waits.
    pub waits: u64,
    /// Their time, summed over threads, ns.
    pub time_ns: f64,
    /// The longest, ns.
    pub max_ns: i64,
}

impl LockHolder {
    /// As the end of a sentence.
    pub(super) fn words(&self) -> String {
        let kind = self.lock_kind.as_deref().map_or(String::new(), |kind| format!(" ({kind})"));
        let Some(name) = &self.name else { return format!("for a lock{kind} whose holder is not known") };
        let during = match (&self.op, &self.path) {
            (Some(op), Some(path)) => format!(" in {op} on {path}"),
            (Some(op), None) => format!(" in {op}"),
            _ => " outside recorded calls".to_owned(),
        };
        format!("for a lock{kind} that {name} {}{during}", self.how)
    }
}

/// Who held the locks that operations waited for, most time first.
pub(super) fn lock_holders(facts: &Facts) -> Vec<LockHolder> {
    // Threads of one process in the same call are one holder.
    let mut merged: BTreeMap<_, LockHolder> = BTreeMap::new();
    let each = facts.calls.holders.iter().map(|(key, held)| LockHolder {
        name: match key.task {
            Some(task) => Some(format!("{}[{}]", key.comm, facts.names.task(task).pid)),
            None => Some(key.comm.to_string()).filter(|comm| !comm.is_empty()),
        },
        op: key.op.and_then(|op| facts.calls.call_names.get(op)).map(ToString::to_string),
        path: key.file.map(|file| facts.names.path(file)),
        lock_kind: key.lock_kind.as_ref().map(ToString::to_string),
        how: if key.released { "released" } else { "held" },
        waits: held.count,
        time_ns: held.time_ns,
        max_ns: held.max_ns,
    });
    for one in each {
        let key = (one.name.clone(), one.op.clone(), one.path.clone(), one.lock_kind.clone(), one.how);
        match merged.entry(key) {
            Entry::Vacant(entry) => _ = entry.insert(one),
            Entry::Occupied(mut entry) => {
                let all = entry.get_mut();
                all.waits += one.waits;
                all.time_ns += one.time_ns;
                all.max_ns = all.max_ns.max(one.max_ns);
            }
        }
    }
    let mut holders: Vec<LockHolder> = merged.into_values().collect();
    holders.sort_by(|a, b| {
        b.time_ns.total_cmp(&a.time_ns).then_with(|| (&a.name, &a.op, &a.path).cmp(&(&b.name, &b.op, &b.path)))
    });
    holders.truncate(MOST_LISTED);
    holders
}

/// Bios on the workload's own devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) flow: Flow,
    /// By how much the elapsed time would be shorter without them, ns.
    pub(super) cost_ns: f64,
    /// The part of it for blocks written again.
    pub(super) rewritten_cost_ns: f64,
    /// The part of it for blocks read again.
    pub(super) reread_cost_ns: f64,
}

/// Sum of the groups of bios on own devices that `keep` selects.
pub(super) fn over_groups(facts: &Facts, keep: impl Fn(&Group) -> bool) -> Sum {
    let own: Vec<(i64, f64)> = facts.own_devices().into_iter().map(|dev| (dev, facts.weight_of(dev))).collect();
    let mut sum = Sum::default();
    for (group, flow) in &facts.traffic.groups {
        let Some((_, weight)) = own.iter().find(|(dev, _)| *dev == group.dev).filter(|_| keep(group)) else { continue };
        sum.flow.add(flow);
        sum.cost_ns += flow.share_ns * weight;
        sum.rewritten_cost_ns += flow.rewritten_ns * weight;
        sum.reread_cost_ns += flow.reread_ns * weight;
    }
    sum
}

/// Devices that hold up the workload, each with its weight.
pub(super) fn own_disks(facts: &Facts) -> Vec<(&Disk, f64)> {
    let own = facts.own_devices();
    facts.disks.iter().filter(|d| own.contains(&d.dev)).map(|d| (d, facts.weight_of(d.dev))).collect()
}

/// Sum over own devices of a part of their busy time, weighted, ns.
pub(super) fn disk_cost_ns(facts: &Facts, of: impl Fn(&Disk) -> f64) -> f64 {
    own_disks(facts).into_iter().map(|(disk, weight)| of(disk) * weight).sum()
}

/// Whether a bio carries structures of the file system at their final place.
pub(super) fn is_index(group: &Group) -> bool {
    matches!(
        &*group.content,
        "metadata" | "inode_table" | "directory" | "bitmap" | "tree" | "extent_map" | "superblock"
    )
}

/// Whether it is a write.
pub(super) fn writes(group: &Group) -> bool {
    group.op == Class::Write
}

/// Whether a thread of this name belongs to the kernel, by the names in the kernel's sources.
pub(super) fn is_kernel_thread(comm: &str) -> bool {
    const PREFIXES: [&str; 20] = [
        "kworker",
        "jbd2",
        "kswapd",
        "xfs",
        "btrfs",
        "loop",
        "md",
        "dm",
        "kcompactd",
        "f2fs",
        "nilfs",
        "ksoftirqd",
        "kthread",
        "khugepaged",
        "swapper",
        "ext4",
        "iou-",
        "writeback",
        "zfs",
        "txg",
    ];
    comm.is_empty() || PREFIXES.iter().any(|p| comm.starts_with(p))
}

/// The devices with a request, most costly by `of` first.
pub(super) fn over_disks(facts: &Facts, of: impl Fn(&Disk) -> f64) -> Vec<Part> {
    let mut disks: Vec<Part> = own_disks(facts)
        .into_iter()
        .map(|(d, _)| {
            let (read, write) = (d.of(Class::Read), d.of(Class::Write));
            Part {
                name: d.name.clone(),
                count: read.count + write.count,
                bytes: read.bytes + write.bytes,
                share_s: of(d) / S,
            }
        })
        .filter(|p| p.share_s > 0.0)
        .collect();
    disks.sort_by(|a, b| b.share_s.total_cmp(&a.share_s));
    disks.truncate(MOST_LISTED);
    disks
}

/// A percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The file systems of these files, for remedies.
pub(super) fn fstypes(facts: &Facts) -> Vec<String> {
    let mut types: Vec<String> = facts
        .calls
        .files
        .iter()
        .filter(|(_, used)| used.writes.count + used.small_syncs.count > 0)
        .map(|(file, _)| facts.names.fstype_of(*file).to_owned())
        .filter(|t| !t.is_empty())
        .collect();
    types.sort_unstable();
    types.dedup();
    types
}
