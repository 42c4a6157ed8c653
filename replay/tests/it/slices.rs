//! Slices: a part of a reel starts in the state that existed at its start.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt, path::Path};

use ioreel_replay::{Config, Replay, ReplayError, Report, Slice, session::watch::Unwatched};

use ioreel_traces::{Reel, rows::Op};

use crate::reel::{Draft, THREAD, config};

mod locks;
mod requests;

fn run(config: Config) -> Report {
    Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap()
}

fn sound(what: &str, r: &Report) {
    assert!(r.verdict.results.differences.is_empty(), "{what}: {:#?}", r.verdict.results.differences);
    if r.done == 0 {
        return assert!(r.warnings[0].contains("no replayed operation took effect"), "{what}: {:?}", r.warnings);
    }
    assert!(r.warnings.is_empty(), "{what}: {:?}", r.warnings);
    assert!(r.verdict.faithful, "{what}: {} {:#?}", r.verdict.sentence, r.verdict.tree);
    assert!(r.verdict.timing.edges.values().all(|e| e.violations == 0), "{what}");
}

fn digest(r: &Report) -> String {
    r.verdict.tree.as_ref().unwrap().full_digest.clone()
}

/// Cuts at every operation. Replays the part before, the part after in the same target, and the part after alone.
pub(crate) fn cut_everywhere(draft: Draft) {
    let dir = tempfile::tempdir().unwrap();
    let ends: BTreeSet<i64> = draft.ops.iter().map(|o| o.start_ns + o.dur_ns).collect();
    let starts: BTreeSet<i64> = draft.ops.iter().map(|o| o.start_ns + 1).collect();
    let reel = draft.write(dir.path());
    let mut next = 0;
    let mut replay = |slice: Slice, over: Option<&Path>| {
        next += 1;
        let fresh = dir.path().join(format!("t{next}"));
        let target = over.unwrap_or_else(|| {
            fs::create_dir(&fresh).unwrap();
            &fresh
        });
        let report = run(Config { slice, set_ids: true, skip_prepare: over.is_some(), ..config(reel.clone(), target) });
        (target.to_owned(), report)
    };
    let (_, whole) = replay(Slice::default(), None);
    sound("all of it", &whole);
    for at in ends.into_iter().chain(starts) {
        let (before, after) = (Slice { from_ns: 0, to_ns: at }, Slice { from_ns: at, to_ns: i64::MAX });
        let (target, first) = replay(before, None);
        sound(&format!("up to {at}"), &first);
        if first.done == whole.done {
            continue;
        }
        let (_, second) = replay(after, Some(&target));
        sound(&format!("from {at} in the same target"), &second);
        assert_eq!(first.done + second.done, whole.done, "at {at}: each operation once");
        assert_eq!(digest(&second), digest(&whole), "from {at} in the same target");
        let (_, alone) = replay(after, None);
        sound(&format!("from {at} alone"), &alone);
        assert_eq!(digest(&alone), digest(&whole), "from {at} alone");
    }
}

#[test]
fn names_sizes_and_modes() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/old", "directory", 0);
    d.had("/w/old/inside", "regular", 5000);
    d.had("/w/one", "regular", 100).link_id = Some(1);
    d.had("/w/two", "regular", 100).link_id = Some(1);
    d.had("/w/link", "symlink", 3).target = Some("one".into());
    d.create(1, "new", 1, 3).mode = Some(0o640);
    d.io(1, "write", 3, 0, 3000, 3000);
    d.fd(1, "close", 3, 0);
    d.on(1, "mkdir", "dir", 0).mode = Some(0o750);
    d.on(1, "rename", "old", 0).path2 = Some("dir/moved".into());
    d.on(1, "truncate", "new", 0).len_bytes = Some(10_000);
    d.on(1, "chmod", "one", 0).mode = Some(0o600);
    d.on(1, "unlink", "two", 0);
    d.on(1, "link", "one", 0).path2 = Some("three".into());
    d.on(1, "symlink", "dir", 0).path2 = Some("soft".into());
    d.on(1, "rename", "new", 0).path2 = Some("soft/new".into());
    d.on(1, "mkdir", "dir", -17).mode = Some(0o700);
    d.open(1, "soft/moved/inside", libc::O_RDONLY, 2, 3);
    d.io(1, "read", 3, 0, 65536, 5000);
    d.open(1, "dir/new", libc::O_RDWR, 1, 4);
    d.io(1, "pread64", 4, 0, 65536, 10_000);
    d.fd(1, "close", 3, 0);
    d.on(1, "unlink", "dir/moved/inside", 0);
    d.on(1, "rmdir", "dir/moved", 0);
    d.on(1, "unlink", "soft", 0);
    d.on(1, "openat", "soft/new", -2).flags = Some(0);
    d.on(1, "rmdir", "dir", -39);
    cut_everywhere(d);
}

