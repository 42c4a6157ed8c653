//! io_uring and AIO requests.

use std::fs;

use ioreel_traces::rows::Op;

use crate::reel::{Draft, THREAD, at, config, replay, replay_same};

pub(crate) const LINK: i32 = 4;
pub(crate) const DRAIN: i32 = 2;
pub(crate) const FIXED: i32 = 1;
pub(crate) const DIRECT: i32 = 32768;
const ECANCELED: i64 = -125;

/// A submitting call. The requests that it submits must follow and lie within it.
pub(crate) fn enter(d: &mut Draft, task: i64, op: &str, n: i64) {
    let o = d.op(task, op, n);
    (o.ring, o.aux, o.dur_ns) = (Some(1), Some(n), 9_000 * n);
}

/// A request, long enough that others are submitted meanwhile.
pub(crate) fn request<'a>(d: &'a mut Draft, task: i64, op: &str, fd: i32, dur_ns: i64, ret: i64) -> &'a mut Op {
    d.pause(-9_500);
    let o = d.fd(task, op, fd, ret);
    (o.source, o.ring, o.sqe_flags) = ("io_uring".into(), Some(1), Some(0));
    o.dur_ns = dur_ns;
    o
}

pub(crate) fn io(d: &mut Draft, op: &str, fd: i32, dur_ns: i64, (offset, len): (i64, i64), ret: i64) {
    let o = request(d, 1, op, fd, dur_ns, ret);
    (o.offset_bytes, o.len_bytes, o.file, o.aux2) = (Some(offset), Some(len), Some(1), Some(0));
}

fn start() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d
}

#[test]
fn rings_are_set_up_as_they_were() {
    const DEFERRED: i64 = 0x3100;
    // As fio sets rings up; without a flag that the kernel requires with it; and flags that no kernel accepts.
    for flags in [DEFERRED, 0x2000, i64::MAX, i64::MIN] {
        let mut d = start();
        let o = d.op(1, "io_uring_setup", 9);
        (o.ring, o.flags) = (Some(1), Some(flags));
        d.create(1, "f", 1, 3);
        enter(&mut d, 1, "io_uring_enter", 2);
        io(&mut d, "write", 3, 40_000, (0, 4096), 4096);
        io(&mut d, "fsync", 3, 70_000, (0, 0), 0);
        d.pause(100_000);
        enter(&mut d, 1, "io_uring_enter", 1);
        io(&mut d, "read", 3, 5_000, (0, 10_000), 4096);
        replay_same(d);
    }
}

#[test]
fn a_request_renames() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    enter(&mut d, 1, "io_uring_enter", 1);
    let o = request(&mut d, 1, "renameat", -1, 5_000, 0);
    (o.fd, o.path, o.path2, o.flags) = (None, Some("/w/f".into()), Some("/w/g".into()), Some(0));
    d.pause(100_000);
    let dir = replay_same(d);
    assert!(dir.path().join("t/w/g").exists());
}

/// Requests create files without set-ID bits, like calls.
#[test]
fn a_request_makes_no_set_id_file() {
    let mut d = start();
    enter(&mut d, 1, "io_uring_enter", 1);
    let o = request(&mut d, 1, "openat", 0, 10_000, 7);
    (o.path, o.dirfd, o.fd, o.file) = (Some("made".into()), Some(-100), None, Some(1));
    (o.flags, o.mode, o.aux) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(0o4755), Some(1));
    d.pause(100_000);
    let (dir, report) = replay(d);
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(dir.path().join("t/w/made")).unwrap());
    assert_eq!(mode & 0o7777, 0o755);
    assert_eq!(report.summary.set_ids_left_out, 1);
}

