//! `ioreel report`: one offline HTML page per reel.
//!
//! In: a reel. Out: a document with data and the scripts that draw it. May use: `canvas`, `model`.
//!
//! The data are rates in bins, tables, and events. If there are few events, all are included. Otherwise the page has
//! rasters of counts, the slowest events and a sample of the others, so its size is bounded for any reel. [`bundle`]
//! with a window returns the same for a part of the reel in more detail; `ioreel serve` uses it.
//!
//! * [`window`] is the time and device shown; [`requests`], [`calls`], [`bios`], [`carried`], [`lanes`] read the tables;
//! * [`sample`] chooses single events, [`table`] and [`columns`] encode them, [`container`] packs the data;
//! * [`about`] describes the reel as a whole, [`page`] is the document.

mod about;
mod bios;
mod calls;
mod carried;
mod columns;
mod container;
mod lanes;
mod page;
mod requests;
mod sample;
mod table;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ioreel_analyze::{
    Scope, Stats,
    meters::bins::{Bins, nice_width_ns},
    summary::{actor::FileSummary, series::CallSeries},
};
use ioreel_traces::{
    Reel,
    rows::{Bio, Exec, Op, Task},
    table::Row,
};
use rustc_hash::FxHashSet;
use serde::Serialize;
use serde_json::json;

pub use self::window::Window;
use self::{
    about::{About, FileRow, about},
    bios::{BioTable, BiosView},
    calls::CallsView,
    carried::{Carriage, carriage},
    columns::Column,
    container::{Part, Raster, pack},
    requests::{DeviceView, Plan, Seen},
    table::{CallTable, KIND_NAMES, RequestTable, class_names},
    window::MOST_NS,
};
pub(crate) use self::{page::html as page_of, requests::each_request, sample::Sample, window::narrowed};
use crate::{Result, model::survey::work_on};

/// Maximum size of a page, bytes.
pub const MOST_PAGE_BYTES: usize = 15_000_000;
/// The part of it for scripts and markup.
const SCRIPT_BYTES: usize = 400_000;
/// Maximum number of individual requests, and of individual calls, in a page.
pub const DEFAULT_SINGLES: usize = 200_000;
/// Number of the slowest of each, in addition.
const SLOWEST: usize = 20_000;
/// Columns of the density maps.
const MAP_COLUMNS: u32 = 4096;
/// Number of bins of the rates.
const BINS: usize = 4096;
/// Number of files and processes in the tables.
const TOP_FILES: usize = 1000;
const TOP_PROCESSES: usize = 500;
/// Maximum number of threads named by individual events.
const MOST_TASKS: usize = 20_000;

/// A finding for the list of findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Short description.
    pub title: String,
    /// `info`, `warning` or `critical`. Determines its colour and position in the list.
    pub severity: String,
    /// Cost, cause and remedy.
    pub text: String,
    /// Start, ns since the start of the reel.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
}

/// Options of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// Title. Default: the reel's name.
    pub title: Option<String>,
    /// Findings in display order. If empty, the page has no list of findings.
    pub findings: Vec<Finding>,
}

/// Creates the page.
///
/// # Errors
/// When the reel cannot be read.
pub fn report(reel: &Reel, options: &ReportOptions) -> Result<String> {
    let Bundle { bytes, .. } = whole_bundle(reel, &options.findings)?;
    Ok(page_of(&bytes, options.title.as_deref(), false))
}

/// The page's data for the whole reel.
pub(crate) fn whole_bundle(reel: &Reel, findings: &[Finding]) -> Result<Bundle> {
    bundle(reel, None, findings, (MOST_PAGE_BYTES - SCRIPT_BYTES) / 4 * 3)
}

/// Data for the scripts.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// An index line and columns, see [`container`].
    pub bytes: Vec<u8>,
    /// The shown window.
    pub window: Window,
    /// The longest duration of a request.
    pub longest_ns: i64,
}

/// The part of a reel to read.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt {
    /// The time window.
    pub window: Window,
    /// The longest duration of a request in the reel, to find those in flight at the window's start.
    pub longest_ns: i64,
}

