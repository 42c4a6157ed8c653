//! `--map`: other directories in place of those of the reel.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ioreel_replay::{Config, Replay, ReplayError, Report, run::pace::Pace, session::watch::Unwatched};

use crate::reel::{Draft, at, config};

fn dirs() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (target, other) = (dir.path().join("t"), dir.path().join("o"));
    fs::create_dir(&target).unwrap();
    fs::create_dir(&other).unwrap();
    (dir, target, other)
}

fn run(config: Config) -> Report {
    let report = Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap();
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    report
}

/// Works in /w and in /w/log, whose files are reached by various paths.
fn work() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/log", "directory", 0);
    d.had("/w/log/old", "regular", 5000);
    d.had("/w/link", "symlink", 3).target = Some("log".into());
    d.create(1, "log/new", 1, 3);
    d.io(1, "write", 3, 0, 3000, 3000);
    d.on(1, "chdir", "link", 0);
    d.on(1, "stat", "../log/new", 0).mode = Some(0o100644);
    d.on(1, "rename", "old", 0).path2 = Some("/w/link/older".into());
    d.create(1, "../beside", 2, 4);
    d
}

#[test]
fn a_directory_takes_the_place_of_the_reels() {
    let (dir, target, other) = dirs();
    let reel = work().write(dir.path());
    let maps = vec![("/w/log/".into(), other.clone())];
    let report = run(Config { maps, ..config(reel.clone(), &target) });
    assert_eq!(fs::metadata(other.join("new")).unwrap().len(), 3000);
    assert_eq!(fs::metadata(other.join("older")).unwrap().len(), 5000);
    assert!(target.join("w/beside").exists() && !target.join("beside").exists());
    assert_eq!(fs::read_dir(target.join("w/log")).unwrap().count(), 0, "all is in the other");
    // The final tree is the same as without `--map`.
    let plain = dir.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let without = run(config(reel, &plain));
    let digest = |r: &Report| r.verdict.tree.clone().unwrap().full_digest;
    assert_eq!(digest(&report), digest(&without));
}

/// The kernel copies only within one file system.
#[test]
fn copies_go_onto_another_file_system() {
    let (dir, target, _) = dirs();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut d = work();
    d.create(1, "/w/a", 51, 30);
    d.io(1, "write", 30, 0, 50_000, 50_000);
    for (name, file, fd, aux) in [("/w/log/b", 52, 31, 0), ("/w/log/c", 53, 32, 2)] {
        d.create(1, name, file, fd);
        let o = d.op(1, "copy_file_range", 50_000);
        (o.fd, o.fd2, o.len_bytes) = (Some(30), Some(fd as i32), Some(1 << 30));
        (o.offset_bytes, o.offset2_bytes, o.aux, o.file, o.file2) = (Some(0), Some(0), Some(aux), Some(51), Some(file));
    }
    let reel = d.write(dir.path());
    run(Config { maps: vec![("/w/log".into(), memory.path().into())], ..config(reel, &target) });
    let same = fs::read(target.join("w/a")).unwrap();
    assert!(same == fs::read(memory.path().join("b")).unwrap() && same == fs::read(memory.path().join("c")).unwrap());
}

#[test]
fn what_root_leaves_out_is_in_where_it_is_mapped() {
    let (dir, target, other) = dirs();
    let mut d = Draft::new();
    d.on(1, "mkdir", "/a/in", 0).mode = Some(0o755);
    d.on(1, "mkdir", "/usr/mapped", 0).mode = Some(0o755);
    d.on(1, "mkdir", "/out/side", 0).mode = Some(0o755);
    let reel = d.write(dir.path());
    let maps = vec![("/usr".into(), other.clone())];
    let report = run(Config { maps, roots: vec!["/a".into()], ..config(reel, &target) });
    assert_eq!((report.done, report.summary.skipped["outside --root"]), (2, 1));
    assert!(target.join("a/in").is_dir() && other.join("mapped").is_dir() && !target.join("out").exists());
}

