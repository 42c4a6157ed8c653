//! `atime-writes`: metadata written because files were read.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, is_index, over_groups, writes},
};
use crate::facts::Facts;

/// Fewer writes show no pattern.
const LEAST_WRITES: u64 = 5;
/// Files read for each write of the workload, at least: such a workload reads only.
const READS_PER_WRITE: u64 = 20;

const SQL: &str = "SELECT class, count(*), sum(len_bytes) FROM 'bio/*.parquet' WHERE op = 'write' AND class <> 'data' GROUP BY class \
                   ORDER BY 2 DESC";

/// Whether the access time of a file is kept current on this mount.
fn keeps_atime(options: &str) -> bool {
    !options.split(',').any(|o| o == "noatime" || o == "ro")
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let changes = facts.calls.writes.count + facts.calls.names_changed.count + facts.calls.removals.count;
    if facts.calls.reads.count < READS_PER_WRITE * (changes + 1) {
        return None;
    }
    let read = |file: &i64| facts.names.mount_of(*file).is_some_and(|m| keeps_atime(&m.options));
    let kept = facts.calls.files.iter().any(|(file, used)| used.reads.count > 0 && read(file));
    let metadata = over_groups(facts, |g| writes(g) && (is_index(g) || &*g.content == "journal"));
    if !kept || metadata.flow.count < LEAST_WRITES {
        return None;
    }
    Some(Draft {
        summary: format!(
            "The workload reads only, and {} writes of metadata ({:.1} MiB) follow: access times",
            metadata.flow.count,
            metadata.flow.bytes as f64 / f64::from(1 << 20)
        ),
        cost_ns: metadata.cost_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence::default()
            .window(metadata.flow.first_ns, metadata.flow.last_ns)
            .figure("reads", facts.calls.reads.count as f64)
            .figure("changes", changes as f64)
            .figure("writes of metadata", metadata.flow.count as f64)
            .sql(SQL),
        remedy: "Mount with noatime, or lazytime; open with O_NOATIME.".into(),
        check: "Record again with noatime: no metadata is written".into(),
    })
}
