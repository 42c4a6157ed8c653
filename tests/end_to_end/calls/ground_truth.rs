//! The reel of the workload holds exactly what the workload did, field by field, in order per thread.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env, fs,
    os::unix::fs::MetadataExt,
    path::Path,
};

use ioreel_capture::calls;
use ioreel_traces::{
    Reel,
    rows::{File, Op, Task},
};

use crate::{
    harness::{
        assert_valid,
        device::Device,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
        record, replays_alike_except, succeed, temp_dir, text,
    },
    workload::{
        self, EXIT_CODES, THREADS,
        caller::kernel_dev,
        log::{Entry, Identity, RECORD_HEAD_BYTES, ThreadLog, begin_mark, end_mark},
    },
};

pub(crate) fn the_reel_holds_exactly_what_was_done(fs: Fs) {
    let mount = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let (base, out) = (mount.path().join("work"), temp_dir());
    fs::create_dir(&base).unwrap();
    let reel = out.path().join("truth.reel");
    let program = env::current_exe().unwrap();
    let mut command = vec![text(&program), workload::WORD, text(&base), text(out.path())];
    if !fs.has_everything() {
        command.push("lenient");
    }
    let device = Device::looped(16 << 20);
    succeed(record(&reel, &[], &command).env(workload::DEVICE, device.path()));

    let path = reel;
    let reel = Reel::open(&path).unwrap();
    let mut logs = read_logs(out.path());
    assert!(logs.iter().map(|l| l.entries.len()).sum::<usize>() >= 2000);
    place_records(&mut logs, &base);
    for entry in logs.iter_mut().flat_map(|l| l.entries.iter_mut().chain(&mut l.beside)) {
        let mapped = ["msync", "munmap", "madvise", "mincore", "mremap", "remap_file_pages"].contains(&&*entry.op);
        if fs == Fs::Overlay && mapped {
            // What is mapped is the file of the layer, which the workload cannot name.
            entry.file = None;
        }
        if fs == Fs::Fuse {
            // stat(2) tells the server's inode numbers, the kernel has its own.
            (entry.file, entry.file2) = (None, None);
        }
    }
    every_row_of_the_document_was_met(&logs);
    let found = Found::read(&reel);
    let mut wrong = Vec::new();
    let mut matching = Matching::default();
    for log in &logs {
        found.compare(log, &mut matching, &mut wrong);
    }
    let own = kernel_dev(fs::metadata(&base).unwrap().dev());
    found.nothing_else(own, &logs, &mut wrong);
    let skipped: Vec<_> = reel.manifest.probes.iter().filter(|p| p.missed > 0).collect();
    let told = format!("left out {:?}, skipped {skipped:?}", reel.manifest.left_out);
    assert!(wrong.is_empty(), "{} differences on {}, {told}:\n{}", wrong.len(), fs.name(), first(&wrong));
    found.tasks_match(&logs);
    let counted = workload::NOT_RECORDED_32.len() * logs.len();
    assert_eq!(reel.manifest.left_out["calls by the 32-bit entry that are not recorded"], counted as i64);
    assert_valid(&path);
    replays(fs, &path);
}

/// All that a replay issues of these calls ends as it did, in its order, and leaves the same tree.
fn replays(fs: Fs, reel: &Path) {
    let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    // Of a long extended attribute, the value is not recorded.
    let threads = THREADS.iter().map(|t| t.len()).sum::<usize>();
    let ways = ["/more: extended attributes "];
    let report = replays_alike_except(fs.name(), reel, target.path(), "max", threads, &ways);
    let left_out = report["summary"]["unknown"].as_object().unwrap();
    for (call, _) in left_out {
        assert!(NOT_REPLAYED.contains(&call.as_str()), "{call} is not replayed: {left_out:?}");
    }
}

/// Calls that a replay leaves out: they reach beyond the target (mounts, quotas, whole devices and file systems), are about no
/// file, or hand out descriptors of other processes.
const NOT_REPLAYED: [&str; 47] = [
    "BLKDISCARD",
    "BLKFLSBUF",
    "BLKGETSIZE64",
    "BLKZEROOUT",
    "FIFREEZE",
    "FITHAW",
    "FITRIM",
    "FS_IOC_ENABLE_VERITY",
    "FS_IOC_SETFSLABEL",
    "fcntl",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "io_pgetevents",
    "io_setup",
    "io_submit",
    "ioctl",
    "listmount",
    "memfd_create",
    "memfd_secret",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "quotactl",
    "quotactl_fd",
    "recvmmsg",
    "recvmsg",
    "remap_file_pages",
    "sendmmsg",
    "sendmsg",
    "setns",
    "statmount",
    "swapoff",
    "swapon",
    "tee",
    "umount2",
    "ustat",
    "vmsplice",
];

