//! Dependency edges: threads wait for each other because of names, files and descriptors.

use ioreel_replay::{Replay, plan::edge::OrderMode, run::pace::Pace};

use crate::reel::{Draft, THREAD, at, config, replay, replay_same};

const ENOENT: i64 = -2;

#[test]
fn a_consumer_waits_for_the_producers_rename() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 0..300 {
        let (tmp, done) = (format!("tmp-{i}"), format!("done-{i}"));
        let file = 10 + i;
        d.on(2, "stat", &done, ENOENT);
        d.create(1, &tmp, file, 3);
        d.io(1, "write", 3, 0, 1000 + i, 1000 + i);
        d.fd(1, "close", 3, 0);
        d.on(1, "rename", &tmp, 0).path2 = Some(done.as_str().into());
        d.open(2, &done, libc::O_RDONLY, file, 4);
        d.io(2, "read", 4, 0, 65536, 1000 + i);
        d.fd(2, "close", 4, 0);
        d.on(2, "unlink", &done, 0);
    }
    replay_same(d);
}

#[test]
fn overlapping_calls_are_ordered_by_their_results() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    let t = d.now();
    // Entered first and returned last, but the file was created before the other thread's lookup.
    let o = d.create(1, "f", 1, 3);
    (o.start_ns, o.dur_ns) = (t, 100_000);
    let o = d.open(2, "f", libc::O_RDONLY, 1, 4);
    (o.start_ns, o.dur_ns) = (t + 10_000, 1_000);
    d.pause(200_000);
    // The reverse: the lookup takes longer, and found nothing.
    let t = d.now();
    let o = d.create(1, "g", 2, 5);
    (o.start_ns, o.dur_ns) = (t, 10_000);
    let o = d.on(2, "stat", "g", ENOENT);
    (o.start_ns, o.dur_ns) = (t - 5_000, 100_000);
    d.pause(200_000);
    // Two writes through one descriptor: positions show which came first.
    let t = d.now();
    let o = d.io(1, "write", 3, 0, 10, 10);
    (o.start_ns, o.dur_ns) = (t, 100_000);
    let o = d.io(2, "write", 3, 10, 5, 5);
    (o.start_ns, o.dur_ns) = (t + 1_000, 10_000);
    d.pause(200_000);
    d.io(2, "pread64", 4, 0, 100, 15);
    replay_same(d);
}

#[test]
fn a_number_is_free_before_it_is_given_out_again() {
    // If the file has lost its name, no name is required to exist.
    for (dup, nameless) in [(false, false), (true, false), (false, true)] {
        let mut d = Draft::new();
        d.fork(1, 2, THREAD);
        d.create(1, "old", 1, 3);
        d.create(2, "new", 2, 4);
        if nameless {
            d.on(1, "unlink", "old", 0);
        }
        // Entered first and returned last, but the number was assigned again meanwhile.
        let t = d.now();
        let o = d.fd(1, "close", 3, 0);
        (o.start_ns, o.dur_ns) = (t, 100_000);
        let o = if dup { d.fd(2, "dup", 4, 3) } else { d.open(2, "new", libc::O_WRONLY, 2, 3) };
        (o.start_ns, o.dur_ns) = (t + 10_000, 1_000);
        d.pause(200_000);
        d.io(2, "write", 3, 0, 2850, 2850);
        d.fd(2, "close", 3, 0);
        let target = replay_same(d);
        assert_eq!(std::fs::metadata(target.path().join("t/w/new")).unwrap().len(), 2850);
    }
}

#[test]
fn what_is_seen_of_a_call_in_flight_had_happened() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for (i, seen) in (0..).zip(["stat", "unlink", "rename", "chmod", "truncate", "link"]) {
        let (tmp, done) = (format!("tmp-{i}"), format!("done-{i}"));
        d.create(1, &tmp, 10 + i, 3);
        d.fd(1, "close", 3, 0);
        let t = d.now();
        let o = d.on(1, "rename", &tmp, 0);
        (o.path2, o.start_ns, o.dur_ns) = (Some(done.as_str().into()), t, 100_000);
        for (k, (op, ret)) in (0..).zip([("stat", ENOENT), ("access", ENOENT), (seen, 0)]) {
            let o = d.on(2, op, &done, ret);
            (o.start_ns, o.dur_ns) = (t + 1_000 * (k + 1), 500);
            match op {
                "rename" | "link" => o.path2 = Some(format!("{done}-too").into()),
                "chmod" => o.mode = Some(0o600),
                "truncate" => o.len_bytes = Some(0),
                _ => {}
            }
        }
        d.pause(200_000);
    }
    let dir = replay_same(d);
    let mut left: Vec<_> = std::fs::read_dir(dir.path().join("t/w")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["done-0", "done-2-too", "done-3", "done-4", "done-5", "done-5-too"]);
}

