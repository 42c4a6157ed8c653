//! Calls other than those on data and names: attributes, handles, locks, copies from pipes, mapped memory.

use std::fs;

use ioreel_replay::Config;

use crate::reel::{Draft, THREAD, replay, replay_as, replay_same};

const EAGAIN: i64 = -11;
const ENODATA: i64 = -61;

fn start() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d
}

#[test]
fn attributes_that_the_workload_set_are_read_again() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    let o = d.fd(1, "fgetxattr", 3, ENODATA);
    (o.name, o.len_bytes) = (Some("user.a".into()), Some(100));
    let o = d.fd(1, "fsetxattr", 3, 0);
    (o.name, o.value, o.len_bytes, o.aux) = (Some("user.a".into()), Some("xyz".into()), Some(3), Some(0));
    let o = d.on(1, "getxattr", "f", 3);
    (o.name, o.len_bytes, o.dirfd) = (Some("user.a".into()), Some(100), None);
    let o = d.on(1, "lgetxattr", "f", -34);
    (o.name, o.len_bytes, o.dirfd) = (Some("user.a".into()), Some(2), None);
    let o = d.fd(1, "flistxattr", 3, 7);
    o.len_bytes = Some(200);
    let o = d.on(1, "listxattr", "f", 7);
    (o.len_bytes, o.dirfd) = (Some(0), None);
    let o = d.on(1, "lremovexattr", "f", 0);
    (o.name, o.dirfd) = (Some("user.a".into()), None);
    let o = d.fd(1, "fgetxattr", 3, ENODATA);
    (o.name, o.len_bytes) = (Some("user.a".into()), Some(100));
    replay_same(d);
}

#[test]
fn an_attribute_that_nobody_set_is_not_asked_for() {
    let mut d = start();
    d.had("/w/f", "regular", 1);
    let o = d.on(1, "getxattr", "f", 20);
    (o.name, o.len_bytes) = (Some("security.capability".into()), Some(100));
    let o = d.on(1, "removexattr", "f", 0);
    o.name = Some("user.before".into());
    let (_, report) = replay_as(d, |c| Config { set_ids: true, ..c });
    assert_eq!(report.summary.skipped.get("value not recorded"), Some(&1), "{:?}", report.summary.skipped);
    // The other one is prepared.
    assert_eq!((report.done, report.verdict.results.classes.wrong), (1, 0));
}

/// An ioctl, by name.
fn request<'a>(d: &'a mut Draft, name: &str, number: i64, fd: i32) -> &'a mut ioreel_traces::rows::Op {
    let o = d.fd(1, "ioctl", fd, 0);
    (o.name, o.flags) = (Some(name.into()), Some(number));
    o
}

#[test]
fn flags_extents_handles_and_what_else_is_asked() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 9000, 9000).file = Some(1);
    request(&mut d, "FIGETBSZ", 2, 3);
    let o = d.on(1, "name_to_handle_at", "f", 0);
    (o.value, o.flags) = (Some("handle".into()), Some(0));
    d.on(1, "rename", "f", 0).path2 = Some("g".into());
    let o = d.op(1, "open_by_handle_at", 4);
    (o.value, o.dirfd, o.flags, o.aux) = (Some("handle".into()), Some(-100), Some(0), Some(129));
    (o.file, o.ofd) = (Some(1), Some(77));
    d.io(1, "read", 4, 0, 100_000, 9000).file = Some(1);
    d.op(1, "getcwd", 3).len_bytes = Some(4096);
    d.op(1, "sync", 0);
    let o = d.fd(1, "cachestat", 3, 0);
    (o.offset_bytes, o.len_bytes, o.flags) = (Some(0), Some(8192), Some(0));
    replay_same(d);
}

