//! Descriptor tables, working directories and umasks are shared and inherited as by fork, threads and exec.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use ioreel_replay::{Config, Replay, Slice, session::watch::Unwatched};
use ioreel_traces::rows::{Fd, File, Task};

use crate::reel::{Draft, THREAD, config, replay, replay_same};

const EBADF: i64 = -9;
const CLONE_FS: i64 = 0x200;

#[test]
fn a_forked_child_shares_the_position() {
    let mut d = Draft::new();
    d.create(1, "log", 1, 3);
    d.io(1, "write", 3, 0, 100, 100);
    d.fork(1, 2, 0);
    d.io(2, "write", 3, 100, 50, 50);
    d.io(1, "write", 3, 150, 25, 25);
    d.io(2, "write", 3, 175, 10, 10);
    d.fd(2, "close", 3, 0);
    d.exit(2);
    // Still open here.
    d.io(1, "write", 3, 185, 1, 1);
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/log")).unwrap().len(), 186);
}

#[test]
fn a_forked_child_has_its_own_table_directory_and_umask() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/sub", "directory", 0);
    d.op(1, "umask", 0o022).mode = Some(0o027);
    d.fork(1, 2, 0);
    d.on(2, "chdir", "sub", 0);
    d.op(2, "umask", 0o027).mode = Some(0o077);
    d.create(2, "child", 1, 3);
    d.create(1, "parent", 2, 3);
    d.fd(2, "close", 3, 0);
    d.io(1, "write", 3, 0, 5, 5);
    let dir = replay_same(d);
    let mode = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap().mode() & 0o777;
    assert_eq!((mode("sub/child"), mode("parent")), (0o600, 0o640));
}

/// A thread that existed at the start and shares with the first one what `clone_flags` says.
fn beside(d: &mut Draft, clone_flags: i64) -> &mut Task {
    d.tasks.push(Task {
        task_id: 2,
        pid: 100,
        tid: 102,
        parent: Some(1),
        clone_flags,
        cwd: Some("/w".into()),
        root: Some("/".into()),
        umask: Some(0o022),
        uid: Some(0),
        gid: Some(0),
        ..Task::default()
    });
    d.tasks.last_mut().unwrap()
}

/// Replays the whole reel, and the slice from `from_ns` on.
fn replay_both(make: impl Fn() -> (Draft, i64), look: impl Fn(&Path)) {
    for begins_late in [false, true] {
        let (d, from_ns) = make();
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        let slice = Slice { from_ns: if begins_late { from_ns } else { 0 }, to_ns: i64::MAX };
        let c = Config { slice, ..config(d.write(dir.path()), &target) };
        let report = Replay::plan(c).unwrap().run(Unwatched, |_| ()).unwrap();
        assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
        assert!(report.warnings.is_empty(), "{:?}", report.warnings);
        look(&target.join("w"));
    }
}

#[test]
fn a_thread_that_stood_elsewhere_at_the_start() {
    let make = || {
        let mut d = Draft::new();
        for dir in ["/w", "/w/sub", "/w/sub/deep"] {
            d.had(dir, "directory", 0);
        }
        for victim in ["/w/victim", "/w/sub/victim"] {
            d.had(victim, "regular", 3);
        }
        let thread = beside(&mut d, THREAD & !CLONE_FS);
        (thread.cwd, thread.umask) = (Some("/w/sub".into()), Some(0o077));
        d.create(1, "mine", 1, 3);
        d.create(2, "theirs", 2, 4);
        let from_ns = d.now();
        d.on(2, "unlink", "victim", 0);
        // They share descriptors.
        d.io(1, "write", 4, 0, 5, 5);
        d.on(2, "chdir", "deep", 0);
        d.create(2, "below", 3, 5);
        d.create(1, "above", 4, 6);
        (d, from_ns)
    };
    replay_both(make, |w| {
        let mode = |p: &str| fs::metadata(w.join(p)).unwrap().mode() & 0o777;
        assert_eq!(["mine", "sub/theirs", "sub/deep/below", "above"].map(mode), [0o644, 0o600, 0o600, 0o644]);
        assert!(w.join("victim").exists() && !w.join("sub/victim").exists());
    });
}