#[test]
fn requests_end_as_they_did() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    enter(&mut d, 1, "io_uring_enter", 3);
    io(&mut d, "write", 3, 40_000, (0, 4096), 4096);
    io(&mut d, "write", 3, 20_000, (4096, 4096), 4096);
    io(&mut d, "fsync", 3, 70_000, (0, 0), 0);
    d.pause(100_000);
    enter(&mut d, 1, "io_uring_enter", 1);
    io(&mut d, "read", 3, 5_000, (4096, 10_000), 4096);
    d.pause(100_000);
    d.fd(1, "fstat", 3, 0).len_bytes = Some(8192);
    d.fd(1, "close", 3, 0);
    let dir = tempfile::tempdir().unwrap();
    let (target, result) = (dir.path().join("t"), dir.path().join("r.reel"));
    fs::create_dir(&target).unwrap();
    let c = ioreel_replay::Config { result: Some(result.clone()), ..config(d.write(dir.path()), &target) };
    let report = ioreel_replay::Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    assert_eq!((report.done, report.summary.implied, report.verdict.missing), (7, 2, 0));
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    assert_eq!(report.warnings, Vec::<String>::new());
    // Each request has a row in the result. The kernel chooses the order of their ends; all of a batch start together.
    let ops = ioreel_traces::Reel::open(&result).unwrap().read::<Op>().unwrap();
    let of = |op: &str| ops.iter().filter(|o| o.op == op).map(|o| (o.start_ns, o.ret)).collect::<Vec<_>>();
    let (writes, sync) = (of("write"), of("fsync"));
    assert_eq!((writes.len(), sync.len(), of("read").len()), (2, 1, 1));
    assert!(writes.iter().chain(&sync).all(|(start, _)| *start == writes[0].0), "{ops:#?}");
    assert_eq!(fs::metadata(target.join("w/f")).unwrap().len(), 8192);
}

#[test]
fn chains_keep_their_order_and_break_where_they_broke() {
    let mut d = start();
    d.know(1, "regular");
    d.had("/w/there", "regular", 100);
    enter(&mut d, 1, "io_uring_enter", 4);
    // Opened into a slot, written and synced through it, and closed, in one chain.
    let o = request(&mut d, 1, "openat", 0, 10_000, 0);
    (o.path, o.dirfd, o.fd) = (Some("direct".into()), Some(-100), None);
    (o.flags, o.mode, o.aux, o.fd2) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(0o600), Some(1), Some(5));
    (o.sqe_flags, o.file) = (Some(DIRECT | LINK), Some(1));
    for (op, ret) in [("write", 500), ("fsync", 0)] {
        let o = request(&mut d, 1, op, 5, 20_000, ret);
        (o.offset_bytes, o.len_bytes, o.file, o.sqe_flags) = (Some(0), Some(500), Some(1), Some(FIXED | LINK));
    }
    request(&mut d, 1, "close", 5, 30_000, 0).sqe_flags = Some(DIRECT);
    d.pause(100_000);
    enter(&mut d, 1, "io_uring_enter", 3);
    let o = request(&mut d, 1, "openat", 0, 10_000, -2);
    (o.path, o.dirfd, o.fd, o.sqe_flags) = (Some("missing".into()), Some(-100), None, Some(LINK));
    o.flags = Some(0);
    let o = request(&mut d, 1, "unlinkat", 0, 10_000, ECANCELED);
    (o.path, o.dirfd, o.fd) = (Some("there".into()), Some(-100), None);
    let o = request(&mut d, 1, "mkdirat", 0, 10_000, 0);
    (o.path, o.dirfd, o.fd, o.mode, o.sqe_flags) = (Some("made".into()), Some(-100), None, Some(0o755), Some(DRAIN));
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/direct")).unwrap().len(), 500);
    assert!(dir.path().join("t/w/made").is_dir() && dir.path().join("t/w/there").is_file());
}

