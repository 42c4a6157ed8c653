//! The workload of the ground-truth test: eight threads in three processes issue a list of calls that is the
//! same every time, successes and failures alike, and write down what the reel should say of each.

pub(crate) mod caller;
mod calls;
mod catalogue;
mod failures;
mod ioctls;
pub(crate) mod log;
mod more;
mod mounts;
mod names;
mod narrow;
mod narrow_rest;
mod passing;
mod rare;
mod users;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
};

use caller::{Caller, Open};
use log::{ThreadLog, record};

/// The argument that makes the test program run the workload instead.
pub(crate) const WORD: &str = "workload";
/// Variable of the environment that names a block device of the workload's own.
pub(crate) const DEVICE: &str = "IOREEL_TEST_DEVICE";
/// Threads by process; the first of each is its main thread.
pub(crate) const THREADS: [&[u32]; 3] = [&[0, 1, 2], &[3, 4, 5], &[6, 7]];
/// Exit codes of the processes.
pub(crate) const EXIT_CODES: [i32; 3] = [0, 11, 12];
/// The file that all processes write to through one open file description.
pub(crate) const SHARED: &str = "shared-position";
/// The file that every thread appends to through a description of its own.
pub(crate) const APPENDED: &str = "appended";
/// Writes of each thread to each of these.
const RECORDS: u32 = 20;

/// Runs the workload in the empty folder `base` and writes the logs of its processes to the folder `logs`.
pub(crate) fn run(base: &str, logs: &Path, lenient: bool) -> i32 {
    LENIENT.store(lenient, SeqCst);
    let gate = Gate::new();
    let mut main = Caller::begin(0);
    for t in THREADS.into_iter().flatten() {
        ok(main.with_mode(libc::SYS_mkdir, "mkdir", home(base, *t), 0o755));
    }
    let shared = main.open(format!("{base}/{SHARED}"), libc::O_RDWR | libc::O_CREAT, 0o640, true);
    let appended = main.creat(format!("{base}/{APPENDED}"), 0o600, true);
    ok(main.close(&appended));
    let mut children = Vec::new();
    for process in [1, 2] {
        // SAFETY: the process has one thread here.
        match unsafe { libc::fork() } {
            0 => {
                let main = Caller::begin(THREADS[process][0]);
                let (mut all, main) = one_process(main, process, base, &shared, gate);
                all.push(main.end());
                write_logs(logs, process, &all);
                // SAFETY: ends the child without running what the parent registered for its exit.
                unsafe { libc::_exit(EXIT_CODES[process]) };
            }
            pid => children.push(pid),
        }
    }
    let (mut all, mut main) = one_process(main, 0, base, &shared, gate);
    for (pid, process) in children.into_iter().zip([1, 2]) {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let ended = unsafe { libc::waitpid(pid, &mut status, 0) };
        assert!(ended == pid && libc::WEXITSTATUS(status) == EXIT_CODES[process], "process {process}: {status:#x}");
    }
    // Everyone has moved the shared position by what they wrote.
    let moved: i64 = THREADS.into_iter().flatten().map(|t| i64::from(RECORDS) * record_len(*t) as i64).sum();
    shared.set_pos(moved);
    assert_eq!(main.lseek(&shared, 0, libc::SEEK_CUR), moved);
    ok(main.on_fd(libc::SYS_fsync, "fsync", &shared));
    ok(main.close(&shared));
    all.push(main.end());
    write_logs(logs, 0, &all);
    EXIT_CODES[0]
}

/// The work of one process; the main thread's log stays open.
fn one_process(mut main: Caller, process: usize, base: &str, shared: &Open, gate: &Gate) -> (Vec<ThreadLog>, Caller) {
    // What concerns the whole process comes while it has one thread.
    catalogue::process_wide(&mut main, base);
    thread::scope(|scope| {
        let others: Vec<_> = THREADS[process][1..]
            .iter()
            .map(|t| scope.spawn(move || one_thread(Caller::begin(*t), base, shared, gate).end()))
            .collect();
        let main = one_thread(main, base, shared, gate);
        (others.into_iter().map(|t| t.join().unwrap()).collect(), main)
    })
}

fn one_thread(mut c: Caller, base: &str, shared: &Open, gate: &Gate) -> Caller {
    let own = home(base, c.thread);
    catalogue::run(&mut c, &own);
    failures::run(&mut c, &own);
    more::run(&mut c, &own);
    passing::run(&mut c, &own);
    rare::run(&mut c, &own);
    narrow::run(&mut c, &own);
    narrow_rest::run(&mut c, &own);
    users::run(&mut c);
    let appended = c.open(format!("{base}/{APPENDED}"), libc::O_WRONLY | libc::O_APPEND, 0, false);
    gate.wait();
    for i in 0..RECORDS {
        let number = c.thread * 1000 + i;
        let bytes = record(number, record_len(c.thread));
        for (open, name) in [(shared, SHARED), (&appended, APPENDED)] {
            assert_eq!(c.write(open, &bytes), bytes.len() as i64);
            c.last().record = Some((name.into(), number));
        }
    }
    ok(c.close(&appended));
    c
}

/// Each thread's folder.
fn home(base: &str, thread: u32) -> String {
    format!("{base}/t{thread}")
}

/// Each thread's records have a length of their own.
fn record_len(thread: u32) -> usize {
    100 + 37 * thread as usize
}

fn write_logs(logs: &Path, process: usize, all: &[ThreadLog]) {
    fs::write(logs.join(format!("{process}.json")), serde_json::to_vec(all).unwrap()).unwrap();
}

/// The file system has not everything: results are what they are, and only the record of them counts.
static LENIENT: AtomicBool = AtomicBool::new(false);

/// i386's numbers of calls that are counted instead of recorded (oldstat, oldlstat); each thread makes one of each.
pub(crate) const NOT_RECORDED_32: [i64; 2] = [18, 84];

#[track_caller]
fn results(ret: i64, expected: i64) {
    assert!(ret == expected || LENIENT.load(SeqCst), "{ret}, expected {expected}");
}

#[track_caller]
fn ok(ret: i64) -> i64 {
    assert!(ret >= 0 || LENIENT.load(SeqCst), "{}", std::io::Error::from_raw_os_error(-ret as i32));
    ret
}

#[track_caller]
fn fails(ret: i64, errno: i32) {
    assert!(
        ret == -i64::from(errno) || LENIENT.load(SeqCst),
        "{ret}, expected {}",
        std::io::Error::from_raw_os_error(errno)
    );
}

/// Where all threads of all processes meet, so that they write to the shared files at the same time.
struct Gate(AtomicU32);

impl Gate {
    fn new() -> &'static Self {
        // SAFETY: a fresh anonymous mapping, shared with the children and never unmapped; zero is a valid Gate.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        }
    }

    fn wait(&self) {
        let all = THREADS.iter().map(|t| t.len() as u32).sum::<u32>();
        self.0.fetch_add(1, SeqCst);
        let since = std::time::Instant::now();
        while self.0.load(SeqCst) < all {
            // A thread that failed on its way never comes: what it said would not be heard while the others wait.
            assert!(since.elapsed().as_secs() < 60, "another thread does not come");
            thread::yield_now();
        }
    }
}
