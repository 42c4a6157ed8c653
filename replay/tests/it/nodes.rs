//! Nodes of devices, FIFOs and sockets. Devices need root.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
};

use ioreel_replay::{Config, Slice};

use crate::reel::{Draft, replay, replay_as};

/// `mknod` of `name` with this type and mode.
fn mknod(d: &mut Draft, name: &str, mode: u32, (major, minor): (u32, u32)) {
    let o = d.on(1, "mknod", name, 0);
    (o.mode, o.aux) = (Some(mode as i32), Some(libc::makedev(major, minor) as i64));
}

/// Nodes that existed, and nodes that the workload creates, looks at, changes and moves.
fn nodes() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for (path, kind, rdev) in [("/w/disk", "block", 7 << 20 | 300), ("/w/zero", "char", 1 << 20 | 5)] {
        let t = d.had(path, kind, 0);
        (t.rdev, t.mode, t.uid) = (Some(rdev), Some(0o640), Some(0));
    }
    d.had("/w/socket", "socket", 0).mode = Some(0o755);
    d.on(1, "stat", "zero", 0).mode = Some((libc::S_IFCHR | 0o640) as i32);
    mknod(&mut d, "null", libc::S_IFCHR | 0o644, (1, 3));
    mknod(&mut d, "loop", libc::S_IFBLK | 0o600, (7, 260));
    mknod(&mut d, "bound", libc::S_IFSOCK | 0o700, (0, 0));
    mknod(&mut d, "whiteout", libc::S_IFCHR | 0o600, (0, 0));
    d.on(1, "stat", "null", 0).mode = Some((libc::S_IFCHR | 0o644) as i32);
    d.on(1, "chmod", "null", 0).mode = Some(0o666);
    d.on(1, "rename", "loop", 0).path2 = Some("moved".into());
    d
}

/// Type, permission bits and device of a name.
fn found(dir: &tempfile::TempDir, name: &str) -> (char, u32, (u32, u32)) {
    let meta = fs::symlink_metadata(dir.path().join("t/w").join(name)).unwrap();
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_char_device() => 'c',
        () if kind.is_block_device() => 'b',
        () if kind.is_socket() => 's',
        () if kind.is_fifo() => 'p',
        () => '-',
    };
    (kind, meta.permissions().mode() & 0o7777, (libc::major(meta.rdev()), libc::minor(meta.rdev())))
}

#[test]
fn a_bound_socket_is_a_node() {
    let mut d = Draft::new();
    d.know(9, "socket");
    d.on(1, "mkdir", "run", 0).mode = Some(0o755);
    for ret in [0, -i64::from(libc::EADDRINUSE)] {
        let o = d.on(1, "bind", "run/socket", ret);
        (o.fd, o.file, o.dirfd) = (Some(5), Some(9), None);
    }
    d.on(1, "chmod", "run/socket", 0).mode = Some(0o660);
    d.on(1, "rename", "run/socket", 0).path2 = Some("run/moved".into());
    let dir = crate::reel::replay_same(d);
    assert_eq!(found(&dir, "run/moved"), ('s', 0o660, (0, 0)));
}

fn is_root() -> bool {
    // SAFETY: takes no arguments.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn nodes_are_as_recorded() {
    if !is_root() {
        return;
    }
    let (dir, report) = replay_as(nodes(), |c| Config { device_nodes: true, ..c });
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    assert_eq!(found(&dir, "disk"), ('b', 0o640, (7, 300)));
    assert_eq!(found(&dir, "zero"), ('c', 0o640, (1, 5)));
    assert_eq!(found(&dir, "socket"), ('s', 0o755, (0, 0)));
    assert_eq!(found(&dir, "null"), ('c', 0o666, (1, 3)));
    assert_eq!(found(&dir, "moved"), ('b', 0o600, (7, 260)));
    assert_eq!(found(&dir, "bound"), ('s', 0o700, (0, 0)));
    assert_eq!(found(&dir, "whiteout"), ('c', 0o600, (0, 0)));
}

/// A node in the target gives whoever may open it access to a disk of this machine.
#[test]
fn no_device_is_created_unasked_and_the_verdict_says_so() {
    let (dir, report) = replay(nodes());
    assert!(!report.verdict.faithful);
    assert!(report.verdict.sentence.contains("device node, see --device-nodes"), "{}", report.verdict.sentence);
    assert_eq!(report.summary.device_nodes_left_out, 4);
    for entry in fs::read_dir(dir.path().join("t/w")).unwrap() {
        let meta = fs::symlink_metadata(entry.unwrap().path()).unwrap();
        let kind = meta.file_type();
        assert!(!kind.is_file(), "nothing else takes the place of a node");
        assert!(!(kind.is_char_device() || kind.is_block_device()) || meta.rdev() == 0);
    }
    let tree = report.verdict.tree.unwrap();
    assert!(tree.examples.iter().any(|e| e.contains("/w/disk")), "{:?}", tree.examples);
    assert_eq!(found(&dir, "socket").0, 's');
    assert_eq!(found(&dir, "bound").0, 's');
}

#[test]
fn nodes_created_before_a_slice_are_prepared() {
    if !is_root() {
        return;
    }
    let mut d = nodes();
    let from_ns = d.now();
    d.create(1, "f", 1, 3);
    let slice = Slice { from_ns, ..Slice::default() };
    let (dir, report) = replay_as(d, |c| Config { slice, device_nodes: true, ..c });
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    assert_eq!(found(&dir, "null"), ('c', 0o666, (1, 3)));
    assert_eq!(found(&dir, "moved"), ('b', 0o600, (7, 260)));
    assert_eq!(found(&dir, "disk"), ('b', 0o640, (7, 300)));
    assert_eq!(found(&dir, "whiteout"), ('c', 0o600, (0, 0)));
}
