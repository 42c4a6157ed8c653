//! Whose a reel is, and what others may do to its folder while it is made.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use ioreel_traces::{Reel, manifest::State, rows::Op};

use crate::harness::{assert_valid, describe, finish, ioreel, record, run, succeed, temp_dir, text, wait_for};

/// All entries of a reel, and itself.
fn entries(reel: &Path) -> Vec<PathBuf> {
    let mut all = vec![reel.to_owned()];
    let mut at = 0;
    while let Some(path) = all.get(at) {
        if path.is_dir() {
            let listed: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
            all.extend(listed);
        }
        at += 1;
    }
    all
}

/// A recording under sudo, without a umask, in a folder that everybody may write to.
pub(crate) fn a_reel_is_its_owners_alone() {
    let out = tempfile::tempdir_in("/dev/shm").unwrap();
    let reel = out.path().join("x.reel");
    // While it is recorded, too.
    let script = format!("umask 0; ls -ldn {0} >{1}; echo x >{1}.data", text(&reel), text(&out.path().join("seen")));
    let mut command = record(&reel, &["--content", "full"], &["sh", "-c", &script]);
    command.env("SUDO_UID", "12345").env("SUDO_GID", "12346");
    // SAFETY: umask is async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::umask(0);
            Ok(())
        });
    }
    succeed(&mut command);
    let seen = fs::read_to_string(out.path().join("seen")).unwrap();
    assert!(seen.starts_with("drwx------ ") && seen.contains(" 12345 12346 "), "{seen}");
    let all = entries(&reel);
    assert!(all.len() > 8, "{all:?}");
    for path in all {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mode = if meta.is_dir() { 0o700 } else { 0o600 };
        let found = (meta.mode() & 0o7777, meta.uid(), meta.gid());
        assert_eq!(found, (mode, 12345, 12346), "{path:?}: {:o}", found.0);
    }
    assert_valid(&reel);
}

/// The command moves the reel away and lays a link to another folder in its place: the recorder goes on in the folder that
/// it made, and says so.
pub(crate) fn a_reel_replaced_meanwhile() {
    let out = temp_dir();
    let [reel, moved, other] = ["x.reel", "moved.reel", "other"].map(|name| out.path().join(name));
    fs::create_dir(&other).unwrap();
    let script =
        format!("mv {0} {1}; ln -s {2} {0}; sleep 0.2; cat /proc/version", text(&reel), text(&moved), text(&other));
    let output = run(&mut record(&reel, &["--no-snapshot"], &["sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("x.reel: was moved or replaced while it was written"), "{stderr}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    let found = assert_valid(&moved);
    assert_eq!(found.manifest.state, State::Complete);
    assert!(found.read::<Op>().unwrap().iter().any(|op| op.op == "read"));
    // What was there when a recording did not begin stays, too.
    let output = run(&mut record(&reel, &[], &["true"]));
    assert!(output.status.code() == Some(1) && other.exists(), "{}", describe(&output));
    assert!(Reel::open(&reel).is_err());
}

/// A reel that is removed ends the recording at once, though nothing is written to it.
pub(crate) fn a_reel_removed_from_a_quiet_recording() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let pid = std::process::id().to_string();
    let mut command = ioreel(["record", "--no-snapshot", "--settle", "none", "--pid", &pid, "-o", text(&reel)]);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("the reel", || reel.join("manifest.json").exists().then_some(()));
    // It may not have begun yet.
    sleep(Duration::from_secs(3));
    fs::remove_dir_all(&reel).unwrap();
    let begun = Instant::now();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    assert!(!reel.exists());
}
