//! A read from a pipe or socket waits for the write, checked to the nanosecond with the clock of [`crate::schedule`].

use ioreel_replay::{plan::edge::EdgeKind, run::pace::Pace};

use crate::{
    reel::{Draft, THREAD, replay},
    schedule::issued,
};

const PIPE: i64 = 9;

/// Two threads and a pipe. Thread 1 creates a file at 1 us, in 1 us.
fn two_threads() -> Draft {
    let mut d = Draft::new();
    d.know(PIPE, "fifo");
    thread(&mut d, 2);
    d.create(1, "f", 1, 3);
    d
}

fn thread(d: &mut Draft, task_id: i64) {
    d.tasks.push(ioreel_traces::rows::Task {
        task_id,
        parent: Some(1),
        start_ns: 500,
        clone_flags: THREAD,
        ..Default::default()
    });
}

/// A read or write of a pipe or socket.
fn moves(d: &mut Draft, task: i64, op: &str, file: i64, start_ns: i64, end_ns: i64, bytes: i64) {
    let o = d.io(task, op, 0, 0, 4096, bytes);
    (o.start_ns, o.dur_ns, o.file, o.offset_bytes) = (start_ns, end_ns - start_ns, Some(file), None);
}

/// A call that depends on nothing.
fn looks(d: &mut Draft, task: i64, name: &str, start_ns: i64) {
    d.on(task, "stat", name, -2).start_ns = start_ns;
}

/// Issue time of the call recorded at `recorded_ns`.
fn issue(draft: impl Fn() -> Draft, pace: Pace, recorded_ns: i64, cost_ns: fn(i64) -> i64) -> i64 {
    issued(draft(), pace, cost_ns).iter().find(|(at, _)| *at == recorded_ns).unwrap().1
}

/// The reader waits 15 us for ten bytes that come 18 us after the creation, and makes a call 5 us after they come.
fn blocked() -> Draft {
    let mut d = two_threads();
    moves(&mut d, 1, "write", PIPE, 20_000, 21_000, 10);
    moves(&mut d, 2, "read", PIPE, 5_000, 22_000, 10);
    looks(&mut d, 2, "x", 25_000);
    d
}

#[test]
fn a_reader_goes_on_when_the_writer_has_come_so_far() {
    assert_eq!(issue(blocked, Pace::Max, 25_000, |_| 50_000), 50_000);
    assert_eq!(issue(blocked, Pace::Think, 25_000, |_| 100_000), 101_000 + 18_000 + 5_000);
    // On a faster file system, the wait is shorter.
    assert_eq!(issue(blocked, Pace::Think, 25_000, |_| 100), 1_100 + 18_000 + 5_000);
    assert_eq!(issue(blocked, Pace::Original, 25_000, |_| 100), 25_000);
    assert_eq!(issue(blocked, Pace::Original, 25_000, |_| 60_000), 61_000);
}

#[test]
fn a_reader_that_found_its_bytes_keeps_its_time() {
    let found = || {
        let mut d = two_threads();
        moves(&mut d, 1, "write", PIPE, 3_000, 4_000, 10);
        looks(&mut d, 2, "a", 5_000);
        moves(&mut d, 2, "read", PIPE, 20_000, 21_000, 10);
        looks(&mut d, 2, "b", 25_000);
        d
    };
    // 19 us after the return of its own previous call, which took 1 us.
    assert_eq!(issue(found, Pace::Think, 25_000, |_| 100), 5_100 + 19_000);
    // If the bytes come too late, the computation after the read follows them.
    assert_eq!(issue(found, Pace::Think, 25_000, |at| if at == 1_000 { 100_000 } else { 1_000 }), 102_000 + 5_000);
}

#[test]
fn a_reader_that_polled_has_waited() {
    let polled = || {
        let mut d = two_threads();
        looks(&mut d, 2, "a", 3_000);
        moves(&mut d, 1, "write", PIPE, 100_000, 101_000, 10);
        moves(&mut d, 2, "read", PIPE, 105_000, 106_000, 10);
        looks(&mut d, 2, "b", 110_000);
        d
    };
    // The first call takes 50 us longer, so the write comes 50 us later. The 10 us from the write to the next call
    // stay.
    let cost = |at| if at == 1_000 { 51_000 } else { 1_000 };
    assert_eq!(issue(polled, Pace::Think, 110_000, cost), 100_000 + 50_000 + 10_000);
    assert_eq!(issue(polled, Pace::Think, 110_000, |_| 1_000), 110_000);
}

#[test]
fn bytes_are_counted() {
    let counted = || {
        let mut d = two_threads();
        moves(&mut d, 1, "write", PIPE, 3_000, 4_000, 10);
        looks(&mut d, 1, "slow", 5_000);
        moves(&mut d, 1, "write", PIPE, 10_000, 11_000, 10);
        moves(&mut d, 2, "read", PIPE, 12_000, 13_000, 10);
        looks(&mut d, 2, "a", 14_000);
        moves(&mut d, 2, "read", PIPE, 16_000, 17_000, 1);
        looks(&mut d, 2, "b", 18_000);
        d
    };
    let cost = |at| if at == 5_000 { 50_000 } else { 1_000 };
    assert_eq!(issue(counted, Pace::Max, 14_000, cost), 1_000, "of the first write");
    assert_eq!(issue(counted, Pace::Max, 18_000, cost), 51_000, "of the second");
}

