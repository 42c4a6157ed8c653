//! `interleaved-streams`: files written at the same time scatter each other over the disk.

use super::{
    finding::{Confidence, Evidence, Part},
    seek_storm::seek_cost_ns,
    support::{Draft, disk_cost_ns, percent},
};
use crate::{facts::Facts, stats::Interleave};

/// Least alternation of two files.
const LEAST_INDEX: f64 = 0.5;

const SQL: &str =
    "SELECT sector, file, len_bytes FROM 'bio/*.parquet' WHERE class = 'data' AND op = 'write' ORDER BY sector";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let pairs = &facts.stats.layout.interleaved;
    let own = |file: i64| facts.calls.files.get(&file).is_some_and(|used| used.writes.count > 0);
    let is_own = |p: &&Interleave| !facts.has_operations || own(p.files.0) && own(p.files.1);
    let worst =
        pairs.iter().filter(is_own).filter(|p| p.index >= LEAST_INDEX).max_by(|a, b| a.index.total_cmp(&b.index))?;
    let cost_ns = disk_cost_ns(facts, seek_cost_ns);
    let files = [worst.files.0, worst.files.1]
        .iter()
        .map(|file| {
            let flow = facts.traffic.files.get(file).map(|f| f.write).unwrap_or_default();
            Part { name: facts.names.path(*file), count: flow.count, bytes: flow.bytes, share_s: flow.share_ns / 1e9 }
        })
        .collect();
    Some(Draft {
        summary: format!(
            "{} and {} lie in alternating pieces on the disk ({} of the borders alternate)",
            facts.names.path(worst.files.0),
            facts.names.path(worst.files.1),
            percent(worst.index)
        ),
        cost_ns: cost_ns * worst.index,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence { files, ..Evidence::default() }
            .figure("alternation of the two files", worst.index)
            .figure("pairs of files", pairs.len() as f64)
            .sql(SQL),
        remedy:
            "Preallocate (fallocate, XFS extsize hints), write larger pieces, or let the files grow one after another."
                .into(),
        check: "Compare frag and interleave: ioreel stats".into(),
    })
}
