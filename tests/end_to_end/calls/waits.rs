//! What slow operations wait for, with planted causes.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Read,
    path::Path,
    process::Stdio,
};

use ioreel_traces::{
    Reel,
    manifest::Loss,
    rows::{Op, Wait},
};

use crate::harness::{
    assert_valid, describe, finish, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, succeed, temp_dir, text,
};

/// Records a shell script with waits; every wait must lie inside a slow operation of its thread.
fn waits_of(script: &str, options: &[&str]) -> Vec<Wait> {
    calls_and_waits(&["sh", "-c", script], options).1
}

/// The same for a command; also returns the operations.
fn calls_and_waits(command: &[&str], options: &[&str]) -> (Vec<Op>, Vec<Wait>) {
    let out = temp_dir();
    let reel = out.path().join("waits.reel");
    let mut words = vec!["--waits", "--no-snapshot"];
    words.extend(options);
    succeed(&mut record(&reel, &words, command));
    let reel = assert_valid(&reel);
    let waits = reel.read::<Wait>().unwrap();
    let all = reel.read::<Op>().unwrap();
    let min_ns = reel.manifest.waits_min_ns.unwrap();
    let unseen = reel.manifest.left_out.get("waits whose begin or end no probe saw").is_some_and(|n| *n > 0);
    let ops: HashMap<(i64, i64), &Op> = all.iter().map(|o| ((o.task_id, o.start_ns), o)).collect();
    let mut sums: HashMap<(i64, i64), i64> = HashMap::new();
    for w in &waits {
        let op = ops.get(&(w.task_id, w.op_start_ns)).unwrap_or_else(|| panic!("no operation of {w:?}"));
        assert_eq!(op.op, w.op);
        let end = op.start_ns + op.dur_ns;
        assert!(op.dur_ns >= min_ns && w.start_ns >= op.start_ns && w.start_ns + w.dur_ns <= end, "{w:?} in {op:?}");
        assert!((0..=w.dur_ns).contains(&w.run_queue_ns), "{w:?}");
        *sums.entry((w.task_id, w.op_start_ns)).or_default() += w.dur_ns;
    }
    assert!(sums.iter().all(|(op, sum)| *sum <= ops[op].dur_ns), "more waiting than time");
    // The probes add up what the waits show one by one.
    for op in all.iter().filter(|o| o.source == *"syscall" && o.state == *"complete") {
        let sum = sums.get(&(op.task_id, op.start_ns)).copied().unwrap_or(0);
        match op.off_cpu_ns {
            None => assert!(unseen, "{op:?}"),
            Some(off_ns) if op.dur_ns >= min_ns => assert_eq!(off_ns, sum, "{op:?}"),
            Some(off_ns) => assert!(off_ns <= op.dur_ns, "{op:?}"),
        }
    }
    let told = succeed(&mut ioreel(["info", text(reel.path())])).stdout;
    let told = String::from_utf8(told).unwrap();
    assert_eq!(told.contains("Waits of slow operations"), !waits.is_empty(), "{told}");
    (all, waits)
}

/// Time by reason, ns.
fn by_reason(waits: &[Wait], op: &str) -> HashMap<String, i64> {
    let mut sums = HashMap::new();
    for w in waits.iter().filter(|w| w.op == *op) {
        *sums.entry(w.reason.to_string()).or_default() += w.dur_ns - w.run_queue_ns;
    }
    sums
}

#[track_caller]
fn assert_waits_for(waits: &[Wait], op: &str, reasons: &[&str]) {
    let sums = by_reason(waits, op);
    let stacks: Vec<_> = waits.iter().filter(|w| w.op == *op).filter_map(|w| w.stack.as_deref()).take(5).collect();
    for reason in reasons {
        assert!(sums.get(*reason).is_some_and(|ns| *ns > 0), "{op} does not wait for {reason}: {sums:?}\n{stacks:#?}");
    }
}

