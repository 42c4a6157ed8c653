//! Threads that change to other users, and back.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use crate::reel::{Draft, THREAD, replay};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn owner(dir: &Path, name: &str) -> (u32, u32) {
    let meta = fs::metadata(dir.join("t/w").join(name)).unwrap();
    (meta.uid(), meta.gid())
}

/// A call with these ids.
fn ids(d: &mut Draft, task: i64, call: &str, ids: &[i64], ret: i64) {
    let o = d.op(task, call, ret);
    o.aux = ids.first().copied();
    o.aux2 = ids.get(1).copied();
    o.flags = ids.get(2).copied();
}

fn make(d: &mut Draft, task: i64, name: &str, file: i64) {
    d.create(task, name, file, 3);
    d.fd(task, "close", 3, 0);
}

fn draft() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0).mode = Some(0o777);
    let t = d.had("/w/secret", "regular", 10);
    (t.uid, t.gid, t.mode) = (Some(0), Some(0), Some(0o600));
    d.had("/w/shared", "regular", 10).mode = Some(0o640);
    let t = d.tree.last_mut().unwrap();
    (t.uid, t.gid) = (Some(0), Some(50));
    d
}

#[test]
fn owners_and_refusals_are_those_of_the_recorded_user() {
    let mut d = draft();
    make(&mut d, 1, "roots", 1);
    // Temporarily.
    ids(&mut d, 1, "setresuid", &[-1, 1000, -1], 0);
    make(&mut d, 1, "for-now", 2);
    d.on(1, "openat", "secret", -13).flags = Some(0);
    // access(2) uses the real user id, which is root.
    d.on(1, "access", "secret", 0).mode = Some(libc::R_OK);
    ids(&mut d, 1, "setresuid", &[-1, 0, -1], 0);
    make(&mut d, 1, "again", 3);
    d.open(1, "secret", 0, 4, 3);
    d.fd(1, "close", 3, 0);
    // Only the file-system ids, as file servers do.
    ids(&mut d, 1, "setfsuid", &[1001], 0);
    make(&mut d, 1, "served", 5);
    d.on(1, "openat", "secret", -13).flags = Some(0);
    ids(&mut d, 1, "setfsuid", &[0], 1001);
    // Another process, permanently, with a supplementary group. It cannot change back.
    d.fork(1, 2, 0);
    let o = d.op(2, "setgroups", 0);
    (o.aux, o.value) = (Some(1), Some(ioreel_traces::text::from_bytes(&50_u32.to_le_bytes())));
    ids(&mut d, 2, "setgid", &[1002], 0);
    ids(&mut d, 2, "setuid", &[1002], 0);
    make(&mut d, 2, "for-good", 6);
    d.on(2, "access", "secret", -13).mode = Some(libc::R_OK);
    d.open(2, "shared", 0, 7, 3);
    d.fd(2, "close", 3, 0);
    ids(&mut d, 2, "setuid", &[0], -1);
    d.on(2, "openat", "secret", -13).flags = Some(0);
    // The program that it starts is set-user-ID.
    d.exec(2);
    (d.execs[0].uid, d.execs[0].gid) = (Some(1003), Some(1002));
    make(&mut d, 2, "by-its-file", 8);
    ids(&mut d, 2, "setreuid", &[1003, 1002], 0);
    make(&mut d, 2, "swapped", 9);
    // The first process is unchanged.
    make(&mut d, 1, "still-roots", 10);

    let (dir, report) = replay(d);
    let verdict = &report.verdict;
    assert!(verdict.faithful, "{} {:#?}", verdict.sentence, verdict.results.differences);
    if !is_root() {
        assert!(report.summary.skipped.keys().any(|why| why.contains("needs root")), "{:?}", report.summary.skipped);
        return;
    }
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    for (name, who) in [
        ("roots", (0, 0)),
        ("for-now", (1000, 0)),
        ("again", (0, 0)),
        ("served", (1001, 0)),
        ("for-good", (1002, 1002)),
        ("by-its-file", (1003, 1002)),
        ("swapped", (1002, 1002)),
        ("still-roots", (0, 0)),
    ] {
        assert_eq!(owner(dir.path(), name), who, "{name}");
    }
}

