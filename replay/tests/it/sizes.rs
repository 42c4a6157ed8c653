//! File sizes: how calls change them, and what results prove about initial sizes.

use std::fs;

use ioreel_replay::{Config, Replay, Slice, session::watch::Unwatched};
use ioreel_traces::rows::{Fd, File};

use crate::{
    reel::{Draft, THREAD, config, replay, replay_same},
    slices::cut_everywhere,
};

/// Files of 1000 bytes, and calls beyond their ends that move nothing.
fn nothing_moved() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for (file, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        d.create(1, name, file, file + 2);
        d.io(1, "write", file as i32 + 2, 0, 1000, 1000);
    }
    let o = d.fd(1, "lseek", 4, 50_000);
    (o.aux, o.flags) = (Some(50_000), Some(0));
    let o = d.io(1, "sendfile", 3, 5000, 100, 0);
    (o.fd2, o.offset2_bytes, o.aux) = (Some(4), Some(50_000), Some(2));
    let o = d.io(1, "copy_file_range", 3, 5000, 100, 0);
    (o.fd2, o.offset2_bytes, o.aux) = (Some(5), Some(70_000), Some(0));
    d.io(1, "pwrite64", 6, 9000, 0, 0);
    d.io(1, "pread64", 6, 900, 4096, 100);
    d.on(1, "mkdir", "last", 0).mode = Some(0o755);
    d
}

#[test]
fn what_moves_nothing_lengthens_nothing() {
    let dir = replay_same(nothing_moved());
    for name in ["a", "b", "c", "d"] {
        assert_eq!(fs::metadata(dir.path().join("t/w").join(name)).unwrap().len(), 1000, "{name}");
    }
    cut_everywhere(nothing_moved());
}

#[test]
fn a_write_that_does_not_append_proves_no_end() {
    const RWF_NOAPPEND: i64 = 0x20;
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/log", "regular", 100);
    d.open(1, "log", libc::O_RDWR | libc::O_APPEND, 1, 3);
    let o = d.io(1, "pwritev2", 3, 6, 4, 4);
    (o.flags, o.aux) = (Some(RWF_NOAPPEND), Some(1));
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/log")).unwrap().len(), 100);
}

/// How the appended file is reached.
#[derive(Clone, Copy, PartialEq)]
enum Log {
    Opened,
    OpenAtStart,
    Nameless,
}

/// The tree was read shortly before the recording started. Appends in between are missing.
fn appended_before_recorded(log: Log) -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    let flags = libc::O_RDWR | libc::O_APPEND;
    if log != Log::Nameless {
        d.had("/w/log", "regular", 69_600);
    }
    if log == Log::Opened {
        d.open(1, "log", flags, 1, 3);
    } else {
        d.files.push(File {
            file: 1,
            kind: "regular".into(),
            ino: 1,
            path: Some("/w/log".into()),
            size_bytes: Some(69_650),
            unlinked: Some((log == Log::Nameless).into()),
            ..Default::default()
        });
        d.fds.push(Fd { task_id: 1, fd: 3, ofd: 30, file: Some(1), offset_bytes: 0, flags: flags.into(), cloexec: 0 });
    }
    // An empty append reports the position of the description.
    d.io(1, "write", 3, 0, 0, 0);
    d.io(1, "write", 3, 69_700, 100, 100);
    d.io(1, "write", 3, 69_800, 100, 100);
    d.io(1, "pread64", 3, 69_850, 4096, 50);
    d
}

#[test]
fn an_append_tells_how_long_the_file_was() {
    for log in [Log::Opened, Log::OpenAtStart, Log::Nameless] {
        let dir = replay_same(appended_before_recorded(log));
        if log != Log::Nameless {
            assert_eq!(fs::metadata(dir.path().join("t/w/log")).unwrap().len(), 69_900);
        }
    }
}

#[test]
fn an_append_tells_it_to_a_slice() {
    for log in [Log::Opened, Log::OpenAtStart, Log::Nameless] {
        let draft = appended_before_recorded(log);
        for from_ns in draft.ops.iter().map(|o| o.start_ns).collect::<Vec<_>>() {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("t");
            fs::create_dir(&target).unwrap();
            let slice = Slice { from_ns, to_ns: i64::MAX };
            let config = Config { slice, ..config(appended_before_recorded(log).write(dir.path()), &target) };
            let verdict = Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap().verdict;
            assert!(verdict.faithful, "from {from_ns}: {} {:#?}", verdict.sentence, verdict.tree);
        }
    }
}

#[test]
fn appends_that_overlap_tell_it_together() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/log", "regular", 930);
    d.open(1, "log", libc::O_WRONLY | libc::O_APPEND, 1, 3);
    d.fork(1, 2, THREAD);
    // The first to append returns last.
    d.io(1, "write", 3, 1000, 100, 100).dur_ns = 30_000;
    d.io(2, "write", 3, 1100, 100, 100);
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/log")).unwrap().len(), 1200);
}

#[test]
fn what_others_appended_between_is_missing_and_told() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/log", "regular", 1000);
    d.open(1, "log", libc::O_WRONLY | libc::O_APPEND, 1, 3);
    d.io(1, "write", 3, 1000, 100, 100);
    d.io(1, "write", 3, 1300, 100, 100);
    let (_, report) = replay(d);
    let tree = report.verdict.tree.unwrap();
    assert_eq!(tree.examples, ["/w/log: regular of 1400 bytes expected, regular of 1200 bytes found"]);
    assert!(!report.verdict.faithful);
}
