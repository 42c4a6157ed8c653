//! P5, latency: number of events by duration, eight rows per octave, with percentiles over time. Four variants: from
//! issue, from queueing, between both, and of system calls. Each event counts at its end (`Q2D`: at issue).

use std::sync::Arc;

use ioreel_analyze::{
    events::{calls::Call, requests::Request},
    meters::bins::Bins,
};

use super::panel::{About, FIELD_HEIGHT, Issue, Needs, Panel, Setup, Spec};
use crate::{
    Result,
    canvas::{raster::Cells, theme::Ink},
    model::{
        palette::{Grids, Palette},
        shape::{Field, Line, Shape},
        value_axis::{OCTAVE_ROWS, Rows, octave_least, octave_row},
    },
};

pub(super) const D2C: Spec = Spec {
    name: "latency",
    title: "Latency",
    unit: "D2C: issue to completion, at completion",
    about: About::Device,
    height: FIELD_HEIGHT,
    make: |s| make(s, Span::D2c),
};
pub(super) const Q2C: Spec = Spec {
    make: |s| make(s, Span::Q2c),
    ..named("latency-q2c", "Latency with queueing", "Q2C: queueing to completion, at completion")
};
pub(super) const Q2D: Spec = Spec {
    make: |s| make(s, Span::Q2d),
    ..named("latency-q2d", "Time in the queue", "Q2D: queueing to issue, at issue")
};
pub(super) const CALLS: Spec = Spec {
    about: About::Calls,
    make: |s| make(s, Span::Call),
    ..named("latency-calls", "Duration of system calls", "at their return")
};

const fn named(name: &'static str, title: &'static str, unit: &'static str) -> Spec {
    Spec { name, title, unit, ..D2C }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Span {
    D2c,
    Q2c,
    Q2d,
    Call,
}

impl Span {
    /// Time and duration.
    fn of(self, r: &Request) -> Option<(i64, i64)> {
        match self {
            Self::D2c => r.complete_ns.map(|c| (c, c.saturating_sub(r.issue_ns))),
            Self::Q2c => r.complete_ns.and_then(|c| Some((c, c.saturating_sub(r.queue_ns?)))),
            Self::Q2d => r.queue_ns.map(|q| (r.issue_ns, r.issue_ns.saturating_sub(q))),
            Self::Call => None,
        }
    }
}

/// Bins of rates per bin of percentiles, which need more than a few events.
const COARSER: usize = 4;

fn make(s: &Setup<'_>, span: Span) -> Result<Box<dyn Panel>> {
    let words = if span == Span::Call {
        ["all other calls", "read", "write, copy"]
    } else {
        ["flush, discard, other", "read", "write"]
    };
    let (from, to) = (s.bins.edges_ns(0).0, s.bins.edges_ns(s.bins.count() - 1).1);
    let bins = Bins::new(from, to, s.bins.width_ns().saturating_mul(COARSER as i64));
    let layers = s.palette.layers(words).len();
    Ok(Box::new(Latency {
        span,
        time: s.time,
        grids: Grids::new(s.time.count, OCTAVE_ROWS as u32, layers),
        palette: Arc::clone(&s.palette),
        words,
        bins,
        steps: vec![0; bins.count() * OCTAVE_ROWS],
        most: vec![-1; bins.count()],
    }))
}

struct Latency {
    span: Span,
    time: Cells,
    palette: Arc<Palette>,
    words: [&'static str; 3],
    grids: Grids,
    bins: Bins,
    /// Number of events by bin and row of [`octave_row`].
    steps: Vec<u32>,
    /// The exact maximum of each bin.
    most: Vec<i64>,
}

impl Latency {
    fn add(&mut self, layer: usize, t_ns: i64, dur_ns: i64) {
        // The clocks of an import may disagree.
        let dur_ns = dur_ns.max(0);
        let step = octave_row(dur_ns as u64);
        if let Some(column) = self.time.index(t_ns) {
            let row = (OCTAVE_ROWS - 1 - step) as u32;
            self.grids.add(layer, (column, column), (row, row));
        }
        if let Some(bin) = self.bins.index(t_ns) {
            let count = &mut self.steps[bin * OCTAVE_ROWS + step];
            *count = count.saturating_add(1);
            self.most[bin] = self.most[bin].max(dur_ns);
        }
    }

    /// The quantile `q` of a bin, with a resolution of an eighth of an octave.
    fn quantile(&self, bin: usize, q: f64) -> f64 {
        let steps = &self.steps[bin * OCTAVE_ROWS..(bin + 1) * OCTAVE_ROWS];
        let all: u64 = steps.iter().map(|n| u64::from(*n)).sum();
        let mut left = (q * all as f64).ceil().max(1.0) as u64;
        for (step, n) in steps.iter().enumerate().filter(|(_, n)| **n > 0) {
            left = left.saturating_sub(u64::from(*n));
            if left == 0 {
                return ((octave_least(step + 1) - 1) as f64).min(self.most[bin] as f64);
            }
        }
        f64::NAN
    }
}

impl Panel for Latency {
    fn needs(&self) -> Needs {
        if self.span == Span::Call { Needs::Calls } else { Needs::Requests }
    }

    fn cost(&self) -> u32 {
        2
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request) {
            if let Some((t_ns, dur_ns)) = self.span.of(r) {
                let layer = self.palette.of_request(r);
                self.add(layer, t_ns, dur_ns);
            }
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        if let Some(dur_ns) = call.dur_ns {
            let layer = self.palette.of_call(call);
            self.add(layer, call.end_ns(), dur_ns);
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let quantiles = |q: f64| (0..self.bins.count()).map(|bin| self.quantile(bin, q)).collect();
        let most = self.most.iter().map(|m| if *m < 0 { f64::NAN } else { *m as f64 }).collect();
        // Five lines on a coloured ground: told apart by colour and by dash.
        let curve = |label: &str, values, ink, width, dash| Line { width, dash, ..Line::plain(ink, label, values) };
        let curves = vec![
            curve("max", most, Ink::Grey, 1.2, "1 2"),
            curve("p99.9", quantiles(0.999), Ink::Flush, 1.2, "2 2"),
            curve("p99", quantiles(0.99), Ink::Flush, 1.4, "6 3"),
            curve("p95", quantiles(0.95), Ink::Text, 1.0, "5 2"),
            curve("p50", quantiles(0.5), Ink::Text, 1.8, ""),
        ];
        Shape::Field(Field {
            rows: Rows::durations(),
            blend: self.palette.blend(),
            layers: self.grids.layers(self.palette.layers(self.words)),
            curves,
            bins: self.bins,
            strip: None,
            flows: Vec::new(),
            note: String::new(),
        })
    }
}