/// An fsync of much data waits for the device and, where there is one, for the journal's commit.
pub(crate) fn a_sync(fs: Fs) {
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let script = format!(
        "cd {}; for i in 1 2 3 4 5 6; do dd if=/dev/zero of=f$i bs=4M count=4 conv=fsync status=none; done",
        text(mounted.path())
    );
    let waits = waits_of(&script, &[]);
    if fs == Fs::Tmpfs {
        assert!(by_reason(&waits, "fsync").keys().all(|r| r != "device" && r != "journal"), "{waits:?}");
        return;
    }
    assert_waits_for(&waits, "fsync", &["device", "journal"]);
}

/// Several writers of one file wait for its lock.
pub(crate) fn one_file(fs: Fs) {
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let script = format!(
        "cd {}; for i in 1 2 3 4; do dd if=/dev/zero of=one bs=16M count=6 conv=notrunc status=none & done; wait",
        text(mounted.path())
    );
    let waits = waits_of(&script, &[]);
    assert_waits_for(&waits, "write", &["inode_lock"]);
}

/// A cold read waits for the device.
pub(crate) fn a_cold_read() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let data = mounted.path().join("data");
    fs::write(&data, vec![7u8; 64 << 20]).unwrap();
    go_cold_with(&[&data]);
    let script = format!("dd if={} of=/dev/null bs=8M status=none", text(&data));
    let waits = waits_of(&script, &["--user-stacks"]);
    assert_waits_for(&waits, "read", &["device"]);
    let stacks: Vec<&str> = waits.iter().filter_map(|w| w.user_stack.as_deref()).collect();
    assert!(stacks.iter().any(|s| s.contains("libc") && s.contains("+0x")), "{stacks:?}");
}

/// Programs that keep all CPUs busy make others wait for one.
pub(crate) fn busy_cpus() {
    let out = temp_dir();
    let file = out.path().join("cached");
    fs::write(&file, vec![7u8; 64 << 20]).unwrap();
    let script = format!(
        "for i in 1 2 3 4 5 6; do timeout 6 sh -c 'while :; do :; done' & done; \
         for i in $(seq 30); do dd if={} of=/dev/null bs=64M status=none; done",
        text(&file)
    );
    let waits = waits_of(&script, &[]);
    let sum: i64 = waits.iter().filter(|w| w.op == *"read").map(|w| w.run_queue_ns).sum();
    assert!(sum > 1_000_000, "{waits:?}");
    assert!(waits.iter().any(|w| w.reason == *"run_queue" && w.run_queue_ns == w.dur_ns));
}

/// A writer that is far ahead of the disk is held back.
pub(crate) fn a_writer_ahead_of_its_disk() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dev = mounted.device_number().unwrap();
    let limits = format!("/sys/class/bdi/{}:{}", dev >> 20, dev & 0xf_ffff);
    fs::write(format!("{limits}/strict_limit"), "1").unwrap();
    fs::write(format!("{limits}/max_bytes"), "4194304").unwrap();
    let script = format!("dd if=/dev/zero of={}/big bs=4M count=48 status=none", text(mounted.path()));
    let waits = waits_of(&script, &[]);
    let _ = fs::write(format!("{limits}/strict_limit"), "0");
    assert_waits_for(&waits, "write", &["dirty_limit"]);
}

/// Without the option there is no table, and no probe: neither of the scheduler, nor of locks, nor of commits.
pub(crate) fn nothing_unless_asked() {
    let out = temp_dir();
    let reel = out.path().join("plain.reel");
    succeed(&mut record(&reel, &["--no-snapshot"], &["sh", "-c", "sleep 0.01; : >/dev/null"]));
    let reel = assert_valid(&reel);
    assert!(reel.read::<Wait>().unwrap().is_empty());
    const OF_WAITS: [&str; 6] = ["wait_", "lock_", "jbd2_", "ext4_fast_", "xfs_log_", "btrfs_commit"];
    let of_waits = |name: &str| OF_WAITS.iter().any(|start| name.starts_with(start));
    assert!(reel.manifest.probes.iter().all(|p| !of_waits(&p.name)), "{:?}", reel.manifest.probes);
    assert!(reel.rows::<Op>().all(|op| op.unwrap().off_cpu_ns.is_none()));
    assert_eq!(reel.manifest.waits_min_ns, None);
}

/// Reads from a pipe whose writer sleeps 50 ms, a socket pair, an eventfd and a named pipe likewise, and makes many
/// short calls.
const READER: &str = "
import os, socket, sys, threading, time
def later(what):
    threading.Thread(target=lambda: (time.sleep(0.05), what())).start()
