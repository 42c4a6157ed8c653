//! The offset axis: the used part of a device, without its large unused gaps.
//!
//! A file system of a terabyte that holds a gigabyte writes in a few places far apart; on a plain
//! axis that is three lines and white. Gaps that are large against what is used are cut out, the rest
//! is drawn to scale, in bands from low addresses (bottom) to high (top).

use ioreel_analyze::events::requests::SECTOR_BYTES;

use crate::canvas::{
    raster::Cells,
    scale::{bytes, decimals, nice_step},
};

/// Maximum number of bands.
const MAX_BANDS: usize = 8;
/// A gap is cut if it is larger than this share of the axis.
const GAP_SHARE: f64 = 0.08;
/// Height of a gap between bands, px.
const GAP_PX: u32 = 9;
/// Minimum height of a band, px: one sector is visible, and a label fits.
const LEAST_PX: u32 = 14;
/// Margin at both ends, as share of the used range.
const MARGIN: f64 = 0.02;
/// Minimum distance between ticks, px.
const TICK_PX: f64 = 42.0;
/// Minimum distance between labels, px.
const LABEL_PX: f64 = 13.0;
/// Maximum number of decimals of an absolute label. Finer ticks are labelled relative to the first tick of their band.
const MOST_DECIMALS: usize = 3;

/// A range of sectors with one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Sectors, with rows counted from the bottom of the band.
    pub sectors: Cells,
    /// First row from the bottom of the axis.
    pub row: u32,
}

/// The axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAxis {
    /// Bands from low to high.
    pub bands: Vec<Band>,
    /// Total number of rows.
    pub rows: u32,
    /// Rows between two bands.
    pub gap_rows: u32,
    /// Pixels of a row.
    pub row_px: u32,
    /// What lies in each band. Empty if it is not known.
    pub labels: Vec<String>,
}

impl OffsetAxis {
    /// An axis of `rows` rows of `row_px` pixels for sorted, disjoint ranges of sectors.
    pub fn new(used: &[(i64, i64)], rows: u32, row_px: u32) -> Self {
        let row_px = row_px.max(1);
        let gap_rows = GAP_PX.div_ceil(row_px);
        let (low, high) = match (used.first(), used.last()) {
            (Some((low, _)), Some((_, high))) => (*low, *high),
            _ => (0, 8),
        };
        let cuts = cuts(used, (high - low) as f64);
        let mut ranges = Vec::new();
        let mut start = low;
        for (from, to) in &cuts {
            ranges.push((start, *from));
            start = *to;
        }
        ranges.push((start, high));
        let total: f64 = ranges.iter().map(|(a, b)| (b - a) as f64).sum();
        let margin = ((total * MARGIN) as i64).max(4);
        if let Some(first) = ranges.first_mut() {
            first.0 = (first.0 - margin).max(0);
        }
        if let Some(last) = ranges.last_mut() {
            last.1 = last.1.saturating_add(margin);
        }
        let bands = bands(&ranges, &lengths(&ranges), rows, gap_rows, LEAST_PX.div_ceil(row_px));
        Self { bands, rows, gap_rows, row_px, labels: Vec::new() }
    }

    /// Divides the axis again: half by the length of the bands, half by what they hold of `counts`. So a small journal with
    /// most of the requests is not a line, and a large file keeps its scale.
    pub(crate) fn share_by(&mut self, counts: &[u64]) {
        let ranges = self.ranges();
        let lengths = lengths(&ranges);
        let (length, count) = (lengths.iter().sum::<f64>(), counts.iter().map(|n| *n as f64).sum::<f64>());
        if counts.len() == ranges.len() && count > 0.0 {
            let weights: Vec<f64> =
                lengths.iter().zip(counts).map(|(l, n)| l / length.max(1.0) + *n as f64 / count).collect();
            self.bands = bands(&ranges, &weights, self.rows, self.gap_rows, LEAST_PX.div_ceil(self.row_px));
        }
    }

    fn ranges(&self) -> Vec<(i64, i64)> {
        self.bands.iter().map(|b| (b.sectors.from, b.sectors.to)).collect()
    }

    /// The same bands on `rows` rows of one pixel, with gaps of one row.
    pub(crate) fn scaled(&self, rows: u32) -> Self {
        let ranges = self.ranges();
        let bands = bands(&ranges, &lengths(&ranges), rows, 1, 1);
        Self { bands, rows, gap_rows: 1, row_px: 1, labels: Vec::new() }
    }

