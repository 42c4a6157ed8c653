//! Filters of programs that stand elsewhere than their names say, and of requests that are rows beside the calls.

use std::{fs, path::Path};

use ioreel_traces::{Reel, rows::Op};

use crate::harness::{assert_valid, describe, record, replays_alike, run, succeed, temp_dir, text};

fn recorded(place: &Path, options: &[&str], program: &str) -> (Reel, tempfile::TempDir) {
    let out = temp_dir();
    let path = out.path().join("x.reel");
    let options = [&["--ops-only", "--settle", "none"], options].concat();
    succeed(record(&path, &options, &["python3", "-S", "-c", program]).current_dir(place));
    (assert_valid(&path), out)
}

/// Names that these calls of a reel were given.
fn names(reel: &Reel, calls: &[&str]) -> Vec<String> {
    let ops = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| calls.contains(&&*o.op));
    ops.filter_map(|o| o.path.map(|p| p.to_string())).collect()
}

/// A name seen from an open folder needs the folder's opening.
pub(crate) fn through_folders() {
    const PROGRAM: &str = "
import os
a = os.open('a', os.O_RDONLY | os.O_DIRECTORY)
os.mkdir('../k/x', dir_fd=a); os.rename('../k/x', '../k/y', src_dir_fd=a, dst_dir_fd=a)
b = os.open('b', os.O_RDONLY | os.O_DIRECTORY)
os.fchdir(b); os.mkdir('../k/z')
c = os.open('../c', os.O_RDONLY | os.O_DIRECTORY)
os.stat('.', dir_fd=c)
";
    let place = temp_dir();
    for folder in ["a", "b", "c", "k"] {
        fs::create_dir(place.path().join(folder)).unwrap();
    }
    let wanted = place.path().join("k");
    let (reel, _out) = recorded(place.path(), &["--path", text(&wanted)], PROGRAM);
    assert_eq!(names(&reel, &["mkdirat", "mkdir", "rename", "renameat", "renameat2"]), ["../k/x", "../k/x", "../k/z"]);
    let opened = names(&reel, &["open", "openat"]);
    let here: Vec<_> = opened.iter().filter(|p| ["a", "b", "../c"].contains(&&***p)).collect();
    assert_eq!(here, ["a", "b"], "{opened:?}");
    let target = temp_dir();
    let report = replays_alike("names below k", reel.path(), target.path(), "max");
    assert!(report["summary"]["skipped"].get("descriptor opened out of sight").is_none(), "{}", report["summary"]);
}

/// Behind symbolic links, inside another root, and asked for by patterns seen from a folder whose name looks like one.
pub(crate) fn where_names_begin() {
    const PROGRAM: &str = "
import os
os.chdir('../lnk'); os.mkdir('q1'); os.rename('q1', 'q2')
os.chdir('../../lnk'); os.chdir('..'); os.mkdir('r1')
os.chdir('../other'); os.mkdir('o1')
os.chroot('../real'); os.mkdir('/c1'); os.mkdir('o2'); os.chdir('/../sub'); os.mkdir('q3')
";
    let place = temp_dir();
    let (plain, like_a_pattern) = (place.path().join("plain"), place.path().join("br[1]"));
    for base in [&plain, &like_a_pattern] {
        fs::create_dir_all(base.join("real/sub")).unwrap();
        fs::create_dir(base.join("other")).unwrap();
        std::os::unix::fs::symlink("real/sub", base.join("lnk")).unwrap();
    }
    let made = |base: &Path, filter: &str| {
        for name in ["real/sub/q2", "real/sub/q3", "real/r1", "real/c1", "other/o1", "other/o2"] {
            let _ = fs::remove_dir(base.join(name));
        }
        let (reel, _out) = recorded(&base.join("other"), &["--path", filter], PROGRAM);
        names(&reel, &["mkdir", "rename"])
    };
    assert_eq!(made(&plain, text(&plain.join("real"))), ["q1", "q1", "r1", "/c1", "q3"]);
    assert_eq!(made(&plain, text(&plain.join("other"))), ["o1", "o2"]);
    assert_eq!(made(&plain, "/c1"), [""; 0]);
    assert_eq!(made(&like_a_pattern, "../real/*/q*"), ["q1", "q1", "q3"]);
    assert_eq!(made(&like_a_pattern, "./o*"), ["o1", "o2"]);
}

