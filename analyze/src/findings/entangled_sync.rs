//! `entangled-sync`: a sync that waits while the commit writes data of other files.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, over_groups, percent, writes},
};
use crate::facts::Facts;

/// Fewer syncs show no pattern.
const LEAST_SYNCS: u64 = 3;
/// Least part of the data that the journal's thread writes, in bytes for a sync.
const LEAST_BYTES_PER_SYNC: f64 = 256.0 * 1024.0;

/// With recorded commits: least part of the time in syncs in which a commit writes the data of files. A sync writes
/// the data of its own file before the commit.
const LEAST_DATA: f64 = 0.2;

const SQL_OF_COMMITS: &str = "SELECT transaction, start_ns, logging_ns - flushing_ns AS data_ns, handles, len_bytes FROM \
                              'commits/*.parquet' WHERE kind = 'commit' ORDER BY data_ns DESC";
const SQL: &str = "SELECT file, sum(len_bytes) FROM 'bio/*.parquet' WHERE class = 'data' AND op = 'write' AND comm LIKE \
                   'jbd2%' GROUP BY file ORDER BY 2 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (syncs, riding) = (facts.calls.syncs, &facts.calls.riding);
    // In ordered mode, the journal's thread writes the data of all files of the transaction before it commits.
    let entangled = over_groups(facts, |g| writes(g) && &*g.content == "data" && g.comm.starts_with("jbd2"));
    let bytes_per_sync = entangled.flow.bytes as f64 / syncs.count.max(1) as f64;
    // The data may also be written by the kernel's flusher, for which the commit waits.
    let waits_for_data = riding.data_ns >= LEAST_DATA * syncs.time_ns && riding.data.count >= LEAST_SYNCS;
    if syncs.count < LEAST_SYNCS || (bytes_per_sync < LEAST_BYTES_PER_SYNC && !waits_for_data) {
        return None;
    }
    let mut files: Vec<(i64, f64, u64, u64)> = facts
        .traffic
        .files
        .iter()
        .filter(|(file, flow)| {
            flow.write.count > 0 && facts.calls.files.get(*file).is_none_or(|used| used.small_syncs.count == 0)
        })
        .map(|(file, flow)| (*file, flow.write.share_ns, flow.write.count, flow.write.bytes))
        .collect();
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let files = files
        .into_iter()
        .take(5)
        .map(|(file, ns, count, bytes)| Part { name: facts.names.path(file), count, bytes, share_s: ns / S })
        .collect();
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let of_busy = entangled.flow.share_ns / facts.own_busy_ns().max(1.0);
    let mut evidence = Evidence { files, ..Evidence::default() }
        .window(entangled.flow.first_ns, entangled.flow.last_ns)
        .figure("syncs", syncs.count as f64)
        .figure("data written by commits, MiB", mib(entangled.flow.bytes as f64))
        .figure("share of the devices' busy time", of_busy)
        .sql(SQL);
    let mut summary = format!(
        "The journal's thread writes {:.1} MiB of file data for each sync before it commits: syncs wait for data of other files",
        mib(bytes_per_sync)
    );
    let mut cost_ns = entangled.cost_ns.min(syncs.share_ns);
    let rode = riding.syncs.count > 0;
    if rode {
        cost_ns = riding.data.share_ns.min(syncs.share_ns);
        evidence = evidence
            .window(riding.syncs.first_ns, riding.syncs.last_ns)
            .figure("syncs that waited for a commit", riding.syncs.count as f64)
            .figure("commits", riding.commits as f64)
            .figure("changes in these commits", riding.handles as f64)
            .figure("time in which they wrote data, s", riding.data_ns / S)
            .figure("written to the journal, MiB", mib(riding.journal_bytes as f64))
            .sql(SQL_OF_COMMITS);
        summary = format!(
            "{} syncs ride on {} commits, which write the data of other files during {} of the syncs' time ({:.1} MiB for each sync)",
            riding.syncs.count,
            riding.commits,
            percent(riding.data_ns / syncs.time_ns.max(1.0)),
            mib(bytes_per_sync)
        );
    }
    Some(Draft {
        summary,
        cost_ns,
        time_ns: Some(syncs.time_ns),
        confidence: if rode { Confidence::High } else { Confidence::Medium },
        evidence,
        remedy: format!(
            "Write the other files with sync_file_range or smaller dirty limits (vm.dirty_background_bytes), so that little is \
             dirty when a sync begins; put the synced files on a file system of their own; or mount with data=writeback. {} of \
             the devices' time went there.",
            percent(of_busy)
        ),
        check: "Run without the bulk writer and compare the latency of the syncs: ioreel stats".into(),
    })
}
