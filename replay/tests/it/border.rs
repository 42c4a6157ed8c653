//! `--root`: io_uring requests that reach into it from outside, and threads with another root directory.

use std::{fs, path::Path};

use ioreel_replay::{Config, Replay, Slice};
use ioreel_traces::rows::Op;

use crate::{
    reel::Draft,
    requests::{enter, refuse_rings, request},
    roots::{HERE, len, limited, tree, within, work},
};

const FOLDER: i32 = libc::O_RDONLY | libc::O_DIRECTORY;
/// Descriptors of a directory outside and of one inside.
const OUT: i64 = 7;
const SUB: i64 = 8;

fn there(dir: &Path, path: &str) -> bool {
    dir.join("t").join(path).symlink_metadata().is_ok()
}

/// [`tree`], with a descriptor of a directory outside and of one inside.
fn with_folders() -> Draft {
    let mut d = tree();
    for (path, file, fd) in [("/w/out", 70, OUT), ("/w/in/sub", 71, SUB)] {
        d.know(file, "directory");
        d.open(1, path, FOLDER, file, fd);
    }
    d
}

/// A request on a path, in a batch of its own.
fn ask<'a>(d: &'a mut Draft, op: &str, path: &str, dirfd: i64, ret: i64) -> &'a mut Op {
    d.pause(100_000);
    enter(d, 1, "io_uring_enter", 1);
    let o = request(d, 1, op, -1, 5_000, ret);
    (o.fd, o.path, o.dirfd, o.flags, o.mode) = (None, Some(path.into()), Some(dirfd as i32), Some(0), Some(0o755));
    o
}

/// Likewise with a second path.
fn ask2(d: &mut Draft, op: &str, (path, dirfd): (&str, i64), (path2, dirfd2): (&str, i64)) {
    let o = ask(d, op, path, dirfd, 0);
    (o.path2, o.dirfd2) = (Some(path2.into()), Some(dirfd2 as i32));
}

fn asks() -> Draft {
    let mut d = with_folders();
    d.know(1, "regular");
    let o = ask(&mut d, "openat", "../in/f", OUT, 9);
    (o.flags, o.aux) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(1));
    (o.file, o.ofd) = (Some(1), Some(1));
    d.pause(100_000);
    d.io(1, "write", 9, 0, 5, 5);
    ask(&mut d, "mkdirat", "../in/d", OUT, 0);
    // Out and in again, under both names.
    ask2(&mut d, "renameat", ("../f", SUB), ("g", OUT));
    ask2(&mut d, "renameat", ("g", OUT), ("h", SUB));
    ask2(&mut d, "linkat", ("h", SUB), ("l", OUT));
    ask2(&mut d, "linkat", ("l", OUT), ("m", SUB));
    ask2(&mut d, "symlinkat", ("anything", HERE), ("../in/s", OUT));
    d.pause(100_000);
    d.on(1, "chdir", "out", 0);
    ask(&mut d, "mkdirat", "../in/e", HERE, 0);
    ask(&mut d, "unlinkat", "../in/d", HERE, 0).flags = Some(i64::from(libc::AT_REMOVEDIR));
    d.pause(100_000);
    d
}

fn asked(dir: &Path) {
    assert_eq!(["sub/h", "sub/m", "f"].map(|n| len(dir, &format!("w/in/{n}"))), [Some(5), Some(5), None]);
    assert_eq!(["s", "d", "e"].map(|n| there(dir, &format!("w/in/{n}"))), [true, false, true]);
    assert_eq!(fs::read_dir(dir.join("t/w/out")).unwrap().count(), 1, "the name that went in and stayed");
}

#[test]
fn by_requests() {
    let (dir, report) = within(asks());
    asked(dir.path());
    assert_eq!(report.warnings, Vec::<String>::new());
}

#[test]
fn by_requests_that_are_issued_as_calls() {
    let replay = || {
        refuse_rings();
        within(asks())
    };
    asked(std::thread::spawn(replay).join().unwrap().0.path());
}

