//! A recording comes to its end, whoever goes on.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ioreel_traces::manifest::State;

use crate::harness::{
    assert_valid, describe, finish, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text, wait_for,
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
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
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
    wait_for("the reel", || reel.join("tasks").exists().then_some(()));
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
    assert!(took < Duration::from_secs(10), "{took:?}: {}", describe(&output));
    assert_eq!(assert_valid(&reel).manifest.ended, "signal");
}
