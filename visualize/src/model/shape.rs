//! What panels hand to the painter: fields, lines and charts. A panel counts; how its counts become ink is the same for all.

use ioreel_analyze::meters::bins::Bins;

use crate::{
    canvas::{
        raster::{Blend, Counts},
        theme::Ink,
    },
    model::sheet::Sheet,
    model::value_axis::Rows,
};

/// One panel's content for one reel.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Density over time and a second axis.
    Field(Field),
    /// Values over time.
    Lines(Lines),
    /// Plots with an x axis of their own, side by side.
    Charts(Vec<Chart>),
    /// Rows of the table.
    Table(Vec<Sheet>),
}

/// Density over time and rows.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// The vertical axis; all layers have as many rows.
    pub(crate) rows: Rows,
    /// In the order of drawing.
    pub(crate) layers: Vec<Layer>,
    /// What is seen where layers meet.
    pub(crate) blend: Blend,
    /// Values of the axis over time.
    pub(crate) curves: Vec<Line>,
    /// The bins of the curves.
    pub(crate) bins: Bins,
    /// One row above the plot, for what has no place on the axis.
    pub(crate) strip: Option<Layer>,
    /// Arrows from row to row: time and row from the top of both ends.
    pub(crate) flows: Vec<[(i64, f64); 2]>,
    /// What must be said of it.
    pub(crate) note: String,
}

/// Counts with a meaning.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Its colour.
    pub(crate) ink: Ink,
    /// In the legend; a layer without one is not in it.
    pub(crate) label: String,
    /// Events per cell.
    pub(crate) counts: Counts,
    /// One tint however many there are.
    pub(crate) flat: bool,
}

/// Values per bin of time.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The bins.
    pub(crate) bins: Bins,
    /// In the order of drawing.
    pub(crate) lines: Vec<Line>,
    /// Each line lies on the one before.
    pub(crate) stacked: bool,
    /// The axis' top, where it does not follow from the values.
    pub(crate) top: Option<f64>,
    /// What must be said of it.
    pub(crate) note: String,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its colour.
    pub(crate) ink: Ink,
    /// In the legend.
    pub(crate) label: String,
    /// One value per bin; not a number where there is none.
    pub(crate) values: Vec<f64>,
    /// Its width, px.
    pub(crate) width: f64,
    /// How opaque the area under it is tinted, if it is.
    pub(crate) fill: Option<f64>,
    /// Its dashes, empty for a solid one.
    pub(crate) dash: &'static str,
}

impl Line {
    /// A line with a tinted area under it.
    pub(crate) fn area(ink: Ink, label: &str, values: Vec<f64>) -> Self {
        Self { fill: Some(0.16), ..Self::plain(ink, label, values) }
    }

    /// A line alone.
    pub(crate) fn plain(ink: Ink, label: &str, values: Vec<f64>) -> Self {
        Self { ink, label: label.into(), values, width: 1.3, fill: None, dash: "" }
    }

    /// Counts per bin as rates per second, over `unit`.
    pub(crate) fn rates(bins: Bins, counts: &[u64], unit: f64) -> Vec<f64> {
        counts.iter().enumerate().map(|(i, n)| bins.rate(i, *n) / unit).collect()
    }
}

/// A plot of values over slots of equal width.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// What it shows.
    pub(crate) title: String,
    /// What the slots are.
    pub(crate) slots: Slots,
    /// What the slots are.
    pub(crate) x: String,
    /// The axis' top, where it does not follow from the values.
    pub(crate) top: Option<f64>,
    /// Bars lie on each other; curves go from slot to slot.
    pub(crate) series: Vec<Line>,
    /// Drawn as bars rather than as a stepped curve.
    pub(crate) bars: bool,
    /// What must be said of it.
    pub(crate) note: String,
}

/// What the slots of a chart are, and so how those of several reels lie on each other.
#[derive(Clone, Debug)]
pub(crate) enum Slots {
    /// The same in all reels: labels under the x axis, with their place in slots.
    Same(Vec<(f64, String)>),
    /// Numbers that follow each other, from `first` on. A number's label, where it has one, stands at this share of its slot.
    Numbered { first: i64, label: fn(i64) -> Option<String>, at: f64 },
    /// Things, those with most first, each with the name that `label` gives it; so many of them are shown.
    Named { keys: Vec<i64>, label: fn(i64) -> String, most: usize },
}

/// Slots of named things at least.
const LEAST_NAMED: usize = 6;

impl Chart {
    /// Slots that there are.
    pub(crate) fn count(&self) -> usize {
        self.series.iter().map(|s| s.values.len()).max().unwrap_or(0)
    }

    /// This with as many slots as are shown.
    pub(crate) fn cut(mut self) -> Self {
        if let Slots::Named { keys, most, .. } = &mut self.slots {
            keys.truncate(*most);
            // Few are not drawn as wide as many.
            let shown = keys.len().max(LEAST_NAMED);
            self.series.iter_mut().for_each(|s| s.values.resize(shown, 0.0));
        }
        self
    }

    /// Labels under the x axis, with their place in slots.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        match &self.slots {
            Slots::Same(ticks) => ticks.clone(),
            Slots::Numbered { first, label, at } => {
                let labels = (0..self.count()).map(|i| (i as f64 + at, label(first.saturating_add(i as i64))));
                labels.filter_map(|(at, label)| Some((at, label?))).collect()
            }
            Slots::Named { keys, label, .. } => {
                keys.iter().enumerate().map(|(i, key)| (i as f64 + 0.5, label(*key))).collect()
            }
        }
    }
}
