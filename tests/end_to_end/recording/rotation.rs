//! A reel that keeps the newest alone: rotation, the flight recorder, and triggers.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use ioreel_traces::{
    Reel,
    manifest::State,
    rows::{Bio, File, Op, Task},
};

use crate::harness::{
    assert_valid, describe, finish, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, run, succeed, temp_dir, text, wait_for,
};

/// Calls whose offsets ascend, for as long as they are asked for.
const ASCENDING: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range(int(sys.argv[2])):
    os.pread(fd, 1 + i % 999, i * 7919)
    if i % 5000 == 0:
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
";

/// A rotating reel keeps the newest rows, is valid, and its ledger tells what was dropped.
pub(crate) fn rotation_keeps_the_newest() {
    const CALLS: i64 = 400_000;
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let calls = CALLS.to_string();
    let command = ["python3", "-c", ASCENDING, text(&file), &calls];
    // Only calls: what others make the disk do meanwhile would be the newest.
    let options = ["--rotate", "--max-size", "400K", "--settle", "none", "--no-snapshot", "--ops-only"];
    succeed(&mut record(&reel, &options, &command));
    let reel = assert_valid(&reel);
    let m = &reel.manifest;
    assert_eq!(m.ended, "exit");
    let ops = m.ledger["ops"];
    assert!(ops.filtered > CALLS / 4, "{ops:?}");
    assert_eq!(m.left_out["operations dropped again by rotation"], ops.filtered);
    assert!(ops.seen > CALLS, "{ops:?}");
    let kept_from_ns = m.span.kept_from_ns;
    assert!(kept_from_ns > m.span.elapsed_ns / 4 && kept_from_ns < m.span.elapsed_ns, "{:?}", m.span);
    let offsets: Vec<i64> = reel
        .read::<Op>()
        .unwrap()
        .iter()
        .filter(|o| o.op == "pread64" && o.offset_bytes.is_some_and(|at| at % 7919 == 0) && o.ret == Some(0))
        .map(|o| o.offset_bytes.unwrap() / 7919)
        .collect();
    assert_eq!(offsets.last(), Some(&(CALLS - 1)), "the newest is there");
    assert!(offsets.windows(2).all(|w| w[1] == w[0] + 1), "nothing is missing in between");
    assert!(m.cost.reel_bytes < 800 << 10, "{} bytes", m.cost.reel_bytes);
}

/// As much is dropped as is missing, however fast it is written.
pub(crate) fn rotation_leaves_room() {
    const CALLS: i64 = 1_500_000;
    let (small, out) = (temp_dir(), temp_dir());
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=10m", "ioreel-test", text(small.path())]));
    let (reel, file) = (small.path().join("x.reel"), out.path().join("file"));
    let calls = CALLS.to_string();
    // Nothing shall be missing for want of room in the rings.
    let options = ["--lossless", "--rotate", "--min-free", "9M", "--settle", "none", "--no-snapshot", "--ops-only"];
    let output = run(&mut record(&reel, &options, &["python3", "-c", ASCENDING, text(&file), &calls]));
    let opened = Reel::open(&reel);
    let checked = run(&mut ioreel(["validate", text(&reel)]));
    let _ = Command::new("umount").arg(small.path()).status();
    assert!(output.status.success(), "{}", describe(&output));
    assert!(checked.status.success(), "{}", describe(&checked));
    let m = opened.unwrap().manifest;
    assert_eq!(m.ended, "exit");
    assert!(m.cost.reel_bytes < 2 << 20, "{} bytes", m.cost.reel_bytes);
    assert!(m.ledger["ops"].filtered > 0);
}

/// Fills many segments with calls that others drop again, then makes `FILES` files beside them, and writes them back.
/// In between it waits for the recorder to have caught up: what the recorder took in late would be the newest, in the
/// place of the files. A recorder that has nothing to do neither runs nor waits for a CPU.
const FILES_BESIDE_SEGMENTS: &str = "
import os, sys, time
folder, files = sys.argv[1], int(sys.argv[2])
recorder = f'/proc/{os.getppid()}/task'
def busy_ns():
    return sum(sum(map(int, open(f'{recorder}/{task}/schedstat').read().split()[:2])) for task in os.listdir(recorder))
def caught_up():
    idle = 0
    while idle < 5:
        before = busy_ns()
        time.sleep(0.1)
        idle = idle + 1 if busy_ns() - before < 50_000_000 else 0
zero, null = os.open('/dev/zero', os.O_RDONLY), os.open('/dev/null', os.O_WRONLY)
for _ in range(20):
    for _ in range(20000): os.write(null, os.read(zero, 16384))
    caught_up()
for i in range(files):
    with open(f'{folder}/made{i}', 'wb') as f: f.write(bytes(65536))
os.system(f'sync -f {folder}')
";

