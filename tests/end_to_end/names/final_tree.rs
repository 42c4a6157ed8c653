//! What a recording holds of the tree that its command left.

use std::{collections::HashMap, fs, os::unix::fs::symlink, path::Path, process::Command};

use ioreel_traces::{Reel, manifest::State, rows::FinalName};

use crate::{
    harness::{
        assert_valid, ioreel,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
        record, run, succeed, temp_dir, text, tree,
    },
    replaying::replays::replays_to,
};

/// The rows of what is at and below `dir`, by path below it.
fn seen(reel: &Reel, dir: &Path) -> HashMap<String, FinalName> {
    let rows = reel.rows::<FinalName>().map(|row| row.unwrap());
    rows.filter_map(|row| Some((row.path.strip_prefix(text(dir))?.to_owned(), row))).collect()
}

fn kinds(seen: &HashMap<String, FinalName>, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| seen.get(*name).map_or("-".into(), |row| row.kind.to_string())).collect()
}

/// A directory of 300 files in two levels.
fn many_files(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    for i in 0..300 {
        fs::write(dir.join(if i % 2 == 0 { format!("{i}") } else { format!("sub/{i}") }), vec![b'x'; i]).unwrap();
    }
    fs::hard_link(dir.join("2"), dir.join("sub/hard")).unwrap();
    symlink("4", dir.join("soft")).unwrap();
}

/// What no snapshot saw, and what the workload moved as a whole, is in a replay.
pub(crate) fn moved_as_a_whole() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (mount.path().join("work"), out.path().join("moved.reel"));
    for dir in ["a", "b", "c/sub", "x", "y"] {
        many_files(&work.join(dir));
    }
    let script = "set -e; mv a a2; rm a2/2; mv a2 a3; echo x >a3/new; mkdir deep; mv b deep/b; mv deep deeper; mv c/sub c/other; \
                  python3 -c \"import ctypes,os; l=ctypes.CDLL(None); assert l.renameat2(-100,b'x',-100,b'y',2)==0\"; rm y/8; rm -r c/other";
    succeed(record(&reel, &["--snapshot-limit", "3,1s", "--settle", "none"], &["sh", "-c", script]).current_dir(&work));
    let found = assert_valid(&reel);
    assert!(!found.manifest.final_tree.unwrap().partial);
    let seen = seen(&found, &work);
    assert_eq!(kinds(&seen, &["/a3/new", "/a3/4", "/a3/2", "/deeper/b/sub/7"]), ["regular", "regular", "-", "regular"]);
    replays_to(Fs::Xfs, &reel, &work);
}

/// The reel, and what the recorder writes of itself, are no work of the command.
pub(crate) fn own_output() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (mount.path().join("work"), mount.path().join("work/own.reel"));
    fs::create_dir(&work).unwrap();
    let words = [
        "record",
        "-v",
        "-o",
        "own.reel",
        "--settle",
        "none",
        "--",
        "sh",
        "-c",
        "ls -l; echo a >f; echo of the command",
    ];
    let recorder = ioreel(words);
    let program = text(Path::new(recorder.get_program()));
    let line = "exec \"$0\" \"$@\" >log 2>&1";
    succeed(Command::new("sh").args(["-c", line, program]).args(words).current_dir(&work));
    let found = assert_valid(&reel);
    let seen = seen(&found, &work);
    assert_eq!(kinds(&seen, &["/f", "/log", "/own.reel", ""]), ["regular", "regular", "reel", "directory"]);
    assert_eq!((seen["/log"].size_bytes, seen["/f"].size_bytes, seen[""].complete), (None, Some(2), Some(1)));
    let moved = out.path().join("own.reel");
    succeed(Command::new("mv").args([text(&reel), text(&moved)]));
    let target = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
    succeed(&mut ioreel(["replay", text(&moved), "--target", text(target.path()), "--max-own-lateness", "1h"]));
}

/// Where something else is mounted at the end, or something still runs, nothing is looked at.
pub(crate) fn not_looked_at() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (mount.path().join("work"), out.path().join("mounted.reel"));
    fs::create_dir_all(work.join("m")).unwrap();
    fs::write(work.join("m/below"), "x").unwrap();
    let script = "mount -t tmpfs none m; echo x >m/inside; mkdir n; echo y >n/f";
    succeed(record(&reel, &["--settle", "none"], &["sh", "-c", script]).current_dir(&work));
    let found = assert_valid(&reel);
    let unmounted = run(Command::new("umount").arg(work.join("m")));
    assert!(unmounted.status.success());
    let seen = seen(&found, &work);
    assert_eq!(kinds(&seen, &["/m", "/m/inside", "/m/below", "/n/f"]), ["unseen", "-", "-", "regular"]);
    let target = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
    let output = run(&mut ioreel(["replay", text(&reel), "--target", text(target.path()), "--max-own-lateness", "1h"]));
    assert_eq!(output.status.code(), Some(16), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 names were not looked at"));

    let reel = out.path().join("going.reel");
    let going = ["sh", "-c", "echo x >f; exec sleep 30"];
    let mut recorder =
        record(&reel, &["--settle", "none", "--duration", "500ms"], &going).current_dir(&work).spawn().unwrap();
    // It waits for the command, which is not recorded any more.
    while Reel::open(&reel).map_or(true, |reel| reel.manifest.state == State::Recording) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    succeed(Command::new("pkill").args(["-P", &recorder.id().to_string()]));
    recorder.wait().unwrap();
    let found = assert_valid(&reel);
    assert_eq!((found.manifest.final_tree, found.count::<FinalName>()), (None, 0));
}

