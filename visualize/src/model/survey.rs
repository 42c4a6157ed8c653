//! First reading of a reel: which device, which addresses, how long, and what must not be missed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, btree_map::Entry},
};

use ioreel_analyze::{
    events::{
        bios::devices_of_bios,
        calls::each_call,
        requests::{Request, bios_as_requests, each_of_segment},
    },
    meters::coverage::Coverage,
    summary::actor::{ActorMeter, MountSummary},
};
use ioreel_traces::{
    Reel,
    manifest::{State, dev_name},
    rows::{Block, Op},
    suggest,
    table::Row,
};

use crate::{PlotError, Result};

/// What is to be drawn of every reel.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Device by name or `major:minor`; the one with most bytes otherwise.
    pub device: Option<String>,
    /// Only from here, ns; from the reel's start otherwise.
    pub from_ns: Option<i64>,
    /// Only to here, ns; to the reel's end otherwise.
    pub to_ns: Option<i64>,
}

impl Choice {
    /// Whether an event at `t_ns` is in the window.
    pub fn holds(&self, t_ns: i64) -> bool {
        self.from_ns.is_none_or(|f| t_ns >= f) && self.to_ns.is_none_or(|t| t_ns <= t)
    }
}

/// The last moment that is believed, 73 years: what claims to be later is damage, and may not break arithmetic.
const MOST_NS: i64 = 1 << 61;

/// What was learnt of a reel.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Name for people.
    pub name: String,
    /// Command line, empty where there was none.
    pub command: String,
    /// Type of the file system that was worked on, empty where unknown.
    pub fstype: String,
    /// Start of what is drawn.
    pub from_ns: i64,
    /// End of what is drawn, after its start.
    pub to_ns: i64,
    /// From the start to the last operation's end.
    pub elapsed_ns: i64,
    /// From there until all was quiet.
    pub settle_ns: i64,
    /// The device to draw.
    pub device: Option<DeviceSurvey>,
    /// Whether there are operations.
    pub has_calls: bool,
    /// Events lost, all classes.
    pub lost: i64,
    /// The reel was not closed by its writer.
    pub unfinished: bool,
    /// It was closed early, by its writer or a limit; why, empty where it ended by itself.
    pub cut_short: String,
    /// What is drawn begins after the reel's start, ends before its end.
    pub window: (bool, bool),
    /// Moments at which clocks disagree: the first of what is counted below, in order.
    pub clock_jumps_ns: Vec<i64>,
    /// Requests that end before being issued, or are issued before being queued.
    pub clock_jumps: u64,
    /// Times that the clock of an imported trace went back.
    pub clock_backs: usize,
}

/// One device of a reel.
#[derive(Clone, Debug)]
pub struct DeviceSurvey {
    /// Device number.
    pub dev: i64,
    /// Name and number for people.
    pub label: String,
    /// Devices that the reel has requests of.
    pub devices: usize,
    /// It works on bios: the reel has no requests of it, and each bio stands for one.
    pub of_bios: bool,
    /// Requests in the window.
    pub requests: u64,
    /// Sectors read and written in the window.
    pub used: Coverage,
}

/// What is kept of a device.
#[derive(Clone, Debug, Default)]
struct Seen {
    of_bios: bool,
    requests: u64,
    data_bytes: u64,
    used: Coverage,
    /// When its last request ended, in the window or not.
    last_ns: i64,
    jumps: u64,
    jumps_ns: Vec<i64>,
}

/// Moments of disagreeing clocks that are remembered.
pub(crate) const MOST_JUMPS: usize = 500;

