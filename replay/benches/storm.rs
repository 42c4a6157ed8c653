//! What replaying costs per operation, on tmpfs or in the folder that is given: a storm of create, close, stat and unlink, a file read from begin to end in
//! large pieces, and one read here and there in small ones, issued by a plain loop and by a replay at full pace, by turns. Prints
//! one line for each and number of threads: medians, and the median, least and largest of the ratios of two runs side by side. `cargo bench -p ioreel-replay --bench storm -- [/FOLDER] [WORD OF A JOB] [THREADS]`
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops at the first surprise")]

use std::{
    ffi::CString,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Instant,
};

use ioreel_replay::{
    Config, Replay, Slice,
    contents::data::DataOptions,
    plan::{
        edge::{Kinds, OrderMode},
        store::DEFAULT_MEMORY_BYTES,
    },
    prepare::page_cache::CacheStart,
    reel::footprint::Scale,
    run::{
        pace::{CatchUp, Clockwork, Pace},
        threads::DEFAULT_SPIN_NS,
    },
    verdict::judgement::Limits,
};
use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::Kind,
    rows::{File, Op, Task},
};

/// Loop and replay take turns so often, after a round that is not counted: an odd number, so that the median is one of them.
const ROUNDS: usize = 11;
/// Size of a file that is read; one for each thread.
const FILE_BYTES: i64 = 16 << 20;

#[derive(Clone, Copy)]
enum Job {
    /// Files made, closed, looked at and removed.
    Storm { files: i64 },
    /// Reads one after the other, so often through the file.
    Stream { piece_bytes: i64, rounds: i64 },
    /// As many reads anywhere.
    Random { piece_bytes: i64, reads: i64 },
}

const JOBS: [(&str, Job); 3] = [
    ("create/close/stat/unlink", Job::Storm { files: 100_000 }),
    ("128 KiB in order", Job::Stream { piece_bytes: 128 << 10, rounds: 128 }),
    ("4 KiB anywhere", Job::Random { piece_bytes: 4096, reads: 200_000 }),
];

impl Job {
    fn calls(self) -> i64 {
        match self {
            Self::Storm { files } => files * 4,
            Self::Stream { piece_bytes, rounds } => FILE_BYTES / piece_bytes * rounds,
            Self::Random { reads, .. } => reads,
        }
    }

    /// Offset and length of read `i`.
    fn read(self, i: i64) -> (i64, i64) {
        match self {
            Self::Storm { .. } => (0, 0),
            Self::Stream { piece_bytes, .. } => (i * piece_bytes % FILE_BYTES, piece_bytes),
            Self::Random { piece_bytes, .. } => {
                ((i.wrapping_mul(2_654_435_761) & 0x7fff_ffff) % (FILE_BYTES / piece_bytes) * piece_bytes, piece_bytes)
            }
        }
    }
}

fn name(thread: i64, i: i64) -> String {
    format!("t{thread}-{}", i % 1000)
}

fn read_name(thread: i64) -> String {
    format!("read-{thread}")
}

fn reel(path: &Path, job: Job, threads: i64) {
    let manifest = Manifest::new(Kind::Synthetic, "storm");
    let mut w = ReelWriter::create(path, &manifest, WriterOptions::default()).unwrap();
    for t in 1..=threads {
        let first = t == 1;
        w.tasks
            .push(Task {
                task_id: t,
                pid: 1,
                tid: t as i32,
                parent: (!first).then_some(1),
                clone_flags: if first { 0 } else { 0x10f00 },
                cwd: first.then(|| "/".into()),
                ..Task::default()
            })
            .unwrap();
    }
    let mut at = 0;
    let mut op = |task_id: i64, op: &str, ret: i64| {
        at += 1000;
        Op {
            op_id: -1,
            start_ns: at,
            dur_ns: 500,
            task_id,
            op: op.into(),
            source: "syscall".into(),
            state: "complete".into(),
            ret: Some(ret),
            ..Op::default()
        }
    };
    let opened = |mut o: Op, path: &str, file: i64, flags: i64, made: bool| {
        (o.path, o.dirfd, o.file) = (Some(path.into()), Some(-100), Some(file));
        (o.flags, o.mode, o.aux) = (Some(flags), Some(0o644), Some(i64::from(made)));
        o
    };
    if let Job::Storm { files } = job {
        for i in 0..files {
            for t in 1..=threads {
                let file = i * threads + t;
                w.files.push(File { file, kind: "regular".into(), ..File::default() }).unwrap();
                let path = name(t, i);
                let fd = Some(2 + t as i32);
                w.ops.push(opened(op(t, "openat", 2 + t), &path, file, 0o101, true)).unwrap();
                w.ops.push(Op { fd, file: Some(file), ..op(t, "close", 0) }).unwrap();
                let stat = Op { mode: Some(0o100_644), flags: Some(0), ..op(t, "newfstatat", 0) };
                w.ops.push(Op { path: Some(path.as_str().into()), dirfd: Some(-100), ..stat }).unwrap();
                w.ops.push(Op { path: Some(path.as_str().into()), dirfd: Some(-100), ..op(t, "unlink", 0) }).unwrap();
            }
        }
    } else {
        for t in 1..=threads {
            w.files.push(File { file: t, kind: "regular".into(), ..File::default() }).unwrap();
            w.ops.push(opened(op(t, "openat", 2 + t), &read_name(t), t, 0, false)).unwrap();
        }
        for i in 0..job.calls() {
            for t in 1..=threads {
                let (offset, len) = job.read(i);
                let fd = Some(2 + t as i32);
                let (offset_bytes, len_bytes) = (Some(offset), Some(len));
                w.ops.push(Op { fd, file: Some(t), offset_bytes, len_bytes, ..op(t, "pread64", len) }).unwrap();
            }
        }
    }
    w.close(manifest).unwrap();
}

