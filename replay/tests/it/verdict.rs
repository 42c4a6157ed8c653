//! The verdict detects every fault planted in the replayer's path.

use std::fs;

use ioreel_replay::{
    PlanOptions, Replay, plan,
    plan::{
        edge::{Edge, EdgeKind, Kinds, OrderMode},
        program::{Act, Plan},
    },
    reel::input::{Input, Rec},
    run::{
        engine::Outcome,
        outcomes::Outcomes,
        pace::{Factor, Pace},
    },
    verdict::{
        judgement::{Facts, Judgement, Limits, judge},
        results::Class,
    },
};
use ioreel_traces::Reel;

use crate::reel::{Draft, THREAD, at, config, replay};

/// A producer renames, a consumer opens: 1000 times, more than 2 ms apart.
fn draft() -> Draft {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 0..1000 {
        let name = format!("done-{i}");
        d.create(1, "tmp", 10 + i, 3);
        d.fd(1, "close", 3, 0);
        d.on(1, "rename", "tmp", 0).path2 = Some(name.as_str().into());
        d.open(2, &name, libc::O_RDONLY, 10 + i, 4);
        d.fd(2, "close", 4, 0);
        d.pause(2_000_000);
    }
    d
}

fn planned(draft: Draft, order: OrderMode, without: Kinds) -> Plan {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::read(&Reel::open(draft.write(dir.path())).unwrap()).unwrap();
    plan(input, PlanOptions { privileged: true, order, without, ..Default::default() }).unwrap()
}

/// An operation and its outcome.
struct Did {
    task: u32,
    r: Rec,
    o: Outcome,
}

/// The outcomes of a perfect replay at pace `original`: every call is `late_ns` late and takes as long as recorded.
fn perfect(plan: &Plan, late_ns: i64) -> Vec<Did> {
    let mut out = Vec::new();
    for task in 0..plan.tasks.len() as u32 {
        plan.each_step(task, |step, s, chunk| {
            if let Act::Call { rec, .. } = s.act {
                let r = chunk.recs[rec as usize].clone();
                let (start_ns, end_ns) = (r.start_ns + late_ns, r.end_ns + late_ns);
                let (due_ns, ret, free_ns) = (r.start_ns, r.ret, i64::MIN);
                let o = Outcome { step, cpu: 0, due_ns, start_ns, end_ns, ret, free_ns, row: r.row };
                out.push(Did { task, r, o });
            }
        });
    }
    out
}

fn outcomes(plan: &Plan, did: Vec<Did>) -> Outcomes {
    let mut out = Outcomes::new(plan.tasks.len());
    for task in 0..plan.tasks.len() as u32 {
        out.put(task, did.iter().filter(|d| d.task == task).map(|d| d.o).collect()).unwrap();
    }
    out
}

fn judged(plan: &Plan, did: Vec<Did>) -> Judgement {
    judge(plan, at(Pace::Original), &outcomes(plan, did), Limits::default(), Facts::default())
}

/// The edges of all steps.
fn edges(plan: &Plan) -> Vec<Edge> {
    let mut out = Vec::new();
    for task in 0..plan.tasks.len() as u32 {
        plan.each_step(task, |_, s, chunk| out.extend_from_slice(s.after.of(&chunk.edges)));
    }
    out
}

fn only_reason(j: &Judgement) -> &str {
    assert!(!j.faithful && j.reasons.len() == 1, "{:#?}", j.reasons);
    assert!(j.sentence.contains("not faithful") && j.sentence.contains(&j.reasons[0]), "{}", j.sentence);
    &j.reasons[0]
}