#[test]
fn one_end_of_a_copy_is_a_file_when_the_other_is_none() {
    let mut d = start();
    d.had("/w/in", "regular", 100_000);
    d.know(8, "socket");
    d.know(9, "fifo");
    d.open(1, "in", libc::O_RDONLY, 1, 3);
    d.create(1, "out", 2, 4);
    // To a socket about which nothing else is known.
    let o = d.op(1, "sendfile", 60_000);
    (o.fd, o.fd2, o.file2, o.len_bytes) = (Some(3), Some(10), Some(8), Some(1 << 20));
    (o.offset_bytes, o.aux) = (Some(0), Some(1));
    d.io(1, "read", 3, 60_000, 100_000, 40_000).file = Some(1);
    let o = d.op(1, "splice", 5000);
    (o.fd, o.file, o.fd2, o.len_bytes) = (Some(11), Some(9), Some(4), Some(1 << 20));
    (o.offset2_bytes, o.aux, o.flags) = (Some(100), Some(1), Some(0));
    let o = d.op(1, "splice", 300);
    (o.fd, o.fd2, o.file2, o.len_bytes) = (Some(4), Some(11), Some(9), Some(1 << 20));
    (o.offset_bytes, o.aux, o.flags, o.file) = (Some(100), Some(2), Some(0), Some(2));
    let dir = replay_same(d);
    let out = fs::read(dir.path().join("t/w/out")).unwrap();
    assert_eq!(out.len(), 5100);
    assert!(out[..100].iter().all(|b| *b == 0) && !out[100..].contains(&0));
}

#[test]
fn a_second_root_is_entered() {
    let mut d = start();
    d.on(1, "mkdir", "jail", 0).mode = Some(0o755);
    d.on(1, "chroot", "jail", 0);
    d.on(1, "mkdir", "/inside", 0).mode = Some(0o755);
    d.on(1, "stat", "/w", -2);
    let dir = replay_same(d);
    assert!(dir.path().join("t/w/jail/inside").is_dir());
}

/// An fcntl lock call of `task`.
fn range(d: &mut Draft, task: i64, command: i32, kind: i32, (from, len): (i64, i64), ret: i64) {
    let o = d.fd(task, "fcntl", 3, ret);
    (o.flags, o.mode, o.aux2, o.offset_bytes, o.len_bytes, o.file) =
        (Some(command.into()), Some(kind), Some(0), Some(from), Some(len), Some(1));
}

#[test]
fn range_locks_belong_to_processes() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fork(1, 2, 0);
    d.fork(1, 3, THREAD);
    range(&mut d, 1, libc::F_SETLK, libc::F_WRLCK, (0, 100), 0);
    // Another thread of the holder's process, and another process.
    range(&mut d, 3, libc::F_SETLK, libc::F_WRLCK, (50, 10), 0);
    range(&mut d, 2, libc::F_SETLK, libc::F_RDLCK, (10, 10), EAGAIN);
    range(&mut d, 2, libc::F_SETLK, libc::F_RDLCK, (100, 0), 0);
    // The first process closes another descriptor of the file, which releases its locks.
    d.fd(1, "dup", 3, 9);
    d.fd(1, "close", 9, 0);
    range(&mut d, 2, libc::F_SETLKW, libc::F_WRLCK, (10, 10), 0);
    range(&mut d, 1, libc::F_OFD_SETLK, libc::F_RDLCK, (15, 1), EAGAIN);
    d.exit(2);
    range(&mut d, 1, libc::F_OFD_SETLKW, libc::F_WRLCK, (15, 1), 0);
    let (_, report) = replay(d);
    assert!(report.verdict.results.differences.is_empty(), "{:#?}", report.verdict.results.differences);
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
    assert!(report.verdict.timing.edges.contains_key(&ioreel_replay::plan::edge::EdgeKind::Lock));
}

