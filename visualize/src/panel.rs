//! Parts that panels are made of: frames, grids, stepped lines, legends, shades.

use std::fmt::Write;

use ioreel_analyze::bins::Bins;

use crate::{
    color::{self, Ramp},
    font,
    raster::Cells,
    scale::{ValueScale, time_ticks},
    svg::{Anchor, Area, Style, Svg, number},
};

/// Size of tick labels and legends, px.
pub const SMALL: f64 = 12.0;
/// Text of axes and legends.
pub const TICK: Style = Style { size: SMALL, bold: false, fill: color::FAINT };
/// Names of panels.
pub const HEADING: Style = Style { size: 13.5, bold: true, fill: color::INK };
/// Pixels between two labels of the time axis, about.
const TIME_TICK_PX: f64 = 75.0;

/// One entry of a legend.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What the eye looks for.
    pub key: Key,
    /// What it means.
    pub label: String,
}

/// The sign in a legend.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// A line of this colour.
    Line(&'static str),
    /// A ramp from few to many.
    Ramp(Ramp),
    /// Words alone.
    None,
}

/// A line in a panel: a rate per bin.
#[derive(Clone, Debug)]
pub struct Line {
    /// One value per bin.
    pub values: Vec<f64>,
    /// Its colour.
    pub color: &'static str,
    /// Its width, px.
    pub width: f64,
    /// How opaque the area under it is tinted, if it is.
    pub fill: Option<f64>,
}

/// Pixel of a time.
pub fn time_x(area: Area, time: Cells, t_ns: i64) -> f64 {
    area.x + (t_ns - time.from) as f64 / (time.to - time.from).max(1) as f64 * area.w
}

/// Time ticks that fit the area.
pub fn ticks_of(area: Area, time: Cells) -> Vec<(f64, String)> {
    let count = (area.w / TIME_TICK_PX).max(2.0) as u32;
    time_ticks(time.from, time.to, count).into_iter().map(|(t, label)| (time_x(area, time, t), label)).collect()
}

/// Background and vertical grid of a panel.
pub fn paper(svg: &mut Svg, area: Area, time: Cells) {
    svg.rect(area, color::PAPER, 1.0);
    for (x, _) in ticks_of(area, time) {
        svg.line((x.round() + 0.5, area.y), (x.round() + 0.5, area.bottom()), color::GRID, 1.0, "");
    }
}

/// Horizontal grid of rates, with labels on the left where `labels`.
pub fn value_grid(svg: &mut Svg, area: Area, scale: ValueScale, labels: bool) {
    for v in scale.ticks() {
        let y = area.bottom() - v / scale.top * area.h;
        if v > 0.0 && v < scale.top {
            svg.line((area.x, y.round() + 0.5), (area.right(), y.round() + 0.5), color::GRID, 1.0, "");
        }
        if labels {
            svg.text((area.x - 8.0, y + SMALL * 0.36), &scale.label(v), TICK, Anchor::End);
        }
    }
}

/// A line of steps, one per bin. Size is bounded by bins; neighbours of equal value are one step.
pub fn steps(svg: &mut Svg, area: Area, time: Cells, bins: Bins, top: f64, line: &Line) {
    if line.values.iter().all(|v| *v <= 0.0) {
        return;
    }
    let y = |v: f64| area.bottom() - (v / top).clamp(0.0, 1.0) * area.h;
    let mut d = String::new();
    let mut last = f64::NAN;
    for (i, v) in line.values.iter().enumerate() {
        let (left, _) = bins.edges_ns(i);
        if i == 0 {
            let _ = write!(d, "M{} {}", number(time_x(area, time, left)), number(y(*v)));
        } else if *v != last {
            let _ = write!(d, "H{}V{}", number(time_x(area, time, left)), number(y(*v)));
        }
        last = *v;
    }
    let end = bins.edges_ns(line.values.len().saturating_sub(1)).1;
    let _ = write!(d, "H{}", number(time_x(area, time, end)));
    if let Some(opacity) = line.fill {
        let base = number(area.bottom());
        let start = number(time_x(area, time, bins.edges_ns(0).0));
        svg.path(&format!("{d}V{base}H{start}Z"), line.color, opacity, "none", 0.0);
    }
    svg.path(&d, "none", 0.0, line.color, line.width);
}

/// Name of a panel with its unit, on the left, and its legend on the right.
pub fn heading(svg: &mut Svg, area: Area, name: &str, unit: &str, entries: &[Entry]) {
    let y = area.y - 9.0;
    svg.text((area.x, y), name, HEADING, Anchor::Start);
    let mut left = area.x + font::width(name, HEADING.size, true) + 8.0;
    svg.text((left, y), unit, TICK, Anchor::Start);
    left += font::width(unit, SMALL, false) + 24.0;
    let key_width = |k: Key| match k {
        Key::Line(_) => 22.0,
        Key::Ramp(_) => 46.0,
        Key::None => 0.0,
    };
    let wide: f64 =
        entries.iter().map(|e| key_width(e.key) + font::width(&e.label, SMALL, false) + 18.0).sum::<f64>() - 18.0;
    let mut x = (area.right() - wide).max(left);
    for e in entries {
        match e.key {
            Key::Line(c) => svg.line((x, y - 4.0), (x + 16.0, y - 4.0), c, 3.0, ""),
            Key::Ramp(ramp) => {
                let x = x.round();
                for i in 0..20 {
                    let cell = Area { x: x + f64::from(i) * 2.0, y: y - 10.0, w: 2.0, h: 11.0 };
                    svg.rect(cell, &color::hex(ramp.at(f64::from(i) / 19.0)), 1.0);
                }
            }
            Key::None => {}
        }
        x += key_width(e.key);
        svg.text((x, y), &e.label, TICK, Anchor::Start);
        x += font::width(&e.label, SMALL, false) + 18.0;
    }
}

/// A note in a plot's upper right corner, on paper of its own.
pub fn corner(svg: &mut Svg, area: Area, text: &str) {
    let wide = font::width(text, 11.0, false) + 6.0;
    svg.rect(Area { x: area.right() - wide - 2.0, y: area.y + 2.0, w: wide, h: 15.0 }, color::PAPER, 0.75);
    svg.text((area.right() - 5.0, area.y + 13.5), text, Style { size: 11.0, ..TICK }, Anchor::End);
}

/// What is said where a reel has nothing for a panel.
pub fn nothing(svg: &mut Svg, area: Area, why: &str) {
    svg.text((area.x + area.w / 2.0, area.y + area.h / 2.0 + 4.0), why, TICK, Anchor::Middle);
}

/// Time labels under the last panel.
pub fn time_axis(svg: &mut Svg, area: Area, time: Cells, caption: &str) {
    for (x, label) in ticks_of(area, time) {
        svg.line((x.round() + 0.5, area.bottom()), (x.round() + 0.5, area.bottom() + 5.0), color::FRAME, 1.0, "");
        // Labels at the edges stay inside, lest they meet those of the next column.
        let half = font::width(&label, SMALL, false) / 2.0;
        let x = x.clamp(area.x + half - 4.0, (area.right() - half).max(area.x + half - 4.0));
        svg.text((x, area.bottom() + 19.0), &label, TICK, Anchor::Middle);
    }
    svg.text((area.x + area.w / 2.0, area.bottom() + 37.0), caption, TICK, Anchor::Middle);
}
