//! Names that move, share a file or are only guessed at end where the workload left them.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use crate::reel::{Draft, replay, replay_same};

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