#[test]
fn a_thread_that_was_another_user_at_the_start() {
    let make = || {
        let mut d = Draft::new();
        d.had("/w", "directory", 0).mode = Some(0o777);
        d.had("/w/sub", "directory", 0);
        (beside(&mut d, THREAD).uid, d.tasks[0].exit_ns) = (Some(1000), None);
        d.create(1, "mine", 1, 3);
        d.create(2, "theirs", 2, 4);
        let from_ns = d.now();
        // They share the working directory.
        d.on(1, "chdir", "sub", 0);
        d.on(1, "chmod", "/w/sub", 0).mode = Some(0o777);
        d.create(2, "here", 3, 5);
        (d, from_ns)
    };
    replay_both(make, |w| {
        let owner = |p: &str| fs::metadata(w.join(p)).unwrap().uid();
        if owner("mine") == 0 && rustix::process::geteuid().is_root() {
            assert_eq!(["theirs", "sub/here"].map(owner), [1000, 1000]);
        }
    });
}

#[test]
fn a_thread_that_was_root_beside_another_user() {
    let make = || {
        let mut d = Draft::new();
        d.had("/w", "directory", 0).mode = Some(0o777);
        d.had("/w/mine", "directory", 0).mode = Some(0o700);
        beside(&mut d, THREAD);
        (d.tasks[0].uid, d.tasks[0].gid) = (Some(1000), Some(1000));
        d.create(1, "of-user", 1, 3);
        d.create(2, "mine/before", 2, 4);
        let from_ns = d.now();
        d.create(2, "mine/after", 3, 5);
        (d, from_ns)
    };
    replay_both(make, |w| {
        let owner = |p: &str| fs::metadata(w.join(p)).unwrap().uid();
        if rustix::process::geteuid().is_root() {
            assert_eq!(["of-user", "mine/before", "mine/after"].map(owner), [1000, 0, 0]);
        }
    });
}

#[test]
fn a_thread_that_stood_elsewhere_in_a_chroot() {
    let make = || {
        let mut d = Draft::new();
        for dir in ["/w", "/w/jail", "/w/jail/desk", "/w/jail/other"] {
            d.had(dir, "directory", 0);
        }
        (d.tasks[0].root, d.tasks[0].cwd) = (Some("/w/jail".into()), Some("/w/jail/desk".into()));
        let thread = beside(&mut d, THREAD & !CLONE_FS);
        (thread.root, thread.cwd) = (Some("/w/jail".into()), Some("/w/jail/other".into()));
        d.create(1, "mine", 1, 3);
        d.create(2, "theirs", 2, 4);
        let from_ns = d.now();
        d.create(2, "later", 3, 5);
        d.create(2, "/desk/absolute", 4, 6);
        (d, from_ns)
    };
    replay_both(make, |w| {
        for name in ["desk/mine", "other/theirs", "other/later", "desk/absolute"] {
            assert!(w.join("jail").join(name).exists(), "{name}");
        }
    });
}

#[test]
fn threads_share_everything() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/sub", "directory", 0);
    d.fork(1, 2, THREAD);
    d.create(2, "a", 1, 3);
    d.io(1, "write", 3, 0, 7, 7);
    d.on(1, "chdir", "sub", 0);
    d.create(2, "b", 2, 4);
    d.fd(1, "close", 4, 0);
    d.fd(2, "fsync", 4, EBADF);
    d.create(2, "c", 3, 4);
    d.io(1, "write", 4, 0, 9, 9);
    let dir = replay_same(d);
    let len = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap().len();
    assert_eq!((len("a"), len("sub/b"), len("sub/c")), (7, 0, 9));
}

#[test]
fn exec_closes_what_was_to_be_closed() {
    let mut d = Draft::new();
    let o = d.create(1, "secret", 1, 3);
    o.flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC));
    d.create(1, "kept", 2, 4);
    d.exec(1);
    d.io(1, "write", 3, 0, 1, EBADF);
    d.io(1, "write", 4, 0, 1, 1);
    // The number is free again.
    d.create(1, "third", 3, 3);
    d.io(1, "write", 3, 0, 33, 33);
    let dir = replay_same(d);
    let len = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap().len();
    assert_eq!((len("secret"), len("kept"), len("third")), (0, 1, 33));
}

#[test]
fn a_request_says_what_exec_closes_too() {
    const FIONCLEX: i64 = 0x5450;
    const FIOCLEX: i64 = 0x5451;
    let mut d = Draft::new();
    let o = d.create(1, "kept", 1, 3);
    o.flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC));
    d.create(1, "closed", 2, 4);
    d.fd(1, "ioctl", 3, 0).flags = Some(FIONCLEX);
    d.fd(1, "ioctl", 4, 0).flags = Some(FIOCLEX);
    d.exec(1);
    d.io(1, "write", 3, 0, 1, 1);
    d.io(1, "write", 4, 0, 1, EBADF);
    let dir = replay_same(d);
    let len = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap().len();
    assert_eq!((len("kept"), len("closed")), (1, 0));
}

