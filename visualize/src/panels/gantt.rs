//! P14, the gantt of system calls: a lane for each of the busiest threads with its current call, and arrows from calls
//! to the bios they caused, in a lane of the device.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use ioreel_analyze::{
    events::{
        bios::Bio,
        calls::{Call, each_call},
    },
    meters::bins::Bins,
    summary::series::CallSeries,
};
use ioreel_traces::rows::Task;

use super::{
    calls::INKS,
    panel::{About, Needs, Panel, Setup, Spec},
};
use crate::{
    Result,
    canvas::{
        font,
        raster::{Blend, Cells},
        theme::Ink,
    },
    model::{
        palette::{ColorBy, Grids, Palette},
        shape::{Field, Shape},
        value_axis::{Lane, Rows},
    },
};

pub(super) const SPEC: Spec = Spec {
    name: "gantt",
    title: "Calls by thread",
    unit: "current call of each thread; arrows to the bios a call caused",
    about: About::Calls,
    height: 300,
    make,
};

/// Maximum number of lanes with a readable name.
const LANES: usize = 16;
const LANE_PX: u32 = 16;
const GAP_PX: u32 = 3;
/// Maximum number of arrows.
const MOST_FLOWS: usize = 300;
/// Maximum number of calls remembered for their bios.
const MOST_CALLS: usize = 1_000_000;

fn make(s: &Setup<'_>) -> Result<Box<dyn Panel>> {
    let mut time_of: HashMap<i64, u64> = HashMap::new();
    each_call(s.reel, |c| {
        let c = &s.squeeze.call(c);
        if !c.by_tool && s.time.span(c.start_ns, c.end_ns()).is_some() {
            let sum = time_of.entry(c.task_id).or_default();
            // Calls without duration count by their number.
            *sum = sum.saturating_add(c.dur_ns.and_then(|d| u64::try_from(d).ok()).unwrap_or(0) + 1);
        }
    })?;
    let mut ranked: Vec<(Reverse<u64>, i64)> = time_of.into_iter().map(|(task, n)| (Reverse(n), task)).collect();
    ranked.sort_unstable();
    let rest = ranked.len().saturating_sub(LANES);
    ranked.truncate(LANES);
    let mut tasks: Vec<i64> = ranked.into_iter().map(|(_, task)| task).collect();
    tasks.sort_unstable();
    // Threads of different reels are matched by name.
    let mut names: HashMap<i64, (String, String)> = HashMap::new();
    for row in s.reel.rows::<Task>() {
        let row = row?;
        if tasks.contains(&row.task_id) {
            let comm = font::showable(&row.comm);
            let label = format!("{comm} {}", row.tid);
            names.insert(row.task_id, (comm, label));
        }
    }
    let cell_px = s.offsets.row_px;
    let (rows, gap) = (LANE_PX.div_ceil(cell_px), GAP_PX.div_ceil(cell_px));
    let place = |i: usize| i as u32 * (rows + gap);
    let mut lanes: Vec<Lane> = tasks
        .iter()
        .enumerate()
        .map(|(i, task)| {
            let (key, label) = names.remove(task).unwrap_or_default();
            Lane { key, label, row: place(i), rows }
        })
        .collect();
    if s.survey.device.is_some() {
        let label = "bios in flight".to_owned();
        lanes.push(Lane { key: label.clone(), label, row: place(tasks.len()), rows });
    }
    let axis = Rows::Lanes { lanes, row_px: cell_px };
    // By operation, a call has one of five colours here, because syncs and metadata take time too.
    let kinds = s.palette.by == ColorBy::Op;
    let inks: Vec<(Ink, String)> = if kinds {
        INKS.into_iter().zip(CallSeries::ROWS).map(|(ink, name)| (ink, name.to_owned())).collect()
    } else {
        s.palette.layers(["other", "read", "write"])
    };
    Ok(Box::new(Gantt {
        time: s.time,
        bins: s.bins,
        palette: Arc::clone(&s.palette),
        kinds,
        grids: Grids::new(s.time.count, axis.count(), inks.len()),
        inks,
        rows,
        places: tasks.iter().enumerate().map(|(i, task)| (*task, place(i))).collect(),
        dev: s.survey.device.as_ref().map(|d| (d.dev, place(tasks.len()))),
        axis,
        calls: HashMap::new(),
        flows: Vec::new(),
        one_in: 1,
        caused: 0,
        rest,
    }))
}

struct Gantt {
    time: Cells,
    bins: Bins,
    palette: Arc<Palette>,
    kinds: bool,
    inks: Vec<(Ink, String)>,
    axis: Rows,
    /// Height of a lane in rows.
    rows: u32,
    /// First row of each thread's lane.
    places: HashMap<i64, u32>,
    /// The device and its lane.
    dev: Option<(i64, u32)>,
    grids: Grids,
    /// Start and lane of calls by id, for arrows.
    calls: HashMap<i64, (i64, u32)>,
    flows: Vec<[(i64, f64); 2]>,
    /// One in this many arrows is drawn; a power of two.
    one_in: u64,
    /// Number of bios caused by a shown call.
    caused: u64,
    /// Number of threads without a lane.
    rest: usize,
}

impl Panel for Gantt {
    fn needs(&self) -> Needs {
        Needs::Both
    }

    fn call(&mut self, c: &Call<'_>) {
        let Some(row) = self.places.get(&c.task_id).copied() else { return };
        let Some(columns) = self.time.span(c.start_ns, c.end_ns()) else { return };
        let layer = if self.kinds { CallSeries::row(c.kind) } else { self.palette.of_call(c) };
        self.grids.add(layer, columns, (row, row + self.rows - 1));
        if self.calls.len() < MOST_CALLS {
            self.calls.insert(c.op_id, (c.start_ns, row));
        }
    }

    fn bio(&mut self, b: &Bio<'_>) {
        let Some((_, row)) = self.dev.filter(|(dev, _)| *dev == b.dev) else { return };
        let Some(columns) = self.time.span(b.queue_ns, b.last_ns()) else { return };
        let layer = match (self.kinds, b.class.name()) {
            (true, "read") => 0,
            (true, "write") => 1,
            (true, "flush") => 2,
            (true, _) => 4,
            (false, _) => self.palette.of_bio(b),
        };
        self.grids.add(layer, columns, (row, row + self.rows - 1));
        if let Some((start_ns, from)) = b.cause.and_then(|c| self.calls.get(&c)) {
            if self.caused.is_multiple_of(self.one_in) {
                let bottom = f64::from(from + self.rows);
                self.flows.push([(*start_ns, bottom), (b.queue_ns, f64::from(row))]);
            }
            self.caused += 1;
            if self.flows.len() > MOST_FLOWS {
                // Drops every other arrow, so that the rest covers the whole time.
                self.one_in *= 2;
                let mut place = 0;
                self.flows.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let mut note = if self.rest > 0 { format!("{} more threads are not shown", self.rest) } else { String::new() };
        if self.caused > self.flows.len() as u64 {
            let also = if note.is_empty() { "" } else { "; " };
            note.push_str(&format!("{also}{} of {} arrows", self.flows.len(), self.caused));
        }
        Shape::Field(Field {
            layers: self.grids.layers(self.inks),
            // Of several kinds in a cell, the most frequent is shown.
            blend: if self.kinds { Blend::Most } else { self.palette.blend() },
            rows: self.axis,
            curves: Vec::new(),
            bins: self.bins,
            strip: None,
            flows: self.flows,
            note,
        })
    }
}
