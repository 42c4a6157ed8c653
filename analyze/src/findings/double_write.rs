//! `double-write`: data written twice: a journal of all data, or zeros before the data.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, over_groups, percent, writes},
};
use crate::facts::Facts;

/// Journal bytes over data bytes: metadata alone is far less.
const LEAST_RATIO: f64 = 0.6;
/// Fewer bytes do not matter.
const LEAST_BYTES: u64 = 4 << 20;
/// With syncs this small, the journal is larger than the data for other reasons.
const SMALL_SYNC_BYTES: f64 = 65_536.0;

const SQL: &str =
    "SELECT class, count(*), sum(len_bytes) FROM 'bio/*.parquet' WHERE op = 'write' GROUP BY class ORDER BY 3 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let journal = over_groups(facts, |g| writes(g) && &*g.content == "journal");
    let data = over_groups(facts, |g| writes(g) && &*g.content == "data");
    let ratio = journal.flow.bytes as f64 / data.flow.bytes.max(1) as f64;
    let full = facts.names.mounts().any(|m| m.options.split(',').any(|o| o == "data=journal"));
    let small_syncs = facts.calls.syncs.count as f64 * SMALL_SYNC_BYTES > journal.flow.bytes as f64;
    if journal.flow.bytes < LEAST_BYTES || ratio < LEAST_RATIO || (small_syncs && !full) {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{:.1} MiB go to the journal for {:.1} MiB of data{}",
            journal.flow.bytes as f64 / f64::from(1 << 20),
            data.flow.bytes as f64 / f64::from(1 << 20),
            if full { ": the file system is mounted with data=journal" } else { "" }
        ),
        cost_ns: journal.cost_ns,
        time_ns: None,
        confidence: if full { Confidence::High } else { Confidence::Medium },
        evidence: Evidence::default()
            .window(journal.flow.first_ns, journal.flow.last_ns)
            .figure("journal bytes per byte of data", ratio)
            .figure("share of the busy time in the journal", journal.flow.share_ns / facts.own_busy_ns().max(1.0))
            .sql(SQL),
        remedy: format!(
            "Mount with data=ordered, or keep the journal on another device. It takes {} of the devices' time.",
            percent(journal.flow.share_ns / facts.own_busy_ns().max(1.0))
        ),
        check: "Compare the bytes by class: ioreel stats".into(),
    })
}
