//! Block devices, and the data for drawing their requests.

use std::collections::{BTreeMap, BTreeSet};

use ioreel_analyze::{
    events::requests::{Class, Request, each_of_segment, of_device, requests, requests_with_ids},
    meters::{
        bins::Bins,
        coverage::Coverage,
        peaks::DepthPeaks,
        seeks::{Seek, SeekCounter},
    },
    summary::series::DeviceSeries,
};
use ioreel_traces::{
    Reel, ReelError,
    rows::{Bio, Block},
};

use super::{
    carried::each_unqueued_bio,
    sample::{Held, Sample},
    window::{HEAT_ROWS, MOST_NS, Window, heat_row, layer},
};
use crate::{
    Result,
    canvas::raster::{Cells, Counts, Grid},
    model::offset_axis::OffsetAxis,
};

/// Maximum number of drawn devices, those with most bytes. The others are in the tables only.
pub(super) const MOST_DEVICES: usize = 8;
/// Rows of an offset map.
pub(super) const MAP_ROWS: u32 = 1024;

/// Result of the first pass for a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Sectors read and written.
    pub(super) used: Coverage,
    /// Bytes read and written.
    pub(super) bytes: u64,
    /// Number of requests in the window.
    pub(super) count: u64,
    /// Time of their last event.
    pub(super) last_ns: i64,
    /// Longest time from issue to completion.
    pub(super) longest_ns: i64,
}

/// Calls `each` with every request in dispatch order, then with the bios of devices without requests.
pub(crate) fn each_request(reel: &Reel, mut each: impl FnMut(&Request)) -> Result<()> {
    let with_bios = reel.count::<Bio>() > 0;
    let mut known = BTreeSet::new();
    let mut all = if with_bios { requests_with_ids(reel) } else { requests(reel) };
    while let Some(batch) = all.next_batch()? {
        for run in batch.chunk_by(|a, b| a.dev == b.dev) {
            known.extend(run.first().map(|r| r.dev));
            run.iter().for_each(&mut each);
        }
    }
    if with_bios {
        each_unqueued_bio(reel, &known, each)?;
    }
    Ok(())
}

type Devices = BTreeMap<i64, Seen>;

/// Threads that read segments in the first pass.
const READERS: usize = 2;

/// First pass: devices with requests in the window. Threads share the segments, because nothing here depends on order.
pub(super) fn survey(reel: &Reel, window: Option<Window>) -> Result<Devices> {
    let segments = reel.segments::<Block>().len();
    let part = |first: usize| -> Result<(Devices, BTreeSet<i64>)> {
        let (mut devices, mut known) = (Devices::new(), BTreeSet::new());
        for segment in (first..segments).step_by(READERS) {
            each_of_segment(reel, segment, |batch| {
                for run in batch.chunk_by(|a, b| a.dev == b.dev) {
                    known.extend(run.first().map(|r| r.dev));
                    see(&mut devices, window, run);
                }
            })?;
        }
        Ok((devices, known))
    };
    let parts = std::thread::scope(|threads| {
        let part = &part;
        let running: Vec<_> = (1..READERS).map(|first| threads.spawn(move || part(first))).collect();
        let own = part(0);
        let others = running.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(died(reel))));
        std::iter::once(own).chain(others).collect::<Result<Vec<_>>>()
    })?;
    let (mut all, mut known) = (Devices::new(), BTreeSet::new());
    for (devices, some) in parts {
        known.extend(some);
        for (dev, seen) in devices {
            all.entry(dev).or_default().merge(&seen);
        }
    }
    if reel.count::<Bio>() > 0 {
        each_unqueued_bio(reel, &known, |r| see(&mut all, window, std::slice::from_ref(r)))?;
    }
    Ok(all)
}

/// A thread panicked, which is a bug.
fn died(reel: &Reel) -> crate::PlotError {
    ReelError::BadSegment { path: reel.path().into(), why: "reading it failed".into() }.into()
}

/// Adds requests of one device.
fn see(devices: &mut Devices, window: Option<Window>, run: &[Request]) {
    let mut meeting = run.iter().filter(|r| window.is_none_or(|w| w.meets(r.issue_ns, r.last_ns()))).peekable();
    let Some(first) = meeting.peek() else { return };
    let Some(seen) = of_device(devices, first.dev, Seen::default) else { return };
    for r in meeting {
        seen.count += 1;
        seen.last_ns = seen.last_ns.max(r.last_ns().min(MOST_NS));
        seen.longest_ns = seen.longest_ns.max(r.last_ns().saturating_sub(r.issue_ns));
        if r.class.is_data() {
            seen.used.add(r.sector, r.end_sector());
            seen.bytes = seen.bytes.saturating_add(u64::try_from(r.len_bytes).unwrap_or(0));
        }
    }
}

