//! Calls at a steady rate, replayed on tmpfs below the recorder.

use std::{collections::HashMap, fs, path::Path, process::Command};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Kind, Span},
    rows::{Op, Task},
};

use super::{Result, by_own_report, tell};

/// Calls a second, of all threads together.
pub(super) const PER_S: i64 = 50_000;
/// Each is known by its name.
const CALLS: i64 = 200_000;

/// Replays them by so many threads, and prints how late they were.
pub(super) fn measure(dir: &Path, threads: i64) -> Result<()> {
    let (reel, target) = (dir.join(format!("calls-{threads}.reel")), dir.join("target"));
    make(&reel, threads)?;
    fs::create_dir_all(&target)?;
    let (seen, own) = (dir.join("seen.reel"), dir.join("own.json"));
    let _ = fs::remove_dir_all(&seen);
    let ioreel = env!("CARGO_BIN_EXE_ioreel");
    // 3: done, but too late to be called faithful; the figures say so.
    let ours = format!(
        "{ioreel} replay {} --target {} --pace original --json >{} || [ $? = 3 ]",
        reel.display(),
        target.display(),
        own.display()
    );
    let mut record = Command::new(ioreel);
    record.args(["record", "--ops-only", "--no-snapshot", "--op", "newfstatat", "-o"]).arg(&seen);
    let out = record.args(["--", "sh", "-c", &ours]).output()?;
    if !out.status.success() {
        return Err(format!("recording: {}", String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    let when: HashMap<String, i64> = (0..CALLS).map(|i| (name(i), i * 1_000_000_000 / PER_S)).collect();
    let mut late = Vec::new();
    for op in Reel::open(&seen)?.rows::<Op>() {
        let op = op?;
        late.extend(op.path.as_deref().and_then(|p| when.get(p)).map(|at| (*at, op.start_ns - at)));
    }
    let label = format!("ioreel, {threads} thread{}", if threads == 1 { "" } else { "s" });
    tell(&label, late)?;
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&own)?)?;
    let timing = &report["verdict"]["timing"];
    let (done, elapsed_ns) = (report["done"].as_i64(), report["elapsed_ns"].as_f64());
    by_own_report(done, &timing["schedule_ns"], timing["drift_ppm"].as_f64(), elapsed_ns);
    fs::remove_dir_all(&reel)?;
    Ok(())
}

fn name(i: i64) -> String {
    format!("/n{i}")
}

fn make(path: &Path, threads: i64) -> Result<()> {
    let span = Span { elapsed_ns: CALLS * 1_000_000_000 / PER_S, ..Span::default() };
    let manifest = Manifest { span, ..Manifest::new(Kind::Synthetic, "bench") };
    let mut w = ReelWriter::create(path, &manifest, WriterOptions::default())?;
    for t in 1..=threads {
        let first = t == 1;
        w.tasks.push(Task {
            task_id: t,
            pid: 1,
            tid: t as i32,
            parent: (!first).then_some(1),
            clone_flags: if first { 0 } else { 0x10f00 },
            cwd: first.then(|| "/".into()),
            ..Task::default()
        })?;
    }
    for i in 0..CALLS {
        w.ops.push(Op {
            op_id: -1,
            start_ns: i * 1_000_000_000 / PER_S,
            dur_ns: 500,
            task_id: 1 + i % threads,
            op: "newfstatat".into(),
            source: "syscall".into(),
            state: "complete".into(),
            ret: Some(-2),
            path: Some(name(i).as_str().into()),
            dirfd: Some(-100),
            flags: Some(0),
            ..Op::default()
        })?;
    }
    w.close(manifest)?;
    Ok(())
}
