//! `--daemon`: in the background, and as systemd keeps it.

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use ioreel_traces::{Manifest, Reel, manifest::State, rows::Op};

use crate::harness::{
    assert_valid, describe, finish, ioreel, one_line, patience, succeed, temp_dir, terminal::Terminal, text, wait_for,
};

const UNIT: &str = "packaging/systemd/ioreel-record.service";

/// A shell that writes `file` once it is told to, and ends when its input does.
fn worker(file: &Path) -> Child {
    let script = format!("read x; echo data >{}; read x", text(file));
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: to a recorder that this test started.
    unsafe { libc::kill(pid as i32, signal) };
}

fn reels(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut reels: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "reel")).collect();
    reels.sort();
    reels
}

/// Fields of /proc/PID/stat after the name: state, parent, group, session.
fn stat(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').map(str::to_owned).collect()
}

/// Neither a link at one of its names nor a folder that others may write leads it to files of somebody else's choosing.
pub(crate) fn names_laid_by_others() {
    let out = temp_dir();
    let other = out.path().join("other");
    fs::write(&other, "untouched").unwrap();
    for name in ["ioreel.pid", "ioreel.log"] {
        for link in [
            |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to),
            |from: &Path, to: &Path| fs::hard_link(from, to),
        ] {
            let dir = tempfile::tempdir_in(out.path()).unwrap();
            link(&other, &dir.path().join(name)).unwrap();
            let line = one_line(&mut ioreel(["record", "--daemon", "-o", text(dir.path()), "--pid", "1"]), 1);
            assert!(line.contains(name) && line.contains("regular file"), "{line}");
        }
    }
    let dir = tempfile::tempdir_in(out.path()).unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let line = one_line(&mut ioreel(["record", "--daemon", "-o", text(dir.path()), "--pid", "1"]), 1);
    assert!(line.contains("any user may write here"), "{line}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
}

/// Leaves the terminal, records, refuses a second one, ends whole at SIGTERM.
pub(crate) fn in_the_background() {
    let out = temp_dir();
    let (dir, file) = (out.path().join("reels"), out.path().join("file"));
    let mut worker = worker(&file);
    let pid = worker.id().to_string();
    let start = || ioreel(["record", "--daemon", "-o", text(&dir), "--pid", &pid, "--settle", "none"]);
    // What it says before it has begun goes to whoever starts it.
    let refused = one_line(&mut ioreel(["record", "--daemon", "-o", text(&dir), "--pid", "999999999"]), 1);
    assert!(refused.contains("no such process"), "{refused}");
    assert_eq!(reels(&dir), Vec::<PathBuf>::new());

    succeed(&mut start());
    let recorder: u32 = fs::read_to_string(dir.join("ioreel.pid")).unwrap().trim().parse().unwrap();
    let own = stat(recorder);
    assert_ne!(own[3], stat(std::process::id())[3], "a session of its own");
    assert_ne!(own[3], recorder.to_string(), "which it does not lead");
    assert_eq!(fs::read_link(format!("/proc/{recorder}/fd/0")).unwrap(), Path::new("/dev/null"));
    assert_eq!(fs::read_link(format!("/proc/{recorder}/cwd")).unwrap(), Path::new("/"));
    let second = one_line(&mut start(), 1);
    assert!(second.contains(&format!("process {recorder} is already recording into this folder")), "{second}");

    let input = worker.stdin.as_mut().unwrap();
    input.write_all(b"go\n").unwrap();
    wait_for("the work", || fs::read(&file).is_ok_and(|b| b == b"data\n").then_some(()));
    kill(recorder, libc::SIGTERM);
    wait_for("the recorder's end", || fs::read_to_string(dir.join("ioreel.pid")).unwrap().is_empty().then_some(()));
    let found = reels(&dir);
    assert_eq!(found.len(), 1, "{found:?}");
    let name = found[0].file_name().unwrap().to_str().unwrap();
    assert!(name.len() == "20260102T030405Z.reel".len() && name.contains('T'), "{name}");
    let reel = assert_valid(&found[0]);
    assert_eq!((reel.manifest.state, reel.manifest.ended.as_str()), (State::Complete, "signal"));
    let ops = reel.read::<Op>().unwrap();
    assert!(ops.iter().any(|o| o.op == "write" && o.ret == Some(5)), "{} operations", ops.len());
    let log = fs::read_to_string(dir.join("ioreel.log")).unwrap();
    assert!(log.contains("records into") && log.contains("ending"), "{log}");

    // The folder is free again. Begun from a terminal, it draws nothing where nobody looks.
    let mut terminal = Terminal::run(&mut start(), 24, 80);
    assert!(terminal.ends().success(), "{}", terminal.text());
    sleep(Duration::from_millis(1200));
    let log = fs::read_to_string(dir.join("ioreel.log")).unwrap();
    assert!(!log.contains(['\r', '\x1b']), "{log}");
    let again: u32 = fs::read_to_string(dir.join("ioreel.pid")).unwrap().trim().parse().unwrap();
    kill(again, libc::SIGTERM);
    wait_for("the second reel", || {
        let complete = |p: &PathBuf| Manifest::read(p).is_ok_and(|m| m.state == State::Complete);
        (reels(&dir).len() == 2 && reels(&dir).iter().all(complete)).then_some(())
    });
    drop(worker.stdin.take());
    worker.wait().unwrap();
}

