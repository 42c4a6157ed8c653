//! The commit that a sync rode on.

use std::collections::HashMap;

use ioreel_traces::{
    Reel,
    rows::{Bio, Commit},
};

use super::{
    CommitOf,
    around::{Draft, MOST_FILES, segments},
};
use crate::{
    Result,
    events::calls::Kind,
    facts::{LATE_NS, Names},
};

/// A commit and the data that it wrote.
pub(super) struct Rode {
    row: Commit,
    bytes: u64,
    files: HashMap<i64, u64>,
}

impl Rode {
    /// When it began, if that is known.
    pub(super) fn start_ns(&self) -> i64 {
        self.row.start_ns.unwrap_or(self.row.end_ns)
    }

    /// A bio that was queued during the recording: part of the commit if its thread queued it.
    pub(super) fn take(&mut self, bio: &Bio) {
        let in_time = bio.queue_ns >= self.start_ns() && bio.queue_ns <= self.row.end_ns;
        let own = self.row.comm.as_deref().is_some_and(|comm| bio.comm == *comm);
        if !in_time || !own || &*bio.class != "data" || &*bio.op != "write" {
            return;
        }
        let bytes = bio.len_bytes.max(0).unsigned_abs();
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(file) = bio.file {
            *self.files.entry(file).or_default() += bytes;
        }
    }

    pub(super) fn finish(self, op_start_ns: i64, names: &Names) -> CommitOf {
        let row = self.row;
        let since = |ns: i64| ns.saturating_sub(op_start_ns);
        let phase = |from: Option<i64>, to: Option<i64>| from.zip(to).map(|(from, to)| to.saturating_sub(from).max(0));
        let mut files: Vec<(i64, u64)> = self.files.into_iter().collect();
        files.sort_by_key(|(file, bytes)| (std::cmp::Reverse(*bytes), *file));
        CommitOf {
            kind: row.kind.to_string(),
            transaction: row.transaction,
            at_ns: row.start_ns.map(since),
            end_ns: since(row.end_ns),
            locking_ns: phase(row.locking_ns, row.flushing_ns),
            data_ns: phase(row.flushing_ns, row.logging_ns),
            logging_ns: phase(row.logging_ns, Some(row.end_ns)),
            handles: row.handles,
            blocks: row.blocks,
            len_bytes: row.len_bytes,
            comm: row.comm.map(|comm| comm.to_string()),
            data_bytes: self.bytes,
            data_files: files.into_iter().take(MOST_FILES).map(|(file, _)| names.path(file)).collect(),
        }
    }
}

/// Finds the commit of each sync: the last of its file system that ended in it. Later ones end after it.
pub(super) fn find(reel: &Reel, drafts: &mut [Draft], names: &Names) -> Result<()> {
    // One that did not wait for the journal rode on no commit. Waits of short operations may not be kept.
    let waited = |d: &Draft| {
        let unknown = d.op.off_cpu_ns.is_some_and(|off| off > 0) && d.waited_ns.is_empty();
        d.waited_ns.contains_key("journal") || unknown
    };
    let syncs = |d: &&mut Draft| Kind::of(&d.op.op) == Kind::Sync && d.op.file.is_some() && waited(d);
    let windows: Vec<(i64, i64)> =
        drafts.iter_mut().filter(syncs).map(|d| (d.op.start_ns, d.end_ns().saturating_add(LATE_NS))).collect();
    for segment in segments::<Commit>(reel, &windows) {
        for commit in reel.segment_rows::<Commit>(segment) {
            let commit = commit?;
            if &*commit.kind == "checkpoint" {
                continue;
            }
            for draft in drafts.iter_mut().filter(syncs) {
                let sb_dev = draft.op.file.and_then(|f| names.file(f)).map(|f| f.sb_dev);
                let in_it = commit.end_ns > draft.op.start_ns
                    && commit.end_ns <= draft.end_ns().saturating_add(LATE_NS)
                    && commit.start_ns.is_none_or(|start| start < draft.end_ns());
                if in_it
                    && sb_dev == Some(commit.sb_dev)
                    && draft.rode.as_ref().is_none_or(|rode| commit.end_ns > rode.row.end_ns)
                {
                    draft.rode = Some(Rode { row: commit.clone(), bytes: 0, files: HashMap::new() });
                }
            }
        }
    }
    Ok(())
}
