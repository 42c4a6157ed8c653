//! Operations of a single process on files and names.

use std::{fs, os::unix::fs::PermissionsExt};

use ioreel_replay::{Config, Replay, session::watch::Unwatched};
use ioreel_traces::rows::Extent;

use crate::reel::{Draft, config, replay, replay_same};

const ENOENT: i64 = -2;
const EEXIST: i64 = -17;
const ENOTDIR: i64 = -20;
const ENOTEMPTY: i64 = -39;
const EBADF: i64 = -9;

#[test]
fn written_files_have_their_bytes_and_no_zeros() {
    let mut d = Draft::new();
    d.create(1, "out", 1, 3);
    d.io(1, "write", 3, 0, 10_000, 10_000);
    d.io(1, "pwrite64", 3, 20_000, 5, 5);
    d.fd(1, "close", 3, 0);
    let dir = replay_same(d);
    let data = fs::read(dir.path().join("t/w/out")).unwrap();
    assert_eq!(data.len(), 20_005);
    assert!(!data[..10_000].contains(&0), "written bytes are never zero");
    assert!(data[10_000..20_000].iter().all(|b| *b == 0), "the hole stays");
}

#[test]
fn what_was_there_is_there_and_filled() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0).mode = Some(0o751);
    d.had("/w/in", "regular", 30_000);
    let t = d.had("/w/sparse", "regular", 1 << 20);
    t.alloc_bytes = Some(0);
    d.had("/w/link", "symlink", 2).target = Some("in".into());
    d.had("/w/one", "regular", 5).link_id = Some(1);
    d.had("/w/two", "regular", 5).link_id = Some(1);
    d.open(1, "in", libc::O_RDONLY, 1, 3);
    d.io(1, "read", 3, 0, 65536, 30_000);
    d.io(1, "read", 3, 30_000, 65536, 0);
    let o = d.on(1, "readlinkat", "link", 2);
    o.len_bytes = Some(100);
    let dir = replay_same(d);
    let w = dir.path().join("t/w");
    let meta = |name: &str| fs::symlink_metadata(w.join(name)).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert!(!fs::read(w.join("in")).unwrap().contains(&0));
    assert_eq!((meta("sparse").len(), meta("sparse").blocks()), (1 << 20, 0));
    assert_eq!(meta("one").ino(), meta("two").ino());
    assert_eq!(meta("").mode() & 0o7777, 0o751);
}

#[test]
fn a_link_looked_at_before_it_is_read_is_as_long_as_it_was() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/link", "symlink", 0).size_bytes = None;
    d.on(1, "lstat", "link", 0).mode = Some(0o120_777);
    d.on(1, "readlink", "link", 4).len_bytes = Some(64);
    replay_same(d);
}

#[test]
fn what_something_is_looked_for_in_vain_below_is_a_directory() {
    for (call, deeper) in [("stat", "a"), ("stat", "a/b"), ("mkdir", "a/b"), ("unlink", "a")] {
        let mut d = Draft::new();
        let t = d.had("/w/in", "regular", 0);
        (t.origin, t.size_bytes, t.mode) = ("derived".into(), None, Some(0o755));
        d.on(1, "chmod", "/w/in", 0).mode = Some(0o755);
        d.on(1, call, &format!("/w/in/{deeper}"), -2);
        let dir = replay_same(d);
        assert!(dir.path().join("t/w/in").is_dir(), "{call} {deeper}");
    }
}

/// The tree was read shortly before the names were removed.
#[test]
fn what_is_missed_below_a_directory_does_not_tell_that_this_is_there() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/d", "directory", 0);
    d.had("/w/d/in", "regular", 10);
    d.on(1, "unlink", "d/in", ENOENT);
    d.on(1, "rmdir", "d", ENOENT);
    d.on(1, "mkdir", "d", 0).mode = Some(0o755);
    replay_same(d);
}

#[test]
fn state_that_only_results_tell_of_is_prepared() {
    let mut d = Draft::new();
    d.open(1, "/data/seen", libc::O_RDONLY, 1, 3);
    d.io(1, "pread64", 3, 100_000, 4096, 4096);
    d.io(1, "pread64", 3, 104_096, 4096, 904);
    d.on(1, "unlinkat", "/data/gone", 0);
    d.on(1, "stat", "/data/dir", 0).mode = Some(0o40700);
    d.on(1, "readlink", "/data/link", 7).len_bytes = Some(64);
    d.on(1, "stat", "/data/never", ENOENT);
    let o = d.on(1, "rename", "/data/a", 0);
    o.path2 = Some("/data/b".into());
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/data/seen")).unwrap().len(), 105_000);
}