/// The calls of `docs/calls.md`, by both entries, with the commands of fcntl and the requests of ioctl. Requests to
/// io_uring have a test of their own.
fn every_row_of_the_document_was_met(logs: &[ThreadLog]) {
    let entries = || logs.iter().flat_map(|l| &l.entries);
    let ops: HashSet<&str> = entries().map(|e| &*e.op).collect();
    let mut missing: Vec<String> = calls::all()
        .filter(|c| !ops.contains(c.name) && !c.name.starts_with("io_uring"))
        .map(|c| c.name.to_owned())
        .collect();
    let numbers: HashSet<i64> = entries().filter_map(|e| e.nr32).collect();
    let narrow = calls::compat().iter().filter(|c| c.call.is_some_and(|x| !x.name.starts_with("io_uring")));
    missing.extend(narrow.filter(|c| !numbers.contains(&(c.nr as i64))).map(|c| format!("i386's {}", c.nr)));
    let commands: HashSet<Option<i64>> = entries().filter(|e| e.op == "fcntl").map(|e| e.flags).collect();
    let recorded = calls::COMMANDS.iter().filter(|(_, command)| !commands.contains(&Some((*command).into())));
    missing.extend(recorded.map(|(name, _)| (*name).to_owned()));
    let requests: HashSet<&str> = entries().filter_map(|e| e.name.as_deref()).collect();
    missing.extend(calls::REQUESTS.iter().filter(|r| !requests.contains(r.name)).map(|r| r.name.to_owned()));
    assert!(missing.is_empty(), "in docs/calls.md, and not in the workload: {missing:?}");
}

/// The start of a long list.
fn first(wrong: &[String]) -> String {
    wrong.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn read_logs(dir: &Path) -> Vec<ThreadLog> {
    let mut logs = Vec::new();
    for process in 0..THREADS.len() {
        let bytes = fs::read(dir.join(format!("{process}.json"))).unwrap();
        logs.extend(serde_json::from_slice::<Vec<ThreadLog>>(&bytes).unwrap());
    }
    logs
}

/// Several threads wrote to these files at once; where each record lies tells the true position of its write.
/// Where two calls on one description overlap in time, a tracepoint cannot tell whose move of the position it
/// sees: `docs/trace-format.md` says so, and nothing is expected of those.
fn place_records(logs: &mut [ThreadLog], base: &Path) {
    let places: HashMap<&str, HashMap<u32, i64>> =
        [workload::SHARED, workload::APPENDED].map(|name| (name, records(&base.join(name)))).into();
    let spans: Vec<(u64, i64, i64)> = logs
        .iter()
        .flat_map(|l| &l.entries)
        .filter_map(|e| e.record.as_ref().and(e.ofd).map(|ofd| (ofd, e.before_ns, e.after_ns)))
        .collect();
    let (mut placed, mut overlapping) = (0, 0);
    for entry in logs.iter_mut().flat_map(|l| &mut l.entries) {
        let Some((name, number)) = &entry.record else { continue };
        let together = |s: &&(u64, i64, i64)| Some(s.0) == entry.ofd && s.1 < entry.after_ns && entry.before_ns < s.2;
        // It overlaps itself.
        let alone = spans.iter().filter(together).count() == 1;
        entry.offset_bytes = alone.then(|| places[name.as_str()][number]);
        placed += usize::from(alone);
        overlapping += usize::from(!alone);
    }
    println!("{placed} shared writes with a known position, {overlapping} overlapping ones");
    assert!(placed > 0);
}

fn records(path: &Path) -> HashMap<u32, i64> {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut out) = (0, HashMap::new());
    while at < bytes.len() {
        let (number, len) = (word(at), word(at + 4) as usize);
        assert!(len >= RECORD_HEAD_BYTES, "the shared file is not a sequence of records");
        assert!(out.insert(number, at as i64).is_none());
        at += len;
    }
    out
}

/// The tables of the reel.
struct Found {
    ops: Vec<Op>,
    files: HashMap<i64, File>,
    tasks: HashMap<i64, Task>,
    start_ns: i64,
}

/// What the reel's ids turned out to stand for.
#[derive(Clone, Default)]
struct Matching {
    /// The reel's open file description for each of the workload's.
    ofds: HashMap<u64, i64>,
    /// And the other way round.
    labels: HashMap<i64, u64>,
}

