//! Second reading of a reel: grids and series of the picture's size.

use ioreel_analyze::{
    bins::Bins,
    calls::{Kind, each_call},
    requests::{Class, requests},
    seeks::{Seek, SeekCounter},
    series::{CallSeries, DeviceSeries},
};
use ioreel_traces::Reel;

use crate::{
    Result,
    bands::OffsetAxis,
    raster::{Cells, Counts, Grid},
    survey::Choice,
};

/// A device's pictures.
#[derive(Clone, Debug)]
pub struct DeviceLayers {
    /// Requests per pixel: reads.
    pub reads: Counts,
    /// Writes.
    pub writes: Counts,
    /// Discards, zeroing and the like.
    pub others: Counts,
    /// Flushes, which have no address: one row.
    pub flushes: Counts,
    /// Rates.
    pub series: DeviceSeries,
}

/// Reads the device's requests: each covers `[sector, sector + len)` over `[issue, complete]`; one whose
/// end was not seen, its moment of issue.
pub fn device(
    reel: &Reel,
    choice: &Choice,
    dev: i64,
    time: Cells,
    offsets: &OffsetAxis,
    bins: Bins,
) -> Result<DeviceLayers> {
    let grid = || Grid::new(time.count, offsets.rows);
    let (mut reads, mut writes, mut others) = (grid(), grid(), grid());
    let mut flushes = Grid::new(time.count, 1);
    let mut series = DeviceSeries::new(bins);
    let mut seeks = SeekCounter::default();
    for request in requests(reel) {
        let r = request?;
        if r.dev != dev {
            continue;
        }
        let columns = time.span(r.issue_ns, r.last_ns());
        let layer = match r.class {
            Class::Read => &mut reads,
            Class::Write => &mut writes,
            _ => &mut others,
        };
        if let Some(columns) = columns {
            if r.class == Class::Flush {
                flushes.add(columns, (0, 0));
            } else {
                offsets.spans(r.sector, r.end_sector(), |rows| layer.add(columns, rows));
            }
        }
        // As in the survey: what was issued outside the window is not counted.
        let inside = choice.holds(r.issue_ns);
        let seek = if inside && r.class.is_data() { seeks.push(r.sector, r.end_sector()) } else { Seek::default() };
        series.push(&r, seek);
    }
    Ok(DeviceLayers {
        reads: reads.counts(),
        writes: writes.counts(),
        others: others.counts(),
        flushes: flushes.counts(),
        series,
    })
}

/// The operations' pictures.
#[derive(Clone, Debug)]
pub struct CallLayers {
    /// Calls per pixel of time and duration: reads.
    pub reads: Counts,
    /// Writes and copies.
    pub writes: Counts,
    /// All other calls.
    pub others: Counts,
    /// Rates.
    pub series: CallSeries,
}

/// Durations on a logarithmic axis: cells from `least_ns` (bottom) to `most_ns`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyAxis {
    /// Lower end, at least 1.
    pub least_ns: f64,
    /// Upper end.
    pub most_ns: f64,
    /// Cells.
    pub rows: u32,
}

impl LatencyAxis {
    /// An axis of whole decades around what was seen.
    pub fn new(least_ns: u64, most_ns: u64, rows: u32) -> Self {
        let decade = |ns: u64| (ns.max(1) as f64).log10();
        let least = decade(least_ns).floor();
        let most = decade(most_ns).ceil().max(least + 1.0);
        Self { least_ns: 10f64.powf(least), most_ns: 10f64.powf(most), rows }
    }

    /// Distance from the top, 0 to 1.
    pub fn from_top(&self, ns: f64) -> f64 {
        let share = (ns.max(self.least_ns) / self.least_ns).ln() / (self.most_ns / self.least_ns).ln();
        (1.0 - share).clamp(0.0, 1.0)
    }

    /// Row from the top.
    pub fn row(&self, ns: i64) -> u32 {
        ((self.from_top(ns as f64) * f64::from(self.rows)) as u32).min(self.rows - 1)
    }
}

/// Reads the operations: each is one point, at the moment of its return.
pub fn calls(reel: &Reel, time: Cells, latency: LatencyAxis, bins: Bins) -> Result<CallLayers> {
    let grid = || Grid::new(time.count, latency.rows);
    let (mut reads, mut writes, mut others) = (grid(), grid(), grid());
    let mut series = CallSeries::new(bins);
    each_call(reel, |call| {
        if call.by_tool {
            return;
        }
        series.push(call);
        let (Some(column), Some(dur_ns)) = (time.index(call.end_ns()), call.dur_ns) else { return };
        let layer = match call.kind {
            Kind::Read => &mut reads,
            Kind::Write | Kind::Copy => &mut writes,
            Kind::Sync | Kind::Metadata | Kind::Other => &mut others,
        };
        let row = latency.row(dur_ns);
        layer.add((column, column), (row, row));
    })?;
    Ok(CallLayers { reads: reads.counts(), writes: writes.counts(), others: others.counts(), series })
}
