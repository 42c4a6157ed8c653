//! `--root`: operations inside are replayed, by whatever path a program reached them.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use ioreel_replay::{Config, Replay, Report, Slice};

use crate::reel::{Draft, THREAD, config};

/// Configuration to replay what is below `/w/in` into directory `t`.
pub(crate) fn limited(d: Draft) -> (tempfile::TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let c = Config { roots: vec!["/w/in/".into()], ..config(d.write(dir.path()), &target) };
    (dir, c)
}

/// Replays with [`limited`]; must be faithful.
pub(crate) fn within(d: Draft) -> (tempfile::TempDir, Report) {
    let (dir, c) = limited(d);
    let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    (dir, report)
}

/// `/w/in` with a directory in it, and directories next to it.
pub(crate) fn tree() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/in", "directory", 0);
    d.had("/w/in/sub", "directory", 0);
    d.had("/w/out", "directory", 0);
    d.had("/lib", "directory", 0);
    d.had("/lib/libc", "regular", 100);
    d
}

/// Creates a file of five bytes at this path, and a directory next to it.
pub(crate) fn work(d: &mut Draft, path: &str, file: i64, dirfd: i64) {
    d.create(1, path, file, 9).dirfd = Some(dirfd as i32);
    d.io(1, "write", 9, 0, 5, 5);
    d.fd(1, "close", 9, 0);
    d.on(1, "mkdirat", &format!("{path}.d"), 0).dirfd = Some(dirfd as i32);
}

pub(crate) fn len(dir: &Path, path: &str) -> Option<u64> {
    fs::symlink_metadata(dir.join("t").join(path)).ok().map(|m| m.len())
}

pub(crate) const HERE: i64 = -100;

#[test]
fn the_rest_is_neither_prepared_nor_replayed() {
    let mut d = tree();
    d.open(1, "/lib/libc", libc::O_RDONLY, 1, 3);
    d.io(1, "read", 3, 0, 100, 100);
    d.fd(1, "close", 3, 0);
    work(&mut d, "out/f", 2, HERE);
    work(&mut d, "in/f", 3, HERE);
    let (dir, report) = within(d);
    assert_eq!((report.done, report.summary.strayed), (4, 0), "{report:#?}");
    assert_eq!(report.summary.skipped.get("outside --root"), Some(&7));
    assert_eq!(len(dir.path(), "w/in/f"), Some(5));
    assert!(!dir.path().join("t/lib").exists() && !dir.path().join("t/w/out").exists());
}

#[test]
fn from_directories_outside() {
    let folder = libc::O_RDONLY | libc::O_DIRECTORY;
    let mut d = tree();
    d.know(70, "directory");
    d.know(71, "directory");
    // Working directory next to it, above it, and inside.
    d.on(1, "chdir", "/w/out", 0);
    work(&mut d, "../in/a", 1, HERE);
    d.on(1, "chdir", "..", 0);
    work(&mut d, "in/b", 2, HERE);
    d.on(1, "chdir", "in/sub", 0);
    work(&mut d, "c", 3, HERE);
    // Step by step from the root, by descriptors.
    d.open(1, "/", folder, 70, 3);
    d.open(1, "w", folder, 71, 4).dirfd = Some(3);
    work(&mut d, "in/d", 4, 4);
    d.fd(1, "fchdir", 4, 0);
    work(&mut d, "in/e", 5, HERE);
    // From inside, out and back.
    d.on(1, "chdir", "in", 0);
    work(&mut d, "../out/../in/f", 6, HERE);
    let o = d.on(1, "renameat", "in/a", 0);
    (o.dirfd, o.path2, o.dirfd2) = (Some(4), Some("sub/moved".into()), Some(-100));
    let (dir, report) = within(d);
    assert_eq!(report.summary.strayed, 0);
    for name in ["sub/moved", "b", "sub/c", "d", "e", "f"] {
        assert_eq!(len(dir.path(), &format!("w/in/{name}")), Some(5), "{name}");
    }
    for name in ["a.d", "b.d", "sub/c.d", "d.d", "e.d", "f.d"] {
        assert!(dir.path().join("t/w/in").join(name).is_dir(), "{name}");
    }
}

#[test]
fn through_links_outside() {
    let mut d = tree();
    let o = d.on(1, "symlink", "/w/in/sub", 0);
    o.path2 = Some("/w/out/link".into());
    work(&mut d, "out/link/f", 1, HERE);
    d.on(1, "rename", "out/link", 0).path2 = Some("/w/out/other".into());
    work(&mut d, "/w/out/other/g", 2, HERE);
    d.on(1, "unlink", "out/other", 0);
    let (dir, _) = within(d);
    assert_eq!((len(dir.path(), "w/in/sub/f"), len(dir.path(), "w/in/sub/g")), (Some(5), Some(5)));
    assert!(!dir.path().join("t/w/out").exists());
}