/// The root directory of the thread contains the replayed root, as for an installer.
#[test]
fn from_a_root_above() {
    let mut d = tree();
    d.had("/in", "directory", 0);
    d.on(1, "chroot", ".", 0);
    work(&mut d, "/in/a", 1, HERE);
    d.on(1, "chdir", "/out", 0);
    work(&mut d, "../in/b", 2, HERE);
    d.on(1, "symlink", "/in/sub", 0).path2 = Some("/in/link".into());
    work(&mut d, "/in/link/c", 3, HERE);
    // From inside, through paths that only this root directory explains.
    d.on(1, "chdir", "/in", 0);
    work(&mut d, "link/d", 4, HERE);
    work(&mut d, "../../../in/e", 5, HERE);
    d.op(1, "getcwd", 4).len_bytes = Some(100);
    d.on(1, "stat", "/in/none", -2);
    // With another root directory, this path is another place.
    d.had("/w/out/in", "directory", 0);
    d.on(1, "chroot", "/out", 0);
    d.on(1, "mkdir", "/in/x", 0);
    work(&mut d, "f", 6, HERE);
    let (dir, _) = within(d);
    for name in ["a", "b", "sub/c", "sub/d", "e", "f"] {
        assert_eq!(len(dir.path(), &format!("w/in/{name}")), Some(5), "{name}");
    }
    assert_eq!(fs::read_link(dir.path().join("t/w/in/link")).unwrap(), Path::new("/in/sub"));
    assert!(!there(dir.path(), "in") && !there(dir.path(), "w/in/x") && !there(dir.path(), "w/out"));
}

/// A slice starts with threads whose root directory is above.
#[test]
fn slices_of_a_root_above() {
    let mut d = tree();
    d.on(1, "chroot", ".", 0);
    d.on(1, "chdir", "/out", 0);
    d.fork(1, 2, 0);
    work(&mut d, "/in/a", 1, HERE);
    let middle_ns = d.now();
    work(&mut d, "/in/b", 2, HERE);
    work(&mut d, "../in/c", 3, HERE);
    d.on(2, "mkdir", "/in/d", 0);
    let (dir, first) = limited(d);
    let first = Config { slice: Slice { from_ns: 0, to_ns: middle_ns }, ..first };
    let slice = Slice { from_ns: middle_ns, to_ns: i64::MAX };
    for c in [first.clone(), Config { slice, skip_prepare: true, ..first }] {
        let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
        assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
        assert_eq!(report.warnings, Vec::<String>::new());
    }
    assert_eq!(["a", "b", "c"].map(|n| len(dir.path(), &format!("w/in/{n}"))), [Some(5); 3]);
    assert!(there(dir.path(), "w/in/d") && !there(dir.path(), "in"));
}

#[test]
fn a_root_above_that_threads_begin_with() {
    let mut d = tree();
    (d.tasks[0].root, d.tasks[0].cwd) = (Some("/w".into()), Some("/w/out".into()));
    work(&mut d, "/in/a", 1, HERE);
    work(&mut d, "../../in/b", 2, HERE);
    let (dir, _) = within(d);
    assert_eq!(["a", "b"].map(|n| len(dir.path(), &format!("w/in/{n}"))), [Some(5), Some(5)]);
    assert!(!there(dir.path(), "in"));
}

/// A directory moved in from a thread's root outside counts as inside from the start.
#[test]
fn moved_in_from_a_root_outside() {
    let mut d = with_folders();
    d.had("/w/out/jail", "directory", 0);
    d.had("/w/out/jail/x", "directory", 0);
    d.fork(1, 2, 0);
    d.on(2, "chroot", "out/jail", 0);
    d.on(2, "chdir", "/", 0);
    d.create(2, "/x/hidden", 1, 9);
    d.io(2, "write", 9, 0, 5, 5);
    let o = d.on(2, "renameat", "/x/hidden", 0);
    (o.path2, o.dirfd2) = (Some("shown".into()), Some(SUB as i32));
    let (dir, _) = within(d);
    assert_eq!(len(dir.path(), "w/in/sub/shown"), Some(5));
    assert!(!there(dir.path(), "x") && there(dir.path(), "w/out/jail/x"));
}

