//! Which processes a recording covers: all descendants to the last one's end, or a running process with what
//! it already has open.

use std::{
    collections::{HashMap, HashSet},
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ioreel_traces::{
    Reel,
    rows::{Bio, Exec, Fd, File, Op, Task},
};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text, wait_for,
};

fn ops_on(reel: &Reel, path: &str) -> Vec<Op> {
    let files = reel.read::<File>().unwrap();
    let ids: Vec<i64> = files.iter().filter(|f| f.path.as_deref() == Some(path)).map(|f| f.file).collect();
    let ops = reel.read::<Op>().unwrap();
    ops.into_iter().filter(|o| o.source == "syscall" && o.file.is_some_and(|f| ids.contains(&f))).collect()
}

/// Children and grandchildren by fork and exec, each with its own file.
pub(crate) fn forks_and_execs() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let reel = out.path().join("tree.reel");
    let script = format!(
        "cd {dir}; echo one >first; (echo two >second; sh -c 'echo three >third; exec tee fourth </dev/null'; :)"
    );
    succeed(&mut record(&reel, &[], &["sh", "-c", &script]));
    let reel = assert_valid(&reel);
    let tasks: HashMap<i64, Task> = reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t)).collect();
    for (name, text) in [("first", "one\n"), ("second", "two\n"), ("third", "three\n")] {
        let ops = ops_on(&reel, &format!("{dir}/{name}"));
        let write = ops.iter().find(|o| o.op == "write").unwrap_or_else(|| panic!("no write to {name}: {ops:?}"));
        assert_eq!(write.ret, Some(text.len() as i64));
    }
    let third = ops_on(&reel, &format!("{dir}/third"))[0].task_id;
    let fourth = ops_on(&reel, &format!("{dir}/fourth"))[0].task_id;
    assert_eq!(third, fourth, "an exec changes the program, not the task");
    let mut generations = 0;
    let mut task = &tasks[&third];
    while let Some(parent) = task.parent {
        generations += 1;
        assert!(tasks[&parent].start_ns <= task.start_ns);
        task = &tasks[&parent];
    }
    assert_eq!(generations, 2);
    let execs = reel.read::<Exec>().unwrap();
    let of_third: Vec<&str> = execs.iter().filter(|e| e.task_id == third).map(|e| &*e.comm).collect();
    assert_eq!(of_third, ["sh", "tee"]);
    assert!(tasks.values().all(|t| t.exit_ns.is_some() && t.exit_code == Some(0)), "{tasks:?}");
}

/// Where the recorder's own numbers of processes are not the kernel's: a command, and a process named by the number that
/// it has there.
pub(crate) fn a_recorder_in_a_container() {
    let out = temp_dir();
    let (command, running) = (out.path().join("command.reel"), out.path().join("running.reel"));
    let (file, other) = (out.path().join("file"), out.path().join("other"));
    let recorder = env!("CARGO_BIN_EXE_ioreel");
    // Some numbers are used up first, so that a mix-up of name spaces could not go unseen.
    let script = format!(
        "for i in 1 2 3 4 5 6 7; do /bin/true; done\n\
         {recorder} record -o {command} -- sh -c 'echo data >{file}'\n\
         (while :; do echo x >>{other}; sleep 0.01; done) &\n\
         {recorder} record --pid $! --duration 1s -o {running}\nkill $!\n",
        command = text(&command),
        running = text(&running),
        file = text(&file),
        other = text(&other),
    );
    succeed(Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "sh", "-ec", &script]));
    for (reel, path) in [(&command, &file), (&running, &other)] {
        let reel = assert_valid(reel);
        let own = reel.read::<File>().unwrap().into_iter().find(|f| f.path.as_deref() == Some(text(path)));
        let own = own.unwrap_or_else(|| panic!("{path:?} was not met")).file;
        let writes = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.op == "write" && o.file == Some(own)).count();
        assert!(writes > 0, "{path:?}");
        // Its own reading of rings and writing of reels is nobody's.
        let tasks: Vec<Task> = reel.read().unwrap();
        assert!(tasks.iter().all(|t| t.comm != "ioreel"), "{tasks:?}");
    }
}

