//! Vertical axes of fields: rows of values, and ticks.

use crate::{
    canvas::scale::{duration, nice_step},
    model::offset_axis::OffsetAxis,
};

/// Rows per octave. Eight resolve 9 %, as fine as the height of a picture with nine decades allows.
pub(crate) const PARTS: usize = 8;
/// Number of rows for all signed 64-bit values.
pub(crate) const OCTAVE_ROWS: usize = 61 * PARTS;
/// Minimum number of octaves shown.
const LEAST_OCTAVES: usize = 4;

/// The row of a value: exact below 8, then eight rows per octave.
pub(crate) fn octave_row(v: u64) -> usize {
    let v = v.min(i64::MAX as u64);
    if v < PARTS as u64 {
        return v as usize;
    }
    let log = v.ilog2() as usize;
    (log - 2) * PARTS + ((v >> (log - 3)) & (PARTS as u64 - 1)) as usize
}

/// The smallest value in a row.
pub(crate) fn octave_least(row: usize) -> u64 {
    match row {
        0..PARTS => row as u64,
        _ => ((PARTS + row % PARTS) as u64) << (row / PARTS - 1),
    }
}

/// Position of a value in rows, with a fraction.
fn octave_place(v: f64) -> f64 {
    let row = octave_row(v.max(0.0) as u64);
    let (least, next) = (octave_least(row) as f64, octave_least(row + 1) as f64);
    row as f64 + ((v - least) / (next - least)).clamp(0.0, 1.0)
}

/// A vertical axis. Rows count from the top.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    /// Device addresses in bands.
    Offsets(OffsetAxis),
    /// Durations by octaves: rows `low..high` of [`octave_row`], increasing upwards.
    Octaves { low: usize, high: usize },
    /// Time within a period, increasing upwards.
    Phase { period_ns: i64, count: u32 },
    /// Named lanes, from the top, with rows of this many pixels.
    Lanes { lanes: Vec<Lane>, row_px: u32 },
}

/// Rows with a common name.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Identity across reels: lanes with the same key are placed together.
    pub(crate) key: String,
    /// Its name.
    pub(crate) label: String,
    /// Its first row, from the top.
    pub(crate) row: u32,
    /// Number of rows.
    pub(crate) rows: u32,
}

impl Rows {
    /// All rows of durations; [`crate::draw::fields`] limits them to those in use.
    pub(crate) fn durations() -> Self {
        Self::Octaves { low: 0, high: OCTAVE_ROWS }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::Offsets(axis) => axis.rows,
            Self::Octaves { low, high } => (high - low) as u32,
            Self::Phase { count, .. } => *count,
            Self::Lanes { lanes, .. } => lanes.last().map_or(1, |l| l.row + l.rows),
        }
    }

    /// Height of a row, px, for a panel about `height` high.
    pub(crate) fn row_px(&self, height: u32) -> u32 {
        match self {
            Self::Offsets(axis) => axis.row_px,
            Self::Lanes { row_px, .. } => *row_px,
            Self::Octaves { .. } | Self::Phase { .. } => (height / self.count().max(1)).max(1),
        }
    }

    /// Whole octaves around the used rows `first..=last`.
    pub(crate) fn around(first: usize, last: usize) -> Self {
        let low = first / PARTS * PARTS;
        let high = (last / PARTS + 1) * PARTS;
        let high = high.max(low + LEAST_OCTAVES * PARTS).min(OCTAVE_ROWS);
        Self::Octaves { low: low.min(high - PARTS), high }
    }

    /// Distance of a value from the top of the axis, in rows.
    pub(crate) fn above(&self, v: f64) -> f64 {
        match self {
            Self::Octaves { low, high } => (*high as f64 - octave_place(v)).clamp(0.0, (high - low) as f64),
            Self::Offsets(_) | Self::Phase { .. } | Self::Lanes { .. } => 0.0,
        }
    }

    /// Ticks: distance from the top in pixels, and label.
    pub(crate) fn ticks(&self, row_px: u32) -> Vec<(f64, String)> {
        let px = f64::from(row_px);
        match self {
            Self::Offsets(axis) => axis.ticks(),
            Self::Octaves { low, high } => (0..19)
                .map(|power| 10i64.pow(power))
                .filter(|v| (*low..=*high).contains(&octave_row(*v as u64)))
                .map(|v| (self.above(v as f64) * px, duration_label(v)))
                .collect(),
            Self::Phase { period_ns, count } => {
                let step = (nice_step(*period_ns as f64 / 4.0) as i64).max(1);
                (0..=period_ns / step)
                    .map(|i| {
                        let share = (i * step) as f64 / *period_ns as f64;
                        ((1.0 - share) * f64::from(*count) * px, duration(i * step))
                    })
                    .collect()
            }
            Self::Lanes { .. } => Vec::new(),
        }
    }
}

fn duration_label(ns: i64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_octaves_hold_their_values_without_gaps() {
        for row in 0..OCTAVE_ROWS - 1 {
            let (least, next) = (octave_least(row), octave_least(row + 1));
            assert!(least < next, "{row}");
            assert_eq!((octave_row(least), octave_row(next - 1)), (row, row));
        }
        assert_eq!(octave_row(u64::MAX), OCTAVE_ROWS - 1);
    }

    #[test]
    fn ticks_of_durations_stand_where_their_values_are() {
        let rows = Rows::around(octave_row(50_000), octave_row(3_000_000));
        let ticks = rows.ticks(2);
        let labels: Vec<&str> = ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(labels, ["100 µs", "1 ms"]);
        let Rows::Octaves { high, .. } = rows else { unreachable!() };
        let row = high as f64 - ticks[1].0 / 2.0;
        assert!((row - octave_place(1e6)).abs() < 1e-9);
    }

    #[test]
    fn a_phase_has_its_ends_at_the_edges() {
        let rows = Rows::Phase { period_ns: 1_000_000_000, count: 100 };
        let ticks = rows.ticks(2);
        assert_eq!((ticks.first().map(|t| t.0), ticks.last().map(|t| t.0)), (Some(200.0), Some(0.0)));
    }
}
