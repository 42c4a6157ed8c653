//! `readahead-waste`: pages read ahead and never used.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, percent},
};
use crate::facts::Facts;

/// Least part of the pages read ahead.
const LEAST_WASTE: f64 = 0.3;
/// Fewer bytes do not matter.
const LEAST_BYTES: f64 = 4.0 * 1024.0 * 1024.0;

/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;

const SQL: &str = "SELECT file, count(*), sum(len_bytes) FROM 'bio/*.parquet' WHERE op = 'read' AND flags & 32 <> 0 GROUP BY file \
                   ORDER BY 3 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let readahead = &facts.stats.readahead;
    let waste = readahead.ra_waste;
    let bytes = readahead.pages as f64 * PAGE_BYTES;
    if waste < LEAST_WASTE || bytes * waste < LEAST_BYTES {
        return None;
    }
    let reads: f64 = facts.traffic.files.values().map(|f| f.read.share_ns * facts.weight_of(f.dev)).sum();
    let read_bytes: f64 = facts.traffic.files.values().map(|f| f.read.bytes as f64).sum();
    let wasted_share = (bytes * waste / read_bytes.max(1.0)).min(1.0);
    let mut files: Vec<_> = facts.traffic.files.iter().map(|(id, f)| (*id, f.read)).collect();
    files.sort_by(|a, b| b.1.share_ns.total_cmp(&a.1.share_ns).then(a.0.cmp(&b.0)));
    let files = files
        .into_iter()
        .take(5)
        .map(|(id, f)| Part { name: facts.names.path(id), count: f.count, bytes: f.bytes, share_s: f.share_ns / S })
        .collect();
    Some(Draft {
        summary: format!("{} of {:.1} MiB read ahead was never used", percent(waste), bytes / f64::from(1 << 20)),
        cost_ns: reads * wasted_share,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence { files, ..Evidence::default() }
            .figure("MiB read ahead", bytes / f64::from(1 << 20))
            .figure("share never used", waste)
            .sql(SQL),
        remedy: "Advise POSIX_FADV_RANDOM (madvise MADV_RANDOM) for files that are read here and there, or lower \
                 /sys/block/DEV/queue/read_ahead_kb."
            .into(),
        check: "Compare ra_waste and the bytes read: ioreel stats".into(),
    })
}
