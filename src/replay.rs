//! `ioreel replay`: re-issues a reel's operations against a mounted file system.

mod block;
mod print;

use crate::output::{out, print_json, tell};
use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::ValueEnum;
use ioreel_replay::{
    Config, Phase, Replay, ReplayError, Report, Slice,
    contents::data::{DEFAULT_SEED, DataOptions},
    plan::{
        edge::{EdgeKind, Kinds, OrderMode},
        store::DEFAULT_MEMORY_BYTES,
    },
    prepare::{page_cache::CacheStart, restore::Memory},
    reel::footprint::Scale,
    run::{
        pace::{self, Clockwork, Factor},
        threads::DEFAULT_SPIN_NS,
    },
    session::watch::Unwatched,
    verdict::judgement::{DEFAULT_MAX_OWN_LATENESS_NS, Limits},
};

use crate::quantity;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The reel to replay
    reel: PathBuf,
    /// Directory on the file system to replay on; a path /a/b of the reel becomes DIR/a/b
    #[arg(long, value_name = "DIR", required_unless_present = "device")]
    target: Option<PathBuf>,
    /// How time passes: `original` (each operation at its recorded time), `scale=F` (the same, F times as slow), `think` (each thread
    /// computes between operations for as long as it did), `load` (as many in flight as there were), `max` (only order is waited for)
    #[arg(long, default_value = "max", value_parser = pace)]
    pace: pace::Pace,
    /// What happens to the schedule of `original` and `scale` after a stall of 1 ms or more
    #[arg(long, value_enum, default_value = "compress")]
    catch_up: CatchUp,
    /// Spun away on the CPU before each deadline, where sleeping wakes up late: 50us; 0 for none
    #[arg(long, value_name = "TIME", default_value_t = format!("{}us", DEFAULT_SPIN_NS / 1000))]
    spin: String,
    /// What is kept in the recorded order beside each thread's own operations
    #[arg(long, value_enum, default_value = "resource")]
    order: Order,
    /// Leaves out constraints of this kind: name, absent, tree, entries, size, position, descriptor, directory, lock, life, global; may be
    /// repeated
    #[arg(long, value_name = "KIND", value_parser = kind)]
    without: Vec<EdgeKind>,
    /// Writes the replay as a reel of its own, joined to the original by `orig_op_id`
    #[arg(short, value_name = "RESULT.reel")]
    output: Option<PathBuf>,
    /// Wrong results that are still faithful, a count
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_mismatch: i64,
    /// Calls that this file system cannot do (EOPNOTSUPP, ENOTTY, ENOSYS) and that are still faithful, a count
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_unsupported: i64,
    /// The replayer's own lateness that is still faithful: p99 where operations have times, with what followed from it, the mean elsewhere
    #[arg(long, value_name = "TIME", default_value_t = format!("{}ms", DEFAULT_MAX_OWN_LATENESS_NS / 1_000_000))]
    max_own_lateness: String,
    /// Replays over what is in the target
    #[arg(long)]
    force: bool,
    /// Prepares and replays only what is below this absolute path; may be repeated
    #[arg(long, value_name = "PREFIX")]
    root: Vec<PathBuf>,
    /// Replays only what took effect from this moment on, counted from the reel's start: 10s, 250ms; what came before is followed,
    /// and the tree and the descriptors are prepared as they stood then
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<i64>,
    /// Replays only what took effect before this moment
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<i64>,
    /// Puts what the reel has below FROM into the directory TO, which may lie on another file system; also where --root leaves FROM
    /// out; may be repeated
    #[arg(long, value_name = "FROM=TO", value_parser = map)]
    map: Vec<(PathBuf, PathBuf)>,
    /// Makes files F times as large, from 0.000001 to 1, and moves what is read and written with them, so that a large tree fits
    /// a small disk
    #[arg(long, value_name = "F", default_value = "1", value_parser = scale)]
    scale_footprint: Scale,
    /// What a compressor saves of the data in files, from 0 (nothing) to 1 (all) [default: as recorded with --content, else 0]
    #[arg(long, value_name = "R", value_parser = share)]
    compressibility: Option<u16>,
    /// How much of the data that is written repeats other data, in blocks of 4 KiB, from 0 to 1 [default: as recorded with --content,
    /// else one pattern serves all writes]
    #[arg(long, value_name = "S", value_parser = share)]
    duplicates: Option<u16>,
    /// Makes other data for another number
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Makes data depend on file and position, and checks what is read
    #[arg(long)]
    verify: bool,
    /// Makes the tree that the workload found, writes it out, and ends
    #[arg(long, conflicts_with_all = ["skip_prepare", "dry_run", "output"])]
    prepare_only: bool,
    /// Takes the tree as it is in the target, made by --prepare-only before
    #[arg(long)]
    skip_prepare: bool,
    /// Makes the files of the tree lie on the disk as they did: in as many pieces, with their holes and room without data; of a reel
    /// recorded with --extents. What came of it is told
    #[arg(long, conflicts_with_all = ["skip_prepare", "scale_footprint"])]
    layout: bool,
    /// Replays so many times; after each but the last, what changed in the target is restored
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Restores what changed in the target after the last replay, too
    #[arg(long, conflicts_with = "prepare_only")]
    restore: bool,
    /// Refuses a replay whose tree and writes take more than this: 500M, 2G
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    max_bytes: Option<i64>,
    /// What the page cache holds when the replay begins [default: what making the tree left there]
    #[arg(long, value_enum)]
    cache: Option<Cache>,
    /// The same as --cache cold
    #[arg(long, conflicts_with = "cache")]
    cold: bool,
    /// The most memory that the replay may take, page cache and ioreel's own included, by a control group: 512M; the page cache
    /// then begins cold unless --cache says otherwise
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    memory_limit: Option<i64>,
    /// Plans, then measures the replayer itself, with calls skipped; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    block: block::BlockArgs,
}