#[test]
fn a_program_that_only_passes_on_takes_its_time() {
    let chain = || {
        let mut d = two_threads();
        thread(&mut d, 3);
        d.know(8, "fifo");
        moves(&mut d, 1, "write", PIPE, 3_000, 4_000, 10);
        moves(&mut d, 3, "read", PIPE, 2_000, 5_000, 10);
        // Computes for 32 us after the write that it read.
        moves(&mut d, 3, "write", 8, 35_000, 36_000, 10);
        moves(&mut d, 2, "read", 8, 2_000, 37_000, 10);
        looks(&mut d, 2, "x", 40_000);
        d
    };
    assert_eq!(issue(chain, Pace::Max, 40_000, |_| 70_000), 70_000);
    assert_eq!(issue(chain, Pace::Think, 40_000, |_| 100_000), 101_000 + 1_000 + 32_000 + 5_000);
}

#[test]
fn sockets_are_read_at_their_other_end() {
    let socket = || {
        let mut d = two_threads();
        for (file, peer) in [(20, 21), (21, 20)] {
            d.know(file, "socket");
            d.files.last_mut().unwrap().peer_ino = Some(peer);
        }
        // Both write and read. A thread does not wait for its own writes.
        moves(&mut d, 2, "write", 20, 2_000, 2_500, 7);
        moves(&mut d, 1, "write", 21, 3_000, 4_000, 10);
        moves(&mut d, 2, "read", 20, 5_000, 6_000, 10);
        looks(&mut d, 2, "x", 7_000);
        moves(&mut d, 1, "read", 21, 8_000, 9_000, 7);
        looks(&mut d, 1, "y", 10_000);
        d
    };
    assert_eq!(issue(socket, Pace::Max, 7_000, |_| 30_000), 30_000);
    assert_eq!(issue(socket, Pace::Max, 10_000, |at| if at == 7_000 { 90_000 } else { 30_000 }), 30_000);
}

#[test]
fn a_writer_waits_for_room() {
    let full = || {
        let mut d = two_threads();
        // The writer waits until the other thread has created a file, which takes long, and read.
        moves(&mut d, 1, "write", PIPE, 3_000, 80_000, 70_000);
        d.create(2, "g", 2, 4).start_ns = 60_000;
        moves(&mut d, 2, "read", PIPE, 70_000, 79_000, 4_096);
        looks(&mut d, 1, "x", 81_000);
        d
    };
    let cost = |at| if at == 60_000 { 500_000 } else { 1_000 };
    assert_eq!(issue(full, Pace::Max, 81_000, cost), 500_000);
    assert_eq!(issue(full, Pace::Think, 81_000, cost), 60_000 + 500_000 + 9_000 + 11_000);
}

#[test]
fn the_end_of_a_stream_is_the_end_of_its_writer() {
    let ends = || {
        let mut d = two_threads();
        moves(&mut d, 1, "write", PIPE, 3_000, 4_000, 10);
        moves(&mut d, 2, "read", PIPE, 5_000, 6_000, 10);
        looks(&mut d, 1, "slow", 10_000);
        let o = d.fd(1, "close", 0, 0);
        (o.start_ns, o.file) = (20_000, Some(PIPE));
        moves(&mut d, 2, "read", PIPE, 7_000, 22_000, 0);
        looks(&mut d, 2, "x", 23_000);
        d
    };
    assert_eq!(issue(ends, Pace::Max, 23_000, |at| if at == 10_000 { 80_000 } else { 1_000 }), 81_000);
}

#[test]
fn who_wrote_unseen_is_not_waited_for() {
    let foreign = || {
        let mut d = two_threads();
        moves(&mut d, 2, "read", PIPE, 1_500, 2_000, 1_000);
        looks(&mut d, 2, "a", 2_500);
        moves(&mut d, 1, "write", PIPE, 3_000, 4_000, 10);
        looks(&mut d, 1, "slow", 5_000);
        moves(&mut d, 1, "write", PIPE, 10_000, 11_000, 10);
        moves(&mut d, 2, "read", PIPE, 12_000, 13_000, 10);
        looks(&mut d, 2, "b", 14_000);
        d
    };
    let cost = |at| if at == 5_000 { 50_000 } else { 1_000 };
    assert_eq!(issue(foreign, Pace::Max, 2_500, cost), 0);
    assert_eq!(issue(foreign, Pace::Max, 14_000, cost), 1_000);
}

#[test]
fn the_verdict_counts_what_waited_for_a_pipe() {
    let (_dir, report) = replay(blocked());
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
    let edges = report.verdict.timing.edges[&EdgeKind::Pipe];
    assert_eq!((edges.edges, edges.violations), (1, 0));
}