impl Seen {
    fn add(&mut self, choice: &Choice, r: &Request) {
        self.last_ns = self.last_ns.max(r.last_ns());
        if r.last_ns() < r.issue_ns {
            self.jumps += 1;
            if self.jumps_ns.len() < MOST_JUMPS {
                self.jumps_ns.push(r.issue_ns);
            }
        }
        if choice.holds(r.issue_ns) {
            self.requests += 1;
            if r.class.is_data() {
                self.used.add(r.sector, r.end_sector());
                self.data_bytes = self.data_bytes.saturating_add(u64::try_from(r.len_bytes).unwrap_or(0));
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.data_bytes = self.data_bytes.saturating_add(other.data_bytes);
        self.used.merge(&other.used);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.jumps += other.jumps;
        self.jumps_ns.extend(other.jumps_ns);
    }
}

type Devices = BTreeMap<i64, Seen>;

/// Threads that read segments.
const READERS: usize = 2;

/// All devices, segments shared out among threads: nothing that is learnt here depends on order.
fn devices(reel: &Reel, choice: &Choice) -> Result<Devices> {
    let segments = reel.segments::<Block>().len();
    let part = |first: usize| -> Result<Devices> {
        let mut devices = Devices::new();
        for segment in (first..segments).step_by(READERS) {
            each_of_segment(reel, segment, |batch| {
                // Mostly there is one device: it is looked up once per run.
                for run in batch.chunk_by(|a, b| a.dev == b.dev) {
                    let seen = devices.entry(run[0].dev).or_default();
                    run.iter().for_each(|r| seen.add(choice, r));
                }
            })?;
        }
        Ok(devices)
    };
    let parts = std::thread::scope(|threads| {
        let part = &part;
        let running: Vec<_> = (0..READERS).map(|first| threads.spawn(move || part(first))).collect();
        running.into_iter().map(|t| t.join().map_err(|_| died())?).collect::<Result<Vec<_>>>()
    })?;
    let mut all = Devices::new();
    for (dev, seen) in parts.into_iter().flatten() {
        match all.entry(dev) {
            Entry::Vacant(place) => _ = place.insert(seen),
            Entry::Occupied(mut there) => there.get_mut().merge(seen),
        }
    }
    // Devices that make no requests of their bios are told by those.
    let mut of_bios = Devices::new();
    if devices_of_bios(reel)?.iter().all(|dev| all.contains_key(dev)) {
        return Ok(all);
    }
    let mut bios = bios_as_requests(reel);
    while let Some(batch) = bios.next_batch()? {
        for r in batch.iter().filter(|r| !all.contains_key(&r.dev)) {
            let seen = of_bios.entry(r.dev).or_default();
            seen.of_bios = true;
            seen.add(choice, r);
        }
    }
    all.append(&mut of_bios);
    Ok(all)
}

fn died() -> PlotError {
    PlotError::Render { why: "a reading thread died, which is a bug in ioreel".into() }
}

/// The last moment that a table speaks of, by the manifest.
fn last_row_ns<R: Row>(reel: &Reel) -> i64 {
    reel.manifest.segments.get(R::TABLE).into_iter().flatten().map(|s| s.to_ns).max().unwrap_or(0)
}

/// Why a recording ended before what it recorded did.
fn cut_short(reel: &Reel) -> String {
    let why = match reel.manifest.ended.as_str() {
        "duration" => "by --duration",
        "max_size" => "by --max-size",
        "min_free" => "by --min-free",
        "signal" => "by a signal",
        "failed" => "by a failure",
        _ if reel.manifest.state == State::Truncated => "by its writer",
        _ => return String::new(),
    };
    why.into()
}

/// Reads the reel.
pub fn survey(reel: &Reel, choice: &Choice) -> Result<Survey> {
    let m = &reel.manifest;
    let mut devices = devices(reel, choice)?;
    let has_calls = reel.count::<Op>() > 0;
    // With several devices, what the operations worked on tells which one is meant; with none, which file system.
    let ambiguous = devices.len() != 1 && choice.device.is_none();
    let actors = if has_calls && ambiguous { operations(reel, choice)? } else { ActorMeter::default() };
    let mounts = actors.files(reel, 0)?.mounts;
    let dev = pick_device(reel, choice, &devices, &mounts)?;
    let fstype = fstype(reel, dev, &mounts);

    let last_call_ns = last_row_ns::<Op>(reel);
    let elapsed_ns = if m.span.elapsed_ns > 0 { m.span.elapsed_ns } else { last_call_ns };
    // Not the whole settling: the quiet at its end, and what other devices do then, would only push the rest together.
    let last_ns = match dev.and_then(|dev| devices.get(&dev)) {
        Some(seen) => seen.last_ns.max(elapsed_ns),
        None if m.span.elapsed_ns > 0 => elapsed_ns,
        None => last_call_ns,
    };
    let from_ns = choice.from_ns.unwrap_or(0).clamp(0, MOST_NS);
    let last_ns = last_ns.clamp(0, MOST_NS);
    let to_ns = choice.to_ns.map_or(last_ns, |t| t.min(last_ns));
    if from_ns >= to_ns && (choice.from_ns.is_some() || choice.to_ns.is_some()) {
        let s = |ns: i64| ns as f64 / 1e9;
        return Err(PlotError::EmptyWindow { from_s: s(from_ns), to_s: s(to_ns) });
    }
    // A reel of one moment is drawn as a millisecond; of several within less than a microsecond, as that.
    let to_ns = if to_ns <= from_ns { from_ns + 1_000_000 } else { to_ns.max(from_ns + 1_000) };
    let count = devices.len();
    let (clock_jumps, mut clock_jumps_ns) = dev
        .and_then(|dev| devices.get_mut(&dev))
        .map_or((0, Vec::new()), |seen| (seen.jumps, std::mem::take(&mut seen.jumps_ns)));
    clock_jumps_ns.extend(m.clock_jumps.iter().map(|j| j.at_ns));
    clock_jumps_ns.sort_unstable();
    let device = dev.and_then(|dev| devices.remove(&dev).map(|seen| (dev, seen)));
    let device = device.map(|(dev, seen)| DeviceSurvey {
        dev,
        label: label(reel, dev),
        devices: count,
        of_bios: seen.of_bios,
        requests: seen.requests,
        used: seen.used,
    });
    Ok(Survey {
        name: reel.name(),
        command: m.command.as_ref().map(|c| c.argv.join(" ")).unwrap_or_default(),
        fstype,
        from_ns,
        to_ns,
        elapsed_ns,
        settle_ns: m.span.settle_ns,
        device,
        has_calls,
        lost: m.lost(),
        unfinished: m.state == State::Recording,
        cut_short: cut_short(reel),
        window: (from_ns > 0, choice.to_ns.is_some_and(|t| t < last_ns)),
        clock_jumps_ns,
        clock_jumps,
        clock_backs: m.clock_jumps.len(),
    })
}

/// One pass over the operations: by file.
fn operations(reel: &Reel, choice: &Choice) -> Result<ActorMeter> {
    let mut actors = ActorMeter::default();
    each_call(reel, |call| {
        if !call.by_tool && choice.holds(call.end_ns()) {
            actors.push(call);
        }
    })?;
    Ok(actors)
}

/// What a mount meant to the workload, in bytes: written ones count twice - the source of an unpacking is not
/// what is looked at - and a call as a block of metadata.
fn weight(m: &MountSummary) -> u64 {
    m.totals.write_bytes.saturating_mul(2).saturating_add(m.totals.read_bytes).saturating_add(4096 * m.totals.calls)
}

fn device_name(reel: &Reel, dev: i64) -> Option<&str> {
    reel.manifest.device(dev).map(|d| &*d.name).filter(|n| !n.is_empty())
}

fn label(reel: &Reel, dev: i64) -> String {
    device_name(reel, dev).map_or_else(|| dev_name(dev), |n| format!("{n} ({})", dev_name(dev)))
}

/// Whether a file system lies on a disk: by number; by name where the file system has a number of its own
/// (btrfs); by the disk's name for a partition of it.
fn lies_on(reel: &Reel, sb_dev: i64, source: &str, dev: i64) -> bool {
    let source = source.rsplit('/').next().unwrap_or_default();
    let on = |name: &str| {
        let part = source.strip_prefix(name);
        part.is_some_and(|p| p.is_empty() || p.trim_start_matches('p').parse::<u32>().is_ok())
    };
    sb_dev == dev || device_name(reel, dev).is_some_and(on)
}

/// The device asked for; else the one under the mount that was worked on most; else the one with most bytes.
fn pick_device(
    reel: &Reel,
    choice: &Choice,
    devices: &BTreeMap<i64, Seen>,
    mounts: &[MountSummary],
) -> Result<Option<i64>> {
    let Some(asked) = &choice.device else {
        let below =
            |dev: i64| mounts.iter().filter(|m| lies_on(reel, m.sb_dev, &m.source, dev)).map(weight).max().unwrap_or(0);
        let best = devices.iter().max_by_key(|(dev, d)| (below(**dev), d.data_bytes, Reverse(**dev)));
        return Ok(best.map(|(dev, _)| *dev));
    };
    // A reel that holds no requests at all (tmpfs) is drawn by its operations, whatever device was asked for.
    if devices.is_empty() {
        return Ok(None);
    }
    let asked = asked.strip_prefix("/dev/").unwrap_or(asked);
    let found = devices.keys().find(|dev| dev_name(**dev) == asked || device_name(reel, **dev) == Some(asked));
    found.map(|dev| Some(*dev)).ok_or_else(|| {
        let present: Vec<String> = devices.keys().map(|dev| label(reel, *dev)).collect();
        let names: Vec<&str> = devices.keys().filter_map(|dev| device_name(reel, *dev)).collect();
        let hint = suggest::hint(asked, &names);
        PlotError::UnknownDevice { reel: reel.name(), asked: asked.into(), hint, present: present.join(", ") }
    })
}

/// The file system on the drawn device, or the one that was worked on most.
fn fstype(reel: &Reel, dev: Option<i64>, mounts: &[MountSummary]) -> String {
    let m = &reel.manifest;
    if let Some(replay) = &m.replay {
        return replay.fstype.clone();
    }
    let found = match dev {
        Some(dev) => m.mounts.iter().find(|m| lies_on(reel, m.sb_dev, &m.source, dev)).map(|m| &m.fstype),
        None => mounts.iter().filter(|m| m.totals.calls > 0).max_by_key(|m| weight(m)).map(|m| &m.fstype),
    };
    found.cloned().unwrap_or_default()
}