impl Seen {
    fn merge(&mut self, other: &Self) {
        self.used.merge(&other.used);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.count += other.count;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// An individual request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    /// The request.
    pub(super) request: Request,
    /// Kind of seek.
    pub(super) seek: Seek,
}

/// Data about a device.
#[derive(Debug)]
pub(super) struct DeviceView {
    /// Device number.
    pub(super) dev: i64,
    /// Axis of the sectors.
    pub(super) axis: OffsetAxis,
    /// Number of requests per cell of time and offset, by [`layer`]. `None` if all are in the page individually.
    pub(super) map: Option<[Counts; 3]>,
    /// Number of flushes per column.
    pub(super) flushes: Option<Counts>,
    /// Number of requests per cell of completion time and D2C, rows from the bottom.
    pub(super) heat: Option<[Counts; 3]>,
    /// Rates.
    pub(super) series: DeviceSeries,
    /// Maximum number in flight, per bin of the rates.
    pub(super) peaks: Vec<u64>,
    /// Individual requests.
    pub(super) singles: Held<Single>,
}

struct Meter {
    axis: OffsetAxis,
    grids: Option<Grids>,
    series: DeviceSeries,
    peaks: DepthPeaks,
    seeks: SeekCounter,
    singles: Sample<Single>,
}

struct Grids {
    map: [Grid; 3],
    flushes: Grid,
    heat: [Grid; 3],
}

/// Limits of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The shown window.
    pub(super) window: Window,
    /// Bins of the rates.
    pub(super) bins: Bins,
    /// Total number of map columns of all devices.
    pub(super) columns: u32,
    /// Total number of individual requests of all devices.
    pub(super) singles: usize,
    /// Number of the slowest among them.
    pub(super) slowest: usize,
}

/// An empty meter for each device, and the cells of time of maps and heat maps.
fn meters(plan: &Plan, order: &[(&i64, &Seen)]) -> (Vec<(i64, Meter)>, Cells, Cells) {
    let share = order.len().max(1);
    let columns = (plan.columns / share.next_power_of_two() as u32).max(512);
    let time = Cells { from: plan.window.from_ns, to: plan.window.to_ns, count: columns };
    let heat_time = Cells { count: columns.min(2048), ..time };
    // Devices share the limit by need: what one does not use is available to the others.
    let total: u64 = order.iter().map(|(_, s)| s.count).sum();
    let fits = total <= plan.singles as u64;
    let meters = order
        .iter()
        .map(|(dev, s)| {
            let most =
                if fits { plan.singles } else { plan.singles * (s.count as usize).max(1) / total.max(1) as usize };
            let most = most.max(1024);
            let complete = s.count <= most as u64;
            let axis = OffsetAxis::new(&s.used.ranges(), MAP_ROWS, 1);
            let grid = |rows: u32| Grid::new(time.count, rows);
            let grids = (!complete).then(|| Grids {
                map: std::array::from_fn(|_| grid(MAP_ROWS)),
                flushes: grid(1),
                heat: std::array::from_fn(|_| Grid::new(heat_time.count, HEAT_ROWS)),
            });
            let meter = Meter {
                axis,
                grids,
                series: DeviceSeries::new(plan.bins),
                peaks: DepthPeaks::new(plan.bins),
                seeks: SeekCounter::default(),
                singles: Sample::new(most, if complete { 0 } else { (plan.slowest / share).max(64) }),
            };
            (**dev, meter)
        })
        .collect();
    (meters, time, heat_time)
}

/// Second pass: data for the devices in `seen`; first those with most `work` of the recorded programs, then those with
/// most bytes.
pub(super) fn draw(
    reel: &Reel,
    plan: &Plan,
    seen: &BTreeMap<i64, Seen>,
    work: impl Fn(i64) -> u64,
) -> Result<Vec<DeviceView>> {
    let mut order: Vec<(&i64, &Seen)> = seen.iter().collect();
    order.sort_by_cached_key(|(dev, s)| (std::cmp::Reverse((work(**dev), s.bytes, s.count)), **dev));
    order.truncate(MOST_DEVICES);
    let (mut meters, time, heat_time) = meters(plan, &order);
    // Consecutive requests usually belong to the same device.
    let mut place = 0;
    each_request(reel, |r| {
        if meters.get(place).is_none_or(|(dev, _)| *dev != r.dev) {
            match meters.iter().position(|(dev, _)| *dev == r.dev) {
                Some(there) => place = there,
                None => return,
            }
        }
        let Some((_, m)) = meters.get_mut(place) else { return };
        // Seeks count regardless of what is shown.
        let seek = if r.class.is_data() { m.seeks.push(r.sector, r.end_sector()) } else { Seek::default() };
        if !plan.window.meets(r.issue_ns, r.last_ns()) {
            return;
        }
        m.series.push(r, seek);
        if let Some(complete_ns) = r.complete_ns {
            m.peaks.push(r.issue_ns, complete_ns);
        }
        m.singles.push(r.last_ns().saturating_sub(r.issue_ns), Single { request: *r, seek });
        let Some(grids) = &mut m.grids else { return };
        let Some(columns) = time.span(r.issue_ns, r.last_ns()) else { return };
        if r.class == Class::Flush {
            grids.flushes.add(columns, (0, 0));
        } else {
            m.axis.spans(r.sector, r.end_sector(), |rows| grids.map[layer(r.class)].add(columns, rows));
        }
        if let Some(complete_ns) = r.complete_ns
            && let Some(column) = heat_time.index(complete_ns)
        {
            let row = heat_row(complete_ns.saturating_sub(r.issue_ns));
            grids.heat[layer(r.class)].add((column, column), (row, row));
        }
    })?;
    let finished = meters.into_iter().map(|(dev, m)| {
        let (map, flushes, heat) = match m.grids {
            Some(g) => (Some(g.map.map(|g| g.counts())), Some(g.flushes.counts()), Some(g.heat.map(|g| g.counts()))),
            None => (None, None, None),
        };
        let (peaks, singles) = (m.peaks.peaks(), m.singles.finish());
        DeviceView { dev, axis: m.axis, map, flushes, heat, series: m.series, peaks, singles }
    });
    Ok(finished.collect())
}
