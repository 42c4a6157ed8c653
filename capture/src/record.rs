//! A recording from start to end.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ioreel_bpf::types::hide;
use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{Command as CommandInfo, Kind, Mount, State},
    rows::{Op, Task},
    text,
    writer::OnCreate,
};

use crate::{
    CaptureError,
    assemble::Assembler,
    command::Command,
    derive, host, ledger,
    pipeline::{Assembled, Message, Pipeline},
    session::{DEFAULT_RING_BYTES, Plan, Session, Tables},
    settle::{drain, settle},
    signals,
    snapshot::Snapshot,
};

/// What to record and where to.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reel to make.
    pub output: PathBuf,
    /// Whose operations.
    pub target: Target,
    /// Disks to record, as given by the user; empty: those behind the file systems touched.
    pub devices: Vec<String>,
    /// Stop after this long.
    pub duration: Option<Duration>,
    /// Sync and wait for quiet at the end.
    pub settle: bool,
    /// Folders whose tree is taken before the start, besides the command's working directory.
    pub snapshot: Vec<PathBuf>,
    /// Take the working directory too.
    pub snapshot_cwd: bool,
    /// Kernel memory for the rings.
    pub ring_bytes: usize,
    /// The words of the command line that chose what is recorded.
    pub filters: Vec<String>,
}

impl Config {
    /// Recording `target` into `output`, all else at its default.
    pub fn new(output: PathBuf, target: Target) -> Self {
        Self {
            output,
            target,
            devices: Vec::new(),
            duration: None,
            settle: true,
            snapshot: Vec::new(),
            snapshot_cwd: true,
            ring_bytes: DEFAULT_RING_BYTES,
            filters: Vec::new(),
        }
    }
}

/// Whose operations are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, started by the recorder, and all its descendants.
    Command(Vec<OsString>),
    /// A running process, and what it starts from now on.
    Process(u32),
}

/// How a recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// The final manifest.
    pub manifest: Manifest,
    /// The command's wait status, once it has ended.
    pub status: Option<i32>,
    /// Why the reel is shorter than it should be, if it is.
    pub error: Option<CaptureError>,
    /// The command was left running.
    pub still_running: Option<u32>,
    /// The signal that ended the recording.
    pub signal: Option<i32>,
}

/// A name as reels hold it.
fn name_of(name: &OsStr) -> String {
    text::from_bytes(name.as_bytes()).to_string()
}

/// How often the rings are looked at: at the fastest writer measured they fill in some hundred ms.
const TICK: Duration = Duration::from_millis(4);
/// After a signal the command has this long to end before the recording does.
const GRACE: Duration = Duration::from_secs(3);