fn native(dir: &Path, job: Job, threads: i64) -> f64 {
    std::env::set_current_dir(dir).unwrap();
    let names: Vec<Vec<CString>> =
        (1..=threads).map(|t| (0..1000).map(|i| CString::new(name(t, i)).unwrap()).collect()).collect();
    let files: Vec<_> = (1..=threads).map(|t| std::fs::File::open(read_name(t)).ok()).collect();
    let start = Instant::now();
    std::thread::scope(|s| {
        for (names, file) in names.iter().zip(&files) {
            s.spawn(move || match (job, file) {
                (Job::Storm { files }, _) => storm(names, files),
                (_, Some(file)) => {
                    let mut buffer = vec![1u8; job.read(0).1 as usize];
                    for i in 0..job.calls() {
                        let (offset, _) = job.read(i);
                        assert_eq!(file.read_at(&mut buffer, offset as u64).unwrap(), buffer.len());
                    }
                }
                _ => panic!("no file to read"),
            });
        }
    });
    start.elapsed().as_secs_f64()
}

fn storm(names: &[CString], files: i64) {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    for i in 0..files {
        let path = names[(i % 1000) as usize].as_ptr();
        // SAFETY: plain calls on a NUL-terminated name.
        unsafe {
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, 0o101, 0o644);
            libc::syscall(libc::SYS_close, fd);
            libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, stat.as_mut_ptr(), 0);
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0);
        }
    }
}

fn main() {
    // Cargo adds a flag of its own.
    let given: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (numbers, given): (Vec<_>, Vec<_>) = given.iter().partition(|a| a.parse::<i64>().is_ok());
    let (folders, words): (Vec<_>, Vec<_>) = given.into_iter().partition(|a| a.starts_with('/'));
    let threads: Vec<i64> =
        if numbers.is_empty() { vec![1, 2, 8] } else { numbers.iter().flat_map(|n| n.parse()).collect() };
    let folder = folders.first().map_or("/dev/shm", |f| f.as_str());
    for (what, job) in JOBS {
        if words.is_empty() || words.iter().any(|w| what.contains(w.as_str())) {
            for n in &threads {
                compare(what, job, *n, Path::new(folder));
            }
        }
    }
}

fn compare(what: &str, job: Job, threads: i64, folder: &Path) {
    let (dir, place) = (tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir_in(folder).unwrap());
    let path: PathBuf = dir.path().join("a.reel");
    reel(&path, job, threads);
    let target = place.path().join("target");
    std::fs::create_dir_all(&target).unwrap();
    let (mut natives, mut replays, mut plans, mut ratios) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        if !matches!(job, Job::Storm { .. }) {
            for t in 1..=threads {
                std::fs::write(target.join(read_name(t)), vec![7; FILE_BYTES as usize]).unwrap();
            }
        }
        let native_s = native(&target, job, threads);
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::create_dir(&target).unwrap();
        let begin = Instant::now();
        let replay = Replay::plan(Config {
            reel: path.clone(),
            untrusted: std::env::var_os("IOREEL_BENCH_UNTRUSTED").is_some(),
            control_group: false,
            target: target.clone(),
            clockwork: Clockwork { pace: Pace::Max, catch_up: CatchUp::Compress },
            order: OrderMode::Resource,
            without: Kinds::NONE,
            result: None,
            force: false,
            roots: Vec::new(),
            maps: Vec::new(),
            slice: Slice::default(),
            data: DataOptions::default(),
            scale: Scale::NONE,
            set_ids: false,
            device_nodes: false,
            force_room: false,
            skip_prepare: false,
            layout: false,
            memory: None,
            restored: false,
            max_bytes: None,
            cache: CacheStart::Prepared,
            memory_limit: None,
            spin_ns: DEFAULT_SPIN_NS,
            limits: Limits::default(),
            dry_run: false,
            memory_bytes: DEFAULT_MEMORY_BYTES,
        })
        .unwrap();
        let plan_s = begin.elapsed().as_secs_f64();
        let report = replay.run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
        assert_eq!(report.verdict.results.classes.wrong, 0);
        let replay_s = report.elapsed_ns as f64 / 1e9;
        if round > 0 {
            natives.push(native_s);
            replays.push(replay_s);
            plans.push(plan_s);
            ratios.push(replay_s / native_s);
        }
        std::env::set_current_dir("/").unwrap();
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::create_dir(&target).unwrap();
    }
    let ops = (job.calls() * threads) as f64;
    let ns_a_call = |seconds: &mut Vec<f64>| median(seconds) / ops * 1e9;
    let (native_ns, replay_ns, plan_ns) = (ns_a_call(&mut natives), ns_a_call(&mut replays), ns_a_call(&mut plans));
    println!(
        "{what}, {threads} threads: native {native_ns:.0} ns/op, replay {replay_ns:.0} ns/op ({:.2}x, {:.2} to {:.2}; {:.0} operations/s); planned at {plan_ns:.0} ns/op",
        median(&mut ratios),
        ratios[0],
        ratios[ROUNDS - 1],
        1e9 / replay_ns,
    );
}

/// Of an odd number; sorts them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