#[test]
fn a_perfect_replay_is_faithful_and_its_figures_are_exact() {
    let plan = planned(draft(), OrderMode::Resource, Kinds::NONE);
    let j = judged(&plan, perfect(&plan, 5_000));
    assert!(j.faithful, "{:#?}", j.reasons);
    let t = &j.timing;
    assert_eq!((t.own_ns.p50, t.own_ns.max, t.forced_ns.max, t.early), (5_000, 5_000, 0, 0));
    assert_eq!((t.within_10us, t.drift_ppm, t.end_late_ns), (1.0, Some(0.0), 5_000));
    let gaps = t.gaps.as_ref().unwrap();
    assert_eq!((gaps.error_ns.max, gaps.distance.unwrap().w1_ns), (0, 0));
    assert_eq!((t.reordered, j.missing), (0.0, 0));
    assert!(t.edges[&EdgeKind::Name].edges >= 1000, "{:?}", t.edges);
    assert_eq!((j.concurrency.distance, j.concurrency.original_max), (0.0, 1));
    assert_eq!(j.original_in_calls_ns, j.replay_in_calls_ns);
    assert!(j.latencies.iter().all(|l| l.original_ns == l.replay_ns));
}

#[test]
fn a_delay_in_the_replayer_turns_it() {
    let plan = planned(draft(), OrderMode::Resource, Kinds::NONE);
    let mut o = perfect(&plan, 5_000);
    // One in fifty, for which nobody waits, is issued 1.2 ms late.
    for (_, d) in o.iter_mut().enumerate().filter(|(i, _)| *i > 3000 && i % 20 == 1) {
        d.o.start_ns += 1_200_000;
        d.o.end_ns += 1_200_000;
    }
    let j = judged(&plan, o);
    assert!(j.reasons.iter().any(|r| r.contains("the replayer itself was late")), "{:#?}", j.reasons);
    assert!(!j.faithful && j.timing.own_ns.p99 > 1_000_000);
}

#[test]
fn a_slow_target_is_told_apart_from_a_late_replayer() {
    let plan = planned(draft(), OrderMode::Resource, Kinds::NONE);
    let mut o = perfect(&plan, 5_000);
    // Every call of the first thread takes 3 ms, so it cannot keep up. That is not the replayer's fault.
    let mut free = 0;
    for o in o.iter_mut().filter(|d| d.task == 0).map(|d| &mut d.o) {
        o.start_ns = o.start_ns.max(free + 2_000);
        o.end_ns = o.start_ns + 3_000_000;
        free = o.end_ns;
    }
    // The other thread waits for it as the edges require.
    let ends: Vec<i64> = o.iter().filter(|d| d.task == 0).map(|d| d.o.end_ns).collect();
    let mut free = 0;
    for (i, o) in o.iter_mut().filter(|d| d.task == 1).map(|d| &mut d.o).enumerate() {
        o.start_ns = o.start_ns.max(ends[i / 2 * 3 + 2] + 2_000).max(free + 2_000);
        o.end_ns = o.start_ns + 1_000;
        free = o.end_ns;
    }
    let j = judged(&plan, o);
    assert!(j.timing.own_ns.p99 <= 5_000 && j.timing.forced_ns.p99 > 1_000_000_000, "{:?}", j.timing);
    assert!(only_reason(&j).contains("the target is too slow"), "{}", j.sentence);
    assert!(j.timing.drift_ppm.unwrap() > 100_000.0);
}