#[test]
fn it_may_lie_in_the_target() {
    let (dir, target, _) = dirs();
    for (name, from) in [("usr", "/usr"), ("deep/store", "/w/log")] {
        let target = target.join(name.replace('/', "-"));
        let inner = target.join(name);
        fs::create_dir_all(&inner).unwrap();
        let mut d = work();
        d.on(1, "mkdir", "/usr/made", 0).mode = Some(0o755);
        let reel = d.write(&{
            let at = dir.path().join(from.replace('/', "-"));
            fs::create_dir(&at).unwrap();
            at
        });
        run(Config { maps: vec![(from.into(), inner.clone())], ..config(reel, &target) });
        assert!(fs::read_dir(&inner).unwrap().count() > 0);
    }
}

#[test]
fn links_do_not_lead_out_of_it() {
    let (dir, target, other) = dirs();
    let secret = dir.path().join("secret");
    fs::write(&secret, "x").unwrap();
    let mut d = Draft::new();
    d.had("/m", "directory", 0);
    let text = secret.to_str().unwrap();
    d.on(1, "symlink", text, 0).path2 = Some("/m/abs".into());
    d.on(1, "symlink", "../../../../../../../../../../secret", 0).path2 = Some("/m/up".into());
    d.on(1, "truncate", "/m/abs", -2).len_bytes = Some(0);
    d.on(1, "truncate", "/m/up", -2).len_bytes = Some(0);
    d.on(1, "truncate", "/m/../../secret", -2).len_bytes = Some(0);
    let reel = d.write(dir.path());
    run(Config { maps: vec![("/m".into(), other)], ..config(reel, &target) });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "x");
}

#[test]
fn nonsense_is_refused_before_anything_is_made() {
    let (dir, target, other) = dirs();
    let reel = work().write(dir.path());
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "x").unwrap();
    let refused = |maps: &[(&str, &Path)]| {
        let maps = maps.iter().map(|(from, to)| (from.into(), to.to_path_buf())).collect();
        let why = Replay::plan(Config { maps, ..config(reel.clone(), &target) }).unwrap_err();
        assert!(!why.to_string().contains('\n'), "{why}");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        why
    };
    for from in ["relative", "/w/../etc", "/", "/proc/self", "/sys", "/dev/null"] {
        assert!(matches!(refused(&[(from, &other)]), ReplayError::Map { .. }), "{from}");
    }
    assert!(matches!(refused(&[("/a", &other), ("/b", &other)]), ReplayError::Map { .. }));
    assert!(matches!(refused(&[("/a", &other), ("/a", &full)]), ReplayError::NotEmpty { .. }));
    assert!(matches!(refused(&[("/a", &target)]), ReplayError::Map { .. }));
    assert!(matches!(refused(&[("/a", dir.path())]), ReplayError::NotEmpty { .. }));
    assert!(matches!(refused(&[("/a", Path::new("/no/such"))]), ReplayError::Target { .. }));
}

#[test]
fn what_is_left_out_takes_its_time() {
    for pace in [Pace::Think, Pace::Original] {
        let (dir, target, _) = dirs();
        let mut d = Draft::new();
        d.on(1, "mkdir", "/a/first", 0).mode = Some(0o755);
        d.on(1, "mkdir", "/out/side", 0).mode = Some(0o755);
        d.ops.last_mut().unwrap().dur_ns = 30_000_000;
        d.pause(30_000_000);
        d.on(1, "mkdir", "/a/second", 0).mode = Some(0o755);
        let reel = d.write(dir.path());
        let report = run(Config { clockwork: at(pace), roots: vec!["/a".into()], ..config(reel, &target) });
        assert_eq!(report.done, 2);
        assert!(report.elapsed_ns >= 30_000_000, "{pace:?}: {}", report.elapsed_ns);
    }
}