#[test]
fn many_threads_on_one_directory() {
    let mut d = Draft::new();
    for t in 2..10 {
        d.fork(1, t, THREAD);
    }
    for round in 0..100 {
        for t in 2..10 {
            let (a, b) = (format!("d{round}-{t}"), format!("d{round}-{}", t - 1));
            d.on(t, "mkdir", &a, 0).mode = Some(0o777);
            d.create(t, &format!("{a}/x"), 1000 * round + t, 100 + t);
            d.fd(t, "close", 100 + t as i32, 0);
            if t > 2 {
                // Empties and removes the directory of another thread.
                d.on(t, "rmdir", &b, -39);
                d.on(t, "unlink", &format!("{b}/x"), 0);
                d.on(t, "rmdir", &b, 0);
            }
        }
    }
    let dir = replay_same(d);
    assert_eq!(std::fs::read_dir(dir.path().join("t/w")).unwrap().count(), 100);
}

#[test]
fn children_run_one_after_the_other_when_the_parent_waited() {
    let mut d = Draft::new();
    for child in 2..40 {
        d.fork(1, child, 0);
        d.create(child, &format!("f{child}"), child, 3);
        d.exit(child);
        d.on(1, "unlink", &format!("f{child}"), 0);
    }
    replay_same(d);
}

#[test]
fn original_pace_is_never_early_and_ends_on_time() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 0..200 {
        d.pause(300_000);
        d.on(1 + i % 2, "stat", "nothing", ENOENT);
    }
    let last_ns = d.now() - 10_000;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let original = ioreel_replay::Config { clockwork: at(Pace::Original), ..config(reel, &target) };
    let report = Replay::plan(original).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert_eq!((report.verdict.timing.early, report.verdict.results.classes.wrong, report.done), (0, 0, 200));
    assert!(report.elapsed_ns >= last_ns, "{} < {last_ns}", report.elapsed_ns);
}

#[test]
fn thread_order_still_waits_for_creates() {
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    for i in 0..200 {
        d.create(1, &format!("f{i}"), i, 3);
        d.fd(1, "close", 3, 0);
        d.open(2, &format!("f{i}"), libc::O_RDONLY, i, 4);
        d.fd(2, "close", 4, 0);
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    let by_thread = ioreel_replay::Config { order: OrderMode::Thread, ..config(reel, &target) };
    let report = Replay::plan(by_thread).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
}

#[test]
fn a_number_may_be_anothers_while_its_close_is_in_flight() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, THREAD);
    d.create(1, "f", 1, 3);
    d.io(1, "pwrite64", 3, 0, 100, 100);
    d.fd(1, "close", 3, 0).dur_ns = 60_000;
    // Not a file of a file system.
    d.op(2, "memfd_create", 3).file = Some(50);
    d.know(50, "regular");
    let o = d.fd(2, "ftruncate", 3, -1);
    (o.len_bytes, o.file) = (Some(5), Some(50));
    let (dir, report) = replay(d);
    assert!(report.verdict.results.differences.is_empty(), "{:#?}", report.verdict.results.differences);
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
    assert_eq!(std::fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 100);
}

#[test]
fn a_number_may_be_a_pipes_while_its_close_is_in_flight() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, THREAD);
    d.create(1, "from", 1, 3);
    d.io(1, "write", 3, 0, 100, 100);
    d.create(1, "old", 2, 4);
    d.know(50, "fifo");
    // The pipe gets the number of the descriptor being closed: splice from a file needs a pipe.
    d.fd(1, "close", 4, 0).dur_ns = 60_000;
    let o = d.io(2, "splice", 3, 0, 100, 100);
    (o.fd2, o.file, o.file2) = (Some(4), Some(1), Some(50));
    let (_, report) = replay(d);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
}

/// Two threads that synchronize by unrecorded means: what each finds depends on what the other has done.
fn by_turns(steps: impl Fn(&mut Draft, usize)) {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, THREAD);
    for i in 0..30 {
        steps(&mut d, i);
    }
    replay_same(d);
}

#[test]
fn what_a_link_led_to_waits_for_the_link() {
    by_turns(|d, i| {
        let at = |name: &str| format!("{name}{i}");
        for dir in ["a", "b"] {
            d.on(1, "mkdir", &at(dir), 0).mode = Some(0o755);
        }
        d.on(1, "symlink", &at("a"), 0).path2 = Some(at("l").as_str().into());
        d.create(2, &format!("l{i}/x"), 10 + i as i64, 5);
        d.fd(2, "close", 5, 0);
        d.on(1, "symlink", &at("b"), 0).path2 = Some(at("n").as_str().into());
        d.on(1, "rename", &at("n"), 0).path2 = Some(at("l").as_str().into());
        d.on(2, "stat", &format!("l{i}/x"), -2);
        d.on(1, "unlink", &at("l"), 0);
        d.on(1, "symlink", &at("a"), 0).path2 = Some(at("l").as_str().into());
        d.on(2, "stat", &format!("l{i}/x"), 0).mode = Some(0o100644);
    });
}

