//! `sync-storm`: many small synchronous commits.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, fstypes, over_files, own_disks},
};
use crate::{events::requests::Class, facts::Facts};

/// Fewer syncs are no storm.
const LEAST_SYNCS: u64 = 20;
/// The remedy joins so many commits in one.
const GROUP: f64 = 8.0;

const SQL: &str = "SELECT * FROM 'ops/*.parquet' WHERE op IN ('fsync', 'fdatasync', 'msync', 'sync_file_range') \
                   ORDER BY dur_ns DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (syncs, files) = over_files(facts, |f| &f.small_syncs, |_, _| true);
    if syncs.count < LEAST_SYNCS {
        return None;
    }
    let journal = facts.calls.parts.journal_ns;
    let flushes: u64 = own_disks(facts).iter().map(|(d, _)| d.of(Class::Flush).count).sum();
    let evidence = Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
        .window(syncs.first_ns, syncs.last_ns)
        .figure("syncs", syncs.count as f64)
        .figure("mean time of a sync, ms", syncs.mean_ns() / 1e6)
        .figure("mean bytes written for a sync", syncs.mean_bytes())
        .figure("time waiting for the journal, s", journal / 1e9)
        .figure("flushes for a sync", flushes as f64 / syncs.count as f64)
        .sql(SQL);
    let ext4 = fstypes(facts).iter().any(|t| t == "ext4");
    Some(Draft {
        summary: format!(
            "{} synchronous commits of {:.1} KiB on average take {:.2} ms each",
            syncs.count,
            syncs.mean_bytes() / 1024.0,
            syncs.mean_ns() / 1e6
        ),
        cost_ns: syncs.share_ns * (1.0 - 1.0 / GROUP),
        time_ns: Some(syncs.time_ns),
        confidence: Confidence::High,
        evidence,
        remedy: format!(
            "Commit several records with one sync (group commit, larger transactions); the cost assumes eight. Use fdatasync, and \
             overwrite preallocated space, so that a commit changes no metadata.{}",
            if ext4 { " On ext4, mkfs with -O fast_commit shortens each commit." } else { "" }
        ),
        check: "Record the program with eight records a commit and compare: ioreel stats OLD.reel NEW.reel".into(),
    })
}
