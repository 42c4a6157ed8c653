//! `ioreel record`: records operations and block I/O into a reel.

use crate::output::{is_quiet, say, tell};
use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

mod daemon;
mod ending;
mod life;

use self::{daemon::Daemon, life::Life};
use crate::{anonymize::key, columns::count, quantity, units::bytes};
use clap::ArgGroup;
use ioreel_capture::{
    CaptureError,
    host::containers,
    probes::{
        filter::Filter,
        session::{Caller, Content, DEFAULT_WAITS_MIN_NS, WaitsPlan, default_ring_bytes},
    },
    record::{Backend, Bound, Config, Herald, Layers, Moment, Observer, Outcome, Progress, Target, record, wait_for},
};
use ioreel_traces::{manifest::Container, text};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("target").required(true).args(["command", "pid", "cgroup", "container", "unit", "all"])), after_help = NOTES)]
pub(crate) struct Args {
    /// Reel to write; must not exist. With --daemon: folder in which reels are created [default: a new name in the working
    /// directory, such as tar-20261127-1.reel]
    #[arg(short, long, value_name = "REEL", required_if_eq("daemon", "true"))]
    output: Option<PathBuf>,
    /// Record in the background until SIGTERM, into a new reel in folder -o named by the start time in UTC. The folder
    /// also holds ioreel.pid and ioreel.log; only one daemon may use it. With NOTIFY_SOCKET set (systemd), stay in the
    /// foreground
    #[arg(long, conflicts_with = "command")]
    daemon: bool,
    /// Record a running process, its open files and all children it starts from now on, until it exits or Ctrl-C;
    /// repeatable
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Record all tasks in a control group (cgroup2) and its descendants, including tasks that join later, until Ctrl-C
    /// or --duration. Give its directory or its inode number
    #[arg(long, value_name = "PATH_OR_ID")]
    cgroup: Option<String>,
    /// Record a container of Docker, Podman, containerd, CRI-O or Kubernetes until Ctrl-C or --duration: its name, its id or
    /// the beginning of it, a pod (all its containers), POD/CONTAINER or NAMESPACE/POD. The container must run
    #[arg(long, value_name = "NAME_OR_ID")]
    container: Option<String>,
    /// Record a unit of systemd until Ctrl-C or --duration, such as nginx.service; .service may be left out. The unit must
    /// run
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Record every task of the machine except this recorder, until Ctrl-C or --duration
    #[arg(long)]
    all: bool,
    /// Record only this disk (/dev/NAME, NAME or MAJOR:MINOR), operations on it and on file systems on it; repeatable
    /// [default: the disks behind all file systems used]
    #[arg(long, value_name = "DEV")]
    device: Vec<String>,
    #[command(flatten)]
    life: Life,
    /// Record only operations on this file, or on files below this directory. With *, ? or [, a pattern for the whole
    /// path (** crosses directories), or for the file name if it has no slash; repeatable
    #[arg(long, value_name = "PATH", help_heading = "Filters")]
    path: Vec<PathBuf>,
    /// Record only operations of threads with this name (the first 15 bytes are compared); repeatable
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    comm: Vec<String>,
    /// Record only operations with this effective user, by name or id; repeatable
    #[arg(long, value_name = "USER", help_heading = "Filters")]
    uid: Vec<String>,
    /// Record only these system calls, separated by commas: names, patterns such as *stat*, or the classes read, write,
    /// copy, sync, map, meta (all others)
    #[arg(long, value_name = "NAMES", help_heading = "Filters")]
    op: Vec<String>,
    /// Record only operations that took at least this long, as a number with ns, us, ms or s [default: all]
    #[arg(long, value_name = "TIME", value_parser = quantity::latency, default_value = "0ns", hide_default_value = true,
        help_heading = "Filters")]
    min_latency: Duration,
    /// Record only the block layer; system calls are not slowed down
    #[arg(long, conflicts_with_all = ["ops_only", "path", "comm", "uid", "op", "min_latency"], help_heading = "Filters")]
    block_only: bool,
    /// Record only operations, not the block layer
    #[arg(long, conflicts_with = "device", help_heading = "Filters")]
    ops_only: bool,
    /// Kind of BPF programs to attach. `fentry` also records file I/O done by the kernel itself: by kernel threads (NFS
    /// server, loop devices) and on the files below an overlay
    #[arg(long, value_name = "KIND", default_value = "auto")]
    backend: Programs,
    /// What to do after the last task has exited
    #[arg(long, value_name = "HOW", default_value = "sync")]
    settle: Settle,
    /// Record the directory tree below DIR before the start, so that a replay can rebuild it; repeatable. The working
    /// directory of the command is always included, up to --snapshot-limit
    #[arg(long, value_name = "DIR")]
    snapshot: Vec<PathBuf>,
    /// Stop recording the tree of the working directory after this many names and this long; names that the command uses
    /// are recorded in any case
    #[arg(long, value_name = "NAMES,TIME", value_parser = snapshot_limit, default_value = "50000,300ms")]
    snapshot_limit: Bound,
    /// Do not record the tree of the working directory
    #[arg(long, conflicts_with = "snapshot_limit")]
    no_snapshot: bool,
    /// Record the on-disk layout of existing files (FIEMAP; table `extents`) for `replay --layout`. Opens every file of the
    /// recorded trees before the start
    #[arg(long, conflicts_with = "block_only")]
    extents: bool,
    /// Kernel memory for the rings of all CPUs together, in MiB [default: 64, or 1 per CPU if that is more]
    #[arg(long, value_name = "MIB", value_parser = ring_mib)]
    ring_mib: Option<usize>,
    /// Record page cache events by file: fill, readahead, dirty, write-back, eviction (table `cache`). Costs about 100 ns
    /// per page
    #[arg(long)]
    cache: bool,
    /// Record the data of file writes: `hash` stores a hash and the compressibility in `ops`; `full` also stores the bytes in
    /// table `contents`. Uses half of the ring memory
    #[arg(long, value_name = "WHAT", default_value = "none", conflicts_with = "block_only")]
    content: What,
    /// Show a status line on the terminal: operations, losses, ring usage, reel size
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: When,
    /// Draw the recording when it has ended, as `ioreel plot` does: x.png beside x.reel
    #[arg(long, conflicts_with = "daemon")]
    plot: bool,
    /// Hash all names before they are written, as `ioreel anonymize` does afterwards
    #[arg(long)]
    anonymize: bool,
    /// Use the content of this file (at least 16 bytes) as the key. The same key gives the same names, so that reels
    /// can be compared [default: a random key, discarded at exit]
    #[arg(long, value_name = "FILE", requires = "anonymize")]
    key_file: Option<PathBuf>,
    /// Record what operations of at least --waits-min wait for: device, journal, lock, throttling, reclaim, run queue.
    /// Derived from the kernel stack at each context switch (table `waits`, summarised by `info`). Also records the time
    /// off the CPU of every call (`ops.off_cpu_ns`) and commits of journals (table `commits`)
    #[arg(long)]
    waits: bool,
    /// With --waits: keep the waits of operations that took at least this long, as a number with ns, us, ms or s; 0ns
    /// keeps all. Does not filter operations [default: 1ms, or --min-latency]
    #[arg(long, value_name = "TIME", value_parser = quantity::latency, requires = "waits")]
    waits_min: Option<Duration>,
    /// With --waits: also record the user stack, as module+offset (needs frame pointers)
    #[arg(long, requires = "waits")]
    user_stacks: bool,
    /// Command to record, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Exit statuses of a shell for a command that it cannot execute, and for one that does not exist.
