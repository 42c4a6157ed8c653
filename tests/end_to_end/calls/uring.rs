//! Requests to io_uring: a program that issues every kind of them, its rows held against what it was told.

pub(crate) mod ring;
mod work;

use std::{collections::HashMap, env, fs, path::Path};

use ioreel_traces::{
    Reel,
    rows::{Bio, Op, Task},
};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    paths_of, record, replays_alike_except, succeed, temp_dir, text,
};

/// The argument that makes the test program issue the requests instead.
pub(crate) const WORD: &str = "io-uring-workload";

/// Runs the workload.
pub(crate) fn run(base: &str, log: &Path) -> i32 {
    work::run(base, log)
}

fn cell(op: &Op, column: &str, paths: &HashMap<i64, String>) -> String {
    fn show<T: std::fmt::Display>(value: Option<T>) -> String {
        value.map_or("null".into(), |v| v.to_string())
    }
    let file = |f: Option<i64>| show(f.map(|f| paths.get(&f).cloned().unwrap_or_else(|| "unknown".into())));
    match column {
        "op" => op.op.to_string(),
        "state" => op.state.to_string(),
        "ret" => show(op.ret),
        "dur_ns" => op.dur_ns.to_string(),
        "tid" => op.tid.to_string(),
        "fd" => show(op.fd),
        "fd2" => show(op.fd2),
        "dirfd" => show(op.dirfd),
        "dirfd2" => show(op.dirfd2),
        "ofd" => show(op.ofd),
        "file" => file(op.file),
        "file2" => file(op.file2),
        "path" => show(op.path.as_deref()),
        "name" => show(op.name.as_deref()),
        "path2" => show(op.path2.as_deref()),
        "offset_bytes" => show(op.offset_bytes),
        "offset2_bytes" => show(op.offset2_bytes),
        "len_bytes" => show(op.len_bytes),
        "flags" => show(op.flags),
        "mode" => show(op.mode),
        "aux" => show(op.aux),
        "aux2" => show(op.aux2),
        "ring" => show(op.ring),
        "user_data" => show(op.user_data),
        "sqe_flags" => show(op.sqe_flags),
        "buf_index" => show(op.buf_index),
        _ => panic!("no column {column}"),
    }
}

/// What is wrong with the row of a line of the log.
fn differences(line: &str, op: &Op, paths: &HashMap<i64, String>) -> Vec<String> {
    let fields: Vec<(&str, &str)> = line.split('\t').filter_map(|f| f.split_once('=')).collect();
    // A result that may not be known.
    let maybe = fields.iter().find(|(c, _)| *c == "maybe").map(|(_, v)| *v);
    let mut wrong = Vec::new();
    for (column, expected) in fields {
        match column {
            "maybe" => {}
            "has" => {
                let bits: i32 = expected.parse().unwrap();
                if op.sqe_flags.unwrap_or(0) & bits != bits {
                    wrong.push(format!("sqe_flags {:?} lack some of {bits}", op.sqe_flags));
                }
            }
            _ => {
                let found = cell(op, column, paths);
                if found != expected && (column != "ret" || Some(found.as_str()) != maybe) {
                    wrong.push(format!("{column} is {found}, not {expected}"));
                }
            }
        }
    }
    wrong
}

