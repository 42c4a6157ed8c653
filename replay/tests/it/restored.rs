//! `--restore`: only what changed is created again, and the next replay starts in the same state.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use ioreel_replay::{
    Config, Replay, ReplayError, Report, contents::data::DataOptions, prepare::restore::Memory,
    session::watch::Unwatched,
};

use crate::reel::{Draft, config};

fn run(config: Config) -> Report {
    Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap()
}

/// Kind, mode, owner, links, size, time, target, attributes and content of all names.
fn state(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut out = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        let mut below: Vec<PathBuf> = fs::read_dir(&at).unwrap().map(|e| e.unwrap().path()).collect();
        below.sort();
        for path in below {
            let m = fs::symlink_metadata(&path).unwrap();
            let content = match m.file_type() {
                t if t.is_file() => blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string(),
                t if t.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
                _ => String::new(),
            };
            let links = if m.is_dir() { 0 } else { m.nlink() };
            let (kind, first) = (
                m.mode(),
                numbers.entry(m.ino()).or_insert_with(|| path.strip_prefix(dir).unwrap().to_path_buf()).clone(),
            );
            let len = if m.is_dir() { 0 } else { m.len() };
            let mtime = if m.mtime() < 1_000_000 { m.mtime() } else { 0 };
            let mut names = vec![0; 4096];
            let n = rustix::fs::llistxattr(&path, &mut names[..]).unwrap_or(0);
            let attributes = String::from_utf8_lossy(&names[..n]).into_owned();
            let owner = (m.uid(), m.gid());
            out.insert(
                path.strip_prefix(dir).unwrap().to_path_buf(),
                format!("{kind:o} {owner:?} {links} {len} {mtime} {first:?} {attributes:?} {content}"),
            );
            if m.is_dir() {
                todo.push(path);
            }
        }
    }
    out
}

/// Changes some objects in every way and leaves most alone.
fn work() -> Draft {
    let mut d = Draft::new();
    for dir in ["/w", "/w/a", "/w/a/deep", "/w/b", "/w/empty"] {
        d.had(dir, "directory", 0).mtime_ns = Some(5_000_000_000);
    }
    for i in 0..20 {
        d.had(&format!("/w/a/{i:02}"), "regular", 1000 + i * 300).mtime_ns = Some(7_000_000_000);
    }
    d.had("/w/one", "regular", 5000).link_id = Some(1);
    d.had("/w/two", "regular", 5000).link_id = Some(1);
    let t = d.had("/w/hole", "regular", 1 << 20);
    t.alloc_bytes = Some(4096);
    d.had("/w/soft", "symlink", 2).target = Some("a/00".into());
    d.had("/w/other", "symlink", 2).target = Some("b".into());
    d.open(1, "a/00", libc::O_RDWR, 1, 3);
    d.io(1, "pwrite64", 3, 100, 10, 10);
    d.open(1, "hole", libc::O_RDWR, 2, 4);
    d.io(1, "pwrite64", 4, 500_000, 10, 10);
    d.on(1, "unlink", "a/01", 0);
    d.on(1, "rename", "a/02", 0).path2 = Some("a/03".into());
    d.on(1, "rename", "a/deep", 0).path2 = Some("b/moved".into());
    d.on(1, "chmod", "a/04", 0).mode = Some(0o600);
    d.on(1, "chmod", "b", 0).mode = Some(0o700);
    let o = d.on(1, "setxattr", "a/05", 0);
    (o.name, o.value, o.aux) = (Some("user.x".into()), Some("1".into()), Some(0));
    let o = d.on(1, "setxattr", "empty", 0);
    (o.name, o.value, o.aux) = (Some("user.x".into()), Some("1".into()), Some(0));
    d.on(1, "link", "a/06", 0).path2 = Some("b/linked".into());
    d.on(1, "unlink", "two", 0);
    d.on(1, "unlink", "soft", 0);
    d.on(1, "mkdir", "soft", 0).mode = Some(0o755);
    d.create(1, "soft/inside", 9, 5);
    d.on(1, "rmdir", "empty", 0);
    d.create(1, "empty", 10, 6);
    d.on(1, "mkdir", "new", 0).mode = Some(0o000);
    d.on(1, "mkdir", "new/er", 0).mode = Some(0o755);
    d.on(1, "symlink", "/w", 0).path2 = Some("b/up".into());
    d.on(1, "rename", "other", 0).path2 = Some("a/07".into());
    d.on(1, "truncate", "a/08", 0).len_bytes = Some(10);
    d
}

