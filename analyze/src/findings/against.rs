//! Why one reel took longer than another: the difference in time, split by part, operation and file.

use std::collections::BTreeMap;

use ioreel_traces::Reel;
use serde::Serialize;

use super::{Finding, LEAST_SHARE, findings};
use crate::{
    Result,
    facts::{Facts, Tally},
};

/// Number of operations and files listed.
const MOST_LISTED: usize = 10;

/// A part of the difference. Times are shares of the elapsed time: those of all parts add up to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Name of the part, operation or file.
    pub name: String,
    /// Calls in the first reel. 0 for parts.
    pub calls: u64,
    /// Calls in the second.
    pub against_calls: u64,
    /// Time in the first reel, ns.
    pub ns: f64,
    /// Time in the second, ns.
    pub against_ns: f64,
}

impl Difference {
    /// By how much the first takes longer, ns.
    pub fn longer_ns(&self) -> f64 {
        self.ns - self.against_ns
    }
}

/// The difference between two reels.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Elapsed time of the first reel, ns.
    pub elapsed_ns: f64,
    /// Elapsed time of the second, ns.
    pub against_elapsed_ns: f64,
    /// By part of the time in calls, and `outside_calls` for the rest: they add up to the difference.
    pub parts: Vec<Difference>,
    /// By operation, greatest difference first.
    pub operations: Vec<Difference>,
    /// By file, likewise. Files are matched by the end of their paths below the mount points.
    pub files: Vec<Difference>,
    /// The operation and part with the greatest difference: the first cause.
    pub first_cause: Option<Difference>,
    /// Ids of findings in the first reel only.
    pub only_here: Vec<&'static str>,
    /// Ids of findings in the second reel only.
    pub only_there: Vec<&'static str>,
}

impl Comparison {
    /// Compares two reels of the same workload.
    ///
    /// # Errors
    /// When a reel cannot be read.
    pub fn of(reel: &Reel, against: &Reel) -> Result<Self> {
        let (here, there) = (Facts::of(reel)?, Facts::of(against)?);
        let (found_here, found_there) = (ids(&here), ids(&there));
        let by_cell = join(cells(&here), cells(&there));
        Ok(Self {
            elapsed_ns: here.elapsed_ns,
            against_elapsed_ns: there.elapsed_ns,
            parts: parts(&here, &there),
            operations: most(join(operations(&here), operations(&there))),
            files: most(join(files(&here), files(&there))),
            first_cause: most(by_cell).into_iter().next(),
            only_here: found_here.iter().filter(|id| !found_there.contains(id)).copied().collect(),
            only_there: found_there.iter().filter(|id| !found_here.contains(id)).copied().collect(),
        })
    }
}

fn ids(facts: &Facts) -> Vec<&'static str> {
    findings(facts).iter().filter(|f: &&Finding| f.share >= LEAST_SHARE).map(|f| f.id).collect()
}

/// Calls and time by name.
type Times = BTreeMap<String, (u64, f64)>;

fn parts(here: &Facts, there: &Facts) -> Vec<Difference> {
    let (a, b) = (here.calls.share_parts.named(), there.calls.share_parts.named());
    let mut parts: Vec<Difference> = a
        .iter()
        .zip(b)
        .map(|((name, ns), (_, against_ns))| Difference {
            name: (*name).to_owned(),
            ns: *ns,
            against_ns,
            ..Difference::default()
        })
        .filter(|d| d.ns > 0.0 || d.against_ns > 0.0)
        .collect();
    let rest = |facts: &Facts| facts.elapsed_ns - facts.calls.share_parts.total_ns();
    parts.push(Difference {
        name: "outside_calls".into(),
        ns: rest(here),
        against_ns: rest(there),
        ..Difference::default()
    });
    parts.sort_by(|a, b| b.longer_ns().abs().total_cmp(&a.longer_ns().abs()));
    parts
}

fn operations(facts: &Facts) -> Times {
    let calls = &facts.calls;
    let named = calls.call_names.iter().zip(&calls.by_name);
    named.map(|(name, (tally, _))| (name.to_string(), (tally.count, tally.share_ns))).collect()
}

/// By operation and part, as `fsync: journal`.
fn cells(facts: &Facts) -> Times {
    let calls = &facts.calls;
    let mut cells = Times::new();
    for (name, (tally, parts)) in calls.call_names.iter().zip(&calls.by_name) {
        let share_per_ns = tally.share_ns / tally.time_ns.max(1.0);
        for (part, ns) in parts.named() {
            if ns > 0.0 {
                cells.insert(format!("{name}: {part}"), (tally.count, ns * share_per_ns));
            }
        }
    }
    cells
}

/// By path below the mount point: the same job on another file system has other paths.
fn files(facts: &Facts) -> Times {
    let mut files = Times::new();
    for (file, used) in &facts.calls.files {
        let path = facts.names.path(*file);
        let below = facts.names.mount_of(*file).and_then(|m| path.strip_prefix(&m.mountpoint)).unwrap_or(&path);
        let Tally { count, share_ns, .. } = used.all;
        let sum = files.entry(below.trim_start_matches('/').to_owned()).or_default();
        sum.0 += count;
        sum.1 += share_ns;
    }
    files
}

fn join(here: Times, mut there: Times) -> Vec<Difference> {
    let mut all: Vec<Difference> = here
        .into_iter()
        .map(|(name, (calls, ns))| {
            let (against_calls, against_ns) = there.remove(&name).unwrap_or_default();
            Difference { name, calls, against_calls, ns, against_ns }
        })
        .collect();
    all.extend(there.into_iter().map(|(name, (against_calls, against_ns))| Difference {
        name,
        against_calls,
        against_ns,
        ..Difference::default()
    }));
    all
}

fn most(mut all: Vec<Difference>) -> Vec<Difference> {
    all.retain(|d| d.longer_ns() != 0.0);
    all.sort_by(|a, b| b.longer_ns().abs().total_cmp(&a.longer_ns().abs()).then_with(|| a.name.cmp(&b.name)));
    all.truncate(MOST_LISTED);
    all
}