/// Every request has one row, and each column of it is right.
pub(crate) fn every_request_is_seen(fs: Fs) {
    let out = temp_dir();
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let (reel, log) = (out.path().join("uring.reel"), out.path().join("log"));
    let own = env::current_exe().unwrap();
    succeed(&mut record(&reel, &[], &[text(&own), WORD, text(mounted.path()), text(&log)]));
    let path = reel;
    let reel = assert_valid(&path);
    let paths = paths_of(&reel);
    let ops = reel.read::<Op>().unwrap();
    let requests: Vec<&Op> = ops.iter().filter(|o| o.source == "io_uring").collect();
    let log = fs::read_to_string(log).unwrap();
    let mut wrong = Vec::new();
    for line in log.lines() {
        let user_data: i64 = line.split('\t').next().unwrap().strip_prefix("user_data=").unwrap().parse().unwrap();
        match requests.iter().filter(|o| o.user_data == Some(user_data)).collect::<Vec<_>>()[..] {
            [op] => {
                let found = differences(line, op, &paths);
                if !found.is_empty() {
                    wrong.push(format!("{}\n  of {line}\n  in {op:?}", found.join("; ")));
                }
            }
            ref rows => wrong.push(format!("{} rows for {line}", rows.len())),
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows are wrong:\n{}", wrong.len(), log.lines().count(), wrong.join("\n"));
    assert_eq!(requests.len(), log.lines().count(), "rows nobody asked for");
    // Buffers are provided once, and once more for reads that go on, which Linux 6.1 does not know.
    let goes_on = ring::Ring::new(4, 0).knows(work::READ_MULTISHOT);
    let left_out = |what: &str| reel.manifest.left_out.get(what).copied().unwrap_or_default();
    assert_eq!(left_out("io_uring requests that are no file operations"), 1 + i64::from(goes_on));
    let further = left_out("further completions of io_uring requests that post several");
    assert_eq!(further, if goes_on { 3 } else { 0 });
    // Each request was submitted within a call on its ring by the same task, but for those that a kernel thread took.
    let enters: Vec<&Op> = ops.iter().filter(|o| o.op == "io_uring_enter").collect();
    assert!(enters.iter().all(|e| e.ring.is_some()), "{enters:?}");
    for op in requests.iter().filter(|o| o.sqe_flags.unwrap() & 2048 == 0) {
        let within = |e: &&&Op| {
            e.ring == op.ring && e.task_id == op.task_id && (e.start_ns..=e.start_ns + e.dur_ns).contains(&op.start_ns)
        };
        assert_eq!(enters.iter().filter(within).count(), 1, "{op:?}");
    }
    let setups: Vec<&Op> = ops.iter().filter(|o| o.op == "io_uring_setup").collect();
    let told: Vec<_> = setups.iter().map(|o| (o.ring, o.flags, o.aux, o.aux2)).collect();
    let some = |ring, flags, sq, cq| (Some(ring), Some(flags), Some(sq), Some(cq));
    assert_eq!(told, [some(1, 0, 32, 64), some(2, 0, 4, 8), some(3, 2, 8, 16), some(4, 0x3000, 8, 16)]);
    // The kernel's own threads are no tasks of the workload.
    let tasks = reel.read::<Task>().unwrap();
    assert!(tasks.iter().all(|t| !t.comm.starts_with("iou-")), "{tasks:?}");
    assert_eq!(tasks.len(), 3, "the program, its thread and its child: {tasks:?}");
    let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    // Of an attribute set by a request, the value is not recorded.
    replays_alike_except(fs.name(), &path, target.path(), "max", 1, &["/data: extended attributes user.ioreel="]);
}

/// fio's own counts, for plain, polled and fixed requests.
pub(crate) fn as_many_as_fio_says() {
    let out = temp_dir();
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    for (i, options) in [
        &["--direct=1"][..],
        &["--sqthread_poll"],
        &["--fixedbufs", "--registerfiles", "--direct=1"],
        &["--force_async=3"],
    ]
    .into_iter()
    .enumerate()
    {
        let reel = out.path().join(format!("{i}.reel"));
        let told = out.path().join(format!("{i}.json"));
        let output = format!("--output={}", text(&told));
        let directory = format!("--directory={}", text(mounted.path()));
        let mut fio = vec![
            "fio",
            "--name=job",
            "--ioengine=io_uring",
            "--iodepth=16",
            "--rw=randrw",
            "--bs=4k",
            "--size=16m",
            "--output-format=json",
            &output,
            &directory,
        ];
        fio.extend(options);
        succeed(&mut record(&reel, &[], &fio));
        let reel = assert_valid(&reel);
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&told).unwrap()).unwrap();
        let ops = reel.read::<Op>().unwrap();
        for (side, name) in [("read", "read"), ("write", "write")] {
            let rows: Vec<&Op> = ops.iter().filter(|o| o.source == "io_uring" && o.op == name).collect();
            let job = &json["jobs"][0][side];
            assert_eq!(Some(rows.len() as i64), job["total_ios"].as_i64(), "{options:?}: {side}");
            let bytes: i64 = rows.iter().filter_map(|o| o.ret).sum();
            assert_eq!(Some(bytes), job["io_bytes"].as_i64(), "{options:?}: {side}");
            assert!(rows.iter().all(|o| o.file.is_some() && o.offset_bytes.is_some_and(|at| at % 4096 == 0)));
        }
        requests_are_causes(&reel, &mounted, options);
    }
}