#[test]
fn whoever_waited_for_a_lock_gets_it_after_it_was_dropped() {
    let flock = |d: &mut Draft, task: i64, how: i32, ret: i64| {
        let o = d.fd(task, "flock", 3, ret);
        (o.flags, o.file) = (Some(how.into()), Some(1));
    };
    let mut d = start();
    d.had("/w/f", "regular", 0);
    d.fork(1, 2, 0);
    d.open(1, "f", libc::O_RDWR, 1, 3).ofd = Some(1);
    d.open(2, "f", libc::O_RDWR, 1, 3).ofd = Some(2);
    for i in 0..50 {
        flock(&mut d, 1, libc::LOCK_EX, 0);
        d.io(1, "pwrite64", 3, 10 * i, 10, 10).file = Some(1);
        flock(&mut d, 2, libc::LOCK_EX | libc::LOCK_NB, EAGAIN);
        // This call waits: it is entered while the other process holds the lock, and returns before the unlock returns.
        flock(&mut d, 2, libc::LOCK_SH, 0);
        let waits = d.ops.last_mut().unwrap();
        waits.dur_ns = 12_000;
        flock(&mut d, 1, libc::LOCK_UN, 0);
        d.ops.last_mut().unwrap().dur_ns = 5_000;
        flock(&mut d, 2, libc::LOCK_UN, 0);
    }
    replay_same(d);
}

/// A lock of a shared description is free after all have closed it. The next locker waits for all of them, because a
/// replay may close in another order.
#[test]
fn a_lock_is_free_when_all_have_closed_what_held_it() {
    for last_ends_first in [false, true] {
        let mut d = start();
        d.had("/w/f", "regular", 0);
        for round in 0..30 {
            let (holder, child, next) = (10 * round + 2, 10 * round + 3, 10 * round + 4);
            d.fork(1, holder, 0);
            d.fork(1, next, 0);
            d.open(holder, "f", libc::O_RDWR, 1, 3).ofd = Some(holder);
            d.open(next, "f", libc::O_RDWR, 1, 3).ofd = Some(next);
            d.fd(holder, "flock", 3, 0).flags = Some(libc::LOCK_EX.into());
            // The child shares the description, and its writes take longer in the replay than recorded.
            d.fork(holder, child, 0);
            for i in 0..40 {
                d.io(child, "pwrite64", 3, 1000 * i, 100, 100).file = Some(1);
            }
            if last_ends_first {
                d.exit(child);
                d.fd(holder, "close", 3, 0);
            } else {
                d.fd(holder, "close", 3, 0);
                d.exit(child);
            }
            d.fd(next, "flock", 3, 0).flags = Some(i64::from(libc::LOCK_EX | libc::LOCK_NB));
            d.exit(next);
            d.exit(holder);
        }
        replay_same(d);
    }
}

/// A mapping of descriptor 3 by task 1.
fn map(d: &mut Draft, at: i64, (offset, len): (i64, i64), flags: i32) {
    let o = d.fd(1, "mmap", 3, at);
    (o.len_bytes, o.offset_bytes, o.file) = (Some(len), Some(offset), Some(1));
    (o.mode, o.flags) = (Some(3), Some(flags.into()));
}

/// A touch of a mapped file by `task`.
fn touch(d: &mut Draft, task: i64, op: &str, file: i64, offset: i64, len: i64) {
    let o = d.op(task, op, 0);
    (o.source, o.file) = ("fault".into(), Some(file));
    (o.offset_bytes, o.len_bytes) = (Some(offset), Some(len));
}

#[test]
fn a_mapping_to_write_alone_is_touched() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fd(1, "ftruncate", 3, 0).len_bytes = Some(1 << 20);
    map(&mut d, 0x7000_0000, (0, 1 << 20), libc::MAP_SHARED);
    d.ops.last_mut().unwrap().mode = Some(libc::PROT_WRITE);
    touch(&mut d, 1, "fault", 1, 4096, 4096);
    touch(&mut d, 1, "dirty", 1, 4096, 4096);
    replay_same(d);
}