impl Found {
    fn read(reel: &Reel) -> Self {
        let mut ops = reel.read::<Op>().unwrap();
        // The threads write down calls, not what they touch.
        ops.retain(|o| o.source != "fault");
        ops.sort_by_key(|o| (o.start_ns, o.op_id));
        Self {
            ops,
            files: reel.read::<File>().unwrap().into_iter().map(|f| (f.file, f)).collect(),
            tasks: reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t)).collect(),
            start_ns: reel.manifest.clock.monotonic_ns,
        }
    }

    /// The operations of one thread between its marks: its calls, and rows of other sources.
    fn of_thread(&self, thread: u32) -> (Vec<&Op>, Vec<&Op>) {
        let mark = |path: &str| {
            let at = self.ops.iter().filter(|o| o.op == "access" && o.path.as_deref() == Some(path));
            let at: Vec<&Op> = at.collect();
            assert_eq!(at.len(), 1, "marks {path} in the reel");
            at[0]
        };
        let (begin, end) = (mark(&begin_mark(thread)), mark(&end_mark(thread)));
        assert_eq!(begin.task_id, end.task_id);
        let own = self.ops.iter().filter(|o| o.task_id == begin.task_id);
        let own = own.filter(|o| o.start_ns > begin.start_ns && o.start_ns < end.start_ns).collect::<Vec<_>>();
        own.into_iter().partition(|o| o.source == "syscall")
    }

    fn compare(&self, log: &ThreadLog, matching: &mut Matching, wrong: &mut Vec<String>) {
        let (ops, mut beside) = self.of_thread(log.thread);
        if ops.len() != log.entries.len() {
            wrong.push(format!("thread {}: {} calls made, {} in the reel", log.thread, log.entries.len(), ops.len()));
        }
        let mut differing = 0;
        for (i, (op, entry)) in ops.iter().zip(&log.entries).enumerate() {
            let mut fields = self.differences(op, entry, matching);
            if (op.pid, op.tid) != (log.pid, log.tid) {
                fields.push(format!("pid, tid: {:?}, reel {:?}", (log.pid, log.tid), (op.pid, op.tid)));
            }
            if fields.is_empty() {
                continue;
            }
            wrong.push(format!("thread {} call {i}: {}: {}", log.thread, brief(entry), fields.join("; ")));
            differing += 1;
            // Once out of step, everything differs.
            if *op.op != *entry.op || differing > 20 {
                break;
            }
        }
        for entry in &log.beside {
            let same = |op: &&Op| self.differences(op, entry, &mut matching.clone()).is_empty();
            match beside.iter().position(same) {
                Some(i) => {
                    let op = beside.remove(i);
                    self.differences(op, entry, matching);
                }
                None => wrong.push(format!("thread {}: no row for {entry:?}", log.thread)),
            }
        }
        wrong.extend(beside.iter().map(|op| format!("thread {}: not expected: {op:?}", log.thread)));
    }

    /// The fields in which `op` is not what `entry` says, with both values.
    fn differences(&self, op: &Op, entry: &Entry, matching: &mut Matching) -> Vec<String> {
        let mut out = Vec::new();
        let mut note = |name: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
            out.push(format!("{name}: expected {expected:?}, reel {found:?}"));
        };
        macro_rules! exact {
            ($name:ident, $found:expr) => {
                if entry.$name != $found {
                    note(stringify!($name), &entry.$name, &$found);
                }
            };
        }
        macro_rules! where_known {
            ($($name:ident)*) => {$(
                if entry.$name.is_some() && entry.$name != op.$name {
                    note(stringify!($name), &entry.$name, &op.$name);
                }
            )*};
        }
        exact!(op, op.op.to_string());
        let state = entry.state.as_deref().unwrap_or("complete");
        let source = entry.source.as_deref().unwrap_or("syscall");
        if op.ret != (state == "complete").then_some(entry.ret) {
            note("ret", &entry.ret, &op.ret);
        }
        if *op.state != *state || *op.source != *source {
            note("state, source", &(state, source), &(&op.state, &op.source));
        }
        exact!(fd, op.fd);
        exact!(fd2, op.fd2);
        exact!(dirfd, op.dirfd);
        exact!(dirfd2, op.dirfd2);
        exact!(path, op.path.as_deref().map(str::to_owned));
        exact!(path2, op.path2.as_deref().map(str::to_owned));
        exact!(name, op.name.as_deref().map(str::to_owned));
        exact!(value, op.value.as_deref().map(str::to_owned));
        where_known!(offset_bytes offset2_bytes len_bytes flags mode aux aux2);
        for (name, expected, id) in [("file", entry.file, op.file), ("file2", entry.file2, op.file2)] {
            let found = id.and_then(|id| self.files.get(&id));
            if let Some(identity) = expected
                && !found.is_some_and(|f| same_file(&identity, f))
            {
                note(name, &identity, &found);
            }
        }
        if entry.no_file && op.file.is_some() {
            note("file", &"none", &op.file);
        }
        if let (Some(path), Some(file)) = (&entry.opened, op.file.and_then(|f| self.files.get(&f)))
            && entry.ret >= 0
            && file.path.is_none()
        {
            note("path of the file", path, &file.path);
        }
        for (name, label, id) in [("ofd", entry.ofd, op.ofd), ("ofd2", entry.ofd2, op.ofd2)] {
            let Some(label) = label else { continue };
            let Some(id) = id else {
                note(name, &"some", &id);
                continue;
            };
            let (known, back) =
                (*matching.ofds.entry(label).or_insert(id), *matching.labels.entry(id).or_insert(label));
            if (known, back) != (id, label) {
                note(name, &(label, known), &(back, id));
            }
        }
        let start_ns = self.start_ns + op.start_ns;
        if start_ns < entry.before_ns || start_ns + op.dur_ns > entry.after_ns || op.dur_ns < 0 {
            let (start, end) = (start_ns - entry.before_ns, start_ns + op.dur_ns - entry.before_ns);
            note("time (ns after the call began)", &(0, entry.after_ns - entry.before_ns), &(start, end));
        }
        out
    }

    /// Nothing on the workload's file system happened outside the marks.
    fn nothing_else(&self, own: i64, logs: &[ThreadLog], wrong: &mut Vec<String>) {
        let inside: HashSet<i64> = logs.iter().flat_map(|l| self.of_thread(l.thread).0).map(|op| op.op_id).collect();
        for op in self.ops.iter().filter(|o| o.source == "syscall" && !inside.contains(&o.op_id)) {
            let on_device = op.file.and_then(|f| self.files.get(&f)).is_some_and(|f| f.dev == own);
            if on_device {
                wrong.push(format!("not the workload's: {op:?}"));
            }
        }
        let mut seen = HashSet::new();
        wrong.extend(self.ops.iter().filter(|o| !seen.insert(o.op_id)).map(|o| format!("twice: {o:?}")));
    }

    /// Threads and processes are told apart, with their parents and ends.
    fn tasks_match(&self, logs: &[ThreadLog]) {
        let task = |thread: u32| &self.tasks[&self.of_thread(thread).0[0].task_id];
        let pids: BTreeMap<u32, i32> = logs.iter().map(|l| (l.thread, l.pid)).collect();
        for (threads, exit_code) in THREADS.iter().zip(EXIT_CODES) {
            let leader = task(threads[0]);
            assert_eq!(leader.exit_code, Some(exit_code << 8), "{leader:?}");
            assert_eq!(leader.pid, pids[&threads[0]]);
            assert_eq!(leader.tid, leader.pid);
            for t in &threads[1..] {
                let own = task(*t);
                assert_eq!(own.parent, Some(leader.task_id), "{own:?}");
                let shared = i64::from(libc::CLONE_THREAD | libc::CLONE_FILES | libc::CLONE_FS);
                assert_eq!(own.clone_flags & shared, shared, "{own:?}");
                assert!(own.exit_ns.is_some(), "{own:?}");
            }
        }
        let first = task(THREADS[0][0]);
        for threads in &THREADS[1..] {
            let own = task(threads[0]);
            assert_eq!(own.parent, Some(first.task_id));
            assert_eq!(own.clone_flags & i64::from(libc::CLONE_THREAD | libc::CLONE_FILES), 0);
        }
    }
}

fn same_file(expected: &Identity, found: &File) -> bool {
    let generation = |g: i64| g as u32;
    (expected.dev, expected.ino) == (found.dev, found.ino)
        && expected.generation.is_none_or(|g| generation(g) == generation(found.generation))
}

/// A call in few words.
fn brief(e: &Entry) -> String {
    let parts = [
        e.fd.map(|v| format!("fd {v}")),
        e.path.as_ref().map(|p| p.chars().take(80).collect()),
        e.path2.as_ref().map(|p| p.chars().take(80).collect()),
        Some(format!("= {}", e.ret)),
    ];
    format!("{} {}", e.op, parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
}
