//! `--lossless`: rings far too small, a recorder that stands still again and again, and no operation is lost.

mod away;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ioreel_traces::{
    Reel,
    rows::{Op, Stop},
};

pub(crate) use away::{
    STORED_BYTES, WORD, a_guardian_is_not_recorded, loads_that_stand_still, requests_behind_bios,
    requests_by_calls_left_out, requests_in_workers, requests_of_a_polled_queue, stores_to_memory, work,
};

use crate::harness::{describe, finish, ioreel, patience, record, succeed, temp_dir, text, wait_for};

/// Processes and threads that make calls whose number is known: short ones, ones with the longest paths, forks.
const WORKLOAD: &str = "
import os, sys, threading
base, procs, threads, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
long_path = '/no-such-folder' + '/x' * 2000
def work(number):
    fd = os.open(base + '/file', os.O_RDONLY)
    for i in range(calls):
        os.pread(fd, 1, number * calls + i)
        if i % 20 == 0:
            try: os.rename(long_path, long_path)
            except OSError: pass
        if i % 200 == 0:
            own = f'{base}/{number}-{i}-' + 'n' * 200
            os.close(os.open(own, os.O_WRONLY | os.O_CREAT))
        if i % 500 == 0:
            pid = os.fork()
            if pid == 0:
                os.pread(fd, 2, number)
                os._exit(0)
            os.waitpid(pid, 0)
pids = []
for p in range(procs):
    pid = os.fork()
    if pid == 0:
        all = [threading.Thread(target=work, args=(p * threads + t,)) for t in range(threads)]
        for t in all: t.start()
        for t in all: t.join()
        os._exit(0)
    pids.append(pid)
open(base + '/begun', 'w').close()
for pid in pids:
    assert os.waitpid(pid, 0)[1] == 0
open(base + '/done', 'w').write('done')
";

const PROCESSES: i64 = 4;
const THREADS: i64 = 6;
const CALLS: i64 = 3_000;