const HELP: &str = "\
Only results count: success or failure, the errno, and byte counts on regular files and links. Descriptor and inode
numbers, addresses and how a directory is cut up differ by nature.

Not replayed, and counted before the start: pipes, sockets, terminals and devices, /proc, /sys, /dev, calls in
flight at the recording's end, and calls that failed for a cause the target does not have (EXDEV, EROFS, EINTR, …).

Faithful is a replay that issued every operation, none early or out of order, with no more than --max-mismatch wrong
results and --max-unsupported calls that this file system cannot do, within --max-own-lateness and 1000 ppm of drift, and that left the tree that the original
left; and whose original lost no event. docs/replay.md has the definitions.

Exit status: 0 faithful; 1 failed; 2 wrong usage; 3 done, but not faithful.";

#[derive(ValueEnum, Clone, Copy, Debug)]
enum CatchUp {
    /// The schedule moves later for all threads
    Shift,
    /// What is late is issued as fast as order allows
    Compress,
    /// The schedule of the thread that stalled moves later, and that of no other
    None,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Cache {
    /// Nothing; only root can empty it of directories and inodes, too
    Cold,
    /// All that the files hold
    Warm,
    /// What it held in the original, as far as a reel recorded with --cache tells
    Recorded,
}

impl From<Cache> for CacheStart {
    fn from(cache: Cache) -> Self {
        match cache {
            Cache::Cold => Self::Cold,
            Cache::Warm => Self::Warm,
            Cache::Recorded => Self::Recorded,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Order {
    /// All that names, files, open file descriptions and descriptors demand
    Resource,
    /// Only descriptors, locks, ends of threads, and that a name is made before it is used
    Thread,
    /// `resource`, and what had returned before a call was entered returns before it
    Global,
    /// Nothing
    None,
}

fn pace(word: &str) -> Result<pace::Pace, String> {
    match word {
        "original" => Ok(pace::Pace::Original),
        "think" => Ok(pace::Pace::Think),
        "load" => Ok(pace::Pace::Load),
        "max" => Ok(pace::Pace::Max),
        other => other
            .strip_prefix("scale=")
            .and_then(|f| f.parse().ok())
            .and_then(Factor::new)
            .map(pace::Pace::Scale)
            .ok_or_else(|| "not original, think, load, max or scale=F with F from 0.000001 to 1000000".into()),
    }
}

fn kind(word: &str) -> Result<EdgeKind, String> {
    EdgeKind::ALL.iter().find(|k| k.name() == word).copied().ok_or_else(|| {
        let names: Vec<&str> = EdgeKind::ALL.iter().map(|k| k.name()).collect();
        format!("not one of {}", names.join(", "))
    })
}

/// A share from 0 to 1, in thousandths.
fn share(text: &str) -> Result<u16, String> {
    let share = text.parse::<f64>().ok().filter(|s| (0.0..=1.0).contains(s));
    share.map(|s| (s * 1000.0).round() as u16).ok_or_else(|| "not a number from 0 to 1".into())
}

fn scale(text: &str) -> Result<Scale, String> {
    text.parse().ok().and_then(Scale::new).ok_or_else(|| "not a number from 0.000001 to 1".into())
}

fn map(text: &str) -> Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err("not FROM=TO, such as /var/log=/mnt/other".into()),
    }
}

/// A time of the reel, ns.
fn time(text: &str) -> Result<i64, String> {
    let time = quantity::duration(text)?;
    i64::try_from(time.as_nanos()).map_err(|_| "longer than any reel".into())
}

fn ns(text: &str, flag: &str) -> anyhow::Result<i64> {
    let time = quantity::duration(text).map_err(|why| anyhow::anyhow!("{flag} {text}: {why}"))?;
    Ok(i64::try_from(time.as_nanos())?)
}

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let clockwork = Clockwork {
        pace: args.pace,
        catch_up: match args.catch_up {
            CatchUp::Shift => pace::CatchUp::Shift,
            CatchUp::Compress => pace::CatchUp::Compress,
            CatchUp::None => pace::CatchUp::None,
        },
    };
    let order = match args.order {
        Order::Resource => OrderMode::Resource,
        Order::Thread => OrderMode::Thread,
        Order::Global => OrderMode::Global,
        Order::None => OrderMode::None,
    };
    let spin_ns = ns(&args.spin, "--spin")?;
    let limits = Limits {
        wrong: args.max_mismatch,
        unsupported: args.max_unsupported,
        own_lateness_ns: ns(&args.max_own_lateness, "--max-own-lateness")?,
    };
    let target = match (args.target, args.block.device.clone()) {
        (_, Some(device)) if args.block.layer == block::Layer::Block => {
            let (reel, result, dry_run, json) = (args.reel, args.output, args.dry_run, args.json);
            let common = block::Common { reel, clockwork, order, result, spin_ns, limits, dry_run, json };
            return block::run(args.block, device, common);
        }
        (Some(target), None) => target,
        _ => anyhow::bail!("--device is what bios are issued on: add --layer block, or name a directory by --target"),
    };
    let config = Config {
        reel: args.reel,
        target,
        clockwork,
        order,
        without: Kinds::of(&args.without),
        result: args.output,
        force: args.force,
        roots: args.root,
        maps: args.map,
        data: DataOptions {
            seed: args.seed,
            saved_permille: args.compressibility,
            repeated_permille: args.duplicates,
            verify: args.verify,
        },
        scale: args.scale_footprint,
        slice: Slice { from_ns: args.from.unwrap_or(0), to_ns: args.to.unwrap_or(i64::MAX) },
        skip_prepare: args.skip_prepare,
        layout: args.layout,
        memory: None,
        restored: false,
        max_bytes: args.max_bytes,
        cache: args.cache.map_or(if args.cold { CacheStart::Cold } else { CacheStart::Prepared }, Into::into),
        memory_limit: args.memory_limit,
        spin_ns,
        limits,
        dry_run: args.dry_run,
        memory_bytes: DEFAULT_MEMORY_BYTES,
    };
    let mut bar = Bar::default();
    if args.prepare_only {
        let replay = Replay::plan(config)?;
        if args.json {
            print_json(&replay.summary)?;
        } else {
            print::summary(&replay.summary);
        }
        let prepared = replay.prepare(|phase| bar.show(phase))?;
        bar.clear();
        if let Some(layout) = prepared.layout.filter(|_| !args.json) {
            print::layout(&layout);
        }
        prepared.warnings.iter().for_each(|w| tell!("ioreel: {w}"));
        return Ok(ExitCode::SUCCESS);
    }
    runs(&config, args.repeat, args.restore, args.json)
}

/// Replays so many times, from the same state each time.
fn runs(config: &Config, times: u32, restore: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut bar = Bar::default();
    let mut reports = Vec::new();
    let mut elapsed_ns = Vec::new();
    let mut faithful = true;
    for run in 1..=times {
        let memory = (restore || run < times).then(Memory::default);
        let result = config.result.as_deref().map(|path| if times > 1 { numbered(path, run) } else { path.into() });
        let config = Config { memory: memory.clone(), restored: run > 1, result, ..config.clone() };
        let wants_reel = config.result.is_some() && !config.dry_run;
        let replay = Replay::plan(config)?;
        if !json && run == 1 {
            print::summary(&replay.summary);
        }
        if !json && times > 1 {
            out!("run         {run} of {times}");
        }
        let mut report = run_watched(replay, wants_reel, |phase| bar.show(phase))?;
        if let Some(memory) = memory {
            bar.say("restoring");
            let (restored, warnings) = memory.restore()?;
            report.restored = Some(restored);
            report.warnings.extend(warnings);
        }
        bar.clear();
        faithful &= report.verdict.faithful;
        elapsed_ns.push(report.elapsed_ns);
        if json {
            reports.push(serde_json::to_value(Document { schema: "ioreel.replay/1", report: &report })?);
        } else {
            print::report(&report);
        }
    }
    if json {
        let all = if times > 1 { serde_json::Value::Array(reports) } else { reports.pop().unwrap_or_default() };
        print_json(&all)?;
    } else if times > 1 {
        print::runs(elapsed_ns);
    }
    Ok(if faithful { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// `x.reel` of run 2 is `x.2.reel`.
fn numbered(path: &Path, run: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{run}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[derive(serde::Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs it, and where a result reel is wanted and BPF is allowed, records what the target's disks do.
#[cfg(feature = "capture")]
fn run_watched(replay: Replay, wants_reel: bool, tell: impl FnMut(Phase)) -> Result<Report, ReplayError> {
    use ioreel_capture::{host, monitor::disk_watch::DiskWatch};
    use ioreel_replay::session::watch::Watch;
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
        self.say(&match phase {
            Phase::Preparing(done, all) => format!("preparing {:3} %", done * 100 / all.max(1)),
            Phase::Prepared => "syncing".into(),
            Phase::Running => "replaying".into(),
            Phase::Settling => "syncing".into(),
        });
    }

    fn say(&mut self, text: &str) {
        if text != self.shown && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{text}");
            // A terminal that is gone shows nothing.
            let _ = std::io::stderr().flush();
            text.clone_into(&mut self.shown);
        }
    }

    fn clear(&self) {
        if !self.shown.is_empty() {
            eprint!("\r\x1b[K");
        }
    }
}