#[test]
fn a_dropped_operation_a_changed_result_a_reordered_edge_an_early_issue_turn_it() {
    let plan = planned(draft(), OrderMode::Resource, Kinds::NONE);
    let mut o = perfect(&plan, 5_000);
    o.remove(700);
    let j = judged(&plan, o);
    assert_eq!(j.missing, 1);
    assert!(only_reason(&j).contains("not issued"));

    let mut o = perfect(&plan, 5_000);
    o[700].o.ret = -5;
    let j = judged(&plan, o);
    assert_eq!((j.results.classes.wrong, j.results.differences[0].class), (1, Class::Wrong));
    assert!(only_reason(&j).contains("wrong"));

    // The consumer opens while the rename that it waits for is still in progress.
    let mut o = perfect(&plan, 5_000);
    o.iter_mut().find(|d| d.r.call.renames()).unwrap().o.end_ns += 500_000;
    let j = judged(&plan, o);
    assert_eq!(j.timing.edges[&EdgeKind::Name].violations, 1);
    assert!(only_reason(&j).contains("1 of name"), "{}", j.sentence);

    let mut o = perfect(&plan, 0);
    o[300].o.start_ns -= 1;
    assert!(only_reason(&judged(&plan, o)).contains("early"));

    let mut o = perfect(&plan, 5_000);
    for o in o.iter_mut().map(|d| &mut d.o) {
        o.start_ns += o.due_ns / 50;
        o.end_ns += o.due_ns / 50;
    }
    let j = judged(&plan, o);
    assert!((j.timing.drift_ppm.unwrap() - 20_000.0).abs() < 10.0 && j.sentence.contains("drift"), "{}", j.sentence);

    let facts = Facts { lost: 3, ..Facts::default() };
    let j = judge(&plan, at(Pace::Original), &outcomes(&plan, perfect(&plan, 1_000)), Limits::default(), facts);
    assert!(only_reason(&j).contains("lost"));
}

#[test]
fn what_raced_in_the_original_is_no_wrong_result() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 1000, 1000);
    // A read at the start overlaps a truncation to more than it reads: either order is possible.
    let t = d.now();
    let o = d.io(1, "pread64", 3, 0, 100, 100);
    (o.start_ns, o.dur_ns, o.file) = (t, 50_000, Some(1));
    let o = d.fd(2, "ftruncate", 3, 0);
    (o.start_ns, o.dur_ns, o.file, o.len_bytes, o.offset_bytes) = (t + 1000, 50_000, Some(1), Some(500), Some(0));
    let plan = planned(d, OrderMode::Resource, Kinds::NONE);
    let mut o = perfect(&plan, 0);
    let read = &mut o.iter_mut().find(|d| d.r.call.reads()).unwrap().o;
    read.ret = 7;
    let end = read.end_ns;
    o.last_mut().unwrap().o.start_ns = end;
    let j = judged(&plan, o);
    let (same, benign) = (j.results.classes.same, j.results.classes.benign);
    assert_eq!((same, benign), (3, 1), "{:#?}", j.results);
    assert_eq!((j.results.classes.benign, j.results.classes.wrong), (1, 0), "{:#?}", j.results);
    assert!(j.faithful, "{}", j.sentence);
}

#[test]
fn a_tree_that_differs_turns_it() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/old", "regular", 10);
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 100, 100);
    d.on(1, "mkdir", "d", 0).mode = Some(0o777);
    d.on(1, "rename", "old", 0).path2 = Some("d/new".into());
    d.on(1, "link", "f", 0).path2 = Some("d/hard".into());
    d.on(1, "symlink", "f", 0).path2 = Some("d/soft".into());
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let report = Replay::plan(config(reel.clone(), &target))
        .unwrap()
        .run(ioreel_replay::session::watch::Unwatched, |_| ())
        .unwrap();
    let tree = report.verdict.tree.unwrap();
    assert_eq!((tree.differing, tree.expected, tree.found), (0, 6, 6), "{tree:#?}");
    assert_eq!(tree.digest, tree.expected_digest);
    // A later change of the tree by something else is found.
    let input = Input::read(&Reel::open(&reel).unwrap()).unwrap();
    let plan = plan(input, PlanOptions { privileged: true, ..Default::default() }).unwrap();
    let directory = ioreel_replay::prepare::directory::Directory::of(target.clone(), fs::File::open(&target).unwrap());
    let directory = directory.unwrap();
    let look = || ioreel_replay::verdict::end_state::check(&plan, &Default::default(), &directory, &[], true).unwrap();
    assert_eq!(look().full_digest, tree.full_digest);
    fs::write(target.join("w/f"), "short").unwrap();
    assert_eq!(look().differing, 2, "{:#?}", look());
    fs::write(target.join("w/f"), [0; 100]).unwrap();
    fs::write(target.join("w/extra"), "").unwrap();
    let seen = look();
    assert!(seen.differing == 1 && seen.digest != seen.expected_digest && seen.examples[0].contains("/w/extra"));
    fs::remove_file(target.join("w/extra")).unwrap();
    fs::remove_file(target.join("w/d/hard")).unwrap();
    fs::write(target.join("w/d/hard"), [0; 100]).unwrap();
    assert_eq!(look().differing, 2, "a copy is no link: {:#?}", look());
    fs::remove_file(target.join("w/d/soft")).unwrap();
    std::os::unix::fs::symlink("g", target.join("w/d/soft")).unwrap();
    fs::remove_file(target.join("w/d/new")).unwrap();
    assert_eq!(look().differing, 4);
}

