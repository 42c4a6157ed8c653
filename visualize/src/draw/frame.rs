//! Parts of panels: frames, grids, stepped lines, legends, shades.

use std::fmt::Write;

use ioreel_analyze::meters::bins::Bins;

use crate::canvas::{
    color::{self, Ramp},
    font,
    raster::Cells,
    scale::ValueScale,
    svg::{Anchor, Area, Style, Svg, number},
    theme::Theme,
};
use crate::model::idle::Squeeze;

/// Size of tick labels and legends, px.
pub(crate) const SMALL: f64 = 12.0;
/// Approximate distance between labels of the time axis, px.
const TIME_TICK_PX: f64 = 75.0;

/// Maximum share of a heading's width for the unit. The legend gets the rest.
const MOST_UNIT: f64 = 0.62;

/// The theme and its text styles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen {
    pub(crate) theme: &'static Theme,
}

impl Pen {
    /// Style of axes and legends.
    pub(crate) fn tick(&self) -> Style {
        Style { size: SMALL, bold: false, fill: self.theme.faint }
    }

    /// Style of panel headings.
    pub(crate) fn heading(&self) -> Style {
        Style { size: 13.5, bold: true, fill: self.theme.ink }
    }
}

/// One entry of a legend.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The symbol.
    pub(crate) key: Key,
    /// Its meaning.
    pub(crate) label: String,
}

/// The symbol of a legend entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    /// A line: colour, width, dashes.
    Line(&'static str, f64, &'static str),
    /// A ramp from few to many.
    Ramp(Ramp),
}

/// Horizontal position of a time, px.
pub(crate) fn time_x(area: Area, time: Cells, t_ns: i64) -> f64 {
    area.x + (t_ns - time.from) as f64 / (time.to - time.from).max(1) as f64 * area.w
}

/// A time axis, and what is cut out of it.
pub(crate) type TimeAxis<'a> = (Cells, &'a Squeeze);

/// Time ticks for the area.
pub(crate) fn ticks_of(area: Area, (time, squeeze): TimeAxis<'_>) -> Vec<(f64, String)> {
    let count = (area.w / TIME_TICK_PX).max(2.0) as u32;
    squeeze.ticks(time, count).into_iter().map(|(t, label)| (time_x(area, time, t), label)).collect()
}

/// Background and vertical grid of a panel.
pub(crate) fn paper(svg: &mut Svg, pen: &Pen, area: Area, time: TimeAxis<'_>) {
    svg.rect(area, pen.theme.paper, 1.0);
    for (x, _) in ticks_of(area, time) {
        svg.line((x.round() + 0.5, area.y), (x.round() + 0.5, area.bottom()), pen.theme.grid, 1.0, "");
    }
}

/// Horizontal grid of values, with labels on the left if `labels`.
pub(crate) fn value_grid(svg: &mut Svg, pen: &Pen, area: Area, scale: ValueScale, labels: bool) {
    for v in scale.ticks() {
        let y = area.bottom() - (v - scale.bottom) / (scale.top - scale.bottom) * area.h;
        if v > scale.bottom && v < scale.top {
            let color = if v == 0.0 { pen.theme.frame } else { pen.theme.grid };
            svg.line((area.x, y.round() + 0.5), (area.right(), y.round() + 0.5), color, 1.0, "");
        }
        if labels {
            svg.text((area.x - 8.0, y + SMALL * 0.36), &scale.label(v), pen.tick(), Anchor::End);
        }
    }
}

/// Horizontal positions of the steps of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Places {
    /// Time bins.
    Time(Cells, Bins),
    /// Slots of equal width.
    Slots(usize),
}

impl Places {
    /// Left edge of position `i`, px; after the last position, its right edge.
    pub(crate) fn x(&self, area: Area, i: usize) -> f64 {
        match self {
            Self::Time(time, bins) if i < bins.count() => time_x(area, *time, bins.edges_ns(i).0),
            Self::Time(time, bins) => time_x(area, *time, bins.edges_ns(bins.count() - 1).1),
            Self::Slots(n) => area.x + area.w * i as f64 / (*n).max(1) as f64,
        }
    }
}

