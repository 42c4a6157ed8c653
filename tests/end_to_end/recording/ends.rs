//! A recording comes to its end, whoever goes on.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ioreel_traces::{
    manifest::State,
    rows::{Bio, File, Op, Tree},
};

use rustix::fs::{Mode, OFlags};

use crate::harness::{
    assert_valid, describe, finish, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    patience, record, run, succeed, temp_dir, text, wait_for,
};

/// A program that nobody records reads the disk of a file system for as long as this lives.
struct Busy(Child);

impl Busy {
    fn new(dir: &Path) -> Self {
        let file = dir.join("read");
        fs::write(&file, vec![1; 16 << 20]).unwrap();
        let name = format!("--filename={}", text(&file));
        let mut fio = Command::new("fio");
        fio.args(["--name=busy", &name, "--rw=randread", "--bs=512", "--direct=1", "--ioengine=io_uring"]);
        fio.args(["--iodepth=64", "--thread", "--numjobs=2", "--time_based", "--runtime=300"]);
        let begun = fs::read_to_string("/proc/diskstats").unwrap();
        let busy = Self(fio.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        wait_for("fio to begin", || (fs::read_to_string("/proc/diskstats").unwrap() != begun).then_some(()));
        std::thread::sleep(Duration::from_secs(1));
        busy
    }

    fn goes_on(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `record` of `true`, in this folder.
fn of_nothing(dir: &Path, reel: &Path, options: &[&str]) -> Command {
    let mut command = ioreel(["record", "--no-snapshot", "-o", text(reel)]);
    command.args(options).args(["--", "true"]).current_dir(dir);
    command
}

/// What a budget leaves in the rings is taken at the end, and what others add meanwhile is not waited for.
pub(crate) fn of_a_budget_beside_others() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let reel = out.path().join("x.reel");
    let mut busy = Busy::new(mount.path());
    let begun = Instant::now();
    let options = ["--settle", "none", "--cpu-budget", "2", "--ring-mib", "1"];
    succeed(&mut of_nothing(mount.path(), &reel, &options));
    assert!(begun.elapsed() < patience(Duration::from_secs(20)), "{:?}", begun.elapsed());
    assert!(busy.goes_on());
    succeed(&mut ioreel(["validate", text(&reel)]));
}

/// Others fill the rings before the command is there, which is stopped for it, and goes on.
pub(crate) fn of_a_command_stopped_at_its_begin() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let mut busy = Busy::new(mount.path());
    for round in 0..4 {
        let reel = out.path().join(format!("{round}.reel"));
        let options = ["--settle", "none", "--lossless", "--ring-mib", "1"];
        succeed(&mut of_nothing(mount.path(), &reel, &options));
        succeed(&mut ioreel(["validate", text(&reel)]));
        assert!(busy.goes_on());
    }
}

/// A signal ends the recording also of a command that stands still before its exec; what is there is a reel.
pub(crate) fn before_the_command_began() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let mut command = record(&reel, &["--no-snapshot"], &["true"]);
    let recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = recorder.id();
    let list = format!("/proc/{pid}/task/{pid}/children");
    let child: i32 = wait_for("the child", || fs::read_to_string(&list).ok()?.split_whitespace().next()?.parse().ok());
    // SAFETY: signals to a process that this test started, and to its child, which it has not waited for.
    unsafe { libc::kill(child, libc::SIGSTOP) };
    wait_for("the reel", || reel.join("manifest.json").exists().then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    // SAFETY: as above.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
    wait_for("the reel to be whole", || {
        ioreel_traces::Reel::open(&reel).is_ok_and(|r| r.manifest.state == State::Complete).then_some(())
    });
    let took = begun.elapsed();
    // SAFETY: as above; the recorder waits for it.
    unsafe { libc::kill(child, libc::SIGCONT) };
    let output = finish(recorder);
    assert!(took < patience(Duration::from_secs(10)), "{took:?}: {}", describe(&output));
    assert_eq!(assert_valid(&reel).manifest.ended, "signal");
}

/// A signal that comes while the tree is looked at ends all: nothing has run, and nothing is left behind.
pub(crate) fn while_the_tree_is_looked_at() {
    let (out, tree) = (temp_dir(), temp_dir());
    for i in 0..200 {
        let dir = tree.path().join(i.to_string());
        fs::create_dir(&dir).unwrap();
        (0..200).for_each(|k| fs::write(dir.join(k.to_string()), "x").unwrap());
    }
    let (reel, ran) = (out.path().join("x.reel"), out.path().join("ran"));
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let options = ["--extents", "--snapshot", text(tree.path())];
        let mut command = record(&reel, &options, &["touch", text(&ran)]);
        let recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the reel", || reel.exists().then_some(()));
        // SAFETY: a signal to a process that this test started and has not waited for.
        unsafe { libc::kill(recorder.id() as i32, signal) };
        let output = finish(recorder);
        assert_eq!(output.status.code(), Some(128 + signal), "{}", describe(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was recorded"), "{}", describe(&output));
        assert!(!reel.exists() && !ran.exists());
    }
}

/// To be loaded changes neither a program nor its libraries: what they lie on is not synced.
pub(crate) fn of_a_program_that_changes_nothing() {
    let (out, memory) = (temp_dir(), Mounted::new(Fs::Tmpfs, DEFAULT_SIZE_BYTES));
    let reel = out.path().join("x.reel");
    succeed(&mut of_nothing(memory.path(), &reel, &[]));
    let ops: Vec<Op> = assert_valid(&reel).read().unwrap();
    let synced = ops.iter().find(|o| o.source == "tool");
    assert!(synced.is_none() && ops.iter().any(|o| o.op == "mmap" && o.file.is_some()), "{synced:?}");
}

/// Settling ends when what the command changed is on the disk, however busy others keep that.
pub(crate) fn beside_others_on_its_disk() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let reel = out.path().join("x.reel");
    let mut busy = Busy::new(mount.path());
    let command = ["sh", "-c", "echo changed >changed"];
    let output = run(record(&reel, &["--no-snapshot"], &command).current_dir(mount.path()));
    assert!(busy.goes_on() && output.status.success(), "{}", describe(&output));
    let reel = assert_valid(&reel);
    let settled = Duration::from_nanos(reel.manifest.span.settle_ns as u64);
    assert!(settled < patience(Duration::from_secs(1)), "{settled:?}");
    let warnings = &reel.manifest.warnings;
    assert!(warnings.iter().all(|w| !w.contains("settling")), "{warnings:?}");
    assert!(reel.rows::<Op>().any(|op| op.is_ok_and(|op| op.op == "syncfs" && op.source == "tool")));
    let files: Vec<File> = reel.read().unwrap();
    let changed = files.iter().find(|f| f.path.as_deref().is_some_and(|p| p.ends_with("/changed"))).unwrap();
    let written = |bio: Bio| bio.op == "write" && bio.file == Some(changed.file) && bio.complete_ns.is_some();
    assert!(reel.rows::<Bio>().any(|bio| written(bio.unwrap())), "its write-back is recorded");
}

/// A large working directory is looked at for a moment; what the command uses of it is in the reel all the same.
pub(crate) fn in_a_large_folder() {
    let (out, large) = (temp_dir(), temp_dir());
    for i in 0..40 {
        let dir = large.path().join(i.to_string());
        fs::create_dir(&dir).unwrap();
        (0..50).for_each(|k| fs::write(dir.join(k.to_string()), "x").unwrap());
    }
    let (whole, cut) = (out.path().join("whole.reel"), out.path().join("cut.reel"));
    let command = ["cat", "39/49"];
    let take = |reel: &Path, limit: &str| {
        let options = ["--snapshot-limit", limit];
        let output = succeed(record(reel, &options, &command).current_dir(large.path()));
        let reel = assert_valid(reel);
        let tree: Vec<Tree> = reel.read().unwrap();
        let has = |name: &str| tree.iter().any(|t| t.path.ends_with(name) && &*t.kind == "regular");
        assert!(has("/39/49"), "what was read is there");
        let partial = reel.manifest.snapshot.is_some_and(|s| s.partial);
        let told = String::from_utf8_lossy(&output.stderr).contains("--snapshot-limit");
        (tree.len(), partial, told)
    };
    let (names, partial, told) = take(&whole, "100000,60s");
    assert!(names >= 2040 && !partial && !told, "{names} names");
    // What the snapshot did not reach is listed when the command has ended.
    let (names, partial, told) = take(&out.path().join("later.reel"), "100,60s");
    assert!(names >= 2040 && !partial && !told, "{names} names");
    deep(large.path());
    let (names, partial, told) = take(&cut, "100000,60s");
    assert!(names >= 2040 && partial && told, "{names} names");
    let validated = succeed(&mut ioreel(["validate", text(&cut)]));
    let note = "a name that is not in `tree` is unknown";
    assert!(String::from_utf8_lossy(&validated.stdout).contains(note), "{}", describe(&validated));
    let target = out.path().join("target");
    fs::create_dir(&target).unwrap();
    let replay = ["replay", text(&cut), "--pace", "max", "--target", text(&target)];
    let replayed = run(&mut ioreel(replay));
    let said = String::from_utf8_lossy(&replayed.stdout);
    assert!(said.contains(", 0 wrong") && said.contains("the snapshot was cut"), "{}", describe(&replayed));
    assert_eq!(replayed.status.code().map(|status| status & 24), Some(16));
}

/// A path in `dir` that is too long for any call.
fn deep(dir: &Path) {
    let mut at = rustix::fs::open(dir, OFlags::RDONLY, Mode::empty()).unwrap();
    let name = "d".repeat(250);
    for _ in 0..20 {
        rustix::fs::mkdirat(&at, &*name, Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, &*name, OFlags::RDONLY, Mode::empty()).unwrap();
    }
}

/// From the root of the machine on, whose tree nobody wants to wait for.
pub(crate) fn in_the_root_folder() {
    let out = temp_dir();
    let took = |options: &[&str], dir: &str| {
        let reel = out.path().join(format!("{}.reel", options.len()));
        let begun = Instant::now();
        succeed(record(&reel, options, &["true"]).current_dir(dir));
        begun.elapsed()
    };
    let least = took(&["--no-snapshot"], "/");
    let with = took(&[], "/");
    assert!(with < least + patience(Duration::from_secs(1)), "{with:?}, without the tree {least:?}");
}

/// Who starts the work of a process that is recorded learns when the probes are active.
pub(crate) fn whose_begin_is_told() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id().to_string();
    let mut recorder = ioreel(["record", "--no-snapshot", "--settle", "none", "--pid", &pid, "-o", text(&reel)]);
    let mut recorder = recorder.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stderr.take().unwrap()).read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    recorder.wait().unwrap();
    assert_eq!(line, format!("ioreel: recording into {}\n", text(&reel)));
}

