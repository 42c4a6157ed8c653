//! What a reel's operations tell beyond their totals: syncs, metadata, names that are not there, writers in each other's way.

use std::collections::{BTreeMap, HashSet};

use ioreel_traces::Reel;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::readahead::Readahead;
use crate::{
    Result,
    events::{
        calls::{Call, Kind, each_call, each_call_settled},
        order::InOrder,
        scope::Scope,
    },
    meters::latency::{Latency, LatencySummary},
};

/// Syncs whose times are kept, to count the requests in them; beyond, these counts are of the first so many.
const MOST_SYNCS: usize = 1 << 20;
/// Files told by `lock_serial`.
const TOP_FILES: usize = 8;

/// `fsync`: calls that wait for one file's data (`fsync`, `fdatasync`, `msync`, `sync_file_range`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct FsyncStats {
    /// Calls.
    pub count: u64,
    /// Calls per second of the span.
    pub per_s: f64,
    /// How long they took.
    pub latency: LatencySummary,
    /// Bytes written to the file since it was synced last, mean.
    pub dirty_bytes: f64,
    /// Requests issued while at least one ran, per call; null where no requests were recorded.
    pub requests: Option<f64>,
    /// Flushes among them, and requests that flush first, per call.
    pub flushes: Option<f64>,
    /// Journal bytes written per byte of data written, over the whole scope; null where neither is known.
    pub journal_per_data: Option<f64>,
}

/// Writers of one file in each other's way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockSerial {
    /// Key into `files`.
    pub file: i64,
    /// Threads that wrote it.
    pub threads: u64,
    /// `lock_serial`: share of the time in their write calls that overlaps another's: 0 one at a time, (n-1)/n when n
    /// threads are in calls all the time. Where the file system lets one write at a time, this is the share spent waiting.
    pub serial: f64,
    /// Time in write calls, ns.
    pub time_ns: u64,
}

/// The statistics over operations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationStats {
    /// Operations.
    pub ops: u64,
    /// Operations per second of the span.
    pub ops_per_s: f64,
    /// Time in operations, ns.
    pub time_ns: u64,
    /// Latency of all, of reads, of writes, of metadata operations.
    pub latency: LatencySummary,
    /// Of reads.
    pub read: LatencySummary,
    /// Of writes.
    pub write: LatencySummary,
    /// Of metadata operations.
    pub metadata: LatencySummary,
    /// `md_share`: metadata operations over all.
    pub md_share: f64,
    /// Their time over that of all.
    pub md_time_share: f64,
    /// `stat_per_open`; null where nothing was opened.
    pub stat_per_open: Option<f64>,
    /// `lookup_neg`: share of calls that look a path up and find no such file.
    pub lookup_neg: f64,
    /// Calls that make or remove a name.
    pub names_changed: u64,
    /// `index_churn`: different blocks of metadata written per such call; null where either is unknown.
    pub index_churn: Option<f64>,
    /// Syncs.
    pub fsync: FsyncStats,
    /// Files that several threads wrote at once, most time first.
    pub lock_serial: Vec<LockSerial>,
}

#[derive(Debug, Default)]
struct Writers {
    first_task: Option<i64>,
    tasks: HashSet<i64>,
    busy_until_ns: i64,
    union_ns: u64,
    sum_ns: u64,
}

impl Writers {
    /// The next write in order of beginnings.
    fn wrote(&mut self, task: i64, (start_ns, end_ns): (i64, i64)) {
        match self.first_task {
            None => self.first_task = Some(task),
            Some(t) if t == task => {}
            Some(t) => self.tasks.extend([t, task]),
        }
        let length = |from: i64| u64::try_from(end_ns.saturating_sub(from)).unwrap_or(0);
        let from = if self.union_ns == 0 { start_ns } else { self.busy_until_ns.max(start_ns) };
        self.sum_ns = self.sum_ns.saturating_add(length(start_ns));
        self.union_ns = self.union_ns.saturating_add(length(from));
        self.busy_until_ns = self.busy_until_ns.max(end_ns);
    }
}

/// What a call did to a file's data.
#[derive(Debug)]
enum Change {
    /// Wrote it, in a call that lasted from then to then.
    Written { file: i64, bytes: u64, by: i64, call_ns: Option<(i64, i64)> },
    /// Wrote it by copying.
    Copied { file: i64, bytes: u64 },
    /// Waited for it to be safe.
    Synced { file: i64 },
}

/// Everything collected from operations.
#[derive(Debug, Default)]
pub(super) struct OperationPass {
    kinds: BTreeMap<Kind, Latency>,
    ops: u64,
    stats: u64,
    opens: u64,
    lookups: u64,
    lookups_missed: u64,
    names_changed: u64,
    sync: Latency,
    dirty: FxHashMap<i64, u64>,
    dirty_sum: u64,
    /// When syncs ran.
    pub(super) sync_times: Vec<(i64, i64)>,
    writers: FxHashMap<i64, Writers>,
    changes: InOrder<Change>,
    /// Files that were mapped.
    pub(super) mapped: HashSet<i64>,
    /// End of the last one.
    pub(super) last_ns: i64,
}

fn opens(op: &str) -> bool {
    matches!(op, "open" | "openat" | "openat2" | "creat")
}

fn stats(op: &str) -> bool {
    matches!(op, "stat" | "lstat" | "fstat" | "newfstatat" | "statx" | "stat64" | "lstat64" | "fstat64" | "fstatat64")
}

/// Calls that look a path up and do nothing else than open, look at or read it.
fn looks_up(op: &str) -> bool {
    opens(op)
        || stats(op) && !op.starts_with("fstat64") && op != "fstat"
        || matches!(op, "access" | "faccessat" | "faccessat2" | "readlink" | "readlinkat")
}

