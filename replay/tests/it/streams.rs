//! Reels larger than memory: data stored in files and read back in pieces is the same as in memory.

use std::{fs, path::Path};

use ioreel_replay::{
    Config, PlanOptions, Replay, plan,
    plan::program::{self, Plan},
    reel::input::Input,
    run::pace::Pace,
};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::Kind,
    rows::{File, Op, Task},
};

use crate::reel::{Draft, THREAD, at, config};

/// Operations of the large reel, by default (`IOREEL_STREAM_OPS`).
const OPS: i64 = 200_000;

/// Threads that create, look up, rename and remove files. Some calls last over thousands of others.
fn draft(rounds: i64) -> Draft {
    let mut d = Draft::new();
    for t in 2..=4 {
        d.fork(1, t, THREAD);
    }
    for i in 0..rounds {
        let (tmp, done) = (format!("tmp-{i}"), format!("done-{i}"));
        let (maker, taker) = (1 + i % 2, 3 + i % 2);
        d.on(taker, "stat", &done, -2);
        d.create(maker, &tmp, 10 + i, 3 + maker);
        d.io(maker, "write", 3 + maker as i32, 0, 100, 100);
        d.fd(maker, "close", 3 + maker as i32, 0);
        d.on(maker, "rename", &tmp, 0).path2 = Some(done.as_str().into());
        d.open(taker, &done, libc::O_RDONLY, 10 + i, 10 + taker);
        d.io(taker, "read", 10 + taker as i32, 0, 4096, 100);
        d.fd(taker, "close", 10 + taker as i32, 0);
        if i % 3 > 0 {
            d.on(taker, "unlink", &done, 0);
        }
        if i % 500 == 250 {
            // In flight during the rest of this segment and the start of the next.
            d.fork(1, 1000 + i, THREAD);
            d.on(1000 + i, "stat", "nothing", -2).dur_ns = 20_000_000;
        }
    }
    d
}

fn planned(reel: &Path, memory_bytes: usize) -> Plan {
    let input = Input::read(&Reel::open(reel).unwrap()).unwrap();
    plan(input, PlanOptions { privileged: true, memory_bytes, ..Default::default() }).unwrap()
}

/// All steps and edges as text.
fn steps(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    for task in 0..plan.tasks.len() as u32 {
        plan.each_step(task, |number, step, chunk| {
            let (rec, path) = match step.act {
                program::Act::Call { rec, .. } => {
                    let r = &chunk.recs[rec as usize];
                    (format!("{:?} {} {} {}", r.call, r.row, r.ret, r.turn_ns), chunk.paths.bytes(r.path).to_vec())
                }
                _ => (format!("{:?}", step.act), Vec::new()),
            };
            let edges = step.after.of(&chunk.edges);
            out.push(format!("{task} {number} {rec} {} {edges:?}", String::from_utf8_lossy(&path)));
        });
    }
    out
}

#[test]
fn a_plan_in_files_is_the_plan_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let small = WriterOptions { segment_rows: 700, ..WriterOptions::default() };
    let reel = draft(3000).write_in(dir.path(), small);
    assert!(Reel::open(&reel).unwrap().segments::<Op>().len() > 30);
    let whole = tempfile::tempdir().unwrap();
    let whole = draft(3000).write(whole.path());
    let (memory, files) = (steps(&planned(&reel, usize::MAX)), steps(&planned(&reel, 0)));
    assert_eq!(memory.len(), files.len());
    assert!(memory == files);
    let _ = whole;
}