#[test]
fn failures_fail_alike() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/dir", "directory", 0);
    d.had("/w/dir/f", "regular", 1);
    d.on(1, "openat", "none", ENOENT).flags = Some(0);
    d.on(1, "mkdir", "dir", EEXIST).mode = Some(0o777);
    d.on(1, "openat", "dir/f/x", ENOTDIR).flags = Some(0);
    d.on(1, "rmdir", "dir", ENOTEMPTY);
    let o = d.on(1, "openat", "dir/f", EEXIST);
    o.flags = Some(i64::from(libc::O_CREAT | libc::O_EXCL));
    d.fd(1, "close", 77, EBADF);
    d.fd(1, "fsync", -1, EBADF);
    d.on(1, "unlink", "dir/f", 0);
    d.on(1, "rmdir", "dir", 0);
    d.on(1, "stat", "dir", ENOENT);
    replay_same(d);
}

#[test]
fn truncating_and_renaming_over_what_was_there() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/a", "regular", 9000);
    d.had("/w/b", "regular", 100);
    let o = d.open(1, "a", libc::O_WRONLY | libc::O_TRUNC, 1, 3);
    o.mode = Some(0);
    d.io(1, "write", 3, 0, 3, 3);
    d.fd(1, "close", 3, 0);
    d.on(1, "rename", "a", 0).path2 = Some("b".into());
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/b")).unwrap().len(), 3);
    assert!(!dir.path().join("t/w/a").exists());
}

#[test]
fn an_unlinked_file_lives_on_while_open() {
    let mut d = Draft::new();
    d.create(1, "tmp", 1, 3);
    d.on(1, "unlink", "tmp", 0);
    d.io(1, "write", 3, 0, 100, 100);
    d.io(1, "pread64", 3, 0, 200, 100);
    d.fd(1, "close", 3, 0);
    let dir = replay_same(d);
    assert!(!dir.path().join("t/w/tmp").exists());
}

#[test]
fn a_renamed_directory_is_followed() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/old", "directory", 0);
    d.had("/w/old/f", "regular", 10);
    d.know(9, "directory");
    let o = d.open(1, "old", libc::O_RDONLY | libc::O_DIRECTORY, 9, 3);
    o.ofd = Some(5);
    d.on(1, "rename", "old", 0).path2 = Some("new".into());
    // Through the descriptor of the moved directory.
    let o = d.open(1, "f", libc::O_RDONLY, 2, 4);
    o.dirfd = Some(3);
    d.io(1, "read", 4, 0, 100, 10);
    d.open(1, "new/f", libc::O_RDONLY, 2, 5);
    d.on(1, "stat", "old/f", ENOENT);
    replay_same(d);
}

#[test]
fn links_times_modes_and_two_file_calls() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/src", "regular", 50_000);
    d.open(1, "src", libc::O_RDONLY, 1, 3);
    d.create(1, "dst", 2, 4);
    let o = d.op(1, "copy_file_range", 50_000);
    (o.fd, o.fd2, o.len_bytes, o.aux) = (Some(3), Some(4), Some(1 << 20), Some(3));
    (o.offset_bytes, o.offset2_bytes) = (Some(0), Some(0));
    let o = d.op(1, "sendfile", 0);
    (o.fd, o.fd2, o.len_bytes, o.aux) = (Some(3), Some(4), Some(1 << 20), Some(1));
    o.offset_bytes = Some(50_000);
    let o = d.on(1, "linkat", "dst", 0);
    (o.path2, o.dirfd2) = (Some("hard".into()), Some(-100));
    let o = d.on(1, "symlinkat", "dst", 0);
    (o.path2, o.dirfd2) = (Some("soft".into()), Some(-100));
    d.fd(1, "fchmod", 4, 0).mode = Some(0o640);
    let o = d.on(1, "utimensat", "dst", 0);
    (o.aux, o.aux2, o.flags) = (Some(i64::MIN), Some(1_000_000_000_000_000_000), Some(0));
    let o = d.fd(1, "ftruncate", 4, 0);
    o.len_bytes = Some(1234);
    let o = d.fd(1, "fallocate", 4, 0);
    (o.mode, o.offset_bytes, o.len_bytes) = (Some(1), Some(0), Some(8192));
    d.on(1, "mknod", "pipe", 0).mode = Some((libc::S_IFIFO | 0o600) as i32);
    let dir = replay_same(d);
    use std::os::unix::fs::MetadataExt;
    let m = fs::metadata(dir.path().join("t/w/hard")).unwrap();
    assert_eq!((m.len(), m.mode() & 0o7777, m.nlink()), (1234, 0o640, 2));
    assert_eq!(fs::read_link(dir.path().join("t/w/soft")).unwrap().to_str(), Some("dst"));
}

