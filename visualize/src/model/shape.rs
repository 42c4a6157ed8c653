//! Output of panels: fields, lines and charts. A panel counts; drawing is the same for all panels.

use ioreel_analyze::meters::bins::Bins;

use crate::{
    canvas::{
        raster::{Blend, Counts},
        theme::Ink,
    },
    model::sheet::Sheet,
    model::value_axis::Rows,
};

/// Content of a panel for one reel.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Density over time and a second axis.
    Field(Field),
    /// Values over time.
    Lines(Lines),
    /// Plots with their own x axes, side by side.
    Charts(Vec<Chart>),
    /// Rows of the table.
    Table(Vec<Sheet>),
}

/// Density over time and rows.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// The vertical axis. All layers have this number of rows.
    pub(crate) rows: Rows,
    /// Layers in drawing order.
    pub(crate) layers: Vec<Layer>,
    /// How layers are combined.
    pub(crate) blend: Blend,
    /// Values on the axis over time.
    pub(crate) curves: Vec<Line>,
    /// The bins of the curves.
    pub(crate) bins: Bins,
    /// A row above the plot, for events without a position on the axis.
    pub(crate) strip: Option<Layer>,
    /// Arrows between rows: time, and row from the top, of both ends.
    pub(crate) flows: Vec<[(i64, f64); 2]>,
    /// A note.
    pub(crate) note: String,
}

/// Counts of one meaning.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Its colour.
    pub(crate) ink: Ink,
    /// Label in the legend. Empty: not in the legend.
    pub(crate) label: String,
    /// Events per cell.
    pub(crate) counts: Counts,
    /// Whether the colour is the same for any count.
    pub(crate) flat: bool,
}

/// Values per bin of time.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The bins.
    pub(crate) bins: Bins,
    /// Lines in drawing order.
    pub(crate) lines: Vec<Line>,
    /// Whether each line is stacked on the previous one.
    pub(crate) stacked: bool,
    /// Top of the axis, if not derived from the values.
    pub(crate) top: Option<f64>,
    /// A note.
    pub(crate) note: String,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its colour.
    pub(crate) ink: Ink,
    /// Label in the legend.
    pub(crate) label: String,
    /// One value per bin. NaN if there is none.
    pub(crate) values: Vec<f64>,
    /// Its width, px.
    pub(crate) width: f64,
    /// Opacity of the area below it, if it is filled.
    pub(crate) fill: Option<f64>,
    /// Its dashes. Empty: solid.
    pub(crate) dash: &'static str,
}

impl Line {
    /// A line with a filled area.
    pub(crate) fn area(ink: Ink, label: &str, values: Vec<f64>) -> Self {
        Self { fill: Some(0.16), ..Self::plain(ink, label, values) }
    }

    /// Whether it is a rate with numbers of its own, not an outline or a share.
    pub(crate) fn is_rate(&self) -> bool {
        self.width > 0.0 && self.fill.is_some() && !self.label.is_empty()
    }

    /// A line without a filled area.
    pub(crate) fn plain(ink: Ink, label: &str, values: Vec<f64>) -> Self {
        Self { ink, label: label.into(), values, width: 1.3, fill: None, dash: "" }
    }

    /// Converts counts per bin to rates per second, divided by `unit`.
    pub(crate) fn rates(bins: Bins, counts: &[u64], unit: f64) -> Vec<f64> {
        counts.iter().enumerate().map(|(i, n)| bins.rate(i, *n) / unit).collect()
    }
}

/// A plot of values over slots of equal width.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Its title.
    pub(crate) title: String,
    /// Meaning of the slots.
    pub(crate) slots: Slots,
    /// Label of the x axis.
    pub(crate) x: String,
    /// Top of the axis, if not derived from the values.
    pub(crate) top: Option<f64>,
    /// Bars are stacked; curves continue from slot to slot.
    pub(crate) series: Vec<Line>,
    /// Whether it is drawn as bars instead of a stepped curve.
    pub(crate) bars: bool,
    /// A note.
    pub(crate) note: String,
}

/// Meaning of a chart's slots. Determines how slots of several reels are combined.
#[derive(Clone, Debug)]
pub(crate) enum Slots {
    /// The same slots in all reels. Labels below the x axis, with their position in slots.
    Same(Vec<(f64, String)>),
    /// Consecutive numbers from `first`. `label` returns the label of a number, if any; it stands at this share of its
    /// slot.
    Numbered { first: i64, label: fn(i64) -> Option<String>, at: f64 },
    /// Items, largest first, with the name from `label`. Only this many are shown.
    Named { keys: Vec<i64>, label: fn(i64) -> String, most: usize },
}

/// Minimum number of slots of named items.
const LEAST_NAMED: usize = 6;

impl Chart {
    /// Number of slots.
    pub(crate) fn count(&self) -> usize {
        self.series.iter().map(|s| s.values.len()).max().unwrap_or(0)
    }

    /// Limits the slots to those shown.
    pub(crate) fn cut(mut self) -> Self {
        if let Slots::Named { keys, most, .. } = &mut self.slots {
            keys.truncate(*most);
            // A few items are not drawn as wide as many.
            let shown = keys.len().max(LEAST_NAMED);
            self.series.iter_mut().for_each(|s| s.values.resize(shown, 0.0));
        }
        self
    }

    /// Labels below the x axis, with their position in slots.
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