/// More threads at a time than the probes have quick places for: every hundredth or so shares its place with another.
pub(crate) fn very_many_at_a_time() {
    const CHILDREN: usize = 300;
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let reel = out.path().join("many.reel");
    let script = format!(
        "cd {dir}; i=0; while [ $i -lt {CHILDREN} ]; do (exec 9>f$i; sleep 1; echo x >&9; echo yy >&9) & i=$((i+1)); done; wait"
    );
    succeed(&mut record(&reel, &[], &["sh", "-c", &script]));
    let reel = assert_valid(&reel);
    let files: HashMap<i64, File> = reel.read::<File>().unwrap().into_iter().map(|f| (f.file, f)).collect();
    let mut writes: HashMap<String, Vec<(i64, Option<i64>)>> = HashMap::new();
    for op in reel.read::<Op>().unwrap().into_iter().filter(|o| o.op == "write") {
        let path = op.file.and_then(|f| files[&f].path.as_deref().map(str::to_owned)).unwrap_or_default();
        writes.entry(path).or_default().push((op.task_id, op.ret));
    }
    let mut writers = HashSet::new();
    for i in 0..CHILDREN {
        let found = writes.remove(&format!("{dir}/f{i}")).unwrap_or_default();
        let [(first, Some(2)), (second, Some(3))] = found[..] else { panic!("f{i}: {found:?}") };
        assert_eq!(first, second);
        assert!(writers.insert(first), "task {first} wrote to two files");
    }
    let tasks = reel.read::<Task>().unwrap();
    assert_eq!(tasks.len(), 1 + 2 * CHILDREN, "the shell, its children and their sleeps");
    assert!(tasks.iter().all(|t| t.exit_ns.is_some()));
}

/// A child that outlives the command in a session of its own is recorded to its end.
pub(crate) fn a_daemon() {
    let out = temp_dir();
    let late = out.path().join("late");
    let reel = out.path().join("daemon.reel");
    let script = format!("setsid sh -c 'sleep 0.7; echo from afar >{}' </dev/null >/dev/null 2>&1 &", text(&late));
    let started = Instant::now();
    succeed(&mut record(&reel, &[], &["sh", "-c", &script]));
    assert!(started.elapsed() >= Duration::from_millis(700));
    assert_eq!(fs::read_to_string(&late).unwrap(), "from afar\n");
    let reel = assert_valid(&reel);
    let ops = ops_on(&reel, text(&late));
    assert!(ops.iter().any(|o| o.op == "write" && o.ret == Some(10)), "{ops:?}");
}

/// A process that runs already, ended with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What keeps a shell from calls for some time: a loop of nothing else makes three million a second, more than any recorder takes for long.
const PAUSE: &str = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); done";

/// A process that appends to a file it opened long ago, with descriptor 7 at position 5 of another.
fn running(dir: &str) -> Running {
    let script = format!(
        "printf 'head and tail' >{dir}/input; exec 8>>{dir}/file 7<{dir}/input; \
         dd bs=5 count=1 <&7 >/dev/null 2>&1; : >{dir}/ready; while :; do echo 0123456789 >&8; {PAUSE}; done"
    );
    let child = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
    wait_for("the process to be at work", || fs::exists(format!("{dir}/ready")).unwrap().then_some(()));
    Running(child)
}