/// Work that a filter excludes is in no replay, which the verdict says.
pub(crate) fn filtered() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = mount.path().join("work");
    fs::create_dir(&work).unwrap();
    let verdict = |name: &str, options: &[&str], script: &str| {
        let reel = out.path().join(name).with_extension("reel");
        succeed(record(&reel, &[options, &["--settle", "none"]].concat(), &["sh", "-c", script]).current_dir(&work));
        assert_valid(&reel);
        let target = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
        let words = ["replay", text(&reel), "--target", text(target.path()), "--root", text(&work), "--json"];
        let output = run(ioreel(words).args(["--max-own-lateness", "1h"]));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report["verdict"]["sentence"].to_string())
    };
    let (status, sentence) = verdict("some", &["--path", "d/*"], "mkdir d; touch d/x a; mv d e");
    assert!(status.unwrap() & 8 != 0, "{sentence}");
    let (status, sentence) = verdict("none", &["--path", "e/*"], "cat e/x; echo seen");
    assert_eq!(status, Some(0), "{sentence}");
}

/// A directory with more names than the snapshot takes is whole in a replay, if the recorder has time to list the rest.
pub(crate) fn beyond_the_snapshot() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (mount.path().join("work"), out.path().join("beyond.reel"));
    many_files(&work.join("a/b"));
    many_files(&work.join("c"));
    let options = ["--snapshot-limit", "40,1s", "--settle", "none"];
    succeed(
        record(&reel, &options, &["sh", "-c", "echo x >>a/b/7; rm c/8; mv c/sub d; echo y >new"]).current_dir(&work),
    );
    let found = assert_valid(&reel);
    assert!(!found.manifest.snapshot.unwrap().partial, "{:?}", found.manifest.warnings);
    assert!(!found.manifest.warnings.iter().any(|w| w.contains("--snapshot-limit")));
    replays_to(Fs::Xfs, &reel, &work);
}

/// Subvolumes and mounts below the working directory belong to it, used or not.
pub(crate) fn below_the_working_directory() {
    let (mount, other, out) =
        (Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES), Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (mount.path().join("work"), out.path().join("below.reel"));
    fs::create_dir_all(work.join("bound")).unwrap();
    succeed(Command::new("btrfs").args(["subvolume", "create", text(&work.join("volume"))]));
    many_files(&work.join("volume/d"));
    many_files(&other.path().join("d"));
    succeed(Command::new("mount").args(["--bind", text(other.path()), text(&work.join("bound"))]));
    let recorded =
        run(record(&reel, &["--settle", "none"], &["sh", "-c", "echo x >f; rm volume/d/8 bound/d/8"])
            .current_dir(&work));
    let replayed = std::panic::catch_unwind(|| {
        assert!(recorded.status.success());
        assert_valid(&reel);
        let target = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
        let words =
            ["replay", text(&reel), "--target", text(target.path()), "--root", text(&work), "--max-own-lateness", "1h"];
        succeed(&mut ioreel(words));
        let copy = target.path().join(work.strip_prefix("/").unwrap());
        assert_eq!(tree(&copy.join("bound/d")), tree(&work.join("bound/d")));
        assert_eq!(tree(&copy.join("volume/d")), tree(&work.join("volume/d")));
    });
    succeed(Command::new("umount").arg(work.join("bound")));
    replayed.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
}

/// An anonymised recording looks at the tree, too.
pub(crate) fn hashed_names() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (mount.path().join("work"), out.path().join("hashed.reel"));
    many_files(&work.join("secret"));
    rustix::fs::lsetxattr(work.join("secret/4"), "user.hidden", b"word", rustix::fs::XattrFlags::empty()).unwrap();
    let script = "mv secret disclosed; rm disclosed/8; echo x >disclosed/fresh; chmod 600 disclosed/sub/9";
    succeed(record(&reel, &["--anonymize", "--settle", "none"], &["sh", "-c", script]).current_dir(&work));
    let found = assert_valid(&reel);
    let rows: Vec<FinalName> = found.read().unwrap();
    let all = format!("{rows:?}");
    assert!(!["secret", "disclosed", "fresh", "hidden", "word"].iter().any(|word| all.contains(word)));
    let marked: Vec<&FinalName> = rows.iter().filter(|r| r.xattrs.is_some()).collect();
    assert_eq!(marked.len(), 1);
    let dir = marked[0].path.rsplit_once('/').unwrap().0;
    let below = |kind: &str| rows.iter().filter(|r| r.path.starts_with(dir) && r.kind == *kind).count();
    assert_eq!((below("regular"), below("symlink"), below("directory")), (301, 1, 2));
    let target = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
    succeed(&mut ioreel(["replay", text(&reel), "--target", text(target.path()), "--max-own-lateness", "1h"]));
}