fn changes_names(call: &Call<'_>) -> bool {
    let made = match &**call.op {
        "creat" | "open" | "openat" | "openat2" => call.aux.is_some_and(|a| a & 1 != 0),
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "symlink" | "symlinkat" | "link" | "linkat" | "unlink"
        | "unlinkat" | "rmdir" | "rename" | "renameat" | "renameat2" => true,
        _ => false,
    };
    made && call.ret.is_some_and(|r| r >= 0)
}

impl OperationPass {
    pub(super) fn of(reel: &Reel, scope: &Scope) -> Result<Self> {
        let mut pass = Self::default();
        each_call_settled(reel, |call, settled_ns| {
            // Whoever mapped it, and whenever: what is then read of it is not seen.
            if &**call.op == "mmap" {
                pass.mapped.extend(call.file);
            }
            if !call.by_tool
                && scope.holds_time(call.start_ns)
                && scope.holds(Some(call.task_id), [call.file, call.file2])
            {
                pass.push(call, settled_ns);
            }
        })?;
        pass.changes.end();
        pass.follow();
        Ok(pass)
    }

    fn push(&mut self, call: &Call<'_>, settled_ns: i64) {
        self.ops += 1;
        self.last_ns = self.last_ns.max(call.end_ns());
        let op = &**call.op;
        if let Some(dur_ns) = call.dur_ns {
            self.kinds.entry(call.kind).or_default().record(dur_ns);
        }
        self.opens += u64::from(opens(op));
        self.stats += u64::from(stats(op));
        if looks_up(op) {
            self.lookups += 1;
            self.lookups_missed += u64::from(call.errno() == Some(2));
        }
        self.names_changed += u64::from(changes_names(call));
        let change = match (call.kind, call.file) {
            (Kind::Write, Some(file)) => {
                let call_ns = call.dur_ns.map(|_| (call.start_ns, call.end_ns()));
                Change::Written { file, bytes: call.bytes(), by: call.task_id, call_ns }
            }
            (Kind::Copy, _) => match call.file2 {
                Some(file) => Change::Copied { file, bytes: call.bytes() },
                None => return,
            },
            (Kind::Sync, Some(file)) => {
                let Some(dur_ns) = call.dur_ns else { return };
                self.sync.record(dur_ns);
                if self.sync_times.len() < MOST_SYNCS {
                    self.sync_times.push((call.start_ns, call.end_ns()));
                }
                Change::Synced { file }
            }
            _ => return,
        };
        self.changes.push(call.start_ns, change, settled_ns);
        self.follow();
    }

    /// Takes the changes of files that are in order by now.
    fn follow(&mut self) {
        while let Some((_, change)) = self.changes.pop() {
            match change {
                Change::Written { file, bytes, by, call_ns } => {
                    *self.dirty.entry(file).or_default() += bytes;
                    if let Some(call_ns) = call_ns {
                        self.writers.entry(file).or_default().wrote(by, call_ns);
                    }
                }
                Change::Copied { file, bytes } => *self.dirty.entry(file).or_default() += bytes,
                Change::Synced { file } => self.dirty_sum += self.dirty.remove(&file).unwrap_or(0),
            }
        }
    }

    /// Tells the readahead meter what reads asked for.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(super) fn reads_of(reel: &Reel, files: &HashSet<i64>, readahead: &mut Readahead) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        each_call(reel, |call| {
            if matches!(call.kind, Kind::Read | Kind::Copy)
                && let (Some(file), Some(offset), Some(ret)) = (call.file, call.offset_bytes, call.ret)
            {
                readahead.asked(file, offset, ret, call.end_ns());
            }
        })
    }

    pub(super) fn stats(self, span_ns: i64, index_blocks: u64) -> OperationStats {
        let summary = |kind: Kind| self.kinds.get(&kind).map(Latency::summary).unwrap_or_default();
        let mut all = Latency::default();
        self.kinds.values().for_each(|l| all.add(l));
        let per_s = |n: u64| n as f64 * 1e9 / span_ns.max(1) as f64;
        let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        let md = self.kinds.get(&Kind::Metadata);
        let mut lock_serial: Vec<LockSerial> = self
            .writers
            .iter()
            .filter(|(_, w)| w.tasks.len() > 1 && w.sum_ns > w.union_ns)
            .map(|(file, w)| LockSerial {
                file: *file,
                threads: w.tasks.len() as u64,
                serial: 1.0 - share(w.union_ns, w.sum_ns),
                time_ns: w.sum_ns,
            })
            .collect();
        lock_serial.sort_by_key(|l| (std::cmp::Reverse(l.time_ns), l.file));
        lock_serial.truncate(TOP_FILES);
        let sync = self.sync.summary();
        OperationStats {
            ops: self.ops,
            ops_per_s: per_s(self.ops),
            time_ns: all.total_ns(),
            read: summary(Kind::Read),
            write: summary(Kind::Write),
            metadata: summary(Kind::Metadata),
            md_share: share(md.map_or(0, |l| l.summary().count), self.ops),
            md_time_share: share(md.map_or(0, Latency::total_ns), all.total_ns()),
            stat_per_open: (self.opens > 0).then(|| self.stats as f64 / self.opens as f64),
            lookup_neg: share(self.lookups_missed, self.lookups),
            names_changed: self.names_changed,
            index_churn: (self.names_changed > 0 && index_blocks > 0)
                .then(|| index_blocks as f64 / self.names_changed as f64),
            fsync: FsyncStats {
                count: sync.count,
                per_s: per_s(sync.count),
                dirty_bytes: share(self.dirty_sum, sync.count),
                latency: sync,
                ..FsyncStats::default()
            },
            lock_serial,
            latency: all.summary(),
        }
    }
}
