//! Requests and ring slots across the border of a slice.

use std::fs;

use ioreel_replay::{Config, Slice};
use ioreel_traces::rows::Op;

use super::{cut_everywhere, run};
use crate::{
    reel::{Draft, THREAD, config},
    requests::{DIRECT, FIXED, enter, request},
};

/// A ring's table has one file without a descriptor, and one under another number than its descriptor.
#[test]
fn slots_of_rings() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/b", "regular", 50);
    d.know(1, "regular");
    d.know(2, "regular");
    let o = d.open(1, "b", libc::O_RDWR, 2, 3);
    (o.ofd, o.file) = (Some(22), Some(2));
    let o = d.open(1, "b", libc::O_RDWR, 2, 4);
    (o.ofd, o.file) = (Some(33), Some(2));
    let one = |d: &mut Draft, op: &str, slot: i32, ret: i64, set: &dyn Fn(&mut Op)| {
        enter(d, 1, "io_uring_enter", 1);
        set(request(d, 1, op, slot, 8_000, ret));
        d.pause(50_000);
    };
    let opened = |o: &mut Op| {
        (o.path, o.dirfd, o.fd, o.ofd, o.file) = (Some("a".into()), Some(-100), None, Some(11), Some(1));
        (o.flags, o.mode) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(0o600));
        (o.sqe_flags, o.fd2) = (Some(DIRECT), Some(3));
    };
    let a = |offset, len| {
        move |o: &mut Op| {
            (o.offset_bytes, o.len_bytes, o.sqe_flags) = (Some(offset), Some(len), Some(FIXED));
            (o.ofd, o.file) = (Some(11), Some(1));
        }
    };
    // Slot 3, which is unrelated to descriptor 3.
    one(&mut d, "openat", 0, 0, &|o| {
        opened(o);
        o.aux = Some(1);
    });
    one(&mut d, "write", 3, 100, &a(0, 100));
    one(&mut d, "write", 3, 700, &a(100, 700));
    one(&mut d, "write", 4, 60, &|o| {
        a(20, 60)(o);
        (o.ofd, o.file) = (Some(22), Some(2));
    });
    one(&mut d, "read", 3, 300, &a(500, 1000));
    d.on(1, "rename", "a", 0).path2 = Some("c".into());
    one(&mut d, "write", 3, 100, &a(800, 100));
    one(&mut d, "close", 3, 0, &|o| o.sqe_flags = Some(DIRECT));
    one(&mut d, "openat", 0, 0, &|o| {
        opened(o);
        (o.ofd, o.file, o.aux) = (Some(44), Some(3), Some(1));
    });
    d.know(3, "regular");
    one(&mut d, "write", 3, 10, &|o| {
        a(0, 10)(o);
        (o.ofd, o.file) = (Some(44), Some(3));
    });
    cut_everywhere(d);
}

/// A thread ended before its request, and others wait for the request.
#[test]
fn a_request_outlives_its_thread() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "f", 1, 3);
    d.fork(1, 2, THREAD);
    let begin = d.now();
    enter(&mut d, 2, "io_submit", 1);
    let o = request(&mut d, 2, "pwrite64", 3, 100_000, 5000);
    (o.source, o.start_ns) = ("aio".into(), begin + 1000);
    (o.offset_bytes, o.len_bytes, o.file) = (Some(0), Some(5000), Some(1));
    d.exit(2);
    d.pause(200_000);
    d.io(1, "pread64", 3, 0, 10_000, 5000);
    d.on(1, "rename", "f", 0).path2 = Some("g".into());
    d.fd(1, "close", 3, 0);
    cut_everywhere(d);
}

/// Operations skipped before the border are skipped after it, too.
#[test]
fn slots_of_what_is_left_out() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.know(1, "character");
    let one = |d: &mut Draft, op: &str, ret: i64| -> usize {
        enter(d, 1, "io_uring_enter", 1);
        request(d, 1, op, 3, 8_000, ret);
        d.pause(50_000);
        d.ops.len() - 1
    };
    let at = one(&mut d, "openat", 0);
    let o = &mut d.ops[at];
    (o.path, o.dirfd, o.fd, o.ofd, o.file) = (Some("/dev/zero".into()), Some(-100), None, Some(11), Some(1));
    (o.flags, o.aux, o.sqe_flags, o.fd2) = (Some(0), Some(0), Some(DIRECT), Some(3));
    let mut from_ns = 0;
    for _ in 0..2 {
        let at = one(&mut d, "read", 64);
        let o = &mut d.ops[at];
        (o.offset_bytes, o.len_bytes, o.sqe_flags) = (Some(0), Some(64), Some(FIXED));
        (o.ofd, o.file) = (Some(11), Some(1));
        from_ns = o.start_ns - 20_000;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let report = run(Config { slice: Slice { from_ns, to_ns: i64::MAX }, ..config(reel, &target) });
    assert!(report.verdict.results.differences.is_empty(), "{:#?}", report.verdict.results.differences);
}
