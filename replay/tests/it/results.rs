//! Reports, refusals, recorded differences and the result reel.

use std::fs;

use ioreel_replay::{Config, Replay, ReplayError};
use ioreel_traces::{Reel, rows::Op};

use crate::reel::{Draft, config, replay};

#[test]
fn the_result_is_a_reel_joined_to_the_original() {
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 100, 100);
    d.on(1, "stat", "/proc/x", -2);
    d.fd(1, "close", 3, 0);
    let dir = tempfile::tempdir().unwrap();
    let (target, result) = (dir.path().join("t"), dir.path().join("r.reel"));
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let c = Config { result: Some(result.clone()), ..config(reel.clone(), &target) };
    Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    let checked = ioreel_traces::validate::validate(&result, false).unwrap();
    assert!(checked.valid, "{checked:?}");
    let original = Reel::open(&reel).unwrap().read::<Op>().unwrap();
    let replayed = Reel::open(&result).unwrap();
    let ops = replayed.read::<Op>().unwrap();
    assert_eq!(ops.iter().map(|o| &*o.op).collect::<Vec<_>>(), ["openat", "write", "close", "syncfs"]);
    for o in &ops[..3] {
        let from = original.iter().find(|x| Some(x.op_id) == o.orig_op_id).unwrap();
        assert_eq!((&from.op, &from.path, from.len_bytes), (&o.op, &o.path, o.len_bytes));
        assert!(o.due_ns.is_some() && o.source == *"replay");
    }
    let made = replayed.manifest.replay.unwrap();
    assert_eq!((made.done, made.differing, made.skipped.values().sum::<i64>()), (3, 0, 1));
}

#[test]
fn differences_are_told_by_call_and_errno() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/f", "regular", 10);
    d.on(1, "rmdir", "f", -39);
    d.on(1, "mkdir", "f", -20).mode = Some(0o777);
    let (_, report) = replay(d);
    let told: Vec<_> = report
        .verdict
        .results
        .differences
        .iter()
        .map(|d| (d.op.as_str(), d.recorded.as_str(), d.replayed.as_str(), d.count))
        .collect();
    assert_eq!(report.verdict.results.classes.wrong, 2);
    for want in [("rmdir", "ENOTEMPTY", "ENOTDIR", 1), ("mkdir", "ENOTDIR", "EEXIST", 1)] {
        assert!(told.contains(&want), "{told:?}");
    }
}

#[test]
fn a_target_that_is_not_empty_is_left_alone() {
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    fs::create_dir(target.join("lost+found")).unwrap();
    fs::write(target.join("mine"), "precious").unwrap();
    let reel = d.write(dir.path());
    let refused = Replay::plan(config(reel.clone(), &target)).unwrap_err();
    assert!(matches!(refused, ReplayError::NotEmpty { .. }) && refused.to_string().contains("--force"));
    let forced = Config { force: true, ..config(reel.clone(), &target) };
    assert_eq!(
        Replay::plan(forced)
            .unwrap()
            .run(ioreel_replay::session::watch::Unwatched, |_| ())
            .unwrap()
            .verdict
            .results
            .classes
            .wrong,
        0
    );
    assert_eq!(fs::read_to_string(target.join("mine")).unwrap(), "precious");
    let missing = Replay::plan(config(reel.clone(), &dir.path().join("none"))).unwrap_err();
    assert!(matches!(missing, ReplayError::Target { .. }), "{missing}");
    let no_dir = Replay::plan(config(reel, &target.join("mine"))).unwrap_err();
    assert!(matches!(no_dir, ReplayError::Target { .. }), "{no_dir}");
}