    /// Calls `each` with first and last row, counted from the top, for every visible part of `[start, end)`.
    pub fn spans(&self, start: i64, end: i64, mut each: impl FnMut((u32, u32))) {
        for band in &self.bands {
            let c = &band.sectors;
            if start >= c.to || end <= c.from {
                continue;
            }
            if let Some((low, high)) = c.span(start, (end - 1).max(start)) {
                let top = self.rows - 1 - band.row;
                each((top - high, top - low));
            }
        }
    }

    /// Ticks from low to high: distance from the top in pixels, and label in the axis' unit.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let (unit_name, unit) = self.unit();
        let scale = SECTOR_BYTES as f64 / unit;
        let Some(tallest) = self.bands.iter().max_by_key(|b| b.sectors.count) else { return Vec::new() };
        let px = |rows: u32| f64::from(rows * self.row_px);
        let per_px = (tallest.sectors.to - tallest.sectors.from) as f64 * scale / px(tallest.sectors.count);
        let step = nice_step(per_px * TICK_PX);
        // If the step is too fine for the axis' unit, labels are relative, in a smaller unit.
        let relative = decimals(step) > MOST_DECIMALS;
        let step = if relative { nice_bytes(per_px * TICK_PX * unit) / unit } else { step };
        // A band needs at least one tick. Others are shown if there is space.
        let (mut must, mut may) = (Vec::new(), Vec::new());
        for band in &self.bands {
            let (from, to) = (band.sectors.from as f64 * scale, band.sectors.to as f64 * scale);
            let bottom = px(self.rows - band.row);
            let at = |v: f64| bottom - (v - from) / (to - from) * px(band.sectors.count);
            let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
            if first > last {
                // Without a round number in the band, label its middle.
                must.push((at((from + to) / 2.0), format!("{from:.*}", decimals(step).clamp(1, MOST_DECIMALS))));
                continue;
            }
            for (i, n) in (first..=last).take(MOST_TICKS).enumerate() {
                let v = n as f64 * step;
                let label = match (relative, i) {
                    (false, _) => format!("{v:.*}", decimals(step)),
                    (true, 0) => format!("{v:.*} {unit_name}", MOST_DECIMALS - 1),
                    (true, _) => format!("+{}", bytes((i as f64 * step * unit).round() as u64)),
                };
                let tick = (at(v), label);
                if i == 0 { must.push(tick) } else { may.push(tick) }
            }
        }
        let mut out: Vec<(f64, String)> = Vec::new();
        for tick in must.into_iter().chain(may) {
            if out.iter().all(|other| (other.0 - tick.0).abs() >= LABEL_PX) {
                out.push(tick);
            }
        }
        out.sort_by(|a, b| b.0.total_cmp(&a.0));
        out
    }

    /// Unit of the axis, from its highest address: name and size in bytes.
    pub fn unit(&self) -> (&'static str, f64) {
        let high = self.bands.last().map_or(0, |b| b.sectors.to) as f64 * SECTOR_BYTES as f64;
        match high {
            h if h >= 4.0 * 1024f64.powi(4) => ("TiB", 1024f64.powi(4)),
            h if h >= 4.0 * 1024f64.powi(3) => ("GiB", 1024f64.powi(3)),
            h if h >= 2.0 * 1024f64.powi(2) => ("MiB", 1024f64.powi(2)),
            _ => ("KiB", 1024.0),
        }
    }
}

/// Maximum number of ticks per band.
const MOST_TICKS: usize = 64;

/// The smallest round number of bytes (in KiB, MiB, …) that is at least `least`.
fn nice_bytes(least: f64) -> f64 {
    let unit = (0..6).rev().map(|power| 1024f64.powi(power)).find(|unit| *unit <= least).unwrap_or(1.0);
    nice_step(least / unit) * unit
}

/// Gaps to cut, from low to high.
fn cuts(used: &[(i64, i64)], span: f64) -> Vec<(i64, i64)> {
    let mut gaps: Vec<(i64, i64)> = used.windows(2).map(|w| (w[0].1, w[1].0)).collect();
    gaps.sort_by_key(|(from, to)| (std::cmp::Reverse(to - from), *from));
    let mut drawn = span;
    let mut cuts: Vec<(i64, i64)> = Vec::new();
    for (from, to) in gaps.into_iter().take(MAX_BANDS - 1) {
        let gap = (to - from) as f64;
        if gap <= GAP_SHARE * drawn {
            break;
        }
        drawn -= gap;
        cuts.push((from, to));
    }
    cuts.sort_unstable();
    cuts
}

fn lengths(ranges: &[(i64, i64)]) -> Vec<f64> {
    ranges.iter().map(|(from, to)| (to - from) as f64).collect()
}