#[test]
fn appending_is_asked_for_before_and_after_writes() {
    by_turns(|d, i| {
        let (name, file) = (format!("f{i}"), 10 + i as i64);
        d.create(1, &name, file, 5).flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR));
        d.io(1, "write", 5, 0, 100, 100);
        for (append, at) in [(libc::O_APPEND, 100), (0, 0)] {
            let o = d.fd(2, "fcntl", 5, 0);
            (o.flags, o.aux) = (Some(4), Some(append.into()));
            let o = d.fd(1, "lseek", 5, 0);
            (o.aux, o.flags) = (Some(0), Some(0));
            d.io(1, "write", 5, at, 10, 10);
        }
        d.fd(2, "close", 5, 0);
        let o = d.on(1, "stat", &name, 0);
        (o.mode, o.len_bytes) = (Some(0o100644), Some(110));
    });
}

#[test]
fn permission_is_asked_for_before_and_after_it_is_given() {
    by_turns(|d, i| {
        let name = format!("f{i}");
        d.create(1, &name, 10 + i as i64, 5);
        d.on(2, "access", &name, -i64::from(libc::EACCES)).mode = Some(libc::X_OK);
        d.on(1, "chmod", &name, 0).mode = Some(0o755);
        d.on(2, "access", &name, 0).mode = Some(libc::X_OK);
        d.on(1, "chmod", &name, 0).mode = Some(0o644);
        d.on(2, "access", &name, -i64::from(libc::EACCES)).mode = Some(libc::X_OK);
        d.fd(1, "close", 5, 0);
    });
}

#[test]
fn what_fails_in_a_directory_that_is_gone_waits_until_it_is() {
    for replaced in [false, true] {
        by_turns(|d, i| {
            let (dir, other, file) = (format!("d{i}"), format!("o{i}"), 10 + i as i64);
            d.on(1, "mkdir", &dir, 0).mode = Some(0o755);
            d.on(1, "mkdir", &other, 0).mode = Some(0o755);
            d.know(file, "directory");
            d.open(2, &dir, libc::O_RDONLY | libc::O_DIRECTORY, file, 6);
            if replaced {
                d.on(1, "rename", &other, 0).path2 = Some(dir.as_str().into());
            } else {
                d.on(1, "rmdir", &dir, 0);
            }
            for op in ["mkdirat", "openat", "unlinkat"] {
                let o = d.on(2, op, "x", ENOENT);
                o.dirfd = Some(6);
                o.flags = (op == "openat").then_some(i64::from(libc::O_CREAT | libc::O_RDWR));
            }
            d.fd(2, "close", 6, 0);
        });
    }
}

#[test]
fn others_search_a_directory_once_they_may() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, 0);
    let nobody = |o: &mut ioreel_traces::rows::Op| (o.aux, o.aux2, o.flags) = (Some(65534), Some(65534), Some(65534));
    nobody(d.op(2, "setresuid", 0));
    for i in 0..30 {
        let (dir, file) = (format!("d{i}"), format!("d{i}/f"));
        d.on(1, "mkdir", &dir, 0).mode = Some(0o755);
        d.create(1, &file, 10 + i, 5);
        d.fd(1, "close", 5, 0);
        d.on(1, "chmod", &dir, 0).mode = Some(0o700);
        d.on(2, "stat", &file, -i64::from(libc::EACCES));
        d.on(1, "chmod", &dir, 0).mode = Some(0o711);
        d.on(2, "stat", &file, 0).mode = Some(0o100644);
        d.on(1, "chmod", &file, 0).mode = Some(0o600);
        d.on(2, "openat", &file, -i64::from(libc::EACCES)).flags = Some(0);
        d.on(1, "chmod", &file, 0).mode = Some(0o644);
        d.open(2, &file, libc::O_RDONLY, 10 + i, 5);
        d.fd(2, "close", 5, 0);
    }
    replay_same(d);
}

#[test]
fn holes_are_looked_for_before_and_after_they_are_filled() {
    const ENXIO: i64 = -6;
    by_turns(|d, i| {
        d.create(1, &format!("f{i}"), 10 + i as i64, 5).flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR));
        d.fd(1, "ftruncate", 5, 0).len_bytes = Some(1 << 20);
        for (written, found) in [(false, ENXIO), (true, 0)] {
            if written {
                d.io(1, "pwrite64", 5, 1 << 19, 4096, 4096);
            }
            let o = d.fd(2, "lseek", 5, found.min(1 << 19));
            (o.aux, o.flags) = (Some(0), Some(i64::from(libc::SEEK_DATA)));
        }
        d.fd(1, "ftruncate", 5, 0).len_bytes = Some(0);
        let o = d.fd(2, "lseek", 5, ENXIO);
        (o.aux, o.flags) = (Some(0), Some(i64::from(libc::SEEK_DATA)));
        d.fd(1, "close", 5, 0);
    });
}