#[test]
fn a_chain_uses_names_that_it_makes() {
    for drains in [false, true] {
        let (first, then) = if drains { (0, DRAIN) } else { (LINK, LINK) };
        let mut d = start();
        // The directory is new, so names in it are known not to exist when requests on them are submitted.
        let o = d.op(1, "mkdirat", 0);
        (o.path, o.dirfd, o.mode) = (Some("/w/in".into()), Some(-100), Some(0o755));
        enter(&mut d, 1, "io_uring_enter", 4);
        for (op, path, flags) in
            [("mkdirat", "/w/in/d", first), ("openat", "/w/in/d/tmp", then), ("renameat", "/w/in/d/tmp", then)]
        {
            let o = request(&mut d, 1, op, 0, 10_000, if op == "openat" { 4 } else { 0 });
            (o.path, o.dirfd, o.fd, o.sqe_flags) = (Some(path.into()), Some(-100), None, Some(flags));
            o.mode = Some(if op == "mkdirat" { 0o755 } else { 0o644 });
            match op {
                "openat" => (o.flags, o.file) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(7)),
                "renameat" => (o.path2, o.flags) = (Some("/w/in/final".into()), Some(0)),
                _ => {}
            }
        }
        d.know(7, "regular");
        let dir = replay_same(d);
        assert!(dir.path().join("t/w/in/final").is_file(), "drains: {drains}");
    }
}

#[test]
fn a_request_cut_short_breaks_its_chain() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.io(1, "pwrite64", 3, 0, 900, 900);
    enter(&mut d, 1, "io_uring_enter", 2);
    // An unknown limit of 1000 bytes.
    io(&mut d, "write", 3, 10_000, (900, 900), 100);
    d.ops.last_mut().unwrap().sqe_flags = Some(LINK);
    let o = request(&mut d, 1, "mkdirat", 0, 10_000, ECANCELED);
    (o.path, o.dirfd, o.fd, o.mode) = (Some("never".into()), Some(-100), None, Some(0o755));
    d.pause(100_000);
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 1000);
    assert!(!dir.path().join("t/w/never").exists());
}

/// A file is opened directly into a slot of the ring's table, and then another file is registered in the slot.
#[test]
fn slots_change_hands() {
    let mut d = start();
    d.had("/w/b", "regular", 0);
    let o = d.open(1, "b", libc::O_RDWR, 2, 3);
    (o.ofd, o.file) = (Some(22), Some(2));
    enter(&mut d, 1, "io_uring_enter", 1);
    let o = request(&mut d, 1, "openat", 0, 10_000, 0);
    (o.path, o.dirfd, o.fd, o.ofd) = (Some("a".into()), Some(-100), None, Some(11));
    (o.flags, o.mode, o.aux, o.fd2) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(0o600), Some(1), Some(5));
    (o.sqe_flags, o.file) = (Some(DIRECT), Some(1));
    d.pause(100_000);
    for (ofd, file, len) in [(11, 1, 100), (22, 2, 700)] {
        enter(&mut d, 1, "io_uring_enter", 1);
        let o = request(&mut d, 1, "write", 5, 20_000, len);
        (o.offset_bytes, o.len_bytes, o.sqe_flags) = (Some(0), Some(len), Some(FIXED));
        (o.ofd, o.file) = (Some(ofd), Some(file));
        d.pause(100_000);
    }
    d.know(1, "regular");
    d.know(2, "regular");
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    let len = |name: &str| fs::metadata(dir.path().join("t/w").join(name)).unwrap().len();
    assert_eq!((len("a"), len("b")), (100, 700));
}

#[test]
fn what_was_cancelled_out_of_sight_is_not_done() {
    let mut d = start();
    d.had("/w/f", "regular", 10);
    d.create(1, "g", 1, 3);
    let o = request(&mut d, 1, "unlinkat", 0, 10_000, ECANCELED);
    (o.path, o.dirfd, o.fd, o.sqe_flags) = (Some("f".into()), Some(-100), None, Some(4096));
    d.pause(100_000);
    let (dir, _) = replay(d);
    assert!(dir.path().join("t/w/f").exists());
}

