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
use super::paths::{Group, Groups};
pub use super::totals::Totals;
use crate::{
    Result, bad_column,
    events::{
        calls::{Call, Kind},
        targets::{Moved, Target, Targets},
    },
};

/// Maximum number of files whose calls are summed: 200 MB.
pub const MOST_ACTORS: usize = 3_500_000;
/// Maximum number of threads whose calls are summed: 200 MB.
pub const MOST_THREADS: usize = 1_750_000;

/// Collects calls by file and by thread. Memory: one entry per used file and thread, at most [`MOST_ACTORS`] and
/// [`MOST_THREADS`].
#[derive(Clone, Debug, Default)]
pub struct ActorMeter {
    files: FxHashMap<i64, Totals>,
    tasks: FxHashMap<i64, (Totals, Moved)>,
    /// Number of calls of further files and threads.
    left_out: u64,
}

/// Totals of the files of one path: all calls on them, by descriptor or by opening them.
#[derive(Clone, Debug, Serialize)]
pub struct FileSummary {
    /// Key into `files`, of the first one.
    pub file: i64,
    /// Number of files that had this path, one after the other.
    pub files: u64,
    /// Keys of all of them.
    #[serde(skip)]
    pub keys: Vec<i64>,
    /// Path when first seen. `None` if unknown.
    pub path: Option<String>,
    /// What it is for bytes.
    pub target: Target,
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
    /// The bytes of these, by where they went to and came from.
    pub moved: Moved,
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
    /// What the calls added up to. Bytes are those of files, not those of pipes and devices whose names lie there.
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
    /// Number of paths that these files had.
    pub paths: u64,
}

impl ActorMeter {
    /// Adds a call.
    pub fn push(&mut self, call: &Call<'_>) {
        let ((from, read), (to, written)) = call.moved();
        let mut left_out = false;
        if self.tasks.len() < MOST_THREADS || self.tasks.contains_key(&call.task_id) {
            let (totals, moved) = self.tasks.entry(call.task_id).or_default();
            totals.add_call(call, read, written);
            moved.add_bytes((from, read), (to, written));
        } else {
            left_out = true;
        }
        let mut add = |id: i64, read: u64, written: u64| {
            if self.files.len() < MOST_ACTORS || self.files.contains_key(&id) {
                self.files.entry(id).or_default().add_call(call, read, written);
            } else {
                left_out = true;
            }
        };
        // A copy reads its source and writes its destination; its time counts for both.
        let copies = call.kind == Kind::Copy;
        if let Some(file) = call.file {
            add(file, read, if copies { 0 } else { written });
        }
        if let Some(file2) = call.file2.filter(|f| Some(*f) != call.file) {
            add(file2, 0, if copies { written } else { 0 });
        }
        self.left_out += u64::from(left_out);
    }

    /// Number of calls on files beyond the first [`MOST_ACTORS`], or of threads beyond the first [`MOST_THREADS`].
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The `top` paths by bytes and by time, and all mounts.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn files(&self, reel: &Reel, top: usize) -> Result<FileTotals> {
        let targets = Targets::of(reel)?;
        let groups = Groups::of(reel, &self.files)?;
        let by_bytes = groups.best(top, &self.files, |(bytes, _)| bytes);
        let by_time = groups.best(top, &self.files, |(_, time_ns)| time_ns);
        let wanted: HashSet<i64> =
            by_bytes.iter().chain(&by_time).filter_map(|group| group.files.first().copied()).collect();
        let mut rows: HashMap<i64, File> = HashMap::new();
        let mut mounts: HashMap<i64, (u64, Totals)> = HashMap::new();
        for row in reel.rows::<File>() {
            let row = row?;
            if let Some(totals) = self.files.get(&row.file) {
                let (files, sum) = mounts.entry(row.sb_dev).or_default();
                *files += 1;
                let is_file = targets.of_file(Some(row.file)) == Target::Files;
                let bytes = |n: u64| if is_file { n } else { 0 };
                let (read_bytes, write_bytes) = (bytes(totals.read_bytes), bytes(totals.write_bytes));
                sum.add(&Totals { read_bytes, write_bytes, ..*totals });
            }
            if wanted.contains(&row.file) {
                rows.insert(row.file, row);
            }
        }
        let summary = |group: Group| {
            let first = group.files.first().copied().unwrap_or_default();
            let row = rows.get(&first);
            let fstype = row.and_then(|r| reel.manifest.mount_of(r.sb_dev)).map(|m| m.fstype.clone());
            FileSummary {
                file: first,
                files: group.files.len() as u64,
                keys: group.files,
                path: row.and_then(|r| r.path.as_ref()).map(Text::to_string),
                target: targets.of_file(Some(first)),
                kind: row.map(|r| r.kind.to_string()).unwrap_or_default(),
                fstype: fstype.unwrap_or_default(),
                totals: group.totals,
            }
        };
        Ok(FileTotals {
            by_bytes: by_bytes.into_iter().map(summary).collect(),
            by_time: by_time.into_iter().map(summary).collect(),
            mounts: mount_summaries(reel, &mounts),
            count: self.files.len() as u64,
            paths: groups.count(),
        })
    }

    /// The `top` processes by time in calls, and the total number of processes. Memory: one entry per thread with a
    /// call, and one per thread that does not lead its process.
    pub fn processes(&self, reel: &Reel, top: usize) -> Result<(Vec<ProcessSummary>, u64)> {
        let leaders = Leaders::of(reel)?;
        let mut totals: FxHashMap<i64, (Totals, Moved)> = FxHashMap::default();
        for (task, (of_task, moved)) in &self.tasks {
            let sum = totals.entry(leaders.of_task(*task)).or_default();
            sum.0.add(of_task);
            sum.1.add(moved);
        }
        let (best, count) = best_processes(reel, top, &leaders, &totals)?;
        let threads = leaders.threads();
        let mut processes: HashMap<i64, ProcessSummary> = HashMap::new();
        let segments: BTreeSet<usize> = best.values().copied().collect();
        for row in segments.into_iter().flat_map(|segment| reel.segment_rows::<Task>(segment)) {
            let task = row?;
            if best.contains_key(&task.task_id) {
                let (totals, moved) = totals.get(&task.task_id).copied().unwrap_or_default();
                let summary = ProcessSummary {
                    task_id: task.task_id,
                    pid: task.pid,
                    comm: task.comm.to_string(),
                    program: None,
                    threads: 1 + threads.get(&task.task_id).copied().unwrap_or(0),
                    start_ns: task.start_ns,
                    exit_ns: task.exit_ns,
                    exit_code: task.exit_code,
                    totals,
                    moved,
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
    totals: &FxHashMap<i64, (Totals, Moved)>,
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
                let time_ns = totals.get(&id).map_or(0, |(t, _)| t.time_ns);
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
