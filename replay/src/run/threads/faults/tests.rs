//! Each fault makes the replay unfaithful. Without a fault, it is faithful.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{fs, time::Duration};

use super::{
    Call, Fault, PLANTED, Where,
    reel::{Draft, THREAD, at, config},
};
use crate::{
    Config, Replay,
    plan::edge::EdgeKind,
    run::pace::Pace,
    session::watch::Unwatched,
    verdict::judgement::{Judgement, Limits},
};

/// Two threads that hand over files, every 20 us. Then the first one rewrites a file, renames files, and looks for a
/// name that does not exist.
fn draft() -> Draft {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 0..150 {
        let name = format!("done-{i}");
        d.create(1, "tmp", 10 + i, 3);
        d.fd(1, "close", 3, 0);
        d.on(1, "rename", "tmp", 0).path2 = Some(name.as_str().into());
        d.open(2, &name, libc::O_RDONLY, 10 + i, 4);
        d.fd(2, "close", 4, 0);
    }
    d.open(1, "done-0", libc::O_RDWR, 10, 3);
    for i in 0..20 {
        d.io(1, "pwrite64", 3, i * 4096, 4096, 4096);
    }
    // Again, without changing the length of the file.
    for i in 0..20 {
        d.io(1, "pwrite64", 3, i % 2 * 4096, 4096, 4096);
    }
    d.fd(1, "close", 3, 0);
    d.on(1, "rename", "done-1", 0).path2 = Some("done-2".into());
    d.on(1, "rename", "done-3", 0).path2 = Some("done-4".into());
    d.on(1, "stat", "nothing", -2);
    d
}

/// The same. Then the first thread stats `looks` times and writes to a pipe; the second reads from it and stats.
fn piped(looks: usize) -> Draft {
    let mut d = draft();
    (0..looks).for_each(|_| _ = d.on(1, "stat", "nothing", -2));
    d.know(900, "fifo");
    d.io(1, "write", 5, 0, 10, 10).file = Some(900);
    d.io(2, "read", 6, 0, 10, 10).file = Some(900);
    d.on(2, "stat", "nothing", -2);
    d
}

/// One thread that stats a missing name `count` times, every `every_ns`.
fn steady(count: i64, every_ns: i64) -> Draft {
    let mut d = Draft::new();
    for i in 0..count {
        d.on(1, "stat", "nothing", -2).start_ns = 1000 + i * every_ns;
    }
    d
}

/// The verdict on a replay with this fault.
fn judged(draft: Draft, pace: Pace, limits: Limits, fault: Fault) -> Judgement {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = draft.write(dir.path());
    PLANTED.set(fault);
    let config = Config { clockwork: at(pace), limits, ..config(reel, &target) };
    Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap().verdict
}

/// Limits without lateness.
fn patient() -> Limits {
    Limits { own_lateness_ns: i64::MAX, ..Limits::default() }
}

/// Asserts that the replay is unfaithful, for this reason among others.
fn turned(j: &Judgement, why: &str) {
    assert!(!j.faithful && j.reasons.iter().any(|r| r.contains(why)), "{why}: {} {:#?}", j.sentence, j.timing);
    assert!(j.sentence.contains("not faithful") && j.sentence.contains(why), "{}", j.sentence);
}

#[test]
fn without_a_fault_a_replay_is_faithful() {
    for pace in [Pace::Max, Pace::Original, Pace::Think, Pace::Load] {
        let j = judged(piped(500), pace, patient(), Fault::None);
        assert!(j.faithful, "{pace:?}: {}", j.sentence);
        assert_eq!((j.missing, j.results.strayed, j.timing.overtaking), (0, 0, 0));
    }
}

/// With the default limits. Several attempts, because the machine may be busy for a while.
#[test]
fn without_a_fault_a_replay_is_in_time() {
    for (pace, draft) in [
        (Pace::Original, (|| steady(200, 500_000)) as fn() -> Draft),
        (Pace::Think, || steady(200, 500_000)),
        (Pace::Max, draft),
        (Pace::Load, draft),
    ] {
        let mut said = Vec::new();
        let faithful = (0..50).any(|_| {
            let j = judged(draft(), pace, Limits::default(), Fault::None);
            said.push(j.sentence);
            j.faithful
        });
        assert!(faithful, "{pace:?}: {said:#?}");
    }
}