const EXIT_CANNOT_EXECUTE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

const NOTES: &str = "\
Exit status: that of the command (128 + signal if it was killed); 127 if it does not exist, 126 if it cannot be executed; \
1 if ioreel fails; 3 with --strict if events were lost.
Ctrl-C ends the command and the recording; the reel is complete. Details: docs/record.md, docs/filters.md.";

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Programs {
    /// Tracepoints; with --all also fentry for kernel threads, if the kernel supports it (see `ioreel doctor`)
    Auto,
    /// Tracepoints and iterators only
    Tracepoint,
    /// Tracepoints, and entry and exit of kernel functions
    Fentry,
}

impl Programs {
    fn backend(self) -> Backend {
        match self {
            Self::Auto => Backend::Auto,
            Self::Tracepoint => Backend::Tracepoint,
            Self::Fentry => Backend::Fentry,
        }
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Settle {
    /// Sync the changed file systems and record their disks until that data is on them
    Sync,
    /// Stop at once; data not yet written back is missing from the block tables
    None,
}

fn snapshot_limit(s: &str) -> Result<Bound, String> {
    let bad = || "expected a number of names and a time, such as 1000000,20s".to_owned();
    let (names, time) = s.split_once(',').ok_or_else(bad)?;
    Ok(Bound { names: names.parse().map_err(|_| bad())?, time: quantity::latency(time)? })
}

fn ring_mib(s: &str) -> Result<usize, String> {
    match s.parse::<usize>() {
        Ok(n @ 1..=65536) => Ok(n),
        _ => Err("expected a number of MiB from 1 to 65536".into()),
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Do not read the data
    None,
    /// Hash and compressibility of each write
    Hash,
    /// Hash, compressibility and the bytes: the reel contains file data
    Full,
}

impl What {
    fn content(self) -> Content {
        match self {
            Self::None => Content::None,
            Self::Hash => Content::Hash,
            Self::Full => Content::Full,
        }
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// If stderr is a terminal and no command is started
    Auto,
    /// If stderr is a terminal
    Always,
    /// Never
    Never,
}

/// Draws the status line.
fn status_line(p: &Progress) {
    let seconds = p.elapsed.as_secs_f64();
    let lost = if p.lost > 0 { format!("{} LOST", count(p.lost)) } else { "none lost".into() };
    let line = format!(
        "{:.0} s: {} operations ({}/s), {lost}, rings at most {:.0}% full, reel {}",
        seconds,
        count(p.ops),
        count((p.ops as f64 / seconds.max(0.001)) as u64),
        p.ring_fill * 100.0,
        bytes(p.reel_bytes.min(i64::MAX as u64) as i64),
    );
    redraw(&line);
}

/// Replaces the current line of the terminal.
fn redraw(line: &str) {
    // The terminal may be gone.
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

/// The options that select what is recorded, as stored in the manifest.
fn filter_words(args: &Args) -> Vec<String> {
    let mut out: Vec<String> = args.device.iter().map(|d| format!("--device {d}")).collect();
    out.extend(args.pid.iter().map(|p| format!("--pid {p}")));
    out.extend(args.cgroup.iter().map(|c| format!("--cgroup {c}")));
    out.extend(args.container.iter().map(|c| format!("--container {c}")));
    out.extend(args.unit.iter().map(|u| format!("--unit {u}")));
    out.extend(args.all.then(|| "--all".to_owned()));
    out.extend(args.life.words());
    out.extend(args.path.iter().map(|p| format!("--path {}", text::from_bytes(p.as_os_str().as_bytes()))));
    out.extend(args.comm.iter().map(|c| format!("--comm {c}")));
    out.extend(args.uid.iter().map(|u| format!("--uid {u}")));
    out.extend(args.op.iter().map(|o| format!("--op {o}")));
    if !args.min_latency.is_zero() {
        out.push(format!("--min-latency {}ns", args.min_latency.as_nanos()));
    }
    out.extend(match args.content {
        What::None => None,
        What::Hash => Some("--content hash".to_owned()),
        What::Full => Some("--content full".to_owned()),
    });
    out.extend(args.block_only.then(|| "--block-only".to_owned()));
    out.extend(args.ops_only.then(|| "--ops-only".to_owned()));
    out
}

/// Reports the progress of a recording into `reel`. `joins`: it records processes that already run. Whoever starts
/// their work must know when the probes are active.
fn herald(daemon: Option<Arc<Daemon>>, reel: PathBuf, joins: bool) -> Herald {
    Herald(Arc::new(move |moment| {
        match moment {
            Moment::Begun if daemon.is_none() && (joins || std::io::stderr().is_terminal()) => {
                say!("ioreel: recording into {}", reel.display());
            }
            Moment::Copied(path) => say!("ioreel: wrote {}; recording continues", path.display()),
            Moment::NotCopied(why) => {
                tell!("ioreel: cannot write the copy of the recording: {why}; recording continues");
            }
            Moment::Settling(what) if std::io::stderr().is_terminal() => say!("ioreel: {what}"),
            Moment::Begun | Moment::Ending | Moment::Settling(_) => {}
        }
        if let Some(daemon) = &daemon {
            daemon.hear(moment, &reel);
        }
    }))
}

/// Runs `ioreel record`.
pub(crate) fn run(args: Args, caller: Option<Caller>) -> anyhow::Result<ExitCode> {
    // Before the daemon changes its working directory and leaves the terminal: paths are relative to this one, and
    // errors are still seen.
    let filter = Filter::new(&args.path, &args.comm, &args.uid, &args.op, args.min_latency)?;
    let daemon = match &args.output {
        Some(folder) if args.daemon => Some(Arc::new(Daemon::start(folder)?)),
        _ => None,
    };
    let (strict, wants_plot, is_daemon) = (args.life.strict, args.plot, daemon.is_some());
    let config = Config { caller, ..config(args, filter, daemon)? };
    let recorded = record(&config);
    if config.observer.is_some() {
        // Messages start on a clean line.
        redraw("");
    }
    match recorded {
        Err(e @ CaptureError::Interrupted { signal }) => {
            tell!("ioreel: {e}");
            Ok(ExitCode::from(128 + signal as u8))
        }
        Err(ref e @ CaptureError::Command { ref source, .. }) => {
            tell!("ioreel: {e}");
            let is_missing = source.kind() == std::io::ErrorKind::NotFound;
            Ok(ExitCode::from(if is_missing { EXIT_NOT_FOUND } else { EXIT_CANNOT_EXECUTE }))
        }
        Err(e) => Err(e.into()),
        Ok(outcome) => {
            report(&outcome, &config.output);
            if !is_daemon && outcome.error.is_none() && (wants_plot || !is_quiet()) {
                ending::say_what_was_recorded(&outcome, &config.output, wants_plot);
            }
            Ok(exit_code(outcome, strict))
        }
    }
}

/// The control group that the options name, and the containers in it as far as their runtimes name them.
fn control_group(args: &Args) -> Result<(Option<String>, Vec<Container>), CaptureError> {
    let (folder, containers) = match (&args.container, &args.unit) {
        (Some(name), _) => containers::by_name(name)?,
        (None, Some(unit)) => (containers::of_unit(unit)?, Vec::new()),
        (None, None) => return Ok((args.cgroup.clone(), Vec::new())),
    };
    Ok((Some(folder.to_string_lossy().into_owned()), containers))
}

/// The recorder's configuration.
fn config(args: Args, filter: Filter, daemon: Option<Arc<Daemon>>) -> anyhow::Result<Config> {
    let filters = filter_words(&args);
    let (group, containers) = control_group(&args)?;
    let target = match group {
        Some(name) => Target::Cgroup(name),
        None if args.all => Target::All,
        None if !args.pid.is_empty() => Target::Processes(args.pid),
        None => Target::Command(args.command),
    };
    let asked = args.waits_min.or((!args.min_latency.is_zero()).then_some(args.min_latency));
    let waits_min_ns = asked.map_or(DEFAULT_WAITS_MIN_NS, |least| least.as_nanos().min(i64::MAX as u128) as i64);
    let layers = match (args.block_only, args.ops_only) {
        (true, _) => Layers::Block,
        (_, true) => Layers::Operations,
        _ => Layers::Both,
    };
    let commands = matches!(target, Target::Command(_));
    let output = match (&daemon, args.output) {
        (Some(daemon), _) => daemon.reel(),
        (None, Some(output)) => output,
        (None, None) => ending::unused_name(&target, args.container.as_deref().or(args.unit.as_deref())),
    };
    // A daemon leaves the terminal later; here it still has one.
    let shown = !args.daemon
        && !is_quiet()
        && std::io::stderr().is_terminal()
        && (args.progress == When::Always || args.progress == When::Auto && !commands);
    Ok(Config {
        containers,
        devices: args.device,
        lossless: args.life.lossless,
        limits: args.life.limits(),
        settle: args.settle == Settle::Sync,
        snapshot: args.snapshot,
        snapshot_cwd: (!args.no_snapshot).then_some(args.snapshot_limit),
        extents: args.extents,
        ring_bytes: args.ring_mib.map_or_else(default_ring_bytes, |mib| mib << 20),
        cache: args.cache,
        content: args.content.content(),
        waits: args.waits.then_some(WaitsPlan { min_ns: waits_min_ns, user_stacks: args.user_stacks }),
        layers,
        backend: args.backend.backend(),
        filter,
        observer: shown.then(|| Observer(Arc::new(status_line))),
        anonymize: if args.anonymize { Some(key(args.key_file.as_deref())?) } else { None },
        filters,
        herald: Some(herald(daemon, output.clone(), !commands)),
        ..Config::new(output, target)
    })
}

/// Prints warnings, losses and what still runs.
fn report(outcome: &Outcome, output: &Path) {
    let m = &outcome.manifest;
    for warning in &m.warnings {
        tell!("ioreel: {warning}");
    }
    match (m.lost(), &outcome.error) {
        (0, _) => {}
        (lost, None) => {
            tell!("ioreel: {lost} events were lost; `ioreel info` shows where; a larger --ring-mib may help");
        }
        (lost, Some(_)) => tell!("ioreel: {lost} events could not be written and are missing from the reel"),
    }
    let count = |class: &str| m.ledger.get(class).map_or(0, |l| l.written);
    log::info!("{}: {} operations, {} requests", output.display(), count("ops"), count("block"));
    if let (Some(pid), Some(_)) = (outcome.still_running, outcome.signal) {
        tell!("ioreel: recording stopped; process {pid} is still running");
    }
}

/// The exit status; waits for a command that still runs, so that its own status passes through.
fn exit_code(outcome: Outcome, strict: bool) -> ExitCode {
    let m = &outcome.manifest;
    let incomplete = strict && (m.lost() > 0 || m.probes.iter().any(|p| p.missed > 0));
    if incomplete {
        tell!("ioreel: --strict: events are missing; the reel is kept");
    }
    let failed = outcome.error.map(|e| tell!("ioreel: the reel is incomplete: {e}")).is_some();
    let status = match (outcome.status, outcome.still_running) {
        (Some(status), _) => status,
        (None, Some(pid)) if outcome.signal.is_none() => wait_for(pid),
        // The command ignored the signal: report it as if the signal had killed it.
        _ => outcome.signal.unwrap_or(0),
    };
    let code = if status & 0x7f == 0 { status >> 8 & 0xff } else { 128 + (status & 0x7f) };
    match code {
        _ if failed => ExitCode::FAILURE,
        _ if incomplete => ExitCode::from(3),
        code => ExitCode::from(code as u8),
    }
}
