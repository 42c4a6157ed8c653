//! Names that move, are hard links or only derived: the final tree must be that of the workload.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use crate::reel::{Draft, THREAD, replay, replay_same};

fn exists(dir: &tempfile::TempDir, path: &str) -> bool {
    fs::symlink_metadata(dir.path().join("t/w").join(path)).is_ok()
}

fn ino(dir: &Path, name: &str) -> u64 {
    fs::metadata(dir.join("t/w").join(name)).unwrap().ino()
}

#[test]
fn a_link_renamed_to_its_file_stays() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "c", 1, 3);
    d.on(1, "link", "c", 0).path2 = Some("e".into());
    d.on(1, "rename", "c", 0).path2 = Some("e".into());
    d.on(1, "unlink", "c", 0);
    d.create(1, "c", 2, 4);
    let dir = replay_same(d);
    assert_ne!(ino(dir.path(), "c"), ino(dir.path(), "e"));
}

#[test]
fn a_listed_link_renamed_to_its_file_stays() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/a", "regular", 5).link_id = Some(9);
    d.had("/w/b", "regular", 5).link_id = Some(9);
    d.on(1, "rename", "a", 0).path2 = Some("b".into());
    d.on(1, "unlink", "a", 0);
    let dir = replay_same(d);
    assert!(!exists(&dir, "a") && exists(&dir, "b"));
}

#[test]
fn a_directory_moved_into_itself_is_left_out() {
    for flags in [None, Some(1), Some(2)] {
        for (from, to) in [("/aa/b", "/aa/b/c"), ("/aa/b/c", "/aa/b"), ("/aa", "/aa/b/c")] {
            let mut d = Draft::new();
            let o = d.on(1, if flags.is_some() { "renameat2" } else { "rename" }, from, 0);
            (o.path2, o.dirfd2, o.flags) = (Some(to.into()), Some(-100), flags);
            let (_, report) = replay(d);
            assert_eq!(report.summary.skipped.get("result that cannot be"), Some(&1), "{from} {to} {flags:?}");
        }
    }
}

#[test]
fn exchanged_directories_have_each_others_entries() {
    for by_descriptor in [false, true] {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        d.had("/w/d1", "directory", 0);
        d.had("/w/d1/x", "regular", 2);
        d.had("/w/d2", "directory", 0);
        d.know(9, "directory");
        d.on(1, "stat", "d2/x", -2);
        d.open(1, "d2", libc::O_RDONLY | libc::O_DIRECTORY, 9, 3);
        let o = d.on(1, "renameat2", "d1", 0);
        (o.path2, o.dirfd2, o.flags) = (Some("d2".into()), Some(-100), Some(2));
        if by_descriptor {
            // The descriptor follows the directory, which is d1 now.
            d.create(1, "y", 1, 4).dirfd = Some(3);
            d.open(1, "d1/y", libc::O_RDONLY, 1, 5);
        } else {
            d.create(1, "d1/y", 1, 4);
        }
        d.open(1, "d2/x", libc::O_RDONLY, 10, 6);
        let dir = replay_same(d);
        assert!(exists(&dir, "d2/x") && exists(&dir, "d1/y") && !exists(&dir, "d1/x") && !exists(&dir, "d2/y"));
    }
}

/// A derived name about which the recorder knows nothing else.
fn guess(d: &mut Draft, path: &str) {
    let t = d.had(path, "regular", 0);
    (t.origin, t.size_bytes, t.alloc_bytes, t.mode) = ("derived".into(), None, None, None);
}

