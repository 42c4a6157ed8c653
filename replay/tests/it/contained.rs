//! A replay touches nothing outside its target, whatever the reel says.

use std::{fs, path::Path};

use ioreel_replay::Config;
use ioreel_traces::rows::FinalName;

use crate::reel::{Draft, THREAD, replay, replay_as};

/// A file next to the target that hostile reels try to reach.
fn bait(dir: &Path) -> std::path::PathBuf {
    let bait = dir.join("bait");
    fs::write(&bait, "untouched").unwrap();
    bait
}

fn attack(build: impl FnOnce(&mut Draft, &str)) {
    let outside = tempfile::tempdir().unwrap();
    let bait = bait(outside.path());
    let name = bait.to_str().unwrap().to_owned();
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    build(&mut d, &name);
    let (dir, _) = replay(d);
    assert_eq!(fs::read_to_string(&bait).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "beside the reel and the target nothing appears: {names:?}");
}

#[test]
fn dots_do_not_climb_out() {
    attack(|d, bait| {
        let up = format!("{}{bait}", "../".repeat(40));
        d.on(1, "truncate", &up, 0).len_bytes = Some(0);
        d.on(1, "unlink", &up, 0);
        d.on(1, "chdir", "../../../../../..", 0);
        d.on(1, "unlink", bait, 0);
        d.create(1, &format!("{}escaped", "../".repeat(9)), 1, 3);
    });
}

#[test]
fn links_do_not_lead_out() {
    attack(|d, bait| {
        let parent = Path::new(bait).parent().unwrap().to_str().unwrap().to_owned();
        d.had("/w/abs", "symlink", 0).target = Some(parent.as_str().into());
        d.had("/w/rel", "symlink", 0).target = Some(format!("{}{parent}", "../".repeat(20)).as_str().into());
        // The tree lists a file below the link.
        d.had("/w/abs/bait", "regular", 3);
        d.open(1, "abs/bait", libc::O_WRONLY | libc::O_TRUNC, 1, 3);
        d.on(1, "unlink", "rel/bait", 0);
        d.on(1, "symlink", &parent, 0).path2 = Some("made".into());
        d.on(1, "rename", "made/bait", 0).path2 = Some("stolen".into());
        d.on(1, "mkdir", "made/new", 0).mode = Some(0o777);
    });
}

#[test]
fn descriptors_of_the_replayer_are_out_of_reach() {
    attack(|d, _| {
        for fd in 0..40 {
            d.io(1, "write", fd, 0, 10, -9);
            d.fd(1, "ftruncate", fd, -9).len_bytes = Some(0);
            d.fd(1, "fchdir", fd, -9);
            let o = d.on(1, "unlinkat", "bait", -9);
            o.dirfd = Some(fd);
        }
        let o = d.fd(1, "close_range", 0, 0);
        o.fd2 = Some(-1);
    });
}

#[test]
fn a_second_root_does_not_open_the_first() {
    attack(|d, bait| {
        d.tasks[0].root = Some("/w/jail".into());
        d.tasks[0].cwd = Some("/w/jail".into());
        d.know(1, "directory");
        d.files[0].path = Some("/w".into());
        d.fds.push(ioreel_traces::rows::Fd { task_id: 1, fd: 5, ofd: 1, file: Some(1), ..Default::default() });
        let o = d.on(1, "unlinkat", &format!("{}{bait}", "../".repeat(20)), 0);
        o.dirfd = Some(5);
        d.fd(1, "fchdir", 5, 0);
        d.on(1, "unlink", &format!("{}{bait}", "../".repeat(20)), 0);
    });
}

#[test]
fn the_verdict_looks_at_nothing_outside() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for path in ["/..", "/../..", "/w/../..", "/.", "/w/.", "/w/..", "//", "/w//x", "x"] {
        d.had(path, "directory", 0);
        let row = FinalName { path: path.into(), kind: "directory".into(), complete: Some(1), ..FinalName::default() };
        d.final_tree.push(row);
    }
    d.on(1, "mkdir", "m", 0).mode = Some(0o777);
    let (_dir, report) = replay(d);
    let tree = report.verdict.tree.unwrap();
    // The reel lies beside the target.
    assert!(tree.found <= 4, "{tree:#?}");
    assert!(!tree.examples.iter().any(|e| e.contains("..") || e.contains("reel")), "{tree:#?}");
}

