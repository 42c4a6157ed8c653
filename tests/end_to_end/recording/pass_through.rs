//! What the recorded command gets and gives passes through untouched, and Ctrl-C ends a recording cleanly.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use ioreel_traces::{
    manifest::State,
    rows::{Fd, Op, Task},
    text::to_bytes,
};

use crate::harness::{
    assert_valid, describe, finish, ioreel, one_line, record, run, succeed, temp_dir, text, wait_for,
};

pub(crate) fn exit_status_of_the_command() {
    let out = temp_dir();
    let seven = out.path().join("seven.reel");
    let output = run(&mut record(&seven, &[], &["sh", "-c", "exit 7"]));
    assert_eq!(output.status.code(), Some(7), "{}", describe(&output));
    assert_eq!(assert_valid(&seven).manifest.command.unwrap().exit_status, Some(7 << 8));

    let killed = out.path().join("killed.reel");
    let output = run(&mut record(&killed, &[], &["sh", "-c", "kill -9 $$"]));
    assert_eq!(output.status.code(), Some(128 + 9), "{}", describe(&output));
    assert_eq!(assert_valid(&killed).manifest.command.unwrap().exit_status, Some(9));
}

pub(crate) fn a_command_that_is_not_there() {
    let out = temp_dir();
    let line = one_line(&mut record(&out.path().join("x.reel"), &[], &["/no/such/program"]), 127);
    assert!(line.contains("/no/such/program"), "{line}");
    let data = out.path().join("data");
    fs::write(&data, "no program").unwrap();
    for program in [text(&data), text(out.path())] {
        let line = one_line(&mut record(&out.path().join("x.reel"), &[], &[program]), 126);
        assert!(line.contains(program) && line.contains("ermission"), "{line}");
    }
    assert!(!out.path().join("x.reel").exists());
}

pub(crate) fn input_and_output() {
    let out = temp_dir();
    let reel = out.path().join("cat.reel");
    // More than a pipe holds, and no text.
    let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut command = record(&reel, &[], &["sh", "-c", "cat; echo told >&2"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = sent.clone();
    let feeder = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let output = finish(child);
    feeder.join().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    assert!(output.stdout == sent, "{} bytes went in, {} came out", sent.len(), output.stdout.len());
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("told\n"), "{}", describe(&output));
    assert_valid(&reel);
}

/// What the command inherits is in the reel: descriptors with their positions, folder, umask.
pub(crate) fn what_the_command_begins_with() {
    let out = temp_dir();
    let reel = out.path().join("begin.reel");
    let input = out.path().join("input");
    fs::write(&input, "0123456789").unwrap();
    let mut stdin = fs::File::open(&input).unwrap();
    std::io::Seek::seek(&mut stdin, std::io::SeekFrom::Start(4)).unwrap();
    let mut command = record(&reel, &[], &["cat"]);
    command.stdin(stdin).current_dir(out.path());
    // SAFETY: umask is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o031);
            Ok(())
        });
    }
    assert_eq!(succeed(&mut command).stdout, b"456789");

    let reel = assert_valid(&reel);
    let fds = reel.read::<Fd>().unwrap();
    let zero = fds.iter().find(|f| f.fd == 0).expect("standard input in `fds`");
    assert_eq!(zero.offset_bytes, 4);
    let root = reel.read::<Task>().unwrap().into_iter().find(|t| t.task_id == zero.task_id).unwrap();
    assert_eq!(root.parent, None);
    assert_eq!(root.cwd.as_deref(), Some(text(out.path())));
    assert_eq!(root.root.as_deref(), Some("/"));
    assert_eq!((root.umask, root.uid, root.gid), (Some(0o031), Some(0), Some(0)));
    let read = reel.read::<Op>().unwrap().into_iter().find(|o| o.op == "read" && o.fd == Some(0)).unwrap();
    assert_eq!((read.offset_bytes, read.ret, read.ofd), (Some(4), Some(6), Some(zero.ofd)));
}

/// A command that goes on until it is interrupted; `ready` appears once it is at work.
fn endless(dir: &Path) -> String {
    format!("i=0; while :; do echo $i >>{0}/file; : >{0}/ready; i=$((i+1)); done", text(dir))
}

fn assert_ended_well(reel: &Path) {
    let reel = assert_valid(reel);
    assert_eq!(reel.manifest.state, State::Complete);
    let writes = reel.read::<Op>().unwrap().into_iter().filter(|o| o.op == "write" && o.ret > Some(0));
    assert!(writes.count() > 0);
}

pub(crate) fn ctrl_c_on_a_terminal() {
    let out = temp_dir();
    let reel = out.path().join("terminal.reel");
    let script = endless(out.path());
    let program = env!("CARGO_BIN_EXE_ioreel");
    let line = format!("{program} record -o {} -- sh -c '{script}'", text(&reel));
    // script(1) gives it a terminal and passes its own input on to it.
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the command to be at work", || out.path().join("ready").exists().then_some(()));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\x03").unwrap();
    let output = finish(child);
    drop(stdin);
    assert_eq!(output.status.code(), Some(128 + libc::SIGINT), "{}", describe(&output));
    assert_ended_well(&reel);
}

pub(crate) fn a_signal_to_the_recorder_alone() {
    let out = temp_dir();
    let reel = out.path().join("signal.reel");
    let mut command = record(&reel, &[], &["sh", "-c", &endless(out.path())]);
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the command to be at work", || out.path().join("ready").exists().then_some(()));
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = finish(child);
    assert_eq!(output.status.code(), Some(128 + libc::SIGINT), "{}", describe(&output));
    assert_ended_well(&reel);
}

/// Arguments are bytes, and so are names in a reel.
pub(crate) fn arguments_of_any_bytes() {
    let out = temp_dir();
    let name = out.path().join(OsStr::from_bytes(b"caf\xe9\xff"));
    fs::write(&name, "content").unwrap();
    let reel = out.path().join("bytes.reel");
    let mut command = record(&reel, &[], &["cat"]);
    let output = run(command.arg(&name));
    assert_eq!(output.stdout, b"content", "{}", describe(&output));
    let opened = assert_valid(&reel).read::<Op>().unwrap();
    let bytes = name.as_os_str().as_bytes();
    assert!(
        opened.iter().filter_map(|o| o.path.as_deref()).any(|p| to_bytes(p) == bytes),
        "{name:?} is not in the reel"
    );
}

/// A full disk behind standard output is an error of its own.
pub(crate) fn output_that_cannot_be_written() {
    let out = temp_dir();
    let reel = out.path().join("true.reel");
    succeed(&mut record(&reel, &[], &["true"]));
    for words in [&["info", text(&reel)][..], &["validate", text(&reel)], &["doctor"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let child = ioreel(words).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = finish(child);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{words:?}: {told}");
    }
}

/// An exec by another thread than the leader takes over the leader's id.
pub(crate) fn an_exec_by_a_thread() {
    let out = temp_dir();
    let reel = out.path().join("exec.reel");
    let program = "import os, threading\n\
        threading.Thread(target=lambda: os.execv('/bin/cat', ['cat', '/proc/self/stat'])).start()\n\
        import time; time.sleep(60)";
    succeed(&mut record(&reel, &[], &["python3", "-c", program]));
    let ops = assert_valid(&reel).read::<Op>().unwrap();
    let read = ops.iter().find(|o| o.path.as_deref() == Some("/proc/self/stat")).unwrap();
    assert_eq!(read.tid, read.pid, "the thread that execs becomes the leader");
}
