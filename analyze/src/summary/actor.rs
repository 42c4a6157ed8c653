//! Totals per file, per process and per mount.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use ioreel_traces::{
    Reel, Text,
    rows::{Exec, File, Task},
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{
    Result,
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

/// Collects calls by file and by thread. Memory: one entry per used file and thread.
#[derive(Clone, Debug, Default)]
pub struct ActorMeter {
    files: FxHashMap<i64, Totals>,
    tasks: FxHashMap<i64, Totals>,
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
        self.tasks.entry(call.task_id).or_default().add_call(call, reads, writes);
        // A copy reads its source and writes its destination; its time counts for both.
        let copies = call.kind == Kind::Copy;
        if let Some(file) = call.file {
            self.files.entry(file).or_default().add_call(call, reads, writes && !copies);
        }
        if let Some(file2) = call.file2.filter(|f| Some(*f) != call.file) {
            self.files.entry(file2).or_default().add_call(call, false, copies);
        }
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

    /// The `top` processes by time in calls, and the total number of processes.
    pub fn processes(&self, reel: &Reel, top: usize) -> Result<(Vec<ProcessSummary>, u64)> {
        let tasks: HashMap<i64, Task> =
            reel.rows::<Task>().map(|t| t.map(|t| (t.task_id, t))).collect::<Result<_, _>>()?;
        let mut processes: HashMap<i64, ProcessSummary> = HashMap::new();
        for task in tasks.values() {
            let id = leader(task, &tasks);
            let lead = tasks.get(&id).unwrap_or(task);
            let p = processes.entry(id).or_insert_with(|| ProcessSummary {
                task_id: id,
                pid: lead.pid,
                comm: lead.comm.to_string(),
                program: None,
                threads: 0,
                start_ns: lead.start_ns,
                exit_ns: lead.exit_ns,
                exit_code: lead.exit_code,
                totals: Totals::default(),
            });
            p.threads += 1;
            if let Some(totals) = self.tasks.get(&task.task_id) {
                p.totals.add(totals);
            }
        }
        for exec in reel.rows::<Exec>() {
            let exec = exec?;
            let id = tasks.get(&exec.task_id).map_or(exec.task_id, |t| leader(t, &tasks));
            if let Some(p) = processes.get_mut(&id) {
                p.program = Some(exec.path.to_string());
            }
        }
        let count = processes.len() as u64;
        let mut all: Vec<ProcessSummary> = processes.into_values().collect();
        all.sort_by_key(|p| (Reverse(p.totals.time_ns), p.start_ns, p.task_id));
        all.truncate(top);
        Ok((all, count))
    }
}

/// `CLONE_THREAD`: the new task is a thread of its parent's process.
const CLONE_THREAD: i64 = 0x1_0000;

fn leader(task: &Task, tasks: &HashMap<i64, Task>) -> i64 {
    let mut at = task;
    // Bounded, because the parents in a damaged reel may form a cycle.
    for _ in 0..tasks.len() {
        match at.parent.and_then(|p| tasks.get(&p)) {
            Some(parent) if at.clone_flags & CLONE_THREAD != 0 => at = parent,
            _ => break,
        }
    }
    at.task_id
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
