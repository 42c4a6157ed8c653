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
    own_io::Timeline,
    tally::Tally,
};
use crate::{Result, bad_column};

/// Maximum number of commits kept. Syncs of later ones count as riding on none.
const MOST_COMMITS: usize = 1 << 21;
/// The probe at the end of a commit may come this long after the threads that waited for it have left.
pub const LATE_NS: i64 = 100_000;
/// More commits of a file system do not end within [`LATE_NS`].
const MOST_LATE: usize = 64;

/// Whether a sync can ride on a commit of this kind. A checkpoint writes what was committed before.
pub fn carries_syncs(kind: &str) -> bool {
    kind != "checkpoint"
}

/// Whether a commit ended in an operation on its file system, and had begun by its end. The last of these is the one that
/// it rode on: later ones end after it. `start_ns`: null if not known.
pub fn ended_in(start_ns: Option<i64>, end_ns: i64, op: (i64, i64)) -> bool {
    end_ns > op.0 && end_ns <= op.1.saturating_add(LATE_NS) && start_ns.is_none_or(|start| start < op.1)
}

/// Whether a sync may have waited for a commit: one that did not wait for the journal rode on none. Waits of short
/// operations may not be kept, and those of requests to io_uring are not known.
pub fn may_ride(waited_for_journal: bool, has_waits: bool, off_cpu_ns: Option<i64>) -> bool {
    waited_for_journal || !has_waits && off_cpu_ns != Some(0)
}

/// One commit, as far as syncs need it.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start_ns: Option<i64>,
    end_ns: i64,
    handles: i64,
    len_bytes: i64,
}

/// The commits of a file system.
#[derive(Debug, Default)]
struct OfFs {
    /// In order of their end.
    spans: Vec<Span>,
    /// When one wrote the data of ordered files, as far as that is known.
    data: Timeline,
}

/// The commits of each file system. Memory: one entry per commit.
#[derive(Debug, Default)]
pub(super) struct Commits {
    by_fs: FxHashMap<i64, OfFs>,
}

/// The syncs that a commit ended in.
#[derive(Clone, Debug, Default)]
pub struct Riding {
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
        let mut data: FxHashMap<i64, Vec<(i64, i64)>> = FxHashMap::default();
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
                if kept >= MOST_COMMITS || !text(&kind, i).is_none_or(|kind| carries_syncs(kind)) {
                    continue;
                }
                kept += 1;
                let get = |column| <Option<i64> as Cell>::get(column, i);
                let end_ns = <i64 as Cell>::get(&end_ns, i);
                let span = Span {
                    start_ns: get(&start_ns),
                    end_ns,
                    handles: get(&handles).unwrap_or(0).max(0),
                    len_bytes: get(&len_bytes).unwrap_or(0).max(0),
                };
                let sb_dev = <i64 as Cell>::get(&sb_dev, i);
                commits.by_fs.entry(sb_dev).or_default().spans.push(span);
                if let Some(phase) = get(&flushing_ns).zip(get(&logging_ns)) {
                    data.entry(sb_dev).or_default().push(phase);
                }
            }
        }
        for (sb_dev, of_fs) in &mut commits.by_fs {
            of_fs.spans.sort_by_key(|span| span.end_ns);
            of_fs.data = Timeline::of(data.remove(sb_dev).unwrap_or_default());
        }
        Ok(commits)
    }
}

impl OfFs {
    /// The commit that an operation rode on: the last that ended in it.
    fn ridden(&self, op: &Operation) -> Option<&Span> {
        let count = self.spans.partition_point(|span| span.end_ns <= op.end_ns.saturating_add(LATE_NS));
        let last = self.spans[..count].iter().rev().take(MOST_LATE);
        last.take_while(|span| span.end_ns > op.start_ns)
            .find(|span| ended_in(span.start_ns, span.end_ns, (op.start_ns, op.end_ns)))
    }
}

impl Riding {
    /// A sync ended, of a file of this file system, that may ride on a commit: see [`may_ride`].
    pub(super) fn push(&mut self, commits: &Commits, ended: &Ended<'_>, sb_dev: i64) {
        let op = ended.op;
        let Some(of_fs) = commits.by_fs.get(&sb_dev) else { return };
        let Some(last) = of_fs.ridden(op) else { return };
        self.syncs.push(ended, 0, ended.share_ns);
        // It did not wait for what later commits wrote.
        let data_ns = of_fs.data.overlap_ns(op.start_ns, op.end_ns.min(last.end_ns));
        if data_ns > 0 {
            self.data.push(ended, 0, ended.share_of(data_ns as f64));
            self.data_ns += data_ns as f64;
        }
        // Several syncs may ride on one.
        let previous_ns = self.last_end_ns.entry(sb_dev).or_insert(i64::MIN);
        if last.end_ns > *previous_ns {
            *previous_ns = last.end_ns;
            self.commits += 1;
            self.handles = self.handles.saturating_add(last.handles.unsigned_abs());
            self.journal_bytes = self.journal_bytes.saturating_add(last.len_bytes.unsigned_abs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::calls::Kind,
        facts::{
            operation::Named,
            time::{Parts, Waited},
        },
    };

    #[test]
    fn a_sync_rides_on_the_last_commit_that_ends_in_it() {
        let span = |start_ns, end_ns, handles| Span { start_ns, end_ns, handles, len_bytes: 4096 };
        let spans = vec![span(None, 100, 1), span(Some(100), 200, 2), span(Some(200), 300, 4)];
        let data = Timeline::of(vec![(10, 40), (110, 140), (210, 240)]);
        let mut commits = Commits::default();
        commits.by_fs.insert(8, OfFs { spans, data });
        let mut riding = Riding::default();
        let call = Named::default();
        // The second rides on the same commit; the third waits for none; the fourth is on another file system.
        for (sb_dev, start_ns, end_ns, journal_ns) in
            [(8, 120, 198, 60.0), (8, 130, 195, 60.0), (8, 130, 195, 0.0), (9, 0, 400, 60.0)]
        {
            let mut waited = Waited::default();
            *waited.of_reason("journal") += journal_ns;
            *waited.of_reason("device") += 1.0;
            let op = Operation { start_ns, end_ns, ..Operation::of_kind(Kind::Sync) };
            let share_ns = op.dur_ns() as f64;
            let ended = Ended { op: &op, call: &call, share_ns, parts: Parts::default(), device: None };
            if waited.may_ride(&op) {
                riding.push(&commits, &ended, sb_dev);
            }
        }
        assert_eq!((riding.syncs.count, riding.commits, riding.handles, riding.journal_bytes), (2, 1, 2, 4096));
        // Of the data phase from 110 to 140, the first sync saw 20 ns and the second 10.
        assert_eq!((riding.data.count, riding.data_ns, riding.data.share_ns), (2, 30.0, 30.0));
    }

    #[test]
    fn a_sync_without_a_wait_for_the_journal_rides_on_none_unless_its_waits_are_not_kept() {
        assert!(may_ride(true, true, Some(5)) && may_ride(false, false, Some(5)) && may_ride(false, false, None));
        assert!(!may_ride(false, true, Some(5)) && !may_ride(false, false, Some(0)));
        // Late by less than 0.1 ms; begun after the operation; not known when.
        assert!(ended_in(Some(5), 100 + LATE_NS, (0, 100)) && !ended_in(Some(5), 101 + LATE_NS, (0, 100)));
        assert!(!ended_in(Some(100), 150, (0, 100)) && ended_in(None, 150, (0, 100)) && !ended_in(None, 0, (0, 100)));
    }
}
