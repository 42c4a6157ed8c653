//! Totals per file, per process and per mount.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet},
};

use ioreel_traces::{
    Reel, Text,
    rows::{Exec, File, Task},
    table::{Cell, Row, column},
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::leaders::Leaders;
use crate::{
    Result, bad_column,
    events::calls::{Call, Kind},
};

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Bytes moved from files.
    pub read_bytes: u64,
    /// Bytes moved to files.
    pub write_bytes: u64,
    /// Time spent in the calls.
    pub time_ns: u64,
}

impl Totals {
    /// Adds the bytes a call moved: from a file, to a file, or both.
    pub fn add_bytes(&mut self, call: &Call<'_>) {
        if matches!(call.kind, Kind::Read | Kind::Copy) {
            self.read_bytes = self.read_bytes.saturating_add(call.bytes());
        }
        if matches!(call.kind, Kind::Write | Kind::Copy) {
            self.write_bytes = self.write_bytes.saturating_add(call.bytes());
        }
    }

    fn add_call(&mut self, call: &Call<'_>, reads: bool, writes: bool) {
        self.calls += 1;
        self.errors += u64::from(call.errno().is_some());
        self.time_ns = self.time_ns.saturating_add(call.dur_ns.and_then(|d| u64::try_from(d).ok()).unwrap_or(0));
        let bytes = call.bytes();
        self.read_bytes = self.read_bytes.saturating_add(if reads { bytes } else { 0 });
        self.write_bytes = self.write_bytes.saturating_add(if writes { bytes } else { 0 });
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
    }

    /// Bytes moved in either direction.
    pub fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }
}

/// Maximum number of files, and of threads, whose calls are summed: 200 MB of each.
pub const MOST_ACTORS: usize = 3_500_000;

/// Collects calls by file and by thread. Memory: one entry per used file and thread, at most [`MOST_ACTORS`] of each.
#[derive(Clone, Debug, Default)]
pub struct ActorMeter {
    files: FxHashMap<i64, Totals>,
    tasks: FxHashMap<i64, Totals>,
    /// Number of calls of further files and threads.
    left_out: u64,
}

/// Totals of a file: all calls on it, by descriptor or by opening it.
#[derive(Clone, Debug, Serialize)]
pub struct FileSummary {
    /// Key into `files`.
    pub file: i64,
    /// Path when first seen. `None` if unknown.
    pub path: Option<String>,
    /// `regular`, `directory`, …
    pub kind: String,
    /// Type of its file system. Empty if unknown.
    pub fstype: String,
    /// What the calls added up to.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Totals of a process, all threads included.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSummary {
    /// Its leader, key into `tasks`.
    pub task_id: i64,
    /// Process id.
    pub pid: i32,
    /// Its latest name.
    pub comm: String,
    /// The program it ran last, as passed to execve. `None` if it never called execve.
    pub program: Option<String>,
    /// Number of threads.
    pub threads: u64,
    /// Start time.
    pub start_ns: i64,
    /// Exit time. `None` if it outlived the recording.
    pub exit_ns: Option<i64>,
    /// Wait status, as wait(2) encodes it.
    pub exit_code: Option<i32>,
    /// What the calls added up to.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Totals of one mounted file system.
#[derive(Clone, Debug, Serialize)]
pub struct MountSummary {
    /// Device number of the file system.
    pub sb_dev: i64,
    /// Its type.
    pub fstype: String,
    /// Its source.
    pub source: String,
    /// Mount point.
    pub mountpoint: String,
    /// Mount options.
    pub options: String,
    /// Size of the file system.
    pub total_bytes: i64,
    /// Free space at the start.
    pub free_bytes: i64,
    /// Number of its files used by calls.
    pub files: u64,
    /// What the calls added up to.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Top files by two criteria, and mounts.
#[derive(Debug)]
pub struct FileTotals {
    /// Most bytes first.
    pub by_bytes: Vec<FileSummary>,
    /// Most time first.
    pub by_time: Vec<FileSummary>,
    /// Mounts, most time first.
    pub mounts: Vec<MountSummary>,
    /// Number of files used by calls.
    pub count: u64,
}

impl ActorMeter {
    /// Adds a call.
    pub fn push(&mut self, call: &Call<'_>) {
        let reads = matches!(call.kind, Kind::Read | Kind::Copy);
        let writes = matches!(call.kind, Kind::Write | Kind::Copy);
        let mut left_out = false;
        let mut add = |all: &mut FxHashMap<i64, Totals>, id: i64, reads: bool, writes: bool| {
            if all.len() < MOST_ACTORS || all.contains_key(&id) {
                all.entry(id).or_default().add_call(call, reads, writes);
            } else {
                left_out = true;
            }
        };
        add(&mut self.tasks, call.task_id, reads, writes);
        // A copy reads its source and writes its destination; its time counts for both.
        let copies = call.kind == Kind::Copy;
        if let Some(file) = call.file {
            add(&mut self.files, file, reads, writes && !copies);
        }
        if let Some(file2) = call.file2.filter(|f| Some(*f) != call.file) {
            add(&mut self.files, file2, false, copies);
        }
        self.left_out += u64::from(left_out);
    }

