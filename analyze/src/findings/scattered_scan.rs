//! `scattered-scan`: a traversal in an order unlike that of the disk.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, percent},
};
use crate::facts::Facts;

/// Fewer opens and stats show no pattern.
const LEAST_WAITS: u64 = 30;
/// Least share of steps back: one half is a random order.
const LEAST_DISORDER: f64 = 0.25;
/// In the order of inodes, neighbours share their block: most of the waits go away.
const SAVED: f64 = 0.75;

const SQL: &str = "SELECT o.start_ns, o.op, o.path, f.ino, o.dur_ns FROM 'ops/*.parquet' o LEFT JOIN 'files/*.parquet' f USING (file) WHERE \
                   o.op IN ('openat', 'newfstatat', 'statx', 'lstat', 'stat') ORDER BY o.start_ns";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let scans = &facts.calls.scans;
    if scans.waits.count < LEAST_WAITS || scans.disorder() < LEAST_DISORDER {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{} opens and stats wait for the disk; {} of the steps go back to a smaller inode number",
            scans.waits.count,
            percent(scans.disorder())
        ),
        cost_ns: scans.waits.share_ns * SAVED,
        time_ns: Some(scans.waits.time_ns),
        confidence: Confidence::Medium,
        evidence: Evidence { processes: busiest_processes(facts), ..Evidence::default() }
            .window(scans.waits.first_ns, scans.waits.last_ns)
            .figure("opens and stats that wait", scans.waits.count as f64)
            .figure("share of steps back", scans.disorder())
            .sql(SQL),
        remedy: "Sort the names of a directory by inode number (d_ino) before opening or examining them; ext4 returns them in the order \
                 of a hash."
            .into(),
        check: "Record again with a cold cache and compare the reads of inode tables: ioreel stats".into(),
    })
}