#[test]
fn touches_recur_on_the_pages_of_the_mapping() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fd(1, "ftruncate", 3, 0).len_bytes = Some(1 << 20);
    d.fork(1, 2, THREAD);
    map(&mut d, 0x7000_0000, (65536, 1 << 19), libc::MAP_SHARED);
    touch(&mut d, 1, "fault", 1, 65536, 4096);
    touch(&mut d, 2, "map_pages", 1, 131_072, 65536);
    touch(&mut d, 2, "dirty", 1, 69_632, 8192);
    let o = d.op(1, "msync", 0);
    (o.aux, o.len_bytes, o.flags) = (Some(0x7000_0000), Some(1 << 19), Some(4));
    let o = d.op(1, "madvise", 0);
    (o.aux, o.len_bytes, o.flags) = (Some(0x7000_0000), Some(1 << 19), Some(4));
    let o = d.op(1, "mincore", 0);
    (o.aux, o.len_bytes) = (Some(0x7000_1000), Some(8192));
    let o = d.op(1, "mremap", 0x7100_0000);
    (o.aux, o.len_bytes, o.aux2, o.flags) = (Some(0x7000_0000), Some(1 << 19), Some(1 << 18), Some(1));
    touch(&mut d, 1, "dirty", 1, 65536 + (1 << 18) - 4096, 4096);
    let o = d.op(1, "munmap", 0);
    (o.aux, o.len_bytes) = (Some(0x7100_0000), Some(1 << 18));
    let dir = replay_same(d);
    use std::os::unix::fs::MetadataExt;
    let blocks = fs::metadata(dir.path().join("t/w/f")).unwrap().blocks();
    assert!(blocks > 0, "what was made dirty has room on the disk");
}

#[test]
fn touches_beyond_the_end_or_any_mapping_do_no_harm() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fd(1, "ftruncate", 3, 0).len_bytes = Some(8192);
    map(&mut d, 0x7000_0000, (0, 1 << 20), libc::MAP_SHARED);
    touch(&mut d, 1, "dirty", 1, 512 << 10, 4096);
    d.fd(1, "ftruncate", 3, 0).len_bytes = Some(0);
    touch(&mut d, 1, "fault", 1, 0, 4096);
    touch(&mut d, 1, "dirty", 1, 4096, i64::MAX);
    touch(&mut d, 1, "dirty", 1, i64::MIN, 4096);
    touch(&mut d, 1, "fault", 1, i64::MAX, i64::MAX);
    touch(&mut d, 1, "fault", 99, 0, 4096);
    touch(&mut d, 1, "openat", 1, 0, 4096);
    let (_, report) = replay(d);
    let results = &report.verdict.results;
    assert!(results.differences.iter().all(|d| d.replayed == "EFAULT" || d.replayed == "EINVAL"), "{results:#?}");
    assert_eq!(results.classes.wrong, 3, "{results:#?}");
    assert_eq!(report.summary.skipped.get("mapping made out of sight"), Some(&3), "{:?}", report.summary.skipped);
    assert_eq!(report.summary.skipped.get("call not replayed"), Some(&1), "{:?}", report.summary.skipped);
}

#[test]
fn what_cannot_be_done_here_is_told_with_its_share() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    // No file system supports FIBMAP on a directory.
    d.know(2, "directory");
    d.open(1, ".", libc::O_RDONLY | libc::O_DIRECTORY, 2, 4).ofd = Some(44);
    let o = d.fd(1, "ioctl", 4, 0);
    (o.name, o.flags, o.aux) = (Some("FIBMAP".into()), Some(1), Some(0));
    let (_, report) = replay(d);
    let v = &report.verdict;
    assert_eq!((v.results.classes.unsupported, v.faithful), (1, false), "{:#?}", v.results);
    assert!(v.sentence.contains("1 calls (33.33 %) are not supported by this file system: 1 FIBMAP"), "{}", v.sentence);
}

/// Work of the kernel itself, or below a call, recurs with the call. If it was issued as well, it would happen twice.
#[test]
fn the_kernels_own_doing_is_left_out() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    let o = d.fd(1, "write", 3, 4096);
    (o.len_bytes, o.offset_bytes, o.file) = (Some(4096), Some(0), Some(1));
    for (source, task) in [("lower", 1), ("lower", 77), ("vfs", 77)] {
        let o = d.op(task, "vfs_write", 8192);
        (o.source, o.file) = (source.into(), Some(1));
        (o.offset_bytes, o.len_bytes) = (Some(4096), Some(8192));
    }
    let (dir, report) = replay(d);
    assert_eq!(report.summary.skipped.get("by the kernel itself"), Some(&3), "{:?}", report.summary.skipped);
    assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 4096);
}
