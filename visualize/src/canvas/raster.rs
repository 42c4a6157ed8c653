//! Counts how many events touch each cell of a grid.
//!
//! An event covers a rectangle of cells. It is stored as four corners of a difference grid, and running sums at the end
//! give the counts. The work per event is constant, memory depends only on the number of cells, and the result equals
//! counting each rectangle cell by cell.

use resvg::tiny_skia::{Pixmap, PremultipliedColorU8};

use crate::{
    PlotError, Result,
    canvas::{
        color::{Ramp, Rgb},
        theme::Theme,
    },
};

/// A range of values divided into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    /// Value at the start of cell 0.
    pub from: i64,
    /// Value at the end of the last cell, greater than `from`.
    pub to: i64,
    /// Number of cells, at least 1.
    pub count: u32,
}

impl Cells {
    /// The cell of `v`. Cell `i` is `[from + i·(to-from)/count, from + (i+1)·(to-from)/count)` in exact fractions; the
    /// last one includes `to`. `None` outside `[from, to]`.
    pub fn index(&self, v: i64) -> Option<u32> {
        if v < self.from || v > self.to {
            return None;
        }
        let (offset, span) = (v.abs_diff(self.from), self.to.abs_diff(self.from).max(1));
        // With 4096 pixels, 64 bits are enough for 52 days in ns. Beyond, slower 128-bit division is used.
        let i = match offset.checked_mul(u64::from(self.count)) {
            Some(product) => product / span,
            None => (u128::from(offset) * u128::from(self.count) / u128::from(span)) as u64,
        };
        Some((i as u32).min(self.count - 1))
    }

    /// First and last cell that `[first, last]` covers, if any.
    pub fn span(&self, first: i64, last: i64) -> Option<(u32, u32)> {
        let (first, last) = (first.max(self.from), last.max(first).min(self.to));
        if first > last {
            return None;
        }
        Some((self.index(first)?, self.index(last)?))
    }
}

/// Counts of events per cell.
#[derive(Clone, Debug)]
pub struct Grid {
    width: usize,
    height: usize,
    /// Differences, with one more column and row than there are cells.
    corners: Vec<i32>,
}

impl Grid {
    /// An empty grid of `width` by `height` cells.
    pub fn new(width: u32, height: u32) -> Self {
        let (width, height) = (width.max(1) as usize, height.max(1) as usize);
        Self { width, height, corners: vec![0; (width + 1) * (height + 1)] }
    }

    /// Adds an event that covers columns `x.0..=x.1` and rows `y.0..=y.1`. Cells outside are a bug of the caller, and
    /// ignored.
    pub fn add(&mut self, x: (u32, u32), y: (u32, u32)) {
        let ((x0, x1), (y0, y1)) = ((x.0 as usize, x.1 as usize), (y.0 as usize, y.1 as usize));
        if x0 > x1 || y0 > y1 || x1 >= self.width || y1 >= self.height {
            return;
        }
        let stride = self.width + 1;
        let mut at = |x: usize, y: usize, n: i32| {
            let corner = &mut self.corners[y * stride + x];
            *corner = corner.wrapping_add(n);
        };
        at(x0, y0, 1);
        at(x1 + 1, y0, -1);
        at(x0, y1 + 1, -1);
        at(x1 + 1, y1 + 1, 1);
    }

    /// The counts, row by row.
    pub fn counts(&self) -> Counts {
        let stride = self.width + 1;
        let mut above = vec![0i32; self.width];
        let mut cells = Vec::with_capacity(self.width * self.height);
        for y in 0..self.height {
            let mut run = 0i32;
            for (x, sum) in above.iter_mut().enumerate() {
                run = run.wrapping_add(self.corners[y * stride + x]);
                *sum = sum.wrapping_add(run);
                cells.push(u32::try_from(*sum).unwrap_or(0));
            }
        }
        Counts { width: self.width, height: self.height, cells }
    }
}

/// Finished counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Events per cell, row by row.
    pub cells: Vec<u32>,
}

impl Counts {
    /// The rows `from..to`.
    pub fn rows(&self, from: usize, to: usize) -> Self {
        let to = to.min(self.height);
        let from = from.min(to);
        Self { width: self.width, height: to - from, cells: self.cells[from * self.width..to * self.width].to_vec() }
    }

    /// Adds counts of the same size.
    pub fn add(&mut self, other: &Self) {
        self.cells.iter_mut().zip(&other.cells).for_each(|(a, b)| *a = a.saturating_add(*b));
    }

    /// The maximum count.
    pub fn max(&self) -> u32 {
        self.cells.iter().copied().max().unwrap_or(0)
    }
}

/// Position of a count between one event (0) and the maximum of all cells (1), on a logarithmic scale.
pub fn log_density(count: u32, max: u32) -> f64 {
    if count <= 1 || max <= 1 { 0.0 } else { f64::from(count).ln() / f64::from(max).ln() }
}