#[test]
fn the_kind_shown_under_a_new_name_is_prepared_under_the_old() {
    type Evidence = fn(&mut Draft);
    let evidence: [(&str, Evidence); 6] = [
        ("open", |d| {
            let o = d.on(1, "openat", "new", 3);
            (o.flags, o.aux, o.ofd) = (Some(libc::O_DIRECTORY.into()), Some(0), Some(1));
        }),
        ("list", |d| {
            let o = d.on(1, "openat", "new", 3);
            (o.flags, o.aux, o.ofd) = (Some(0), Some(0), Some(1));
            d.fd(1, "getdents64", 3, 48).len_bytes = Some(32768);
        }),
        ("enter", |d| {
            d.on(1, "chdir", "new", 0);
        }),
        ("make below", |d| {
            d.on(1, "mkdir", "new/sub", 0).mode = Some(0o755);
        }),
        ("link below", |d| {
            d.create(1, "file", 1, 3);
            d.on(1, "link", "file", 0).path2 = Some("new/other".into());
        }),
        ("read link", |d| {
            d.on(1, "readlink", "new", 7).len_bytes = Some(64);
        }),
    ];
    for (what, tell) in evidence {
        for listed in [false, true] {
            let mut d = Draft::new();
            d.had("/w", "directory", 0);
            if listed {
                guess(&mut d, "/w/old");
            }
            d.on(1, "rename", "old", 0).path2 = Some("new".into());
            tell(&mut d);
            let (dir, report) = replay(d);
            assert_eq!(report.verdict.results.classes.wrong, 0, "{what}: {:#?}", report.verdict.results.differences);
            let meta = fs::symlink_metadata(dir.path().join("t/w/new")).unwrap();
            assert_eq!((meta.is_dir(), meta.is_symlink()), (what != "read link", what == "read link"), "{what}");
        }
    }
}

#[test]
fn an_entry_made_up_for_a_full_directory_gives_way_to_a_known_one() {
    for known in [false, true] {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        d.had("/w/full", "directory", 0);
        guess(&mut d, "/w/full/.unseen-entry");
        d.on(1, "rmdir", "full", -39);
        if known {
            d.on(1, "unlink", "full/f", 0);
            d.on(1, "rmdir", "full", 0);
        }
        let dir = replay_same(d);
        assert_eq!(exists(&dir, "full/.unseen-entry"), !known);
    }
}

#[test]
fn in_a_directory_that_is_not_replayed_nothing_relative_is() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "chdir", "/proc/self", 0);
    d.on(1, "stat", "status", 0).mode = Some(0o100_444);
    d.on(1, "chdir", "..", 0);
    d.on(1, "unlink", "nothing", -1);
    d.on(1, "chdir", "/w", 0);
    d.create(1, "f", 1, 3);
    let (dir, report) = replay(d);
    assert_eq!(
        (report.done, report.verdict.results.classes.wrong),
        (2, 0),
        "{:#?}",
        report.verdict.results.differences
    );
    assert_eq!(report.summary.skipped.get("under /proc"), Some(&4));
    assert!(exists(&dir, "f") && !exists(&dir, "status"));
}

#[test]
fn refusals_tell_what_is_there() {
    let refused = |e: i32| -i64::from(e);
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "readlink", "program", refused(libc::EINVAL)).len_bytes = Some(4096);
    d.on(1, "readlink", "/elsewhere/deep/program", refused(libc::EINVAL)).len_bytes = Some(4096);
    d.on(1, "unlink", "folder", refused(libc::EISDIR));
    d.on(1, "open", "other-folder", refused(libc::EISDIR)).flags = Some(libc::O_WRONLY.into());
    d.on(1, "rmdir", "file", refused(libc::ENOTDIR));
    d.on(1, "chdir", "no-folder", refused(libc::ENOTDIR));
    d.on(1, "stat", "through/it", refused(libc::ENOTDIR));
    d.on(1, "openat", "../side/it", refused(libc::ENOTDIR)).flags = Some(0);
    let o = d.on(1, "getxattr", "plain", refused(libc::ENODATA));
    (o.name, o.len_bytes) = (Some("user.a".into()), Some(100));
    let dir = replay_same(d);
    assert!(["program", "folder", "other-folder", "file", "no-folder", "plain"].iter().all(|name| exists(&dir, name)));
}

