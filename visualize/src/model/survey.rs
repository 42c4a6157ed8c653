//! First pass over a reel: device, addresses, duration, losses.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, btree_map::Entry},
};

use ioreel_analyze::{
    events::{
        bios::devices_of_bios,
        calls::each_call,
        requests::{Request, bios_as_requests, each_of_segment, of_device},
    },
    meters::coverage::Coverage,
    summary::actor::{ActorMeter, MountSummary},
};
use ioreel_traces::{
    Reel,
    manifest::{KILLED, State, dev_name},
    rows::{Block, Op},
    suggest,
    table::Row,
};

use crate::{PlotError, Result};

/// Device and time window to draw.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Device name or `major:minor`. Default: the one below the files that the workload used most; without files, the one
    /// with most bytes.
    pub device: Option<String>,
    /// Start of the window, ns. Default: the start of the reel; of a rotated reel, the time from which on it is complete.
    pub from_ns: Option<i64>,
    /// End of the window, ns. Default: the end of the reel.
    pub to_ns: Option<i64>,
}

impl Choice {
    /// The same choice without the time of which rotation dropped events.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(crate) fn of_kept(&self, reel: &Reel) -> Result<Self> {
        let from_ns = match self.from_ns {
            Some(from_ns) => Some(from_ns),
            None => Some(reel.kept_from_ns()?).filter(|kept| *kept > 0),
        };
        Ok(Self { from_ns, ..self.clone() })
    }

    /// Whether an event at `t_ns` is in the window.
    pub fn holds(&self, t_ns: i64) -> bool {
        self.from_ns.is_none_or(|f| t_ns >= f) && self.to_ns.is_none_or(|t| t_ns <= t)
    }
}

/// Latest valid time, 73 years. Later times are damage, and would overflow calculations.
const MOST_NS: i64 = 1 << 61;

/// Result of the first pass.
#[derive(Clone, Debug)]
pub struct Survey {
    /// What is drawn.
    pub choice: Choice,
    /// Events before this time were dropped by rotation. 0: none were.
    pub kept_from_ns: i64,
    /// Display name.
    pub name: String,
    /// Command line. Empty if there is none.
    pub command: String,
    /// Type of the file system with most activity. Empty if unknown.
    pub fstype: String,
    /// Start of the drawn window.
    pub from_ns: i64,
    /// End of the drawn window, after its start.
    pub to_ns: i64,
    /// From the start to the end of the last operation.
    pub elapsed_ns: i64,
    /// From there until the devices were idle.
    pub settle_ns: i64,
    /// The device to draw.
    pub device: Option<DeviceSurvey>,
    /// Whether there are operations.
    pub has_calls: bool,
    /// Number of lost events, all classes.
    pub lost: i64,
    /// Whether the reel was not closed by its writer.
    pub unfinished: bool,
    /// Why the recording ended early. Empty if it ended by itself.
    pub cut_short: String,
    /// Whether the window starts after the start of the reel, and whether it ends before its end.
    pub window: (bool, bool),
    /// Times of the first clock jumps, in order.
    pub clock_jumps_ns: Vec<i64>,
    /// Requests that end before being issued, or are issued before being queued.
    pub clock_jumps: u64,
    /// Backward jumps of the clock of an imported trace.
    pub clock_backs: usize,
}

/// One device of a reel.
#[derive(Clone, Debug)]
pub struct DeviceSurvey {
    /// Device number.
    pub dev: i64,
    /// Display name and number.
    pub label: String,
    /// Number of devices with requests in the reel.
    pub devices: usize,
    /// Whether the device has no requests, so that each bio stands for one.
    pub of_bios: bool,
    /// Requests in the window.
    pub requests: u64,
    /// Sectors read and written in the window.
    pub used: Coverage,
}

/// Data about a device.
#[derive(Clone, Debug, Default)]
struct Seen {
    of_bios: bool,
    requests: u64,
    data_bytes: u64,
    used: Coverage,
    /// Completion of its last request, in the window or not.
    last_ns: i64,
    jumps: u64,
    jumps_ns: Vec<i64>,
}

/// Maximum number of clock jumps stored.
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

/// Number of threads that read segments.
const READERS: usize = 2;