/// Reads the reel or a part of it, in at most `room` bytes.
///
/// # Errors
/// When the reel cannot be read.
pub fn bundle(reel: &Reel, part: Option<Excerpt>, findings: &[Finding], room: usize) -> Result<Bundle> {
    let reel = &part.map_or_else(|| reel.clone(), |p| narrowed(reel, p.window, p.longest_ns));
    let (stats, drawn) = std::thread::scope(|threads| {
        // A thread of its own for the statistics.
        let stats = part.is_none().then(|| threads.spawn(|| Stats::of(reel, &Scope::default())));
        let drawn = Drawn::of(reel, part.map(|p| p.window));
        (stats.map(std::thread::ScopedJoinHandle::join), drawn)
    });
    let drawn = drawn?;
    let mut about = about(reel, findings, drawn.window, [drawn.bins.width_ns(), drawn.bins.count() as i64])?;
    match stats {
        Some(Ok(stats)) => about.take(stats?),
        Some(Err(_)) => {
            let why = "counting its statistics failed".into();
            return Err(ioreel_traces::ReelError::BadSegment { path: reel.path().into(), why }.into());
        }
        None => {}
    }
    let (window, longest_ns) = (drawn.window, drawn.longest_ns);
    let bytes = pack(drawn.parts(reel, about)?, room);
    Ok(Bundle { bytes, window, longest_ns })
}

/// Everything that was read.
struct Drawn {
    window: Window,
    bins: Bins,
    longest_ns: i64,
    seen: BTreeMap<i64, Seen>,
    devices: Vec<DeviceView>,
    calls: Option<CallsView>,
    /// File map from bios, for a reel without operations.
    bios: Option<BiosView>,
    carriage: Carriage,
}

impl Drawn {
    fn of(reel: &Reel, asked: Option<Window>) -> Result<Self> {
        // Of a rotated reel, what is complete.
        let kept = Some(reel.kept_from_ns()?).filter(|from_ns| *from_ns > 0);
        let kept = kept.map(|from_ns| Window { from_ns, to_ns: i64::MAX });
        let seen = requests::survey(reel, asked.or(kept))?;
        let window = asked.unwrap_or_else(|| whole(reel, &seen, kept.map_or(0, |kept| kept.from_ns)));
        let width_ns = nice_width_ns(window.to_ns - window.from_ns, BINS, 1);
        let bins = Bins::new(window.from_ns, window.to_ns, width_ns);
        let plan = Plan { window, bins, columns: MAP_COLUMNS, singles: DEFAULT_SINGLES, slowest: SLOWEST };
        let calls = if reel.count::<Op>() > 0 { Some(calls::draw(reel, &plan)?) } else { None };
        let mounts = calls.as_ref().map_or(Ok(Vec::new()), |c| c.actors.files(reel, 0).map(|files| files.mounts))?;
        let devices = requests::draw(reel, &plan, &seen, |dev| work_on(reel, &mounts, dev))?;
        let with_bios = reel.count::<Bio>() > 0;
        let bios = if with_bios && calls.is_none() { bios::draw(reel, &plan)? } else { None };
        let wanted: FxHashSet<i64> =
            devices.iter().flat_map(|d| &d.singles.events).map(|s| s.request.rq_id).filter(|id| *id >= 0).collect();
        let carriage = if with_bios { carriage(reel, |id| wanted.contains(&id))? } else { Carriage::default() };
        let longest_ns = seen.values().map(|s| s.longest_ns).max().unwrap_or(0);
        Ok(Self { window, bins, longest_ns, seen, devices, calls, bios, carriage })
    }

    fn parts(self, reel: &Reel, mut about: About) -> Result<Vec<Part>> {
        self.describe_calls(reel, &mut about)?;
        let tasks = Tasks::of(reel, &self)?;
        let Self { seen, devices, calls, bios, carriage, .. } = self;
        let index = json!({
            "about": about, "devices": devices.iter().map(|d| device_row(reel, d)).collect::<Vec<_>>(),
            "devices_not_drawn": seen.len() - devices.len(),
            "classes": class_names(), "kinds": KIND_NAMES, "ops": calls.as_ref().map_or(&[][..], |c| &c.names),
            "carried": carriage.classes, "comms": carriage.comms,
            "threads": thread_rows(&carriage),
            "tasks": tasks.rows, "lanes": calls.as_ref().map_or(0, |c| c.lanes.lanes.len()),
        });
        let lanes = calls.as_ref().map(|c| &c.lanes).or(bios.as_ref().map(|b| &b.lanes));
        let place = |file: i64| lanes.and_then(|l| l.place(file)).map_or(-1, |p| p as i64);
        let mut parts = Vec::new();
        for (i, mut d) in devices.into_iter().enumerate() {
            let prefix = format!("d{i}");
            parts.extend(device_parts(&prefix, &mut d));
            let table = RequestTable::new(prefix, d.singles, &carriage, place, |t| tasks.place(t));
            parts.push(Part::Singles(Box::new(table)));
        }
        parts.push(Part::Column(Column::text("index", index.to_string())));
        if let Some(c) = calls {
            parts.extend(call_parts(c, |t| tasks.place(t)));
        }
        if let Some(b) = bios {
            parts.extend(bio_parts(b));
        }
        Ok(parts)
    }

