//! `ioreel replay`: replays a reel on a mounted file system or a block device.

mod block;
mod print;

use crate::output::{is_quiet, out, print_json, tell};
use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::ValueEnum;
use ioreel_replay::{
    Config, Phase, Replay, ReplayError, Report, Slice,
    contents::data::{DataOptions, random_seed},
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
use ioreel_traces::suggest;

use crate::{quantity, trust};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Reel to replay
    reel: PathBuf,
    /// Directory on the target file system. The recorded path /a/b becomes DIR/a/b
    #[arg(long, value_name = "DIR", required_unless_present = "device")]
    target: Option<PathBuf>,
    /// When to issue operations: `original` at the recorded times; `scale=F` at the recorded times multiplied by F; `think`
    /// after each thread's recorded think time; `load` with the recorded number in flight; `max` as soon as order allows
    #[arg(long, default_value = "max", value_parser = pace)]
    pace: pace::Pace,
    /// How the schedule of `original` and `scale` recovers after a stall of at least 1 ms
    #[arg(long, value_enum, default_value = "compress")]
    catch_up: CatchUp,
    /// Busy-wait this long before each deadline for precision (sleeping wakes up late); 0 disables it
    #[arg(long, value_name = "TIME", default_value_t = format!("{}us", DEFAULT_SPIN_NS / 1000))]
    spin: String,
    /// Which recorded order to enforce between threads
    #[arg(long, value_enum, default_value = "resource")]
    order: Order,
    /// Drop dependency edges of this kind: name, absent, tree, entries, size, position, descriptor, directory, attribute, lock,
    /// pipe, life, global; repeatable
    #[arg(long, value_name = "KIND", value_parser = kind)]
    without: Vec<EdgeKind>,
    /// Write the result as a reel; column `orig_op_id` refers to the original operations
    #[arg(short, value_name = "RESULT.reel")]
    output: Option<PathBuf>,
    /// Allow up to N mismatched results
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_mismatch: i64,
    /// Allow up to N calls that the target does not support (EOPNOTSUPP, ENOTTY, ENOSYS)
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_unsupported: i64,
    /// Allow up to N operations on replayed files to be left out, and names whose owner only root could set
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_left_out: i64,
    /// Allow this much lateness caused by the replayer: p99 at paces `original`, `scale` and `think`, mean at `max` and `load`
    #[arg(long, value_name = "TIME", default_value_t = format!("{}ms", DEFAULT_MAX_OWN_LATENESS_NS / 1_000_000))]
    max_own_lateness: String,
    /// Replay into a target directory that is not empty
    #[arg(long)]
    force: bool,
    /// Replay although the space that the reel is estimated to need exceeds the free space or --max-bytes; both still hold
    /// while it runs
    #[arg(long)]
    force_room: bool,
    /// Prepare and replay only files below this absolute path; repeatable
    #[arg(long, value_name = "PREFIX")]
    root: Vec<PathBuf>,
    /// Replay only operations that took effect at or after this time since the start of the reel: 10s, 250ms. The tree and
    /// the open descriptors are prepared in their state at that time
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<i64>,
    /// Replay only operations that took effect before this time since the start of the reel
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<i64>,
    /// Also replay set-user-ID and set-group-ID bits of files, and `security.*` and `trusted.*` attributes. Only for reels you
    /// trust: a replay by root then leaves programs that run as root
    #[arg(long)]
    set_ids: bool,
    /// Confine the replay of a reel that may be made to harm: strict limits, and no more of the kernel than operations need. The
    /// default for reels that belong to another user, or that everybody may change. SECURITY.md has the rules
    #[arg(long, conflicts_with_all = ["trusted", "set_ids", "device_nodes", "seed"])]
    untrusted: bool,
    /// Do not confine the replay of a reel that belongs to another user
    #[arg(long)]
    trusted: bool,
    /// As root, also create character and block device nodes. Only for reels you trust: whoever may open such a node in the
    /// target has the access to a disk or device of this machine that the reel says
    #[arg(long)]
    device_nodes: bool,
    /// Place the recorded tree below FROM into directory TO, possibly on another file system. Counts as inside --root;
    /// repeatable
    #[arg(long, value_name = "FROM=TO", value_parser = map)]
    map: Vec<(PathBuf, PathBuf)>,
    /// Scale file sizes and offsets by F, from 0.000001 to 1, so that a large tree fits on a small disk
    #[arg(long, value_name = "F", default_value = "1", value_parser = scale)]
    scale_footprint: Scale,
    /// Compressibility of generated data, from 0 (incompressible) to 1 [default: as recorded with --content, else 0]
    #[arg(long, value_name = "R", value_parser = share)]
    compressibility: Option<u16>,
    /// Share of written 4 KiB blocks that duplicate other blocks, from 0 to 1 [default: as recorded with --content, else one
    /// pattern for all writes]
    #[arg(long, value_name = "S", value_parser = share)]
    duplicates: Option<u16>,
    /// Seed of generated data [default: random, shown in the report]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Generate data that depends on file and offset, and check all data read
    #[arg(long)]
    verify: bool,
    /// Create and sync the initial tree, then exit
    #[arg(long, conflicts_with_all = ["skip_prepare", "dry_run", "output"])]
    prepare_only: bool,
    /// Use the tree that is in the target, created earlier by --prepare-only
    #[arg(long)]
    skip_prepare: bool,
    /// Reproduce the recorded on-disk layout: extents, holes and unwritten space. Needs a reel recorded with --extents; the
    /// report shows the result
    #[arg(long, conflicts_with_all = ["skip_prepare", "scale_footprint"])]
    layout: bool,
    /// Replay N times; restore the target between runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Also restore the target after the last run
    #[arg(long, conflicts_with = "prepare_only")]
    restore: bool,
    /// Refuse a replay that needs more space than this for tree and writes, and give up one that takes more: 500M, 2G
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    max_bytes: Option<i64>,
    /// Page cache content at the start [default: whatever preparing the tree left there]
    #[arg(long, value_enum)]
    cache: Option<Cache>,
    /// Same as --cache cold
    #[arg(long, conflicts_with = "cache")]
    cold: bool,
    /// Limit memory, including page cache and ioreel itself, with a control group: 512M. Implies --cache cold unless --cache
    /// is given
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    memory_limit: Option<i64>,
    /// Plan and run without issuing any call, to measure the replayer itself; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON (schema ioreel.replay/1 or ioreel.replay-block/1, docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    block: block::BlockArgs,
}