/// A file that has the number of a segment that was dropped is recorded like any other.
pub(crate) fn rotation_hides_nothing() {
    const FILES: usize = 200;
    let mount = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let reel = mount.path().join("x.reel");
    // Beside the segments, where their numbers are given out again.
    let (folder, files) = (reel.join("ops"), FILES.to_string());
    let options = ["--rotate", "--max-size", "100K", "--settle", "none", "--no-snapshot"];
    succeed(&mut record(&reel, &options, &["python3", "-c", FILES_BESIDE_SEGMENTS, text(&folder), &files]));
    let reel = assert_valid(&reel);
    let dropped = reel.manifest.left_out["operations dropped again by rotation"];
    assert!(dropped > 100_000, "{dropped}");
    let made: HashMap<i64, String> = reel
        .rows::<File>()
        .map(|f| f.unwrap())
        .filter_map(|f| Some((f.file, f.path.filter(|p| p.contains("/made"))?.to_string())))
        .collect();
    let mut bytes: HashMap<&str, i64> = HashMap::new();
    for bio in reel.rows::<Bio>().map(|b| b.unwrap()).filter(|b| b.op == "write") {
        if let Some(path) = bio.file.and_then(|f| made.get(&f)) {
            *bytes.entry(path).or_default() += bio.len_bytes;
        }
    }
    let whole = bytes.values().filter(|b| **b == 65536).count();
    assert_eq!(whole, FILES, "{bytes:?}");
}

/// What rotation drops is left out, of every table, and not lost: `--strict` does not fail for it.
pub(crate) fn rotation_is_no_loss() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (reel, file) = (out.path().join("x.reel"), mount.path().join("file"));
    let script = format!(
        "for i in $(seq 40); do dd if=/dev/zero of={f} bs=16k count=400 status=none; sync {f}; rm {f}; done",
        f = text(&file)
    );
    let options = ["--rotate", "--max-size", "100K", "--cache", "--waits", "--strict", "--settle", "none"];
    succeed(&mut record(
        &reel,
        &[&options[..], &["--no-snapshot", "--ring-mib", "128"]].concat(),
        &["sh", "-c", &script],
    ));
    let m = assert_valid(&reel).manifest;
    let (cache, dropped) = (m.ledger["cache"], m.left_out["events of the page cache dropped again by rotation"]);
    assert!(dropped > 0 && cache.lost == 0 && cache.filtered >= dropped, "{cache:?} {:?}", m.left_out);
    assert_eq!(m.ledger["waits"].lost, 0, "{:?}", m.ledger);
}

/// The reels beside `reel` that a flight recorder made, oldest first.
fn copies(reel: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(reel.parent().unwrap()).unwrap().map(|e| e.unwrap().path());
    let mut found: Vec<PathBuf> =
        names.filter(|p| p != reel && p.file_name().is_some_and(|n| n.to_str().unwrap().starts_with("x-"))).collect();
    found.sort();
    found
}

/// The probes are not loaded yet: the copy is made once they are. What waits for its row there is not lost.
pub(crate) fn a_flight_recorder_asked_before_it_began() {
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let script = format!(
        "import os,signal,time\nf = os.open({file:?}, os.O_CREAT | os.O_WRONLY)\n\
         for i in range(400):\n    os.pwrite(f, b'%d' % i, i)\n    time.sleep(0.001)\n    \
         i == 300 and os.kill(os.getppid(), signal.SIGUSR1)"
    );
    let options = ["--flight-recorder", "3s", "--no-snapshot", "--content", "hash"];
    let mut command = record(&reel, &options, &["python3", "-c", &script]);
    let recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = recorder.id();
    let list = format!("/proc/{pid}/task/{pid}/children");
    wait_for("the child", || fs::read_to_string(&list).ok()?.split_whitespace().next().map(|_| ()));
    std::thread::sleep(Duration::from_millis(30));
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(pid as i32, libc::SIGUSR1) };
    let output = finish(recorder);
    assert!(output.status.success(), "{}", describe(&output));
    let made = copies(&reel);
    assert!(!made.is_empty(), "{}", describe(&output));
    for reel in made.iter().chain([&reel]) {
        assert_eq!(assert_valid(reel).manifest.lost(), 0, "{}", reel.display());
    }
}

