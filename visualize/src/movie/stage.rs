//! The static background of a movie, and the drawing of each frame.

use ioreel_analyze::{meters::bins::Bins, summary::series::DeviceSeries};

use super::INKS;
use crate::{
    Result,
    canvas::{
        color::Rgb,
        font, render,
        scale::{ValueScale, bytes, duration},
        svg::{Anchor, Area, Style, Svg, number},
    },
    model::{offset_axis::OffsetAxis, survey::Survey},
};

/// Frame size, px.
pub(super) const WIDTH: u32 = 1280;
pub(super) const HEIGHT: u32 = 720;
/// Cells of the map, and size of each in pixels.
pub(super) const COLUMNS: u32 = 120;
pub(super) const ROWS: u32 = 44;
const CELL: u32 = 10;
/// Bins of the curves: one per two pixels.
pub(super) const STRIP_BINS: u32 = COLUMNS * CELL / 2;

const LEFT: u32 = (WIDTH - COLUMNS * CELL) / 2;
const MAP_TOP: u32 = 64;
const STRIP_HEIGHT: f64 = 64.0;
const THROUGHPUT_TOP: f64 = 532.0;
const SEEKS_TOP: f64 = 630.0;

const NIGHT: &str = "#10141a";
const INK: &str = "#e8ecf1";
const FAINT: &str = "#8b95a1";
const READ: &str = "#56b4e9";
const WRITE: &str = "#e69f00";
const SEEK: &str = "#8fd3bd";
/// Colours of a cell that was never touched, and of a gap between ranges.
const UNTOUCHED: Rgb = [26, 32, 40];
const GAP: Rgb = [16, 20, 26];
/// Colours of reads, writes and others. A touched cell keeps some of its colour.
const LIGHTS: [Rgb; INKS] = [[86, 180, 233], [230, 159, 0], [0, 190, 140]];
const TOUCHED: f32 = 0.28;

/// State of a movie.
pub(super) struct Stage {
    /// The static background.
    still: Vec<u8>,
    frame: Vec<u8>,
    /// Brightness of each cell, by colour.
    glow: [Vec<f32>; INKS],
    /// Whether each cell was ever touched.
    touched: [Vec<bool>; INKS],
    gaps: Vec<bool>,
    from_ns: i64,
    span_ns: i64,
    elapsed_ns: i64,
}

impl Stage {
    pub(super) fn new(title: &str, survey: &Survey, places: &OffsetAxis, series: &DeviceSeries) -> Result<Self> {
        let cells = places.rows as usize;
        let mut gaps = vec![true; cells];
        for band in &places.bands {
            let first = band.row as usize;
            gaps[first..(first + band.sectors.count as usize).min(cells)].fill(false);
        }
        let still = render::rgb(&still(title, survey, places, series).document(WIDTH, HEIGHT, false), WIDTH, HEIGHT)?;
        Ok(Self {
            frame: still.clone(),
            still,
            glow: std::array::from_fn(|_| vec![0.0; cells]),
            touched: std::array::from_fn(|_| vec![false; cells]),
            gaps,
            from_ns: survey.from_ns,
            span_ns: survey.to_ns - survey.from_ns,
            elapsed_ns: survey.elapsed_ns,
        })
    }

    /// Dims all cells.
    pub(super) fn fade(&mut self, keep: f32) {
        self.glow.iter_mut().flatten().for_each(|g| *g *= keep);
    }

    /// Lights cells by their counts.
    pub(super) fn light(&mut self, ink: usize, counts: &[u8]) {
        let places = self.glow[ink].iter_mut().zip(&mut self.touched[ink]).zip(counts);
        for ((glow, touched), n) in places.filter(|(_, n)| **n > 0) {
            *touched = true;
            // One event is visible; a hundred give full brightness.
            let bright = 0.55 + 0.45 * (f32::from(*n).ln() / 100f32.ln()).min(1.0);
            *glow = glow.max(bright);
        }
    }

    /// Draws the frame at time `t_ns`, RGB row by row.
    pub(super) fn draw(&mut self, t_ns: i64) -> Result<&[u8]> {
        self.frame.copy_from_slice(&self.still);
        for i in 0..self.gaps.len() {
            let color = if self.gaps[i] { GAP } else { self.color(i) };
            let (x, y) = (LEFT + i as u32 % COLUMNS * CELL, MAP_TOP + i as u32 / COLUMNS * CELL);
            self.fill(x, y, CELL - 1, CELL - 1, color);
        }
        let share = (t_ns - self.from_ns) as f64 / self.span_ns.max(1) as f64;
        let x = LEFT + (share * f64::from(COLUMNS * CELL - 1)) as u32;
        for top in [THROUGHPUT_TOP, SEEKS_TOP] {
            self.fill(x, top as u32, 1, STRIP_HEIGHT as u32, [255, 255, 255]);
        }
        self.clock(t_ns)?;
        Ok(&self.frame)
    }

    fn color(&self, i: usize) -> Rgb {
        let mut light = UNTOUCHED.map(f32::from);
        for (ink, color) in LIGHTS.iter().enumerate() {
            let base = if self.touched[ink][i] { TOUCHED } else { 0.0 };
            let bright = self.glow[ink][i].max(base);
            for (l, c) in light.iter_mut().zip(color) {
                // Colours add, up to white.
                *l = (*l + f32::from(*c) * bright).min(255.0);
            }
        }
        light.map(|l| l as u8)
    }

    fn fill(&mut self, x: u32, y: u32, w: u32, h: u32, color: Rgb) {
        for row in y..(y + h).min(HEIGHT) {
            let at = ((row * WIDTH + x) * 3) as usize;
            let end = at + ((w.min(WIDTH - x)) * 3) as usize;
            for pixel in self.frame[at..end].chunks_exact_mut(3) {
                pixel.copy_from_slice(&color);
            }
        }
    }