/// The kernel refuses such opens before it looks the name up.
#[test]
fn a_slash_behind_a_name_to_be_made_proves_nothing() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for flags in [libc::O_CREAT | libc::O_WRONLY, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR] {
        d.on(1, "openat", "none/", -i64::from(libc::EISDIR)).flags = Some(flags.into());
    }
    d.on(1, "symlink", "target/", 0).path2 = Some("link".into());
    d.on(1, "openat", "link", -i64::from(libc::EISDIR)).flags = Some((libc::O_CREAT | libc::O_WRONLY).into());
    let dir = replay_same(d);
    assert!(!exists(&dir, "none") && !exists(&dir, "target"));
}

/// The entry could be a socket.
#[test]
fn a_directory_with_what_nobody_is_known_to_have_made() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.on(1, "mkdir", "d", 0).mode = Some(0o777);
    d.on(1, "rmdir", "d", -i64::from(libc::ENOTEMPTY));
    d.on(1, "unlink", "d/socket", 0);
    d.on(1, "rmdir", "d", 0);
    let (dir, report) = replay(d);
    let v = &report.verdict;
    assert_eq!(v.left_out.examples, ["unlink /w/d/socket: name made out of sight"]);
    assert_eq!(v.status, 16, "{} {:#?}", v.sentence, v.results.differences);
    assert_eq!(report.summary.skipped.get("name made out of sight"), Some(&2));
    assert!(!exists(&dir, "d"));
}

#[test]
fn nothing_leads_up_from_nowhere() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "file", 1, 3);
    d.on(1, "stat", "folder", -2);
    d.on(1, "unlink", "folder/../file", -2);
    d.on(1, "unlink", "file", 0);
    d.on(1, "unlink", "file", -2);
    let dir = replay_same(d);
    assert!(!exists(&dir, "file"));
}

#[test]
fn what_is_listed_below_a_missing_directory_was_made_later() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    // The recorder looked after the workload had created them.
    d.had("/w/d", "directory", 0).origin = "first_touch".into();
    d.had("/w/d/late", "regular", 5).origin = "first_touch".into();
    d.had("/w/d/sub/later", "regular", 5).origin = "first_touch".into();
    d.on(1, "stat", "d", -2);
    d.on(1, "mkdir", "d", 0).mode = Some(0o755);
    d.on(1, "mkdir", "d/sub", 0).mode = Some(0o755);
    d.create(1, "d/late", 1, 3).flags = Some(i64::from(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR));
    d.on(1, "symlink", "x", 0).path2 = Some("d/sub/later".into());
    replay_same(d);
}

#[test]
fn a_directory_that_a_path_leads_through_is_there() {
    // Nothing else proves that it exists. The second one is created shortly before its use.
    let mut d = Draft::new();
    d.fork(1, 2, THREAD);
    d.open(1, "unseen/../f", libc::O_RDONLY, 1, 3);
    d.on(1, "stat", "made/../f", -2);
    d.on(2, "mkdir", "made", 0);
    d.on(1, "stat", "made/../f", 0).mode = Some(0o100_644);
    let (dir, report) = replay(d);
    assert!(report.verdict.faithful, "{}", report.verdict.sentence);
    assert!(dir.path().join("t/w/unseen").is_dir());
}

#[test]
fn a_path_through_what_is_missing_says_nothing_of_where_it_leads() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/keep", "regular", 0);
    d.on(1, "mkdir", "made", 0);
    for seen in ["keep", "made"] {
        d.on(1, "stat", &format!("missing/../{seen}"), -2);
        d.on(1, "rename", seen, 0).path2 = Some(format!("{seen}-too").into());
    }
    d.on(1, "mkdir", "made", 0);
    let target = replay_same(d);
    let mut names: Vec<_> = fs::read_dir(target.path().join("t/w")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["keep-too", "made", "made-too"]);
}
