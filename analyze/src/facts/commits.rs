//! Commits of journals and logs (`record --waits`), and the syncs that rode on them.

use ioreel_traces::{
    Reel, Text,
    rows::Commit,
    table::{Cell, Row, column},
};
use rustc_hash::FxHashMap;

use super::{
    names::text,
    operation::{Ended, Operation},
    tally::Tally,
};
use crate::{Result, bad_column};

/// Maximum number of commits kept. Syncs of later ones count as riding on none.
const MOST_COMMITS: usize = 1 << 21;
/// The probe at the end of a commit may come this long after the threads that waited for it have left.
pub const LATE_NS: i64 = 100_000;

/// One commit, as far as syncs need it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// In which the data of ordered files was written. Empty where that is not known.
    pub(super) data_ns: (i64, i64),
    handles: i64,
    len_bytes: i64,
}

/// The commits of each file system, in order of their end. Memory: one entry per commit.
#[derive(Debug, Default)]
pub(super) struct Commits {
    by_fs: FxHashMap<i64, Vec<Span>>,
}

/// The syncs that a commit ended in.
#[derive(Clone, Debug, Default)]
pub struct Riding {
    /// Whether commits were recorded.
    pub recorded: bool,
    /// Syncs during which a commit ended. Share: the whole.
    pub syncs: Tally,
    /// Syncs that waited while a commit wrote the data of files. Share: that time.
    pub data: Tally,
    /// Sum of that time over syncs, ns.
    pub data_ns: f64,
    /// Commits that a sync rode on.
    pub commits: u64,
    /// Changes by file system calls in these.
    pub handles: u64,
    /// Bytes that these wrote to the journal.
    pub journal_bytes: u64,
    /// End of the last of these, by file system.
    last_end_ns: FxHashMap<i64, i64>,
}

impl Commits {
    pub(super) fn of(reel: &Reel) -> Result<Self> {
        let mut commits = Self::default();
        let mut kept = 0;
        let columns = ["sb_dev", "kind", "start_ns", "flushing_ns", "logging_ns", "end_ns", "handles", "len_bytes"];
        for batch in reel.batches::<Commit>(&columns) {
            let batch = batch?;
            let bad = |why| bad_column(Commit::TABLE)(why);
            let (sb_dev, end_ns) =
                (column::<i64>(&batch, "sb_dev").map_err(bad)?, column::<i64>(&batch, "end_ns").map_err(bad)?);
            let kind = column::<Text>(&batch, "kind").map_err(bad)?;
            let maybe = |name| column::<Option<i64>>(&batch, name).map_err(bad);
            let (start_ns, flushing_ns, logging_ns) = (maybe("start_ns")?, maybe("flushing_ns")?, maybe("logging_ns")?);
            let (handles, len_bytes) = (maybe("handles")?, maybe("len_bytes")?);
            for i in 0..batch.num_rows() {
                if text(&kind, i).is_some_and(|kind| *kind == *"checkpoint") {
                    continue;
                }
                if kept >= MOST_COMMITS {
                    return Ok(commits);
                }
                kept += 1;
                let get = |column| <Option<i64> as Cell>::get(column, i);
                let end_ns = <i64 as Cell>::get(&end_ns, i);
                let span = Span {
                    start_ns: get(&start_ns).unwrap_or(end_ns),
                    end_ns,
                    data_ns: get(&flushing_ns).zip(get(&logging_ns)).unwrap_or_default(),
                    handles: get(&handles).unwrap_or(0).max(0),
                    len_bytes: get(&len_bytes).unwrap_or(0).max(0),
                };
                commits.by_fs.entry(<i64 as Cell>::get(&sb_dev, i)).or_default().push(span);
            }
        }
        commits.by_fs.values_mut().for_each(|of| of.sort_by_key(|span| span.end_ns));
        Ok(commits)
    }

    /// The commits of the file system that ended during the operation.
    fn ended_in(&self, sb_dev: i64, op: &Operation) -> &[Span] {
        let Some(all) = self.by_fs.get(&sb_dev) else { return &[] };
        let first = all.partition_point(|span| span.end_ns <= op.start_ns);
        let in_it = |span: &Span| span.end_ns <= op.end_ns.saturating_add(LATE_NS) && span.start_ns < op.end_ns;
        let count = all[first..].partition_point(in_it);
        &all[first..first + count]
    }
}

impl Riding {
    /// A sync ended, of a file of this file system. One that did not wait for the journal rode on no commit.
    pub(super) fn push(&mut self, commits: &Commits, ended: &Ended<'_>, sb_dev: i64) {
        let op = ended.op;
        if ended.parts.journal_ns <= 0.0 {
            return;
        }
        let on = commits.ended_in(sb_dev, op);
        // Later commits end after it, so that it waited for the last of these.
        let Some(last) = on.last() else { return };
        self.syncs.push(ended, 0, ended.share_ns);
        let data_ns: i64 = on
            .iter()
            .map(|span| span.data_ns.1.min(op.end_ns) - span.data_ns.0.max(op.start_ns))
            .map(|ns| ns.max(0))
            .sum();
        if data_ns > 0 {
            self.data.push(ended, 0, ended.share_of(data_ns as f64));
            self.data_ns += data_ns as f64;
        }
        // Several syncs may ride on one.
        let previous_ns = self.last_end_ns.entry(sb_dev).or_insert(i64::MIN);
        if last.end_ns > *previous_ns {
            *previous_ns = last.end_ns;
            self.commits += 1;
            self.handles += last.handles.unsigned_abs();
            self.journal_bytes += last.len_bytes.unsigned_abs();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::calls::Kind,
        facts::{operation::Named, time::Parts},
    };

    #[test]
    fn a_sync_rides_on_the_last_commit_that_ends_in_it() {
        let span = |start_ns, end_ns, handles| Span {
            start_ns,
            end_ns,
            data_ns: (start_ns + 10, start_ns + 40),
            handles,
            len_bytes: 4096,
        };
        let mut commits = Commits::default();
        commits.by_fs.insert(8, vec![span(0, 100, 1), span(100, 200, 2), span(200, 300, 4)]);
        let mut riding = Riding::default();
        let call = Named::default();
        // The second rides on the same commit; the third waits for none; the fourth is on another file system.
        for (sb_dev, start_ns, end_ns, journal_ns) in
            [(8, 120, 198, 60.0), (8, 130, 195, 60.0), (8, 130, 195, 0.0), (9, 0, 400, 60.0)]
        {
            let parts = Parts { journal_ns, ..Parts::default() };
            let op = Operation { start_ns, end_ns, ..Operation::of_kind(Kind::Sync) };
            let share_ns = op.dur_ns() as f64;
            let ended = Ended { op: &op, call: &call, share_ns, parts, device: None };
            riding.push(&commits, &ended, sb_dev);
        }
        assert_eq!((riding.syncs.count, riding.commits, riding.handles, riding.journal_bytes), (2, 1, 2, 4096));
        // Of the data phase from 110 to 140, the first sync saw 20 ns and the second 10.
        assert_eq!((riding.data.count, riding.data_ns, riding.data.share_ns), (2, 30.0, 30.0));
    }
}