    /// Adds the operations, files and processes to what the reel is about.
    fn describe_calls(&self, reel: &Reel, about: &mut About) -> Result<()> {
        let Some(c) = &self.calls else { return Ok(()) };
        about.operations.clone_from(&c.operations);
        let totals = c.actors.files(reel, TOP_FILES)?;
        let mut files: BTreeMap<i64, FileSummary> = BTreeMap::new();
        files.extend(totals.by_time.into_iter().chain(totals.by_bytes).map(|f| (f.file, f)));
        (about.file_count, about.path_count) = (totals.count, totals.paths);
        about.files = files.into_values().map(|calls| self.file_row(calls)).collect();
        about.files.sort_by_key(|f| (std::cmp::Reverse(f.calls.totals.bytes()), f.calls.file));
        (about.processes, about.process_count) = c.actors.processes(reel, TOP_PROCESSES)?;
        Ok(())
    }

    fn file_row(&self, calls: FileSummary) -> FileRow {
        let mut row = FileRow { calls, disk_read_bytes: 0, disk_write_bytes: 0 };
        for moved in row.calls.keys.iter().filter_map(|file| self.carriage.files.get(file)) {
            row.disk_read_bytes = row.disk_read_bytes.saturating_add(moved.read_bytes);
            row.disk_write_bytes = row.disk_write_bytes.saturating_add(moved.write_bytes);
        }
        row.calls.path = row.calls.path.map(|p| lanes::shortened(&p, 400));
        row
    }
}

/// What the index says of a device.
fn device_row(reel: &Reel, d: &DeviceView) -> serde_json::Value {
    let name = reel.manifest.device(d.dev).map(|d| d.name.as_str()).filter(|n| !n.is_empty());
    let number = ioreel_traces::manifest::dev_name(d.dev);
    let label = name.map_or_else(|| number.clone(), |n| format!("{} ({number})", lanes::shortened(n, 64)));
    let bands: Vec<_> =
        d.axis.bands.iter().map(|b| json!([b.sectors.from, b.sectors.to, b.row, b.sectors.count])).collect();
    json!({ "dev": d.dev, "label": label, "bands": bands, "rows": d.axis.rows, "tiled": d.map.is_some() })
}

/// A device's rates and densities.
fn device_parts(prefix: &str, d: &mut DeviceView) -> Vec<Part> {
    let s = &d.series;
    let int = |name: &str, values: &[u64]| {
        Part::Column(Column::integers(format!("{prefix}.{name}"), values.iter().map(|v| *v as i64)))
    };
    let mut parts = vec![
        int("read_bytes", &s.read_bytes),
        int("write_bytes", &s.write_bytes),
        int("reads", &s.reads),
        int("writes", &s.writes),
        int("others", &s.others),
        int("seeks_exact", &s.seeks_exact),
        int("seeks_sw64k", &s.seeks_sw64k),
        int("depth_max", &d.peaks),
        // Thousandths, finer than any drawn line.
        int("depth_mean", &s.in_flight.means().iter().map(|m| (m * 1e3).round() as u64).collect::<Vec<_>>()),
    ];
    let rasters = d.map.take().into_iter().flatten().zip(["map.read", "map.write", "map.other"]);
    let rasters = rasters.chain(d.flushes.take().into_iter().map(|f| (f, "map.flush")));
    let rasters = rasters.chain(d.heat.take().into_iter().flatten().zip(["heat.read", "heat.write", "heat.other"]));
    parts.extend(rasters.map(|(counts, n)| Part::Raster(Raster { name: format!("{prefix}.{n}"), counts })));
    parts
}

fn bio_parts(b: BiosView) -> Vec<Part> {
    let mut parts = lane_parts(&b.lanes);
    let map = b.map.into_iter().flatten().zip(["read", "write"]);
    parts.extend(map.map(|(counts, n)| Part::Raster(Raster { name: format!("bios.map.{n}"), counts })));
    let table = BioTable::new(b.singles, |file| b.lanes.place(file).map_or(-1, |p| p as i64));
    parts.push(Part::Singles(Box::new(table)));
    parts
}

