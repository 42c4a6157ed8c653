//! What `diagnose` and `explain` say of waits that a test planted: which kind, how long, and who was to blame.

use std::{fs, path::Path};

use serde_json::Value;

use crate::harness::{
    assert_valid,
    device::Device,
    ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, succeed, temp_dir, text,
};

/// Records a command with waits; returns what it printed, the diagnosis with all findings, and the stories of its slowest
/// operations of this name.
fn diagnosed(command: &[&str], options: &[&str], slowest: &str) -> (String, Value, Value) {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let words = [&["--waits", "--no-snapshot"], options].concat();
    let printed = succeed(&mut record(&reel, &words, command)).stdout;
    let reel = assert_valid(&reel);
    let json = |words: &[&str]| -> Value {
        let told = succeed(&mut ioreel(words.iter().chain(&["--json", text(reel.path())]))).stdout;
        serde_json::from_slice(&told).unwrap()
    };
    let told = json(&["diagnose", "--all"]);
    let stories = if slowest.is_empty() { Value::Null } else { json(&["explain", "--slowest", "40", "--of", slowest]) };
    // The same in words.
    succeed(&mut ioreel(["diagnose", "--all", text(reel.path())]));
    (String::from_utf8(printed).unwrap(), told, stories)
}

/// Time of a part, s.
fn part(told: &Value, name: &str) -> f64 {
    told["time"]["parts"][name].as_f64().unwrap() / 1e9
}

/// The parts add up to the time in calls, and at most a tenth of it is not known.
#[track_caller]
fn assert_known(what: &str, told: &Value) {
    let all_ns = told["time"]["time_ns"].as_f64().unwrap();
    let parts = told["time"]["parts"].as_object().unwrap();
    let sum_ns: f64 = parts.values().map(|ns| ns.as_f64().unwrap()).sum();
    assert!((sum_ns - all_ns).abs() <= 0.01 * all_ns, "{what}: {sum_ns} of {all_ns}");
    let unknown = part(told, "unknown_ns") * 1e9 / all_ns;
    eprintln!("{what}: {:.3} s in calls, {:.2} % not known: {parts:?}", all_ns / 1e9, unknown * 100.0);
    assert!(unknown <= 0.1, "{what}: {unknown} of the time in calls is not known: {}", told["time"]);
}

fn finding<'a>(told: &'a Value, id: &str) -> Option<&'a Value> {
    told["findings"].as_array().unwrap().iter().find(|f| f["id"] == id)
}

/// Twenty times: the server of the file system stands still, a thread writes, and so holds the file's lock; 10 ms later
/// another thread writes, and 30 ms after that the server goes on. Prints for how long the second thread was kept, s.
const HOLDER: &str = "
import os, signal, sys, threading, time
path, server = sys.argv[1], int(sys.argv[2])
a, b = (os.open(path, os.O_WRONLY | os.O_APPEND) for _ in range(2))
os.write(a, b'.')
os.write(b, b'.')
kept = 0
for _ in range(20):
    os.kill(server, signal.SIGSTOP)
    holder = threading.Thread(target=lambda: os.write(a, b'h' * 4096))
    waiter = threading.Thread(target=lambda: os.write(b, b'w' * 512))
    holder.start()
    time.sleep(0.01)
    begun = time.monotonic()
    waiter.start()
    time.sleep(0.03)
    os.kill(server, signal.SIGCONT)
    holder.join()
    kept += time.monotonic() - begun
    waiter.join()
print(kept)
";

/// A lock that is held for 30 ms is laid to the thread, the call and the file that held it.
pub(crate) fn a_lock_held_for_30_ms() {
    let mounted = Mounted::new(Fs::Fuse, DEFAULT_SIZE_BYTES);
    let file = mounted.path().join("log");
    fs::write(&file, "").unwrap();
    let server = mounted.server().unwrap().to_string();
    let (printed, told, stories) = diagnosed(&["python3", "-c", HOLDER, text(&file), &server], &[], "write");
    let kept_s: f64 = printed.trim().parse().unwrap();
    let lock_s = part(&told, "lock_ns");
    assert!((lock_s - kept_s).abs() <= 0.2 * kept_s, "{lock_s} of {kept_s}: {}", told["time"]);
    assert_known("appends by two threads", &told);
    let most = &told["time"]["holders"][0];
    assert_eq!((&most["op"], &most["path"], &most["how"]), (&"write".into(), &text(&file).into(), &"held".into()));
    assert!(most["name"].as_str().unwrap().starts_with("python3["), "{most}");
    assert_eq!(most["lock_kind"], "rwsem_write");
    assert!(most["waits"].as_u64().unwrap() >= 18 && most["max_ns"].as_i64().unwrap() >= 25_000_000, "{most}");
    let found = finding(&told, "inode-lock").unwrap_or_else(|| panic!("{told}"));
    let first = found["evidence"]["holders"][0]["name"].as_str().unwrap();
    assert!(first.contains("python3[") && first.contains(" in write on ") && first.contains("rwsem_write"), "{found}");
    assert_eq!(found["confidence"], "high");
    // The second thread's story names the first one's call.
    let stories = stories["stories"].as_array().unwrap();
    let of_waiter =
        stories.iter().flat_map(|s| s["moments"].as_array().unwrap()).filter(|m| m["reason"] == "inode_lock");
    let held: Vec<&Value> = of_waiter.map(|m| &m["holder"]).filter(|h| h["op"] == "write").collect();
    assert!(stories.iter().any(|s| s["len_bytes"] == 512), "{stories:?}");
    assert!(held.iter().any(|h| h["comm"] == "python3" && h["op_id"].is_i64()), "{stories:?}");
}