/// SIGUSR1 puts the last second into a reel of its own; the recording goes on.
pub(crate) fn a_flight_recorder() {
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let script = format!(
        "for i in 1 2 3 4 5 6; do for j in $(seq 20); do : >{0}.$i; done; sleep 0.5; done; kill -USR1 $PPID; \
         sleep 1.2; : >{0}.after; kill -USR1 $PPID; echo done >{0}",
        text(&file)
    );
    let output = succeed(&mut record(&reel, &["--flight-recorder", "1s", "--no-snapshot"], &["sh", "-c", &script]));
    assert_eq!(fs::read_to_string(&file).unwrap(), "done\n");
    let opened = |reel: &Reel, n: &str| {
        let path = format!("{}.{n}", text(&file));
        reel.read::<Op>().unwrap().iter().filter(|o| o.path.as_deref() == Some(&*path)).count()
    };
    let made = copies(&reel);
    assert_eq!(made.len(), 2, "{made:?}: {}", describe(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(made.iter().all(|m| stderr.contains(text(m))), "{stderr}");
    let first = assert_valid(&made[0]);
    assert_eq!((first.manifest.state, first.manifest.ended.as_str()), (State::Complete, "trigger"));
    let found = ["1", "6", "after"].map(|n| opened(&first, n));
    assert_eq!(found, [0, 20, 0], "the first are gone, the last are there");
    assert!(first.read::<Task>().unwrap().iter().any(|t| t.parent.is_none()), "the command's task");
    // Asked for at the very end.
    assert_eq!(opened(&assert_valid(&made[1]), "after"), 1);
    let whole = assert_valid(&reel);
    assert_eq!(whole.manifest.ended, "exit");
    assert_eq!((opened(&whole, "1"), opened(&whole, "after")), (0, 1));
}

/// A slow operation does the same, once in the time that is kept.
pub(crate) fn a_flight_recorder_with_a_trigger() {
    let out = temp_dir();
    let (reel, fifo) = (out.path().join("x.reel"), out.path().join("fifo"));
    succeed(Command::new("mkfifo").arg(&fifo));
    let slow = format!("(sleep 0.4; echo x >{0}) & cat <{0}; sleep 0.2;", text(&fifo));
    let script = format!("{slow} {slow} : >{}.late", text(&fifo));
    let options = ["--flight-recorder", "60s", "--trigger-latency", "300ms", "--no-snapshot"];
    succeed(&mut record(&reel, &options, &["sh", "-c", &script]));
    let made = copies(&reel);
    assert_eq!(made.len(), 1, "{made:?}");
    let slow = |reel: &Path| {
        let ops = assert_valid(reel).read::<Op>().unwrap();
        ops.iter().filter(|o| o.path.as_deref() == Some(text(&fifo)) && o.dur_ns >= 300_000_000).count()
    };
    assert_eq!((slow(&made[0]), slow(&reel)), (1, 2));
}

/// A slow operation soon after a reel was made is in the next one.
pub(crate) fn a_flight_recorder_triggered_twice() {
    let out = temp_dir();
    let (reel, fifo) = (out.path().join("x.reel"), out.path().join("fifo"));
    succeed(Command::new("mkfifo").arg(&fifo));
    let slow = format!("(sleep 0.4; echo x >{0}) & cat <{0}; sleep 0.5;", text(&fifo));
    let script = format!("{slow} {slow} sleep 5");
    let options = ["--flight-recorder", "3s", "--trigger-latency", "300ms", "--no-snapshot"];
    succeed(&mut record(&reel, &options, &["sh", "-c", &script]));
    let made = copies(&reel);
    assert_eq!(made.len(), 2, "{made:?}");
    let ops = assert_valid(&made[1]).read::<Op>().unwrap();
    let last = ops.iter().rfind(|o| o.path.as_deref() == Some(text(&fifo)) && o.dur_ns >= 300_000_000);
    let first = assert_valid(&made[0]).read::<Op>().unwrap();
    assert!(last.is_some_and(|last| first.iter().all(|o| o.start_ns < last.start_ns)), "{last:?}");
}

/// An operation that takes long ends the recording.
pub(crate) fn a_slow_operation() {
    let out = temp_dir();
    let (reel, fifo) = (out.path().join("x.reel"), out.path().join("fifo"));
    succeed(Command::new("mkfifo").arg(&fifo));
    // Waits for the other end in open(2), which is a call on a name.
    // Nothing else takes as long, on a busy machine neither. What comes late comes when the reel is closed.
    let script = format!(
        "sleep 2 >/dev/null; (sleep 1.5; echo x >{0}) & cat <{0}; \
         until grep -q '\"complete\"' {1}/manifest.json; do sleep 0.05; done; : >{0}.late",
        text(&fifo),
        text(&reel)
    );
    let options = ["--trigger-latency", "1s", "--settle", "none", "--no-snapshot"];
    succeed(&mut record(&reel, &options, &["sh", "-c", &script]));
    let reel = assert_valid(&reel);
    assert_eq!(reel.manifest.ended, "trigger");
    let ops = reel.read::<Op>().unwrap();
    assert!(ops.iter().any(|o| o.path.as_deref() == Some(text(&fifo)) && o.dur_ns >= 1_000_000_000));
    assert!(!ops.iter().any(|o| o.path.as_deref().is_some_and(|p| p.ends_with(".late"))));
}