#[test]
fn others_wait_for_what_a_request_made() {
    let mut d = start();
    d.fork(1, 2, 0);
    for i in 0..40 {
        let name = format!("f{i}");
        enter(&mut d, 1, "io_uring_enter", 1);
        d.know(10 + i, "regular");
        let o = request(&mut d, 1, "openat", 0, 20_000, 3);
        (o.path, o.dirfd, o.fd) = (Some(name.as_str().into()), Some(-100), None);
        (o.flags, o.mode, o.aux) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(0o600), Some(1));
        (o.file, o.ofd) = (Some(10 + i), Some(100 + i));
        d.pause(50_000);
        d.on(2, "stat", &name, 0).mode = Some(0o100_600);
        enter(&mut d, 1, "io_uring_enter", 1);
        request(&mut d, 1, "close", 3, 10_000, 0);
        d.pause(50_000);
    }
    replay_same(d);
}

#[test]
fn many_in_flight_over_many_pieces_of_a_program() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fd(1, "ftruncate", 3, 0).len_bytes = Some(4096 * 3000);
    for i in 0..375 {
        enter(&mut d, 1, "io_uring_enter", 8);
        for k in 0..8 {
            // Ends are far from the submissions, and out of order.
            io(&mut d, "read", 3, 900_000 - 70_000 * ((i + k) % 9), (4096 * (8 * i + k), 4096), 4096);
        }
        d.pause(40_000);
    }
    d.pause(2_000_000);
    let dir = tempfile::tempdir().unwrap();
    let (target, result) = (dir.path().join("t"), dir.path().join("r.reel"));
    fs::create_dir(&target).unwrap();
    let reel = d.write(dir.path());
    for pace in [
        ioreel_replay::run::pace::Pace::Load,
        ioreel_replay::run::pace::Pace::Think,
        ioreel_replay::run::pace::Pace::Original,
    ] {
        let _ = fs::remove_dir_all(&result);
        let c = ioreel_replay::Config {
            result: Some(result.clone()),
            clockwork: at(pace),
            force: true,
            memory_bytes: 0,
            ..config(reel.clone(), &target)
        };
        let report =
            ioreel_replay::Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
        let v = &report.verdict;
        assert_eq!((v.results.classes.same, v.missing, v.timing.early), (3002, 0, 0), "{pace:?} {}", v.sentence);
        assert!(v.concurrency.replay_max <= v.concurrency.original_max + 8, "{:?}", v.concurrency);
        let ops = ioreel_traces::Reel::open(&result).unwrap().read::<Op>().unwrap();
        assert_eq!(ops.iter().filter(|o| o.op == "read").count(), 3000, "{pace:?}");
    }
}

#[test]
fn linux_aio_is_submitted_in_batches() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    for round in 0..5 {
        let begin = d.now();
        enter(&mut d, 1, "io_submit", 4);
        for (k, op) in ["pwrite64", "pwrite64", "fdsync", "pread64"].into_iter().enumerate() {
            let op = if op == "fdsync" { "fdatasync" } else { op };
            let len = if op == "fdatasync" { 0 } else { 4096 };
            let o = d.fd(1, op, 3, if op == "pread64" && round == 0 { 0 } else { len });
            (o.source, o.ring, o.start_ns) = ("aio".into(), Some(1), begin);
            (o.dur_ns, o.len_bytes, o.file) = (100_000 + 1000 * k as i64, Some(len), Some(1));
            o.offset_bytes = Some(if op == "pread64" { (round - 1) * 8192 } else { round * 8192 + 4096 * k as i64 });
            if op == "pread64" && round == 0 {
                (o.offset_bytes, o.len_bytes) = (Some(1 << 30), Some(4096));
            }
        }
        d.pause(200_000);
        let o = d.op(1, "io_getevents", 4);
        (o.ring, o.aux, o.aux2) = (Some(1), Some(4), Some(4));
    }
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 5 * 8192);
}

