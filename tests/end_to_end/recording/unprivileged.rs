//! Capabilities from the program's file (setcap): every caller has them, and gets no more by them than records of its own
//! processes.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use ioreel_traces::{
    Reel,
    rows::{Bio, File, Op},
};

use crate::harness::{assert_valid, describe, finish, run, succeed, temp_dir, text, wait_for};

/// Nobody's.
const ID: u32 = 65534;
/// `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`, `CAP_SETGID`, `CAP_SETUID`, `CAP_SYS_PTRACE`: each would do harm in
/// the hands of everybody.
const TOO_MUCH: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 19;
const BPF_AND_PERFMON: u64 = 1 << 38 | 1 << 39;

/// The program with capabilities in its file, permitted and effective.
fn program(dir: &Path, capabilities: u64) -> PathBuf {
    let program = dir.join("ioreel");
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // include/uapi/linux/capability.h, struct vfs_cap_data: revision 2, effective.
    let words = [0x0200_0001, capabilities as u32, 0, (capabilities >> 32) as u32, 0];
    let value: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
    rustix::fs::setxattr(&program, "security.capability", &value, rustix::fs::XattrFlags::empty()).unwrap();
    program
}

/// A folder of nobody's, and the program in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = temp_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = program(dir.path(), BPF_AND_PERFMON | TOO_MUCH);
    (dir, program)
}

/// As nobody, without any capability of its own.
fn nobody(program: &Path, words: &[&str], dir: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={ID}"), format!("--regid={ID}")]);
    command.args(["--clear-groups", "--inh-caps=-all", "--ambient-caps=-all"]);
    command.arg(program).args(words).current_dir(dir).stdin(Stdio::null());
    command
}

fn refused(output: &Output, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains(words), "{}", describe(output));
}

/// A reel, and a file, that root alone may read.
fn secrets(dir: &Path) -> PathBuf {
    let secret = dir.join("root-only");
    fs::create_dir(&secret).unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/samples/untar.reel");
    succeed(Command::new("cp").arg("-r").arg(sample).arg(secret.join("x.reel")));
    fs::write(secret.join("file"), "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    secret
}

/// Commands that record nothing have no capability, and read and write what their caller may.
pub(crate) fn other_commands() {
    let (dir, program) = place();
    let secret = secrets(dir.path());
    let reel = secret.join("x.reel");
    for command in ["info", "stats", "validate"] {
        refused(&run(&mut nobody(&program, &[command, text(&reel)], dir.path())), "ermission denied");
    }
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/samples/untar.reel");
    let copy = dir.path().join("untar.reel");
    succeed(Command::new("cp").arg("-r").arg(sample).arg(&copy));
    let picture = secret.join("x.svg");
    refused(&run(&mut nobody(&program, &["plot", text(&copy), "-o", text(&picture)], dir.path())), "ermission denied");
    assert!(!picture.exists());
    let mut serving = nobody(&program, &["serve", text(&copy), "--address", "127.0.0.1:0"], dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Until it has become the program it is setpriv.
    let status = wait_for("the server", || {
        let status = fs::read_to_string(format!("/proc/{}/status", serving.id())).unwrap_or_default();
        (status.contains("Name:\tioreel") && status.contains("NoNewPrivs:\t1")).then_some(())?;
        // Given up right after that.
        sleep(Duration::from_millis(100));
        fs::read_to_string(format!("/proc/{}/status", serving.id())).ok()
    });
    serving.kill().unwrap();
    serving.wait().unwrap();
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
    }
}

/// A command is recorded: its operations, and neither disks nor what set-user-ID programs would do. It has no capabilities.
pub(crate) fn a_command() {
    let (dir, program) = place();
    let secret = secrets(dir.path());
    let reel = dir.path().join("x.reel");
    let script = "grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status; echo data >file; sync file";
    let words = ["record", "--snapshot", text(dir.path()), "-o", text(&reel), "--", "sh", "-c", script];
    let output = succeed(&mut nobody(&program, &words, dir.path()));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(told.matches("\t0000000000000000\n").count(), 4, "{told}");
    assert!(told.contains("NoNewPrivs:\t1"), "{told}");
    let found = assert_valid(&reel);
    assert!(found.read::<Op>().unwrap().iter().any(|o| o.op == "write" && o.ret == Some(5) && o.file.is_some()));
    assert!(found.read::<Bio>().unwrap().is_empty());
    assert!(found.manifest.warnings.iter().any(|w| w.contains("no block layer")), "{:?}", found.manifest.warnings);
    // The caller's own tree is in it, what the caller may not read is not.
    assert!(found.read::<ioreel_traces::rows::Tree>().unwrap().iter().all(|t| !t.path.contains("root-only/")));
    let owner = fs::metadata(&reel).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), ID);

    for output in [secret.join("y.reel"), PathBuf::from("/etc/ioreel-test.reel")] {
        let words = ["record", "-o", text(&output), "--", "true"];
        refused(&run(&mut nobody(&program, &words, dir.path())), "ermission denied");
        assert!(!output.exists());
    }
}

