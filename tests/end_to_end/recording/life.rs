//! What ends a recording, what it may use, and what it does when that is too little.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use ioreel_traces::{
    Reel,
    manifest::State,
    rows::{Bio, Block, File, Op, Task},
};

use crate::harness::{
    assert_valid, describe,
    device::Device,
    finish, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, run, succeed, temp_dir, text, wait_for,
};

/// Calls `pread` on one file, each with another offset, while the recorder is stopped for parts of it: what it
/// must lose is known to the row.
const OVERLOAD: &str = "
import os, signal, sys, time
path, rounds, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.sched_setaffinity(0, {0})
recorder = os.getppid()
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b'x')
at = 0
for _ in range(rounds):
    os.kill(recorder, signal.SIGSTOP)
    for _ in range(calls):
        os.pread(fd, 1, at)
        at += 1
    os.kill(recorder, signal.SIGCONT)
    time.sleep(0.5)
    for _ in range(100):
        os.pread(fd, 1, at)
        at += 1
    time.sleep(0.2)
";

const ROUNDS: i64 = 3;
const CALLS: i64 = 40_000;

fn overload(reel: &Path, file: &Path, options: &[&str]) -> std::process::Output {
    let (rounds, calls) = (ROUNDS.to_string(), CALLS.to_string());
    let command = ["python3", "-c", OVERLOAD, text(file), &rounds, &calls];
    run(&mut record(reel, &[&["--ring-mib", "2"], options].concat(), &command))
}

/// The file system that a disk lies in, frozen: nothing that is written to the disk ends before it thaws.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(path: &'a Path) -> Self {
        succeed(Command::new("fsfreeze").arg("--freeze").arg(path));
        Self(path)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).status();
    }
}

/// What is in flight when the recording ends is told without an end, and counted.
pub(crate) fn io_in_flight_at_the_end() {
    let (below, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let disk = Device::looped_in(below.path(), 128 << 20);
    let reel = out.path().join("cut.reel");
    let frozen = Frozen::new(below.path());
    let file = format!("--filename={}", text(disk.path()));
    let mut fio = vec!["fio", "--name=job", "--size=64M", "--bs=64k", "--rw=randwrite", "--direct=1", &file];
    fio.extend(["--ioengine=libaio", "--iodepth=32"]);
    let mut record = record(&reel, &["--settle", "none", "--duration", "2"], &fio);
    let child = record.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the recording to end", || {
        Reel::open(&reel).is_ok_and(|r| r.manifest.state == State::Complete).then_some(())
    });
    drop(frozen);
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    let reel = assert_valid(&reel);
    let dev = crate::block::attribution::number(disk.path());
    let requests: Vec<Block> = reel.read().unwrap();
    let bios: Vec<Bio> = reel.read().unwrap();
    let cut: Vec<&Bio> = bios.iter().filter(|b| b.dev == dev && b.op == "write").collect();
    assert_eq!(cut.len(), 32, "{cut:?}");
    assert!(cut.iter().all(|b| b.complete_ns.is_none() && b.class == "data" && b.rq_id.is_none()), "{cut:?}");
    // Nor does the disk tell what it holds; that must not keep the recorder.
    let warnings = &reel.manifest.warnings;
    assert!(warnings.iter().any(|w| w.contains("did not answer within 2 s")), "{warnings:?}");
    let told = |what: &str| {
        let left_out = &reel.manifest.left_out;
        left_out.get(&format!("ends of {what} that no probe saw before the recording's end")).copied().unwrap_or(0)
    };
    assert_eq!(told("bios"), bios.iter().filter(|b| b.complete_ns.is_none()).count() as i64);
    assert_eq!(told("requests"), requests.iter().filter(|r| r.complete_ns.is_none()).count() as i64);
}

