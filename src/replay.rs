//! `ioreel replay`: re-issues a reel's operations against a mounted file system.

use crate::output::{out, tell};
use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::ValueEnum;
use ioreel_replay::{
    Config, Phase, Replay, ReplayError, Report, Summary, order::OrderMode, pace, verdict::Spread, watch::Unwatched,
    world::DEFAULT_SPIN_NS,
};

use crate::units::{bytes, duration};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The reel to replay
    reel: PathBuf,
    /// Directory on the file system to replay on; a path /a/b of the reel becomes DIR/a/b
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// How time passes between operations
    #[arg(long, value_enum, default_value = "max")]
    pace: Pace,
    /// What is kept in the recorded order beside each thread's own operations
    #[arg(long, value_enum, default_value = "resource")]
    order: Order,
    /// Writes the replay as a reel of its own, joined to the original by `orig_op_id`
    #[arg(short, value_name = "RESULT.reel")]
    output: Option<PathBuf>,
    /// Differing results that are still success, a count
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_mismatch: i64,
    /// Replays over what is in the target
    #[arg(long)]
    force: bool,
    /// Prepares and replays only what is below this absolute path; may be repeated
    #[arg(long, value_name = "PREFIX")]
    root: Vec<PathBuf>,
    /// Empties the page cache between preparation and replay (root)
    #[arg(long)]
    cold: bool,
    /// Plans and reports; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints JSON instead of text
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Only results count: success or failure, the errno, and byte counts on regular files and links. Descriptor and inode
numbers, addresses and how a directory is cut up differ by nature.

Not replayed, and counted before the start: pipes, sockets, terminals and devices, /proc, /sys, /dev, calls in
flight at the recording's end, and calls that failed for a cause the target does not have (EXDEV, EROFS, EINTR, …).

Exit status: 0 done; 1 failed; 2 wrong usage; 3 done, but more than --max-mismatch results differ.";

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Pace {
    /// Each operation at its recorded time, by absolute deadlines
    Original,
    /// Each thread computes between operations for as long as it did
    Think,
    /// Nothing is waited for but order
    Max,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Order {
    /// All that names, files, open file descriptions and descriptors demand
    Resource,
    /// Only that a name is made before it is used
    Thread,
}

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let wants_reel = args.output.is_some();
    let replay = Replay::plan(Config {
        reel: args.reel,
        target: args.target,
        pace: match args.pace {
            Pace::Original => pace::Pace::Original,
            Pace::Think => pace::Pace::Think,
            Pace::Max => pace::Pace::Max,
        },
        order: match args.order {
            Order::Resource => OrderMode::Resource,
            Order::Thread => OrderMode::Thread,
        },
        result: args.output,
        force: args.force,
        roots: args.root,
        cold: args.cold,
        spin_ns: DEFAULT_SPIN_NS,
    })?;
    if !args.json {
        print_summary(&replay.summary);
    } else if args.dry_run {
        out!("{}", serde_json::to_string_pretty(&replay.summary)?);
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let mut bar = Bar::default();
    let report = run_watched(replay, wants_reel, |phase| bar.show(phase))?;
    bar.clear();
    if args.json {
        out!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_report(&report);
    }
    Ok(if report.differing > args.max_mismatch { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

/// Runs it, and where a result reel is wanted and BPF is allowed, records what the target's disks do.
#[cfg(feature = "capture")]
fn run_watched(replay: Replay, wants_reel: bool, tell: impl FnMut(Phase)) -> Result<Report, ReplayError> {
    use ioreel_capture::{host, watch::DiskWatch};
    use ioreel_replay::watch::Watch;
    use ioreel_traces::disk::DiskActivity;
    struct Disks(DiskWatch);
    impl Watch for Disks {
        fn begin(&mut self) {
            self.0.begin();
        }
        fn end(self, epoch_ns: i64) -> Result<DiskActivity, String> {
            self.0.end(epoch_ns).map_err(|e| format!("the result has no block tables: {e}"))
        }
    }
    let disks = if wants_reel { host::disks_of(replay.mount()) } else { Vec::new() };
    if disks.is_empty() {
        return replay.run(Unwatched, tell);
    }
    match DiskWatch::start(disks) {
        Ok(watch) => replay.run(Disks(watch), tell),
        Err(e) => {
            tell!("ioreel: the result will have no block tables: {e}");
            replay.run(Unwatched, tell)
        }
    }
}

/// Runs it; without the recorder nobody sees the target's disks.
#[cfg(not(feature = "capture"))]
fn run_watched(replay: Replay, _wants_reel: bool, tell: impl FnMut(Phase)) -> Result<Report, ReplayError> {
    replay.run(Unwatched, tell)
}

/// A line on a terminal that says how far it is; nothing elsewhere.
#[derive(Default)]
struct Bar {
    shown: String,
}

impl Bar {
    fn show(&mut self, phase: Phase) {
        let text = match phase {
            Phase::Preparing(done, all) => format!("preparing {:3} %", done * 100 / all.max(1)),
            Phase::Running => "replaying".into(),
            Phase::Settling => "syncing".into(),
        };
        if text != self.shown && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{text}");
            // A terminal that is gone shows nothing.
            let _ = std::io::stderr().flush();
            self.shown = text;
        }
    }

    fn clear(&self) {
        if !self.shown.is_empty() {
            eprint!("\r\x1b[K");
        }
    }
}

fn print_summary(s: &Summary) {
    out!("to replay   {} operations of {} threads, on {}", s.operations, s.threads, s.fstype);
    if !s.skipped.is_empty() {
        out!("left out    {} operations", s.skipped.values().sum::<i64>());
        for (why, n) in &s.skipped {
            out!("            {n:>9}  {why}");
        }
    }
    out!("to prepare  {} names, of which {} files, {}", s.prepare_items, s.prepare_files, bytes(s.prepare_bytes));
    out!(
        "room        {} to prepare and {} written, of {} free",
        bytes(s.prepare_bytes),
        bytes(s.growth_bytes),
        bytes(s.free_bytes)
    );
}

fn print_report(r: &Report) {
    out!("done        {} operations, {} results differ", r.done, r.differing);
    for d in &r.differences {
        out!("            {:>9}  {}: {} -> {}", d.count, d.op, d.recorded, d.replayed);
        for e in &d.examples {
            let path = e.path.as_deref().unwrap_or("(no path)");
            out!("                         {} -> {}  {path}", e.recorded, e.replayed);
        }
    }
    out!("elapsed     {:>12} to the last call, original {}", duration(r.elapsed_ns), duration(r.original_elapsed_ns));
    out!("            {:>12} to the end of syncfs, original {}", duration(r.synced_ns), duration(r.original_synced_ns));
    let line = |s: Spread| format!("p50 {}  p99 {}  max {}", duration(s.p50), duration(s.p99), duration(s.max));
    out!("lateness    {}  against the schedule", line(r.lateness.schedule_ns));
    out!("            {}  the replayer's own", line(r.lateness.own_ns));
    if r.lateness.early + r.lateness.order_violations > 0 {
        out!("            {} issued early, {} out of order", r.lateness.early, r.lateness.order_violations);
    }
    for w in &r.warnings {
        tell!("ioreel: {w}");
    }
}