#[test]
fn magic_links_devices_and_set_id_bits_are_harmless() {
    attack(|d, bait| {
        d.on(1, "truncate", &format!("/proc/self/root{bait}"), 0).len_bytes = Some(0);
        d.on(1, "unlink", &format!("/proc/1/cwd{bait}"), 0);
        d.on(1, "mknod", "disk", 0).mode = Some((libc::S_IFBLK | 0o666) as i32);
        d.had("/w/null", "char", 0);
        d.create(1, "suid", 1, 3);
        d.fd(1, "fchmod", 3, 0).mode = Some(0o4755);
        let o = d.io(1, "read", 3, 0, i64::MAX, 0);
        o.file = Some(1);
        d.fd(1, "ftruncate", 3, 0).len_bytes = Some(i64::MAX);
    });
}

#[test]
fn mounts_and_second_roots_are_not_issued() {
    attack(|d, bait| {
        let parent = Path::new(bait).parent().unwrap().to_str().unwrap().to_owned();
        d.on(1, "mkdir", "m", 0).mode = Some(0o777);
        for op in ["mount", "pivot_root", "move_mount"] {
            let o = d.on(1, op, &parent, 0);
            o.path2 = Some("m".into());
        }
        d.on(1, "umount2", "/", 0);
        d.on(1, "chroot", "..", 0);
        d.on(1, "swapon", bait, 0);
        d.on(1, "unlink", "m/bait", 0);
    });
}

#[test]
fn links_exchanged_under_a_walk_do_not_lead_out() {
    attack(|d, bait| {
        let parent = Path::new(bait).parent().unwrap().to_str().unwrap().to_owned();
        d.fork(1, 2, THREAD);
        d.on(1, "mkdir", "real", 0).mode = Some(0o777);
        d.on(1, "symlink", &format!("{}{parent}", "../".repeat(30)), 0).path2 = Some("link".into());
        for i in 0..200 {
            let o = d.on(1, "renameat2", "real", 0);
            (o.path2, o.flags) = (Some("link".into()), Some(2));
            let o = d.open(2, "real/bait", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 10 + i, 5);
            o.start_ns -= 10_000;
            d.on(2, "unlink", "link/bait", 0);
            d.fd(2, "close", 5, 0);
        }
    });
}

#[test]
fn hard_links_and_bind_like_names_stay_inside() {
    attack(|d, bait| {
        let o = d.on(1, "linkat", bait, 0);
        (o.path2, o.flags) = (Some("mine".into()), Some(i64::from(libc::AT_SYMLINK_FOLLOW)));
        d.on(1, "truncate", "mine", 0).len_bytes = Some(0);
        let o = d.on(1, "openat2", bait, 3);
        (o.flags, o.aux2) = (Some(i64::from(libc::O_RDWR | libc::O_TRUNC)), Some(0));
        d.on(1, "name_to_handle_at", bait, 0);
        d.op(1, "open_by_handle_at", 4).fd = Some(4);
        d.io(1, "write", 4, 0, 10, 10);
    });
}

fn mode_of(dir: &tempfile::TempDir, name: &str) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&fs::symlink_metadata(dir.path().join("t/w").join(name)).unwrap())
}

/// Every way to a set-ID bit: files that existed, are created, or whose mode is changed through a descriptor or a name.
fn set_ids() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/there", "regular", 10).mode = Some(0o6755);
    d.had("/w/shared", "directory", 0).mode = Some(0o2775);
    d.create(1, "by-descriptor", 1, 3);
    d.fd(1, "fchmod", 3, 0).mode = Some(0o4755);
    for name in ["by-name", "at", "at2"] {
        d.create(1, name, 10 + name.len() as i64, 4);
        d.fd(1, "close", 4, 0);
    }
    d.on(1, "chmod", "by-name", 0).mode = Some(0o6711);
    d.on(1, "fchmodat", "at", 0).mode = Some(0o2755);
    let o = d.on(1, "fchmodat2", "at2", 0);
    (o.mode, o.flags) = (Some(0o4711), Some(0));
    let o = d.create(1, "made", 30, 5);
    o.mode = Some(0o4755);
    d.on(1, "mknod", "node", 0).mode = Some((libc::S_IFREG | 0o4755) as i32);
    d.on(1, "mkdir", "folder", 0).mode = Some(0o755);
    d.on(1, "chmod", "folder", 0).mode = Some(0o2775);
    d.on(1, "mkdir", "other", 0).mode = Some(0o755);
    let o = d.open(1, "other", libc::O_RDONLY | libc::O_DIRECTORY, 31, 6);
    o.ret = Some(6);
    d.fd(1, "fchmod", 6, 0).mode = Some(0o2750);
    d
}