#[test]
fn a_replay_from_files_is_faithful() {
    let dir = tempfile::tempdir().unwrap();
    let small = WriterOptions { segment_rows: 700, ..WriterOptions::default() };
    let reel = draft(2000).write_in(dir.path(), small);
    for (pace, memory_bytes) in
        [(Pace::Max, usize::MAX), (Pace::Max, 0), (Pace::Max, 300 << 10), (Pace::Original, 0), (Pace::Load, 0)]
    {
        let target = dir.path().join(format!("t-{}-{memory_bytes}", pace.name()));
        fs::create_dir(&target).unwrap();
        let result = dir.path().join(format!("r-{}-{memory_bytes}.reel", pace.name()));
        let c =
            Config { clockwork: at(pace), memory_bytes, result: Some(result.clone()), ..config(reel.clone(), &target) };
        let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
        assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results);
        // Every row of the result belongs to its original.
        let original = Reel::open(&reel).unwrap().read::<Op>().unwrap();
        let by_id: std::collections::HashMap<i64, &Op> = original.iter().map(|o| (o.op_id, o)).collect();
        let replayed = Reel::open(&result).unwrap().read::<Op>().unwrap();
        let joined: Vec<&Op> = replayed.iter().filter(|o| o.source == *"replay").collect();
        assert_eq!(joined.len(), original.len());
        let mut seen = std::collections::HashSet::new();
        for o in joined {
            let from = by_id[&o.orig_op_id.unwrap()];
            assert!(seen.insert(from.op_id) && from.path == o.path && o.start_ns >= o.due_ns.unwrap());
            assert!(from.ret.unwrap() == o.ret.unwrap() || (from.ret >= Some(0) && o.ret >= Some(0)));
        }
    }
}

/// Create, write, close, stat and unlink by eight threads with a thousand names each.
fn storm(path: &Path, ops: i64) {
    let manifest = Manifest::new(Kind::Synthetic, "storm");
    let mut w = ReelWriter::create(path, &manifest, WriterOptions::default()).unwrap();
    for t in 1..=8_i64 {
        let parent = (t > 1).then_some(1);
        let cwd = (t == 1).then(|| "/w".into());
        w.tasks
            .push(Task { task_id: t, pid: 1, tid: t as i32, parent, clone_flags: THREAD, cwd, ..Task::default() })
            .unwrap();
    }
    for i in 0..ops / 5 {
        let (t, file) = (1 + i % 8, i + 1);
        let name = Some(format!("t{t}-{}", i / 8 % 1000).as_str().into());
        w.files.push(File { file, kind: "regular".into(), first_ns: i * 100_000, ..File::default() }).unwrap();
        for (n, (op, ret)) in
            [("openat", 2 + t), ("write", 100), ("close", 0), ("newfstatat", 0), ("unlink", 0)].into_iter().enumerate()
        {
            let mut o = Op {
                op_id: -1,
                start_ns: i * 100_000 + 20_000 * n as i64,
                dur_ns: 5_000,
                task_id: t,
                op: op.into(),
                source: "syscall".into(),
                state: "complete".into(),
                ret: Some(ret),
                file: Some(file),
                ..Op::default()
            };
            match op {
                "write" => (o.fd, o.len_bytes, o.offset_bytes) = (Some(2 + t as i32), Some(100), Some(0)),
                "close" => o.fd = Some(2 + t as i32),
                _ => (o.path, o.dirfd) = (name.clone(), Some(-100)),
            }
            match op {
                "openat" => (o.flags, o.mode, o.aux) = (Some(0o101), Some(0o644), Some(1)),
                "newfstatat" => (o.mode, o.flags, o.len_bytes) = (Some(0o100_644), Some(0), Some(100)),
                _ => {}
            }
            w.ops.push(o).unwrap();
        }
    }
    w.close(manifest).unwrap();
}

/// `IOREEL_STREAM_REEL` keeps the reel there, to replay it with the program and measure its memory.
#[test]
fn memory_does_not_grow_with_operations() {
    let ops = std::env::var("IOREEL_STREAM_OPS").ok().and_then(|n| n.parse().ok()).unwrap_or(OPS);
    let dir = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("IOREEL_STREAM_REEL");
    let reel = kept.as_ref().map_or(dir.path().join("storm.reel"), Into::into);
    storm(&reel, ops);
    if kept.is_some() {
        return;
    }
    let plan = planned(&reel, 0);
    assert_eq!(plan.calls, ops);
    // Slots, names and open files are reused: a thousand names and one descriptor per thread.
    assert!(plan.fd_slots <= 8 * 16, "{}", plan.fd_slots);
    assert!(plan.names.len() <= 8 * 1000 + 10, "{}", plan.names.len());
}