#[test]
fn mappings_follow_their_recorded_addresses() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/lib", "regular", 20_000);
    d.open(1, "lib", libc::O_RDONLY, 1, 3);
    let map = |d: &mut Draft, at: i64, len: i64| {
        let o = d.fd(1, "mmap", 3, at);
        (o.len_bytes, o.offset_bytes, o.file) = (Some(len), Some(0), Some(1));
        (o.mode, o.flags) = (Some(5), Some(2));
    };
    map(&mut d, 0x7000_0000, 20_000);
    map(&mut d, 0x7100_0000, 8192);
    d.fd(1, "close", 3, 0);
    let o = d.op(1, "msync", 0);
    (o.aux, o.len_bytes, o.flags) = (Some(0x7000_0000), Some(4096), Some(4));
    let o = d.op(1, "munmap", 0);
    (o.aux, o.len_bytes) = (Some(0x7000_1000), Some(4096));
    let o = d.op(1, "munmap", 0);
    (o.aux, o.len_bytes) = (Some(0x7100_0000), Some(8192));
    replay_same(d);
}

#[test]
fn vectors_positions_and_direct_io() {
    let mut d = Draft::new();
    let o = d.create(1, "v", 1, 3);
    o.flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR | libc::O_DIRECT));
    d.io(1, "writev", 3, 0, 16384, 16384).aux = Some(3);
    d.io(1, "pwritev", 3, 16384, 8192, 8192).aux = Some(2);
    let o = d.io(1, "pwritev2", 3, 16384, 4096, 4096);
    (o.aux, o.aux2, o.flags) = (Some(1), Some(1), Some(0));
    let o = d.fd(1, "lseek", 3, 4096);
    (o.aux, o.flags, o.offset_bytes) = (Some(4096), Some(0), Some(20480));
    d.io(1, "readv", 3, 4096, 8192, 8192).aux = Some(2);
    d.io(1, "preadv2", 3, 0, 65536, 24576).aux = Some(4);
    d.io(1, "read", 3, 12288, 65536, 12288);
    replay_same(d);
}

#[test]
fn links_of_proc_to_descriptors_act_on_the_file() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "mkdir", "d", 0).mode = Some(0o700);
    d.know(1, "directory");
    let o = d.open(1, "d", libc::O_PATH | libc::O_NOFOLLOW, 1, 3);
    o.ofd = Some(1);
    // libc sets the mode this way if the file may be a symbolic link.
    d.on(1, "chmod", "/proc/self/fd/3", 0).mode = Some(0o751);
    let o = d.open(1, ".", libc::O_TMPFILE | libc::O_RDWR, 2, 4);
    (o.mode, o.aux) = (Some(0o600), Some(1));
    d.io(1, "write", 4, 0, 7, 7);
    let o = d.on(1, "linkat", "/proc/self/fd/4", 0);
    (o.path2, o.dirfd2, o.flags) = (Some("named".into()), Some(-100), Some(libc::AT_SYMLINK_FOLLOW.into()));
    d.open(1, "named", libc::O_RDONLY, 2, 5);
    let dir = replay_same(d);
    use std::os::unix::fs::MetadataExt;
    let meta = |p: &str| fs::metadata(dir.path().join("t/w").join(p)).unwrap();
    assert_eq!((meta("d").mode() & 0o777, meta("named").len()), (0o751, 7));
}