/// Records. Prints nothing; warnings are in the manifest.
pub fn record(config: &Config) -> Result<Outcome, CaptureError> {
    let devices = config
        .devices
        .iter()
        .map(|name| {
            let dev = host::block_device(name)
                .map_err(|e| CaptureError::NoDevice { name: name.clone(), why: e.to_string() })?;
            host::disk_of(dev)
                .ok_or_else(|| CaptureError::NoDevice { name: name.clone(), why: "it has no disk".into() })
        })
        .collect::<Result<Vec<i64>, CaptureError>>()?;
    if let Target::Process(pid) = config.target
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(CaptureError::NoProcess { pid });
    }

    let mut manifest = Manifest::new(Kind::Recording, "tracepoint");
    manifest.host = host::host();
    manifest.filters.clone_from(&config.filters);
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let mut command = match &config.target {
        Target::Command(argv) => {
            let shown = name_of(cwd.as_os_str());
            manifest.command =
                Some(CommandInfo { argv: argv.iter().map(|w| name_of(w)).collect(), cwd: shown, exit_status: None });
            Some(Command::start(argv)?)
        }
        Target::Process(_) => None,
    };
    let pid = match (&command, &config.target) {
        (Some(c), _) => c.pid(),
        (None, Target::Process(pid)) => *pid,
        (None, Target::Command(_)) => 0,
    };

    let plan = Plan {
        target_pid: pid,
        fixed_devices: !devices.is_empty(),
        devices: devices.clone(),
        ring_bytes: config.ring_bytes,
        ops: true,
    };
    let mut storage = MaybeUninit::uninit();
    let mut session = Session::load(&plan, &mut storage)?;
    let mut writer = ReelWriter::create(&config.output, &manifest, WriterOptions::default())?;
    let mounts = host::mounts();
    leave_own_output_out(&mut writer, &session, &config.output, &mounts)?;

    let snapshot = take_snapshot(config, pid, &mut manifest)?;
    if devices.is_empty() {
        let tables = session.tables()?;
        for disk in host::mount_of_path(&mounts, &name_of(cwd.as_os_str())).map(host::disks_of).unwrap_or_default() {
            tables.add_device(disk)?;
        }
    }
    hide_backing_files(&session.tables()?, &mounts)?;

    let adopted = session.adopt()?;
    manifest.clock = host::clock();
    let t0_ns = manifest.clock.monotonic_ns;
    let descriptors = session.descriptors()?;
    let tables = if devices.is_empty() { Some(session.tables()?) } else { None };
    let pipeline = Pipeline::start(Assembler::new(writer, t0_ns, first_task(pid), mounts.clone()), tables);
    pipeline.send(Message::Records { bytes: adopted, complete_to_ns: 0 });
    pipeline.send(Message::Records { bytes: descriptors, complete_to_ns: 0 });

    signals::install();
    session.activate();
    let started = Instant::now();
    if let Some(c) = &mut command
        && let Err(e) = c.release()
    {
        session.end();
        drop(pipeline.finish());
        // Nothing ran: leave nothing behind.
        let _ = fs::remove_dir_all(&config.output);
        return Err(e);
    }
    let signal = follow(&session, &pipeline, config, command.as_mut(), started);

    // The unfinished are told first: what ends after this is not in the reel.
    session.end_operations();
    drain(&session, &pipeline);
    let changed = pipeline.end_of_operations(session.in_flight()?);
    let end_ns = host::monotonic_ns();
    let settled = if config.settle { settle(&session, &pipeline, &on_disk(&changed), t0_ns) } else { Vec::new() };
    session.end();
    // What a probe had begun when the switch flipped is in the rings by now.
    std::thread::sleep(TICK);
    drain(&session, &pipeline);

    let status = command.as_mut().and_then(Command::poll);
    if let Some(c) = &mut manifest.command {
        c.exit_status = status;
    }
    manifest.span.settle_ns = if config.settle { host::monotonic_ns() - end_ns } else { 0 };
    let Some(assembled) = pipeline.finish() else {
        return Err(CaptureError::Os {
            doing: "writing the reel",
            source: std::io::Error::other("the writer thread died"),
        });
    };
    let still_running = command.as_ref().filter(|_| status.is_none()).map(Command::pid);
    close(config, manifest, &session, assembled, Closing { settled, snapshot, mounts, end_ns })
        .map(|(manifest, error)| Outcome { manifest, status, error, still_running, signal })
}

/// Waits for a command that outlived its recording; its wait status.
pub fn wait_for(pid: u32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: waits for a child of this process.
        let r = unsafe { libc::waitpid(pid as i32, &mut status, 0) };
        if r >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return status;
        }
        if let Some(s) = signals::take()
            && !s.from_kernel
        {
            // SAFETY: passes a signal on to a child that has not been reaped.
            unsafe { libc::kill(pid as i32, s.signal) };
        }
    }
}