#[test]
fn the_second_begins_where_the_first_began() {
    let dir = tempfile::tempdir().unwrap();
    let reel = work().write(dir.path());
    for verify in [false, true] {
        let target = dir.path().join(format!("t{verify}"));
        let fresh = dir.path().join(format!("fresh{verify}"));
        [&target, &fresh].into_iter().for_each(|t| fs::create_dir(t).unwrap());
        let data = DataOptions { verify, ..DataOptions::default() };
        Replay::plan(Config { data, ..config(reel.clone(), &fresh) }).unwrap().prepare(|_| ()).unwrap();
        let expected = state(&fresh);
        let mut digests = Vec::new();
        for time in 0..3 {
            let memory = Some(Memory::default());
            let (again, kept) = (memory.clone(), memory.clone().unwrap());
            let report = run(Config { data, memory: again, restored: time > 0, ..config(reel.clone(), &target) });
            assert!(report.verdict.faithful, "{time}: {} {:#?}", report.verdict.sentence, report.verdict.tree);
            digests.push(report.verdict.tree.unwrap().full_digest);
            assert_ne!(state(&target), expected);
            let (done, failed) = kept.restore().unwrap();
            assert!(failed.is_empty(), "{failed:?}");
            let found = state(&target);
            let differ: Vec<_> = expected.iter().filter(|(p, s)| found.get(*p) != Some(s)).collect();
            assert_eq!(found, expected, "{differ:#?}");
            // Nine of the twenty files, the hard link, the symbolic links and the removed directories. The rest is
            // untouched.
            assert!((10..=16).contains(&done.made) && done.kept >= 11, "{done:?}");
        }
        digests.dedup();
        assert_eq!(digests.len(), 1);
    }
}

#[test]
fn links_planted_in_the_target_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (target, outside) = (dir.path().join("t"), dir.path().join("outside"));
    [&target, &outside].into_iter().for_each(|t| fs::create_dir(t).unwrap());
    fs::write(outside.join("mine"), "precious").unwrap();
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/d", "directory", 0);
    d.had("/w/d/mine", "regular", 100);
    d.on(1, "mkdir", "made", 0).mode = Some(0o755);
    let reel = d.write(dir.path());
    let memory = Memory::default();
    run(Config { memory: Some(memory.clone()), ..config(reel, &target) });
    // A directory is replaced with a link that leads out.
    fs::remove_dir_all(target.join("w/d")).unwrap();
    symlink(&outside, target.join("w/d")).unwrap();
    symlink(&outside, target.join("w/made/out")).unwrap();
    let (_, failed) = memory.restore().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(fs::read_to_string(outside.join("mine")).unwrap(), "precious");
    assert!(target.join("w/d/mine").metadata().unwrap().len() == 100 && !target.join("w/made").exists());
}

#[test]
fn what_is_not_all_known_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("mine"), "precious").unwrap();
    let reel = work().write(dir.path());
    for (force, skip_prepare) in [(true, false), (false, true)] {
        let memory = Some(Memory::default());
        let refused = Replay::plan(Config { memory, force, skip_prepare, ..config(reel.clone(), &target) });
        assert!(matches!(refused.unwrap_err(), ReplayError::Foreign));
    }
    assert!(target.join("mine").exists());
}
