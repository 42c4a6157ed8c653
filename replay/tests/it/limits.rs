//! Whatever a reel claims, a replay takes no more space and memory than it may.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use ioreel_replay::{Config, Replay, ReplayError, contents::data::DataOptions, session::watch::Unwatched};

use crate::reel::{Draft, config, replay_as};

const MAX_BYTES: i64 = 16 << 20;
/// More than the limit, in one call.
const MUCH: i64 = 64 << 20;

/// Bytes on disk of all files below.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let of = |e: fs::DirEntry| {
        if e.file_type().unwrap().is_dir() { disk_bytes(&e.path()) } else { e.metadata().unwrap().blocks() * 512 }
    };
    entries.map(of).sum()
}

/// Replays with a limit of [`MAX_BYTES`]. Returns the bytes on disk, and whether the replay was given up.
fn within_limit(build: impl FnOnce(&mut Draft)) -> (u64, bool) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "f", 1, 3);
    build(&mut d);
    let reel = d.write(dir.path());
    let replay = Replay::plan(Config { max_bytes: Some(MAX_BYTES), ..config(reel, &target) });
    let result = replay.and_then(|r| r.run(Unwatched, |_| ()));
    if let Err(e) = &result {
        let line = e.to_string();
        let is_limit = matches!(e, ReplayError::SpaceExhausted { .. } | ReplayError::TooMuch { .. });
        assert!(is_limit && line.contains("--max-bytes") && !line.contains('\n'), "{line}");
    }
    (disk_bytes(&target), result.is_err())
}

#[track_caller]
fn holds(build: impl FnOnce(&mut Draft)) {
    let (bytes, _) = within_limit(build);
    assert!(bytes <= MAX_BYTES as u64 + (64 << 10), "{bytes} bytes");
}

#[test]
fn writes_that_are_said_to_have_failed() {
    holds(|d| {
        for i in 0..8 {
            d.io(1, "pwrite64", 3, i * MUCH, MUCH, -i64::from(libc::ENOSPC)).file = Some(1);
        }
    });
}

#[test]
fn writes_that_are_said_to_have_been_short() {
    holds(|d| {
        for i in 0..64 {
            d.io(1, "pwrite64", 3, i << 20, 1 << 20, 1).file = Some(1);
        }
    });
}

#[test]
fn writes_without_a_position_or_into_another_file() {
    holds(|d| {
        d.create(1, "other", 2, 4);
        for i in 0..64 {
            let o = d.io(1, "write", 3, 0, 1 << 20, 1 << 20);
            (o.offset_bytes, o.file) = (None, None);
            // The row says that this is the same place of another file.
            d.io(1, "pwrite64", 4, i << 20, 1 << 20, 1 << 20).file = Some(1);
            d.io(1, "write", 3, 0, 1 << 20, 1 << 20).file = Some(1);
        }
    });
}

#[test]
fn reservations() {
    for ret in [0, -i64::from(libc::ENOSPC)] {
        holds(|d| {
            for i in 0..8 {
                let o = d.io(1, "fallocate", 3, i * MUCH, MUCH, ret);
                (o.mode, o.file) = (Some(libc::FALLOC_FL_KEEP_SIZE), Some(1));
            }
        });
    }
}

#[test]
fn sparse_files_that_are_mapped_and_dirtied() {
    holds(|d| {
        d.fd(1, "ftruncate", 3, 0).len_bytes = Some(MUCH * 4);
        let o = d.io(1, "mmap", 3, 0, MUCH * 4, 0x7000_0000);
        (o.mode, o.flags) = (Some(libc::PROT_READ | libc::PROT_WRITE), Some(i64::from(libc::MAP_SHARED)));
        o.file = Some(1);
        let o = d.op(1, "madvise", 0);
        (o.flags, o.file) = (Some(i64::from(libc::MADV_POPULATE_WRITE)), Some(1));
        (o.len_bytes, o.aux) = (Some(MUCH * 4), Some(0x7000_0000));
        let o = d.op(1, "dirty", 0);
        (o.source, o.file) = ("fault".into(), Some(1));
        (o.offset_bytes, o.len_bytes) = (Some(0), Some(MUCH * 4));
    });
}

#[test]
fn copies_of_sparse_files() {
    holds(|d| {
        d.fd(1, "ftruncate", 3, 0).len_bytes = Some(MUCH * 4);
        for (i, op) in ["FICLONE", "copy_file_range", "sendfile"].into_iter().enumerate() {
            let fd = 4 + i as i64;
            d.create(1, &format!("copy{i}"), 2 + i as i64, fd);
            let o = d.op(1, if op == "FICLONE" { "ioctl" } else { op }, if op == "FICLONE" { 0 } else { 4096 });
            (o.fd, o.fd2, o.len_bytes, o.file, o.file2) = (Some(3), Some(fd as i32), Some(MUCH * 4), Some(1), Some(2));
            (o.offset_bytes, o.offset2_bytes, o.aux) = (Some(0), Some(0), Some(0));
            if op == "FICLONE" {
                (o.name, o.flags) = (Some("FICLONE".into()), Some(0x4004_9409));
            }
        }
    });
}

#[test]
fn a_workload_that_overwrites_is_not_given_up() {
    let (bytes, given_up) = within_limit(|d| {
        for _ in 0..40 {
            d.io(1, "pwrite64", 3, 0, 4 << 20, 4 << 20).file = Some(1);
        }
    });
    assert!(!given_up && bytes >= 4 << 20, "{bytes} bytes");
}

/// Threads that read much at a time take little memory.
#[test]
fn long_reads_take_little_memory() {
    const THREADS: i64 = 16;
    const BYTES: i64 = 1 << 30;
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/f", "regular", BYTES).alloc_bytes = Some(0);
    for task in 2..2 + THREADS {
        d.fork(1, task, crate::reel::THREAD);
        d.open(task, "f", libc::O_RDONLY, 1, 3 + task);
    }
    for task in 2..2 + THREADS {
        d.io(task, "pread64", 3 + task as i32, 0, BYTES, BYTES).file = Some(1);
    }
    let peak_kib = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<i64>().unwrap()
    };
    let before = peak_kib();
    let (_dir, report) = replay_as(d, |c| c);
    assert!(report.verdict.results.differences.is_empty(), "{:?}", report.verdict.results.differences);
    // Other tests run beside.
    assert!(peak_kib() - before < 1 << 20, "{} KiB before, {} after", before, peak_kib());
}

/// Data of such calls is not checked, and says so.
#[test]
fn long_reads_and_writes_are_not_checked() {
    const BYTES: i64 = 20 << 20;
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "f", 1, 3);
    d.io(1, "pwrite64", 3, 0, BYTES, BYTES).file = Some(1);
    d.io(1, "pread64", 3, 0, BYTES, BYTES).file = Some(1);
    d.io(1, "pread64", 3, 4096, 4096, 4096).file = Some(1);
    let data = DataOptions { verify: true, ..DataOptions::default() };
    let (_dir, report) = replay_as(d, |c| Config { data, ..c });
    let found = report.data.unwrap();
    assert_eq!((found.bad_bytes, found.unchecked_bytes), (0, BYTES + 4096));
}