pub(crate) fn a_running_process_for_a_while() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let process = running(&dir);
    let reel = out.path().join("pid.reel");
    let pid = process.0.id().to_string();
    let started = Instant::now();
    succeed(&mut ioreel(["record", "-o", text(&reel), "--pid", &pid, "--duration", "0.5"]));
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(500), "{took:?}");
    drop(process);

    let reel = assert_valid(&reel);
    let fds = reel.read::<Fd>().unwrap();
    let file_of = |fd: i32| {
        let row = fds.iter().find(|f| f.fd == fd).unwrap_or_else(|| panic!("descriptor {fd} in {fds:?}"));
        let file = reel.read::<File>().unwrap().into_iter().find(|f| Some(f.file) == row.file).unwrap();
        (row, file)
    };
    let (input, input_file) = file_of(7);
    assert_eq!((input.offset_bytes, input_file.path.as_deref()), (5, Some(&*format!("{dir}/input"))));
    let (output, output_file) = file_of(8);
    assert_eq!(output_file.path.as_deref(), Some(&*format!("{dir}/file")));
    assert_ne!(output.flags & i64::from(libc::O_APPEND), 0);
    let writes = ops_on(&reel, &format!("{dir}/file"));
    let writes: Vec<&Op> = writes.iter().filter(|o| o.op == "write" && &*o.state == "complete").collect();
    assert!(writes.len() > 10, "{} writes", writes.len());
    assert!(writes.iter().all(|o| o.ret == Some(11) && o.ofd == Some(output.ofd)));
    let positions = writes.windows(2).all(|w| w[1].offset_bytes == w[0].offset_bytes.map(|p| p + 11));
    assert!(positions, "appends do not follow each other");
    let task = &reel.read::<Task>().unwrap()[0];
    assert_eq!((task.pid.to_string(), task.exit_ns), (pid, None));
}

/// A write may ask not to append, through a descriptor that does (6.9): it acts where it says.
pub(crate) fn a_write_that_does_not_append() {
    let (mount, out) = (Mounted::new(Fs::Tmpfs, DEFAULT_SIZE_BYTES), temp_dir());
    let (reel, file) = (out.path().join("x.reel"), mount.path().join("log"));
    let script = format!(
        "import os\n\
         f = os.open({file:?}, os.O_RDWR | os.O_CREAT | os.O_APPEND)\n\
         os.write(f, b'x' * 50)\n\
         os.pwritev(f, [b'1234567'], 6, 0x20)\n\
         os.pwritev(f, [b'the end'], 6)"
    );
    succeed(&mut record(&reel, &[], &["python3", "-c", &script]));
    assert_eq!(fs::metadata(&file).unwrap().len(), 57);
    let writes = ops_on(&assert_valid(&reel), text(&file)).into_iter().filter(|o| o.op.contains("write"));
    let writes: Vec<_> = writes.map(|o| (o.offset_bytes, o.ret)).collect();
    assert_eq!(writes, [(Some(0), Some(50)), (Some(6), Some(7)), (Some(50), Some(7))]);
}

/// Programs that are faster than the recorder do not keep it from its end: what it could not take is counted.
pub(crate) fn a_while_is_kept_by_a_recorder_that_is_behind() {
    const FAST: &str = "exec 8>/dev/null; while :; do echo >&8; echo >&8; echo >&8; done";
    let out = temp_dir();
    let reel = out.path().join("behind.reel");
    let programs: Vec<Running> =
        (0..4).map(|_| Running(Command::new("sh").args(["-c", FAST]).spawn().unwrap())).collect();
    let mut recording = ioreel(["record", "-o", text(&reel), "--duration", "0.5", "--settle", "none", "--no-snapshot"]);
    for program in &programs {
        recording.args(["--pid", &program.0.id().to_string()]);
    }
    succeed(&mut recording);
    succeed(&mut ioreel(["validate", text(&reel)]));
    let manifest = Reel::open(&reel).unwrap().manifest;
    assert_eq!(manifest.ended, "duration");
    assert!(manifest.ledger["ops"].seen > 10_000, "{:?}", manifest.ledger);
    // However long a recorder waits for a CPU among four programs.
    assert!(manifest.span.elapsed_ns < 1_500_000_000, "{:?}", manifest.span);
}

