//! Reels made to keep readers busy: each command ends, with an answer or one line, within bounds of time and memory.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{Kind, Span},
    private::Folder,
    rows::{Bio, Block, Commit, File, Op, Task, Wait, block_flags},
};
use tempfile::TempDir;

const S: i64 = 1_000_000_000;
/// Processor time and memory of one command.
const MOST_SECONDS: i64 = 60;
const MOST_KIB: i64 = 1536 * 1024;
/// After this a command is killed, on however busy a machine.
const MOST_WAIT: Duration = Duration::from_secs(900);

fn made(dir: &Path, fill: impl FnOnce(&mut ReelWriter)) -> PathBuf {
    let path = dir.join("hostile.reel");
    let span = Span { elapsed_ns: 10 * S, ..Span::default() };
    let manifest = Manifest { span, ..Manifest::new(Kind::Synthetic, "test") };
    let options = WriterOptions { segment_age: Duration::MAX, ..WriterOptions::default() };
    let mut writer = ReelWriter::create(&path, &manifest, options).unwrap();
    fill(&mut writer);
    writer.close(manifest).unwrap();
    path
}

/// Runs the program on a reel. Its exit status and what it wrote to standard error.
#[track_caller]
fn bounded(words: &[&str], out: &Path) -> (i32, String) {
    let (errors, output) = (out.join("errors"), out.join("output"));
    #[expect(clippy::zombie_processes, reason = "it is reaped by number, with its resource usage")]
    let child = Command::new(env!("CARGO_BIN_EXE_ioreel"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output).unwrap())
        .stderr(fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let (pid, began) = (child.id() as libc::pid_t, Instant::now());
    // SAFETY: all zeroes is a valid rusage.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    loop {
        // SAFETY: waits for a child of this process, into memory of this function.
        match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut used) } {
            0 if began.elapsed() < MOST_WAIT => thread::sleep(Duration::from_millis(20)),
            // SAFETY: the child has not been waited for.
            0 => _ = unsafe { libc::kill(pid, libc::SIGKILL) },
            _ => break,
        }
    }
    let errors = fs::read_to_string(errors).unwrap();
    assert!(libc::WIFEXITED(status), "{words:?} was killed after {:?}: {errors}", began.elapsed());
    let seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec;
    println!("{:8} {seconds:3} s {:5} MiB {}", words[0], used.ru_maxrss / 1024, errors.lines().next().unwrap_or(""));
    assert!(seconds <= MOST_SECONDS, "{words:?} took {seconds} s of CPU");
    assert!(used.ru_maxrss <= MOST_KIB, "{words:?} took {} KiB", used.ru_maxrss);
    assert!(!errors.contains("panicked"), "{errors}");
    (libc::WEXITSTATUS(status), errors)
}

/// Every command that reads a reel, and how each ended.
#[track_caller]
fn each_command(reel: &Path, out: &Path) -> Vec<(String, i32, String)> {
    let (reel, at) = (reel.to_str().unwrap(), |name: &str| out.join(name).to_str().unwrap().to_owned());
    let (page, picture, trace, log) = (at("r.html"), at("r.png"), at("r.pftrace"), at("r.log"));
    let commands: [&[&str]; 9] = [
        &["info", reel],
        &["stats", reel],
        &["validate", reel],
        &["report", reel, "-o", &page],
        &["plot", reel, "-o", &picture],
        &["export", reel, "perfetto", "-o", &trace],
        &["export", reel, "fio", "-o", &log],
        &["diagnose", reel, "--all"],
        &["explain", reel, "--slowest", "100"],
    ];
    commands
        .map(|words| {
            let (status, errors) = bounded(words, out);
            (words[..words.len().min(2)].join(" "), status, errors)
        })
        .to_vec()
}

fn temp_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn request(i: i64, op: &str, sector: i64, len_bytes: i64) -> Block {
    let issue_ns = i * 1000;
    Block {
        rq_id: -1,
        queue_ns: Some(issue_ns),
        issue_ns,
        complete_ns: Some(issue_ns + 500),
        dev: 8 << 20,
        sector,
        len_bytes,
        op: op.into(),
        ..Block::default()
    }
}

#[test]
fn lengths_of_2_to_the_63_end() {
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        for (i, (op, sector)) in
            [("write", 0), ("read", 0), ("write", 1 << 40), ("read", i64::MAX)].into_iter().enumerate()
        {
            let i = i as i64;
            w.block.push(request(i, op, sector, i64::MAX)).unwrap();
            let bio = Bio {
                bio_id: -1,
                queue_ns: i * 1000,
                complete_ns: Some(i64::MAX),
                dev: 8 << 20,
                sector,
                len_bytes: i64::MAX,
                op: op.into(),
                class: if i % 2 == 0 { "inode_table".into() } else { "data".into() },
                file: Some(1),
                file_offset_bytes: Some(sector),
                flags: block_flags::READAHEAD,
                ..Bio::default()
            };
            w.bio.push(bio).unwrap();
            let call = Op {
                op_id: -1,
                op: if op == "write" { "pwrite64".into() } else { "pread64".into() },
                source: "syscall".into(),
                state: "complete".into(),
                start_ns: i,
                dur_ns: i64::MAX,
                file: Some(1),
                offset_bytes: Some(sector),
                len_bytes: Some(i64::MAX),
                ret: Some(i64::MAX),
                ..Op::default()
            };
            w.ops.push(call).unwrap();
        }
    });
    each_command(&reel, dir.path());
}