/// Drains until the last recorded thread has ended, or something else ends the recording. Returns the
/// signal that asked for the end, if one was passed on to the command.
fn follow(
    session: &Session<'_>,
    pipeline: &Pipeline,
    config: &Config,
    mut command: Option<&mut Command>,
    started: Instant,
) -> Option<i32> {
    let mut stop_at = config.duration.map(|d| started + d);
    let mut signal = None;
    loop {
        drain(session, pipeline);
        let reaped = command.as_deref_mut().is_none_or(|c| c.poll().is_some());
        if session.alive() <= 0 && reaped || pipeline.progress.failed.load(Ordering::Relaxed) {
            return signal;
        }
        if let Some(s) = signals::take() {
            match &command {
                // A second signal, or a process that is not ours to end: stop at once.
                _ if signal.is_some() => return signal,
                None => return None,
                Some(c) => {
                    if !s.from_kernel {
                        c.signal(s.signal);
                    }
                    signal = Some(s.signal);
                    let grace = Instant::now() + GRACE;
                    stop_at = Some(stop_at.map_or(grace, |t| t.min(grace)));
                }
            }
        }
        if stop_at.is_some_and(|t| Instant::now() >= t) {
            return signal;
        }
        std::thread::sleep(TICK);
    }
}

/// Tells the probes which files are the recorder's own.
fn leave_own_output_out(
    writer: &mut ReelWriter,
    session: &Session<'_>,
    output: &Path,
    mounts: &[Mount],
) -> Result<(), CaptureError> {
    let Some(mount) =
        output.canonicalize().ok().and_then(|p| host::mount_of_path(mounts, &name_of(p.as_os_str())).cloned())
    else {
        return Ok(());
    };
    let tables = session.tables()?;
    writer.on_create(OnCreate(Arc::new(move |file| {
        if let Ok(meta) = file.metadata()
            && let Err(e) = tables.hide_file(meta.ino(), mount.sb_dev as u32, hide::HIDE_OWN.0)
        {
            log::warn!("{e}");
        }
    })));
    Ok(())
}

/// A loop device passes each request on to its backing file: seen once, on the loop device, is enough.
pub(crate) fn hide_backing_files(tables: &Tables, mounts: &[Mount]) -> Result<(), CaptureError> {
    let loops: BTreeSet<i64> = mounts.iter().flat_map(host::disks_of).collect();
    for file in loops.iter().filter_map(|d| host::device(*d).backing_file) {
        if let (Ok(meta), Some(mount)) = (fs::metadata(&file), host::mount_of_path(mounts, &file)) {
            tables.hide_file(meta.ino(), mount.sb_dev as u32, hide::HIDE_BACKING.0)?;
        }
    }
    Ok(())
}

fn take_snapshot(config: &Config, pid: u32, manifest: &mut Manifest) -> Result<Snapshot, CaptureError> {
    let mut snapshot = Snapshot::default();
    for dir in &config.snapshot {
        snapshot.add(dir).map_err(|source| CaptureError::Snapshot { path: dir.clone(), source })?;
    }
    if config.snapshot_cwd
        && let Ok(cwd) = fs::read_link(format!("/proc/{pid}/cwd"))
    {
        // A deleted working directory has no tree.
        let _ = snapshot.add(&cwd);
    }
    if let Ok(output) = config.output.canonicalize() {
        snapshot.forget(&output);
    }
    if snapshot.cut {
        manifest.warnings.push(format!(
            "the snapshot of the tree was cut at {} entries; a replay prepares the rest from what the recording shows",
            snapshot.entries.len()
        ));
    }
    Ok(snapshot)
}

/// What /proc tells of a process before it runs on.
fn first_task(pid: u32) -> Task {
    let link = |name: &str| {
        fs::read_link(format!("/proc/{pid}/{name}")).ok().map(|p| text::from_bytes(p.as_os_str().as_bytes()))
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::split_whitespace);
    let effective = |name: &str| field(name).and_then(|mut w| w.nth(1)?.parse::<i64>().ok()).map(|v| v as i32);
    Task {
        cwd: link("cwd"),
        root: link("root"),
        umask: field("Umask:").and_then(|mut w| i32::from_str_radix(w.next()?, 8).ok()),
        uid: effective("Uid:"),
        gid: effective("Gid:"),
        ..Task::default()
    }
}

