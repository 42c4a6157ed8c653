//! The answer of `ioreel diagnose`: where the time went, and what is wrong.

use std::collections::BTreeMap;

use ioreel_traces::Reel;
use serde::Serialize;

use super::{
    DETECTORS, Finding, LEAST_SHARE, findings, not_looked_for,
    support::{LockHolder, lock_holders},
};
use crate::{
    Result,
    facts::{Facts, Parts, Throttles},
};

/// Number of operations, files, processes and devices listed.
const MOST_LISTED: usize = 10;

/// Time in calls of one operation, file or process.
#[derive(Clone, Debug, Serialize)]
pub struct TimeOf {
    /// Name of the operation, path of the file, `comm[pid]`.
    pub name: String,
    /// Calls.
    pub calls: u64,
    /// Sum of their durations, ns.
    pub time_ns: f64,
    /// By how much the elapsed time would be shorter without them, ns. Null for files.
    pub share_ns: Option<f64>,
    /// What the durations consist of.
    pub parts: Parts,
}

/// Busy time of a device.
#[derive(Clone, Debug, Serialize)]
pub struct BusyTime {
    /// Name of the device.
    pub name: String,
    /// Time in which a request was in flight, ns.
    pub busy_ns: f64,
    /// Mean number of requests in flight while busy.
    pub depth: f64,
    /// Reads and writes.
    pub requests: u64,
}

/// Where the time in calls went.
#[derive(Clone, Debug, Serialize)]
pub struct TimeInCalls {
    /// Calls.
    pub calls: u64,
    /// Sum of their durations over all threads, ns. `parts` adds up to it.
    pub time_ns: f64,
    /// `recorded` with `record --waits`, else `derived` from the requests in flight.
    pub from: &'static str,
    /// What the durations consist of.
    pub parts: Parts,
    /// The part `throttle`, by limit. All 0 unless waits were recorded.
    pub throttles: Throttles,
    /// Waits for locks, except of pages, by who held the lock, most time first. Empty unless waits were recorded.
    pub holders: Vec<LockHolder>,
    /// By the kernel's name of the call, most time first.
    pub operations: Vec<TimeOf>,
    /// By file.
    pub files: Vec<TimeOf>,
    /// By process.
    pub processes: Vec<TimeOf>,
    /// By device.
    pub devices: Vec<BusyTime>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Duration of the workload, ns.
    pub elapsed_ns: f64,
    /// Null without operations.
    pub time: Option<TimeInCalls>,
    /// Findings that cost at least [`LEAST_SHARE`] of the elapsed time, or all, most costly first. The time of one
    /// request may be part of several.
    pub findings: Vec<Finding>,
    /// Number of further findings that cost less.
    pub below_threshold: usize,
    /// Ids of the patterns looked for.
    pub looked_for: Vec<&'static str>,
    /// Ids of the patterns for which the reel lacks tables.
    pub not_looked_for: Vec<&'static str>,
}

impl Diagnosis {
    /// Diagnoses a reel. `all`: also what costs little.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel, all: bool) -> Result<Self> {
        let facts = Facts::of(reel)?;
        let not_looked_for = not_looked_for(&facts);
        let found = findings(&facts);
        let (kept, rest): (Vec<Finding>, Vec<Finding>) = found.into_iter().partition(|f| all || f.share >= LEAST_SHARE);
        Ok(Self {
            elapsed_ns: facts.elapsed_ns,
            time: facts.has_operations.then(|| time_in_calls(&facts)),
            findings: kept,
            below_threshold: rest.len(),
            looked_for: DETECTORS.iter().map(|d| d.id).filter(|id| !not_looked_for.contains(id)).collect(),
            not_looked_for,
        })
    }
}

fn time_in_calls(facts: &Facts) -> TimeInCalls {
    let calls = &facts.calls;
    let operations = calls.by_name.iter().zip(&calls.call_names).map(|((tally, parts), name)| TimeOf {
        name: name.to_string(),
        calls: tally.count,
        time_ns: tally.time_ns,
        share_ns: Some(tally.share_ns),
        parts: *parts,
    });
    let files = calls.files.iter().map(|(file, used)| TimeOf {
        name: facts.names.path(*file),
        calls: used.all.count,
        time_ns: used.all.time_ns,
        share_ns: Some(used.all.share_ns),
        parts: used.parts,
    });
    let mut processes: BTreeMap<i32, TimeOf> = BTreeMap::new();
    for (task, used) in &calls.tasks {
        let task = facts.names.task(*task);
        let of = processes.entry(task.pid).or_insert_with(|| TimeOf {
            name: format!("{}[{}]", task.comm, task.pid),
            calls: 0,
            time_ns: 0.0,
            share_ns: Some(0.0),
            parts: Parts::default(),
        });
        of.calls += used.calls.count;
        of.time_ns += used.calls.time_ns;
        of.share_ns = of.share_ns.map(|ns| ns + used.calls.share_ns);
        of.parts.add(&used.parts);
    }
    TimeInCalls {
        calls: calls.all.count,
        time_ns: calls.parts.total_ns(),
        from: if calls.waits_recorded { "recorded" } else { "derived" },
        parts: calls.parts,
        throttles: calls.throttles,
        holders: lock_holders(facts),
        operations: most(operations),
        files: most(files),
        processes: most(processes.into_values()),
        devices: facts
            .disks
            .iter()
            .take(MOST_LISTED)
            .map(|d| BusyTime {
                name: d.name.clone(),
                busy_ns: d.busy_ns,
                depth: d.depth(),
                requests: d.seeks.count + d.sequential.count,
            })
            .collect(),
    }
}

fn most(all: impl Iterator<Item = TimeOf>) -> Vec<TimeOf> {
    let mut all: Vec<TimeOf> = all.collect();
    all.retain(|of| of.calls > 0);
    all.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns).then(a.name.cmp(&b.name)));
    all.truncate(MOST_LISTED);
    all
}
