//! P13, the phase map (Gregg's sub-second offset heat map): issue times within each second, or within 5 s in long
//! recordings; in short ones, within each of some twenty parts. Periodic activity such as flushers and commits appears
//! as a horizontal line.

use std::sync::Arc;

use ioreel_analyze::meters::bins::{Bins, nice_width_ns};

use super::panel::{About, FIELD_HEIGHT, Issue, Needs, Panel, Spec};
use crate::{
    canvas::{raster::Cells, scale::duration},
    model::{
        palette::{Grids, Palette},
        shape::{Field, Shape},
        value_axis::Rows,
    },
};

/// Number of rows of a period.
const ROWS: u32 = 68;
/// Longest recording with a period of 1 s. Longer ones use 5 s, the interval of ext4's commits and the kernel's
/// flusher.
const SECONDS_UP_TO_NS: i64 = 60_000_000_000;
/// Shortest recording with a period of 1 s. Shorter ones would have too few periods.
const SECONDS_FROM_NS: i64 = 5_000_000_000;
/// Maximum number of periods in shorter recordings.
const MOST_PARTS: usize = 20;

/// The period for a window of this length.
fn period_ns(span_ns: i64) -> i64 {
    match span_ns {
        ..SECONDS_FROM_NS => nice_width_ns(span_ns, MOST_PARTS, 1),
        SECONDS_FROM_NS..=SECONDS_UP_TO_NS => 1_000_000_000,
        _ => 5_000_000_000,
    }
}

pub(super) const SPEC: Spec = Spec {
    name: "phase",
    title: "Phase",
    unit: "time of issue within its period",
    about: About::Device,
    height: FIELD_HEIGHT,
    make: |s| {
        let period_ns = period_ns(s.time.to - s.time.from);
        let layers = s.palette.layers(WORDS).len();
        Ok(Box::new(Phase {
            time: s.time,
            bins: s.bins,
            period_ns,
            palette: Arc::clone(&s.palette),
            grids: Grids::new(s.time.count, ROWS, layers),
        }))
    },
};

const WORDS: [&str; 3] = ["flush, discard, other", "read", "write"];

struct Phase {
    time: Cells,
    bins: Bins,
    period_ns: i64,
    palette: Arc<Palette>,
    grids: Grids,
}

impl Panel for Phase {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request) {
            if self.time.index(r.issue_ns).is_none() {
                continue;
            }
            let within = r.issue_ns.rem_euclid(self.period_ns);
            let start = r.issue_ns - within;
            // A period is as wide as its duration. A cell belongs to the period in which it starts.
            let Some(columns) = self.time.span(start, start + self.period_ns - 1) else { continue };
            let row = (i128::from(within) * i128::from(ROWS) / i128::from(self.period_ns)) as u32;
            let layer = self.palette.of_request(r);
            self.grids.add(layer, columns, (ROWS - 1 - row, ROWS - 1 - row));
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        Shape::Field(Field {
            rows: Rows::Phase { period_ns: self.period_ns, count: ROWS },
            layers: self.grids.layers(self.palette.layers(WORDS)),
            blend: self.palette.blend(),
            curves: Vec::new(),
            bins: self.bins,
            strip: None,
            flows: Vec::new(),
            note: format!("each {}", duration(self.period_ns)),
        })
    }
}
