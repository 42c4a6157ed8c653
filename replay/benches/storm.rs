//! What replaying costs per operation: a storm of create, close, stat and unlink on tmpfs, issued by a plain
//! loop and by a replay at full pace, by turns. Prints one line per number of threads.
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]

use std::{
    ffi::CString,
    path::{Path, PathBuf},
    time::Instant,
};

use ioreel_replay::{
    Config, Replay, Slice,
    cache::CacheStart,
    data::DataOptions,
    edge::{Kinds, OrderMode},
    pace::{CatchUp, Clockwork, Pace},
    scale::Scale,
    store::DEFAULT_MEMORY_BYTES,
    verdict::Limits,
    world::DEFAULT_SPIN_NS,
};
use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::Kind,
    rows::{File, Op, Task},
};

/// Files per thread; four operations each.
const FILES: i64 = 100_000;
/// Each number is the best of so many runs: the others were disturbed.
const RUNS: usize = 3;

fn name(thread: i64, i: i64) -> String {
    format!("t{thread}-{}", i % 1000)
}

fn reel(path: &Path, threads: i64) {
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
    for i in 0..FILES {
        for t in 1..=threads {
            let file = i * threads + t;
            w.files.push(File { file, kind: "regular".into(), ..File::default() }).unwrap();
            let path = Some(name(t, i).as_str().into());
            let fd = Some(2 + t as i32);
            for (op, ret) in [("openat", 2 + t), ("close", 0), ("newfstatat", 0), ("unlink", 0)] {
                at += 1000;
                let mut o = Op {
                    op_id: -1,
                    start_ns: at,
                    dur_ns: 500,
                    task_id: t,
                    op: op.into(),
                    source: "syscall".into(),
                    state: "complete".into(),
                    ret: Some(ret),
                    ..Op::default()
                };
                match op {
                    "close" => (o.fd, o.file) = (fd, Some(file)),
                    _ => (o.path, o.dirfd) = (path.clone(), Some(-100)),
                }
                match op {
                    "openat" => {
                        (o.flags, o.mode, o.aux, o.file) = (Some(0o101), Some(0o644), Some(1), Some(file));
                    }
                    "newfstatat" => (o.mode, o.flags) = (Some(0o100_644), Some(0)),
                    _ => {}
                }
                w.ops.push(o).unwrap();
            }
        }
    }
    w.close(manifest).unwrap();
}

fn native(dir: &Path, threads: i64) -> f64 {
    std::env::set_current_dir(dir).unwrap();
    let names: Vec<Vec<CString>> =
        (1..=threads).map(|t| (0..1000).map(|i| CString::new(name(t, i)).unwrap()).collect()).collect();
    let start = Instant::now();
    std::thread::scope(|s| {
        for names in &names {
            s.spawn(move || {
                let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
                for i in 0..FILES {
                    let path = names[(i % 1000) as usize].as_ptr();
                    // SAFETY: plain calls on a NUL-terminated name.
                    unsafe {
                        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, 0o101, 0o644);
                        libc::syscall(libc::SYS_close, fd);
                        libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, stat.as_mut_ptr(), 0);
                        libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0);
                    }
                }
            });
        }
    });
    start.elapsed().as_secs_f64()
}

fn main() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for threads in [1, 2, 8] {
        let path: PathBuf = dir.path().join(format!("{threads}.reel"));
        reel(&path, threads);
        let target = dir.path().join("target");
        std::fs::create_dir_all(&target).unwrap();
        let (mut best, mut best_native, mut plan) = (f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..RUNS {
            best_native = best_native.min(native(&target, threads));
            let begin = Instant::now();
            let replay = Replay::plan(Config {
                reel: path.clone(),
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
            plan = plan.min(begin.elapsed().as_secs_f64());
            let report = replay.run(ioreel_replay::watch::Unwatched, |_| ()).unwrap();
            assert_eq!(report.verdict.results.classes.wrong, 0);
            best = best.min(report.elapsed_ns as f64 / 1e9);
        }
        let ops = (FILES * threads * 4) as f64;
        println!(
            "{threads} threads: native {:.0} ns/op, replay {:.0} ns/op ({:.2}x, {:.0} operations/s); planned at {:.0} ns/op",
            best_native / ops * 1e9,
            best / ops * 1e9,
            best / best_native,
            ops / best,
            plan / ops * 1e9
        );
    }
}
