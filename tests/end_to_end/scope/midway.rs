//! Starting in the middle: what processes had when they were adopted, tasks that come and go in a control group, and
//! the whole machine.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use ioreel_traces::{
    Reel,
    rows::{Fd, File, Map, Op, Task},
};

use crate::harness::{assert_valid, describe, finish, ioreel, succeed, temp_dir, text, wait_for};

/// The word that makes this program a process to be met in the middle of its work.
pub(crate) const WORD: &str = "--at-work";

/// Three threads that share all: one waits in a read of a pipe that another writes to now and then; one reads at known
/// offsets; the first writes at the descriptor's own position, and sometimes makes a file. Ends when killed.
pub(crate) fn work(dir: &Path) -> ! {
    std::env::set_current_dir(dir).unwrap();
    // SAFETY: sets the mask of this process; no other thread yet.
    unsafe { libc::umask(0o027) };
    let mut data = fs::File::options().read(true).write(true).create(true).truncate(true).open("data").unwrap();
    data.write_all(&[b'x'; 8192]).unwrap();
    // SAFETY: maps an open file, never touched through a Rust reference.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            8192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            data.as_raw_fd(),
            4096,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    let (mut from, mut to) = std::io::pipe().unwrap();
    std::thread::spawn(move || while from.read(&mut [0; 10]).is_ok() {});
    let also = data.try_clone().unwrap();
    std::thread::spawn(move || {
        for i in 0u64.. {
            also.read_exact_at(&mut [0; 10], i % 100).unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    fs::write("address", format!("{}", at as usize)).unwrap();
    for i in 0u64.. {
        data.write_all(b"ab").unwrap();
        if i % 50 == 49 {
            to.write_all(b"q").unwrap();
        }
        if i % 10 == 3 {
            let name = format!("made{i}");
            fs::write(&name, "content").unwrap();
            fs::remove_file(&name).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::exit(0)
}

/// A started process, ended with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

fn at_work(dir: &Path) -> Running {
    let child = Command::new(std::env::current_exe().unwrap()).args([WORD, text(dir)]).spawn().unwrap();
    wait_for("the process to be at work", || {
        let fd_count = fs::read_dir(format!("/proc/{}/fd", child.id())).map_or(0, Iterator::count);
        (dir.join("address").exists() && fd_count >= 6).then_some(())
    });
    Running(child)
}

fn path_of(reel: &Reel) -> HashMap<i64, File> {
    reel.read::<File>().unwrap().into_iter().map(|f| (f.file, f)).collect()
}

/// Descriptors, positions, mappings, directory, mask, shared tables, and a replay that starts there.
pub(crate) fn a_process_with_threads() {
    let out = temp_dir();
    let dir = out.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let process = at_work(&dir);
    let reel_path = out.path().join("midway.reel");
    succeed(&mut ioreel(["record", "-o", text(&reel_path), "--pid", &process.pid(), "--duration", "0.7"]));
    let mapped = mapped_files(&process.pid());
    let reel = assert_valid(&reel_path);
    let files = path_of(&reel);

    let tasks: Vec<Task> = reel.read::<Task>().unwrap();
    let leader = tasks.iter().find(|t| t.tid == t.pid).unwrap();
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    assert_eq!((leader.cwd.as_deref(), leader.umask), (Some(text(&dir)), Some(0o027)));
    assert_eq!((leader.root.as_deref(), leader.uid, leader.gid), (Some("/"), Some(0), Some(0)));
    for t in tasks.iter().filter(|t| t.tid != t.pid) {
        assert_eq!((t.parent, t.clone_flags), (Some(leader.task_id), 0x10700), "{t:?}");
    }

    let ops = reel.read::<Op>().unwrap();
    let data = files.values().find(|f| f.path.as_deref() == Some(text(&dir.join("data")))).unwrap().file;
    let fds = reel.read::<Fd>().unwrap();
    let rows: Vec<&Fd> = fds.iter().filter(|f| f.file == Some(data)).collect();
    let [one, two] = rows.as_slice() else { panic!("two descriptors of data in {fds:?}") };
    assert_eq!((one.ofd, one.offset_bytes), (two.ofd, two.offset_bytes), "they share their position");
    let mut writes: Vec<&Op> = ops.iter().filter(|o| o.op == "write" && o.file == Some(data)).collect();
    writes.sort_by_key(|o| o.start_ns);
    assert!(writes.len() > 20, "{} writes", writes.len());
    assert_eq!(writes[0].offset_bytes, Some(one.offset_bytes), "the first write is where the position stood");
    assert!(writes.windows(2).all(|w| w[1].offset_bytes == w[0].offset_bytes.map(|o| o + 2)));
    let made: Vec<&Fd> = fds.iter().filter(|f| f.file.is_some_and(|f| made_while_recorded(&files[&f]))).collect();
    assert!(made.is_empty(), "opened later: {made:?}");

    let midway: Vec<&Op> = ops.iter().filter(|o| &*o.state == "in_flight_at_start").collect();
    assert!(midway.iter().any(|o| o.op == "read" && o.ret == Some(1)), "the read of the pipe: {midway:?}");

    let maps = reel.read::<Map>().unwrap();
    let told: BTreeSet<(i64, i64, i64, String)> = maps
        .iter()
        .map(|m| (m.address, m.len_bytes, m.offset_bytes, files[&m.file].path.as_deref().unwrap().to_owned()))
        .collect();
    assert_eq!(told, mapped);
    let shared = maps.iter().find(|m| m.file == data).unwrap();
    let address: i64 = fs::read_to_string(dir.join("address")).unwrap().parse().unwrap();
    assert_eq!((shared.address, shared.offset_bytes, shared.len_bytes), (address, 4096, 8192));
    assert_eq!((shared.prot, shared.flags), (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED));

    drop(process);
    let target = out.path().join("target");
    fs::create_dir(&target).unwrap();
    let result = out.path().join("result.reel");
    let words = ["replay", text(&reel_path), "--target", text(&target), "--pace", "max", "-o", text(&result)];
    // How busy this machine is is not asked.
    succeed(ioreel(words).args(["--max-own-lateness", "1h"]));
    let replay = assert_valid(&result).manifest.replay.unwrap();
    assert_eq!(replay.differing, 0, "{replay:?}");
    assert!(replay.done > 50, "{replay:?}");
}

/// Which of the files that the process made and removed again.
fn made_while_recorded(file: &File) -> bool {
    file.path.as_deref().is_some_and(|p| p.contains("/made"))
}

/// Mapped files as /proc tells them: address, length, offset, path.
fn mapped_files(pid: &str) -> BTreeSet<(i64, i64, i64, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let path = words.get(5).filter(|p| p.starts_with('/'))?;
            let (from, to) = words[0].split_once('-')?;
            let hex = |s: &str| i64::from_str_radix(s, 16).unwrap();
            Some((hex(from), hex(to) - hex(from), hex(words[2]), (*path).to_owned()))
        })
        .collect()
}

/// A shell that runs the lines it is given, one at a time.
struct Obedient {
    process: Running,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Obedient {
    fn new() -> Self {
        let script = "while read -r line; do eval \"$line\"; echo done; done";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { process: Running(child), orders, answers }
    }

    /// Runs a line to its end.
    fn run(&mut self, line: &str) {
        writeln!(self.orders, "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }
}

/// Paths that operations opened for writing.
fn opened(reel: &Reel, below: &Path) -> BTreeSet<String> {
    let prefix = format!("{}/", text(below));
    let ops = reel.read::<Op>().unwrap();
    let opens = ops.iter().filter(|o| &*o.op == "openat" && o.ret.is_some_and(|r| r >= 0));
    opens.filter_map(|o| Some(o.path.as_deref()?.strip_prefix(&prefix)?.to_owned())).collect()
}

/// Two processes at once.
pub(crate) fn two_processes() {
    let out = temp_dir();
    let (mut a, mut b, mut c) = (Obedient::new(), Obedient::new(), Obedient::new());
    let dir = text(out.path()).to_owned();
    let reel = out.path().join("two.reel");
    let (pid_a, pid_b) = (a.process.pid(), b.process.pid());
    let recording = recording(&reel, &["--pid", &pid_a, "--pid", &pid_b]);
    a.run(&format!(": >{dir}/a"));
    b.run(&format!("sh -c ': >{dir}/b'"));
    c.run(&format!(": >{dir}/c"));
    drop((a, b));
    let output = finish(recording);
    assert!(output.status.success(), "{}", describe(&output));
    let reel = assert_valid(&reel);
    assert_eq!(opened(&reel, out.path()), ["a", "b"].map(str::to_owned).into());
    let filters = &reel.manifest.filters;
    assert_eq!(*filters, [format!("--pid {pid_a}"), format!("--pid {pid_b}")]);
}

/// Starts a recording and waits until it has begun.
pub(crate) fn recording(reel: &Path, options: &[&str]) -> Child {
    let mut words = vec!["-v", "record", "-o", text(reel)];
    words.extend(options);
    let mut child = ioreel(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("recording has begun") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "the recorder ended early");
    }
    // Its other words are not needed, but the pipe must not fill or break.
    let fd = said.into_inner();
    std::thread::spawn(move || {
        let mut rest = String::new();
        let _ = BufReader::new(fd).read_to_string(&mut rest);
        eprint!("{rest}");
    });
    child
}

pub(crate) fn interrupt(child: Child) {
    // SAFETY: signals a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
}

/// A control group of the test's own, removed with its owner.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>()).find(|w| w[2] == "cgroup2");
        let root = mount.map_or_else(
            || {
                // This program's mounts are its own.
                succeed(Command::new("mount").args(["-t", "cgroup2", "ioreel-test", "/sys/fs/cgroup"]));
                "/sys/fs/cgroup".to_owned()
            },
            |w| w[1].to_owned(),
        );
        let dir = Path::new(&root).join(format!("ioreel-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn enter(&self, pid: &str) {
        fs::write(self.0.join("cgroup.procs"), pid).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let root = self.0.parent().unwrap().join("cgroup.procs");
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(&root, pid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Tasks there, below, entering, leaving and born inside.
pub(crate) fn a_control_group() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let group = Cgroup::new("test");
    let below = Cgroup(group.0.join("below"));
    fs::create_dir(&below.0).unwrap();
    let (mut there, mut deep, mut comes) = (Obedient::new(), Obedient::new(), Obedient::new());
    let comes_pid = comes.process.pid();
    group.enter(&there.process.pid());
    below.enter(&deep.process.pid());
    comes.run(&format!("cd {dir}; exec 5>{dir}/held; echo 123 >&5; umask 077"));
    let reel_path = out.path().join("group.reel");
    let recording = recording(&reel_path, &["--cgroup", text(&group.0)]);
    there.run(&format!(": >{dir}/there"));
    deep.run(&format!(": >{dir}/deep"));
    comes.run(&format!(": >{dir}/before"));
    group.enter(&comes_pid);
    // What it has is looked at a moment later.
    std::thread::sleep(Duration::from_millis(200));
    comes.run(&format!(": >{dir}/inside; echo 4567 >&5; sh -c ': >{dir}/child'"));
    let outside = Cgroup::new("outside");
    outside.enter(&comes_pid);
    comes.run(&format!(": >{dir}/after; sh -c ': >{dir}/after-child'"));
    there.run(&format!(": >{dir}/late"));
    interrupt(recording);
    let reel = assert_valid(&reel_path);
    let expected = ["there", "deep", "inside", "child", "late"].map(str::to_owned).into();
    assert_eq!(opened(&reel, out.path()), expected);

    let tasks = reel.read::<Task>().unwrap();
    let row = tasks.iter().find(|t| t.pid.to_string() == comes_pid).unwrap();
    assert!(row.start_ns > 0 && row.left_ns.is_some_and(|l| l > row.start_ns) && row.exit_ns.is_none(), "{row:?}");
    assert_eq!((row.cwd.as_deref(), row.umask, row.parent), (Some(&*dir), Some(0o077), None));
    let of_child = tasks.iter().find(|t| t.parent == Some(row.task_id)).unwrap();
    assert!(of_child.exit_ns.is_some() && of_child.left_ns.is_none());
    let there_row = tasks.iter().find(|t| t.pid.to_string() == there.process.pid()).unwrap();
    assert_eq!((there_row.start_ns, there_row.left_ns, there_row.exit_ns), (0, None, None));
    let ids: HashSet<(i32, i64)> = tasks.iter().map(|t| (t.tid, t.start_ns)).collect();
    assert_eq!(ids.len(), tasks.len(), "one row per life: {tasks:?}");
    let held = reel.read::<Fd>().unwrap().into_iter().find(|f| f.task_id == row.task_id && f.fd == 5).unwrap();
    assert_eq!(held.offset_bytes, 4, "it stood behind the first line");

    // The same group by its number, and names that are none.
    use std::os::unix::fs::MetadataExt;
    let id = fs::metadata(&group.0).unwrap().ino().to_string();
    let again = out.path().join("id.reel");
    succeed(&mut ioreel(["record", "-o", text(&again), "--cgroup", &id, "--duration", "0.1"]));
    let tasks = assert_valid(&again).read::<Task>().unwrap();
    assert!(tasks.iter().any(|t| t.pid.to_string() == there.process.pid()), "{tasks:?}");
    for (name, why) in [("no-such-group", "No such file"), ("999999999999", "no control group has this id")] {
        let words = ["record", "-o", "never.reel", "--cgroup", name, "--duration", "0.01"];
        let line = crate::harness::one_line(&mut ioreel(words), 1);
        assert!(line.contains(why), "{line}");
    }
    drop((there, deep, comes, below));
}

/// Everybody is there, once; neither the recorder nor the kernel is.
pub(crate) fn the_whole_machine() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let mut old = Obedient::new();
    old.run(&format!("exec 7>{dir}/old; echo 12345 >&7"));
    let reel_path = out.path().join("all.reel");
    // A storm of short processes while the recorder adopts.
    let storm = Running(Command::new("sh").args(["-c", "while :; do (:); done"]).spawn().unwrap());
    let recording = recording(&reel_path, &["--all"]);
    let recorder = recording.id() as i32;
    old.run(&format!("echo 678 >&7; : >{dir}/mine; sh -c ': >{dir}/child'"));
    let mut young = Obedient::new();
    young.run(&format!(": >{dir}/young"));
    interrupt(recording);
    drop(storm);
    let reel = assert_valid(&reel_path);
    let opened = opened(&reel, out.path());
    assert!(["mine", "child", "young"].iter().all(|n| opened.contains(*n)), "{opened:?}");
    assert!(opened.iter().all(|p| !p.starts_with("all.reel/")), "its own files: {opened:?}");
    let tasks = reel.read::<Task>().unwrap();
    assert!(tasks.iter().all(|t| t.pid != recorder && t.pid != 2), "the recorder, or kthreadd");
    assert!(reel.read::<Op>().unwrap().iter().all(|o| o.pid != recorder));
    let mut lives: HashMap<i32, Vec<(i64, i64)>> = HashMap::new();
    for t in &tasks {
        lives.entry(t.tid).or_default().push((t.start_ns, t.exit_ns.unwrap_or(i64::MAX)));
    }
    for (tid, mut spans) in lives {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "thread {tid} is there twice: {spans:?}");
    }
    let me = std::process::id() as i32;
    let test = tasks.iter().find(|t| t.pid == me && t.tid == me).unwrap();
    assert!(test.start_ns == 0 && test.exit_ns.is_none());
    assert_eq!(test.cwd.as_deref(), std::env::current_dir().unwrap().to_str());
    let fds = reel.read::<Fd>().unwrap();
    let old_task = tasks.iter().find(|t| t.pid.to_string() == old.process.pid()).unwrap().task_id;
    let seven = fds.iter().find(|f| f.task_id == old_task && f.fd == 7).unwrap();
    assert_eq!(seven.offset_bytes, 6);
    assert_eq!(reel.manifest.filters, ["--all"]);
}

/// Processes appear and vanish while they are adopted; the recording must end when all have gone.
pub(crate) fn processes_that_end_at_once() {
    let out = temp_dir();
    for i in 0..8 {
        let child = Command::new("sh").args(["-c", "read line; exit 0"]).stdin(Stdio::piped()).spawn().unwrap();
        let reel = out.path().join(format!("{i}.reel"));
        let pid = child.id().to_string();
        let mut words = vec!["record", "-o", text(&reel), "--settle", "none", "--pid", &pid];
        words.extend(["--no-snapshot"]);
        let recorder = ioreel(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(120 + 12 * i));
        let mut process = Running(child);
        drop(process.0.stdin.take());
        let output = finish(recorder);
        // It may have gone before the recorder looked for it.
        let gone = String::from_utf8_lossy(&output.stderr).contains("no such process");
        assert!(output.status.success() || gone, "{}", describe(&output));
    }
}