/// All devices. Threads share the segments, because nothing here depends on order.
fn devices(reel: &Reel, choice: &Choice) -> Result<Devices> {
    let segments = reel.segments::<Block>().len();
    let part = |first: usize| -> Result<Devices> {
        let mut devices = Devices::new();
        for segment in (first..segments).step_by(READERS) {
            each_of_segment(reel, segment, |batch| {
                // Usually there is one device, so it is looked up once per run.
                for run in batch.chunk_by(|a, b| a.dev == b.dev) {
                    if let Some(seen) = of_device(&mut devices, run[0].dev, Seen::default) {
                        run.iter().for_each(|r| seen.add(choice, r));
                    }
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
    // Devices without requests are described by their bios.
    let mut of_bios = Devices::new();
    if devices_of_bios(reel)?.iter().all(|dev| all.contains_key(dev)) {
        return Ok(all);
    }
    let mut bios = bios_as_requests(reel);
    while let Some(batch) = bios.next_batch()? {
        for r in batch.iter().filter(|r| !all.contains_key(&r.dev)) {
            let Some(seen) = of_device(&mut of_bios, r.dev, Seen::default) else { continue };
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

/// The latest time in a table, from the manifest.
fn last_row_ns<R: Row>(reel: &Reel) -> i64 {
    reel.manifest.segments.get(R::TABLE).into_iter().flatten().map(|s| s.to_ns).max().unwrap_or(0)
}

/// Why the recording ended before the recorded processes did.
fn cut_short(reel: &Reel) -> String {
    let why = match reel.manifest.ended.as_str() {
        "duration" => "by --duration",
        "max_size" => "by --max-size",
        "min_free" => "by --min-free",
        "signal" => "by a signal",
        "failed" => "by a failure",
        KILLED => "by the death of the recorder",
        _ if reel.manifest.state == State::Truncated => "by its writer",
        _ => return String::new(),
    };
    why.into()
}

/// First pass over the reel.
pub fn survey(reel: &Reel, choice: &Choice) -> Result<Survey> {
    let asked = choice;
    let choice = &choice.of_kept(reel)?;
    let m = &reel.manifest;
    let mut devices = devices(reel, choice)?;
    let has_calls = reel.count::<Op>() > 0;
    // With several devices, operations show which one is meant; with none, which file system.
    let ambiguous = devices.len() != 1 && choice.device.is_none();
    let actors = if has_calls && ambiguous { operations(reel, choice)? } else { ActorMeter::default() };
    let mounts = actors.files(reel, 0)?.mounts;
    let dev = pick_device(reel, choice, &devices, &mounts)?;
    let fstype = fstype(reel, dev, &mounts);

    let last_call_ns = last_row_ns::<Op>(reel);
    let elapsed_ns = if m.span.elapsed_ns > 0 { m.span.elapsed_ns } else { last_call_ns };
    // The end of settling, with idle devices or activity of other devices only, is not shown: it would only compress
    // the rest.
    let last_ns = match dev.and_then(|dev| devices.get(&dev)) {
        Some(seen) => seen.last_ns.max(elapsed_ns),
        None if m.span.elapsed_ns > 0 => elapsed_ns,
        None => last_call_ns,
    };
    let from_ns = choice.from_ns.unwrap_or(0).clamp(0, MOST_NS);
    let last_ns = last_ns.clamp(0, MOST_NS);
    let to_ns = choice.to_ns.map_or(last_ns, |t| t.min(last_ns));
    if from_ns >= to_ns && (asked.from_ns.is_some() || choice.to_ns.is_some()) {
        let s = |ns: i64| ns as f64 / 1e9;
        return Err(PlotError::EmptyWindow { from_s: s(from_ns), to_s: s(to_ns) });
    }
    // A reel of a single moment is drawn as 1 ms, one shorter than 1 µs as 1 µs.
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
        choice: choice.clone(),
        kept_from_ns: reel.kept_from_ns()?,
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
        window: (asked.from_ns.is_some() && from_ns > 0, choice.to_ns.is_some_and(|t| t < last_ns)),
        clock_jumps_ns,
        clock_jumps,
        clock_backs: m.clock_jumps.len(),
    })
}

/// One pass over the operations, by file.
fn operations(reel: &Reel, choice: &Choice) -> Result<ActorMeter> {
    let mut actors = ActorMeter::default();
    each_call(reel, |call| {
        if !call.by_tool && choice.holds(call.end_ns()) {
            actors.push(call);
        }
    })?;
    Ok(actors)
}

/// Importance of a mount for the workload, in bytes. Written bytes count twice, because the source of an unpacking is
/// not the point; a call counts as a block of metadata.
fn weight(m: &MountSummary) -> u64 {
    m.totals.write_bytes.saturating_mul(2).saturating_add(m.totals.read_bytes).saturating_add(4096 * m.totals.calls)
}

fn device_name(reel: &Reel, dev: i64) -> Option<&str> {
    reel.manifest.device(dev).map(|d| &*d.name).filter(|n| !n.is_empty())
}

fn label(reel: &Reel, dev: i64) -> String {
    device_name(reel, dev).map_or_else(|| dev_name(dev), |n| format!("{n} ({})", dev_name(dev)))
}

/// Whether a file system is on a disk: by number; by name if the file system has its own number (btrfs); or by the
/// disk's name for one of its partitions.
fn lies_on(reel: &Reel, sb_dev: i64, source: &str, dev: i64) -> bool {
    let source = source.rsplit('/').next().unwrap_or_default();
    let on = |name: &str| {
        let part = source.strip_prefix(name);
        part.is_some_and(|p| p.is_empty() || p.trim_start_matches('p').parse::<u32>().is_ok())
    };
    sb_dev == dev || device_name(reel, dev).is_some_and(on)
}

/// How much of the workload's files lies on a device: the devices with most are drawn first, in pictures and reports.
pub(crate) fn work_on(reel: &Reel, mounts: &[MountSummary], dev: i64) -> u64 {
    mounts.iter().filter(|m| lies_on(reel, m.sb_dev, &m.source, dev)).map(weight).max().unwrap_or(0)
}

/// The requested device; else the one below the mount with most activity; else the one with most bytes.
fn pick_device(
    reel: &Reel,
    choice: &Choice,
    devices: &BTreeMap<i64, Seen>,
    mounts: &[MountSummary],
) -> Result<Option<i64>> {
    let Some(asked) = &choice.device else {
        let best = devices.iter().max_by_key(|(dev, d)| (work_on(reel, mounts, **dev), d.data_bytes, Reverse(**dev)));
        return Ok(best.map(|(dev, _)| *dev));
    };
    // A reel without requests (tmpfs) is drawn by its operations, whatever device was requested.
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

/// The file system on the drawn device, or the one with most activity.
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
