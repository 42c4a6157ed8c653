//! The commit that a sync rode on.

use std::collections::HashMap;

use ioreel_traces::{
    Reel, Text,
    rows::{Bio, Commit, Op},
    table::{Cell, Row, column},
};
use rustc_hash::FxHashMap;

use super::{
    CommitOf,
    around::{Draft, MOST_FILES, segments},
};
use crate::{
    Result, bad_column,
    events::calls::Kind,
    facts::{LATE_NS, Named, Names, carries_syncs, ended_in, may_ride},
};

/// Maximum number of files of which the data is counted. That of further ones is in the sum only.
const MOST_COUNTED: usize = 1 << 16;

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
    pub(super) fn take(&mut self, bio: &Bio, names: &Names) {
        let in_time = bio.queue_ns >= self.start_ns() && bio.queue_ns <= self.row.end_ns;
        if !in_time || &*bio.class != "data" || &*bio.op != "write" || !self.is_own(bio, names) {
            return;
        }
        let bytes = bio.len_bytes.max(0).unsigned_abs();
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(file) = bio.file
            && (self.files.len() < MOST_COUNTED || self.files.contains_key(&file))
        {
            let of_file = self.files.entry(file).or_default();
            *of_file = of_file.saturating_add(bytes);
        }
    }

    /// Whether the commit's thread queued the bio, for the commit's file system. Only the name of jbd2's thread is of one
    /// file system.
    fn is_own(&self, bio: &Bio, names: &Names) -> bool {
        let Some(task) = self.row.task_id else {
            return self.row.comm.as_deref().is_some_and(|comm| comm.starts_with("jbd2/") && bio.comm == *comm);
        };
        let dev = match bio.file.and_then(|f| names.file(f)) {
            Some(file) => file.sb_dev,
            None => bio.orig_dev.unwrap_or(bio.dev),
        };
        bio.task_id == Some(task) && dev == self.row.sb_dev
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
    if reel.count::<Commit>() == 0 {
        return Ok(());
    }
    let synchronous = synchronous(reel, drafts)?;
    let syncs = |d: &&mut Draft| {
        let is_sync = match Kind::of(&d.op.op) {
            Kind::Sync => d.op.file.is_some(),
            Kind::Write => d.op.file.and_then(|f| synchronous.get(&f)).is_some_and(|from_ns| *from_ns <= d.op.start_ns),
            _ => false,
        };
        let of = |reason| d.waited_ns.get(reason).is_some_and(|ns| *ns > 0);
        is_sync && may_ride(of("journal"), d.waited_ns.values().any(|ns| *ns > 0), d.op.off_cpu_ns)
    };
    let windows: Vec<(i64, i64)> =
        drafts.iter_mut().filter(syncs).map(|d| (d.op.start_ns, d.end_ns().saturating_add(LATE_NS))).collect();
    for segment in segments::<Commit>(reel, &windows) {
        for commit in reel.segment_rows::<Commit>(segment) {
            let commit = commit?;
            if !carries_syncs(&commit.kind) {
                continue;
            }
            for draft in drafts.iter_mut().filter(syncs) {
                let sb_dev = draft.op.file.and_then(|f| names.file(f)).map(|f| f.sb_dev);
                if ended_in(commit.start_ns, commit.end_ns, (draft.op.start_ns, draft.end_ns()))
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

/// The files of writes to explain that were opened so that writes wait for the disk, and when first.
fn synchronous(reel: &Reel, drafts: &[Draft]) -> Result<FxHashMap<i64, i64>> {
    let written = drafts.iter().filter(|d| Kind::of(&d.op.op) == Kind::Write);
    let mut first_ns: FxHashMap<i64, i64> = written.filter_map(|d| Some((d.op.file?, i64::MAX))).collect();
    if first_ns.is_empty() {
        return Ok(first_ns);
    }
    let mut opens: FxHashMap<Text, Named> = FxHashMap::default();
    for batch in reel.batches::<Op>(&["op", "start_ns", "flags", "ret", "file"]) {
        let batch = batch?;
        let bad = |why| bad_column(Op::TABLE)(why);
        let op = column::<Text>(&batch, "op").map_err(bad)?;
        let start_ns = column::<i64>(&batch, "start_ns").map_err(bad)?;
        let maybe = |name| column::<Option<i64>>(&batch, name).map_err(bad);
        let (flags, ret, file) = (maybe("flags")?, maybe("ret")?, maybe("file")?);
        for i in 0..batch.num_rows() {
            let get = |column| <Option<i64> as Cell>::get(column, i);
            let Some(at_ns) = get(&file).and_then(|file| first_ns.get_mut(&file)) else { continue };
            let op = <Text as Cell>::get(&op, i);
            if opens.len() > MOST_COUNTED {
                opens.clear();
            }
            let named = opens.entry(op).or_insert_with_key(Named::of);
            if named.opens_synchronous(get(&flags), get(&ret)) {
                *at_ns = (*at_ns).min(<i64 as Cell>::get(&start_ns, i));
            }
        }
    }
    Ok(first_ns)
}