#[test]
fn many_requests_of_four_gigabytes_end() {
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        for i in 0..200_000 {
            let op = if i % 2 == 0 { "write" } else { "read" };
            w.block.push(request(i, op, i % 7 * (1 << 24), u32::MAX.into())).unwrap();
        }
    });
    each_command(&reel, dir.path());
}

#[test]
fn a_long_chain_of_threads_ends() {
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        for task_id in 0..2_000_000 {
            let task = Task {
                task_id,
                parent: Some(task_id - 1),
                clone_flags: 0x1_0000,
                start_ns: task_id,
                comm: "a".into(),
                ..Task::default()
            };
            w.tasks.push(task).unwrap();
        }
    });
    let ended = each_command(&reel, dir.path());
    assert_eq!(ended[0].1, 0, "{ended:?}");
}

#[test]
fn ids_far_apart_end() {
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        for i in 0..3_000_000 {
            let file = File { file: i * 1_000_003, kind: "regular".into(), first_ns: i, ..File::default() };
            w.files.push(file).unwrap();
        }
    });
    let ended = each_command(&reel, dir.path());
    assert_eq!((ended[0].1, ended[2].1), (0, 3), "{ended:?}");
}

#[test]
fn devices_and_calls_without_number_end() {
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        for i in 0..300_000 {
            w.block.push(Block { dev: i, ..request(i, "write", 0, 4096) }).unwrap();
            let op = Op {
                op_id: -1,
                op: format!("call{}", i % 100_000).into(),
                source: "syscall".into(),
                state: "complete".into(),
                start_ns: i,
                task_id: i,
                ..Op::default()
            };
            w.ops.push(op).unwrap();
        }
    });
    each_command(&reel, dir.path());
}

#[test]
fn a_segment_listed_two_thousand_times_is_refused() {
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        (0..100_000).for_each(|i| w.block.push(request(i, "write", i, 4096)).unwrap());
    });
    let mut manifest = Manifest::read(&reel).unwrap();
    let segments = manifest.segments.get_mut("block").unwrap();
    *segments = vec![segments[0].clone(); 2000];
    manifest.write(&Folder::open(&reel).unwrap()).unwrap();
    for (command, status, errors) in each_command(&reel, dir.path()) {
        let checks = command.starts_with("validate");
        assert_eq!(status, if checks { 3 } else { 1 }, "{command}: {errors}");
        assert!(checks || errors.contains("is listed twice"), "{command}: {errors}");
    }
    let repaired = bounded(&["validate", "--repair", reel.to_str().unwrap()], dir.path());
    assert_eq!(bounded(&["info", reel.to_str().unwrap()], dir.path()).0, 0, "{repaired:?}");
}

/// Calls of one thread that all overlap, each in all commits, and waits that all lie in all calls.
#[test]
fn waits_and_commits_that_all_overlap_end() {
    const EACH: i64 = 200_000;
    let dir = temp_dir();
    let reel = made(dir.path(), |w| {
        w.files.push(File { file: 1, sb_dev: 8 << 20, kind: "regular".into(), ..File::default() }).unwrap();
        w.tasks.push(Task { comm: "a".into(), ..Task::default() }).unwrap();
        for i in 0..EACH {
            let call = Op {
                op_id: if i % 2 == 0 { 7 } else { -1 },
                op: if i % 3 == 0 { "pwrite64".into() } else { "fsync".into() },
                source: "syscall".into(),
                state: "complete".into(),
                start_ns: i,
                dur_ns: S + EACH - 2 * i,
                file: Some(1),
                ret: Some(0),
                ..Op::default()
            };
            w.ops.push(call).unwrap();
            let wait = Wait {
                wait_id: -1,
                op: "fsync".into(),
                // Of a few calls, which the stories tell.
                op_start_ns: i % 100,
                start_ns: S / 2 + i,
                dur_ns: S,
                run_queue_ns: i64::MAX,
                reason: ["lock", "inode_lock", "journal", "device"][i as usize % 4].into(),
                owner_task_id: Some(0),
                waker_task_id: Some(0),
                ..Wait::default()
            };
            w.waits.push(wait).unwrap();
            let commit = Commit {
                commit_id: -1,
                sb_dev: 8 << 20,
                kind: "commit".into(),
                start_ns: if i % 2 == 0 { Some(i64::MIN) } else { None },
                flushing_ns: Some(i64::MIN + i),
                logging_ns: Some(S / 2 + i),
                end_ns: S / 2 + i % 1000,
                handles: Some(i64::MAX),
                len_bytes: Some(i64::MAX),
                ..Commit::default()
            };
            w.commits.push(commit).unwrap();
        }
    });
    each_command(&reel, dir.path());
    let reel = reel.to_str().unwrap();
    assert_eq!(bounded(&["explain", reel, "--op", "7", "--op", "9"], dir.path()).0, 0);
}
