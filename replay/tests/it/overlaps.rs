//! Overlapping calls of several processes on one name: results show the order in which they took effect.

use std::fs;

use crate::reel::{Draft, replay, replay_same};

const ENOENT: i64 = -2;
const EEXIST: i64 = -17;
/// Long enough to overlap all calls that follow.
const LONG_NS: i64 = 100_000;

/// Four processes.
fn processes() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for child in 2..=4 {
        d.fork(1, child, 0);
    }
    d
}

/// An exclusive open, which creates the file, or fails because it exists.
fn exclusive(d: &mut Draft, task: i64, path: &str, file: Option<i64>) -> i64 {
    let flags = Some(i64::from(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR));
    let o = match file {
        Some(file) => d.create(task, path, file, 3),
        None => d.on(task, "openat", path, EEXIST),
    };
    o.flags = flags;
    o.start_ns
}

#[test]
fn which_file_was_opened_tells_when_the_name_was_given_to_another() {
    let mut d = processes();
    for i in 0..20 {
        let (old, new) = (10 + 2 * i, 11 + 2 * i);
        let name = |what: &str| format!("{what}-{i}");
        for (file, what, len) in [(old, "cfg", 100), (new, "tmp", 300)] {
            d.create(1, &name(what), file, 3);
            d.io(1, "write", 3, 0, len, len);
            d.fd(1, "close", 3, 0);
        }
        // The file is opened during the rename that replaces it, before and after the replacement.
        let o = d.on(1, "rename", &name("tmp"), 0);
        (o.path2, o.dur_ns) = (Some(name("cfg").as_str().into()), LONG_NS);
        let at = o.start_ns;
        for (k, (file, len)) in [(old, 100), (new, 300), (new, 300)].into_iter().enumerate() {
            let o = d.open(2, &name("cfg"), libc::O_RDONLY, file, 3);
            (o.start_ns, o.dur_ns) = (at + 5_000 * (1 + k as i64), 500);
            let o = d.io(2, "read", 3, 0, 1000, len);
            (o.start_ns, o.dur_ns) = (at + 5_000 * (1 + k as i64) + 1_000, 500);
            let o = d.fd(2, "close", 3, 0);
            (o.start_ns, o.dur_ns) = (at + 5_000 * (1 + k as i64) + 2_000, 500);
        }
        d.pause(2 * LONG_NS);
        // An open that found the old file, which is replaced before the open returns.
        d.create(1, &name("tmp"), 1000 + i, 3);
        d.fd(1, "close", 3, 0);
        let o = d.open(2, &name("cfg"), libc::O_RDONLY, new, 3);
        o.dur_ns = LONG_NS;
        let o = d.on(1, "rename", &name("tmp"), 0);
        o.path2 = Some(name("cfg").as_str().into());
        d.pause(2 * LONG_NS);
        d.io(2, "read", 3, 0, 1000, 300);
        d.fd(2, "close", 3, 0);
    }
    replay_same(d);
}

#[test]
fn a_lock_file_has_one_maker_at_a_time() {
    let mut d = processes();
    for i in 0..20 {
        let file = 10 + 10 * i;
        d.on(4, "unlink", "lock", ENOENT);
        // Two processes create it, and both creations return before the two removals: one removal took effect in
        // between.
        let at = exclusive(&mut d, 4, "lock", Some(file));
        d.fd(4, "close", 3, 0);
        let o = d.on(2, "unlink", "lock", 0);
        (o.start_ns, o.dur_ns) = (at + 20_000, 5 * LONG_NS);
        let o = d.on(3, "unlink", "lock", 0);
        (o.start_ns, o.dur_ns) = (at + 21_000, 4 * LONG_NS);
        let o = d.on(1, "openat", "lock", EEXIST);
        (o.flags, o.start_ns) = (Some(i64::from(libc::O_CREAT | libc::O_EXCL)), at + 22_000);
        let o = d.create(4, "lock", file + 1, 3);
        (o.flags, o.start_ns) = (Some(i64::from(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR)), at + 30_000);
        d.io(4, "write", 3, 0, 10, 10).start_ns = at + 40_000;
        d.fd(4, "close", 3, 0).start_ns = at + 50_000;
        d.pause(8 * LONG_NS);
        // Refused because of a creation in flight, which returns later.
        let o = d.create(2, "lock", file + 2, 3);
        (o.flags, o.dur_ns) = (Some(i64::from(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR)), LONG_NS);
        exclusive(&mut d, 3, "lock", None);
        d.pause(2 * LONG_NS);
        d.fd(2, "close", 3, 0);
        d.on(2, "unlink", "lock", 0);
    }
    replay_same(d);
}