/// Style of a stepped line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stroke {
    pub(crate) color: &'static str,
    /// Its width, px. 0 draws no line.
    pub(crate) width: f64,
    pub(crate) dash: &'static str,
    /// Opacity of the area between line and base, if it is filled.
    pub(crate) fill: Option<f64>,
}

/// A stepped line, one step per position, at `y` px from the top of the picture. NaN leaves a gap. The filled area
/// extends to `base`. Equal neighbours are joined, and the output size depends on the number of positions.
pub(crate) fn steps(
    svg: &mut Svg,
    area: Area,
    places: Places,
    (y, base): (&[f64], &dyn Fn(usize) -> f64),
    stroke: Stroke,
) {
    let mut at = 0;
    while at < y.len() {
        if !y[at].is_finite() {
            at += 1;
            continue;
        }
        let end = at + y[at..].iter().take_while(|v| v.is_finite()).count();
        let mut d = String::new();
        let mut last = f64::NAN;
        for (i, v) in y.iter().enumerate().take(end).skip(at) {
            if i == at {
                let _ = write!(d, "M{} {}", number(places.x(area, i)), number(*v));
            } else if *v != last {
                let _ = write!(d, "H{}V{}", number(places.x(area, i)), number(*v));
            }
            last = *v;
        }
        let _ = write!(d, "H{}", number(places.x(area, end)));
        if let Some(opacity) = stroke.fill {
            let mut back = String::new();
            let mut last = f64::NAN;
            for i in (at..end).rev() {
                let v = base(i);
                if v != last {
                    let _ = write!(back, "H{}V{}", number(places.x(area, i + 1)), number(v));
                }
                last = v;
            }
            let _ = write!(back, "H{}Z", number(places.x(area, at)));
            svg.path(&format!("{d}{back}"), stroke.color, opacity, "none", 0.0, "");
        }
        if stroke.width > 0.0 {
            svg.path(&d, "none", 0.0, stroke.color, stroke.width, stroke.dash);
        }
        at = end;
    }
}

/// Heading of a panel: name and unit on the left, legend on the right. A legend that does not fit beside them has lines
/// of its own.
pub(crate) struct Heading {
    name: String,
    unit: String,
    /// Lines of the legend. The first one is beside the name, and may be empty.
    lines: Vec<Vec<Entry>>,
}

/// Height of a further line of a legend, px.
const LEGEND_LINE: f64 = 17.0;
/// Distance between entries of a legend, px.
const BETWEEN_ENTRIES: f64 = 18.0;

fn key_width(k: Key) -> f64 {
    match k {
        Key::Line(..) => 22.0,
        Key::Ramp(_) => 46.0,
    }
}

fn entry_width(e: &Entry) -> f64 {
    key_width(e.key) + font::width(&e.label, SMALL, false)
}

fn entries_width(entries: &[Entry]) -> f64 {
    entries.iter().map(|e| entry_width(e) + BETWEEN_ENTRIES).sum::<f64>() - BETWEEN_ENTRIES
}

impl Heading {
    /// Lays out a heading of this width.
    pub(crate) fn new(pen: &Pen, width: f64, name: &str, unit: &str, mut entries: Vec<Entry>) -> Self {
        let left = font::width(name, pen.heading().size, true) + 8.0;
        let unit = font::fit(unit, SMALL, false, (width - left).max(0.0) * MOST_UNIT);
        let left = left + font::width(&unit, SMALL, false) + 24.0;
        entries
            .iter_mut()
            .for_each(|e| e.label = font::fit(&e.label, SMALL, false, (width - key_width(e.key)).max(0.0)));
        if entries.is_empty() || entries_width(&entries) <= width - left {
            return Self { name: name.into(), unit, lines: vec![entries] };
        }
        let mut lines = vec![Vec::new(), Vec::new()];
        let mut used = 0.0;
        for entry in entries {
            let wide = entry_width(&entry);
            if used > 0.0 && used + wide > width {
                lines.push(Vec::new());
                used = 0.0;
            }
            used += wide + BETWEEN_ENTRIES;
            if let Some(line) = lines.last_mut() {
                line.push(entry);
            }
        }
        Self { name: name.into(), unit, lines }
    }