    /// Number of calls on files, or of threads, beyond the first [`MOST_ACTORS`].
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The `top` files by bytes and by time, and all mounts.
    pub fn files(&self, reel: &Reel, top: usize) -> Result<FileTotals> {
        let best = |key: fn(&Totals) -> u64| {
            let mut all: Vec<(Reverse<u64>, i64)> =
                self.files.iter().map(|(f, t)| (Reverse(key(t)), *f)).filter(|(k, _)| k.0 > 0).collect();
            all.sort_unstable();
            all.into_iter().take(top).map(|(_, f)| f).collect::<Vec<_>>()
        };
        let (by_bytes, by_time) = (best(Totals::bytes), best(|t| t.time_ns));
        let wanted: HashSet<i64> = by_bytes.iter().chain(&by_time).copied().collect();
        let mut rows: HashMap<i64, File> = HashMap::new();
        let mut mounts: HashMap<i64, (u64, Totals)> = HashMap::new();
        for row in reel.rows::<File>() {
            let row = row?;
            if let Some(totals) = self.files.get(&row.file) {
                let (files, sum) = mounts.entry(row.sb_dev).or_default();
                *files += 1;
                sum.add(totals);
            }
            if wanted.contains(&row.file) {
                rows.insert(row.file, row);
            }
        }
        let summary = |file: &i64| {
            let row = rows.get(file);
            let fstype = row.and_then(|r| reel.manifest.mount_of(r.sb_dev)).map(|m| m.fstype.clone());
            FileSummary {
                file: *file,
                path: row.and_then(|r| r.path.as_ref()).map(Text::to_string),
                kind: row.map(|r| r.kind.to_string()).unwrap_or_default(),
                fstype: fstype.unwrap_or_default(),
                totals: self.files.get(file).copied().unwrap_or_default(),
            }
        };
        let by_bytes = by_bytes.iter().map(summary).collect();
        let by_time = by_time.iter().map(summary).collect();
        Ok(FileTotals { by_bytes, by_time, mounts: mount_summaries(reel, &mounts), count: self.files.len() as u64 })
    }

    /// The `top` processes by time in calls, and the total number of processes. Memory: one entry per thread with a
    /// call, and one per thread that does not lead its process.
    pub fn processes(&self, reel: &Reel, top: usize) -> Result<(Vec<ProcessSummary>, u64)> {
        let leaders = Leaders::of(reel)?;
        let mut totals: FxHashMap<i64, Totals> = FxHashMap::default();
        for (task, of_task) in &self.tasks {
            totals.entry(leaders.of_task(*task)).or_default().add(of_task);
        }
        let (best, count) = best_processes(reel, top, &leaders, &totals)?;
        let threads = leaders.threads();
        let mut processes: HashMap<i64, ProcessSummary> = HashMap::new();
        let segments: BTreeSet<usize> = best.values().copied().collect();
        for row in segments.into_iter().flat_map(|segment| reel.segment_rows::<Task>(segment)) {
            let task = row?;
            if best.contains_key(&task.task_id) {
                let summary = ProcessSummary {
                    task_id: task.task_id,
                    pid: task.pid,
                    comm: task.comm.to_string(),
                    program: None,
                    threads: 1 + threads.get(&task.task_id).copied().unwrap_or(0),
                    start_ns: task.start_ns,
                    exit_ns: task.exit_ns,
                    exit_code: task.exit_code,
                    totals: totals.get(&task.task_id).copied().unwrap_or_default(),
                };
                processes.insert(task.task_id, summary);
            }
        }
        for exec in reel.rows::<Exec>() {
            let exec = exec?;
            if let Some(p) = processes.get_mut(&leaders.of_task(exec.task_id)) {
                p.program = Some(exec.path.to_string());
            }
        }
        let mut all: Vec<ProcessSummary> = processes.into_values().collect();
        all.sort_by_key(|p| (Reverse(p.totals.time_ns), p.start_ns, p.task_id));
        Ok((all, count))
    }
}

/// The leaders of the `top` processes, each with the segment of its row, and the total number of processes.
fn best_processes(
    reel: &Reel,
    top: usize,
    leaders: &Leaders,
    totals: &FxHashMap<i64, Totals>,
) -> Result<(HashMap<i64, usize>, u64)> {
    // A heap with the worst of the best on top.
    let mut best: BinaryHeap<(Reverse<u64>, i64, i64, usize)> = BinaryHeap::new();
    let mut count = 0;
    for segment in 0..reel.segments::<Task>().len() {
        for batch in reel.segment_batches::<Task>(segment, &["task_id", "start_ns"]) {
            let batch = batch?;
            let id = column::<i64>(&batch, "task_id").map_err(bad_column(Task::TABLE))?;
            let start_ns = column::<i64>(&batch, "start_ns").map_err(bad_column(Task::TABLE))?;
            for i in 0..batch.num_rows() {
                let id = <i64 as Cell>::get(&id, i);
                if leaders.of_task(id) != id {
                    continue;
                }
                count += 1;
                let time_ns = totals.get(&id).map_or(0, |t| t.time_ns);
                best.push((Reverse(time_ns), <i64 as Cell>::get(&start_ns, i), id, segment));
                if best.len() > top {
                    best.pop();
                }
            }
        }
    }
    Ok((best.into_iter().map(|(_, _, id, segment)| (id, segment)).collect(), count))
}

fn mount_summaries(reel: &Reel, totals: &HashMap<i64, (u64, Totals)>) -> Vec<MountSummary> {
    let mut out: Vec<MountSummary> = reel
        .manifest
        .mounts
        .iter()
        .map(|m| {
            let (files, totals) = totals.get(&m.sb_dev).copied().unwrap_or_default();
            MountSummary {
                sb_dev: m.sb_dev,
                fstype: m.fstype.clone(),
                source: m.source.clone(),
                mountpoint: m.mountpoint.clone(),
                options: m.options.clone(),
                total_bytes: m.total_bytes,
                free_bytes: m.free_bytes,
                files,
                totals,
            }
        })
        .collect();
    out.sort_by(|a, b| b.totals.time_ns.cmp(&a.totals.time_ns).then_with(|| a.mountpoint.cmp(&b.mountpoint)));
    out
}