fn call_parts(c: CallsView, task: impl Fn(i64) -> i64) -> Vec<Part> {
    let s = &c.series;
    let int = |name: String, values: &[u64]| Part::Column(Column::integers(name, values.iter().map(|v| *v as i64)));
    let mut parts =
        vec![int("calls.read_bytes".into(), &s.read_bytes), int("calls.write_bytes".into(), &s.write_bytes)];
    let others = s.other_bytes.iter().zip(CallSeries::OTHERS);
    parts.extend(others.map(|(values, name)| int(format!("calls.{name}"), values)));
    let rows = ["read", "write", "sync", "metadata", "other"];
    parts.extend(s.calls.iter().zip(rows).map(|(values, row)| int(format!("calls.count.{row}"), values)));
    let heat = c.heat.into_iter().flatten().zip(rows);
    parts.extend(heat.map(|(counts, n)| Part::Raster(Raster { name: format!("calls.heat.{n}"), counts })));
    let map = c.map.into_iter().flatten().zip(["read", "write"]);
    parts.extend(map.map(|(counts, n)| Part::Raster(Raster { name: format!("calls.map.{n}"), counts })));
    parts.extend(lane_parts(&c.lanes));
    let table = CallTable::new(c.singles, |file| c.lanes.place(file).map_or(-1, |p| p as i64), task);
    parts.push(Part::Singles(Box::new(table)));
    parts
}

/// Encodes the axis of files.
fn lane_parts(lanes: &lanes::Lanes) -> Vec<Part> {
    let lane = |name: &str, of: fn(&lanes::Lane) -> i64| {
        Part::Column(Column::differences(format!("lanes.{name}"), lanes.lanes.iter().map(of)))
    };
    let mut parts = vec![
        lane("file", |l| l.file),
        lane("from", |l| l.from),
        lane("to", |l| l.to),
        lane("y", |l| l.y),
        lane("top", |l| l.top),
        lane("bytes", |l| i64::try_from(l.bytes).unwrap_or(i64::MAX)),
    ];
    let paths: Vec<_> = lanes.lanes.iter().map(|l| &l.path).collect();
    let paths = json!({ "paths": paths, "others": lanes.others, "unnamed": lanes.unnamed, "height": lanes::HEIGHT });
    parts.push(Part::Column(Column::text("lanes.index", paths.to_string())));
    parts
}

/// Bytes that devices moved by thread name, most first.
fn thread_rows(known: &Carriage) -> Vec<(String, u64, u64)> {
    let mut rows: Vec<_> =
        known.threads.iter().map(|(n, m)| (lanes::shortened(n, 64), m.read_bytes, m.write_bytes)).collect();
    rows.sort_by(|a, b| (b.1.saturating_add(b.2), &a.0).cmp(&(a.1.saturating_add(a.2), &b.0)));
    rows.truncate(TOP_PROCESSES);
    rows
}

/// Threads named by individual events.
#[derive(Default)]
struct Tasks {
    places: HashMap<i64, i64>,
    /// Process, thread, name, program.
    rows: Vec<(i32, i32, String, Option<String>)>,
}

impl Tasks {
    fn of(reel: &Reel, drawn: &Drawn) -> Result<Self> {
        let calls = drawn.calls.iter().flat_map(|c| &c.singles.events).map(|c| c.task);
        let wanted: BTreeSet<i64> = calls.chain(drawn.carriage.requests.values().filter_map(|r| r.task)).collect();
        let mut tasks = Self::default();
        if wanted.is_empty() {
            return Ok(tasks);
        }
        let mut programs: HashMap<i64, String> = HashMap::new();
        for row in reel.rows::<Exec>() {
            let row = row?;
            if wanted.contains(&row.task_id) {
                programs.insert(row.task_id, lanes::shortened(&row.path, 200));
            }
        }
        for row in reel.rows::<Task>() {
            let row = row?;
            if wanted.contains(&row.task_id) && tasks.rows.len() < MOST_TASKS {
                tasks.places.insert(row.task_id, tasks.rows.len() as i64);
                let comm = lanes::shortened(&row.comm, 64);
                tasks.rows.push((row.pid, row.tid, comm, programs.remove(&row.task_id)));
            }
        }
        Ok(tasks)
    }

    fn place(&self, task: i64) -> i64 {
        self.places.get(&task).copied().unwrap_or(-1)
    }
}

/// The window from the start of what is kept to the last event.
fn whole(reel: &Reel, seen: &BTreeMap<i64, Seen>, from_ns: i64) -> Window {
    let m = &reel.manifest;
    let calls = m.segments.get(Op::TABLE).into_iter().flatten().map(|s| s.to_ns);
    let last = seen.values().map(|s| s.last_ns).chain(calls).chain([m.span.elapsed_ns]).max().unwrap_or(0);
    // A reel of a single moment is shown as 1 ms.
    let to_ns = if last <= 0 { 1_000_000 } else { last.clamp(1_000, MOST_NS) };
    let from_ns = from_ns.min(MOST_NS);
    Window { from_ns, to_ns: if to_ns > from_ns { to_ns } else { from_ns + 1_000_000 } }
}
