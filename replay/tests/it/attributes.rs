//! Extended attributes, inode flags, shared data (clone, dedupe), and descriptor flags.

use std::{fs, path::Path};

use crate::reel::{Draft, replay, replay_same};

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0_u8; 512];
    let n = rustix::fs::getxattr(path, name, &mut value).ok()?;
    value.truncate(n);
    Some(value)
}

#[test]
fn attributes_are_set_and_removed() {
    let mut d = Draft::new();
    d.create(1, "file", 1, 3);
    for (name, value) in [("user.one", "1"), ("user.two", "\u{f7ff}\0x")] {
        let o = d.fd(1, "fsetxattr", 3, 0);
        (o.name, o.value, o.len_bytes, o.aux) = (Some(name.into()), Some(value.into()), Some(1), Some(0));
    }
    let o = d.on(1, "removexattr", "file", 0);
    (o.name, o.dirfd) = (Some("user.one".into()), None);
    let o = d.on(1, "setxattr", "file", -i64::from(libc::EEXIST));
    (o.name, o.value, o.len_bytes) = (Some("user.two".into()), Some("x".into()), Some(1));
    (o.aux, o.dirfd) = (Some(libc::XATTR_CREATE.into()), None);
    // Value too long to be recorded, and a refusal by a file system without attributes: neither is issued.
    let o = d.fd(1, "fsetxattr", 3, 0);
    (o.name, o.len_bytes) = (Some("user.long".into()), Some(1000));
    let o = d.fd(1, "fsetxattr", 3, -i64::from(libc::EOPNOTSUPP));
    (o.name, o.value, o.len_bytes) = (Some("user.none".into()), Some("x".into()), Some(1));
    let (dir, report) = replay(d);
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
    let left_out: Vec<_> = report.summary.skipped.values().copied().collect();
    assert_eq!(left_out, [1, 1], "{:?}", report.summary.skipped);
    let file = dir.path().join("t/w/file");
    assert_eq!(attribute(&file, "user.one"), None);
    assert_eq!(attribute(&file, "user.two").as_deref(), Some(&b"\xff\0x"[..]));
    assert_eq!((attribute(&file, "user.long"), attribute(&file, "user.none")), (None, None));
}

#[test]
fn a_clone_has_the_content_of_its_source_where_data_cannot_be_shared() {
    let mut d = Draft::new();
    d.create(1, "from", 1, 3);
    d.io(1, "write", 3, 0, 10_000, 10_000).file = Some(1);
    d.create(1, "to", 2, 4);
    let o = d.fd(1, "ioctl", 3, 0);
    (o.fd2, o.file, o.file2) = (Some(4), Some(1), Some(2));
    (o.flags, o.name) = (Some(0x4004_9409), Some("FICLONE".into()));
    (o.offset_bytes, o.offset2_bytes, o.len_bytes) = (Some(0), Some(0), Some(0));
    d.create(1, "part", 5, 6);
    let o = d.fd(1, "ioctl", 3, 0);
    (o.fd2, o.file, o.file2) = (Some(6), Some(1), Some(5));
    (o.flags, o.name) = (Some(0x4020_940d), Some("FICLONERANGE".into()));
    (o.offset_bytes, o.offset2_bytes, o.len_bytes) = (Some(4096), Some(0), Some(4096));
    let dir = replay_same(d);
    let content = |p: &str| fs::read(dir.path().join("t/w").join(p)).unwrap();
    assert_eq!(content("from").len(), 10_000);
    assert!(content("to") == content("from"));
    assert!(content("part") == content("from")[4096..8192]);
}