/// A recording without a name has one, and says at its end what is in it, where it is and what to do with it.
pub(crate) fn with_what_was_recorded() {
    let dir = temp_dir();
    let told = |options: &[&str]| {
        let command = ["--no-snapshot", "--settle", "none", "--", "/bin/cat", "/etc/passwd"];
        let words = ["record"].iter().chain(options).chain(&command);
        let output = succeed(ioreel(words).current_dir(dir.path()));
        String::from_utf8(output.stderr).unwrap()
    };
    let first = told(&["--plot"]);
    let lines: Vec<&str> = first.lines().rev().take(3).collect();
    let [next, place, totals] = lines[..] else { panic!("{first}") };
    let name = place.split(' ').nth(2).unwrap();
    assert!(name.starts_with("cat-20") && name.ends_with("-1.reel"), "{place}");
    let info = succeed(&mut ioreel(["info", "--json", text(&dir.path().join(name))]));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert!(totals.contains(&format!(" {} operations, nothing lost; files: ", info["total"]["calls"])), "{totals}");
    let picture = name.replace(".reel", ".png");
    assert!(next.contains(&format!("drew {picture}; next: ioreel diagnose {name}")), "{next}");
    assert!(dir.path().join(picture).metadata().unwrap().len() > 1000);
    assert_eq!(told(&["-q"]).lines().filter(|l| l.contains("operations") || l.contains("next")).count(), 0);
    let second = name.replace("-1.reel", "-2.reel");
    assert_valid(&dir.path().join(second));
}