/// The whole machine, control groups, disks and others' processes are refused.
pub(crate) fn what_is_others() {
    let (dir, program) = place();
    let reel = dir.path().join("x.reel");
    let root = std::process::id().to_string();
    let options: [&[&str]; 7] = [
        &["--all"],
        &["--cgroup", "/sys/fs/cgroup"],
        &["--pid", &root],
        &["--block-only", "--", "true"],
        &["--device", "sda", "--", "true"],
        &["--cache", "--", "true"],
        &["--backend", "fentry", "--", "true"],
    ];
    for words in options {
        let mut all = vec!["record", "-o", text(&reel)];
        all.extend(words);
        refused(&run(&mut nobody(&program, &all, dir.path())), "caller's own processes");
        assert!(!reel.exists(), "{words:?}");
    }
    refused(&run(&mut nobody(&program, &["top", "--once"], dir.path())), "caller's own processes");
    refused(&run(&mut nobody(&program, &["top", "--once", "--pid", &root], dir.path())), "caller's own processes");
    let secret = secrets(dir.path());
    let words = ["record", "--daemon", "--pid", &root, "-o", text(&secret)];
    refused(&run(&mut nobody(&program, &words, dir.path())), "ermission denied");
    assert!(!secret.join("ioreel.log").exists() && !secret.join("ioreel.pid").exists());
}

fn shell(script: &str, dir: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).uid(ID).gid(ID);
    command.spawn().unwrap()
}

/// An own process is recorded until it runs a program with more rights than its user has.
pub(crate) fn a_process_and_the_set_uid_program_it_runs() {
    let (dir, program) = place();
    let secret = secrets(dir.path());
    // A shell would give up what its file's owner lends it.
    let reader = dir.path().join("read-as-root");
    succeed(Command::new("cp").arg("-L").arg("/bin/cat").arg(&reader));
    fs::set_permissions(&reader, fs::Permissions::from_mode(0o4755)).unwrap();
    let file = secret.join("file");
    let script =
        format!("until [ -e go ]; do sleep 0.05; done; {} {} >got; cat got >copied", text(&reader), text(&file));
    let reel = dir.path().join("x.reel");
    let mut process = shell(&script, dir.path());
    let pid = process.id().to_string();
    let words = ["record", "-o", text(&reel), "--pid", &pid];
    let recorder = nobody(&program, &words, dir.path()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the reel", || Reel::open(&reel).ok());
    sleep(Duration::from_secs(2));
    fs::write(dir.path().join("go"), "").unwrap();
    process.wait().unwrap();
    let output = finish(recorder);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(fs::read_to_string(dir.path().join("copied")).unwrap(), "secret");
    let found = assert_valid(&reel);
    let files = found.read::<File>().unwrap();
    assert!(files.iter().any(|f| f.path.as_deref().is_some_and(|p| p.ends_with("/copied"))), "{files:?}");
    let ops = found.read::<Op>().unwrap();
    assert!(ops.iter().all(|o| o.path.as_deref() != Some(text(&file))), "what root read is told");
    assert!(files.iter().all(|f| f.path.as_deref() != Some(text(&file))), "{files:?}");
}