/// By how much the probes delay a call is timed while they do, and is no part of the call's own time.
pub(crate) fn what_a_call_is_delayed_by() {
    let out = temp_dir();
    let made = |name: &str, options: &[&str]| {
        let reel = out.path().join(name);
        let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000"];
        succeed(&mut record(&reel, &[&["--settle", "none", "--no-snapshot"], options].concat(), &dd));
        assert_valid(&reel)
    };
    let reel = made("calls.reel", &[]);
    let call_ns = reel.manifest.cost.call_ns.unwrap();
    // Between two calls of this program there is next to nothing but the probes: half of these gaps are of that size.
    let ops: Vec<Op> = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.len_bytes == Some(1)).collect();
    let mut gaps: Vec<i64> = ops.windows(2).map(|o| o[1].start_ns - o[0].start_ns - o[0].dur_ns).collect();
    gaps.sort_unstable();
    let gap_ns = gaps[gaps.len() / 2];
    assert!(gap_ns / 4 < call_ns && call_ns < gap_ns * 4, "{call_ns} of {gap_ns} ns");
    let info = succeed(&mut ioreel(["info", text(reel.path())]));
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("probes delay each recorded call by"), "{info}");
    assert_eq!(made("blocks.reel", &["--block-only"]).manifest.cost.call_ns, None);
}

/// Every event that was lost is counted, and located by CPU and interval.
pub(crate) fn losses_are_exact() {
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let output = overload(&reel, &file, &[]);
    assert!(output.status.success(), "{}", describe(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("events were lost"), "{stderr}");
    succeed(&mut ioreel(["validate", text(&reel)]));
    let reel = Reel::open(&reel).unwrap();
    let m = &reel.manifest;
    let mut found: Vec<Op> = reel.read::<Op>().unwrap();
    found.retain(|o| o.op == "pread64" && o.len_bytes == Some(1));
    let issued = ROUNDS * (CALLS + 100);
    let ops = m.ledger["ops"];
    assert!(ops.lost > 0);
    assert_eq!(ops.lost, issued - found.len() as i64, "{:?}", m.ledger);
    let located: i64 = m.losses.iter().map(|l| l.events).sum();
    assert_eq!(located, m.lost(), "{:?}", m.losses);
    // Each run of missing offsets lies in a told interval of its CPU that misses at least so many.
    let mut runs = 0;
    for pair in found.windows(2) {
        let missing = pair[1].offset_bytes.unwrap() - pair[0].offset_bytes.unwrap() - 1;
        if missing == 0 {
            continue;
        }
        runs += 1;
        let (from, to) = (pair[0].start_ns + pair[0].dur_ns, pair[1].start_ns + pair[1].dur_ns);
        let inside: i64 =
            m.losses.iter().filter(|l| l.cpu == 0 && l.from_ns >= from && l.to_ns <= to).map(|l| l.events).sum();
        assert!(inside >= missing, "{missing} missing from {from} to {to} ns, told: {:?}", m.losses);
    }
    assert!(runs >= ROUNDS, "{runs} holes");
    let info = succeed(&mut ioreel(["info", text(reel.path())]));
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("SOME WERE LOST") && info.contains("Where events were lost"), "{info}");
}

/// The other classes: requests and bios whose number is known, and waits and the page cache, of each of which more is seen
/// than there is room for. Whatever is missing is counted and located.
pub(crate) fn losses_of_every_class() {
    const READS: i64 = 20_000;
    const PROGRAM: &str = "
import mmap, os, signal, sys
device, path, reads = sys.argv[1], sys.argv[2], int(sys.argv[3])
recorder = os.getppid()
raw = os.open(device, os.O_RDONLY | os.O_DIRECT)
room = mmap.mmap(-1, 4096)
f = os.open(path, os.O_RDWR)
os.kill(recorder, signal.SIGSTOP)
for i in range(reads): os.preadv(raw, [room], (i * 7919 % 100000) * 4096)
for i in range(0, 64 << 20, 65536): os.pread(f, 65536, i)
for i in range(0, 64 << 20, 4096): os.pwrite(f, b'x' * 4096, i)
os.fsync(f)
os.kill(recorder, signal.SIGCONT)
";
    let (disk, out) = (Device::looped(DEFAULT_SIZE_BYTES), temp_dir());
    let mount = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let (reel, file) = (out.path().join("x.reel"), mount.path().join("file"));
    fs::write(&file, vec![b'f'; 64 << 20]).unwrap();
    go_cold_with(&[&file]);
    let options = ["--cache", "--waits", "--ring-mib", "1", "--settle", "none", "--no-snapshot"];
    let reads = READS.to_string();
    let args = ["python3", "-c", PROGRAM, text(disk.path()), text(&file), &reads];
    let output = run(&mut record(&reel, &options, &args));
    assert!(output.status.success(), "{}", describe(&output));
    succeed(&mut ioreel(["validate", text(&reel)]));
    let reel = Reel::open(&reel).unwrap();
    let m = &reel.manifest;
    for class in ["ops", "block", "bio", "cache"] {
        let l = m.ledger[class];
        assert!(l.lost > 0, "nothing of {class} was lost: {:?}", m.ledger);
        assert_eq!(l.seen, l.written + l.lost + l.filtered, "{class}: {l:?}");
    }
    // As many as were made on the disk that nobody else uses: those that are there, and those lost on all disks.
    let dev = crate::block::attribution::number(disk.path());
    let there = reel.rows::<Bio>().filter(|b| b.as_ref().unwrap().dev == dev).count() as i64;
    let (bios, requests) = (m.ledger["bio"], m.ledger["block"]);
    assert!(there < READS && there + bios.lost >= READS, "{there} of {READS} bios, {bios:?}");
    let rest = reel.rows::<Bio>().filter(|b| b.as_ref().unwrap().dev != dev).count() as i64;
    assert!(bios.seen - bios.filtered >= READS + rest && requests.seen >= READS, "{bios:?} {requests:?}");
    let located: i64 = m.losses.iter().map(|l| l.events).sum();
    assert_eq!(located, m.lost(), "{:?} {:?}", m.ledger, m.losses);
}