/// Whether a process waits for the lock on this file, by /proc/locks: `2: -> FLOCK  ADVISORY  WRITE 123 fd:01:INODE 0 EOF`.
fn is_waited_for(path: &Path) -> bool {
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("->") && line.contains(&inode))
}

/// A signal that the command ignores is not forgotten when something else ends the recording.
pub(crate) fn by_a_trigger_after_a_signal() {
    let out = temp_dir();
    let (reel, up, locked) = (out.path().join("x.reel"), out.path().join("up"), out.path().join("locked"));
    let lock = fs::File::create(&locked).unwrap();
    lock.lock().unwrap();
    let script = format!(
        "trap '' TERM; : > {0}; sleep 0.5; flock {1} true; while [ -e {0} ]; do sleep 0.1; done",
        text(&up),
        text(&locked)
    );
    let options = ["--ops-only", "--no-snapshot", "--trigger-latency", "100ms"];
    let mut command = record(&reel, &options, &["sh", "-c", &script]);
    let recorder = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the command", || up.exists().then_some(()));
    let begun = Instant::now();
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(recorder.id() as i32, libc::SIGTERM) };
    wait_for("somebody to wait for the lock", || is_waited_for(&locked).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    lock.unlock().unwrap();
    let pid = recorder.id();
    wait_for("the recorder's end", || {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z ")).then_some(())
    });
    let took = begun.elapsed();
    // The command runs on, as it wished, and has the pipe.
    fs::remove_file(&up).unwrap();
    let output = finish(recorder);
    assert!(took < patience(Duration::from_secs(10)), "{took:?}: {}", describe(&output));
    assert_eq!(output.status.code(), Some(128 + libc::SIGTERM), "{}", describe(&output));
    assert_eq!(assert_valid(&reel).manifest.ended, "trigger");
}