#[test]
fn names_moved_away_are_free_for_what_must_not_replace() {
    let mut d = processes();
    for i in 0..20 {
        for (task, name, file) in [(1, "a", 10 + i), (1, "b", 100 + i)] {
            d.create(task, name, file, 3);
            d.fd(task, "close", 3, 0);
        }
        // The removal returns after the rename that requires it.
        d.on(2, "unlink", "b", 0).dur_ns = LONG_NS;
        let o = d.on(3, "renameat2", "a", 0);
        (o.path2, o.flags) = (Some("b".into()), Some(i64::from(libc::RENAME_NOREPLACE)));
        d.on(3, "stat", "a", ENOENT);
        d.pause(2 * LONG_NS);
        d.on(3, "unlink", "b", 0);
    }
    replay_same(d);
}

#[test]
fn a_link_that_lost_its_file_on_the_way_is_left_out() {
    let mut d = processes();
    d.create(1, "a", 1, 3);
    d.fd(1, "close", 3, 0);
    d.create(1, "b", 2, 3);
    d.fd(1, "close", 3, 0);
    // The file that it looked up is replaced before the link is made, and has no name any more.
    let o = d.on(2, "link", "a", ENOENT);
    (o.path2, o.dur_ns) = (Some("c".into()), LONG_NS);
    d.on(3, "rename", "b", 0).path2 = Some("a".into());
    d.pause(2 * LONG_NS);
    d.on(3, "stat", "c", ENOENT);
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
    assert_eq!(fs::read_dir(dir.path().join("t/w")).unwrap().count(), 1);
}

/// Readers use `top` while it is replaced: their results show when it was.
fn switched(first: impl Fn(&mut Draft), switch: impl Fn(&mut Draft) -> i64) {
    let mut d = processes();
    for (dir, file, len) in [("old", 10, 100), ("new", 11, 300)] {
        d.on(1, "mkdir", dir, 0).mode = Some(0o755);
        d.create(1, &format!("{dir}/f"), file, 3);
        d.io(1, "write", 3, 0, len, len);
        d.fd(1, "close", 3, 0);
    }
    first(&mut d);
    // Entered before and returned after the replacement, but found the old file.
    let o = d.open(3, "top/f", libc::O_RDONLY, 10, 3);
    o.dur_ns = LONG_NS;
    let at = switch(&mut d);
    for (k, (file, len)) in [(10, 100), (11, 300), (11, 300)].into_iter().enumerate() {
        let begin = at + 5_000 * (1 + k as i64);
        let o = d.open(2, "top/f", libc::O_RDONLY, file, 3);
        (o.start_ns, o.dur_ns) = (begin, 500);
        let o = d.io(2, "read", 3, 0, 1000, len);
        (o.start_ns, o.dur_ns) = (begin + 1_000, 500);
        let o = d.fd(2, "close", 3, 0);
        (o.start_ns, o.dur_ns) = (begin + 2_000, 500);
    }
    d.pause(2 * LONG_NS);
    d.io(3, "read", 3, 0, 1000, 100);
    replay_same(d);
}

#[test]
fn which_file_a_link_led_to_tells_when_it_was_switched() {
    let link = |d: &mut Draft, to: &str, name: &str| d.on(1, "symlink", to, 0).path2 = Some(name.into());
    switched(
        |d| {
            link(d, "old", "top");
            link(d, "new", "top.tmp");
        },
        |d| {
            let o = d.on(1, "rename", "top.tmp", 0);
            (o.path2, o.dur_ns) = (Some("top".into()), LONG_NS);
            o.start_ns
        },
    );
}

#[test]
fn which_file_was_in_a_directory_tells_when_that_was_exchanged() {
    switched(
        |d| d.on(1, "rename", "old", 0).path2 = Some("top".into()),
        |d| {
            let o = d.on(1, "renameat2", "new", 0);
            (o.path2, o.flags) = (Some("top".into()), Some(i64::from(libc::RENAME_EXCHANGE)));
            o.dur_ns = LONG_NS;
            o.start_ns
        },
    );
}

#[test]
fn what_was_not_in_a_directory_tells_when_another_took_its_place() {
    let mut d = processes();
    for i in 0..20 {
        d.on(1, "mkdir", "top", 0).mode = Some(0o755);
        d.on(1, "mkdir", "next", 0).mode = Some(0o755);
        d.create(1, "next/f", 10 + i, 3);
        d.fd(1, "close", 3, 0);
        d.on(1, "rename", "top", 0).path2 = Some("gone".into());
        let o = d.on(2, "openat", "top/f", ENOENT);
        (o.flags, o.dur_ns) = (Some(0), LONG_NS);
        d.on(1, "rename", "next", 0).path2 = Some("top".into());
        d.pause(2 * LONG_NS);
        d.on(1, "unlink", "top/f", 0);
        d.on(1, "rmdir", "top", 0);
        d.on(1, "rmdir", "gone", 0);
    }
    replay_same(d);
}