/// Calls as fast as can be for six seconds; writes how many, and a line when it begins.
const BUSY: &str = "
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
end, n = time.monotonic() + 6, 0
while time.monotonic() < end:
    for _ in range(100): os.pread(fd, 1, n)
    n += 100
print(n)
";

/// CPU time of all threads of a process, s.
fn cpu_time(pid: u32) -> Option<f64> {
    let mut clock = 0;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls fill what they are given.
    let known =
        unsafe { libc::clock_getcpuclockid(pid as i32, &mut clock) == 0 && libc::clock_gettime(clock, &mut t) == 0 };
    known.then(|| t.tv_sec as f64 + t.tv_nsec as f64 / 1e9)
}

/// The recorder keeps to its share while a program does all it can; what that costs is told.
pub(crate) fn a_cpu_budget() {
    const SHARE: f64 = 0.05;
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let options = ["--cpu-budget", "5", "--ring-mib", "2", "--settle", "none", "--no-snapshot"];
    let mut command = record(&reel, &options, &["python3", "-c", BUSY, text(&file)]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    wait_for("the program to begin", || file.exists().then_some(()));
    let look = || Some((Instant::now(), cpu_time(pid)?));
    let begun = look().unwrap();
    let mut worst: f64 = 0.0;
    let mut last = begun;
    // Two seconds at a time.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(2));
        let now = look().unwrap();
        worst = worst.max((now.1 - last.1) / (now.0 - last.0).as_secs_f64());
        last = now;
    }
    let whole = (last.1 - begun.1) / (last.0 - begun.0).as_secs_f64();
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    assert!(whole <= SHARE * 1.2 && worst <= SHARE * 1.5, "{whole} of a CPU, {worst} at worst");
    assert!(whole >= SHARE * 0.1, "it goes on: {whole}");
    let calls: i64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    succeed(&mut ioreel(["validate", text(&reel)]));
    let reel = Reel::open(&reel).unwrap();
    let m = &reel.manifest;
    let found =
        reel.read::<Op>().unwrap().iter().filter(|o| o.op == "pread64" && o.len_bytes == Some(1)).count() as i64;
    let lost = m.ledger["ops"].lost;
    assert!(lost > 0, "{:?}", m.ledger);
    // Python's own calls may be lost as well: 12,000 where `python3` is a script that looks for Python first.
    assert!((0..20_000).contains(&(lost - (calls - found))), "{calls} calls, {found} found, {lost} lost");
    assert!(m.cost.waited_ns > 2_000_000_000, "{:?}", m.cost);
}

/// What a budget left in the rings when the program ended is taken then, whole records and all: those of paths take several
/// places, so that passes end in the midst of one.
pub(crate) fn what_a_budget_left_is_taken_at_the_end() {
    const CALLS: usize = 20_000;
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let script = format!("import os\nfor i in range({CALLS}): os.access('/nothing/' + 'x' * (i % 97), 0), os.fstat(0)");
    // What others make the disk do is not to be taken within the budget.
    let options = ["--cpu-budget", "5", "--ring-mib", "256", "--settle", "none", "--no-snapshot", "--ops-only"];
    succeed(&mut record(&reel, &options, &["python3", "-c", &script]));
    let reel = assert_valid(&reel);
    let looked =
        reel.rows::<Op>().filter(|o| o.as_ref().unwrap().path.as_deref().is_some_and(|p| p.starts_with("/nothing/")));
    assert_eq!((looked.count(), reel.manifest.lost()), (CALLS, 0));
    assert!(reel.manifest.cost.waited_ns > 0);
}