/// The submitting thread may end before its requests, which others wait for.
#[test]
fn who_submitted_has_ended_before_the_requests() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fork(1, 2, THREAD);
    for source in ["aio", "io_uring"] {
        let begin = d.now();
        let at = if source == "aio" { 0 } else { 5000 };
        let [call, op] = if at == 0 { ["io_submit", "pwrite64"] } else { ["io_uring_enter", "write"] };
        enter(&mut d, 2, call, 1);
        let o = request(&mut d, 2, op, 3, 300_000, 5000);
        (o.source, o.start_ns) = (source.into(), begin + 1000);
        (o.offset_bytes, o.len_bytes, o.file) = (Some(at), Some(5000), Some(1));
    }
    d.exit(2);
    d.on(1, "stat", "f", 0).mode = Some(0o100600);
    d.pause(600_000);
    d.fd(1, "close", 3, 0);
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 10_000);
}

/// The kernel chooses which request of a batch runs first.
#[test]
fn requests_of_one_batch_race() {
    let mut d = start();
    for i in 0..30 {
        d.create(1, &format!("f{i}"), 1 + i, 3);
        enter(&mut d, 1, "io_uring_enter", 2);
        let o = request(&mut d, 1, "write", 3, 60_000, 1000);
        (o.offset_bytes, o.len_bytes, o.file) = (Some(1000), Some(1000), Some(1 + i));
        // Before the write, or after it: neither can be reproduced for certain.
        let o = request(&mut d, 1, "read", 3, 30_000, if i % 2 == 0 { 0 } else { 500 });
        (o.offset_bytes, o.len_bytes, o.file) = (Some(0), Some(500), Some(1 + i));
        d.pause(100_000);
        d.fd(1, "close", 3, 0);
    }
    let (_, report) = replay(d);
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
}

/// Cancelled by something that is not recorded, such as a timeout.
#[test]
fn what_nothing_known_made_fail_is_left_out() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    enter(&mut d, 1, "io_uring_enter", 1);
    io(&mut d, "write", 3, 10_000, (5000, 5), ECANCELED);
    d.pause(100_000);
    // Closed before a kernel worker started the request.
    enter(&mut d, 1, "io_uring_enter", 1);
    io(&mut d, "write", 3, 60_000, (5000, 5), -9);
    d.ops.last_mut().unwrap().sqe_flags = Some(16);
    d.fd(1, "close", 3, 0);
    d.pause(100_000);
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 0);
}

/// A slot from which a file was unregistered is empty.
#[test]
fn slots_are_emptied() {
    let mut d = start();
    d.had("/w/a", "regular", 0);
    d.open(1, "a", libc::O_RDWR, 1, 3);
    for (len, ret) in [(10, 10), (1111, -9)] {
        enter(&mut d, 1, "io_uring_enter", 1);
        let o = request(&mut d, 1, "write", 0, 20_000, ret);
        (o.offset_bytes, o.len_bytes, o.sqe_flags) = (Some(0), Some(len), Some(FIXED));
        if ret > 0 {
            (o.ofd, o.file) = (Some(13), Some(1));
        }
        d.pause(100_000);
    }
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/a")).unwrap().len(), 10);
}