#[test]
fn a_delay_in_the_replayer_turns_it_wherever_it_is() {
    for place in [Where::Before, Where::Behind, Where::Asleep] {
        let fault = Fault::Delay(place, Duration::from_millis(2), 20);
        // Nor is the target blamed. Several attempts, because the machine may be busy for a while.
        let its_own = (0..20).any(|_| {
            let j = judged(steady(500, 200_000), Pace::Original, Limits::default(), fault);
            turned(&j, "the replayer itself was late");
            j.timing.forced_ns.p50 < 10_000_000
        });
        assert!(its_own, "{place:?}");
    }
}

#[test]
fn a_rare_long_delay_turns_it_by_what_follows() {
    // Two of 20 000 operations are delayed themselves.
    let fault = Fault::Delay(Where::Before, Duration::from_millis(5), 10_000);
    let j = judged(steady(20_000, 20_000), Pace::Original, Limits::default(), fault);
    turned(&j, "the replayer itself was late");
    assert!(j.timing.caused_ns.max >= 5_000_000, "{:?}", j.timing.caused_ns);
}

#[test]
fn a_short_delay_of_each_operation_turns_it() {
    for (pace, place) in [
        (Pace::Max, Where::Before),
        (Pace::Max, Where::Behind),
        (Pace::Think, Where::Before),
        (Pace::Think, Where::Behind),
    ] {
        let fault = Fault::Delay(place, Duration::from_micros(200), 1);
        let j = judged(steady(500, 20_000), pace, Limits::default(), fault);
        turned(&j, "the replayer itself");
        assert!(j.timing.cost_ns >= 499 * 200_000 && j.timing.own_ns.p50 >= 190_000, "{:?}", j.timing);
    }
    // With a schedule, the replay falls behind, and the target is not blamed.
    let fault = Fault::Delay(Where::Behind, Duration::from_micros(200), 1);
    let j = judged(steady(20_000, 20_000), Pace::Original, Limits::default(), fault);
    turned(&j, "the replayer itself was late");
    assert!(!j.sentence.contains("the target is too slow"), "{}", j.sentence);
}

#[test]
fn a_delay_at_the_recorded_number_in_flight_turns_it() {
    let fault = Fault::Delay(Where::Behind, Duration::from_millis(3), 1);
    turned(&judged(draft(), Pace::Load, Limits::default(), fault), "the replayer itself was late");
}

#[test]
fn an_operation_that_is_not_issued_turns_it() {
    for pace in [Pace::Max, Pace::Original, Pace::Think] {
        for call in [Call::Pwrite64, Call::Rename, Call::Stat] {
            let j = judged(draft(), pace, patient(), Fault::Unissued(call));
            assert_eq!(j.missing, 1, "{call:?}");
            turned(&j, "1 operations were not issued");
        }
        let j = judged(steady(300, 1_000), pace, patient(), Fault::Short);
        turned(&j, "1 operations were not issued");
    }
    turned(&judged(draft(), Pace::Max, patient(), Fault::Twice), "more than once");
}

#[test]
fn a_changed_result_turns_it() {
    let result = |call, errno: i32| Fault::Result(call, -i64::from(errno));
    for (fault, why) in [
        (result(Call::Openat, libc::EACCES), "results are wrong"),
        (result(Call::Stat, libc::ENOTDIR), "1 results are wrong"),
        (Fault::Result(Call::Stat, 0), "1 results are wrong"),
        (Fault::Result(Call::Pwrite64, 4095), "1 results are wrong"),
        // Unsupported: another class of difference, with a limit of its own.
        (result(Call::Pwrite64, libc::EOPNOTSUPP), "are not supported by this file system"),
    ] {
        turned(&judged(draft(), Pace::Max, patient(), fault), why);
    }
}

#[test]
fn an_operation_in_place_of_another_turns_it() {
    // Results and final tree are equal: two writes to one file, two renames.
    for call in [Call::Pwrite64, Call::Rename] {
        for fault in [Fault::Swapped(call), Fault::Misread(call)] {
            let j = judged(draft(), Pace::Max, patient(), fault);
            turned(&j, "operations were not issued");
            assert!(j.missing >= 2, "{fault:?}: {}", j.missing);
        }
    }
}

#[test]
fn an_edge_that_is_not_kept_turns_it() {
    // A thread that does not wait is far past the read by then, even if the busy machine started it late.
    let j = judged(piped(20_000), Pace::Max, patient(), Fault::Unordered);
    turned(&j, "did not wait for others they depend on");
    for kind in [EdgeKind::Name, EdgeKind::Pipe] {
        assert!(j.timing.edges[&kind].violations > 0, "{kind}");
    }
}