pub(crate) fn strict_fails_on_loss() {
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let output = overload(&reel, &file, &["--strict"]);
    assert_eq!(output.status.code(), Some(3), "{}", describe(&output));
    assert!(Reel::open(&reel).unwrap().manifest.lost() > 0);
    let whole = out.path().join("whole.reel");
    succeed(&mut record(&whole, &["--strict"], &["true"]));
    assert_valid(&whole);
}

/// The recording ends when the reel is as large as it may be; the command runs on to its own end.
pub(crate) fn a_largest_size() {
    const MAX: u64 = 500 << 10;
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    // Sizes that do not repeat, so that rows cannot be packed to nothing; and time for the writer, since what the
    // rings hold when the size is reached comes on top.
    let program = "import os, random, sys, time\n\
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
        for i in range(150000):\n\
        \x20   os.pread(fd, random.randrange(1 << 16), random.randrange(1 << 40))\n\
        \x20   if i % 500 == 0: time.sleep(0.01)\n\
        os.write(fd, b'the end')";
    let command = ["python3", "-c", program, text(&file)];
    let options = ["--max-size", "500K", "--settle", "none", "--no-snapshot"];
    succeed(&mut record(&reel, &options, &command));
    assert_eq!(fs::read(&file).unwrap(), b"the end");
    let m = assert_valid(&reel).manifest;
    assert_eq!((m.state, m.ended.as_str()), (State::Complete, "max_size"));
    let size: u64 = fs::read_dir(reel.join("ops")).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(size > MAX / 2 && size < MAX + MAX / 4, "{size} bytes of operations");
}

/// The recording ends before it fills the disk.
pub(crate) fn room_left_to_others() {
    let (small, out) = (temp_dir(), temp_dir());
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=20m", "ioreel-test", text(small.path())]));
    let (reel, file) = (small.path().join("x.reel"), out.path().join("file"));
    let hog = small.path().join("hog");
    // Others take what there is.
    let script = format!(
        "head -c 5M /dev/zero >{0}; sleep 1; head -c 8M /dev/zero >>{0}; sleep 3; echo done >{1}",
        text(&hog),
        text(&file)
    );
    let output = run(&mut record(&reel, &["--min-free", "50%", "--no-snapshot"], &["sh", "-c", &script]));
    let opened = Reel::open(&reel);
    let checked = run(&mut ioreel(["validate", text(&reel)]));
    let _ = Command::new("umount").arg(small.path()).status();
    assert!(output.status.success(), "{}", describe(&output));
    assert!(checked.status.success(), "{}", describe(&checked));
    assert_eq!(fs::read_to_string(&file).unwrap(), "done\n");
    assert_eq!(opened.unwrap().manifest.ended, "min_free");
}

/// `CAP_BPF`, `CAP_PERFMON` and `CAP_DAC_READ_SEARCH`, and no other, in the hands of nobody; the command has none.
pub(crate) fn few_capabilities() {
    let dir = temp_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("ioreel");
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program));
    let reel = dir.path().join("x.reel");
    let caps = "-all,+bpf,+perfmon,+dac_read_search";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([format!("--inh-caps={caps}"), format!("--ambient-caps={caps}")]);
    let file = dir.path().join("file");
    let script = format!("grep -E 'Cap(Prm|Eff|Amb)' /proc/self/status; echo data >{}", text(&file));
    command.arg(&program).args(["record", "-o", text(&reel), "--", "sh", "-c", &script]);
    let output = succeed(command.current_dir(dir.path()));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.lines().all(|l| l.ends_with("\t0000000000000000")), "{told}");
    let reel = assert_valid(&reel);
    assert!(!reel.manifest.probes.is_empty(), "probes are told of");
    let ops = reel.read::<Op>().unwrap();
    assert!(ops.iter().any(|o| o.op == "write" && o.ret == Some(5) && o.file.is_some()));
    let task = reel.read::<Task>().unwrap().into_iter().find(|t| t.parent.is_none()).unwrap();
    assert_eq!(task.uid, Some(65534));
}