/// GNU tar sets attributes through such paths.
#[test]
fn what_lies_behind_links_of_proc_is_acted_on() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "mkdir", "d", 0).mode = Some(0o755);
    d.know(1, "directory");
    d.open(1, "d", libc::O_PATH, 1, 3);
    d.create(1, "/proc/self/fd/3/made", 2, 4);
    d.io(1, "write", 4, 0, 11, 11);
    d.on(1, "rename", "/proc/self/fd/3/made", 0).path2 = Some("/dev/fd/3/moved".into());
    let o = d.on(1, "setxattr", "/proc/self/fd/3/moved", 0);
    (o.name, o.value, o.len_bytes) = (Some("user.a".into()), Some("value".into()), Some(5));
    // Issued with a temporary working directory, which must not stay.
    d.on(1, "mkdir", "beside", 0).mode = Some(0o755);
    d.on(1, "truncate", "/proc/self/fd/3/moved", 0).len_bytes = Some(5);
    d.open(1, "/proc/self/fd/4", libc::O_WRONLY | libc::O_APPEND, 2, 5);
    d.io(1, "write", 5, 5, 3, 3);
    d.open(1, "/proc/self/fd/3/moved", libc::O_PATH, 2, 6);
    // Not open for writing.
    d.on(1, "truncate", "/proc/self/fd/6", 0).len_bytes = Some(6);
    d.on(1, "mkdir", "/proc/self/cwd/here", 0).mode = Some(0o755);
    d.on(1, "chdir", "/proc/self/cwd/here", 0);
    d.create(1, "inside", 3, 7);
    d.create(1, "/proc/self/root/w/rooted", 4, 8);
    let dir = replay_same(d);
    let at = |p: &str| dir.path().join("t/w").join(p);
    assert_eq!(fs::metadata(at("d/moved")).unwrap().len(), 6);
    let mut room = [0; 16];
    assert_eq!(rustix::fs::getxattr(at("d/moved"), "user.a", &mut room[..]), Ok(5));
    assert!(["beside", "here/inside", "rooted"].iter().all(|p| at(p).exists()));
}

#[test]
fn names_made_out_of_sight_are_left_alone() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "unlink", "socket", ENOENT);
    // Bound to a socket by a call that is not recorded.
    d.on(1, "chmod", "socket", 0).mode = Some(0o666);
    d.on(1, "rename", "socket", 0).path2 = Some("renamed".into());
    d.on(1, "stat", "socket", ENOENT);
    d.on(1, "stat", "renamed", 0).mode = Some(0o140_666);
    d.on(1, "unlink", "renamed", 0);
    d.create(1, "renamed", 1, 3);
    let (dir, report) = replay(d);
    assert_eq!((report.done, report.verdict.results.classes.wrong), (3, 0), "{report:#?}");
    assert_eq!(report.summary.skipped.get("name made out of sight"), Some(&4), "{report:#?}");
    assert!(dir.path().join("t/w/renamed").is_file());
}

#[test]
fn what_cannot_be_replayed_is_counted_by_reason() {
    let mut d = Draft::new();
    d.know(7, "char");
    d.on(1, "stat", "/proc/self/status", 0).mode = Some(0o100444);
    d.open(1, "/dev/null", libc::O_RDWR, 7, 3);
    d.io(1, "write", 3, 0, 10, 10);
    d.fd(1, "close", 3, 0);
    d.fd(1, "read", 9, 4);
    d.on(1, "rename", "x", -18).path2 = Some("/other/x".into());
    d.on(1, "mknod", "disk", 0).mode = Some((libc::S_IFBLK | 0o600) as i32);
    d.on(1, "openat", "late", 0).state = "in_flight_at_end".into();
    d.op(1, "ioctl", 0);
    let (_, report) = replay(d);
    let s = &report.summary.skipped;
    for (why, n) in [
        ("under /proc", 1),
        ("under /dev", 3),
        ("descriptor opened out of sight", 1),
        ("failed for a cause the target does not have", 1),
        ("device node, see --device-nodes", 1),
        ("in flight at the end of the recording", 1),
        ("call not replayed", 1),
    ] {
        assert_eq!(s.get(why), Some(&n), "{why}: {s:?}");
    }
    assert_eq!((report.done, report.verdict.results.classes.wrong), (0, 0));
}

#[test]
fn what_lies_in_memory_is_replayed() {
    let mut d = Draft::new();
    d.on(1, "mkdir", "/dev/shm/folder", 0);
    d.create(1, "/dev/shm/folder/f", 1, 3);
    d.on(1, "rename", "/dev/shm/folder/f", 0).path2 = Some("/dev/shm/f".into());
    d.open(1, "/dev/null", libc::O_RDWR, 7, 6);
    let (dir, report) = replay(d);
    assert_eq!((report.done, report.verdict.results.classes.wrong), (3, 0), "{report:#?}");
    assert_eq!(report.summary.skipped.get("under /dev"), Some(&1), "{report:#?}");
    assert!(dir.path().join("t/dev/shm/f").is_file());
}