/// A signal to whoever starts it, or to itself, before the recording has begun: nothing is left, and both say so. To load
/// the probes takes half a second and more.
pub(crate) fn a_signal_while_it_begins() {
    for (after_ms, to_recorder) in [(0, false), (0, true), (100, false), (100, true)] {
        let out = temp_dir();
        let mut start = ioreel(["record", "--daemon", "--all", "--no-snapshot", "--ops-only"]);
        let start = start.args(["-o", text(out.path())]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let starting = start.spawn().unwrap();
        let recorder: u32 =
            wait_for("the recorder", || fs::read_to_string(out.path().join("ioreel.pid")).ok()?.trim().parse().ok());
        sleep(Duration::from_millis(after_ms));
        kill(if to_recorder { recorder } else { starting.id() }, libc::SIGTERM);
        let ended = starting.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(128 + libc::SIGTERM), "{ended:?}");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(told.lines().count() == 1 && told.contains("nothing was recorded"), "{told}");
        assert!(!Path::new(&format!("/proc/{recorder}")).exists());
        assert_eq!(reels(out.path()), Vec::<PathBuf>::new());
    }
}

/// Without a place for what it says it does not begin.
pub(crate) fn a_log_that_cannot_be_written() {
    let out = temp_dir();
    fs::create_dir(out.path().join("ioreel.log")).unwrap();
    let refused = one_line(&mut ioreel(["record", "--daemon", "--all", "-o", text(out.path())]), 1);
    assert!(refused.contains("ioreel.log") && refused.contains("opening a regular file"), "{refused}");
    assert_eq!(reels(out.path()), Vec::<PathBuf>::new());
    assert!(fs::read_to_string(out.path().join("ioreel.pid")).unwrap().is_empty());
}

/// The words of the unit's command, its variable resolved.
fn command_of_unit(unit: &str) -> Vec<String> {
    let line = |start: &str| unit.lines().find_map(|l| l.strip_prefix(start)).unwrap();
    let options = line("Environment=\"IOREEL_OPTIONS=").trim_end_matches('"').replace("%%", "%");
    let command = line("ExecStart=").replace("$IOREEL_OPTIONS", &options);
    command.split(' ').map(str::to_owned).collect()
}

/// The unit's own command with the unit's own capabilities: it stays in the foreground, tells when it has begun and
/// when it ends.
pub(crate) fn as_systemd_keeps_it() {
    let unit = fs::read_to_string(UNIT).unwrap();
    let dir = temp_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (program, reels_dir, socket) = (dir.path().join("ioreel"), dir.path().join("reels"), dir.path().join("notify"));
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program));
    let listener = UnixDatagram::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_read_timeout(Some(patience(Duration::from_secs(120)))).unwrap();
    let told = || {
        let mut bytes = [0; 4096];
        let n = listener.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    };

    let words = command_of_unit(&unit);
    assert_eq!(words[..3], ["/usr/local/bin/ioreel", "record", "--daemon"]);
    let capabilities = unit.lines().find_map(|l| l.strip_prefix("AmbientCapabilities=")).unwrap();
    let capabilities: Vec<String> =
        capabilities.split(' ').map(|c| format!("+{}", c.strip_prefix("CAP_").unwrap().to_lowercase())).collect();
    let capabilities = format!("-all,{}", capabilities.join(","));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")]);
    command.arg(&program).args(words[1..].iter().map(|w| match w.as_str() {
        "/var/lib/ioreel" => text(&reels_dir),
        w => w,
    }));
    // Other tests' file systems are not this one's to sync.
    command.args(["--settle", "none"]).env("NOTIFY_SOCKET", &socket).current_dir(dir.path());
    let mut recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=Recording into "), "{ready}");
    let file = dir.path().join("file");
    succeed(Command::new("sh").args(["-c", &format!("echo data >{}", text(&file))]));
    assert!(recorder.try_wait().unwrap().is_none(), "it stays in the foreground");
    kill(recorder.id(), libc::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    let output = finish(recorder);
    assert!(output.status.success(), "{}", describe(&output));
    let found = reels(&reels_dir);
    assert_eq!(found.len(), 1, "{found:?}");
    succeed(&mut ioreel(["validate", text(&found[0])]));
    let reel = Reel::open(&found[0]).unwrap();
    assert_eq!(reel.manifest.ended, "signal");
    assert!(reel.read::<Op>().unwrap().iter().any(|o| o.path.as_deref() == Some(text(&file))));
}

/// The unit file says what it must; where there is a systemd to ask, it agrees.
pub(crate) fn the_unit_file() {
    let unit = fs::read_to_string(UNIT).unwrap();
    for line in [
        "Type=notify",
        "AmbientCapabilities=CAP_BPF CAP_PERFMON CAP_DAC_READ_SEARCH",
        "CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_DAC_READ_SEARCH",
        "Restart=on-failure",
        "StateDirectory=ioreel",
        "NoNewPrivileges=yes",
        "WantedBy=multi-user.target",
    ] {
        assert!(unit.lines().any(|l| l == line), "{line} is missing");
    }
    // These would keep bpf(2) from a service, or take it from the host's user ids.
    for word in ["PrivateUsers=yes", "PrivateBPF", "ProtectKernelTunables=yes", "ProcSubset=pid"] {
        assert!(!unit.contains(word), "{word}");
    }
    let words = command_of_unit(&unit);
    assert_eq!(words[words.iter().position(|w| w == "-o").unwrap() + 1], "/var/lib/ioreel");
    let out = temp_dir();
    let copy = out.path().join("ioreel-record.service");
    fs::write(&copy, unit.replace("/usr/local/bin/ioreel", env!("CARGO_BIN_EXE_ioreel"))).unwrap();
    // Systemd need not be where this runs; what it would say of is checked above.
    if let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no", text(&copy)]).output() {
        assert!(output.status.success() && output.stderr.is_empty(), "{}", describe(&output));
    }
}