/// A file lock does not tell its holder; who released it is named.
pub(crate) fn a_file_lock_held_for_30_ms() {
    const LOCKER: &str = "
import fcntl, os, sys, threading, time
a, b = (os.open(sys.argv[1], os.O_RDWR) for _ in range(2))
kept = 0
for _ in range(20):
    fcntl.flock(a, fcntl.LOCK_EX)
    waiter = threading.Thread(target=lambda: (fcntl.flock(b, fcntl.LOCK_EX), fcntl.flock(b, fcntl.LOCK_UN)))
    waiter.start()
    begun = time.monotonic()
    time.sleep(0.03)
    kept += time.monotonic() - begun
    fcntl.flock(a, fcntl.LOCK_UN)
    waiter.join()
print(kept)
";
    let out = temp_dir();
    let file = out.path().join("lock");
    fs::write(&file, "").unwrap();
    let (printed, told, stories) = diagnosed(&["python3", "-c", LOCKER, text(&file)], &[], "flock");
    let (kept_s, lock_s) = (printed.trim().parse::<f64>().unwrap(), part(&told, "lock_ns"));
    assert!((lock_s - kept_s).abs() <= 0.15 * kept_s, "{lock_s} of {kept_s}: {}", told["time"]);
    assert_known("a file lock", &told);
    let most = &told["time"]["holders"][0];
    assert_eq!((&most["how"], &most["op"]), (&"released".into(), &"flock".into()), "{}", told["time"]);
    let wait = &stories["stories"][0]["moments"][0];
    assert_eq!((&wait["reason"], &wait["waker"]["op"]), (&"lock".into(), &"flock".into()), "{stories}");
}

/// Twenty times: the server of the file that the disk lies on stands still for 30 ms while a program reads from the disk.
const DELAYED: &str = "
import mmap, os, signal, sys, threading, time
path, server = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
took = 0
for i in range(20):
    os.kill(server, signal.SIGSTOP)
    go_on = threading.Timer(0.03, lambda: os.kill(server, signal.SIGCONT))
    go_on.start()
    begun = time.monotonic()
    os.preadv(fd, [page], i << 20)
    took += time.monotonic() - begun
    go_on.join()
print(took)
";

/// A disk that takes 30 ms for each request.
pub(crate) fn a_disk_that_takes_30_ms() {
    let below = Mounted::new(Fs::Fuse, 2 * DEFAULT_SIZE_BYTES);
    let disk = Device::looped_in(below.path(), DEFAULT_SIZE_BYTES);
    let mounted = Mounted::over(&[&disk], &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"], "defaults");
    let file = mounted.path().join("data");
    fs::write(&file, vec![7_u8; 24 << 20]).unwrap();
    go_cold_with(&[&file]);
    // The file's extents are in memory: each read is one request.
    succeed(std::process::Command::new("filefrag").arg(&file));
    let server = below.server().unwrap().to_string();
    let (printed, told, _) = diagnosed(&["python3", "-c", DELAYED, text(&file), &server], &[], "");
    let took_s: f64 = printed.trim().parse().unwrap();
    // Otherwise, pages of the image stayed in the cache of the file system below.
    assert!(took_s >= 0.5, "the reads did not wait for the server: {took_s} s");
    let device_s = part(&told, "device_ns");
    assert!((device_s - took_s).abs() <= 0.1 * took_s, "{device_s} of {took_s}: {}", told["time"]);
    assert_known("reads from a slow disk", &told);
    drop((mounted, disk, below));
}

/// Reads a file that is in memory, beside programs on the same CPU; prints for how long its thread waited for the CPU, s, as
/// the scheduler counts it.
const STARVED: &str = "
import os, subprocess, sys
os.sched_setaffinity(0, {0})
busy = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for _ in range(3)]
waited = lambda: int(open('/proc/thread-self/schedstat').read().split()[1])
fd = os.open(sys.argv[1], os.O_RDONLY)
room = bytearray(64 << 20)
first = waited()
for _ in range(40):
    os.preadv(fd, [room], 0)
print((waited() - first) / 1e9)
[b.kill() for b in busy]
[b.wait() for b in busy]
";

