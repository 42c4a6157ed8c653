//! What cannot be done is said in one clear line, and what was recorded before it stays a reel.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use ioreel_traces::{Reel, manifest::State, rows::Op};

use crate::harness::{describe, ioreel, one_line, record, run, succeed, temp_dir, text};

pub(crate) fn no_privileges() {
    // The build folder may be out of reach for nobody.
    let dir = temp_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("ioreel");
    // By another process: a descriptor open for writing here could be inherited by a child of another test.
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program));
    let reel = dir.path().join("x.reel");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let mut command = Command::new("setpriv");
    command.args(nobody).arg(&program).args(["record", "-o", text(&reel), "--", "true"]);
    let line = one_line(command.current_dir("/"), 1);
    assert!(line.contains("root") || line.contains("CAP_"), "{line}");
    assert!(!reel.exists(), "an empty reel stayed behind");
}

/// Who could not be resumed is not stopped; a command's own processes can be.
pub(crate) fn lossless_without_the_right_to_resume() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let program = env!("CARGO_BIN_EXE_ioreel");
    let record = |rest: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-kill", "--inh-caps=-kill", program, "record", "--lossless", "-o", text(&reel)]);
        command.args(rest);
        command
    };
    for who in [&["--all"][..], &["--pid", "1"]] {
        let line = one_line(&mut record(who), 1);
        assert!(line.contains("--lossless") && line.contains("CAP_KILL") && !reel.exists(), "{line}");
    }
    succeed(&mut record(&["--", "true"]));
}

pub(crate) fn an_unknown_device() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    for device in ["/dev/no-such-disk", "/etc/passwd", "4095:1048575"] {
        let line = one_line(&mut record(&reel, &["--device", device], &["true"]), 1);
        assert!(line.contains(device), "{line}");
    }
}

pub(crate) fn an_unknown_process() {
    let out = temp_dir();
    let line = one_line(&mut ioreel(["record", "-o", text(&out.path().join("x.reel")), "--pid", "4194303"]), 1);
    assert!(line.contains("4194303"), "{line}");
}

pub(crate) fn a_reel_that_is_there() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    succeed(&mut record(&reel, &[], &["true"]));
    let before = fs::read(reel.join("manifest.json")).unwrap();
    let line = one_line(&mut record(&reel, &[], &["true"]), 1);
    assert!(line.contains("x.reel"), "{line}");
    assert_eq!(fs::read(reel.join("manifest.json")).unwrap(), before);
}

/// The disk fills up while the reel is written: the command runs on to its end, and the segments that were
/// closed before are a valid reel that says it is not whole.
pub(crate) fn a_full_disk() {
    let (small, out) = (temp_dir(), temp_dir());
    let mounted = ["-t", "tmpfs", "-o", "size=1m", "ioreel-test", text(small.path())];
    succeed(Command::new("mount").args(mounted));
    let reel = small.path().join("x.reel");
    let file = out.path().join("file");
    // A million and a half calls: more than fits.
    let script = format!("dd if=/dev/zero of={} bs=1 count=750000 2>/dev/null", text(&file));
    let output = run(&mut record(&reel, &[], &["sh", "-c", &script]));
    let ended = (output.status.code(), fs::metadata(&file).unwrap().len());
    let checked = run(&mut ioreel(["validate", text(&reel)]));
    let read = Reel::open(&reel).map(|r| (r.manifest.state, r.count::<Op>(), r.read::<Op>().unwrap().len()));
    let _ = Command::new("umount").arg(small.path()).status();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(ended, (Some(1), 750_000), "{}", describe(&output));
    assert!(!stderr.contains("panicked") && stderr.contains("No space left"), "{stderr}");
    assert!(checked.status.success(), "{}", describe(&checked));
    let (state, counted, found) = read.unwrap();
    assert_eq!(state, State::Truncated);
    assert_eq!(counted, found as i64);
    assert!(found > 100_000, "{found} operations were written");
}