/// Of a terminal that hangs up the kernel tells nobody but the leader of its session: the command hears of it by that.
pub(crate) fn by_a_terminal_that_hangs_up() {
    let out = temp_dir();
    let (reel, up) = (out.path().join("x.reel"), out.path().join("up"));
    let terminal = "import os, pty, sys, time
pid, master = pty.fork()
if pid == 0: os.execv(sys.argv[2], sys.argv[2:])
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
os.close(master)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let program = "import os, signal, sys, time
signal.signal(signal.SIGHUP, lambda *_: os._exit(5))
open(sys.argv[1], 'w')
time.sleep(60)";
    let mut command = Command::new("python3");
    command.args(["-c", terminal, text(&up), env!("CARGO_BIN_EXE_ioreel"), "record", "--no-snapshot", "--ops-only"]);
    command.args(["-o", text(&reel), "--", "python3", "-c", program, text(&up)]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", describe(&output));
    let command = assert_valid(&reel).manifest.command.unwrap();
    assert_eq!(command.exit_status, Some(5 << 8));
}

/// A file system whose server has stopped is not waited for.
pub(crate) fn beside_a_mount_that_does_not_answer() {
    let mount = Mounted::new(Fs::Fuse, DEFAULT_SIZE_BYTES);
    let server = mount.server().unwrap();
    let signal = |number| {
        // SAFETY: to the server of this test's own mount.
        unsafe { libc::kill(server as i32, number) };
    };
    let out = temp_dir();
    let reel = out.path().join("r.reel");
    signal(libc::SIGSTOP);
    let begun = Instant::now();
    let mut child = record(&reel, &["--settle", "none"], &["true"]).stderr(Stdio::piped()).spawn().unwrap();
    let status = wait_for("the recording to end", || {
        if begun.elapsed() > Duration::from_secs(60) && begun.elapsed() > patience(Duration::from_secs(60)) {
            let _ = child.kill();
            signal(libc::SIGCONT);
        }
        child.try_wait().unwrap()
    });
    signal(libc::SIGCONT);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains(text(mount.path())) && said.contains("did not answer"), "{said}");
}