/// One mount of each of these file systems that has a disk.
fn on_disk(file_systems: &BTreeSet<i64>) -> Vec<Mount> {
    let mut seen = BTreeSet::new();
    let mounts = host::mounts().into_iter();
    mounts
        .filter(|m| file_systems.contains(&m.sb_dev) && !host::disks_of(m).is_empty() && seen.insert(m.sb_dev))
        .collect()
}

struct Closing {
    settled: Vec<Op>,
    snapshot: Snapshot,
    mounts: Vec<Mount>,
    end_ns: i64,
}

/// Writes what is known only at the end, and the manifest.
fn close(
    config: &Config,
    mut manifest: Manifest,
    session: &Session<'_>,
    mut assembled: Assembled,
    closing: Closing,
) -> Result<(Manifest, Option<CaptureError>), CaptureError> {
    let ledgers = session.ledgers()?;
    let numbered: Vec<u64> = ledgers.iter().map(|l| l.seq).collect();
    manifest.losses = assembled.losses(&numbered);
    let Assembled { mut assembler, mut error, in_flight, .. } = assembled;
    let mut settled = closing.settled;
    let mut last_words = |a: &mut Assembler| {
        a.tool_rows = settled.len() as i64;
        settled.drain(..).try_for_each(|op| a.writer.ops.push(op))?;
        a.finish()?;
        a.writer.flush()
    };
    // Also after a write error: these tables are small, and without the tasks a reel cannot be replayed.
    let last = last_words(&mut assembler).err();
    error = error.or(last);
    manifest.span.elapsed_ns =
        if assembler.last_ns > 0 { assembler.last_ns } else { closing.end_ns - manifest.clock.monotonic_ns };
    // A mount may have come during the recording.
    let now = host::mounts();
    for mount in now.iter().chain(&closing.mounts) {
        if assembler.touched.contains(&mount.sb_dev)
            && !manifest.mounts.contains(mount)
            && manifest.mount_of(mount.sb_dev).is_none()
        {
            manifest.mounts.push(mount.clone());
        }
    }
    let mut disks = assembler.disks.clone();
    disks.extend(manifest.mounts.iter().flat_map(host::disks_of));
    manifest.devices = disks.iter().map(|d| host::device(*d)).collect();
    manifest.probes = session.probes();
    if error.is_none() {
        error = derive::write_tree(&mut assembler.writer, &mut manifest, closing.snapshot).err();
    }
    if error.is_some() {
        manifest.state = State::Truncated;
    }
    warn_of_own_device(config, &mut manifest, &assembler);
    ledger::fill(&mut manifest, &ledgers, &mut assembler, in_flight);
    manifest.cost.ring_bytes = session.ring_bytes as i64;
    ledger::own_cost(&mut manifest.cost);
    let manifest = match assembler.writer.close(manifest.clone()) {
        Ok(m) => m,
        Err(e) => {
            error.get_or_insert(e);
            Manifest::read(&config.output)?
        }
    };
    Ok((manifest, error.map(CaptureError::Reel)))
}

fn warn_of_own_device(config: &Config, manifest: &mut Manifest, assembler: &Assembler) {
    let Ok(path) = config.output.canonicalize() else { return };
    let all = host::mounts();
    let Some(mount) = host::mount_of_path(&all, &name_of(path.as_os_str())) else { return };
    if let Some(disk) = host::disks_of(mount).into_iter().find(|d| assembler.disks.contains(d)) {
        let name = host::device(disk).name;
        manifest.warnings.push(format!(
            "the reel lies on the recorded device {name}: its own data is left out, the file system's work for it is not; write the reel elsewhere (tmpfs, another disk) for exact block tables"
        ));
    }
}