/// Cloning needs a writable descriptor; deduplicating also takes a read-only one.
#[test]
fn equal_ranges_are_shared_through_any_descriptor() {
    let mut d = Draft::new();
    for (file, name, fd) in [(1, "from", 3), (2, "to", 4)] {
        d.create(1, name, file, fd);
        d.io(1, "write", fd as i32, 0, 8192, 8192).file = Some(file);
    }
    d.open(1, "to", libc::O_RDONLY, 2, 5);
    d.open(1, "to", libc::O_RDWR | libc::O_APPEND, 2, 6);
    for to in [4, 5, 6] {
        let o = d.fd(1, "ioctl", 3, 0);
        (o.fd2, o.file, o.file2, o.mode) = (Some(to), Some(1), Some(2), Some(0));
        (o.flags, o.name) = (Some(0xc018_9436), Some("FIDEDUPERANGE".into()));
        (o.offset_bytes, o.offset2_bytes, o.len_bytes) = (Some(0), Some(0), Some(8192));
        (o.aux, o.aux2) = (Some(1), Some(8192));
    }
    let (dir, report) = replay(d);
    let results = report.verdict.results;
    assert_eq!(results.classes.wrong, 0, "{:#?}", results.differences);
    let left_out = report.summary.skipped.values().sum::<i64>();
    assert_eq!(left_out, if rustix::process::geteuid().is_root() { 0 } else { 2 }, "{:?}", report.summary.skipped);
    // Only if the target can share data.
    if results.classes.unsupported == 0 {
        let content = |p: &str| fs::read(dir.path().join("t/w").join(p)).unwrap();
        assert!(content("to") == content("from"));
    }
}

#[test]
fn flags_of_descriptors_change() {
    let mut d = Draft::new();
    d.create(1, "kept", 1, 3);
    d.create(1, "closed", 2, 4);
    let o = d.fd(1, "fcntl", 4, 0);
    (o.flags, o.aux) = (Some(libc::F_SETFD.into()), Some(libc::FD_CLOEXEC.into()));
    // A lock call returns 0, which is not a new descriptor.
    let o = d.fd(1, "fcntl", 3, 0);
    (o.flags, o.mode, o.aux2) = (Some(libc::F_SETLK.into()), Some(1), Some(0));
    d.io(1, "write", 3, 0, 5, 5).file = Some(1);
    let o = d.fd(1, "fcntl", 3, 0);
    (o.flags, o.aux) = (Some(libc::F_SETFL.into()), Some(libc::O_APPEND.into()));
    d.fd(1, "lseek", 3, 0).offset_bytes = Some(5);
    d.io(1, "write", 3, 5, 7, 7).file = Some(1);
    d.exec(1);
    d.io(1, "write", 4, 0, 1, -i64::from(libc::EBADF));
    let (dir, report) = replay(d);
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    assert_eq!(fs::metadata(dir.path().join("t/w/kept")).unwrap().len(), 12);
}

#[test]
fn attributes_that_results_show_were_there() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for name in ["read", "gone", "changed", "never"] {
        d.had(&format!("/w/{name}"), "regular", 10);
    }
    let named = |o: &mut ioreel_traces::rows::Op, name: &str| o.name = Some(name.into());
    let o = d.on(1, "getxattr", "read", 7);
    (o.name, o.len_bytes) = (Some("user.seven".into()), Some(100));
    named(d.on(1, "removexattr", "gone", 0), "user.x");
    named(d.on(1, "removexattr", "gone", -i64::from(libc::ENODATA)), "user.x");
    let o = d.on(1, "setxattr", "changed", 0);
    (o.name, o.value, o.len_bytes, o.aux) =
        (Some("user.y".into()), Some("new".into()), Some(3), Some(libc::XATTR_REPLACE.into()));
    // Absent, then set by something not recorded: skipped.
    let o = d.on(1, "getxattr", "never", -i64::from(libc::ENODATA));
    (o.name, o.len_bytes) = (Some("user.z".into()), Some(100));
    let o = d.on(1, "getxattr", "never", 3);
    (o.name, o.len_bytes) = (Some("user.z".into()), Some(100));
    let (dir, report) = replay(d);
    let v = &report.verdict;
    assert_eq!(v.left_out.examples, ["getxattr /w/never: value not recorded"]);
    assert_eq!(v.tree.as_ref().unwrap().examples, ["/w/never: extended attributes user.z expected, none found"]);
    assert_eq!(v.status, 8 | 16, "{} {:#?}", v.sentence, v.results.differences);
    assert_eq!(report.summary.skipped.values().sum::<i64>(), 1, "{:?}", report.summary.skipped);
    let mut value = [0; 100];
    let n = rustix::fs::getxattr(dir.path().join("t/w/read"), "user.seven", &mut value[..]).unwrap();
    assert_eq!(n, 7);
}