r, w = os.pipe()
later(lambda: os.write(w, b'p' * 11))
assert os.read(r, 100) == b'p' * 11
a, b = socket.socketpair()
later(lambda: os.write(b.fileno(), b's' * 12))
assert os.read(a.fileno(), 100) == b's' * 12
e = os.eventfd(0)
later(lambda: os.eventfd_write(e, 1))
os.eventfd_read(e)
os.mkfifo(sys.argv[1])
later(lambda: os.open(sys.argv[1], os.O_WRONLY))
os.open(sys.argv[1], os.O_RDONLY)
for _ in range(200):
    os.stat('/')
";

/// Waits for other programs (here threads) have the reason `peer` and are nearly all of the time of their calls. The
/// time off the CPU is recorded also where waits are not kept, and no option of waits filters operations.
pub(crate) fn time_off_the_cpu() {
    let out = temp_dir();
    for (i, min) in ["0ns", "1s"].into_iter().enumerate() {
        let mut attempt = 0;
        let (ops, waits, fifo) = loop {
            let fifo = out.path().join(format!("fifo{i}-{attempt}"));
            let (ops, waits) = calls_and_waits(&["python3", "-c", READER, text(&fifo)], &["--waits-min", min]);
            // On a busy machine, a switch may reach no probe, which null says.
            let unseen = |o: &Op| o.op == *"read" && o.dur_ns > 10_000_000 && o.off_cpu_ns.is_none();
            attempt += 1;
            if attempt == 3 || !ops.iter().any(unseen) {
                break (ops, waits, fifo);
            }
        };
        assert!(ops.iter().filter(|o| o.op == *"newfstatat" || o.op == *"stat").count() >= 200);
        assert_eq!(waits.is_empty(), min == "1s");
        let waiting = |o: &&Op| {
            o.op == *"read" && [Some(11), Some(12)].contains(&o.ret)
                || o.op == *"read" && o.len_bytes == Some(8) && o.ret == Some(8)
                || o.op == *"openat" && o.path.as_deref() == Some(text(&fifo)) && o.dur_ns > 10_000_000
        };
        let waited: Vec<&Op> = ops.iter().filter(waiting).collect();
        // Of the fifo's two ends, only the first to come waits.
        assert_eq!(waited.len(), 4, "{waited:?}");
        for op in waited {
            let off_ns = op.off_cpu_ns.unwrap_or_default();
            assert!(off_ns > 20_000_000 && off_ns > op.dur_ns / 2, "{op:?}");
            let of_it = waits.iter().filter(|w| (w.task_id, w.op_start_ns) == (op.task_id, op.start_ns));
            let peer_ns: i64 = of_it.filter(|w| w.reason == *"peer").map(|w| w.dur_ns).sum();
            assert!(min == "1s" || peer_ns > 20_000_000, "{op:?}: {waits:?}");
            let mut of_it = waits.iter().filter(|w| (w.task_id, w.op_start_ns) == (op.task_id, op.start_ns));
            // Another thread of the program woke it.
            let woken = |w: &Wait| w.waker_comm.as_deref() == Some("python3") && w.waker_task_id != Some(op.task_id);
            assert!(min == "1s" || of_it.any(|w| woken(w) && w.waker_task_id.is_some()), "{op:?}: {waits:?}");
        }
    }
}

/// A writer that finds its file locked tells the lock and who holds it: `dd`, which sleeps in direct writes that make
/// the file longer.
pub(crate) fn who_holds_a_lock() {
    const WRITER: &str = "
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY)
open(sys.argv[1] + '.ready', 'w').close()
while not os.path.exists(sys.argv[1] + '.done'):
    os.pwrite(fd, b'x', 0)
    time.sleep(0.001)
