//! The live view. Uses the same probes and the same path from records to rows as a recording, but adds rows up in
//! memory by file, process and device. Writes to no disk.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ioreel_traces::{
    ReelWriter,
    rows::{Block, File, Op, Task},
    writer::Tap,
};

use crate::{
    CaptureError,
    assemble::{Assembler, context_filter::Sieve},
    host::{self, signals},
    pipeline::{Message, Pipeline, settle::drain},
    probes::{
        filter::Filter,
        session::{Caller, Plan, Session, Storage, Targets},
    },
};

/// Interval between two passes over the rings.
const TICK: Duration = Duration::from_millis(4);
/// Maximum number of files and of processes; beyond it, those least recently active are dropped.
const REMEMBERED: usize = 50_000;

/// Totals of calls or requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of calls, or of requests of a device.
    pub count: u64,
    /// How many of these failed.
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Total time in calls, or from issue to completion, ns.
    pub time_ns: u64,
    /// Longest one, ns.
    pub max_ns: u64,
}

impl Work {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.time_ns += other.time_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }

    /// Mean time, ns.
    pub fn mean_ns(&self) -> u64 {
        self.time_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// A line of a view.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Path, program or device name.
    pub name: String,
    /// File id, process id or device number.
    pub id: i64,
    /// Since the last view.
    pub recent: Work,
    /// Since the start.
    pub total: Work,
}

/// A view of the current totals.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Time since the last view.
    pub recent: Duration,
    /// Time since the start.
    pub elapsed: Duration,
    /// By file.
    pub files: Vec<Entry>,
    /// By process.
    pub processes: Vec<Entry>,
    /// By device; requests.
    pub devices: Vec<Entry>,
    /// All calls.
    pub calls: Entry,
    /// Events lost so far.
    pub lost: u64,
    /// Files and processes dropped to bound memory.
    pub forgotten: u64,
}

struct Sum {
    name: String,
    recent: Work,
    total: Work,
    touched: Instant,
}

/// Totals by key, with a bounded number of keys.
struct Sums<K> {
    of: HashMap<K, Sum>,
    forgotten: u64,
}

impl<K> Default for Sums<K> {
    fn default() -> Self {
        Self { of: HashMap::new(), forgotten: 0 }
    }
}

impl<K: Hash + Eq + Copy + Ord> Sums<K> {
    fn get(&mut self, key: K) -> &mut Sum {
        if self.of.len() >= REMEMBERED && !self.of.contains_key(&key) {
            let mut ages: Vec<(Instant, K)> = self.of.iter().map(|(k, s)| (s.touched, *k)).collect();
            ages.sort_unstable();
            let old = ages.len() / 4;
            for (_, k) in &ages[..old] {
                self.of.remove(k);
            }
            self.forgotten += old as u64;
        }
        let now = Instant::now();
        let sum = self.of.entry(key).or_insert_with(|| Sum {
            name: String::new(),
            recent: Work::default(),
            total: Work::default(),
            touched: now,
        });
        sum.touched = now;
        sum
    }

    fn add(&mut self, key: K, work: &Work) {
        let sum = self.get(key);
        sum.recent.add(work);
        sum.total.add(work);
    }

    fn look(&mut self, id: impl Fn(K) -> i64, mut name: impl FnMut(K, &Sum) -> String) -> Vec<Entry> {
        let worked = self.of.iter_mut().filter(|(_, s)| s.total.count > 0);
        worked
            .map(|(key, s)| {
                let name = name(*key, s);
                Entry { name, id: id(*key), recent: std::mem::take(&mut s.recent), total: s.total }
            })
            .collect()
    }
}

#[derive(Default)]
struct Board {
    files: Sums<i64>,
    processes: Sums<i32>,
    devices: Sums<i64>,
    calls: (Work, Work),
    lost: u64,
}

fn work_of(op: &Op) -> Work {
    let ret = op.ret.unwrap_or(0);
    let moved = ret.max(0) as u64;
    let (mut read_bytes, mut write_bytes) = (0, 0);
    match &*op.op {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" => read_bytes = moved,
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => write_bytes = moved,
        "copy_file_range" | "sendfile" | "splice" => (read_bytes, write_bytes) = (moved, moved),
        _ => {}
    }
    let time_ns = op.dur_ns.max(0) as u64;
    Work { count: 1, errors: u64::from(ret < 0), read_bytes, write_bytes, time_ns, max_ns: time_ns }
}

