//! `full-or-aged`: a nearly full or fragmented file system.

use super::{
    finding::{Confidence, Evidence, Part},
    seek_storm::seek_cost_ns,
    support::{Draft, S, disk_cost_ns, percent},
};
use crate::{facts::Facts, stats::FileLayout};

/// Beyond this fullness, ext4 and XFS lose bandwidth (Chen et al. 2006).
const FULL: f64 = 0.9;
/// Share of neighbouring pages of a file that are neighbours on disk: less is fragmented.
const FRAGMENTED_DLS: f64 = 0.95;
/// Pieces of a smaller file do not matter.
const LEAST_BYTES: i64 = 1 << 20;

const SQL: &str =
    "SELECT file, count(*), sum(len_bytes) FROM 'bio/*.parquet' WHERE class = 'data' GROUP BY file ORDER BY 2 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let layout = &facts.stats.layout;
    let full = facts
        .names
        .mounts()
        .filter(|m| m.total_bytes > 0 && !matches!(&*m.fstype, "squashfs" | "erofs" | "iso9660" | "tmpfs"))
        .filter(|m| facts.calls.files.keys().any(|f| facts.names.mount_of(*f).is_some_and(|o| o.sb_dev == m.sb_dev)))
        .map(|m| (1.0 - m.free_bytes as f64 / m.total_bytes as f64, m))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let used = full.as_ref().map_or(0.0, |(used, _)| *used);
    let own = facts.own_devices();
    let in_pieces: Vec<&FileLayout> = layout
        .worst
        .iter()
        .filter(|f| f.bytes >= LEAST_BYTES && f.dls < FRAGMENTED_DLS)
        .filter(|f| facts.traffic.files.get(&f.file).is_some_and(|flow| own.contains(&flow.dev)))
        .collect();
    let fragmented = !in_pieces.is_empty();
    if used < FULL && !fragmented {
        return None;
    }
    // What the pieces cost is what the seeks between them cost.
    let cost_ns = if fragmented { disk_cost_ns(facts, seek_cost_ns) } else { 0.0 };
    let extents: u64 = in_pieces.iter().map(|f| f.extents).sum();
    let files = in_pieces
        .iter()
        .take(5)
        .map(|f| Part {
            name: facts.names.path(f.file),
            count: f.extents,
            bytes: f.bytes.unsigned_abs(),
            share_s: cost_ns / S * f.extents as f64 / extents.max(1) as f64,
        })
        .collect();
    let place = full.as_ref().map_or("", |(_, m)| &m.mountpoint);
    Some(Draft {
        summary: match fragmented {
            true => format!("{} files lie in {extents} pieces; {place} is {} full", in_pieces.len(), percent(used)),
            false => format!("{place} is {} full: free space is scattered", percent(used)),
        },
        cost_ns,
        time_ns: None,
        confidence: Confidence::Low,
        evidence: Evidence { files, ..Evidence::default() }
            .figure("pieces", extents as f64)
            .figure("fullness", used)
            .sql(SQL),
        remedy: "Free space (a tenth at least), defragment (e4defrag, xfs_fsr, btrfs filesystem defragment), or copy the files to a \
                 fresh file system."
            .into(),
        check: "Compare frag and dls: ioreel stats; copy a file and read the copy".into(),
    })
}
