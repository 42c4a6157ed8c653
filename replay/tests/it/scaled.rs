//! `--scale-footprint`: smaller files.

use std::fs;

use ioreel_replay::{Config, Replay, ReplayError, Report, reel::footprint::Scale, session::watch::Unwatched};

use crate::reel::{Draft, config};

/// Replays with a factor of 0.1.
fn tenth(draft: Draft) -> (tempfile::TempDir, Report) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = draft.write(dir.path());
    let scale = Scale::new(0.1).unwrap();
    let report = Replay::plan(Config { scale, ..config(reel, &target) }).unwrap().run(Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict);
    (dir, report)
}

#[test]
fn files_and_what_is_done_to_them() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/big", "regular", 10 << 20);
    d.had("/w/small", "regular", 300);
    d.open(1, "big", libc::O_RDONLY | libc::O_DIRECT, 1, 3);
    for i in 0..10 {
        d.io(1, "read", 3, i << 20, 1 << 20, 1 << 20);
    }
    d.io(1, "read", 3, 10 << 20, 1 << 20, 0);
    d.io(1, "pread64", 3, (10 << 20) - 4096, 4096, 4096);
    let o = d.fd(1, "lseek", 3, (10 << 20) - 100);
    (o.aux, o.flags) = (Some(-100), Some(2));
    d.open(1, "small", libc::O_RDWR | libc::O_APPEND, 2, 4);
    for i in 0..2000 {
        d.io(1, "write", 4, 300 + i * 100, 100, 100);
    }
    d.io(1, "pread64", 4, 150_000, 100, 100);
    d.io(1, "pread64", 4, 200_300, 100, 0);
    d.create(1, "new", 3, 5);
    let o = d.io(1, "writev", 5, 0, 1 << 20, 1 << 20);
    o.aux = Some(4);
    d.fd(1, "ftruncate", 5, 0).len_bytes = Some(600_000);
    d.io(1, "pread64", 5, 599_000, 4096, 1000);
    d.io(1, "pread64", 5, 600_000, 4096, 0);
    let o = d.fd(1, "fallocate", 5, 0);
    (o.offset_bytes, o.len_bytes, o.mode) = (Some(600_000), Some(400_000), Some(0));
    let (dir, report) = tenth(d);
    let w = dir.path().join("t/w");
    let len = |name: &str| fs::metadata(w.join(name)).unwrap().len();
    assert_eq!(len("big"), (1 << 20) / 4096 * 4096);
    assert!((16_384..=20_480 + 4096).contains(&len("small")), "{}", len("small"));
    assert!(len("new") <= 110_000, "{}", len("new"));
    assert!(report.summary.prepare_bytes < 1_200_000, "{:?}", report.summary);
}

#[test]
fn room_is_what_smaller_files_take() {
    let mut d = Draft::new();
    d.create(1, "huge", 1, 3);
    for i in 0..40 {
        d.io(1, "pwrite64", 3, i << 20, 1 << 20, 1 << 20);
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let plan = |scale: f64| {
        let scale = Scale::new(scale).unwrap();
        Replay::plan(Config { scale, max_bytes: Some(8 << 20), ..config(reel.clone(), &target) })
    };
    assert!(matches!(plan(1.0).unwrap_err(), ReplayError::TooMuch { .. }));
    let growth = plan(0.1).unwrap().summary.growth_bytes;
    assert!((4 << 20..5 << 20).contains(&growth), "{growth}");
}

/// As much is copied as the scaled source has.
#[test]
fn copies_of_smaller_files() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "a", 1, 3);
    for i in 0..27 {
        d.io(1, "write", 3, i * 4096, if i < 26 { 4096 } else { 2398 }, if i < 26 { 4096 } else { 2398 });
    }
    d.create(1, "b", 2, 4);
    let o = d.op(1, "copy_file_range", 26 * 4096 + 2398);
    (o.fd, o.fd2, o.len_bytes, o.offset_bytes, o.offset2_bytes) = (Some(3), Some(4), Some(1 << 40), Some(0), Some(0));
    (o.aux, o.file, o.file2) = (Some(3), Some(1), Some(2));
    // Refused because of O_APPEND, which the replay does not set.
    let o = d.op(1, "copy_file_range", -9);
    (o.fd, o.fd2, o.len_bytes, o.offset_bytes, o.offset2_bytes) = (Some(3), Some(4), Some(5), Some(0), Some(0));
    (o.aux, o.file, o.file2) = (Some(0), Some(1), Some(2));
    // Likewise for sendfile, with another errno; busybox tries it before it copies.
    d.open(1, "b", libc::O_WRONLY | libc::O_APPEND, 2, 5);
    let o = d.op(1, "sendfile", -22);
    (o.fd, o.fd2, o.len_bytes, o.offset_bytes, o.offset2_bytes) = (Some(3), Some(5), Some(50_000), Some(0), Some(0));
    (o.aux, o.file, o.file2) = (Some(0), Some(1), Some(2));
    let (dir, _) = tenth(d);
    let len = |name: &str| fs::metadata(dir.path().join("t/w").join(name)).unwrap().len();
    assert_eq!(len("a"), len("b"));
}

/// The tree was read before some of the appends.
#[test]
fn an_append_tells_how_long_the_file_was() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/log", "regular", 40_960);
    d.open(1, "log", libc::O_WRONLY | libc::O_APPEND, 1, 3);
    for i in 0..100 {
        d.io(1, "write", 3, 819_200 + i * 4096, 4096, 4096);
    }
    let (dir, _) = tenth(d);
    let log = fs::read(dir.path().join("t/w/log")).unwrap();
    assert_eq!(log.len(), 819_200 / 10 + 40_960);
    assert!(!log.contains(&0), "it was there before");
}