/// A folder is meant wherever it is mounted: elsewhere at the start, and in a container.
pub(crate) fn through_other_mounts() {
    let (place, out) = (temp_dir(), temp_dir());
    let at = |name: &str| place.path().join(name);
    for name in ["folder/sub", "other", "later", "part", "hidden"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let mount = |what: &str, on: &str| {
        succeed(std::process::Command::new("mount").arg("--bind").arg(at(what)).arg(at(on)));
    };
    mount("folder", "other");
    mount("folder/sub", "part");
    // Nothing of the folder is seen there any more.
    mount("folder", "hidden");
    succeed(std::process::Command::new("mount").args(["-t", "tmpfs", "ioreel-test"]).arg(at("hidden")));
    let made = |name: &str, filter: &str, script: &str| {
        let reel = out.path().join(name);
        let options = ["--ops-only", "--settle", "none", "--path", filter];
        let done = run(record(&reel, &options, &["sh", "-c", script]).current_dir(place.path()));
        assert!(done.status.success(), "{}", describe(&done));
        names(&assert_valid(&reel), &["openat", "open", "mkdir"])
    };
    let later =
        "mount --bind folder later && cd later && echo x >new && mkdir sub/made && exec rmdir ../folder/sub/made";
    let all = [
        made("a", text(&at("folder")), "echo x >other/x; mkdir other/made part/new hidden/made; echo x >hidden/x"),
        made("b", text(&at("other")), "echo x >folder/x; mkdir folder/sub/x; echo x >later/none"),
        made("c", text(&at("folder")), &format!("unshare -m sh -c '{later}'")),
    ];
    for name in ["other", "part", "hidden", "hidden"] {
        succeed(std::process::Command::new("umount").arg(at(name)));
    }
    let files: Vec<Vec<&str>> =
        all.iter().map(|v| v.iter().map(|p| &**p).filter(|p| !p.starts_with('/')).collect()).collect();
    assert_eq!(files[0], ["other/x", "other/made", "part/new"]);
    assert_eq!(files[1], ["folder/x", "folder/sub/x"]);
    // A name alone, below a mount that came later, says nothing of the folder.
    assert_eq!(files[2], ["new"]);
}

/// Requests of Linux AIO are asked for as the calls are that they stand for, whatever becomes of those that bring them.
pub(crate) fn asynchronous_requests() {
    const PROGRAM: &str = "
import ctypes, os, struct
call = ctypes.CDLL(None).syscall
fd = os.open('f', os.O_CREAT | os.O_RDWR, 0o644)
context, events, data = ctypes.c_ulong(0), ctypes.create_string_buffer(64), ctypes.create_string_buffer(4096)
assert call(206, 64, ctypes.byref(context)) == 0
for i in range(20):
    block = struct.pack('QIIHhIQQqQII', 0, 0, 0, 1, 0, fd, ctypes.addressof(data), 100 + i, 4096 * i, 0, 0, 0)
    at = ctypes.create_string_buffer(block, 64)
    assert call(209, context, ctypes.c_long(1), ctypes.byref(ctypes.c_void_p(ctypes.addressof(at)))) == 1
    assert call(208, context, ctypes.c_long(1), ctypes.c_long(1), events, None) == 1
";
    let place = temp_dir();
    let of = |options: &[&str]| {
        let (reel, _out) = recorded(place.path(), options, PROGRAM);
        let ops: Vec<Op> = reel.read().unwrap();
        let requests: Vec<_> = ops.iter().filter(|o| o.source == "aio").map(|o| (o.len_bytes, o.ret)).collect();
        let calls = ops.iter().filter(|o| o.source == "syscall" && o.op.starts_with("io_")).count();
        let told = reel.manifest.left_out.get("unmappings of memory that is no recorded file's").copied();
        let kept = ops.iter().filter(|o| o.source == "syscall").count() as i64;
        (requests, calls, kept + super::left_out(&reel) + told.unwrap_or(0))
    };
    let all: Vec<_> = (0..20).map(|i| (Some(100 + i), Some(100 + i))).collect();
    let (requests, calls, whole) = of(&[]);
    assert_eq!((&requests, calls), (&all, 41));
    let nothing = Vec::new();
    let filters = [["--op", "read"], ["--min-latency", "10s"], ["--comm", "nobody"], ["--uid", "4711"]];
    for (filter, kept) in [(["--op", "write"], &all)].into_iter().chain(filters.map(|f| (f, &nothing))) {
        let (requests, calls, seen) = of(&filter);
        assert_eq!((&requests, calls), (kept, 0), "{filter:?}");
        // An interpreter's start is not the same twice to the last call.
        assert!((seen - whole).abs() < 20, "{filter:?}: {seen} of {whole} calls");
    }
}