#[test]
fn what_is_moved_in_and_out_goes_along() {
    let mut d = tree();
    // Created outside in a new directory, moved in, and written to.
    d.on(1, "mkdir", "out/new", 0);
    d.create(1, "out/new/f", 1, 3);
    d.io(1, "write", 3, 0, 5, 5);
    d.on(1, "rename", "out/new/f", 0).path2 = Some("out/new/g".into());
    d.on(1, "rename", "out/new/g", 0).path2 = Some("in/f".into());
    d.io(1, "write", 3, 5, 5, 5);
    d.fd(1, "close", 3, 0);
    // A directory with its contents.
    d.on(1, "mkdir", "tree", 0);
    work(&mut d, "tree/x", 2, HERE);
    d.on(1, "rename", "tree", 0).path2 = Some("in/tree".into());
    work(&mut d, "in/tree/y", 3, HERE);
    // Out, changed there, and back under another name.
    work(&mut d, "in/h", 4, HERE);
    d.on(1, "rename", "in/h", 0).path2 = Some("out/h".into());
    d.on(1, "truncate", "out/h", 0).len_bytes = Some(50);
    d.on(1, "rename", "out/h", 0).path2 = Some("in/i".into());
    // A hard link of a file outside.
    work(&mut d, "/lib/l", 5, HERE);
    d.on(1, "link", "/lib/l", 0).path2 = Some("in/l".into());
    d.on(1, "unlink", "/lib/l", 0);
    // Out, and not back.
    work(&mut d, "in/gone", 6, HERE);
    d.on(1, "rename", "in/gone", 0).path2 = Some("out/gone".into());
    let (dir, report) = within(d);
    assert_eq!(report.summary.strayed, 5, "out/new, tree, out/h, /lib/l, out/gone");
    let lens = ["f", "tree/x", "tree/y", "i", "l", "h", "gone"].map(|n| len(dir.path(), &format!("w/in/{n}")));
    assert_eq!(lens, [Some(10), Some(5), Some(5), Some(50), Some(5), None, None]);
}

/// A directory outside into which something is moved is created and moved when it was in the recording.
#[test]
fn folders_made_outside_for_what_is_moved_there() {
    let mut d = tree();
    work(&mut d, "in/a", 1, HERE);
    d.on(1, "rename", "in/a", -2).path2 = Some("out/new/a".into());
    d.on(1, "mkdir", "out/new", 0).mode = Some(0o700);
    d.on(1, "rename", "in/a", 0).path2 = Some("out/new/a".into());
    d.on(1, "rename", "out/new", 0).path2 = Some("out/newer".into());
    d.on(1, "rename", "out/newer", 0).path2 = Some("in/back".into());
    // A directory that existed, under its new name.
    d.had("/w/out/old", "directory", 0);
    d.on(1, "rename", "out/old", 0).path2 = Some("out/older".into());
    work(&mut d, "in/b", 2, HERE);
    d.on(1, "rename", "in/b", 0).path2 = Some("out/older/b".into());
    d.on(1, "rename", "out/older/b", 0).path2 = Some("in/c".into());
    let (dir, _) = within(d);
    assert_eq!((len(dir.path(), "w/in/back/a"), len(dir.path(), "w/in/c")), (Some(5), Some(5)));
    let mode = fs::metadata(dir.path().join("t/w/in/back")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// The path is shortened by its part outside, and by nothing else.
#[test]
fn what_is_missing_on_the_way_stays_missing() {
    let mut d = tree();
    d.on(1, "chdir", "/w/out", 0);
    d.on(1, "mkdir", "../in/no/../made", -2);
    d.on(1, "openat", "../in/no/../f", -2).flags = Some(i64::from(libc::O_CREAT));
    work(&mut d, "../out/../in/sub/../f", 1, HERE);
    let (dir, report) = within(d);
    assert_eq!((report.done, len(dir.path(), "w/in/f")), (6, Some(5)));
    assert!(!dir.path().join("t/w/in/made").exists());
}

/// A working directory outside that is moved in.
#[test]
fn a_working_directory_that_is_moved_in() {
    let mut d = tree();
    d.on(1, "chdir", "/w/out", 0);
    d.on(1, "rename", "/w/out", 0).path2 = Some("/w/in/moved".into());
    work(&mut d, "a", 1, HERE);
    work(&mut d, "../b", 2, HERE);
    let (dir, _) = within(d);
    assert_eq!((len(dir.path(), "w/in/moved/a"), len(dir.path(), "w/in/b")), (Some(5), Some(5)));
    assert!(!dir.path().join("t/w/out").exists() && !dir.path().join("t/in").exists());
}

/// A slice creates what a later one moves in.
#[test]
fn slices_follow_each_other() {
    let mut d = tree();
    d.on(1, "mkdir", "out/new", 0);
    work(&mut d, "out/new/a", 1, HERE);
    let middle_ns = d.now();
    d.on(1, "rename", "out/new", 0).path2 = Some("in/new".into());
    work(&mut d, "in/new/b", 2, HERE);
    let (dir, first) = limited(d);
    let first = Config { slice: Slice { from_ns: 0, to_ns: middle_ns }, ..first };
    let slice = Slice { from_ns: middle_ns, to_ns: i64::MAX };
    for c in [first.clone(), Config { slice, skip_prepare: true, ..first }] {
        let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
        assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    }
    assert_eq!((len(dir.path(), "w/in/new/a"), len(dir.path(), "w/in/new/b")), (Some(5), Some(5)));
}

#[test]
fn a_folder_above_that_moves_takes_it_along() {
    let mut d = tree();
    work(&mut d, "in/f", 1, HERE);
    d.on(1, "rename", "/w", 0).path2 = Some("/v".into());
    work(&mut d, "/v/in/g", 2, HERE);
    let (dir, _) = within(d);
    assert_eq!((len(dir.path(), "v/in/f"), len(dir.path(), "v/in/g"), len(dir.path(), "w")), (Some(5), Some(5), None));
}

#[test]
fn a_root_that_the_workload_makes() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "mkdir", "/w/in", 0);
    work(&mut d, "in/f", 1, HERE);
    let (dir, _) = within(d);
    assert_eq!(len(dir.path(), "w/in/f"), Some(5));
}

