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

/// A row of a task in another user name space.
fn mapped(d: &mut Draft, call: &str, given: [i64; 2], value: &str) {
    let o = d.op(2, call, 0);
    (o.aux, o.aux2, o.value) = (Some(given[0]), Some(given[1]), Some(value.into()));
}

fn chown_mapped(d: &mut Draft, name: &str, given: [i64; 2], ret: i64, value: &str) {
    let o = d.on(2, "chown", name, ret);
    (o.aux, o.aux2, o.value) = (Some(given[0]), Some(given[1]), Some(value.into()));
}

/// Root of the name space is user 100000. Ids from 0 on are those from 100000 on.
fn in_a_user_name_space() -> Draft {
    let mut d = draft();
    let t = d.had("/w/theirs", "regular", 10);
    (t.uid, t.gid, t.mode) = (Some(100_007), Some(100_007), Some(0o600));
    d.fork(1, 2, 0x1000_0000);
    mapped(&mut d, "setgid", [0, 0], "0,0,0,0,100000,100000,100000,100000,0x1ffffffffff");
    let who = "100000,100000,100000,100000,100000,100000,100000,100000";
    mapped(&mut d, "setuid", [0, 0], &format!("{who},0x1ffffffffff"));
    d.exec(2);
    let exec = d.execs.last_mut().unwrap();
    (exec.uid, exec.gid, exec.capabilities) = (Some(100_000), Some(100_000), Some(0x1ff_ffff_ffff));
    d
}

#[test]
fn owners_set_in_a_user_name_space_are_those_of_the_initial_one() {
    let mut d = in_a_user_name_space();
    make(&mut d, 2, "made", 1);
    make(&mut d, 2, "given", 2);
    chown_mapped(&mut d, "given", [5, -1], 0, "100005,-1");
    chown_mapped(&mut d, "given", [-1, 6], 0, "-1,100006");
    // An id that the name space has no counterpart of.
    chown_mapped(&mut d, "given", [70_000, 6], -i64::from(libc::EINVAL), "-1,100006");
    // The rights of its root hold for files of its ids.
    d.open(2, "theirs", libc::O_RDWR, 3, 3);
    d.fd(2, "close", 3, 0);
    d.on(2, "openat", "secret", -i64::from(libc::EACCES)).flags = Some(0);
    chown_mapped(&mut d, "theirs", [0, 0], 0, "100000,100000");
    d.on(2, "mkdir", "d", 0).mode = Some(0o755);
    chown_mapped(&mut d, "d", [-1, 50], 0, "-1,100050");
    d.on(2, "chmod", "d", 0).mode = Some(0o2755);
    // A user of it has none.
    mapped(&mut d, "setresuid", [9, 9], "100009,100009,100009,100009,100000,100000,100000,100000,0x0");
    d.on(2, "mkdir", "d/no", -i64::from(libc::EACCES)).mode = Some(0o755);
    d.on(2, "openat", "theirs", -i64::from(libc::EACCES)).flags = Some(0);
    make(&mut d, 2, "of-nine", 5);
    // Threads of the initial one are as before.
    make(&mut d, 1, "outside", 6);
    d.open(1, "secret", 0, 7, 3);
    let (dir, report) = replay(d);
    let verdict = &report.verdict;
    if !is_root() {
        return;
    }
    assert!(verdict.faithful, "{} {:#?}", verdict.sentence, verdict.results.differences);
    assert_eq!(
        report.summary.skipped.get("users of another user name space"),
        Some(&1),
        "{:?}",
        report.summary.skipped
    );
    for (name, who) in [
        ("made", (100_000, 100_000)),
        ("given", (100_005, 100_006)),
        ("theirs", (100_000, 100_000)),
        ("d", (100_000, 100_050)),
        ("of-nine", (100_009, 100_000)),
        ("outside", (0, 0)),
    ] {
        assert_eq!(owner(dir.path(), name), who, "{name}");
    }
    assert_eq!(fs::metadata(dir.path().join("t/w/d")).unwrap().mode() & 0o7777, 0o2755);
}

#[test]
fn ids_that_are_not_translated_are_left_out_and_named() {
    let mut d = in_a_user_name_space();
    make(&mut d, 2, "made", 1);
    chown_mapped(&mut d, "made", [5, 5], 0, "-1,-1");
    mapped(&mut d, "setuid", [5, 0], "7f3a");
    make(&mut d, 2, "whose", 2);
    let (dir, report) = replay(d);
    assert_eq!(report.verdict.left_out.operations, 2, "{:?}", report.verdict.left_out);
    assert_eq!(report.verdict.status, 16, "{}", report.verdict.sentence);
    if is_root() {
        assert_eq!(owner(dir.path(), "made"), (100_000, 100_000));
    }
}

/// Root of the initial name space keeps set-ID bits when it writes, root of another one does not.
#[test]
fn a_write_in_a_user_name_space_takes_set_id_bits_away() {
    let mut d = in_a_user_name_space();
    d.create(2, "f", 1, 3);
    d.fd(2, "fchmod", 3, 0).mode = Some(0o4755);
    d.io(2, "pwrite64", 3, 0, 10, 10).file = Some(1);
    d.fd(2, "close", 3, 0);
    let (dir, report) = crate::reel::replay_as(d, |config| ioreel_replay::Config { set_ids: true, ..config });
    if is_root() {
        assert_eq!(report.verdict.status, 0, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
        assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().mode() & 0o7777, 0o755);
    }
}