#[test]
fn too_little_room_is_said_before_anything_is_written() {
    for big in ["fallocate", "tree"] {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        if big == "tree" {
            d.had("/w/huge", "regular", 1 << 55);
        }
        d.create(1, "f", 1, 3);
        if big == "fallocate" {
            let o = d.fd(1, "fallocate", 3, 0);
            (o.mode, o.offset_bytes, o.len_bytes) = (Some(0), Some(0), Some(1 << 55));
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        let refused = Replay::plan(config(d.write(dir.path()), &target)).unwrap_err();
        assert!(matches!(refused, ReplayError::NoRoom { .. }), "{refused}");
        assert!(refused.to_string().contains("MiB") && !refused.to_string().contains('\n'));
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }
}

#[test]
fn lengths_beyond_all_bounds_are_too_much_rather_than_an_overflow() {
    let mut d = Draft::new();
    for name in ["a", "b", "c"] {
        d.had(&format!("/w/{name}"), "regular", i64::MAX);
    }
    d.open(1, "a", libc::O_RDWR, 1, 3);
    d.on(1, "unlink", "a", 0);
    d.fd(1, "close", 3, 0);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let refused = Replay::plan(config(d.write(dir.path()), &target)).unwrap_err();
    assert!(matches!(refused, ReplayError::NoRoom { .. }), "{refused}");
}

#[test]
fn a_target_may_be_a_link_to_a_directory() {
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("t"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink("t", &link).unwrap();
    let replay = Replay::plan(config(d.write(dir.path()), &link)).unwrap();
    assert_eq!(replay.run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap().verdict.results.classes.wrong, 0);
    assert!(real.join("w/f").is_file());
}

#[test]
fn a_recorded_user_meets_the_same_refusals() {
    let mut d = Draft::new();
    (d.tasks[0].uid, d.tasks[0].gid) = (Some(1234), Some(1234));
    let t = d.had("/w", "directory", 0);
    (t.uid, t.gid) = (Some(1234), Some(1234));
    let t = d.had("/w/secret", "regular", 10);
    (t.uid, t.gid, t.mode) = (Some(0), Some(0), Some(0o600));
    d.on(1, "openat", "secret", -13).flags = Some(0);
    d.create(1, "own", 1, 3);
    d.on(1, "chown", "own", -1).aux = Some(0);
    let (dir, report) = replay(d);
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
    use std::os::unix::fs::MetadataExt;
    // Without root, everything belongs to the user of the replay.
    if rustix::process::geteuid().is_root() {
        assert_eq!(fs::metadata(dir.path().join("t/w/own")).unwrap().uid(), 1234);
    }
}

#[test]
fn a_reel_that_was_not_closed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open.reel");
    let manifest = ioreel_traces::Manifest::default();
    let manifest = ioreel_traces::Manifest { format: "1.0".into(), ..manifest };
    let writer = ioreel_traces::ReelWriter::create(&open, &manifest, Default::default()).unwrap();
    let refused = Replay::plan(config(open, dir.path())).unwrap_err();
    assert!(refused.to_string().contains("--repair"), "{refused}");
    drop(writer);
}

#[test]
fn a_tree_prepared_before_is_taken_as_it_is() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/f", "regular", 3000);
    d.open(1, "f", libc::O_RDWR, 1, 3);
    d.io(1, "read", 3, 0, 4096, 3000);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let c = config(d.write(dir.path()), &target);
    assert!(Replay::plan(c.clone()).unwrap().prepare(|_| ()).unwrap().warnings.is_empty());
    let made = |name: &str| fs::metadata(target.join(name)).unwrap().modified().unwrap();
    let before = made("w/f");
    assert_eq!(fs::metadata(target.join("w/f")).unwrap().len(), 3000);
    let again = Config { skip_prepare: true, ..c };
    let report = Replay::plan(again).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful && report.summary.prepare_items == 0, "{}", report.verdict.sentence);
    assert_eq!(made("w/f"), before);
}

#[test]
fn more_than_was_allowed_is_refused_before_anything_is_written() {
    for big in ["tree", "written"] {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        d.had("/w/f", "regular", if big == "tree" { 2 << 20 } else { 0 });
        d.open(1, "f", libc::O_RDWR, 1, 3);
        d.io(1, "write", 3, 0, 2 << 20, 2 << 20);
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        let c = Config { max_bytes: Some(1 << 20), ..config(d.write(dir.path()), &target) };
        let refused = Replay::plan(c.clone()).unwrap_err();
        assert!(matches!(refused, ReplayError::TooMuch { .. }) && refused.to_string().contains("--max-bytes"));
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        assert!(Replay::plan(Config { max_bytes: Some(8 << 20), ..c }).is_ok());
    }
}

#[test]
fn alignment_is_the_file_systems_own_matter() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/f", "regular", 8192);
    d.open(1, "f", libc::O_RDWR | libc::O_DIRECT, 1, 3);
    // Refused in the recording, so not issued here.
    d.io(1, "pread64", 3, 1, 100, -22);
    d.io(1, "pwrite64", 3, 1, 100, -22);
    let o = d.on(1, "openat", ".", 4);
    (o.flags, o.aux, o.ofd) = (Some(libc::O_DIRECTORY.into()), Some(0), Some(1));
    let o = d.fd(1, "lseek", 4, -6);
    (o.aux, o.flags) = (Some(0), Some(libc::SEEK_HOLE.into()));
    let (_, report) = replay(d);
    let c = report.verdict.results.classes;
    assert_eq!((c.wrong, c.unsupported), (0, 0), "{:#?}", report.verdict.results.differences);
    assert_eq!(report.summary.skipped.values().sum::<i64>(), 3, "{:?}", report.summary.skipped);
}

/// Times that no clock shows.
#[test]
fn an_operation_that_never_ends_ends_the_reel() {
    for at_the_end in [true, false] {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        d.on(1, "mkdir", "a", 0).mode = Some(0o755);
        d.on(1, "mkdir", "b", 0).mode = Some(0o755);
        let o = &mut d.ops[usize::from(at_the_end)];
        (o.start_ns, o.dur_ns) = if at_the_end { (i64::MAX, 0) } else { (o.start_ns, i64::MAX) };
        replay(d);
    }
}

#[test]
fn nothing_is_put_into_the_reel_that_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    let reel = d.write(dir.path());
    let inside = reel.join("inside");
    fs::create_dir(&inside).unwrap();
    let refusals = [
        ("-o", Config { result: Some(reel.join("out.reel")), ..config(reel.clone(), &target) }),
        ("--target", Config { force: true, ..config(reel.clone(), &reel) }),
        ("--target", config(reel.clone(), &inside)),
        ("--map", Config { maps: vec![("/w".into(), inside.clone())], ..config(reel.clone(), &target) }),
    ];
    for (option, config) in refusals {
        let refused = Replay::plan(config).unwrap_err();
        assert!(matches!(refused, ReplayError::InReel { what, .. } if what == option), "{refused}");
    }
    assert!(fs::read_dir(&inside).unwrap().next().is_none() && fs::read_dir(&target).unwrap().next().is_none());
}