#[test]
fn layouts_that_cannot_be_are_no_layouts() {
    let max = i64::MAX;
    let hostile: [&[(i64, i64, i64)]; 7] = [
        &[(0, max, 0)],
        &[(max, max, max)],
        &[(-4096, 8192, -5)],
        &[(0, 8192, 0), (4096, 8192, 1 << 30)],
        &[(8192, 4096, 0), (0, 4096, 0)],
        &[(0, 4096, i64::MIN), (4096, 4096, max)],
        &[(0, 1, 3), (1, 1, 9), (2, 1, 27)],
    ];
    for extents in hostile {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        d.had("/w/f", "regular", 10_000).mtime_ns = Some(0);
        d.on(1, "stat", "f", 0);
        for (order, (offset_bytes, len_bytes, physical_bytes)) in extents.iter().copied().enumerate() {
            let path = "/w/f".into();
            d.extents.push(Extent { order: order as i64, path, offset_bytes, len_bytes, physical_bytes, flags: 0 });
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        let c = Config { layout: true, ..config(d.write(dir.path()), &target) };
        let report = Replay::plan(c).unwrap().run(Unwatched, |_| ()).unwrap();
        assert!(report.verdict.faithful && report.warnings.is_empty(), "{extents:?}: {:?}", report.warnings);
        assert_eq!(fs::metadata(target.join("w/f")).unwrap().len(), 10_000, "{extents:?}");
    }
}

/// The replay has no such limit or full disk, so a short copy is issued with its actual length.
#[test]
fn a_copy_cut_short_copies_no_more() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "a", 1, 3);
    d.io(1, "write", 3, 0, 50_000, 50_000);
    let mut copy = |name: &str, op: &str, file: i64, fd: i32, (len, ret): (i64, i64)| {
        d.create(1, name, file, fd.into());
        let o = d.op(1, op, ret);
        (o.fd, o.fd2, o.len_bytes, o.offset_bytes, o.offset2_bytes) = (Some(3), Some(fd), Some(len), Some(0), Some(0));
        (o.aux, o.file, o.file2) = (Some(0), Some(1), Some(file));
    };
    copy("b", "copy_file_range", 2, 4, (50_000, 20_000));
    copy("c", "sendfile", 3, 5, (1 << 30, 30_000));
    // Ends at the end of the source.
    copy("d", "copy_file_range", 4, 6, (1 << 30, 50_000));
    let dir = replay_same(d);
    let len = |name: &str| fs::metadata(dir.path().join("t/w").join(name)).unwrap().len();
    assert_eq!((len("b"), len("c"), len("d")), (20_000, 30_000, 50_000));
}

/// A copy from something that is not replayed becomes a write.
#[test]
fn copies_from_elsewhere_fill_their_files() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    let o = d.open(1, "/dev/zero", libc::O_RDONLY, 9, 9);
    o.aux = Some(0);
    d.create(1, "a", 1, 3);
    for (fd, op, at) in [(9, "sendfile", 0), (77, "copy_file_range", 5000)] {
        let o = d.op(1, op, 5000);
        (o.fd, o.fd2, o.len_bytes, o.offset_bytes, o.offset2_bytes) =
            (Some(fd), Some(3), Some(5000), Some(0), Some(at));
        (o.aux, o.file2) = (Some(0), Some(1));
    }
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    assert_eq!(fs::metadata(dir.path().join("t/w/a")).unwrap().len(), 10_000);
}

#[test]
fn a_length_set_through_a_link_of_proc() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "a", 1, 3);
    d.io(1, "write", 3, 0, 7, 7);
    d.on(1, "truncate", "/proc/self/fd/3", 0).len_bytes = Some(55);
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/a")).unwrap().len(), 55);
}

/// tar does this for files that it may not open.
#[test]
fn the_mode_of_a_fifo_by_its_descriptor() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "mknodat", "p", 0).mode = Some(0o10600);
    let o = d.open(1, "p", libc::O_PATH | libc::O_NOFOLLOW, 5, 3);
    o.aux = Some(0);
    d.files.iter_mut().for_each(|f| f.kind = "fifo".into());
    d.on(1, "chmod", "/proc/self/fd/3", 0).mode = Some(0o644);
    d.fd(1, "close", 3, 0);
    let dir = replay_same(d);
    assert_eq!(fs::metadata(dir.path().join("t/w/p")).unwrap().permissions().mode() & 0o777, 0o644);
}