#[test]
fn threads_are_somebody_each_for_themselves() {
    let mut d = draft();
    d.fork(1, 2, THREAD);
    for i in 0..50 {
        ids(&mut d, 2, "setfsuid", &[2000 + i], if i == 0 { 0 } else { 1999 + i });
        make(&mut d, 2, &format!("theirs-{i}"), 100 + i);
        make(&mut d, 1, &format!("mine-{i}"), 200 + i);
    }
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
    if is_root() {
        for i in 0..50 {
            assert_eq!(owner(dir.path(), &format!("theirs-{i}")).0, 2000 + i);
            assert_eq!(owner(dir.path(), &format!("mine-{i}")).0, 0);
        }
    }
}

#[test]
fn hostile_ids_do_no_harm() {
    let mut d = draft();
    for call in ["setuid", "setgid", "setreuid", "setresgid", "setfsuid", "setfsgid", "setgroups"] {
        for id in [i64::MIN, -1, 0, i64::MAX, u32::MAX.into()] {
            ids(&mut d, 1, call, &[id, id, id], 0);
        }
    }
    let o = d.op(1, "setgroups", 0);
    (o.aux, o.value) = (Some(9), Some("no ids".into()));
    make(&mut d, 1, "whoever", 1);
    let (dir, _) = replay(d);
    // It only has to end, and leave nothing outside.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_slice_begins_as_whoever_the_thread_was() {
    let mut d = draft();
    ids(&mut d, 1, "setresuid", &[-1, 1000, -1], 0);
    make(&mut d, 1, "before", 1);
    let from_ns = d.now();
    make(&mut d, 1, "after", 2);
    d.on(1, "openat", "secret", -13).flags = Some(0);
    ids(&mut d, 1, "setresuid", &[-1, 0, -1], 0);
    make(&mut d, 1, "end", 3);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let slice = ioreel_replay::Slice { from_ns, to_ns: i64::MAX };
    let config = ioreel_replay::Config { slice, ..crate::reel::config(reel, &target) };
    let report =
        ioreel_replay::Replay::plan(config).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    if is_root() {
        for (name, uid) in [("before", 1000), ("after", 1000), ("end", 0)] {
            assert_eq!(owner(dir.path(), name).0, uid, "{name}");
        }
    }
}

#[test]
fn rights_that_the_reel_does_not_tell_of_change_nothing() {
    let mut d = draft();
    d.had("/w/mapped", "regular", 0).mode = Some(0o644);
    // Without the capability.
    d.on(1, "chmod", "secret", -i64::from(libc::EPERM)).mode = Some(0o666);
    // Root of a user namespace is another user here, and so are the ids that it names.
    d.fork(1, 2, 0);
    d.op(2, "unshare", 0).flags = Some(0x1000_0000);
    ids(&mut d, 2, "setuid", &[5], 0);
    let o = d.on(2, "chown", "mapped", 0);
    (o.aux, o.aux2) = (Some(7), Some(7));
    make(&mut d, 2, "made", 1);
    let (dir, report) = replay(d);
    // What cannot be repeated is named.
    assert_eq!((report.verdict.status, report.verdict.left_out.operations), (16, 2), "{}", report.verdict.sentence);
    let mode = |name: &str| fs::metadata(dir.path().join("t/w").join(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("secret"), 0o600);
    if is_root() {
        let skipped = &report.summary.skipped;
        assert_eq!(skipped.get("users of another user name space"), Some(&2), "{skipped:?}");
        assert_eq!((owner(dir.path(), "mapped"), owner(dir.path(), "made")), ((0, 0), (0, 0)));
    }
}