/// Its end ends the recording.
pub(crate) fn a_running_process_to_its_end() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let process = running(&dir);
    let reel = out.path().join("end.reel");
    let pid = process.0.id().to_string();
    let mut recording = ioreel(["record", "-o", text(&reel), "--pid", &pid]);
    let recording = recording.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The reel's folder appears when the probes are active; then some more of the process's work.
    wait_for("the recording to begin", || reel.join("manifest.json").exists().then_some(()));
    let size = || fs::metadata(format!("{dir}/file")).unwrap().len();
    let begun = size();
    std::thread::sleep(Duration::from_millis(1000));
    wait_for("the process to go on", || (size() > begun + 10_000).then_some(()));
    drop(process);
    let output = crate::harness::finish(recording);
    assert!(output.status.success(), "{}", crate::harness::describe(&output));
    let reel = assert_valid(&reel);
    assert!(ops_on(&reel, &format!("{dir}/file")).len() > 10);
    assert!(reel.read::<Task>().unwrap()[0].exit_ns.is_some());
}

/// A command that takes longer than it is recorded is left running.
pub(crate) fn a_command_for_a_while() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let reel = out.path().join("duration.reel");
    let script = format!("while ! [ -e {dir}/stop ]; do echo x >>{dir}/file; {PAUSE}; done; echo bye >{dir}/bye");
    let started = Instant::now();
    let stopper = {
        let dir = dir.clone();
        // The command is stopped once the reel is closed, however long a busy machine takes to begin.
        std::thread::spawn(move || {
            let closed = || fs::read_to_string(format!("{dir}/duration.reel/manifest.json")).unwrap_or_default();
            wait_for("the recording's end", || closed().contains(r#""state": "complete""#).then_some(()));
            fs::write(format!("{dir}/stop"), "").unwrap();
        })
    };
    succeed(&mut record(&reel, &["--duration", "1.5"], &["sh", "-c", &script]));
    assert!(started.elapsed() >= Duration::from_millis(1500));
    stopper.join().unwrap();
    wait_for("the command's own end", || fs::exists(format!("{dir}/bye")).unwrap().then_some(()));
    let reel = assert_valid(&reel);
    assert!(ops_on(&reel, &format!("{dir}/file")).len() > 10);
    assert!(ops_on(&reel, &format!("{dir}/bye")).is_empty());
}

/// What a program does once the recording is over is neither waited for nor part of its time, though the disk is never quiet.
pub(crate) fn a_while_of_a_program_that_writes_on() {
    let (on, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let file = text(&on.path().join("file")).to_owned();
    // A synced write every few milliseconds until it is stopped.
    let script = format!("while :; do dd if=/dev/zero of={file} bs=4k count=4 conv=fsync 2>/dev/null; done");
    let writer = Running(Command::new("sh").args(["-c", &script]).spawn().unwrap());
    wait_for("the writer to be at work", || fs::exists(&file).unwrap().then_some(()));
    let reel = out.path().join("on.reel");
    let pid = writer.0.id().to_string();
    let mut recording = ioreel(["record", "-o", text(&reel), "--pid", &pid, "--duration", "0.5", "--no-snapshot"]);
    let started = Instant::now();
    succeed(&mut recording);
    let took_ns = started.elapsed().as_nanos() as i64;
    drop(writer);
    let reel = assert_valid(&reel);
    let span = &reel.manifest.span;
    assert!((500_000_000..2_000_000_000).contains(&span.elapsed_ns), "{span:?}");
    // It would go on for 30 s.
    assert!(span.settle_ns < 10_000_000_000, "{span:?}");
    assert!(span.elapsed_ns + span.settle_ns <= took_ns, "{span:?} of {took_ns} ns");
    let tasks: Vec<Task> = reel.read().unwrap();
    assert!(tasks.iter().all(|t| t.exit_ns.is_none_or(|at| at <= span.elapsed_ns)), "{tasks:?}");
    assert!(tasks.iter().any(|t| t.exit_ns.is_none()), "{tasks:?}");
    // Who was born later is there only for what reached the disk.
    let bios: Vec<Bio> = reel.read().unwrap();
    let late = tasks.iter().filter(|t| t.start_ns > span.elapsed_ns);
    assert!(late.clone().all(|t| bios.iter().any(|b| b.task_id == Some(t.task_id))), "{:?}", late.collect::<Vec<_>>());
}