#[test]
fn bits_that_the_kernel_takes_away() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0).mode = Some(0o777);
    d.had("/w/there", "regular", 100).mode = Some(0o6775);
    d.had("/w/folder", "directory", 0).mode = Some(0o2775);
    d.create(1, "made", 1, 3);
    d.fd(1, "fchmod", 3, 0).mode = Some(0o6775);
    // Writes by root keep these bits.
    d.io(1, "write", 3, 0, 10, 10);
    for name in ["made", "there", "folder"] {
        let o = d.on(1, "chown", name, 0);
        (o.aux, o.aux2) = (Some(1), Some(1));
    }
    d.fork(1, 2, 0);
    let o = d.op(2, "setresuid", 0);
    (o.aux, o.aux2, o.flags) = (Some(1000), Some(1000), Some(1000));
    for (file, name) in [(2, "written"), (3, "cut"), (4, "opened")] {
        d.create(2, name, file, 4).mode = Some(0o644);
        d.io(2, "write", 4, 0, 10, 10);
        d.fd(2, "fchmod", 4, 0).mode = Some(0o4775);
        match name {
            "written" => _ = d.io(2, "write", 4, 10, 10, 10),
            "cut" => d.on(2, "truncate", name, 0).len_bytes = Some(5),
            _ => _ = d.open(2, name, libc::O_WRONLY | libc::O_TRUNC, file, 5),
        }
        d.fd(2, "close", 4, 0);
    }
    d.on(1, "mkdir", "last", 0).mode = Some(0o755);
    cut_everywhere(d);
}

#[test]
fn descriptors_positions_and_directories() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/sub", "directory", 0);
    d.create(1, "log", 1, 3).flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR));
    d.io(1, "write", 3, 0, 1000, 1000);
    d.op(1, "umask", 0o022).mode = Some(0o077);
    d.fork(1, 2, 0);
    d.on(2, "chdir", "sub", 0);
    // The parent shares the position.
    d.io(2, "write", 3, 1000, 500, 500);
    d.io(1, "write", 3, 1500, 500, 500);
    let o = d.fd(2, "dup", 3, 7);
    o.aux = None;
    d.io(2, "read", 7, 2000, 100, 0);
    let o = d.fd(2, "lseek", 7, 5);
    (o.aux, o.flags) = (Some(5), Some(0));
    d.io(1, "read", 3, 5, 100, 100);
    d.create(2, "here", 4, 5).mode = Some(0o666);
    d.fd(2, "close", 5, 0);
    d.on(1, "rename", "log", 0).path2 = Some("sub/log".into());
    d.io(2, "read", 7, 105, 100, 100);
    d.exit(2);
    d.io(1, "read", 3, 205, 4096, 1795);
    d.on(1, "stat", "sub/here", 0).mode = Some(0o100600);
    cut_everywhere(d);
}

#[test]
fn names_of_one_fifo() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "mknodat", "p", 0).mode = Some(0o10600);
    d.on(1, "link", "p", 0).path2 = Some("q".into());
    d.create(1, "z", 1, 3);
    d.on(1, "rename", "q", 0).path2 = Some("r".into());
    cut_everywhere(d);
}

#[test]
fn names_of_one_symbolic_link() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for name in ["/w/k", "/w/l"] {
        let t = d.had(name, "symlink", 2);
        (t.target, t.link_id) = (Some("zz".into()), Some(7));
    }
    d.on(1, "symlink", "yy", 0).path2 = Some("a".into());
    d.on(1, "link", "a", 0).path2 = Some("b".into());
    // Another name of the same file: both names stay.
    d.on(1, "rename", "k", 0).path2 = Some("l".into());
    d.on(1, "rename", "a", 0).path2 = Some("b".into());
    d.on(1, "link", "l", 0).path2 = Some("m".into());
    d.on(1, "unlink", "a", 0);
    d.on(1, "link", "b", 0).path2 = Some("a".into());
    cut_everywhere(d);
}

