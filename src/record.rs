//! `ioreel record`.

use crate::output::tell;
use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

mod daemon;
mod life;

use self::{daemon::Daemon, life::Life};
use crate::{anonymize::key, columns::count, quantity, units::bytes};
use clap::ArgGroup;
use ioreel_capture::{
    CaptureError,
    assemble::contents::Content,
    probes::{
        filter::Filter,
        session::{DEFAULT_WAITS_MIN_NS, WaitsPlan, default_ring_bytes},
    },
    record::{Backend, Config, Herald, Layers, Moment, Observer, Progress, Target, record, wait_for},
};
use ioreel_traces::text;

/// What to record, and where to.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("target").required(true).args(["command", "pid", "cgroup", "all"])), after_help = NOTES)]
pub(crate) struct Args {
    /// The reel to make: a folder that does not exist yet; with --daemon a folder for reels
    #[arg(short, long, value_name = "REEL")]
    output: PathBuf,
    /// Records in the background, into a reel of the folder -o that is called by the time in UTC, until SIGTERM; with
    /// NOTIFY_SOCKET set, as by systemd, in the foreground. One for each folder; its process id is in ioreel.pid, what it
    /// says in ioreel.log
    #[arg(long, conflicts_with = "command")]
    daemon: bool,
    /// Records a running process, with what it has open, and what it starts from now on, until it ends or
    /// Ctrl-C; repeatable
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Records the tasks of a control group (cgroup2) and of those below it, also those that enter later, until
    /// Ctrl-C or --duration: its folder, or its inode number
    #[arg(long, value_name = "PATH_OR_ID")]
    cgroup: Option<String>,
    /// Records every task of the machine but this recorder, until Ctrl-C or --duration
    #[arg(long)]
    all: bool,
    /// Records only this disk (/dev/NAME, NAME or MAJOR:MINOR), and only operations on it and on the file systems that lie on it;
    /// repeatable. Default: the disks behind the file systems touched
    #[arg(long, value_name = "DEV")]
    device: Vec<String>,
    #[command(flatten)]
    life: Life,
    /// Records only operations on this file, or on what is below this folder; or, with *, ? or [, on files whose path
    /// looks so (** crosses folders; without a slash: whose name looks so); repeatable
    #[arg(long, value_name = "PATH", help_heading = "Filters")]
    path: Vec<PathBuf>,
    /// Records only operations of threads with this name (15 bytes of it count); repeatable
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    comm: Vec<String>,
    /// Records only operations of this user, by name or number (the effective one); repeatable
    #[arg(long, value_name = "USER", help_heading = "Filters")]
    uid: Vec<String>,
    /// Records only these calls: names, patterns such as *stat*, or classes: read, write, copy, sync, map, meta (all
    /// others); separated by commas
    #[arg(long, value_name = "NAMES", help_heading = "Filters")]
    op: Vec<String>,
    /// Records only operations that took so long at least: a number with ns, us, ms or s
    #[arg(long, value_name = "TIME", value_parser = quantity::latency, default_value = "0ns", hide_default_value = true,
        help_heading = "Filters")]
    min_latency: Duration,
    /// Records only what reaches the disks: calls get no slower
    #[arg(long, conflicts_with_all = ["ops_only", "path", "comm", "uid", "op", "min_latency"], help_heading = "Filters")]
    block_only: bool,
    /// Records only operations, not what reaches the disks
    #[arg(long, conflicts_with = "device", help_heading = "Filters")]
    ops_only: bool,
    /// By which kinds of the kernel's programs. With fentry also what the kernel does to files by itself: its threads (the NFS
    /// server, workers of loop devices; with --all), and what is below recorded calls (the files under an overlay's). auto:
    /// of that what its threads do, with --all, where the kernel allows it; see `ioreel doctor`
    #[arg(long, value_name = "KIND", default_value = "auto")]
    backend: Programs,
    /// What to wait for after the last task has ended
    #[arg(long, value_name = "HOW", default_value = "sync")]
    settle: Settle,
    /// Takes the tree below this folder before the start, so that a replay can rebuild it; repeatable.
    /// The command's working directory is always taken
    #[arg(long, value_name = "DIR")]
    snapshot: Vec<PathBuf>,
    /// Does not take the working directory's tree
    #[arg(long)]
    no_snapshot: bool,
    /// Tells where on their disks the files lie that were there before (FIEMAP; table `extents`): `replay --layout` makes them so.
    /// Each file of the trees that are taken is opened for that before the start
    #[arg(long, conflicts_with = "block_only")]
    extents: bool,
    /// Kernel memory that the rings of all CPUs together may take, MiB [default: 64, or 1 for each CPU if that is more]
    #[arg(long, value_name = "MIB", value_parser = ring_mib)]
    ring_mib: Option<usize>,
    /// Records what enters the page cache, is read ahead, made dirty, written back and leaves it, by file. Costs some
    /// 100 ns per page
    #[arg(long)]
    cache: bool,
    /// Looks at the bytes of each write to a file: a hash, and how well they could be compressed, in its row of `ops`; with full
    /// the bytes themselves too, in the table `contents`. Takes half of the rings' memory
    #[arg(long, value_name = "WHAT", default_value = "none", conflicts_with = "block_only")]
    content: What,
    /// Shows how it goes in a line on the terminal: events, losses, how full the rings are, size
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: When,
    /// Hashes all names before they reach the disk, as `ioreel anonymize` does afterwards
    #[arg(long)]
    anonymize: bool,
    /// Hashes names with the content of this file, 16 bytes at least: the same key gives the same names, so that reels
    /// can be compared. Default: a random key that nobody keeps
    #[arg(long, value_name = "FILE", requires = "anonymize")]
    key_file: Option<PathBuf>,
    /// Tells what operations of 1 ms or longer wait for, by the kernel's stack whenever they leave their CPU: device,
    /// journal, locks, throttling, reclaim, run queue (table `waits`, summed up by `info`)
    #[arg(long)]
    waits: bool,
    /// With --waits: the program's own stack too, as module+offset (by frame pointers)
    #[arg(long, requires = "waits")]
    user_stacks: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const NOTES: &str = "\
The command's input, output and exit status pass through (128 + signal when it was killed); 1 when ioreel
itself fails. Ctrl-C ends command and recording; the reel is whole.";

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Programs {
    /// Tracepoints and, with --all, functions of the kernel's
    Auto,
    /// Tracepoints alone
    Tracepoint,
    /// Tracepoints and functions of the kernel's
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
    /// Sync the changed file systems, then, unless recorded programs run on, record their disks until quiet, 30 s at most
    Sync,
    /// Do not wait: what is still in memory is not in the reel
    None,
}