/// Makes io_uring_setup and io_setup fail in the calling thread and threads that it creates.
pub(crate) fn refuse_rings() {
    let s = |code: u32, jt, jf, k: i64| libc::sock_filter { code: code as u16, jt, jf, k: k as u32 };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        s(load, 0, 0, 0),
        s(equal, 1, 0, libc::SYS_io_uring_setup),
        s(equal, 0, 1, libc::SYS_io_setup),
        s(ret, 0, 0, i64::from(libc::SECCOMP_RET_ERRNO) | i64::from(libc::EPERM)),
        s(ret, 0, 0, i64::from(libc::SECCOMP_RET_ALLOW)),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is where the program says, and only refuses two calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn where_rings_are_refused_requests_are_calls_and_that_is_told() {
    let mut d = start();
    enter(&mut d, 1, "io_uring_enter", 2);
    d.know(1, "regular");
    let o = request(&mut d, 1, "openat", 0, 20_000, 3);
    (o.path, o.dirfd, o.fd) = (Some("f".into()), Some(-100), None);
    (o.flags, o.mode, o.aux) = (Some(i64::from(libc::O_CREAT | libc::O_RDWR)), Some(0o600), Some(1));
    (o.file, o.ofd) = (Some(1), Some(1));
    d.pause(50_000);
    enter(&mut d, 1, "io_uring_enter", 2);
    io(&mut d, "write", 3, 40_000, (0, 4096), 4096);
    io(&mut d, "write", 3, 20_000, (4096, 4096), 4096);
    d.pause(100_000);
    let (dir, report) = std::thread::spawn(move || {
        refuse_rings();
        replay(d)
    })
    .join()
    .unwrap();
    assert!(report.verdict.results.differences.is_empty(), "{:#?}", report.verdict.results.differences);
    assert!(report.warnings.iter().any(|w| w.contains("io_uring is refused here")), "{:?}", report.warnings);
    assert_eq!(fs::metadata(dir.path().join("t/w/f")).unwrap().len(), 8192);
}

#[test]
fn hostile_requests_do_no_harm() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    d.fork(1, 2, THREAD);
    for (i, op) in
        ["read", "write", "readv", "writev", "fallocate", "fsync", "close", "statx", "openat", "splice", "nonsense"]
            .into_iter()
            .enumerate()
    {
        for flags in [0, LINK, FIXED | LINK, DRAIN | 16 | 32 | 64, DIRECT, i32::MAX, i32::MIN, -1] {
            // Chains that never end, or change the ring within.
            d.pause(-9_999);
            let o = d.fd(1 + i64::from(flags == LINK), op, [3, -1, i32::MAX, i32::MIN, 9999][i % 5], 1 << 40);
            (o.source, o.ring, o.sqe_flags) = ("io_uring".into(), Some(i64::from(flags) % 3), Some(flags));
            (o.offset_bytes, o.len_bytes, o.aux) = (Some(i64::MAX), Some(1 << 40), Some(i64::MAX));
            (o.flags, o.mode, o.fd2) = (Some(-1), Some(-1), Some(-1));
            (o.path, o.dirfd) = (Some("../../../../etc/passwd".into()), Some(-100));
            o.dur_ns = i64::MAX / 4 * i64::from(flags == LINK);
        }
    }
    for op in ["pread64", "pwritev", "poll", "fsync"] {
        let o = d.fd(1, op, -7, i64::MAX);
        (o.source, o.offset_bytes, o.len_bytes, o.aux) = ("aio".into(), Some(i64::MIN), Some(-1), Some(-1));
    }
    let (dir, report) = replay(d);
    assert_eq!(report.verdict.timing.early, 0);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "beside the reel and the target nothing appears: {names:?}");
}

#[test]
fn requests_move_with_smaller_files_and_what_they_read_is_checked() {
    let mut d = start();
    d.create(1, "f", 1, 3);
    let n = 40;
    enter(&mut d, 1, "io_uring_enter", n);
    (0..n).for_each(|i| io(&mut d, "write", 3, 400_000, (i * 4096, 4096), 4096));
    d.pause(1_000_000);
    enter(&mut d, 1, "io_uring_enter", n);
    (0..n).for_each(|i| io(&mut d, "read", 3, 400_000, (i * 4096, 4096), 4096));
    d.pause(1_000_000);
    d.fd(1, "close", 3, 0);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let data = ioreel_replay::contents::data::DataOptions { verify: true, ..Default::default() };
    let scale = ioreel_replay::reel::footprint::Scale::new(0.25).unwrap();
    let c = ioreel_replay::Config { data, scale, ..config(d.write(dir.path()), &target) };
    let report = ioreel_replay::Replay::plan(c).unwrap().run(ioreel_replay::session::watch::Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.results.differences);
    let found = report.data.unwrap();
    assert_eq!((found.good_bytes, found.bad_bytes), (n * 4096, 0), "{found:?}");
    assert_eq!(fs::metadata(target.join("w/f")).unwrap().len(), n as u64 * 1024);
}