#[test]
fn threads_share_a_table() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, THREAD);
    d.fork(1, 3, THREAD);
    d.create(2, "a", 1, 3);
    d.io(3, "write", 3, 0, 10, 10);
    d.io(1, "write", 3, 10, 10, 10);
    d.on(3, "rename", "a", 0).path2 = Some("b".into());
    d.on(2, "mkdir", "d", 0).mode = Some(0o777);
    d.on(3, "rename", "b", 0).path2 = Some("d/c".into());
    d.on(1, "chdir", "d", 0);
    d.on(2, "stat", "c", 0).mode = Some(0o100644);
    d.fd(1, "close", 3, 0);
    d.on(3, "openat", "b", -2).flags = Some(0);
    d.on(2, "unlink", "c", 0);
    cut_everywhere(d);
}

#[test]
fn files_and_directories_without_a_name() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "tmp", 1, 3);
    d.io(1, "write", 3, 0, 20_000, 20_000);
    let o = d.open(1, "tmp", libc::O_RDONLY, 1, 4);
    o.ofd = Some(77);
    d.on(1, "unlink", "tmp", 0);
    d.create(1, "tmp", 2, 5);
    d.io(1, "pread64", 4, 10_000, 20_000, 10_000);
    d.io(1, "pwrite64", 3, 20_000, 100, 100);
    d.io(1, "read", 4, 0, 65536, 20_100);
    d.on(1, "mkdir", "gone", 0).mode = Some(0o755);
    d.on(1, "chdir", "gone", 0);
    d.on(1, "rmdir", "/w/gone", 0);
    d.on(1, "openat", "x", -2).flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR));
    d.on(1, "chdir", "/w", 0);
    let o = d.on(1, "openat", ".", 6);
    o.flags = Some(i64::from(libc::O_TMPFILE | libc::O_RDWR));
    (o.mode, o.file, o.ofd, o.aux) = (Some(0o600), Some(9), Some(99), Some(0));
    d.know(9, "regular");
    d.io(1, "write", 6, 0, 4096, 4096);
    d.io(1, "pread64", 6, 0, 8192, 4096);
    d.fd(1, "close", 3, 0);
    d.fd(1, "close", 4, 0);
    d.fd(1, "close", 6, 0);
    cut_everywhere(d);
}

#[test]
fn directories_removed_while_in_use() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/sub", "directory", 0);
    d.on(1, "mkdir", "sub/gone", 0).mode = Some(0o755);
    d.on(1, "chdir", "sub/gone", 0);
    d.on(1, "rmdir", "../gone", 0);
    d.on(1, "mkdir", "../beside", 0).mode = Some(0o755);
    d.on(1, "mkdir", "inside", -2).mode = Some(0o755);
    // Another directory has its former name.
    d.on(1, "mkdir", "/w/sub/gone", 0).mode = Some(0o755);
    d.create(1, "/w/sub/gone/f", 1, 3);
    d.on(1, "openat", "f", -2).flags = Some(0);
    d.on(1, "rename", "../gone/f", 0).path2 = Some("../gone/g".into());
    d.on(1, "rename", "../beside", 0).path2 = Some("../../moved".into());
    d.on(1, "chdir", "..", 0);
    d.on(1, "rename", "gone", 0).path2 = Some("kept".into());
    cut_everywhere(d);
}