const HELP: &str = "\
Results are compared by success or failure, errno, and byte count on regular files and links. Descriptor numbers, inode
numbers, addresses and the split of directory listings are not compared.

Skipped, and counted before the start: I/O on pipes, sockets, terminals, devices, /proc, /sys and /dev; calls in flight
when the recording ended; calls that failed for a reason the target does not have (EXDEV, EROFS, EINTR, …).

A replay is faithful if
- every operation was issued, none early or out of order;
- at most --max-mismatch results and --max-unsupported calls differ;
- lateness is within --max-own-lateness and drift within 1000 ppm;
- the final tree equals the one that the recording left: types, sizes, modes, owners, links, attributes, devices;
- at most --max-left-out operations on replayed files are left out, and the recording lost no event.
docs/replay.md has the definitions.

Exit status: 0 faithful; 1 error; 2 wrong usage. A replay that completed and is not faithful exits with the sum of
  4 results are wrong
  8 the final tree differs
 16 work is left out
 32 the timing is wrong";

#[derive(ValueEnum, Clone, Copy, Debug)]
enum CatchUp {
    /// Shift the schedule of all threads later
    Shift,
    /// Keep the schedule; issue late operations as fast as order allows
    Compress,
    /// Shift only the schedule of the stalled thread
    None,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Cache {
    /// Empty. Dropping cached directories and inodes needs root
    Cold,
    /// All data of all files
    Warm,
    /// The recorded content, as far as known; needs a reel recorded with --cache
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
    /// Order uses of the same name, file, open file description or descriptor
    Resource,
    /// Order only descriptors, locks, thread exits, and creation of a name before its use
    Thread,
    /// As `resource`; also finish every call that had returned before a call was entered
    Global,
    /// No order between threads
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
            .ok_or_else(|| "expected original, think, load, max or scale=F with F from 0.000001 to 1000000".into()),
    }
}

fn kind(word: &str) -> Result<EdgeKind, String> {
    EdgeKind::ALL.iter().find(|k| k.name() == word).copied().ok_or_else(|| {
        let names: Vec<&str> = EdgeKind::ALL.iter().map(|k| k.name()).collect();
        format!("expected one of {}{}", names.join(", "), suggest::hint(word, &names))
    })
}

/// Parses a share from 0 to 1, to thousandths.
fn share(text: &str) -> Result<u16, String> {
    let share = text.parse::<f64>().ok().filter(|s| (0.0..=1.0).contains(s));
    share.map(|s| (s * 1000.0).round() as u16).ok_or_else(|| "expected a number from 0 to 1".into())
}

fn scale(text: &str) -> Result<Scale, String> {
    text.parse().ok().and_then(Scale::new).ok_or_else(|| "expected a number from 0.000001 to 1".into())
}

fn map(text: &str) -> Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err("expected FROM=TO, such as /var/log=/mnt/other".into()),
    }
}

