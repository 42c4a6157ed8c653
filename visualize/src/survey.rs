//! First reading of a reel: which device, which addresses, how long, and the totals of the summary row.

use std::collections::BTreeMap;

use ioreel_analyze::{
    Summary,
    actor::{ActorMeter, Totals},
    calls::{Kind, each_call},
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

/// Reads the reel. Operations are read where `calls` says so.
pub fn survey(reel: &Reel, choice: &Choice, calls: bool) -> Result<Survey> {
    let m = &reel.manifest;
    let mut last_ns = m.span.elapsed_ns.saturating_add(m.span.settle_ns);
    let mut meters: BTreeMap<i64, (DeviceMeter, Coverage)> = BTreeMap::new();
    for request in requests(reel) {
        let request = request?;
        last_ns = last_ns.max(request.last_ns());
        if !choice.holds(request.issue_ns) {
            continue;
        }
        let (meter, used) = meters.entry(request.dev).or_default();
        meter.push(&request);
        if request.class.is_data() {
            used.add(request.sector, request.end_sector());
        }
    }
    let mut actors = ActorMeter::default();
    let mut call_survey = None;
    let mut last_call_ns = 0;
    if calls {
        let (mut totals, mut latency) = (Totals::default(), Latency::default());
        each_call(reel, |call| {
            last_ns = last_ns.max(call.end_ns());
            if call.by_tool {
                return;
            }
            last_call_ns = last_call_ns.max(call.end_ns());
            if !choice.holds(call.end_ns()) {
                return;
            }
            actors.push(call);
            totals.calls += 1;
            totals.errors += u64::from(call.errno().is_some());
            totals.read_bytes += if matches!(call.kind, Kind::Read | Kind::Copy) { call.bytes() } else { 0 };
            totals.write_bytes += if matches!(call.kind, Kind::Write | Kind::Copy) { call.bytes() } else { 0 };
            if let Some(ns) = call.dur_ns {
                latency.record(ns);
            }
        })?;
        totals.time_ns = latency.total_ns();
        call_survey = Some(CallSurvey { totals, latency: latency.summary() });
    }
    let from_ns = choice.from_ns.unwrap_or(0);
    let to_ns = choice.to_ns.map_or(last_ns, |t| t.min(last_ns));
    if from_ns >= to_ns && (choice.from_ns.is_some() || choice.to_ns.is_some()) {
        let s = |ns: i64| ns as f64 / 1e9;
        return Err(PlotError::EmptyWindow { from_s: s(from_ns), to_s: s(to_ns) });
    }
    // A reel of one moment is drawn as a millisecond; of several within less than a microsecond, as that.
    let to_ns = if to_ns <= from_ns { from_ns + 1_000_000 } else { to_ns.max(from_ns + 1_000) };
    let device = pick_device(reel, choice, &meters, to_ns - from_ns)?;
    let fstype = fstype(reel, device.as_ref(), &actors)?;
    Ok(Survey {
        name: reel.name(),
        command: m.command.as_ref().map(|c| c.argv.join(" ")).unwrap_or_default(),
        fstype,
        from_ns,
        to_ns,
        elapsed_ns: if m.span.elapsed_ns > 0 { m.span.elapsed_ns } else { last_call_ns.max(0) },
        settle_ns: m.span.settle_ns,
        device,
        calls: call_survey,
        lost: m.lost(),
        unfinished: m.state != State::Complete,
    })
}

fn pick_device(
    reel: &Reel,
    choice: &Choice,
    meters: &BTreeMap<i64, (DeviceMeter, Coverage)>,
    span_ns: i64,
) -> Result<Option<DeviceSurvey>> {
    let name = |dev: i64| reel.manifest.device(dev).map(|d| d.name.clone()).filter(|n| !n.is_empty());
    let label = |dev: i64| name(dev).map_or_else(|| dev_name(dev), |n| format!("{n} ({})", dev_name(dev)));
    let picked = match &choice.device {
        None => meters.iter().max_by_key(|(dev, (m, _))| (m.data_bytes(), std::cmp::Reverse(**dev))),
        // A reel that holds no requests at all (tmpfs) is drawn by its operations, whatever device was asked for.
        Some(_) if !Summary::has(reel).0 => None,
        Some(asked) => {
            let asked = asked.strip_prefix("/dev/").unwrap_or(asked);
            let found =
                meters.iter().find(|(dev, _)| dev_name(**dev) == asked || name(**dev).as_deref() == Some(asked));
            if found.is_none() {
                let present: Vec<String> = meters.keys().map(|dev| label(*dev)).collect();
                let present = if present.is_empty() { "none in this window".into() } else { present.join(", ") };
                return Err(PlotError::UnknownDevice { reel: reel.name(), asked: asked.into(), present });
            }
            found
        }
    };
    Ok(picked.map(|(dev, (meter, used))| {
        let summary = meter.summary(*dev, &reel.manifest, span_ns);
        let has = |f: fn(Class) -> bool| summary.classes.iter().any(|c| f(c.op));
        DeviceSurvey {
            dev: *dev,
            label: label(*dev),
            devices: meters.len(),
            used: used.clone(),
            flushes: has(|c| c == Class::Flush),
            others: has(|c| !c.is_data() && c != Class::Flush),
            summary,
        }
    }))
}

/// The file system on the drawn device, or the one that most bytes were written to.
fn fstype(reel: &Reel, device: Option<&DeviceSurvey>, actors: &ActorMeter) -> Result<String> {
    let m = &reel.manifest;
    if let Some(replay) = &m.replay {
        return Ok(replay.fstype.clone());
    }
    if let Some(d) = device {
        let name = &d.summary.name;
        // By number; by name where a file system has a number of its own (btrfs); by the disk's name for a partition.
        let by = |test: &dyn Fn(&str) -> bool| {
            m.mounts.iter().find(|m| test(m.source.rsplit('/').next().unwrap_or_default())).map(|m| m.fstype.clone())
        };
        let found = m.mount_of(d.dev).map(|m| m.fstype.clone());
        let found = found.or_else(|| if name.is_empty() { None } else { by(&|s| s == name) });
        let found = found.or_else(|| if name.is_empty() { None } else { by(&|s| s.starts_with(name.as_str())) });
        return Ok(found.unwrap_or_default());
    }
    let mounts = actors.files(reel, 0)?.mounts;
    let most = mounts.iter().filter(|m| m.totals.calls > 0);
    let most = most.max_by_key(|m| (m.totals.write_bytes, m.totals.read_bytes, m.totals.calls));
    Ok(most.map(|m| m.fstype.clone()).unwrap_or_default())
}