#[test]
fn each_kind_of_constraint_can_be_left_out() {
    let with = planned(draft(), OrderMode::Resource, Kinds::NONE);
    let kinds = |p: &Plan| edges(p).iter().map(|e| e.kind).collect::<std::collections::BTreeSet<_>>();
    assert!(kinds(&with).contains(&EdgeKind::Name));
    for kind in EdgeKind::ALL {
        let without = planned(draft(), OrderMode::Global, Kinds::of(&[*kind]));
        assert!(!kinds(&without).contains(kind), "{kind}");
    }
    assert!(edges(&planned(draft(), OrderMode::None, Kinds::NONE)).is_empty());
    let global = planned(draft(), OrderMode::Global, Kinds::NONE);
    assert!(kinds(&global).contains(&EdgeKind::Global));
    // In the global order, every call waits for the previous one, which is the other thread's.
    let mut waits = 0;
    global.each_step(1, |_, s, _| waits += i32::from(s.after.len > 0));
    assert!(waits >= 1000, "{waits}");
}

#[test]
fn a_lookup_that_found_nothing_stays_before_the_making() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 0..500 {
        let name = format!("f{i}");
        d.on(2, "stat", &name, -2);
        d.create(1, &name, 10 + i, 3);
        d.fd(1, "close", 3, 0);
    }
    let plan = planned(
        {
            let mut d = Draft::new();
            d.fork(1, 2, THREAD);
            d.on(2, "stat", "a", -2);
            d.create(1, "a", 1, 3);
            d
        },
        OrderMode::Resource,
        Kinds::NONE,
    );
    assert_eq!(edges(&plan).iter().map(|e| e.kind).collect::<Vec<_>>(), [EdgeKind::Absent]);
    crate::reel::replay_same(d);
}

#[test]
fn the_recorded_number_is_kept_in_flight() {
    // Four threads, of which two have a call in flight at any time.
    let mut d = Draft::new();
    for t in 2..=4 {
        d.fork(1, t, THREAD);
    }
    for i in 0..400_i64 {
        let task = i % 4 + 1;
        let o = d.on(task, "stat", "nothing", -2);
        (o.start_ns, o.dur_ns) = (100_000 + i * 10_000, 19_000);
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let c = ioreel_replay::Config { clockwork: at(Pace::Load), ..config(d.write(dir.path()), &target) };
    let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    let c = report.verdict.concurrency;
    assert!(report.verdict.faithful && report.done == 400, "{}", report.verdict.sentence);
    assert_eq!((c.original_max, c.replay_max <= 2), (2, true), "{c:?}");
    // It took 4 ms. The machine may be busy.
    assert!(report.elapsed_ns < 5_000_000_000, "{} ns", report.elapsed_ns);
}

#[test]
fn a_dry_run_issues_nothing() {
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 100, 100);
    d.fd(1, "close", 3, 0);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    for pace in [Pace::Max, Pace::Original, Pace::Scale(Factor::new(3.0).unwrap()), Pace::Think, Pace::Load] {
        let c = ioreel_replay::Config { clockwork: at(pace), dry_run: true, ..config(reel.clone(), &target) };
        let report = Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
        assert!(report.done == 3 && report.verdict.faithful, "{}", report.verdict.sentence);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }
    let _ = replay(Draft::new());
}