fn work_of_request(row: &Block) -> Work {
    let bytes = row.len_bytes.max(0) as u64;
    let time_ns = row.complete_ns.map_or(0, |c| (c - row.issue_ns).max(0) as u64);
    Work {
        count: 1,
        errors: u64::from(row.error != 0),
        read_bytes: if row.op == "read" { bytes } else { 0 },
        write_bytes: if row.op == "write" || row.op == "zone_append" { bytes } else { 0 },
        time_ns,
        max_ns: time_ns,
    }
}

impl Board {
    fn op(&mut self, op: &Op) {
        let work = work_of(op);
        self.calls.0.add(&work);
        self.calls.1.add(&work);
        // The source of a copy is `file` and the destination `file2`; each gets its direction.
        match (op.file, op.file2.filter(|_| op.ofd2.is_some())) {
            (Some(from), Some(to)) => {
                self.files.add(from, &Work { write_bytes: 0, ..work });
                self.files.add(to, &Work { read_bytes: 0, ..work });
            }
            (Some(file), None) | (None, Some(file)) => self.files.add(file, &work),
            (None, None) => {}
        }
        self.processes.add(op.pid, &work);
    }

    fn file(&mut self, file: &File) {
        let kind = &file.kind;
        let nameless = || format!("({kind} {})", file.ino);
        self.files.get(file.file).name = file.path.as_ref().map_or_else(nameless, ToString::to_string);
    }

    fn task(&mut self, task: &Task) {
        // The row comes at the end of the task, when its name can no longer be read.
        if task.pid == task.tid && self.processes.of.contains_key(&task.pid) {
            self.processes.get(task.pid).name = task.comm.to_string();
        }
    }
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Catches SIGINT, SIGTERM, SIGQUIT and SIGHUP, which [`signal`] then returns.
pub fn heed_signals() {
    signals::install();
}

/// Takes one such signal that has arrived.
pub fn signal() -> Option<i32> {
    signals::take().map(|s| s.signal)
}

/// Whether these are processes that this process may look into.
fn expect_own(target: &Targets) -> Result<(), CaptureError> {
    match target {
        Targets::Processes(pids) => pids.iter().try_for_each(|pid| host::expect_own_process(*pid)),
        _ => Err(CaptureError::NotCallers { option: "top without --pid".into() }),
    }
}

/// A running live view.
pub struct Live {
    board: Arc<Mutex<Board>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), CaptureError>>>,
    started: Instant,
    looked: Instant,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Live {
    /// Loads the probes and starts. If there is a `caller`, only its own processes are watched, without devices.
    pub fn start(target: Targets, filter: Filter, caller: Option<Caller>) -> Result<Self, CaptureError> {
        if caller.is_some() {
            expect_own(&target)?;
        }
        let board = Arc::new(Mutex::new(Board::default()));
        let end = Arc::new(AtomicBool::new(false));
        let (ready, loaded) = sync_channel(1);
        let (sums, ended) = (Arc::clone(&board), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let ends = matches!(target, Targets::Command(_) | Targets::Processes(_));
            let plan = Plan { target, filter: filter.clone(), caller, block: caller.is_none(), ..Plan::default() };
            let mut storage = Storage::default();
            let begun = Session::load(&plan, &mut storage).and_then(|s| begin(s, filter, &sums));
            match begun {
                Ok((session, pipeline)) => {
                    // The receiver waits, so this does not fail.
                    let _ = ready.send(Ok(()));
                    follow(session, pipeline, &sums, &ended, ends)
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                    Ok(())
                }
            }
        });
        loaded
            .recv()
            .unwrap_or(Err(CaptureError::Bpf { doing: "loading them", why: "the live view's thread died".into() }))?;
        let now = Instant::now();
        Ok(Self { board, end, thread: Some(thread), started: now, looked: now })
    }