#[test]
fn attributes_change_in_their_order() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/file", "regular", 10);
    for child in 2..6 {
        d.fork(1, child, 0);
        d.open(child, "file", libc::O_RDWR, 1, 3);
    }
    for round in 0..50 {
        let (one, other) = (2 + round % 4, 2 + (round + 1) % 4);
        let o = d.fd(one, "fsetxattr", 3, 0);
        (o.name, o.len_bytes, o.flags) = (Some("user.a".into()), Some(1), Some(libc::XATTR_CREATE.into()));
        o.value = Some("x".into());
        d.fd(other, "fchmod", 3, 0).mode = Some(0o600 + round as i32 % 8);
        let o = d.fd(other, "fgetxattr", 3, 1);
        (o.name, o.len_bytes) = (Some("user.a".into()), Some(10));
        d.fd(one, "fremovexattr", 3, 0).name = Some("user.a".into());
        let o = d.fd(other, "fgetxattr", 3, -i64::from(libc::ENODATA));
        (o.name, o.len_bytes) = (Some("user.a".into()), Some(10));
    }
    d.fd(2, "fchmod", 3, 0).mode = Some(0o640);
    let (dir, report) = replay(d);
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(dir.path().join("t/w/file")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o640);
}

/// The recorder cuts off long values and paths. A call that the kernel refused because of the length must not be issued
/// with the short part.
#[test]
fn what_was_too_long_stays_refused() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "file", 1, 3);
    let refused = |e: i32| -i64::from(e);
    let name = format!("user.{}", "n".repeat(250));
    for ret in [0, refused(libc::ERANGE)] {
        let o = d.fd(1, "fsetxattr", 3, ret);
        (o.name, o.value, o.len_bytes, o.aux) = (Some(name.as_str().into()), Some("x".into()), Some(1), Some(0));
    }
    d.on(1, "symlink", &"t".repeat(4095), refused(libc::ENAMETOOLONG)).path2 = Some("link".into());
    let o = d.on(1, "utimensat", "file", refused(libc::EINVAL));
    (o.aux, o.aux2) = (Some(2_000_000_000), Some(1_000_000_000));
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    assert_eq!(report.done, 3, "{:?}", report.summary.skipped);
    assert!(fs::symlink_metadata(dir.path().join("t/w/link")).is_err());
}

/// Without root, immutable and append flags cannot be set, and the failures that they caused do not recur.
#[test]
fn what_only_root_may_set_is_left_out_without_root() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "file", 1, 3);
    d.on(1, "unlink", "gone", -i64::from(libc::EPERM));
    let o = d.fd(1, "ioctl", 3, 0);
    (o.file, o.flags, o.name, o.aux) = (Some(1), Some(0x4008_6602), Some("FS_IOC_SETFLAGS".into()), Some(0x10));
    for call in ["unlink", "truncate"] {
        d.on(1, call, "file", -i64::from(libc::EPERM));
    }
    let o = d.fd(1, "fsetxattr", 3, 0);
    (o.name, o.value, o.len_bytes, o.aux) = (Some("trusted.t".into()), Some("x".into()), Some(1), Some(0));
    let dir = tempfile::tempdir().unwrap();
    let reel = ioreel_traces::Reel::open(d.write(dir.path())).unwrap();
    let input = ioreel_replay::reel::input::Input::read(&reel).unwrap();
    let plan = ioreel_replay::plan(input, ioreel_replay::PlanOptions::default()).unwrap();
    let skipped = plan.skipped_by_label();
    assert_eq!(plan.calls, 2, "{skipped:?}");
    assert_eq!(skipped.get("change that needs root"), Some(&2), "{skipped:?}");
    assert_eq!(skipped.get("refused to a user who is not recorded"), Some(&2), "{skipped:?}");
}

#[test]
fn a_file_has_its_attributes_by_all_its_names() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for name in ["/w/one", "/w/two"] {
        d.had(name, "regular", 5).link_id = Some(1);
    }
    let o = d.on(1, "getxattr", "two", 7);
    (o.name, o.len_bytes) = (Some("user.seven".into()), Some(100));
    let o = d.on(1, "getxattr", "one", 3);
    (o.name, o.len_bytes) = (Some("user.three".into()), Some(100));
    replay_same(d);
}
