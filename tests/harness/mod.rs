//! What tests of the program share: running it, reading what it made, file systems to work on.

pub(crate) mod bpf;
pub(crate) mod device;
pub(crate) mod mount;
pub(crate) mod same_tree;
pub(crate) mod terminal;

use std::{
    collections::HashMap,
    fmt::Display,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Where images, reels and logs of tests go: a real file system, unlike some `/tmp`.
const WORK: &str = "/var/tmp";
/// The one deadline of all waits, on a quiet machine: generous, since it only ends what hangs.
const DEADLINE: Duration = Duration::from_secs(240);

/// What [`slowness`] counts to, and how long that takes on a quiet machine.
const SPINS: u64 = 18_000_000;
const QUIET: Duration = Duration::from_millis(50);

/// How many times as long as on a quiet machine of two threads work takes now: 1 to 30.
fn slowness() -> f64 {
    let begun = Instant::now();
    let mut x = 1_u64;
    for _ in 0..SPINS {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    (begun.elapsed().as_secs_f64() / QUIET.as_secs_f64()).clamp(1.0, 30.0)
}

/// A limit of `quiet` on a quiet machine, at the speed that this one has now. What must end within a limit is held
/// against this, so that tests hold beside other work.
pub(crate) fn patience(quiet: Duration) -> Duration {
    /// The slowest so far, in thousandths: what began on a busy machine may end on a quiet one.
    static SLOWEST: AtomicU64 = AtomicU64::new(0);
    let now = (slowness() * 1000.0) as u64;
    let slowest = SLOWEST.fetch_max(now, Ordering::Relaxed).max(now);
    quiet.mul_f64(slowest as f64 / 1000.0)
}

/// Whether what began then hangs.
fn hangs(begun: Instant) -> bool {
    begun.elapsed() >= DEADLINE && begun.elapsed() >= patience(DEADLINE)
}

/// A folder that goes with its owner.
pub(crate) fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("ioreel-test-").tempdir_in(WORK).unwrap()
}

/// The program under test with these arguments.
pub(crate) fn ioreel<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioreel"));
    command.args(args).stdin(Stdio::null());
    command
}

/// `ioreel record -o REEL` with these options, `--` and the command, in an empty folder: the tree that it begins in is in the
/// reel, and that of a checkout may hold gigabytes of build output.
pub(crate) fn record(reel: &Path, options: &[&str], command: &[&str]) -> Command {
    let empty = std::env::temp_dir().join("ioreel-tests-begin-here");
    fs::create_dir_all(&empty).unwrap();
    let mut words = vec!["record", "-o", text(reel)];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let mut command = ioreel(words);
    command.current_dir(empty);
    command
}

/// Runs to the end with output captured; panics at the deadline.
pub(crate) fn run(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child)
}

/// Waits for a started program; panics at the deadline.
pub(crate) fn finish(child: Child) -> Output {
    let pid = child.id() as libc::pid_t;
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let begun = Instant::now();
        // An error other than a timeout means that the program ended and the sender is gone.
        while waiting.recv_timeout(Duration::from_secs(10)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            if hangs(begun) {
                // SAFETY: the child has not been waited for, so the number is still its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return true;
            }
        }
        false
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    assert!(!guard.join().unwrap(), "ran into the deadline: {}", describe(&output));
    output
}

/// Runs and expects success.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
    output
}

/// Runs and expects exit status `code` and, on stderr, one line without a panic; gives that line.
#[track_caller]
pub(crate) fn one_line(command: &mut Command, code: i32) -> String {
    let output = run(command);
    let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", describe(&output));
    assert!(stderr.lines().count() == 1 && !stderr.contains("panicked"), "{command:?}: not one line: {stderr}");
    stderr
}