#[test]
fn what_is_set_of_files_without_a_name() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    let o = d.on(1, "openat", ".", 6);
    o.flags = Some(i64::from(libc::O_TMPFILE | libc::O_RDWR));
    (o.mode, o.file, o.ofd, o.aux) = (Some(0o600), Some(9), Some(99), Some(0));
    d.know(9, "regular");
    d.fd(1, "fchmod", 6, 0).mode = Some(0o751);
    let o = d.fd(1, "fsetxattr", 6, 0);
    (o.name, o.value, o.aux) = (Some("user.one".into()), Some("1".into()), Some(1));
    d.fd(1, "fgetxattr", 6, 1).name = Some("user.one".into());
    d.io(1, "write", 6, 0, 4096, 4096);
    let o = d.on(1, "linkat", "/proc/self/fd/6", 0);
    (o.path2, o.dirfd2, o.flags) = (Some("got".into()), Some(-100), Some(libc::AT_SYMLINK_FOLLOW.into()));
    d.on(1, "getxattr", "got", 1).name = Some("user.one".into());
    d.fd(1, "close", 6, 0);
    // A file that loses its name keeps its attributes. The file that gets the name is another one.
    let o = d.open(1, "got", libc::O_RDWR, 9, 7);
    o.ofd = Some(100);
    d.on(1, "unlink", "got", 0);
    d.create(1, "got", 10, 8);
    d.fd(1, "fchmod", 7, 0).mode = Some(0o700);
    d.fd(1, "fgetxattr", 7, 1).name = Some("user.one".into());
    d.fd(1, "fgetxattr", 8, -61).name = Some("user.one".into());
    d.fd(1, "close", 7, 0);
    d.fd(1, "close", 8, 0);
    cut_everywhere(d);
}

#[test]
fn mappings_and_attributes() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "m", 1, 3);
    d.fd(1, "ftruncate", 3, 0).len_bytes = Some(8192);
    let o = d.fd(1, "mmap", 3, 0x7000_0000);
    (o.len_bytes, o.offset_bytes, o.flags, o.mode) = (Some(8192), Some(0), Some(1), Some(3));
    d.fd(1, "close", 3, 0);
    let o = d.on(1, "setxattr", "m", 0);
    (o.name, o.value, o.aux) = (Some("user.one".into()), Some("1".into()), Some(1));
    let o = d.op(1, "msync", 0);
    (o.aux, o.len_bytes, o.flags) = (Some(0x7000_0000), Some(4096), Some(4));
    let o = d.on(1, "setxattr", "m", 0);
    (o.name, o.value, o.aux) = (Some("user.one".into()), Some("22".into()), Some(2));
    d.on(1, "removexattr", "m", 0).name = Some("user.one".into());
    d.on(1, "removexattr", "m", -61).name = Some("user.one".into());
    let o = d.op(1, "munmap", 0);
    (o.aux, o.len_bytes) = (Some(0x7000_0000), Some(8192));
    cut_everywhere(d);
}

/// sem_open does this: a mapping is the only reference to the file.
#[test]
fn a_mapping_alone_keeps_a_file() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "made", 1, 3);
    d.io(1, "write", 3, 0, 32, 32);
    let o = d.fd(1, "mmap", 3, 0x7000_0000);
    (o.len_bytes, o.offset_bytes, o.flags, o.mode) = (Some(32), Some(0), Some(1), Some(3));
    d.on(1, "link", "made", 0).path2 = Some("named".into());
    d.on(1, "unlink", "made", 0);
    d.fd(1, "close", 3, 0);
    d.on(1, "unlink", "named", 0);
    let o = d.op(1, "fault", 0);
    (o.source, o.file) = ("fault".into(), Some(1));
    (o.offset_bytes, o.len_bytes) = (Some(0), Some(4096));
    d.on(1, "mkdir", "last", 0).mode = Some(0o755);
    cut_everywhere(d);
}

#[test]
fn overlapping_calls_belong_to_one_side() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, THREAD);
    d.on(1, "stat", "late", -2);
    // Created during a call that finds it, and returned after that call.
    d.create(1, "late", 1, 3).dur_ns = 60_000;
    let at = d.now();
    d.open(2, "late", libc::O_RDONLY, 1, 4).start_ns = at - 5_000;
    d.io(2, "pread64", 4, 0, 100, 0);
    d.on(2, "unlink", "late", 0);
    cut_everywhere(d);
}