fn start(reel: &Path, base: &Path, options: &[&str]) -> Child {
    fs::write(base.join("file"), "x").unwrap();
    let numbers = [PROCESSES, THREADS, CALLS].map(|n| n.to_string());
    let command = ["python3", "-c", WORKLOAD, text(base), &numbers[0], &numbers[1], &numbers[2]];
    let options = [&["--ring-mib", "1", "--no-snapshot"], options].concat();
    record(reel, &options, &command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: to a process that this test started and has not waited for, or one of its children.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Stops and resumes the recorder until told to end: the rings fill each time.
fn hinder(recorder: u32) -> impl FnOnce() {
    let end = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&end);
    let thread = std::thread::spawn(move || {
        while !told.load(Ordering::Relaxed) {
            kill(recorder, libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(40));
            kill(recorder, libc::SIGCONT);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    move || {
        end.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    }
}

pub(crate) fn loses_no_operation() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let base = out.path().join("base");
    fs::create_dir(&base).unwrap();
    let child = start(&reel, &base, &["--lossless"]);
    wait_for("the recording to begin", || reel.join("manifest.json").exists().then_some(()));
    let stop_hindering = hinder(child.id());
    wait_for("the workload's end", || base.join("done").exists().then_some(()));
    stop_hindering();
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));

    succeed(&mut ioreel(["validate", text(&reel)]));
    let reel = Reel::open(&reel).unwrap();
    let ops = reel.manifest.ledger["ops"];
    // A map that another thread was changing cannot be asked whether the memory of a call is a file's.
    let no_files = reel.manifest.left_out.get("unmappings of memory that is no recorded file's").copied().unwrap_or(0);
    assert_eq!((ops.lost, ops.seen), (0, ops.written + no_files), "{:?}", reel.manifest);
    let stops = reel.read::<Stop>().unwrap();
    assert!(stops.len() > 3, "{} stops", stops.len());
    assert!(stops.iter().all(|s| s.dur_ns > 0 && s.start_ns > 0), "{stops:?}");

    let mut preads: BTreeMap<i64, i64> = BTreeMap::new();
    let (mut renames, mut children, mut creates) = (0, 0, 0);
    for op in reel.read::<Op>().unwrap() {
        match (&*op.op, op.len_bytes) {
            ("pread64", Some(1)) => *preads.entry(op.offset_bytes.unwrap()).or_default() += 1,
            ("pread64", Some(2)) => children += 1,
            ("rename", _) => {
                assert_eq!(op.path.as_deref().map(str::len), Some(15 + 4000), "{op:?}");
                renames += 1;
            }
            ("openat", _) if op.path.as_deref().is_some_and(|p| p.contains("-nnn")) => creates += 1,
            _ => {}
        }
    }
    let threads = PROCESSES * THREADS;
    let expected: BTreeMap<i64, i64> = (0..threads * CALLS).map(|at| (at, 1)).collect();
    assert!(preads == expected, "{} of {} offsets", preads.len(), expected.len());
    assert_eq!((renames, children, creates), (threads * 150, threads * 6, threads * 15));
}

/// Requests to io_uring by several processes: those are the program's, and the program can be stopped.
pub(crate) fn loses_no_request() {
    const JOBS: i64 = 4;
    const REQUESTS: i64 = 4096;
    let out = temp_dir();
    let (reel, base) = (out.path().join("x.reel"), out.path().join("base"));
    fs::create_dir(&base).unwrap();
    let (directory, jobs) = (format!("--directory={}", text(&base)), format!("--numjobs={JOBS}"));
    let size = format!("--size={}", REQUESTS * 4096);
    let fio = [
        "fio",
        "--name=job",
        "--ioengine=io_uring",
        "--iodepth=8",
        "--rw=randwrite",
        "--bs=4k",
        "--fallocate=none",
        &directory,
        &jobs,
        &size,
    ];
    let options = ["--ring-mib", "1", "--no-snapshot", "--lossless"];
    let child = record(&reel, &options, &fio).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the recording to begin", || reel.join("manifest.json").exists().then_some(()));
    let begun = || fs::read_dir(&base).is_ok_and(|mut d| d.next().is_some());
    wait_for("fio to begin", || begun().then_some(()));
    let stop_hindering = hinder(child.id());
    std::thread::sleep(Duration::from_secs(3));
    stop_hindering();
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    succeed(&mut ioreel(["validate", text(&reel)]));
    let reel = Reel::open(&reel).unwrap();
    let m = &reel.manifest;
    let writes = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.source == "io_uring" && o.op == "write");
    let mut per_process: BTreeMap<i32, i64> = BTreeMap::new();
    writes.for_each(|o| *per_process.entry(o.pid).or_default() += 1);
    assert_eq!(m.ledger["ops"].lost, 0, "{:?}", m.ledger);
    assert_eq!(per_process.values().copied().collect::<Vec<_>>(), vec![REQUESTS; JOBS as usize], "{m:?}");
    assert!(!reel.read::<Stop>().unwrap().is_empty(), "the rings never filled");
}

/// The state of a process as in /proc/PID/stat: `T` stands still.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

/// Below the recorder: the command, and its processes.
fn workers(recorder: u32) -> Vec<u32> {
    let command: Vec<u32> = children(recorder).into_iter().filter(|p| !guardian(*p)).collect();
    command.iter().flat_map(|p| children(*p)).collect()
}

fn guardian(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == "ioreel-guardian")
}

/// Stops the recorder until some process of the workload stands still for it; gives that process. Not before all
/// its processes are there: where `python3` is a script that looks for Python first, that one would be stopped.
fn until_stopped(recorder: u32, base: &Path) -> u32 {
    wait_for("the workload to begin", || base.join("begun").exists().then_some(()));
    kill(recorder, libc::SIGSTOP);
    wait_for("a process to be stopped", || workers(recorder).into_iter().find(|p| state(*p) == Some('T')))
}

pub(crate) fn a_guardian_resumes_when_the_recorder_is_killed() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let base = out.path().join("base");
    fs::create_dir(&base).unwrap();
    let mut child = start(&reel, &base, &["--lossless"]);
    until_stopped(child.id(), &base);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the workload's end", || base.join("done").exists().then_some(()));
}

/// Who was stopped by somebody else stays so until that one resumes it.
pub(crate) fn a_stop_by_others_stays() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let base = out.path().join("base");
    fs::create_dir(&base).unwrap();
    let child = start(&reel, &base, &["--lossless"]);
    let stopped = until_stopped(child.id(), &base);
    kill(stopped, libc::SIGSTOP);
    kill(child.id(), libc::SIGCONT);
    wait_for("the others to end", || {
        let others: Vec<u32> = workers(child.id()).into_iter().filter(|p| *p != stopped).collect();
        others.iter().all(|p| matches!(state(*p), None | Some('Z'))).then_some(())
    });
    assert_eq!(state(stopped), Some('T'));
    kill(stopped, libc::SIGCONT);
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(Reel::open(&reel).unwrap().manifest.ledger["ops"].lost, 0);
}

