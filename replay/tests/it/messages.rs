//! Descriptors that processes receive by message.

use std::os::unix::fs::MetadataExt;

use ioreel_replay::{Config, Slice};

use crate::reel::{Draft, replay, replay_as, replay_same};

/// A socket.
const SOCKET: i64 = 90;
const FILES: i64 = 20;
/// Length of each write of the worker.
const BYTES: i64 = 25_000;

/// The descriptor `fd` of the description `ofd` arrives at `task`.
fn arrives(d: &mut Draft, task: i64, fd: i64, file: i64) {
    let o = d.fd(task, "scm_rights", 4, fd);
    o.source = "scm".into();
    (o.file, o.ofd, o.flags) = (Some(file), Some(file * 10), Some(0));
}

/// A parent creates files, writes ten bytes, sends each to its worker and closes it. Only then does the worker receive
/// it, and writes 100,000 bytes.
fn separated() -> Draft {
    let mut d = Draft::new();
    d.know(SOCKET, "socket");
    d.fork(1, 2, 0);
    for file in 1..=FILES {
        d.create(1, &format!("f{file}"), file, 7);
        d.io(1, "write", 7, 0, 10, 10);
        d.fd(1, "sendmsg", 3, 1).aux = Some(1);
        d.fd(1, "close", 7, 0);
    }
    for file in 1..=FILES {
        arrives(&mut d, 2, 9, file);
        d.fd(2, "recvmsg", 4, 1).aux = Some(1);
        for i in 0..4 {
            d.io(2, "write", 9, 10 + i * BYTES, BYTES, BYTES);
        }
        d.fd(2, "close", 9, 0);
    }
    d
}

#[test]
fn a_worker_writes_to_files_that_its_parent_opened() {
    let (dir, report) = replay(separated());
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    for file in 1..=FILES {
        let len = std::fs::metadata(dir.path().join(format!("t/w/f{file}"))).unwrap().len();
        assert_eq!(len, 100_010, "f{file}");
    }
    // The messages themselves are not replayed.
    assert_eq!(report.summary.skipped.iter().map(|(why, n)| (&**why, *n)).collect::<Vec<_>>(), [("socket", 2 * FILES)]);
    assert_eq!(report.summary.implied, FILES);
}

#[test]
fn a_slice_between_opening_and_receipt_has_the_descriptors() {
    let mut d = Draft::new();
    d.fork(1, 2, 0);
    d.create(1, "f", 1, 7);
    d.io(1, "write", 7, 0, 10, 10);
    let from_ns = d.now();
    d.io(1, "write", 7, 10, 10, 10);
    arrives(&mut d, 2, 9, 1);
    d.io(2, "write", 9, 20, 5, 5);
    d.fd(1, "close", 7, 0);
    d.io(2, "write", 9, 25, 5, 5);
    let slice = Slice { from_ns, ..Slice::default() };
    let (dir, report) = replay_as(d, |c| Config { slice, ..c });
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    assert_eq!(std::fs::metadata(dir.path().join("t/w/f")).unwrap().size(), 30);
    assert!(report.summary.skipped.is_empty());
}

#[test]
fn a_descriptor_taken_out_of_a_process_is_the_same_description() {
    let mut d = Draft::new();
    d.fork(1, 2, 0);
    d.create(1, "f", 1, 7);
    d.io(1, "write", 7, 0, 10, 10);
    let o = d.fd(2, "pidfd_getfd", 5, 3);
    (o.fd2, o.file, o.ofd) = (Some(7), Some(1), Some(10));
    d.io(2, "write", 3, 10, 10, 10);
    d.io(1, "write", 7, 20, 10, 10);
    let dir = replay_same(d);
    assert_eq!(std::fs::metadata(dir.path().join("t/w/f")).unwrap().size(), 30);
}

#[test]
fn a_descriptor_of_an_unrecorded_sender_is_left_out_and_told() {
    let mut d = Draft::new();
    d.know(1, "regular");
    arrives(&mut d, 1, 9, 1);
    d.io(1, "write", 9, 0, 10, 10);
    d.create(1, "f", 2, 3);
    let (_dir, report) = replay(d);
    assert_eq!(report.summary.skipped.get("descriptor that a message brought"), Some(&2));
}