/// The same of direct I/O on btrfs, whose bios are of its own making.
pub(crate) fn direct_on_btrfs() {
    let mounted = Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES);
    let file = mounted.path().join("file");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    go_cold_with(&[&file]);
    for polled in ["--sqthread_poll=0", "--sqthread_poll=1"] {
        let out = temp_dir();
        let reel = out.path().join("x.reel");
        let filename = format!("--filename={}", text(&file));
        let job = ["--name=job", "--ioengine=io_uring", "--iodepth=4", "--rw=randread", "--bs=16k", "--direct=1"];
        succeed(&mut record(
            &reel,
            &[],
            &[&["fio"], &job[..], &["--size=8m", "--readonly", polled, &filename]].concat(),
        ));
        let reel = assert_valid(&reel);
        let ops: HashMap<i64, Op> = reel.read::<Op>().unwrap().into_iter().map(|o| (o.op_id, o)).collect();
        let mut bytes = 0;
        let read = |b: &Bio| Some(b.dev) == mounted.device_number() && b.op == "read" && b.class == "data";
        for b in reel.read::<Bio>().unwrap().into_iter().filter(read) {
            let op = &ops[&b.cause.unwrap()];
            assert_eq!((&*op.source, op.file, Some(op.task_id)), ("io_uring", b.file, b.task_id), "{polled} {b:?}");
            let (from, at) = (op.offset_bytes.unwrap(), b.file_offset_bytes.unwrap());
            assert!((from..from + op.len_bytes.unwrap()).contains(&at), "{polled} {op:?} {b:?}");
            bytes += b.len_bytes;
        }
        assert_eq!(bytes, 8 << 20, "{polled}");
    }
}

/// Bios name the request that they were queued for, whichever thread carried it out.
fn requests_are_causes(reel: &Reel, mounted: &Mounted, options: &[&str]) {
    let ops: HashMap<i64, Op> = reel.read::<Op>().unwrap().into_iter().map(|o| (o.op_id, o)).collect();
    let (mut caused, mut by_workers) = (0, 0);
    for b in reel.read::<Bio>().unwrap().iter().filter(|b| Some(b.dev) == mounted.device_number()) {
        let direct = b.how.as_deref() == Some("request");
        let Some(op) = b.cause.map(|id| &ops[&id]) else {
            assert!(!direct, "{options:?}: {b:?}");
            continue;
        };
        if op.source != "io_uring" {
            continue;
        }
        caused += 1;
        // PUNTED
        by_workers += i32::from(op.sqe_flags.unwrap() & 256 != 0);
        assert_eq!((Some(op.task_id), &op.op), (b.task_id, &b.op), "{op:?} {b:?}");
        assert!((op.start_ns..=op.start_ns + op.dur_ns).contains(&b.queue_ns), "{op:?} {b:?}");
        if direct {
            let from = op.offset_bytes.unwrap();
            assert_eq!(op.file, b.file);
            assert!((from..from + op.len_bytes.unwrap()).contains(&b.file_offset_bytes.unwrap()), "{op:?} {b:?}");
        }
    }
    if options.contains(&"--direct=1") {
        assert!(caused > 1000, "{options:?}: {caused}");
    }
    if options.contains(&"--force_async=3") {
        assert!(by_workers > 100, "{by_workers}");
    }
}

/// How many requests there were in each call that submitted any, by that number.
fn batches(reel: &Reel) -> std::collections::BTreeMap<usize, usize> {
    let ops = reel.read::<Op>().unwrap();
    let mut enters: Vec<&Op> = ops.iter().filter(|o| o.op == "io_uring_enter").collect();
    enters.sort_by_key(|o| o.start_ns);
    let mut sizes = vec![0; enters.len()];
    for o in ops.iter().filter(|o| o.source == "io_uring") {
        let at = enters.partition_point(|e| e.start_ns <= o.start_ns);
        sizes[at - 1] += 1;
    }
    let mut out = std::collections::BTreeMap::new();
    sizes.into_iter().filter(|n| *n > 0).for_each(|n| *out.entry(n).or_default() += 1);
    out
}

/// A replay, recorded itself, submits as many requests with each call as the original did.
pub(crate) fn batches_recur() {
    let out = temp_dir();
    let (origin, target) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES));
    let (reel, again) = (out.path().join("fio.reel"), out.path().join("replay.reel"));
    let fio =
        "fio --name=job --ioengine=io_uring --iodepth=32 --iodepth_batch=8 --rw=randrw --bs=4k --size=4m --direct=1";
    let words: Vec<&str> = fio.split(' ').collect();
    succeed(record(&reel, &["--settle", "none"], &words).current_dir(origin.path()));
    let program = env!("CARGO_BIN_EXE_ioreel");
    let replay = [program, "replay", text(&reel), "--target", text(target.path()), "--max-own-lateness", "1h"];
    succeed(&mut record(&again, &["--settle", "none"], &replay));
    let (then, now) = (batches(&assert_valid(&reel)), batches(&assert_valid(&again)));
    assert_eq!(then.values().sum::<usize>(), now.values().sum::<usize>(), "{then:?} {now:?}");
    assert_eq!(then, now);
    assert!(then.keys().any(|n| *n > 1), "{then:?}");
}