";
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let file = mounted.path().join("one");
    // Both write at the same time, however long the interpreter takes to start.
    let script = format!(
        "touch {0}; python3 -c \"$1\" {0} & while [ ! -e {0}.ready ]; do sleep 0.01; done; \
         dd if=/dev/zero of={0} bs=4M count=60 oflag=direct conv=notrunc status=none; touch {0}.done; wait",
        text(&file)
    );
    let (ops, waits) = calls_and_waits(&["sh", "-c", &script, "sh", WRITER], &["--waits-min", "0ns"]);
    let of_dd: Vec<i64> = {
        let direct = ops.iter().filter(|o| o.op == *"write" && o.len_bytes == Some(4 << 20));
        direct.map(|o| o.task_id).collect()
    };
    let held = |w: &&Wait| w.op == *"pwrite64" && w.reason == *"inode_lock";
    let waited: Vec<&Wait> = waits.iter().filter(held).collect();
    assert!(!waited.is_empty(), "{waits:?}");
    let locks: HashSet<Option<i64>> = waited.iter().map(|w| w.lock_id).collect();
    assert!(locks.len() == 1 && !locks.contains(&None), "{waited:?}");
    assert!(waited.iter().all(|w| w.lock_kind.as_deref() == Some("rwsem_write")), "{waited:?}");
    let owned =
        |w: &&&Wait| w.owner_comm.as_deref() == Some("dd") && w.owner_task_id.is_some_and(|t| of_dd.contains(&t));
    // Between two writes nobody holds it.
    let owners = waited.iter().filter(owned).count();
    assert!(owners > 0 && owners * 2 >= waited.len(), "{waited:?}");
    assert!(waited.iter().any(|w| w.waker_comm.as_deref() == Some("dd") && w.waker_task_id == w.owner_task_id));
}

/// Write-back throttling of the device has a reason of its own.
pub(crate) fn write_back_throttling() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dev = mounted.device_number().unwrap();
    let queue = format!("/sys/dev/block/{}:{}/queue", dev >> 20, dev & 0xf_ffff);
    let knob = format!("{queue}/wbt_lat_usec");
    if fs::write(&knob, "1").is_err() {
        eprintln!("{knob}: this kernel or device has no write-back throttling");
        return;
    }
    // With large requests, there are fewer of them in flight than it lets through.
    let most = format!("{queue}/max_sectors_kb");
    let before = fs::read_to_string(&most).unwrap();
    fs::write(&most, "4").unwrap();
    let script = format!(
        "cd {}; for i in 1 2 3 4; do dd if=/dev/zero of=f$i bs=4k count=4096 conv=fsync status=none & done; wait",
        text(mounted.path())
    );
    let waits = waits_of(&script, &[]);
    let _ = fs::write(&knob, "-1");
    // The loop device may be used again.
    fs::write(&most, before.trim()).unwrap();
    assert_waits_for(&waits, "fsync", &["wbt"]);
}

/// Writes to a pipe that holds one page, in calls that each wait for its reader thousands of times, while the recorder
/// stands still; prints how often the thread gave up its CPU, and how often it was taken away, in each.
const WAITER: &str = "
import fcntl, os, resource, signal, sys, time
os.sched_setaffinity(0, {0})
recorder, rounds, pages = os.getppid(), int(sys.argv[2]), int(sys.argv[3])
fd = os.open(sys.argv[1], os.O_WRONLY)
fcntl.fcntl(fd, 1031, 4096)
data = b'x' * (4096 * pages)
for _ in range(rounds):
    os.kill(recorder, signal.SIGSTOP)
    before = resource.getrusage(resource.RUSAGE_THREAD)
    os.write(fd, data)
    after = resource.getrusage(resource.RUSAGE_THREAD)
    os.kill(recorder, signal.SIGCONT)
    time.sleep(0.3)
    os.write(fd, data[:4096 * 200])
    time.sleep(0.3)
    print(after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw)
";
const ROUNDS: usize = 3;
/// Each is a wait of some 300 bytes on the wire: three times what the ring of a CPU holds.
const PAGES: usize = 6_000;