/// A file can have many names outside before it is moved in.
#[test]
fn a_long_way_in() {
    let mut d = tree();
    work(&mut d, "out/0", 1, HERE);
    for i in 0..40 {
        d.on(1, "rename", &format!("out/{i}"), 0).path2 = Some(format!("out/{}", i + 1).as_str().into());
    }
    d.on(1, "rename", "out/40", 0).path2 = Some("in/f".into());
    d.on(1, "stat", "in/f", 0).mode = Some(0o100_644);
    let (dir, report) = within(d);
    assert_eq!((len(dir.path(), "w/in/f"), report.summary.strayed), (Some(5), 41));
}

/// A failure may be due to the part of the path outside, which is not issued.
#[test]
fn refusals_outside_are_left_out() {
    let mut d = tree();
    work(&mut d, "in/f", 1, HERE);
    d.on(1, "stat", "/w/out/missing/../../in/f", -2);
    d.on(1, "stat", "/lib/libc/../../w/in/f", -20);
    d.on(1, "openat2", "in/../out/../in/f", -i64::from(libc::ELOOP)).aux2 = Some(0x8);
    let (_, report) = within(d);
    assert_eq!(report.done, 4, "{:?}", report.summary.skipped);
}

/// A link outside is replaced while another thread uses it.
#[test]
fn a_link_outside_that_is_switched_meanwhile() {
    let mut d = tree();
    for (i, name) in ["one", "two"].into_iter().enumerate() {
        d.on(1, "mkdir", &format!("in/{name}"), 0);
        d.on(1, "symlink", &format!("/w/in/{name}"), 0).path2 = Some(format!("/w/out/{i}").as_str().into());
    }
    // Here the name exists already.
    d.on(1, "mkdir", "in/one/made", 0);
    d.fork(1, 2, THREAD);
    d.on(1, "rename", "out/0", 0).path2 = Some("out/now".into());
    let switch = d.on(1, "rename", "out/1", 0);
    (switch.path2, switch.dur_ns) = (Some("out/now".into()), 50_000);
    d.on(2, "mkdir", "out/now/made", 0);
    d.pause(100_000);
    d.on(1, "rmdir", "in/two/made", 0);
    let (dir, _) = within(d);
    assert!(dir.path().join("t/w/in/one/made").exists() && !dir.path().join("t/w/in/two/made").exists());
}

/// To the model, this is a loop of links: something not recorded replaced the link with a directory.
#[test]
fn a_way_over_the_border_that_nobody_knows() {
    let mut d = tree();
    d.on(1, "symlink", "l", 0).path2 = Some("/w/in/l".into());
    d.on(1, "rename", "in/l/x", 0).path2 = Some("out/y".into());
    d.on(1, "rename", "out/y", 0).path2 = Some("in/l/x".into());
    d.on(1, "link", "in/l/x", 0).path2 = Some("out/y".into());
    let (_dir, c) = limited(d);
    Replay::plan(c).unwrap();
}