    /// Height of the lines below the first one, px.
    pub(crate) fn more(&self) -> f64 {
        LEGEND_LINE * (self.lines.len().max(1) - 1) as f64
    }

    /// Draws it above `area`, and its further lines in the upper part of it.
    pub(crate) fn draw(&self, svg: &mut Svg, pen: &Pen, area: Area) {
        let y = area.y - 9.0;
        svg.text((area.x, y), &self.name, pen.heading(), Anchor::Start);
        let left = area.x + font::width(&self.name, pen.heading().size, true) + 8.0;
        svg.text((left, y), &self.unit, pen.tick(), Anchor::Start);
        for (i, entries) in self.lines.iter().enumerate() {
            let y = y + LEGEND_LINE * i as f64;
            let mut x = if i == 0 { area.right() - entries_width(entries) } else { area.x };
            for e in entries {
                key(svg, e.key, (x, y));
                svg.text((x + key_width(e.key), y), &e.label, pen.tick(), Anchor::Start);
                x += entry_width(e) + BETWEEN_ENTRIES;
            }
        }
    }
}

/// Draws the symbol of a legend entry.
fn key(svg: &mut Svg, key: Key, (x, y): (f64, f64)) {
    match key {
        Key::Line(c, width, dash) => svg.line((x, y - 4.0), (x + 16.0, y - 4.0), c, width, dash),
        Key::Ramp(ramp) => {
            let x = x.round();
            for i in 0..20 {
                let cell = Area { x: x + f64::from(i) * 2.0, y: y - 10.0, w: 2.0, h: 11.0 };
                svg.rect(cell, &color::hex(ramp.at(f64::from(i) / 19.0)), 1.0);
            }
        }
    }
}

/// A note in the upper right corner of a plot, with a background.
pub(crate) fn corner(svg: &mut Svg, pen: &Pen, area: Area, text: &str) {
    let text = &font::fit(text, 11.0, false, (area.w - 12.0).max(0.0));
    let wide = font::width(text, 11.0, false) + 6.0;
    svg.rect(Area { x: area.right() - wide - 2.0, y: area.y + 2.0, w: wide, h: 15.0 }, pen.theme.paper, 0.9);
    svg.text((area.right() - 5.0, area.y + 13.5), text, Style { size: 11.0, ..pen.tick() }, Anchor::End);
}

/// The message in a plot without data.
pub(crate) fn nothing(svg: &mut Svg, pen: &Pen, area: Area, why: &str) {
    svg.text((area.x + area.w / 2.0, area.y + area.h / 2.0 + 4.0), why, pen.tick(), Anchor::Middle);
}

/// Time labels below the last panel.
pub(crate) fn time_axis(svg: &mut Svg, pen: &Pen, area: Area, time: TimeAxis<'_>, caption: &str) {
    let mut right = f64::MIN;
    for (x, label) in ticks_of(area, time) {
        svg.line((x.round() + 0.5, area.bottom()), (x.round() + 0.5, area.bottom() + 5.0), pen.theme.frame, 1.0, "");
        // Labels at the edges stay inside, so that they do not overlap with the next column.
        let half = font::width(&label, SMALL, false) / 2.0;
        let x = x.clamp(area.x + half - 4.0, (area.right() - half).max(area.x + half - 4.0));
        // Around a cut, times far apart are near each other.
        if x - half >= right + 4.0 {
            svg.text((x, area.bottom() + 19.0), &label, pen.tick(), Anchor::Middle);
            right = x + half;
        }
    }
    svg.text((area.x + area.w / 2.0, area.bottom() + 37.0), caption, pen.tick(), Anchor::Middle);
}