    /// Whether the view has ended: the target has ended, or the probes failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Totals since the last view, and since the start.
    pub fn look(&mut self) -> View {
        let now = Instant::now();
        let mut board = locked(&self.board);
        let files =
            board.files.look(|k| k, |k, s| if s.name.is_empty() { format!("(file {k})") } else { s.name.clone() });
        let processes = board.processes.look(i64::from, |pid, s| {
            let alive = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|c| c.trim_end().to_owned());
            alive.unwrap_or_else(|| if s.name.is_empty() { "(ended)".into() } else { s.name.clone() })
        });
        let devices = board.devices.look(|k| k, |k, _| host::device(k).name);
        let calls =
            Entry { name: "all".into(), id: 0, recent: std::mem::take(&mut board.calls.0), total: board.calls.1 };
        let forgotten = board.files.forgotten + board.processes.forgotten;
        let view = View {
            recent: now - self.looked,
            elapsed: now - self.started,
            files,
            processes,
            devices,
            calls,
            lost: board.lost,
            forgotten,
        };
        drop(board);
        self.looked = now;
        view
    }

    /// Stops the view. Returns the error that ended it earlier, if any.
    pub fn stop(mut self) -> Result<(), CaptureError> {
        self.end.store(true, Ordering::Relaxed);
        let died = || CaptureError::Bpf { doing: "watching", why: "the live view's thread died".into() };
        self.thread.take().map_or(Ok(()), |t| t.join().map_err(|_| died())?)
    }
}

fn begin<'a>(
    mut session: Session<'a>,
    filter: Filter,
    board: &Arc<Mutex<Board>>,
) -> Result<(Session<'a>, Pipeline), CaptureError> {
    let mut writer = ReelWriter::discarding();
    let tap = |b: &Arc<Mutex<Board>>| Arc::clone(b);
    let b = tap(board);
    writer.ops.tap(Tap(Arc::new(move |op| locked(&b).op(op))));
    let b = tap(board);
    writer.block.tap(Tap(Arc::new(move |row| locked(&b).devices.add(row.dev, &work_of_request(row)))));
    let b = tap(board);
    writer.files.tap(Tap(Arc::new(move |row| locked(&b).file(row))));
    let b = tap(board);
    writer.tasks.tap(Tap(Arc::new(move |row| locked(&b).task(row))));
    let t0_ns = host::monotonic_ns();
    let mut assembler = Assembler::new(writer, t0_ns, host::mounts());
    if filter.is_any() {
        assembler.sieve = Some(Sieve::new(filter, session.tables()?));
    }
    let pipeline = Pipeline::start(assembler, Some(session.tables()?), None, None);
    session.activate();
    pipeline.send(Message::Records { bytes: session.adopt()?, complete_to_ns: 0 });
    Ok((session, pipeline))
}

fn follow(
    mut session: Session<'_>,
    pipeline: Pipeline,
    board: &Mutex<Board>,
    end: &AtomicBool,
    ends: bool,
) -> Result<(), CaptureError> {
    /// Interval at which the kernel's counters are read.
    const COUNTS: Duration = Duration::from_millis(500);
    let mut counted = Instant::now();
    while !(end.load(Ordering::Relaxed) || ends && session.alive() <= 0) {
        drain(&session, &pipeline);
        if counted.elapsed() > COUNTS {
            counted = Instant::now();
            locked(board).lost = session.ledgers()?.iter().flat_map(|l| l.lost).sum();
        }
        std::thread::sleep(TICK);
    }
    session.end();
    std::thread::sleep(TICK);
    drain(&session, &pipeline);
    drop(pipeline.finish());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_work_is_told_once_and_total_work_always() {
        let mut board = Board::default();
        let op = |name: &str, ret| Op {
            op: name.into(),
            pid: 7,
            file: Some(3),
            ofd: Some(1),
            ret: Some(ret),
            dur_ns: 100,
            ..Op::default()
        };
        board.op(&op("read", 10));
        board.op(&op("write", 20));
        board.op(&op("write", -5));
        let look = |b: &mut Board| b.files.look(|k| k, |_, s| s.name.clone()).remove(0);
        let first = look(&mut board);
        let expected = Work { count: 3, errors: 1, read_bytes: 10, write_bytes: 20, time_ns: 300, max_ns: 100 };
        assert_eq!((first.recent, first.total), (expected, expected));
        let second = look(&mut board);
        assert_eq!((second.recent, second.total), (Work::default(), expected));
        assert_eq!(first.total.mean_ns(), 100);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sums = Sums::<i64>::default();
        for file in 0..3 * REMEMBERED as i64 {
            sums.add(file, &Work { count: 1, ..Work::default() });
        }
        assert!(sums.of.len() <= REMEMBERED);
        assert_eq!(sums.of.len() as u64 + sums.forgotten, 3 * REMEMBERED as u64);
        assert!(sums.of.contains_key(&(3 * REMEMBERED as i64 - 1)), "the youngest stay");
    }
}