#[test]
fn a_recording_that_began_in_the_middle() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.tasks[0].umask = Some(0o027);
    // Two descriptors that share a position, and a file without a name.
    for (file, path, size, unlinked) in [(1, "/w/data", 8192, 0), (2, "/w/lost", 700, 1)] {
        d.files.push(ioreel_traces::rows::File {
            file,
            kind: "regular".into(),
            ino: file,
            path: Some(path.into()),
            size_bytes: Some(size),
            unlinked: Some(unlinked),
            ..Default::default()
        });
    }
    d.had("/w/data", "regular", 8192);
    for (fd, ofd, file, offset_bytes) in [(3, 30, 1, 8000), (4, 30, 1, 8000), (5, 50, 2, 0)] {
        let flags = i64::from(libc::O_RDWR);
        d.fds.push(ioreel_traces::rows::Fd { task_id: 1, fd, ofd, file: Some(file), offset_bytes, flags, cloexec: 0 });
    }
    d.maps.push(ioreel_traces::rows::Map {
        task_id: 1,
        address: 0x5000,
        len_bytes: 4096,
        file: 1,
        offset_bytes: 4096,
        prot: 3,
        flags: 1,
    });
    d.io(1, "read", 3, 8000, 100, 100);
    d.io(1, "read", 4, 8100, 1000, 92);
    d.io(1, "read", 5, 0, 1000, 700);
    let o = d.op(1, "msync", 0);
    (o.aux, o.len_bytes, o.flags) = (Some(0x5000), Some(4096), Some(4));
    d.create(1, "made", 3, 6).mode = Some(0o666);
    d.io(1, "write", 5, 700, 10, 10);
    let o = d.op(1, "munmap", 0);
    (o.aux, o.len_bytes) = (Some(0x5000), Some(4096));
    d.fd(1, "close", 4, 0);
    cut_everywhere(d);
}

#[test]
fn borders_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    let reel = d.write(dir.path());
    let plan = |from_ns, to_ns| {
        Replay::plan(Config { slice: Slice { from_ns, to_ns }, ..config(reel.clone(), &target) }).unwrap_err()
    };
    assert!(matches!(plan(1_000_000_000, i64::MAX), ReplayError::NothingAfter { .. }));
    assert!(matches!(plan(500, 500), ReplayError::NoSlice { .. }));
    assert!(matches!(plan(900, 500), ReplayError::NoSlice { .. }));
    assert!(!plan(i64::MAX - 1, i64::MAX).to_string().contains('\n'));
    assert_eq!(fs::metadata(&target).unwrap().nlink(), 2, "nothing was made");
}

#[test]
fn a_child_that_only_computes_keeps_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.fork(1, 2, 0);
    d.on(2, "stat", "/w", 0).mode = Some(0o40755);
    let border = d.now();
    d.pause(40_000_000);
    d.exit(2);
    d.on(1, "mkdir", "done", 0).mode = Some(0o755);
    let reel = d.write(dir.path());
    let clockwork = crate::reel::at(ioreel_replay::run::pace::Pace::Think);
    let slice = Slice { from_ns: border, to_ns: i64::MAX };
    let report = run(Config { slice, clockwork, ..config(reel, &target) });
    sound("think", &report);
    assert!(report.elapsed_ns >= 40_000_000, "{}", report.elapsed_ns);
}

#[test]
fn directories_are_listed_on() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/many", "directory", 0);
    // Each entry takes 24 bytes, as do `.` and `..`.
    for i in 0..30 {
        d.had(&format!("/w/many/f{i}"), "regular", 0);
    }
    d.open(1, "many", libc::O_RDONLY | libc::O_DIRECTORY, 1, 3);
    d.know(1, "directory");
    let told = [240, 240, 240, 48, 0];
    for bytes in told {
        d.fd(1, "getdents64", 3, bytes).len_bytes = Some(240);
    }
    let ends: Vec<i64> = d.ops.iter().map(|o| o.start_ns + o.dur_ns + 1).collect();
    let o = d.fd(1, "lseek", 3, 0);
    (o.aux, o.flags) = (Some(0), Some(0));
    d.fd(1, "getdents64", 3, 768).len_bytes = Some(32768);
    let dir = tempfile::tempdir().unwrap();
    let reel = d.write(dir.path());
    for (n, from_ns) in ends.into_iter().enumerate() {
        let (target, result) = (dir.path().join(format!("t{n}")), dir.path().join(format!("r{n}")));
        fs::create_dir(&target).unwrap();
        let slice = Slice { from_ns, to_ns: i64::MAX };
        sound("on", &run(Config { slice, result: Some(result.clone()), ..config(reel.clone(), &target) }));
        let ops: Vec<Op> = Reel::open(&result).unwrap().read().unwrap();
        let listed: Vec<i64> = ops.iter().filter(|o| o.op == *"getdents64").filter_map(|o| o.ret).collect();
        assert_eq!(listed, [&told[n..], &[768]].concat(), "from listing {n} on");
    }
}
