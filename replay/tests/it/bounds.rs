//! Reels made to cost far more than their size: planning takes time in proportion to the rows, or ends with an error that
//! says what is too much.

use ioreel_replay::{Replay, ReplayError};
use ioreel_traces::rows::{File, Task};

use crate::reel::{Draft, THREAD, config};

/// CPU time of planning, and the plan or error.
fn planned(draft: Draft) -> (i64, Result<Replay, ReplayError>) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let reel = draft.write(dir.path());
    let cpu_ns = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        t.tv_sec * 1_000_000_000 + t.tv_nsec
    };
    let before_ns = cpu_ns();
    let plan = Replay::plan(config(reel, &target));
    (cpu_ns() - before_ns, plan)
}

/// Eight times the rows may take little more than eight times as long; the square would be 64 times as long.
fn takes_its_length(what: &str, rows: i64, make: impl Fn(i64) -> Draft) {
    let (short_ns, plan) = planned(make(rows));
    plan.unwrap();
    let (long_ns, plan) = planned(make(8 * rows));
    plan.unwrap();
    assert!(long_ns < 28 * short_ns, "{what}: 8 times the rows take {} times as long", long_ns / short_ns);
}

fn is_too_much(what: &str, draft: Draft) {
    let (_, plan) = planned(draft);
    let e = plan.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(e.contains("planning this replay takes too much") && e.contains(what) && e.contains("--to"), "{what}: {e}");
}

fn task(task_id: i64, parent: Option<i64>, start_ns: i64) -> Task {
    let tid = 100 + task_id as i32;
    Task { task_id, pid: tid, tid, parent, start_ns, ..Task::default() }
}

#[test]
fn a_chain_of_forks() {
    takes_its_length("forks", 1500, |n| {
        let mut d = Draft::new();
        d.tasks.extend((1..n).map(|i| task(1 + i, Some(i), i * 1000)));
        d.pause(n * 1000);
        d.on(n, "stat", "/w", 0).mode = Some(0o040_755);
        d
    });
}

#[test]
fn a_chain_of_forks_that_inherit_ever_more() {
    let mut d = Draft::new();
    for i in 1..=4000 {
        d.files.push(File { file: i, kind: "regular".into(), ino: i, ..File::default() });
        let o = d.on(i, "openat", "f", 2 + i);
        (o.flags, o.aux, o.file, o.ofd) = (Some(0), Some(0), Some(i), Some(i));
        let now = d.now();
        d.tasks.push(task(i + 1, Some(i), now));
        d.pause(1000);
    }
    is_too_much("what forks inherit", d);
}

#[test]
fn calls_of_one_moment() {
    takes_its_length("one moment", 3000, |n| {
        let mut d = Draft::new();
        for i in 0..n {
            let o = d.on(1, "stat", "/w", 0);
            (o.mode, o.start_ns, o.dur_ns) = (Some(0o040_755), 1000, 1_000_000 + i);
        }
        d
    });
}

#[test]
fn names_of_one_file() {
    takes_its_length("names of a file", 2000, |n| {
        let mut d = Draft::new();
        d.create(1, "f", 1, 3);
        for i in 0..n {
            d.on(1, "link", "f", 0).path2 = Some(format!("l{i}").into());
            let o = d.on(1, "openat", &format!("l{i}"), 4);
            (o.flags, o.aux, o.file, o.ofd) = (Some(0), Some(0), Some(1), Some(2 + i));
            d.fd(1, "close", 4, 0);
        }
        for i in (0..n).rev() {
            d.on(1, "unlink", &format!("l{i}"), 0);
        }
        d
    });
}

#[test]
fn streams_of_one_thread() {
    takes_its_length("streams", 1500, |n| {
        let mut d = Draft::new();
        for i in 0..n {
            d.files.push(File { file: i, kind: "fifo".into(), ino: i, ..File::default() });
            d.io(1, "write", 3, 0, 1, 1).file = Some(i);
            d.fd(1, "close", 3, 0).file = Some(i);
        }
        d
    });
}

#[test]
fn threads_without_recorded_start() {
    takes_its_length("threads", 500, |n| {
        let mut d = Draft::new();
        for i in 2..n {
            d.tasks.push(task(i, None, 0));
            d.fds.push(ioreel_traces::rows::Fd { task_id: i, fd: 3, ofd: i, ..Default::default() });
        }
        d.on(1, "stat", "/w", 0).mode = Some(0o040_755);
        d
    });
}

#[test]
fn a_directory_of_many_names_that_moves_again_and_again() {
    let mut d = Draft::new();
    d.on(1, "mkdir", "d0", 0);
    for i in 0..4000 {
        d.on(1, "mkdir", &format!("d0/{i}"), 0);
    }
    for i in 0..4000 {
        d.on(1, "rename", &format!("d{}", i % 2), 0).path2 = Some(format!("d{}", (i + 1) % 2).into());
    }
    is_too_much("moved directories", d);
}

#[test]
fn paths_of_hundreds_of_thousands_of_components() {
    let mut d = Draft::new();
    let long = "/a".repeat(300_000);
    d.had("/w", "directory", 0);
    d.had(&long, "regular", 5);
    d.on(1, "stat", &long, 0).mode = Some(0o100_644);
    d.on(1, "rename", "x", 0).path2 = Some(long.clone().into());
    d.on(1, "symlink", &long, 0).path2 = Some("l".into());
    d.on(1, "stat", "l", 0).mode = Some(0o100_644);
    let mut beside = task(2, Some(1), 0);
    (beside.cwd, beside.clone_flags) = (Some(long.clone().into()), THREAD & !0x200);
    d.tasks.push(beside);
    d.on(2, "stat", "f", 0).mode = Some(0o100_644);
    let (_, plan) = planned(d);
    let summary = plan.unwrap().summary;
    // A name of `tree`, three paths, and the thread's working directory.
    assert_eq!(summary.skipped.get("path longer than the kernel takes"), Some(&5), "{:?}", summary.skipped);
}

#[test]
fn directories_far_deeper_than_a_path() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for _ in 0..20_000 {
        d.on(1, "mkdir", "d", 0).mode = Some(0o755);
        d.on(1, "chdir", "d", 0);
    }
    let (_, plan) = planned(d);
    let summary = plan.unwrap().summary;
    assert!(summary.skipped["path longer than the kernel takes"] > 20_000, "{:?}", summary.skipped);
    assert!(summary.operations > 8000);
}