/// Each is stopped, and resumed, by two recorders that know nothing of each other.
pub(crate) fn two_recorders_of_one_process() {
    let out = temp_dir();
    let reels = ["x.reel", "y.reel"].map(|name| out.path().join(name));
    let base = out.path().join("base");
    fs::create_dir(&base).unwrap();
    let first = start(&reels[0], &base, &["--lossless"]);
    // While the second loads its probes, the workload stands still for the first.
    until_stopped(first.id(), &base);
    let pids: Vec<String> = workers(first.id()).iter().map(ToString::to_string).collect();
    let options: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    let log = out.path().join("log");
    let second = ioreel(["-v", "record", "-o", text(&reels[1]), "--lossless", "--ring-mib", "1", "--no-snapshot"])
        .args(options)
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let has_begun = || fs::read_to_string(&log).unwrap().contains("the recording has begun");
    wait_for("the second recording to begin", || has_begun().then_some(()));
    kill(first.id(), libc::SIGCONT);
    let stop_hindering = [first.id(), second.id()].map(hinder);
    wait_for("the workload's end", || base.join("done").exists().then_some(()));
    stop_hindering.into_iter().for_each(|stop| stop());
    for recorder in [first, second] {
        let output = finish(recorder);
        assert!(output.status.success(), "{}", describe(&output));
    }
    for reel in reels {
        let manifest = Reel::open(&reel).unwrap().manifest;
        let ops = manifest.ledger["ops"];
        // What the one resumes goes on for a call although the other's rings are full.
        assert!(ops.written > 1000 && ops.lost < ops.written / 100, "{ops:?}, {:?}", manifest.warnings);
    }
}

/// A file that grows as long as the process runs, which is in a group of its own: SIGTSTP stops none whose group nobody
/// looks after. Or SIGTSTP is the program's own affair: handled, awaited, or ignored until SIGUSR1 comes. What it has met of
/// those it counts in another file.
const GROWING: &str = "
import os, signal, sys, threading, time
base, how = sys.argv[1:]
met = 0
def count(*_):
    global met
    met += 1
    os.pwrite(out, b'%08d' % met, 0)
out = os.open(base + '/met', os.O_WRONLY | os.O_CREAT)
os.pwrite(out, b'%08d' % 0, 0)
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    sys.exit()
os.setpgid(0, 0)
def restore(*_):
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    count()
if how == 'handles': signal.signal(signal.SIGTSTP, count)
if how == 'awaits': signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
if how == 'ignores':
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, restore)
def work(number):
    fd = os.open(base + '/grows', os.O_WRONLY | os.O_CREAT)
    for i in range(1 << 40):
        os.pwrite(fd, b'x', 3 * i + number)
for t in range(3): threading.Thread(target=work, args=(t,), daemon=True).start()
open(base + '/pid', 'w').write(str(os.getpid()))
while how == 'awaits':
    signal.sigwait({signal.SIGTSTP})
    count()
while True: time.sleep(0.01)
";

/// The process and its threads get the CPU last of all.
fn neglect(pid: u32) {
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task: u32 = text(&task.unwrap().path()).rsplit('/').next().unwrap().parse().unwrap();
        // SAFETY: changes a priority.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, task, 19) };
    }
}