/// Waiting for a CPU, against the scheduler's own count.
pub(crate) fn a_cpu_that_others_use() {
    let out = temp_dir();
    let file = out.path().join("cached");
    fs::write(&file, vec![7_u8; 64 << 20]).unwrap();
    let (printed, told, _) = diagnosed(&["python3", "-c", STARVED, text(&file)], &[], "");
    let waited_s: f64 = printed.trim().parse().unwrap();
    let run_queue_s = part(&told, "run_queue_ns");
    // It is also preempted between two calls, the more often the busier the machine is.
    assert!(
        waited_s > 0.5 && (0.5..1.1).contains(&(run_queue_s / waited_s)),
        "{run_queue_s} of {waited_s}: {}",
        told["time"]
    );
    assert_known("reads on a busy CPU", &told);
}

/// A sync tells the commit that it rode on, and a log beside a bulk writer waits while that commit writes the bulk.
pub(crate) fn a_sync_and_its_commit() {
    let mounted = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, &[], "nodelalloc");
    let script = format!(
        "cd {}; (for i in 1 2 3 4 5; do head -c 30M /dev/zero | tr '\\0' $i >bulk$i; done) & \
         for i in $(seq 40); do echo $i >>log; sync log; sleep 0.005; done; wait",
        text(mounted.path())
    );
    let (_, told, stories) = diagnosed(&["sh", "-c", &script], &[], "fsync");
    assert_known("syncs beside a bulk writer", &told);
    let commits: Vec<&Value> =
        stories["stories"].as_array().unwrap().iter().map(|s| &s["commit"]).filter(|c| !c.is_null()).collect();
    assert!(!commits.is_empty(), "{stories}");
    for c in &commits {
        assert!(c["kind"] == "commit" && c["transaction"].is_i64() && c["handles"].as_i64() > Some(0), "{c}");
        assert!(c["comm"].as_str().unwrap().starts_with("jbd2/"), "{c}");
    }
    assert!(
        commits.iter().any(|c| c["data_ns"].as_i64() > Some(0) && c["data_bytes"].as_u64() > Some(0)),
        "{commits:?}"
    );
    let found = finding(&told, "entangled-sync").unwrap_or_else(|| panic!("{told}"));
    assert_eq!(found["confidence"], "high", "{found}");
    assert!(found["summary"].as_str().unwrap().contains(" commits, which write the data of other files"), "{found}");
    assert!(found["cost_s"].as_f64() > Some(0.0), "{found}");
}

/// The diagnosis names the limit that holds writers back, and its remedy.
pub(crate) fn which_limit_holds_writers_back() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dev = mounted.device_number().unwrap();
    let (major, minor) = (dev >> 20, dev & 0xf_ffff);
    let limits = format!("/sys/class/bdi/{major}:{minor}");
    fs::write(format!("{limits}/strict_limit"), "1").unwrap();
    fs::write(format!("{limits}/max_bytes"), "4194304").unwrap();
    let script = format!("dd if=/dev/zero of={}/big bs=1M count=192 status=none", text(mounted.path()));
    let (_, told, _) = diagnosed(&["sh", "-c", &script], &[], "");
    fs::write(format!("{limits}/strict_limit"), "0").unwrap();
    let throttles = &told["time"]["throttles"];
    let (dirty, wbt) = (throttles["dirty_limit_ns"].as_f64().unwrap(), throttles["wbt_ns"].as_f64().unwrap());
    assert!(dirty > 0.0 && dirty > 10.0 * wbt, "{throttles}");
    assert_known("a writer ahead of its disk", &told);
    let found = finding(&told, "throttled-writes").unwrap_or_else(|| panic!("{told}"));
    assert!(found["remedy"].as_str().unwrap().starts_with("Dirty limit: "), "{found}");
}

/// Programs of every day.
pub(crate) fn little_is_not_known() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let at = |name: &str| mounted.path().join(name);
    let folder = at("from");
    let made = format!(
        "mkdir -p {0}; cd {0}; for d in $(seq 20); do mkdir $d; for f in $(seq 60); do head -c $((f * 700)) /dev/urandom >$d/$f; \
         done; done; tar -cf ../all.tar .; sync",
        text(&folder)
    );
    succeed(std::process::Command::new("sh").args(["-c", &made]));
    let known = |what: &str, command: &[&str]| {
        let (_, told, _) = diagnosed(command, &[], "");
        assert_known(what, &told);
    };
    go_cold_with(&[at("all.tar")]);
    let unpack = format!("mkdir {0}; tar -xf {1} -C {0}; sync -f {0}", text(&at("to")), text(&at("all.tar")));
    known("tar unpacks", &["sh", "-c", &unpack]);
    known("SQLite inserts", &["python3", "-c", INSERTS, text(&at("rows.db"))]);
    let pipes =
        "for i in $(seq 60); do x=$(echo $i | tr 0-9 a-j | cat | sort); done; seq 300000 | sort -n | uniq | wc -l";
    known("bash with pipes", &["bash", "-c", pipes]);
    known("find and grep", &["sh", "-c", &find(&folder)]);
}

/// Each in a transaction of its own.
const INSERTS: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('create table t (a integer primary key, b text)')
for i in range(300):
    db.execute('insert into t (b) values (?)', ('x' * 300,))
";

fn find(folder: &Path) -> String {
    format!("find {0} -type f -print0 | xargs -0 cat | wc -c; grep -rc zebra {0} | tail -1", text(folder))
}