    /// Draws the time in the upper right corner.
    fn clock(&mut self, t_ns: i64) -> Result<()> {
        const W: u32 = 300;
        const H: u32 = 30;
        let phase = if self.elapsed_ns > 0 && t_ns > self.elapsed_ns { "settling  " } else { "" };
        let mut svg = Svg::default();
        svg.rect(Area { x: 0.0, y: 0.0, w: f64::from(W), h: f64::from(H) }, NIGHT, 1.0);
        let style = Style { size: 20.0, bold: true, fill: INK };
        svg.text((f64::from(W), 22.0), &format!("{phase}{}", clock(t_ns, self.span_ns)), style, Anchor::End);
        let pixels = render::rgb(&svg.document(W, H, false), W, H)?;
        let left = LEFT + COLUMNS * CELL - W;
        for (row, line) in pixels.chunks_exact(W as usize * 3).enumerate() {
            let at = (((row as u32 + 14) * WIDTH + left) * 3) as usize;
            self.frame[at..at + line.len()].copy_from_slice(line);
        }
        Ok(())
    }
}

/// A time with enough decimals to change visibly. Its width is constant.
fn clock(t_ns: i64, span_ns: i64) -> String {
    let (unit, ns, decimals) = match span_ns {
        ..2_000_000 => ("µs", 1e3, 1),
        2_000_000..2_000_000_000 => ("ms", 1e6, 1),
        2_000_000_000..100_000_000_000 => ("s", 1e9, 2),
        _ => ("s", 1e9, 0),
    };
    format!("{:.*} {unit}", decimals, t_ns as f64 / ns)
}

fn still(title: &str, survey: &Survey, places: &OffsetAxis, series: &DeviceSeries) -> Svg {
    let mut svg = Svg::default();
    let left = f64::from(LEFT);
    let wide = f64::from(COLUMNS * CELL);
    svg.rect(Area { x: 0.0, y: 0.0, w: f64::from(WIDTH), h: f64::from(HEIGHT) }, NIGHT, 1.0);
    let heading = Style { size: 20.0, bold: true, fill: INK };
    let small = Style { size: 13.0, bold: false, fill: FAINT };
    svg.text((left, 36.0), &font::fit(title, heading.size, true, wide - 330.0), heading, Anchor::Start);
    if let Some(d) = &survey.device {
        let (first, last) = (places.bands.first(), places.bands.last());
        let at = |sectors: i64| bytes(sectors.max(0) as u64 * 512);
        let range = first.zip(last).map(|(a, b)| format!("  ·  {} to {}", at(a.sectors.from), at(b.sectors.to)));
        let cuts = if places.bands.len() > 1 { ", unused ranges left out" } else { "" };
        let text = format!("{}{}{cuts}  ·  row by row from the lowest address", d.label, range.unwrap_or_default());
        svg.text((left, 56.0), &font::fit(&text, small.size, false, wide - 330.0), small, Anchor::Start);
    }
    let mut x = left + wide;
    for (label, color) in [("other", "#00be8c"), ("write", WRITE), ("read", READ)] {
        x -= font::width(label, small.size, false);
        svg.text((x, 56.0), label, small, Anchor::Start);
        svg.rect(Area { x: x - 17.0, y: 45.0, w: 12.0, h: 12.0 }, color, 1.0);
        x -= 34.0;
    }
    let rates = |values: &[u64], unit: f64| -> Vec<f64> {
        values.iter().enumerate().map(|(i, n)| series.bins.rate(i, *n) / unit).collect()
    };
    const MIB: f64 = 1024.0 * 1024.0;
    let (read, write) = (rates(&series.read_bytes, MIB), rates(&series.write_bytes, MIB));
    strip(&mut svg, THROUGHPUT_TOP, "MiB/s", series.bins, &[(read, READ), (write, WRITE)]);
    strip(&mut svg, SEEKS_TOP, "far seeks per second", series.bins, &[(rates(&series.seeks_sw64k, 1.0), SEEK)]);
    let lost = if survey.lost > 0 { format!("  ·  {} EVENTS LOST", survey.lost) } else { String::new() };
    let end = format!("{}{lost}", duration(survey.to_ns - survey.from_ns));
    svg.text((left + wide, 712.0), &end, small, Anchor::End);
    svg.text((left, 712.0), &duration(survey.from_ns), small, Anchor::Start);
    svg
}

/// Draws a curve of rates and its maximum.
fn strip(svg: &mut Svg, top: f64, unit: &str, bins: Bins, lines: &[(Vec<f64>, &str)]) {
    let area = Area { x: f64::from(LEFT), y: top, w: f64::from(COLUMNS * CELL), h: STRIP_HEIGHT };
    svg.rect(area, "#161c24", 1.0);
    let most = lines.iter().flat_map(|(v, _)| v).copied().fold(0.0, f64::max);
    let scale = ValueScale::new(most, 1);
    let count = bins.count().max(1) as f64;
    for (values, color) in lines {
        let mut d = format!("M{} {}", number(area.x), number(area.bottom()));
        for (i, v) in values.iter().enumerate() {
            let y = area.bottom() - v / scale.top * area.h;
            let [x0, x1] = [i, i + 1].map(|i| number(area.x + i as f64 / count * area.w));
            d.push_str(&format!("L{x0} {y}H{x1}", y = number(y)));
        }
        d.push_str(&format!("V{}Z", number(area.bottom())));
        svg.path(&d, color, 0.45, color, 1.0, "");
    }
    let label = format!("{unit}, up to {}", scale.label(scale.top));
    svg.text((area.x, top - 6.0), &label, Style { size: 13.0, bold: false, fill: FAINT }, Anchor::Start);
}
