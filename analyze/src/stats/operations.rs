//! Statistics of operations beyond totals: syncs, metadata, failed lookups, concurrent writers.

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

/// Maximum number of syncs whose times are kept to count their requests. Beyond it, these counts cover the first ones.
const MOST_SYNCS: usize = 1 << 20;
/// Number of files listed in `lock_serial`.
const TOP_FILES: usize = 8;

/// `fsync`: calls that wait for one file's data (`fsync`, `fdatasync`, `msync`, `sync_file_range`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct FsyncStats {
    /// Number of calls.
    pub count: u64,
    /// Calls per second of the span.
    pub per_s: f64,
    /// Duration of the calls.
    pub latency: LatencySummary,
    /// Mean number of bytes written to the file since its previous sync.
    pub dirty_bytes: f64,
    /// Requests issued while at least one such call ran, per call. Null if no requests were recorded.
    pub requests: Option<f64>,
    /// Flushes among these, and requests with a preceding flush, per call.
    pub flushes: Option<f64>,
    /// Journal bytes per byte of data written, over the whole scope. Null if neither is known.
    pub journal_per_data: Option<f64>,
}

/// Concurrent writers of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockSerial {
    /// Key into `files`.
    pub file: i64,
    /// Number of writing threads.
    pub threads: u64,
    /// `lock_serial`: share of the time in write calls that overlaps with write calls of other threads. 0 if they write
    /// one at a time, (n-1)/n if n threads are always in write calls. If the file system serialises writes, this is the
    /// share of waiting.
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
    /// Latency of all operations.
    pub latency: LatencySummary,
    /// Of reads.
    pub read: LatencySummary,
    /// Of writes.
    pub write: LatencySummary,
    /// Of metadata operations.
    pub metadata: LatencySummary,
    /// `md_share`: metadata operations over all.
    pub md_share: f64,
    /// `md_time_share`: time of metadata operations over the time of all.
    pub md_time_share: f64,
    /// `stat_per_open`; null if nothing was opened.
    pub stat_per_open: Option<f64>,
    /// `lookup_neg`: share of path lookups that find no such file.
    pub lookup_neg: f64,
    /// Calls that create or remove a name.
    pub names_changed: u64,
    /// `index_churn`: distinct metadata blocks written per such call. Null if either is unknown.
    pub index_churn: Option<f64>,
    /// Syncs.
    pub fsync: FsyncStats,
    /// Files that several threads wrote concurrently, most time first.
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
    /// Handles the next write, in order of start.
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

/// Effect of a call on a file's data.
#[derive(Debug)]
enum Change {
    /// Written, by a call with these start and end times.
    Written { file: i64, bytes: u64, by: i64, call_ns: Option<(i64, i64)> },
    /// Written by a copy.
    Copied { file: i64, bytes: u64 },
    /// Synced.
    Synced { file: i64 },
}

/// Statistics collected from operations.
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
    /// Start and end times of syncs.
    pub(super) sync_times: Vec<(i64, i64)>,
    writers: FxHashMap<i64, Writers>,
    changes: InOrder<Change>,
    /// Files with a mapping.
    pub(super) mapped: HashSet<i64>,
    /// End of the last operation.
    pub(super) last_ns: i64,
}

fn opens(op: &str) -> bool {
    matches!(op, "open" | "openat" | "openat2" | "creat")
}

fn stats(op: &str) -> bool {
    matches!(op, "stat" | "lstat" | "fstat" | "newfstatat" | "statx" | "stat64" | "lstat64" | "fstat64" | "fstatat64")
}

/// Calls that only look up a path: they open, stat or read it.
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
            // Reads through a mapping, of any process at any time, are not visible.
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

    fn add_dirty(&mut self, file: i64, bytes: u64) {
        let dirty = self.dirty.entry(file).or_default();
        *dirty = dirty.saturating_add(bytes);
    }

    /// Handles changes of files that are now in order.
    fn follow(&mut self) {
        while let Some((_, change)) = self.changes.pop() {
            match change {
                Change::Written { file, bytes, by, call_ns } => {
                    self.add_dirty(file, bytes);
                    if let Some(call_ns) = call_ns {
                        self.writers.entry(file).or_default().wrote(by, call_ns);
                    }
                }
                Change::Copied { file, bytes } => self.add_dirty(file, bytes),
                Change::Synced { file } => {
                    self.dirty_sum = self.dirty_sum.saturating_add(self.dirty.remove(&file).unwrap_or(0));
                }
            }
        }
    }

    /// Passes the ranges of reads to the readahead meter.
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