/// Status and output of a program, for messages.
pub(crate) fn describe(output: &Output) -> String {
    let how = output
        .status
        .signal()
        .map_or_else(|| format!("exit {}", output.status.code().unwrap_or(-1)), |signal| format!("signal {signal}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{how}\n--- stdout\n{out}\n--- stderr\n{err}")
}

/// `ioreel validate` finds nothing, and nothing was lost.
#[track_caller]
pub(crate) fn assert_valid(reel: &Path) -> ioreel_traces::Reel {
    succeed(&mut ioreel(["validate", text(reel)]));
    let reel = ioreel_traces::Reel::open(reel).unwrap();
    assert_eq!(reel.manifest.lost(), 0, "lost events: {:?}", reel.manifest.ledger);
    reel
}

/// The files of a reel that have one, and their paths.
pub(crate) fn paths_of(reel: &ioreel_traces::Reel) -> HashMap<i64, String> {
    let files = reel.rows::<ioreel_traces::rows::File>().map(Result::unwrap);
    files.filter_map(|f| Some((f.file, f.path?.to_string()))).collect()
}

/// Replays onto a new file system of this kind: no result is wrong or unsupported, no edge violated, and the tree is the one
/// that the results lead to. The report.
#[track_caller]
pub(crate) fn replays_alike(what: &str, reel: &Path, target: &Path, pace: &str) -> serde_json::Value {
    replays_alike_except(what, reel, target, pace, 0, &[])
}

/// The same, where this number of names differ in the tree, each in one of these ways.
#[track_caller]
pub(crate) fn replays_alike_except(
    what: &str,
    reel: &Path,
    target: &Path,
    pace: &str,
    differing: usize,
    ways: &[&str],
) -> serde_json::Value {
    let output = run(&mut ioreel(["replay", text(reel), "--target", text(target), "--pace", pace, "--json"]));
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", describe(&output)));
    let verdict = &report["verdict"];
    let what = format!("{what} at {pace}: {}", verdict["sentence"]);
    let classes = &verdict["results"]["classes"];
    if verdict["faithful"] != true
        && let Some(kept) = std::env::var_os("IOREEL_KEEP_REELS")
    {
        // What fails once in a hundred runs is to be looked at afterwards.
        let _ = Command::new("cp").args(["-r", text(reel)]).arg(kept).status();
    }
    assert_eq!(
        (&classes["wrong"], &classes["unsupported"]),
        (&0.into(), &0.into()),
        "{what} {:#}",
        verdict["results"]["differences"]
    );
    assert_eq!((&verdict["missing"], &verdict["timing"]["early"]), (&0.into(), &0.into()), "{what}");
    let edges = verdict["timing"]["edges"].as_object().unwrap();
    assert!(edges.values().all(|e| e["violations"] == 0), "{what} {edges:?}");
    let tree = &verdict["tree"];
    assert_eq!(tree["differing"], differing, "{what} {tree:#}");
    for name in tree["examples"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert!(ways.iter().any(|way| name.contains(way)), "{what}: {name}");
    }
    report
}

/// A path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Polls until `done` gives something; panics with `what` at the deadline.
pub(crate) fn wait_for<T>(what: impl Display, mut done: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(!hangs(started), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Names below `root` with what must survive a replay: type, permissions, size and link target.
pub(crate) fn tree(root: &Path) -> Vec<String> {
    fn walk(root: &Path, dir: &Path, out: &mut Vec<String>) {
        let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        for path in names {
            use std::os::unix::fs::MetadataExt;
            let meta = path.symlink_metadata().unwrap();
            let size = if meta.is_file() { meta.len() } else { 0 };
            let target = if meta.is_symlink() { fs::read_link(&path).unwrap() } else { PathBuf::new() };
            let name = path.strip_prefix(root).unwrap();
            out.push(format!("{} {:o} {size} {}", name.display(), meta.mode(), target.display()));
            // What mkfs makes is no part of anyone's tree.
            if meta.is_dir() && name != Path::new("lost+found") {
                walk(root, &path, out);
            }
        }
    }
    let mut out = Vec::new();
    walk(root, root, &mut out);
    out.retain(|line| !line.starts_with("lost+found "));
    out
}

/// Why this process cannot record, by facts that do not depend on ioreel.
pub(crate) fn cannot_record() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("this kernel has no BTF".into());
    }
    /// The head of `union bpf_attr` for `BPF_MAP_CREATE`.
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    const RINGBUF: u32 = 27;
    let attr = MapCreate { map_type: RINGBUF, key_size: 0, value_size: 0, max_entries: 4096 };
    // SAFETY: command 0 creates a map and reads `attr`; the descriptor is closed at once.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 0, &raw const attr, size_of::<MapCreate>()) };
    if fd < 0 {
        return Some(format!("bpf(2): {}", std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(fd as i32) };
    None
}