/// Bands for the ranges, from low to high, with rows by their weights.
fn bands(ranges: &[(i64, i64)], weights: &[f64], rows: u32, gap_rows: u32, least_rows: u32) -> Vec<Band> {
    let mut row = 0;
    let place = |((from, to), count): (&(i64, i64), u32)| {
        let band = Band { sectors: Cells { from: *from, to: *to, count }, row };
        row += count + gap_rows;
        band
    };
    ranges.iter().zip(heights(weights, rows, gap_rows, least_rows)).map(place).collect()
}

/// Rows per band, proportional but at least the minimum. The total including gaps is exactly `rows`.
fn heights(weights: &[f64], rows: u32, gap_rows: u32, least_rows: u32) -> Vec<u32> {
    let gaps = gap_rows * (weights.len() as u32 - 1);
    let mut room = rows.saturating_sub(gaps).max(weights.len() as u32);
    let mut heights = vec![0u32; weights.len()];
    // Small bands first: the others share what remains.
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| weights[*a].total_cmp(&weights[*b]).then(a.cmp(b)));
    let mut left: f64 = weights.iter().sum();
    for (done, i) in order.iter().enumerate() {
        let others = (weights.len() - done - 1) as u32;
        let share = (f64::from(room) * weights[*i] / left.max(f64::MIN_POSITIVE)).round() as u32;
        let most = room.saturating_sub(others).max(1);
        heights[*i] = if others == 0 { room } else { share.max(least_rows).min(most) };
        room = room.saturating_sub(heights[*i]);
        left -= weights[*i];
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contiguous_range_is_one_band_with_margins() {
        let a = OffsetAxis::new(&[(1_000_000, 2_000_000)], 400, 1);
        assert_eq!(a.bands.len(), 1);
        assert_eq!(a.bands[0].sectors, Cells { from: 980_000, to: 2_020_000, count: 400 });
    }

    #[test]
    fn large_gaps_are_cut_and_small_ones_kept() {
        let g = 1 << 21;
        let a = OffsetAxis::new(&[(0, g), (g + 1000, 2 * g), (500 * g, 501 * g), (1 << 40, (1 << 40) + 8)], 400, 1);
        let bands: Vec<(i64, i64)> = a.bands.iter().map(|b| (b.sectors.from, b.sectors.to)).collect();
        assert_eq!(bands.len(), 3);
        assert_eq!(bands[0], (0, 2 * g));
        assert_eq!(bands[1], (500 * g, 501 * g));
        assert_eq!(bands[2].0, 1 << 40);
        let rows: u32 = a.bands.iter().map(|b| b.sectors.count).sum();
        assert_eq!(rows + 2 * GAP_PX, 400);
        assert!(a.bands[2].sectors.count >= LEAST_PX);
    }

    #[test]
    fn a_small_band_with_most_requests_is_large() {
        let g = 1 << 21;
        let mut a = OffsetAxis::new(&[(0, g), (500 * g, 500 * g + 2048)], 400, 1);
        let before = a.clone();
        assert!(a.bands[1].sectors.count < 20, "{a:?}");
        a.share_by(&[10, 990]);
        assert!((180..=220).contains(&a.bands[1].sectors.count), "{a:?}");
        let rows: u32 = a.bands.iter().map(|b| b.sectors.count).sum();
        assert_eq!((rows + GAP_PX, a.bands[1].row), (400, a.bands[0].sectors.count + GAP_PX));
        let mut same = before.clone();
        same.share_by(&[0, 0]);
        assert_eq!(same, before);
    }

    #[test]
    fn extents_map_to_rows_from_the_top() {
        let a = OffsetAxis {
            bands: vec![Band { sectors: Cells { from: 0, to: 100, count: 10 }, row: 0 }],
            rows: 10,
            gap_rows: 9,
            row_px: 1,
            labels: Vec::new(),
        };
        let spans = |s, e| {
            let mut out = Vec::new();
            a.spans(s, e, |y| out.push(y));
            out
        };
        assert_eq!(spans(0, 10), [(9, 9)]);
        assert_eq!(spans(0, 11), [(8, 9)]);
        assert_eq!(spans(95, 1000), [(0, 0)]);
        assert_eq!(spans(100, 110), []);
    }

    #[test]
    fn ticks_are_inside_and_apart_for_any_range() {
        for used in
            [vec![], vec![(0, 1)], vec![(5, 1 << 41)], vec![(0, 8), (1 << 20, 1 << 22), (1 << 41, (1 << 41) + 9)]]
        {
            let a = OffsetAxis::new(&used, 150, 2);
            let ticks = a.ticks();
            assert!(!ticks.is_empty() && ticks.iter().all(|t| (-0.01..=300.01).contains(&t.0)), "{used:?} {ticks:?}");
            assert!(ticks.windows(2).all(|w| w[0].0 - w[1].0 >= LABEL_PX), "{ticks:?}");
        }
    }
}