/// Whoever stops it, and whenever: between stops of ours, in the middle of one, after one that is over; also while a recorder that waits for the
/// CPU is between resuming and stopping it.
pub(crate) fn stops_by_others_between_ours() {
    let out = temp_dir();
    let (reel, base) = (out.path().join("x.reel"), out.path().to_owned());
    let options = ["--lossless", "--ring-mib", "1", "--ops-only", "--no-snapshot"];
    let command = ["python3", "-c", GROWING, text(&base), "stops"];
    let child = record(&reel, &options, &command).stderr(Stdio::piped()).spawn().unwrap();
    let pid: u32 =
        wait_for("the workload to begin", || fs::read_to_string(base.join("pid")).ok().and_then(|p| p.parse().ok()));
    let size = || fs::metadata(base.join("grows")).map_or(0, |m| m.len());
    // For a moment it goes on when our own stop ends.
    let stands = || {
        let (mut last, mut since) = (size(), Instant::now());
        let (begun, enough_to_stand) = (since, patience(Duration::from_secs(4)));
        while begun.elapsed() < enough_to_stand && since.elapsed() < Duration::from_millis(150) {
            std::thread::sleep(Duration::from_millis(10));
            if size() != last {
                (last, since) = (size(), Instant::now());
            }
        }
        since.elapsed() >= Duration::from_millis(150)
    };
    let idle = AtomicBool::new(false);
    let mut undone = Vec::new();
    // Should this fail in between, nobody would tell the busy thread, which the scope waits for.
    let enough = Instant::now() + patience(Duration::from_secs(120));
    std::thread::scope(|scope| {
        for i in 0..36 {
            if i == 18 {
                neglect(child.id());
                scope.spawn(|| {
                    while !idle.load(Ordering::Relaxed) && Instant::now() < enough {
                        std::hint::spin_loop();
                    }
                });
            }
            let signal = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTSTP][i % 3];
            std::thread::sleep(Duration::from_millis(30 + 7 * (i as u64 % 18)));
            kill(pid, signal);
            if !stands() {
                undone.push((i, signal));
            }
            kill(pid, libc::SIGCONT);
        }
        idle.store(true, Ordering::Relaxed);
    });
    let before = size();
    wait_for("it to go on", || (size() > before).then_some(()));
    kill(pid, libc::SIGKILL);
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    assert!(undone.is_empty(), "{undone:?}");
    let reel = Reel::open(&reel).unwrap();
    assert_eq!(reel.manifest.ledger["ops"].lost, 0);
    assert!(reel.count::<Stop>() > 0, "the rings never filled");
}

/// Sends a signal to the thread that began last.
fn kill_thread(pid: u32, signal: i32) {
    let names = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|t| t.unwrap().file_name());
    let last = names.map(|name| text(Path::new(&name)).parse::<u32>().unwrap()).max().unwrap();
    // SAFETY: sends a signal.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, last, signal) };
}

/// A process that is not to outlive its owner: it would go on for ever, and hold what it inherited open.
struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        kill(self.0, libc::SIGKILL);
    }
}

/// A SIGTSTP that comes between stops of ours reaches the program once (one that awaits it: twice, if that was in the middle
/// of a stop), and stops none that did not want to be stopped.
pub(crate) fn a_program_s_own_affair() {
    for how in ["handles", "awaits", "ignores"] {
        let out = temp_dir();
        let (reel, base) = (out.path().join("x.reel"), out.path().to_owned());
        let options = ["--lossless", "--ring-mib", "1", "--ops-only", "--no-snapshot"];
        let command = ["python3", "-c", GROWING, text(&base), how];
        let child = record(&reel, &options, &command).stderr(Stdio::piped()).spawn().unwrap();
        let begun = || fs::read_to_string(base.join("pid")).ok().and_then(|p| p.parse().ok());
        let pid: u32 = wait_for("the workload to begin", begun);
        let workload = Killed(pid);
        let met = || fs::read_to_string(base.join("met")).unwrap().parse::<u32>().unwrap();
        let size = || fs::metadata(base.join("grows")).map_or(0, |m| m.len());
        for sent in 1..=20 {
            std::thread::sleep(Duration::from_millis(10 + 7 * u64::from(sent)));
            // By turns to the process and to one of its threads, which would keep it to itself where it is blocked.
            match (how, sent % 2) {
                ("awaits", _) | (_, 0) => kill(pid, libc::SIGTSTP),
                _ => kill_thread(pid, libc::SIGTSTP),
            }
            if how != "ignores" {
                wait_for("the signal to be met", || (met() >= sent).then_some(()));
            }
        }
        if how == "ignores" {
            kill(pid, libc::SIGUSR1);
            wait_for("the signal to be met", || (met() == 1).then_some(()));
        }
        // Long enough for stops of ours after which it would come again.
        std::thread::sleep(Duration::from_millis(500));
        let before = size();
        wait_for("it to go on", || (size() > before).then_some(()));
        let expected = match how {
            "handles" => 20..=20,
            "awaits" => 20..=40,
            _ => 1..=1,
        };
        assert!(expected.contains(&met()), "{how}: {}", met());
        drop(workload);
        let output = finish(child);
        assert!(output.status.success(), "{}", describe(&output));
        assert!(Reel::open(&reel).unwrap().count::<Stop>() > 0, "the rings never filled");
    }
}