#[test]
fn duplicates_redirect_and_close() {
    let mut d = Draft::new();
    d.create(1, "out", 1, 5);
    let o = d.fd(1, "dup2", 5, 1);
    o.fd2 = Some(1);
    d.fd(1, "close", 5, 0);
    d.io(1, "write", 1, 0, 10, 10);
    d.create(1, "next", 2, 5);
    let o = d.fd(1, "dup3", 5, 1);
    (o.fd2, o.flags) = (Some(1), Some(0));
    d.io(1, "write", 1, 0, 20, 20);
    let o = d.fd(1, "fcntl", 1, 12);
    (o.flags, o.aux) = (Some(i64::from(libc::F_DUPFD)), Some(10));
    d.io(1, "write", 12, 20, 1, 1);
    let o = d.fd(1, "close_range", 3, 0);
    o.fd2 = Some(-1);
    d.io(1, "write", 12, 0, 1, EBADF);
    d.io(1, "write", 1, 21, 2, 2);
    let dir = replay_same(d);
    let len = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap().len();
    assert_eq!((len("out"), len("next")), (10, 23));
}

#[test]
fn descriptors_open_at_the_start_have_their_position() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/log", "regular", 1000);
    d.know(4, "regular");
    d.files[0].path = Some("/w/log".into());
    for fd in [1, 2] {
        d.fds.push(Fd {
            task_id: 1,
            fd,
            ofd: 40,
            file: Some(4),
            offset_bytes: 400,
            flags: libc::O_RDWR.into(),
            cloexec: 0,
        });
    }
    d.io(1, "write", 1, 400, 10, 10).file = Some(4);
    d.io(1, "read", 2, 410, 1000, 590).file = Some(4);
    replay_same(d);
}

#[test]
fn a_thread_may_leave_the_tables_it_shares() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/sub", "directory", 0);
    d.fork(1, 2, THREAD);
    d.create(1, "f", 1, 3);
    d.op(2, "unshare", 0).flags = Some(0x600);
    d.on(2, "chdir", "sub", 0);
    d.op(2, "umask", 0o022).mode = Some(0o077);
    d.fd(1, "close", 3, 0);
    // Its own copy of the descriptor and its own working directory; then those of the other thread.
    d.io(2, "write", 3, 0, 10, 10);
    d.on(2, "mkdir", "inner", 0).mode = Some(0o777);
    d.on(1, "mkdir", "outer", 0).mode = Some(0o777);
    d.fd(1, "fsync", 3, -9);
    let dir = replay_same(d);
    let mode = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap().mode() & 0o777;
    assert_eq!((mode("sub/inner"), mode("outer")), (0o700, 0o755));
}

#[test]
fn name_spaces_are_not_made() {
    let mut d = Draft::new();
    d.op(1, "unshare", 0).flags = Some(0x2_0000 | 0x600);
    let (_, report) = replay(d);
    assert_eq!(report.summary.skipped.get("would make name spaces"), Some(&1), "{:?}", report.summary.skipped);
}

/// Files open at the start that only their descriptors show, and a removed directory.
#[test]
fn what_was_open_is_as_it_was() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    let file = |file: i64, kind: &str, path: Option<&str>, mode: i32| File {
        file,
        kind: kind.into(),
        ino: file,
        path: path.map(Into::into),
        mode: Some(mode),
        size_bytes: Some(5000),
        unlinked: Some(i32::from(path.is_none())),
        ..File::default()
    };
    d.files.push(file(7, "regular", Some("/log"), 0o100640));
    d.files.push(file(8, "directory", None, 0o40700));
    for (fd, of) in [(5, 7), (6, 8)] {
        let flags = i64::from(if of == 7 { libc::O_RDWR | libc::O_APPEND } else { libc::O_RDONLY | libc::O_DIRECTORY });
        d.fds.push(Fd { task_id: 1, fd, ofd: of, file: Some(of), flags, ..Default::default() });
    }
    let o = d.io(1, "write", 5, 5000, 100, 100);
    (o.ofd, o.file) = (Some(7), Some(7));
    let o = d.on(1, "newfstatat", "x", -2);
    o.dirfd = Some(6);
    let dir = replay_same(d);
    let log = fs::metadata(dir.path().join("t/log")).unwrap();
    assert_eq!((log.len(), log.mode() & 0o7777), (5100, 0o640));
}