const WITH_SET_IDS: [&str; 7] = ["there", "by-descriptor", "by-name", "at", "at2", "made", "node"];

#[test]
fn no_file_is_left_with_a_set_id_bit() {
    let (dir, report) = replay(set_ids());
    assert_eq!(report.verdict.results.classes.wrong, 0, "{:#?}", report.verdict.results.differences);
    for name in WITH_SET_IDS {
        assert_eq!(mode_of(&dir, name) & 0o6000, 0, "{name}");
    }
    // The rest of the mode is set as recorded.
    assert_eq!(mode_of(&dir, "by-name") & 0o777, 0o711);
    assert_eq!(mode_of(&dir, "at2") & 0o777, 0o711);
    // The set-group-ID bit of directories is kept: it decides the group of new entries.
    for (name, mode) in [("shared", 0o2775), ("folder", 0o2775), ("other", 0o2750)] {
        assert_eq!(mode_of(&dir, name) & 0o7777, mode, "{name}");
    }
    // Directories do not count.
    assert_eq!(report.summary.set_ids_left_out, WITH_SET_IDS.len() as i64);
}

#[test]
fn set_id_bits_are_kept_where_they_are_asked_for() {
    let (dir, report) = replay_as(set_ids(), |c| Config { set_ids: true, ..c });
    for name in WITH_SET_IDS {
        assert_ne!(mode_of(&dir, name) & 0o6000, 0, "{name}");
    }
    assert_eq!(report.summary.set_ids_left_out, 0);
}

/// File capabilities are like a set-ID bit, but in an extended attribute.
#[test]
fn no_file_is_left_with_capabilities() {
    let capability = "\u{1}\0\0\u{2}\u{20}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "file", 1, 3);
    for name in ["security.capability", "trusted.overlay.redirect"] {
        let o = d.fd(1, "fsetxattr", 3, 0);
        (o.name, o.value) = (Some(name.into()), Some(capability.into()));
        (o.len_bytes, o.aux) = (Some(20), Some(0));
        let o = d.fd(1, "fgetxattr", 3, 20);
        (o.name, o.len_bytes) = (Some(name.into()), Some(64));
    }
    // A failed lookup of one is replayed.
    let o = d.fd(1, "fgetxattr", 3, -i64::from(libc::ENODATA));
    (o.name, o.len_bytes) = (Some("security.ima".into()), Some(64));
    let (dir, report) = replay(d);
    let file = dir.path().join("t/w/file");
    let mut list = vec![0_u8; 1024];
    let n = rustix::fs::listxattr(&file, &mut list[..]).unwrap_or(0);
    assert!(!list[..n].windows(8).any(|w| w == b"security" || w == b"trusted."), "{:?}", &list[..n]);
    let skipped = report.summary.skipped.get("privileged attribute, see --set-ids").copied();
    assert_eq!(skipped, Some(4), "{:?}", report.summary.skipped);
}

/// A reel cannot change owner or mode of the target directory.
#[test]
fn the_target_directory_itself_is_not_changed() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "chmod", "/", 0).mode = Some(0o777);
    d.on(1, "chmod", "/w/..", 0).mode = Some(0o777);
    let o = d.on(1, "chown", "..", 0);
    (o.aux, o.aux2) = (Some(1000), Some(1000));
    let o = d.on(1, "setxattr", "/", 0);
    (o.name, o.value, o.len_bytes, o.aux) = (Some("user.a".into()), Some("x".into()), Some(1), Some(0));
    d.open(1, "/", libc::O_RDONLY | libc::O_DIRECTORY, 1, 3);
    d.fd(1, "fchmod", 3, 0).mode = Some(0);
    let o = d.fd(1, "fchown", 3, 0);
    (o.aux, o.aux2) = (Some(1000), Some(1000));
    let before = tempfile::tempdir().unwrap();
    fs::create_dir(before.path().join("t")).unwrap();
    let of = |dir: &tempfile::TempDir| {
        use std::os::unix::fs::MetadataExt;
        let stat = fs::metadata(dir.path().join("t")).unwrap();
        (stat.mode(), stat.uid(), stat.gid())
    };
    let (dir, report) = replay(d);
    assert_eq!(of(&dir), of(&before));
    let skipped = report.summary.skipped.get("would change the target directory itself").copied();
    assert_eq!(skipped, Some(6), "{:?}", report.summary.skipped);
}

