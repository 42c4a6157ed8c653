//! `index-churn`: index blocks written out of proportion to the names that change. The case of BFS: each duplicate key took
//! a block of its own (Giampaolo, Practical File System Design, chapter 9).

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, is_index, over_groups, percent, writes},
};
use crate::facts::{Facts, FileUse};

/// Fewer changed names show no pattern.
const LEAST_NAMES: u64 = 50;
/// Least part of the devices' time that metadata takes.
const LEAST_PART: f64 = 0.08;
/// More writes of metadata than this per changed name are out of proportion: an inode, a directory entry and a bitmap
/// share their blocks with neighbours.
const MOST_WRITES_PER_NAME: f64 = 1.5;
/// A file is an index if this many of its writes come with each changed name...
const LEAST_WRITES_PER_NAME: f64 = 0.5;
/// ... and each is at most a block of an index.
const MOST_BLOCK_BYTES: f64 = 8192.0;

const SQL: &str = "SELECT class, detail, count(*), count(DISTINCT sector), sum(len_bytes) FROM 'bio/*.parquet' WHERE class NOT IN \
                   ('data', 'journal', 'flush') GROUP BY ALL ORDER BY 3 DESC";
const SQL_FILES: &str = "SELECT f.path, count(*), avg(o.ret), sum(o.dur_ns) FROM 'ops/*.parquet' o JOIN 'files/*.parquet' f USING \
                         (file) WHERE o.op LIKE '%write%' GROUP BY ALL ORDER BY 2 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let names = facts.calls.names_changed.count;
    if names < LEAST_NAMES {
        return None;
    }
    index_files(facts, names).or_else(|| metadata(facts, names))
}

/// Whether a file is written as an index is: small blocks, not one after another, about one for each changed name.
fn is_index_file(used: &FileUse, names: u64) -> bool {
    let writes = &used.writes;
    writes.count as f64 >= LEAST_WRITES_PER_NAME * names as f64
        && writes.mean_bytes() <= MOST_BLOCK_BYTES
        && (used.tiny.count as f64) < 0.5 * writes.count as f64
        && used.reads.count > 0
}

/// Files that serve as index: of a database, or of a file system in user space.
fn index_files(facts: &Facts, names: u64) -> Option<Draft> {
    let mut cost_ns = 0.0;
    let mut time_ns = 0.0;
    let (mut writes, mut bytes) = (0, 0);
    let mut files = Vec::new();
    for (file, used) in facts.calls.files.iter().filter(|(_, used)| is_index_file(used, names)) {
        let share_ns = used.reads.share_ns + used.writes.share_ns + used.small_syncs.share_ns;
        cost_ns += share_ns;
        time_ns += used.reads.time_ns + used.writes.time_ns;
        writes += used.writes.count;
        bytes += used.writes.bytes;
        files.push(Part {
            name: facts.names.path(*file),
            count: used.reads.count + used.writes.count,
            bytes: used.reads.bytes + used.writes.bytes,
            share_s: share_ns / S,
        });
    }
    if files.is_empty() {
        return None;
    }
    files.sort_by(|a, b| b.share_s.total_cmp(&a.share_s));
    let block_bytes = bytes as f64 / writes.max(1) as f64;
    Some(Draft {
        summary: format!(
            "{names} names change, and {} index files take {writes} writes of {block_bytes:.0} bytes: {:.1} blocks a name",
            files.len(),
            writes as f64 / names as f64
        ),
        cost_ns,
        time_ns: Some(time_ns),
        confidence: Confidence::Medium,
        evidence: Evidence { files, ..Evidence::default() }
            .figure("names changed", names as f64)
            .figure("writes to index files", writes as f64)
            .figure("block size, bytes", block_bytes)
            .figure("blocks written per name", writes as f64 / names as f64)
            .sql(SQL_FILES),
        remedy: "Keep several duplicate keys in one block (fragments), update the index once for many names, or drop indexes that \
                 nobody queries."
            .into(),
        check: "Record the same job afterwards and compare the bytes of the index files: ioreel info".into(),
    })
}

/// Metadata of a file system in the kernel.
fn metadata(facts: &Facts, names: u64) -> Option<Draft> {
    let index = over_groups(facts, |g| is_index(g) && writes(g));
    let part = index.flow.share_ns / facts.own_busy_ns().max(1.0);
    let writes_per_name = index.flow.count as f64 / names as f64;
    if part < LEAST_PART || writes_per_name < MOST_WRITES_PER_NAME {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{names} names change, and {writes_per_name:.1} writes of metadata follow for each: {} of the devices' time",
            percent(part)
        ),
        cost_ns: index.cost_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence::default()
            .window(index.flow.first_ns, index.flow.last_ns)
            .figure("names changed", names as f64)
            .figure("writes of metadata per name", writes_per_name)
            .figure("share of the devices' busy time", part)
            .sql(SQL),
        remedy: "Change names in batches and in one directory after another, sync less often, or use fewer and larger files. On \
                 ext4, larger inode tables (-I) keep small attributes inside the inode."
            .into(),
        check: "Compare index_churn and bytes by class: ioreel stats".into(),
    })
}
