//! `ioreel record`.

use crate::output::tell;
use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc};

mod daemon;
mod life;

use self::{daemon::Daemon, life::Life};
use crate::anonymize::key;
use clap::ArgGroup;
use ioreel_capture::{
    record::{Config, Herald, Target, record, wait_for},
    session::{DEFAULT_WAITS_MIN_NS, WaitsPlan, default_ring_bytes},
};

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
    /// Records only this disk (/dev/NAME, NAME or MAJOR:MINOR); repeatable. Default: the disks behind the
    /// file systems touched
    #[arg(long, value_name = "DEV")]
    device: Vec<String>,
    #[command(flatten)]
    life: Life,
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
    /// Kernel memory that the rings of all CPUs together may take, MiB [default: 64, or 1 for each CPU if that is more]
    #[arg(long, value_name = "MIB", value_parser = ring_mib)]
    ring_mib: Option<usize>,
    /// Records what enters the page cache, is read ahead, made dirty, written back and leaves it, by file. Costs some
    /// 100 ns per page
    #[arg(long)]
    cache: bool,
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
enum Settle {
    /// Sync the changed file systems, then record their disks until quiet, 30 s at most
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

/// Runs it.
pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let daemon = if args.daemon { Some(Arc::new(Daemon::start(&args.output)?)) } else { None };
    if let Some(daemon) = &daemon {
        args.output = daemon.reel();
    }
    let filters = (args.device.iter().map(|d| format!("--device {d}")))
        .chain(args.pid.iter().map(|p| format!("--pid {p}")))
        .chain(args.cgroup.iter().map(|c| format!("--cgroup {c}")))
        .chain(args.all.then(|| "--all".to_owned()))
        .chain(args.life.words())
        .collect();
    let target = match args.cgroup {
        Some(name) => Target::Cgroup(name),
        None if args.all => Target::All,
        None if !args.pid.is_empty() => Target::Processes(args.pid),
        None => Target::Command(args.command),
    };
    let config = Config {
        devices: args.device,
        lossless: args.life.lossless,
        limits: args.life.limits(),
        settle: args.settle == Settle::Sync,
        snapshot: args.snapshot,
        snapshot_cwd: !args.no_snapshot,
        ring_bytes: args.ring_mib.map_or_else(default_ring_bytes, |mib| mib << 20),
        waits: args.waits.then_some(WaitsPlan { min_ns: DEFAULT_WAITS_MIN_NS, user_stacks: args.user_stacks }),
        cache: args.cache,
        anonymize: if args.anonymize { Some(key(args.key_file.as_deref())?) } else { None },
        filters,
        herald: daemon.map(|daemon| {
            let reel = args.output.clone();
            Herald(Arc::new(move |moment| daemon.hear(moment, &reel)))
        }),
        ..Config::new(args.output.clone(), target)
    };
    let outcome = record(&config)?;
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
        _ if incomplete => ExitCode::from(3),
        0 if failed => ExitCode::FAILURE,
        code => ExitCode::from(code as u8),
    })
}