/// Parses a time since the start of the reel, to ns.
fn time(text: &str) -> Result<i64, String> {
    let time = quantity::duration(text)?;
    i64::try_from(time.as_nanos()).map_err(|_| "expected less than 292 years".into())
}

fn ns(text: &str, flag: &str) -> anyhow::Result<i64> {
    let time = quantity::duration(text).map_err(|why| anyhow::anyhow!("{flag} {text}: {why}"))?;
    Ok(i64::try_from(time.as_nanos())?)
}

/// Runs `ioreel replay`.
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
        left_out: args.max_left_out,
        own_lateness_ns: ns(&args.max_own_lateness, "--max-own-lateness")?,
    };
    let untrusted = args.untrusted || !args.trusted && is_untrusted(&args.reel);
    if untrusted && args.seed.is_some() {
        return Err(ReplayError::Untrusted { path: args.reel }.into());
    }
    let target = match (args.target, args.block.device.clone()) {
        (_, Some(device)) if args.block.layer == block::Layer::Block => {
            let (reel, result, dry_run, json) = (args.reel, args.output, args.dry_run, args.json);
            let common = block::Common { reel, untrusted, clockwork, order, result, spin_ns, limits, dry_run, json };
            return block::run(args.block, device, common);
        }
        (Some(target), None) => target,
        _ => anyhow::bail!("--device needs --layer block; to replay on a file system, give a directory with --target"),
    };
    if args.skip_prepare && args.verify && args.seed.is_none() {
        anyhow::bail!(
            "--skip-prepare with --verify needs --seed: give the seed that the run which prepared the tree has shown"
        );
    }
    let config = Config {
        reel: args.reel,
        untrusted,
        control_group: true,
        target,
        clockwork,
        order,
        without: Kinds::of(&args.without),
        result: args.output,
        force: args.force,
        set_ids: args.set_ids,
        device_nodes: args.device_nodes,
        force_room: args.force_room,
        roots: args.root,
        maps: args.map,
        data: DataOptions {
            seed: args.seed.map_or_else(random_seed, Ok)?,
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
    if args.prepare_only { prepare(config, args.json) } else { runs(&config, args.repeat, args.restore, args.json) }
}

/// Whether the owner of a reel says that it must be confined. Tells why.
fn is_untrusted(reel: &Path) -> bool {
    let why = trust::of(reel).why_not();
    if let Some(why) = &why {
        tell!("ioreel: {}: {why}, so its replay is confined; --trusted lifts that", reel.display());
    }
    why.is_some()
}

/// Creates the initial tree and syncs it.
fn prepare(config: Config, json: bool) -> anyhow::Result<ExitCode> {
    let mut bar = Bar::default();
    let replay = Replay::plan(config)?;
    if json {
        print_json(&replay.summary)?;
    } else {
        print::summary(&replay.summary);
    }
    let prepared = replay.prepare(|phase| bar.show(phase))?;
    bar.clear();
    if let Some(layout) = prepared.layout.filter(|_| !json) {
        print::layout(&layout);
    }
    prepared.warnings.iter().for_each(|w| tell!("ioreel: {w}"));
    Ok(ExitCode::SUCCESS)
}

/// Replays `times` times, each time from the same state.
fn runs(config: &Config, times: u32, restore: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut bar = Bar::default();
    let mut reports = Vec::new();
    let mut elapsed_ns = Vec::new();
    let mut status = 0;
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
        status |= report.verdict.status;
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
    Ok(ExitCode::from(status))
}

/// The result path of one run: `x.2.reel` for run 2 of `x.reel`.
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

/// Runs the replay. If a result reel is requested and BPF is available, records the target's disks.
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
            self.0.end(epoch_ns).map_err(|e| format!("the result contains no block tables: {e}"))
        }
    }
    let disks = if wants_reel { host::disks_of(replay.mount()) } else { Vec::new() };
    if disks.is_empty() {
        return replay.run(Unwatched, tell);
    }
    match DiskWatch::start(disks) {
        Ok(watch) => replay.run(Disks(watch), tell),
        Err(e) => {
            tell!("ioreel: the result will not contain block tables: {e}");
            replay.run(Unwatched, tell)
        }
    }
}

/// Runs the replay; without the recorder the target's disks are not recorded.
#[cfg(not(feature = "capture"))]
fn run_watched(replay: Replay, _wants_reel: bool, tell: impl FnMut(Phase)) -> Result<Report, ReplayError> {
    replay.run(Unwatched, tell)
}

/// A progress line; drawn only on a terminal.
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
        if text != self.shown && std::io::stderr().is_terminal() && !is_quiet() {
            eprint!("\r\x1b[K{text}");
            // The terminal may be gone.
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