/// The length of a copy from a pipe may exceed that of all writes. The replayer must not read beyond its data buffer.
#[test]
fn a_copy_longer_than_any_write_takes_no_memory_of_the_replayer() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "out", 1, 3);
    let o = d.fd(1, "splice", 9, 3 << 20);
    (o.fd2, o.file2, o.len_bytes) = (Some(3), Some(1), Some(3 << 20));
    (o.aux, o.offset2_bytes) = (Some(3), Some(0));
    let (dir, _) = replay(d);
    let written = fs::read(dir.path().join("t/w/out")).unwrap();
    assert_eq!(written.len(), 3 << 20);
    assert!(!written.contains(&0), "data holds no zero");
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }
}

#[test]
fn whatever_a_reel_says_it_ends_and_stays_inside() {
    const ODD: [i64; 14] =
        [0, 1, 2, 3, 7, 4096, 65536, 1 << 20, -1, -100, i32::MAX as i64, 1 << 40, i64::MAX, i64::MIN];
    let names: Vec<&str> = ioreel_replay::Call::ALL
        .iter()
        .map(|c| c.name())
        .filter(|n| *n != "umask")
        .chain(["fcntl", "ioctl", "io_submit"])
        .collect();
    for seed in 1..40 {
        attack(|d, bait| {
            let mut n = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed << 40);
            let bait_path = format!("../../../../../..{bait}");
            let paths = ["f", "d/g", "d", "..", "/w/f", "/proc/self/fd/3", bait, bait_path.as_str(), "", "link/x"];
            d.had("/w/f", "regular", 10_000);
            d.had("/w/d", "directory", 0);
            d.create(1, "made", 1, 3);
            let o = d.fd(1, "mmap", 3, 0x7000_0000);
            (o.len_bytes, o.offset_bytes, o.file, o.mode, o.flags) =
                (Some(1 << 20), Some(0), Some(1), Some(3), Some(1));
            d.fork(1, 2, THREAD);
            d.fork(1, 3, 0);
            for _ in 0..250 {
                let (task, op) = (n.of(&[1, 1, 2, 3]), n.of(&names));
                let source = n.of(&["syscall", "syscall", "syscall", "io_uring", "aio", "fault", "scm"]);
                let some = |n: &mut Numbers| (!n.next().is_multiple_of(3)).then(|| n.of(&ODD));
                let small = |n: &mut Numbers| n.of(&[3, 4, 5, 3, 3, -1, 9999, -100]);
                let ret = n.of(&[0, 0, 0, 3, 4, 5, 100, 4096, -2, -9, -11, -22, -125]);
                let path = n.of(&paths);
                let path2 = n.of(&paths);
                let dur_ns = n.of(&[0, 1000, 50_000, 1 << 40]);
                let kind = n.of(&[0o100_644, 0o040_755, 3, 0, -1]);
                d.pause(-9000);
                let o = d.op(task, op, ret);
                (o.source, o.dur_ns, o.mode) = (source.into(), dur_ns, Some(kind));
                (o.fd, o.fd2, o.dirfd, o.dirfd2) =
                    (Some(small(&mut n)), Some(small(&mut n)), Some(small(&mut n)), Some(small(&mut n)));
                (o.path, o.path2) = (Some(path.into()), Some(path2.into()));
                (o.name, o.value) =
                    (Some(n.of(&["user.x", "FICLONE", "FS_IOC_FIEMAP", "FIBMAP", ""]).into()), Some("v".into()));
                (o.offset_bytes, o.offset2_bytes) = (some(&mut n), some(&mut n));
                // Larger ones are refused before the start for lack of space.
                o.len_bytes = Some(n.of(&[0, 1, 100, 4096, 65536, 1 << 20, -1, i64::MIN]));
                // No immutable files, which could not be removed after the test.
                (o.flags, o.aux, o.aux2) = (some(&mut n), some(&mut n).map(|a| a & !0x30), some(&mut n));
                (o.ring, o.sqe_flags) = (Some(n.of(&[1, 2])), Some(n.of(&[0, 0, 1, 2, 4, 8, 16, 32768, -1])));
                (o.file, o.ofd) = (Some(n.of(&[1, 1, 2])), Some(n.of(&[10, 11])));
                if op == "chroot" || n.next().is_multiple_of(50) {
                    d.exec(task);
                }
            }
        });
    }
}