/// A descriptor leads out of a root directory inside.
#[test]
fn out_of_a_root_within() {
    let mut d = with_folders();
    d.on(1, "chroot", "in/sub", 0);
    work(&mut d, "/a", 1, HERE);
    d.fd(1, "fchdir", OUT as i32, 0);
    work(&mut d, "../in/b", 2, HERE);
    work(&mut d, "../in/sub/c", 3, HERE);
    d.on(1, "truncate", "../in/b", 0).len_bytes = Some(50);
    d.on(1, "truncate", "../in/b/no", -20).len_bytes = Some(50);
    d.on(1, "rename", "/a", 0).path2 = Some("../in/d".into());
    d.on(1, "symlink", "/", 0).path2 = Some("../in/top".into());
    work(&mut d, "../in/top/e", 4, HERE);
    d.on(1, "chdir", "../in", 0);
    work(&mut d, "f", 5, HERE);
    work(&mut d, "/g", 6, HERE);
    // Out completely, to a root directory outside, and from there to one inside again.
    d.fd(1, "fchdir", OUT as i32, 0);
    d.on(1, "chdir", "..", 0);
    d.on(1, "chroot", ".", 0);
    work(&mut d, "/in/h", 7, HERE);
    d.on(1, "mkdir", "/in/deep", 0);
    d.on(1, "chroot", "/in/deep", 0);
    work(&mut d, "/i", 8, HERE);
    let (dir, _) = within(d);
    let lens = ["d", "b", "sub/c", "sub/e", "f", "sub/g", "h", "deep/i"].map(|n| len(dir.path(), &format!("w/in/{n}")));
    assert_eq!(lens, [5, 50, 5, 5, 5, 5, 5, 5].map(Some));
    assert!(!there(dir.path(), "in") && !there(dir.path(), "w/out"));
}

#[test]
fn out_of_a_root_within_to_the_top() {
    let mut d = with_folders();
    d.on(1, "chroot", "in/sub", 0);
    d.fd(1, "fchdir", OUT as i32, 0);
    d.on(1, "chdir", "../..", 0);
    d.on(1, "chroot", ".", 0);
    work(&mut d, "/w/in/a", 1, HERE);
    work(&mut d, "w/in/sub/b", 2, HERE);
    let (dir, _) = within(d);
    assert!(there(dir.path(), "w/in/a") && there(dir.path(), "w/in/sub/b"));
}

/// A root directory follows when it is moved.
#[test]
fn a_root_that_moves() {
    let mut d = tree();
    d.fork(1, 2, 0);
    d.on(2, "chroot", "in/sub", 0);
    d.on(1, "rename", "in/sub", 0).path2 = Some("in/other".into());
    work(&mut d, "in/other/a", 1, HERE);
    d.on(2, "rename", "/a", 0).path2 = Some("/b".into());
    d.fork(1, 3, 0);
    d.on(3, "chroot", "out", 0);
    d.on(1, "rename", "out", 0).path2 = Some("in/out".into());
    d.on(3, "mkdir", "/c", 0);
    let (dir, _) = within(d);
    assert_eq!(len(dir.path(), "w/in/other/b"), Some(5));
    assert!(there(dir.path(), "w/in/out/c"));
}

/// io_uring requests about attributes take no directory descriptor; others do.
#[test]
fn requests_out_of_a_root_within() {
    let reel = |asks_attribute: bool| {
        let mut d = with_folders();
        d.on(1, "chroot", "in/sub", 0);
        d.fd(1, "fchdir", OUT as i32, 0);
        ask(&mut d, "mkdirat", "../in/a", HERE, 0);
        ask2(&mut d, "renameat", ("../in/a", OUT), ("/b", HERE));
        if asks_attribute {
            let o = ask(&mut d, "setxattr", "../in/sub", HERE, 0);
            (o.name, o.value) = (Some("user.a".into()), Some("1".into()));
        }
        d.pause(100_000);
        d
    };
    let (dir, _) = within(reel(false));
    assert!(there(dir.path(), "w/in/sub/b") && !there(dir.path(), "w/in/a"));
    let (_dir, c) = limited(reel(true));
    let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert_eq!(report.summary.skipped.get("request out of a chroot"), Some(&1));
    assert!(report.verdict.sentence.contains("1 request out of a chroot"), "{}", report.verdict.sentence);
}
