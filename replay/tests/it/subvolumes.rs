//! Subvolumes and snapshots of btrfs, on a target that has none. `tests/end_to_end/replaying/subvolumes.rs` replays them on
//! btrfs.

use std::fs;

use ioreel_replay::model::names::State;
use ioreel_replay::verdict::clauses::Clause;

use crate::reel::{Draft, replay};

/// A request on the directory that is open as `dirfd`, about the name `name` in it.
fn request(d: &mut Draft, call: &str, dirfd: i32, name: &str) {
    let o = d.op(1, "ioctl", 0);
    o.name = Some(format!("BTRFS_IOC_{call}").into());
    (o.fd, o.dirfd, o.path) = (Some(dirfd), Some(dirfd), Some(name.into()));
    o.flags = Some(0x5000_940e);
}

fn snapshot(d: &mut Draft, source: i32, dirfd: i32, name: &str) {
    let o = d.op(1, "ioctl", 0);
    o.name = Some("BTRFS_IOC_SNAP_CREATE_V2".into());
    (o.fd, o.fd2, o.dirfd2, o.path2) = (Some(source), Some(dirfd), Some(dirfd), Some(name.into()));
    (o.flags, o.aux) = (Some(0x5000_9417), Some(0));
}

fn directory(d: &mut Draft, path: &str, file: i64, fd: i64) {
    d.know(file, "directory");
    let o = d.on(1, "openat", path, fd);
    (o.flags, o.aux) = (Some(i64::from(libc::O_DIRECTORY)), Some(0));
    (o.file, o.ofd) = (Some(file), Some(file * 10 + fd));
}

fn draft() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    directory(&mut d, "/w", 1, 3);
    request(&mut d, "SUBVOL_CREATE", 3, "sub");
    d.create(1, "/w/sub/f", 2, 4);
    d.io(1, "pwrite64", 4, 0, 5000, 5000).file = Some(2);
    d.fd(1, "close", 4, 0);
    d.on(1, "mkdir", "/w/sub/d", 0).mode = Some(0o755);
    d.create(1, "/w/sub/d/g", 3, 4);
    d.fd(1, "close", 4, 0);
    d
}

#[test]
fn a_plain_directory_stands_for_a_subvolume_and_is_told() {
    let (dir, report) = replay(draft());
    let v = &report.verdict;
    assert_eq!((v.status, v.left_out.operations), (0, 0), "{} {:#?}", v.sentence, v.tree);
    assert_eq!(fs::metadata(dir.path().join("t/w/sub/f")).unwrap().len(), 5000);
    if !on_btrfs(dir.path()) {
        assert!(
            report.warnings.iter().any(|w| w.starts_with("1 subvolumes are plain directories")),
            "{:?}",
            report.warnings
        );
    }
}

#[test]
fn a_subvolume_goes_with_all_in_it() {
    let mut d = draft();
    request(&mut d, "SNAP_DESTROY", 3, "sub");
    d.on(1, "mkdir", "/w/sub", 0).mode = Some(0o700);
    let (dir, report) = replay(d);
    if !rustix::process::geteuid().is_root() {
        assert!(report.verdict.status & Clause::LeftOut.bit() != 0);
        return;
    }
    assert_eq!(report.verdict.status, 0, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    assert_eq!(fs::read_dir(dir.path().join("t/w/sub")).unwrap().count(), 0);
}

#[test]
fn a_snapshot_that_the_target_cannot_have_is_named_with_what_was_done_in_it() {
    let mut d = draft();
    directory(&mut d, "/w/sub", 4, 5);
    snapshot(&mut d, 5, 3, "snap");
    d.create(1, "/w/snap/late", 5, 6);
    d.fd(1, "close", 6, 0);
    d.create(1, "/w/sub/after", 6, 6);
    let (dir, report) = replay(d);
    if on_btrfs(dir.path()) {
        return;
    }
    let v = &report.verdict;
    assert!(v.status & Clause::LeftOut.bit() != 0, "{}", v.sentence);
    assert!(v.left_out.examples[0].contains("snapshot that the target cannot have"), "{:?}", v.left_out);
    assert!(!dir.path().join("t/w/snap").exists() && dir.path().join("t/w/sub/after").exists());
}

#[test]
fn a_snapshot_has_what_its_source_had() {
    let mut d = draft();
    directory(&mut d, "/w/sub", 4, 5);
    snapshot(&mut d, 5, 3, "snap");
    // Afterwards, each goes its own way.
    d.open(1, "/w/sub/f", libc::O_RDWR, 2, 6);
    d.io(1, "pwrite64", 6, 5000, 1000, 1000).file = Some(2);
    d.fd(1, "close", 6, 0);
    d.on(1, "unlink", "/w/sub/d/g", 0);
    d.on(1, "rmdir", "/w/sub/d", 0);
    d.open(1, "/w/snap/f", libc::O_RDWR, 7, 6);
    d.io(1, "pread64", 6, 0, 9000, 5000).file = Some(7);
    d.fd(1, "close", 6, 0);
    d.on(1, "stat", "/w/snap/d/g", 0).mode = Some(0o100_644);
    d.on(1, "access", "/w/snap/nothing", -i64::from(libc::ENOENT)).mode = Some(0);
    let dir = tempfile::tempdir().unwrap();
    let reel = ioreel_traces::Reel::open(d.write(dir.path())).unwrap();
    let input = ioreel_replay::reel::input::Input::read(&reel).unwrap();
    let options = ioreel_replay::PlanOptions { subvolumes: true, privileged: true, ..Default::default() };
    let plan = ioreel_replay::plan(input, options).unwrap();
    assert!(plan.gaps.by_reason.is_empty(), "{:?}", plan.gaps);
    let node = |path: &[u8]| (1..plan.names.len() as u32).find(|n| plan.names.path(*n) == path).unwrap();
    let is_there = |path: &[u8]| matches!(plan.names.now(node(path)), State::Present { .. });
    assert!(is_there(b"/w/snap/d/g") && !is_there(b"/w/sub/d/g") && !is_there(b"/w/sub/d"));
    let length = |path: &[u8]| plan.end_sizes.get(&node(path)).copied();
    assert_eq!((length(b"/w/sub/f"), length(b"/w/snap/f")), (Some(6000), Some(5000)));
}

fn on_btrfs(dir: &std::path::Path) -> bool {
    let magic = rustix::fs::statfs(dir).unwrap().f_type;
    magic == 0x9123_683e
}