/// With these capabilities alone calls and disks are told of on every file system, by a user who may not read the disk.
pub(crate) fn few_capabilities_on(fs: Fs) {
    const BYTES: i64 = 2 << 20;
    let (mount, dir) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    for open in [mount.path(), dir.path()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let (program, reel) = (dir.path().join("ioreel"), dir.path().join("x.reel"));
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program));
    let caps = "-all,+bpf,+perfmon,+dac_read_search";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([format!("--inh-caps={caps}"), format!("--ambient-caps={caps}")]);
    let script = format!("cd {}; dd if=/dev/urandom of=f bs=64k count=32 conv=fsync 2>/dev/null", text(mount.path()));
    command.arg(&program).args(["record", "-o", text(&reel), "--", "sh", "-ec", &script]);
    succeed(command.current_dir(dir.path()));
    let reel = assert_valid(&reel);
    let file = format!("{}/f", text(mount.path()));
    let files: Vec<File> = reel.read().unwrap();
    let own = files.iter().find(|f| f.path.as_deref() == Some(&*file)).unwrap();
    let ops = reel.read::<Op>().unwrap();
    let written = ops.iter().filter(|o| o.op == "write" && o.file == Some(own.file));
    assert_eq!(written.filter_map(|o| o.ret).sum::<i64>(), BYTES);
    let Some(dev) = mount.device_number() else { return };
    let bios: Vec<Bio> = reel.read::<Bio>().unwrap().into_iter().filter(|b| b.dev == dev && b.op == "write").collect();
    let of_file = |b: &&Bio| b.class == "data" && b.file == Some(own.file);
    assert_eq!(bios.iter().filter(of_file).map(|b| b.len_bytes).sum::<i64>(), BYTES, "{bios:?}");
    let time = |class: Option<&str>| -> i64 {
        let rows = bios.iter().filter(|b| class.is_none_or(|c| b.class == c));
        rows.filter_map(|b| Some(b.complete_ns? - b.queue_ns)).sum()
    };
    assert!(time(Some("unknown")) * 100 <= time(None), "{bios:?}");
}

/// What the recorder was given, the command is given: SIGPIPE as it was, and descriptors that were closed.
pub(crate) fn as_inherited() {
    let out = temp_dir();
    let look = "import os, sys; closed = [f for f in '012' if not os.path.exists('/proc/self/fd/' + f)]; open(sys.argv[1], 'w').write(''.join(closed))";
    for (closed, expected) in [("", ""), ("<&-", "0"), (">&-", "1"), ("<&- >&- 2>&-", "012")] {
        let [reel, seen] = ["reel", "seen"].map(|what| out.path().join(format!("closed-{expected}.{what}")));
        let record = format!("exec {} record -o {}", env!("CARGO_BIN_EXE_ioreel"), text(&reel));
        let line = format!("{record} -- python3 -c \"{look}\" {} {closed}", text(&seen));
        run(Command::new("sh").args(["-c", &line]));
        assert_eq!(fs::read_to_string(&seen).unwrap(), expected, "{line}");
    }
    for (trap, expected) in [("", "no"), ("trap '' PIPE; ", "yes")] {
        let reel = out.path().join(format!("{expected}.reel"));
        let look = "grep -q 'SigIgn:.*1...$' /proc/self/status && echo yes || echo no";
        let line = format!("{trap}exec {} record -o {} -- sh -c \"{look}\"", env!("CARGO_BIN_EXE_ioreel"), text(&reel));
        let output = succeed(Command::new("sh").args(["-c", &line]));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{line}");
    }
}

/// Somebody removes the reel while it is made: told in one line, the command unharmed.
pub(crate) fn a_reel_removed_meanwhile() {
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    // The recorder may be adding a file just now.
    let reel_words = text(&reel);
    let script =
        format!("while [ -e {reel_words} ]; do rm -rf {reel_words}; done; sleep 0.2; echo done >{}", text(&file));
    let output = run(&mut record(&reel, &["--no-snapshot"], &["sh", "-c", &script]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    assert!(stderr.contains("x.reel") && !stderr.contains("panicked"), "{stderr}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "done\n");
}