/// How layers are combined where several have events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blend {
    /// All, like inks printed over each other.
    Overprint,
    /// The one with most events; the first if equal.
    Most,
    /// The last one with any.
    Last,
}

/// A layer of a raster: counts, their colours, and the count at the end of the ramp.
pub type Inked<'a> = (&'a Counts, Ramp, u32);

/// The colour of every cell. `None` without events.
pub fn colors(layers: &[Inked<'_>], blend: Blend, theme: &Theme) -> Vec<Option<Rgb>> {
    let cells = layers.first().map_or(0, |(c, ..)| c.cells.len());
    let mut colors: Vec<Option<Rgb>> = vec![None; cells];
    let mut most = vec![0u32; if blend == Blend::Most { cells } else { 0 }];
    for (counts, ramp, max) in layers {
        // Many cells share few counts. Computing a logarithm for each cell would take longer than reading the reel.
        let mut known: Vec<Option<Rgb>> = vec![None; 256];
        for (i, (color, count)) in colors.iter_mut().zip(&counts.cells).enumerate().filter(|(_, (_, n))| **n > 0) {
            let paint = || ramp.at(log_density(*count, *max));
            let ink = match known.get_mut(*count as usize) {
                Some(ink) => *ink.get_or_insert_with(paint),
                None => paint(),
            };
            match blend {
                Blend::Overprint => *color = Some(color.map_or(ink, |under| theme.overprint(under, ink))),
                Blend::Last => *color = Some(ink),
                Blend::Most if *count > most[i] => (*color, most[i]) = (Some(ink), *count),
                Blend::Most => {}
            }
        }
    }
    colors
}

/// A PNG of layers. Row 0 is at the top. Cells without events are transparent.
pub fn png(layers: &[Inked<'_>], blend: Blend, theme: &Theme) -> Result<Vec<u8>> {
    let failed = |why: &str| PlotError::Render { why: why.into() };
    let Some((first, ..)) = layers.first() else { return Err(failed("no layers")) };
    let mut map =
        Pixmap::new(first.width as u32, first.height as u32).ok_or_else(|| failed("the raster has no size"))?;
    for (pixel, color) in map.pixels_mut().iter_mut().zip(&colors(layers, blend, theme)) {
        if let Some([r, g, b]) = *color {
            *pixel = PremultipliedColorU8::from_rgba(r, g, b, 255).ok_or_else(|| failed("a colour is out of range"))?;
        }
    }
    crate::canvas::render::encode(&map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_equal_counting_out() {
        let (w, h) = (23u32, 17u32);
        let mut grid = Grid::new(w, h);
        let mut want = vec![0u32; (w * h) as usize];
        let mut state = 7u64;
        let mut next = |below: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) as u32) % below
        };
        for _ in 0..5000 {
            let (a, b, c, d) = (next(w), next(w), next(h), next(h));
            let (x, y) = ((a.min(b), a.max(b)), (c.min(d), c.max(d)));
            grid.add(x, y);
            for yy in y.0..=y.1 {
                for xx in x.0..=x.1 {
                    want[(yy * w + xx) as usize] += 1;
                }
            }
        }
        grid.add((0, w), (0, 0));
        grid.add((5, 4), (0, 0));
        assert_eq!(grid.counts().cells, want);
    }

    #[test]
    fn cells_are_exact_at_any_magnitude() {
        for base in [0, 1 << 40, 1 << 52, 1 << 61] {
            let c = Cells { from: base, to: base + 1000, count: 10 };
            let at = [-1, 0, 99, 100, 999, 1000, 1001].map(|v| c.index(base + v));
            assert_eq!(at, [None, Some(0), Some(0), Some(1), Some(9), Some(9), None]);
        }
        // More cells than values, and a span that needs 128-bit multiplication.
        let few = Cells { from: 0, to: 3, count: 12 };
        assert_eq!([0, 1, 2, 3].map(|v| few.index(v)), [Some(0), Some(4), Some(8), Some(11)]);
        let wide = Cells { from: 0, to: 1 << 62, count: 1 << 12 };
        assert_eq!(wide.index((1 << 62) - 1), Some(4095));
        assert_eq!(wide.index(1 << 61), Some(2048));
    }

    #[test]
    fn spans_are_cut_to_the_range() {
        let c = Cells { from: 100, to: 200, count: 10 };
        assert_eq!(c.span(0, 99), None);
        assert_eq!(c.span(201, 300), None);
        assert_eq!(c.span(0, 1000), Some((0, 9)));
        assert_eq!(c.span(150, 150), Some((5, 5)));
        assert_eq!(c.span(150, 20), Some((5, 5)));
    }
}