/// Records [`WAITER`]; its reader is this process, which is not recorded.
fn overload(reel: &Path, pipe: &Path, rounds: usize, options: &[&str]) -> std::process::Output {
    succeed(std::process::Command::new("mkfifo").arg(pipe));
    // What the interpreter does at its start could be more than so small a ring holds.
    let usual = ["--waits", "--ring-mib", "2", "--settle", "none", "--no-snapshot", "--op", "write"];
    let options = [&usual, options].concat();
    let (rounds, pages) = (rounds.to_string(), PAGES.to_string());
    let command = ["python3", "-c", WAITER, text(pipe), &rounds, &pages];
    let child = record(reel, &options, &command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Opened for both, so that the end of a writer that failed does not leave this one waiting.
    let mut end = fs::File::options().read(true).write(true).open(pipe).unwrap();
    std::thread::spawn(move || {
        let mut room = vec![0; 4096];
        while end.read(&mut room).is_ok() {}
    });
    finish(child)
}

/// Waits alone are lost, and every lost one is counted, located by CPU and interval, and told. So is one of which the
/// kernel told no probe: not every switch calls its tracepoint on every kernel.
pub(crate) fn losses_are_exact() {
    let out = temp_dir();
    let path = out.path().join("x.reel");
    let output = overload(&path, &out.path().join("pipe"), ROUNDS, &[]);
    assert!(output.status.success(), "{}", describe(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("events were lost"), "{stderr}");
    succeed(&mut ioreel(["validate", text(&path)]));
    let reel = Reel::open(&path).unwrap();
    let m = &reel.manifest;
    let waits = m.ledger["waits"];
    assert_eq!(waits.seen, waits.written + waits.lost + waits.filtered, "{waits:?}");
    assert!(m.ledger.iter().all(|(class, l)| class == "waits" || l.lost == 0), "{:?}", m.ledger);
    assert_eq!(m.losses.iter().map(|l| l.events).sum::<i64>(), waits.lost, "{:?}", m.losses);
    assert!(m.losses.iter().all(|l| l.cpu == 0 && l.from_ns < l.to_ns), "the program kept to CPU 0: {:?}", m.losses);

    // What the kernel itself counted: each time the thread left its CPU in a write is here, or lost while it lasted.
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let switches: Vec<(i64, i64)> = told
        .lines()
        .map(|l| l.split_once(' ').unwrap())
        .map(|(own, forced)| (own.parse().unwrap(), forced.parse().unwrap()))
        .collect();
    let large = i64::try_from(PAGES * 4096).unwrap();
    let writes: Vec<Op> = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.ret == Some(large)).collect();
    assert_eq!((writes.len(), switches.len()), (ROUNDS, ROUNDS), "{told}");
    let unseen = m.left_out.get("waits whose begin or end no probe saw").copied().unwrap_or(0);
    let mut missing = 0;
    let mut located = 0;
    for (write, (own, forced)) in writes.iter().zip(switches) {
        let there = reel.rows::<Wait>().map(|w| w.unwrap());
        let there = there.filter(|w| w.task_id == write.task_id && w.op_start_ns == write.start_ns).count() as i64;
        let end = write.start_ns + write.dur_ns;
        let during = |l: &&Loss| l.from_ns >= write.start_ns && l.from_ns <= end;
        let lost: i64 = m.losses.iter().filter(during).map(|l| l.events).sum();
        assert!(own > PAGES as i64 / 2 && lost > 0, "{own} switches, {lost} lost");
        // One that was forced may have come between the call and the count.
        let known = own - unseen..=own + forced;
        assert!(known.contains(&(there + lost)), "{there} + {lost} of {own} and {forced}, {unseen} unseen");
        missing += (own - there - lost).max(0);
        located += lost;
    }
    assert!(missing <= unseen, "{missing} are missing, {unseen} are told as unseen");
    assert_eq!(located, waits.lost, "{:?}", m.losses);
    let info = succeed(&mut ioreel(["info", text(&path)]));
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("SOME WERE LOST") && info.contains("Where events were lost"), "{info}");
    // Rows of the ledger: seen, written, lost, left out.
    let row = info.lines().find(|l| l.trim_start().starts_with("waits")).unwrap();
    let numbers: Vec<String> = row.split_whitespace().skip(1).map(|n| n.replace(',', "")).collect();
    assert_eq!(numbers[2], waits.lost.to_string(), "{row}");

    let strict = overload(&out.path().join("strict.reel"), &out.path().join("another"), 1, &["--strict"]);
    assert_eq!(strict.status.code(), Some(3), "{}", describe(&strict));
}
