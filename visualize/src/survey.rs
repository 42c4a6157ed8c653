//! First reading of a reel: which device, which addresses, how long, and the totals of the summary row.

use std::{cmp::Reverse, collections::BTreeMap};

use ioreel_analyze::{
    Summary,
    actor::{ActorMeter, MountSummary, Totals},
    calls::each_call,
    coverage::Coverage,
    device::{DeviceMeter, DeviceSummary},
    latency::{Latency, LatencySummary},
    requests::{Class, requests},
};
use ioreel_traces::{
    Reel,
    manifest::{State, dev_name},
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
    /// The operations, where they are to be drawn.
    pub calls: Option<CallSurvey>,
    /// Events lost, all classes.
    pub lost: i64,
    /// The reel was not closed by its writer.
    pub unfinished: bool,
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
    /// Totals in the window.
    pub summary: DeviceSummary,
    /// Sectors read and written in the window.
    pub used: Coverage,
    /// Whether there are flushes.
    pub flushes: bool,
    /// Whether there are discards, zeroing and the like.
    pub others: bool,
}

/// The operations of a reel.
#[derive(Clone, Debug)]
pub struct CallSurvey {
    /// Totals in the window.
    pub totals: Totals,
    /// Their durations.
    pub latency: LatencySummary,
}

/// What the first pass keeps of a device.
#[derive(Debug, Default)]
struct Seen {
    meter: DeviceMeter,
    used: Coverage,
    /// When its last request ended, in the window or not.
    last_ns: i64,
}

/// Reads the reel. Operations are surveyed where `calls` says so.
pub fn survey(reel: &Reel, choice: &Choice, calls: bool) -> Result<Survey> {
    let m = &reel.manifest;
    let mut devices: BTreeMap<i64, Seen> = BTreeMap::new();
    for request in requests(reel) {
        let request = request?;
        let seen = devices.entry(request.dev).or_default();
        seen.last_ns = seen.last_ns.max(request.last_ns());
        if choice.holds(request.issue_ns) {
            seen.meter.push(&request);
            if request.class.is_data() {
                seen.used.add(request.sector, request.end_sector());
            }
        }
    }
    // With several devices, what the operations worked on tells which one is meant.
    let ambiguous = devices.len() > 1 && choice.device.is_none();
    let (actors, call_survey, last_call_ns) =
        if calls || ambiguous { operations(reel, choice)? } else { (ActorMeter::default(), None, 0) };
    let mounts = actors.files(reel, 0)?.mounts;
    let dev = pick_device(reel, choice, &devices, &mounts)?;
    let fstype = fstype(reel, dev, &mounts);

    let elapsed_ns = if m.span.elapsed_ns > 0 { m.span.elapsed_ns } else { last_call_ns };
    // Not the whole settling: the quiet at its end, and what other devices do then, would only push the rest together.
    let last_ns = match dev.and_then(|dev| devices.get(&dev)) {
        Some(seen) => seen.last_ns.max(elapsed_ns),
        None => last_call_ns.max(elapsed_ns),
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
    let device = dev.and_then(|dev| devices.remove(&dev).map(|seen| (dev, seen)));
    let device = device.map(|(dev, seen)| {
        let summary = seen.meter.summary(dev, m, to_ns - from_ns);
        let has = |f: fn(Class) -> bool| summary.classes.iter().any(|c| f(c.op));
        DeviceSurvey {
            dev,
            label: label(reel, dev),
            devices: count,
            used: seen.used,
            flushes: has(|c| c == Class::Flush),
            others: has(|c| !c.is_data() && c != Class::Flush),
            summary,
        }
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
        calls: call_survey.filter(|_| calls),
        lost: m.lost(),
        unfinished: m.state != State::Complete,
    })
}

/// One pass over the operations: by file, in sum, and when the last one ended.
fn operations(reel: &Reel, choice: &Choice) -> Result<(ActorMeter, Option<CallSurvey>, i64)> {
    let mut actors = ActorMeter::default();
    let (mut totals, mut latency) = (Totals::default(), Latency::default());
    let mut last_ns = 0;
    each_call(reel, |call| {
        if call.by_tool {
            return;
        }
        last_ns = last_ns.max(call.end_ns());
        if !choice.holds(call.end_ns()) {
            return;
        }
        actors.push(call);
        totals.calls += 1;
        totals.errors += u64::from(call.errno().is_some());
        totals.add_bytes(call);
        if let Some(ns) = call.dur_ns {
            latency.record(ns);
        }
    })?;
    totals.time_ns = latency.total_ns();
    Ok((actors, Some(CallSurvey { totals, latency: latency.summary() }), last_ns))
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
        let best = devices.iter().max_by_key(|(dev, d)| (below(**dev), d.meter.data_bytes(), Reverse(**dev)));
        return Ok(best.map(|(dev, _)| *dev));
    };
    // A reel that holds no requests at all (tmpfs) is drawn by its operations, whatever device was asked for.
    if !Summary::has(reel).0 {
        return Ok(None);
    }
    let asked = asked.strip_prefix("/dev/").unwrap_or(asked);
    let found = devices.keys().find(|dev| dev_name(**dev) == asked || device_name(reel, **dev) == Some(asked));
    found.map(|dev| Some(*dev)).ok_or_else(|| {
        let present: Vec<String> = devices.keys().map(|dev| label(reel, *dev)).collect();
        PlotError::UnknownDevice { reel: reel.name(), asked: asked.into(), present: present.join(", ") }
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