fn ring_mib(s: &str) -> Result<usize, String> {
    match s.parse::<usize>() {
        Ok(n @ 1..=65536) => Ok(n),
        _ => Err("not a number of MiB from 1 to 65536".into()),
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Not looked at
    None,
    /// A hash, and how well they could be compressed
    Hash,
    /// These, and the bytes: a reel that holds what was written
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
    /// When stderr is a terminal that no command of this recording writes to
    Auto,
    /// Whenever stderr is a terminal
    Always,
    /// Never
    Never,
}

/// Draws the line that tells how it goes.
fn status_line(p: &Progress) {
    let seconds = p.elapsed.as_secs_f64();
    let lost = if p.lost > 0 { format!("{} LOST", count(p.lost)) } else { "none lost".into() };
    let line = format!(
        "{:.0} s: {} operations ({}/s), {lost}, rings {:.0}% full at most, reel {}",
        seconds,
        count(p.ops),
        count((p.ops as f64 / seconds.max(0.001)) as u64),
        p.ring_fill * 100.0,
        bytes(p.reel_bytes.min(i64::MAX as u64) as i64),
    );
    redraw(&line);
}

/// Puts this in place of the terminal's present line.
fn redraw(line: &str) {
    // Nobody may be looking.
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

/// What chose what is recorded, as the manifest tells it.
fn filter_words(args: &Args) -> Vec<String> {
    let mut out: Vec<String> = args.device.iter().map(|d| format!("--device {d}")).collect();
    out.extend(args.pid.iter().map(|p| format!("--pid {p}")));
    out.extend(args.cgroup.iter().map(|c| format!("--cgroup {c}")));
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

/// Tells of a recording into `reel` while it goes on.
fn herald(daemon: Option<Arc<Daemon>>, reel: PathBuf) -> Herald {
    Herald(Arc::new(move |moment| {
        match moment {
            Moment::Copied(path) => tell!("ioreel: what was kept is in {}; the recording goes on", path.display()),
            Moment::NotCopied(why) => tell!("ioreel: what was kept could not be copied: {why}; the recording goes on"),
            Moment::Begun | Moment::Ending => {}
        }
        if let Some(daemon) = &daemon {
            daemon.hear(moment, &reel);
        }
    }))
}

/// Runs it.
pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    // Before anything else: relative paths are this folder's, and who asked is still listening.
    let filter = Filter::new(&args.path, &args.comm, &args.uid, &args.op, args.min_latency)?;
    let daemon = if args.daemon { Some(Arc::new(Daemon::start(&args.output)?)) } else { None };
    if let Some(daemon) = &daemon {
        args.output = daemon.reel();
    }
    let filters = filter_words(&args);
    let target = match args.cgroup {
        Some(name) => Target::Cgroup(name),
        None if args.all => Target::All,
        None if !args.pid.is_empty() => Target::Processes(args.pid),
        None => Target::Command(args.command),
    };
    let waits_min_ns = match args.min_latency {
        Duration::ZERO => DEFAULT_WAITS_MIN_NS,
        least => least.as_nanos().min(i64::MAX as u128) as i64,
    };
    let layers = match (args.block_only, args.ops_only) {
        (true, _) => Layers::Block,
        (_, true) => Layers::Operations,
        _ => Layers::Both,
    };
    let commands = matches!(target, Target::Command(_));
    // A daemon leaves the terminal, which it still has here.
    let shown = !args.daemon
        && std::io::stderr().is_terminal()
        && (args.progress == When::Always || args.progress == When::Auto && !commands);
    let config = Config {
        devices: args.device,
        lossless: args.life.lossless,
        limits: args.life.limits(),
        settle: args.settle == Settle::Sync,
        snapshot: args.snapshot,
        snapshot_cwd: !args.no_snapshot,
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
        herald: Some(herald(daemon, args.output.clone())),
        ..Config::new(args.output.clone(), target)
    };
    let recorded = record(&config);
    if shown {
        // What follows begins on a clean line.
        redraw("");
    }
    let outcome = match recorded {
        Err(e @ CaptureError::Interrupted { signal }) => {
            tell!("ioreel: {e}");
            return Ok(ExitCode::from(128 + signal as u8));
        }
        other => other?,
    };
    let m = &outcome.manifest;
    for warning in &m.warnings {
        tell!("ioreel: {warning}");
    }
    match (m.lost(), &outcome.error) {
        (0, _) => {}
        (lost, None) => {
            tell!("ioreel: {lost} events were lost; `ioreel info` says where, a larger --ring-mib may help");
        }
        (lost, Some(_)) => tell!("ioreel: {lost} events are not in the reel: they could not be written"),
    }
    let count = |class: &str| m.ledger.get(class).map_or(0, |l| l.written);
    log::info!("{}: {} operations, {} requests", args.output.display(), count("ops"), count("block"));
    if let (Some(pid), Some(_)) = (outcome.still_running, outcome.signal) {
        tell!("ioreel: the recording has ended; process {pid} runs on");
    }
    let incomplete = args.life.strict && (m.lost() > 0 || m.probes.iter().any(|p| p.missed > 0));
    if incomplete {
        tell!("ioreel: --strict: the reel is kept, but it is not complete");
    }
    let failed = outcome.error.map(|e| tell!("ioreel: the reel ends early: {e}")).is_some();
    let status = match (outcome.status, outcome.still_running) {
        (Some(status), _) => status,
        // Its exit status shall pass through, so it is waited for.
        (None, Some(pid)) if outcome.signal.is_none() => wait_for(pid),
        // As if it had ended by the signal that it chose to ignore.
        _ => outcome.signal.unwrap_or(0),
    };
    let code = if status & 0x7f == 0 { status >> 8 & 0xff } else { 128 + (status & 0x7f) };
    Ok(match code {
        _ if failed => ExitCode::FAILURE,
        _ if incomplete => ExitCode::from(3),
        code => ExitCode::from(code as u8),
    })
}
