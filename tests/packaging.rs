//! The package's maintainer script, with programs in the place of those that change the machine.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Runs `postinst configure` where the group exists or not, and an administrator chose a mode or not; the changes it makes.
fn configure(group_exists: bool, mode_is_chosen: bool) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let program = |name: &str, script: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("getent", &format!("exit {}", if group_exists { 0 } else { 2 }));
    program("dpkg-statoverride", &format!("exit {}", if mode_is_chosen { 0 } else { 1 }));
    for name in ["groupadd", "chown", "chmod"] {
        program(name, &format!("echo {name} \"$@\" >>{}", log.display()));
    }
    let script = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("packaging/debian/postinst");
    let done = Command::new("/bin/sh").arg(script).arg("configure").env("PATH", dir.path()).status().unwrap();
    assert!(done.success());
    fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn only_the_group_may_run_the_packaged_program() {
    let restricted = ["chown root:ioreel /usr/bin/ioreel", "chmod 0750 /usr/bin/ioreel"];
    assert_eq!(configure(true, false), restricted);
    assert_eq!(configure(false, false)[0], "groupadd --system ioreel");
    assert_eq!(configure(false, false)[1..], restricted);
}

#[test]
fn the_administrators_choice_is_kept() {
    assert!(configure(true, true).is_empty());
}
