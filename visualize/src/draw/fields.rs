//! Draws densities over time and a second axis.

use super::settle_shade;
use crate::{
    Result,
    canvas::{
        color::Ramp,
        font,
        raster::{self, Cells, Inked},
        scale::count,
        svg::{Anchor, Area, Style},
        theme::Ink,
    },
    draw::{
        frame::{self, Entry, Heading, Key, Places, SMALL, Stroke},
        painter::{Column, Painter},
    },
    model::{
        shape::{Field, Shape},
        value_axis::{OCTAVE_ROWS, Rows, octave_row},
    },
    panels::panel::Spec,
};

/// Height of the strip of flushes.
const STRIP: f64 = 7.0;

/// Limits axes of durations to the octaves that any of the fields uses, the same for all. What took no time is drawn in
/// the lowest row, and does not extend the axis.
pub(crate) fn cut_to_use(fields: &mut [&mut Field]) {
    let whole = |f: &Field| matches!(f.rows, Rows::Octaves { low: 0, high: OCTAVE_ROWS });
    if fields.is_empty() || !fields.iter().all(|f| whole(f)) {
        return;
    }
    let (mut first, mut last) = (OCTAVE_ROWS, 0);
    for counts in fields.iter().flat_map(|f| &f.layers).map(|l| &l.counts) {
        let used = |row: &usize| counts.cells[row * counts.width..(row + 1) * counts.width].iter().any(|n| *n > 0);
        let mut rows = (0..counts.height.saturating_sub(1)).filter(used);
        if let Some(top) = rows.next() {
            let bottom = rows.next_back().unwrap_or(top);
            first = first.min(OCTAVE_ROWS - 1 - bottom);
            last = last.max(OCTAVE_ROWS - 1 - top);
        }
    }
    if first > last {
        (first, last) = (octave_row(10_000), octave_row(10_000_000));
    }
    let rows = Rows::around(first, last);
    let Rows::Octaves { low, high } = rows else { return };
    for field in fields {
        field.rows = rows.clone();
        for layer in &mut field.layers {
            let zeroes = layer.counts.rows(OCTAVE_ROWS - 1, OCTAVE_ROWS);
            layer.counts = layer.counts.rows(OCTAVE_ROWS - high, OCTAVE_ROWS - low);
            let lowest = layer.counts.cells.len().saturating_sub(layer.counts.width);
            for (cell, n) in layer.counts.cells.iter_mut().skip(lowest).zip(&zeroes.cells).filter(|_| low > 0) {
                *cell = cell.saturating_add(*n);
            }
        }
    }
}

/// Draws a panel of densities.
pub(crate) fn draw(p: &mut Painter, spec: &Spec, shapes: &[Option<&Shape>]) -> Result<()> {
    let fields: Vec<Option<&Field>> =
        shapes.iter().map(|s| if let Some(Shape::Field(f)) = s { Some(f) } else { None }).collect();
    let some = || fields.iter().flatten();
    let strip = some().any(|f| f.strip.is_some());
    let row_px = some().map(|f| f.rows.row_px(spec.height)).min().unwrap_or(1);
    // An empty panel has space for a message.
    let height = some().map(|f| f.rows.count() * row_px).max().unwrap_or(1).max(40);
    let most = some().flat_map(|f| &f.layers).filter(|l| !l.flat).map(|l| l.counts.max()).max().unwrap_or(0).max(1);
    let most_strip = some().filter_map(|f| f.strip.as_ref()).map(|l| l.counts.max()).max().unwrap_or(0);
    // Reels of very different lengths have separate periods. The text beside the heading must be true for all.
    let mut periods: Vec<i64> = some().filter_map(|f| period(f)).collect();
    periods.dedup();
    let own_axes = periods.len() > 1;
    let unit = if own_axes {
        spec.unit.into()
    } else {
        some().map(|f| unit(spec, f)).find(|u| !u.is_empty()).unwrap_or_default()
    };
    let heading = Heading::new(&p.pen, p.room(), spec.title, &unit, legend(p, &fields, most, row_px));
    let (y, place) = p.panel(f64::from(height), if strip { STRIP + 4.0 } else { 0.0 }, heading.more(), true);
    heading.draw(&mut p.svg, &p.pen, place);
    // The shared axis is labelled left of the first column, even if that column is empty.
    if let (Some(first), Some(column), false) = (some().next(), p.columns.first(), own_axes) {
        let left = column.x - 8.0;
        let mut last = f64::INFINITY;
        for (below, label) in first.rows.ticks(row_px) {
            let at = y + below.round().min(f64::from(height) - 1.0) + 0.5;
            if (last - at).abs() < SMALL + 1.0 {
                continue;
            }
            last = at;
            p.svg.text((left, at + 4.0), &label, p.pen.tick(), Anchor::End);
        }
    }
    for (i, field) in fields.iter().enumerate() {
        let area = p.columns[i].area(y, f64::from(height));
        let time = p.columns[i].time;
        frame::paper(&mut p.svg, &p.pen, area, (time, &p.columns[i].squeeze));
        let none = |f: &&&Field| matches!(&f.rows, Rows::Lanes { lanes, .. } if lanes.is_empty());
        let Some(field) = field.as_ref().filter(|f| !none(f)) else {
            p.nothing(area, spec.about);
            p.svg.frame(area, p.pen.theme.frame);
            continue;
        };
        one(p, i, (area, row_px), field, (most, most_strip))?;
        if own_axes {
            p.corners.push((area, field.note.clone()));
        }
        p.plots.push(area);
    }
    Ok(())
}

/// The period of a phase axis.
fn period(field: &Field) -> Option<i64> {
    if let Rows::Phase { period_ns, .. } = field.rows { Some(period_ns) } else { None }
}

/// The text beside the heading.
fn unit(spec: &Spec, field: &Field) -> String {
    let axis = match &field.rows {
        Rows::Offsets(axis) => {
            let cut = if axis.bands.len() > 1 { ", unused gaps cut out" } else { "" };
            format!("{} from the device's start{cut}", axis.unit().0)
        }
        Rows::Octaves { .. } | Rows::Phase { .. } | Rows::Lanes { .. } => String::new(),
    };
    [spec.unit, &axis, &field.note]
        .iter()
        .filter(|t| !t.is_empty())
        .map(|t| (*t).to_owned())
        .collect::<Vec<_>>()
        .join("; ")
}

fn legend(p: &Painter, fields: &[Option<&Field>], most: u32, row_px: u32) -> Vec<Entry> {
    let theme = p.pen.theme;
    let mut entries: Vec<Entry> = Vec::new();
    let mut add = |key: Key, label: &str| {
        if !label.is_empty() && !entries.iter().any(|e| e.label == label) {
            entries.push(Entry { key, label: label.to_owned() });
        }
    };
    let line = |ink: Ink| Key::Line(theme.color(ink), 3.0, "");
    let some = || fields.iter().flatten();
    let mut ramps = false;
    for layer in some().flat_map(|f| &f.layers) {
        let key = match (layer.flat, layer.ink) {
            (true, ink) => Key::Ramp(Ramp([theme.ramp(ink).0[0]; 3])),
            (false, Ink::Heat(_)) => line(layer.ink),
            (false, ink) => Key::Ramp(theme.ramp(ink)),
        };
        ramps |= !layer.flat && matches!(key, Key::Ramp(_)) && !layer.label.is_empty();
        add(key, &layer.label);
    }
    for strip in some().filter_map(|f| f.strip.as_ref()) {
        add(line(strip.ink), &strip.label);
    }
    for curve in some().flat_map(|f| &f.curves) {
        add(Key::Line(theme.color(curve.ink), curve.width, curve.dash), &curve.label);
    }
    if ramps && let Some(last) = entries.iter_mut().rfind(|e| matches!(e.key, Key::Ramp(_))) {
        last.label = format!("{}, {}", last.label, density(most, p.cell_px, row_px));
    }
    entries
}

/// Description of the ramp's range.
fn density(most: u32, cell_px: u32, row_px: u32) -> String {
    let cell = if cell_px * row_px == 1 { "pixel".into() } else { format!("{cell_px}×{row_px} pixels") };
    if most <= 1 { format!("1 per {cell}") } else { format!("1 to {} per {cell} (log)", count(u64::from(most))) }
}

/// A small label in the upper left corner of a lane or band, with a background.
fn inside(p: &mut Painter, area: Area, label: &str) {
    let theme = p.pen.theme;
    let style = Style { size: 10.0, bold: false, fill: theme.ink };
    let label = font::fit(label, style.size, false, area.w * 0.6);
    if label.is_empty() {
        return;
    }
    let wide = font::width(&label, style.size, false);
    p.svg.rect(Area { x: area.x + 1.0, y: area.y + 1.0, w: wide + 5.0, h: 12.0 }, theme.paper, 0.86);
    p.svg.text((area.x + 4.0, area.y + 10.0), &label, style, Anchor::Start);
}

fn one(p: &mut Painter, i: usize, (area, row_px): (Area, u32), field: &Field, most: (u32, u32)) -> Result<()> {
    let theme = p.pen.theme;
    let height = f64::from(field.rows.count() * row_px);
    // A field with fewer lanes does not fill its plot.
    let filled = Area { h: height, ..area };
    for (below, _) in field.rows.ticks(row_px) {
        let at = area.y + below.round().min(height - 1.0) + 0.5;
        p.svg.line((area.x, at), (area.right(), at), theme.grid, 1.0, "");
    }
    settle_shade(&mut p.svg, theme, area, &p.columns[i]);
    let inked: Vec<Inked<'_>> =
        field.layers.iter().map(|l| (&l.counts, theme.ramp(l.ink), if l.flat { u32::MAX } else { most.0 })).collect();
    p.svg.image(filled, &raster::png(&inked, field.blend, theme)?);
    if let Some(strip) = &field.strip {
        let place = Area { y: area.y - STRIP - 2.0, h: STRIP, ..area };
        p.svg.rect(place, theme.strip, 1.0);
        p.svg.image(place, &raster::png(&[(&strip.counts, theme.ramp(strip.ink), most.1)], field.blend, theme)?);
    }
    if let Rows::Offsets(axis) = &field.rows {
        for (band, label) in axis.bands.iter().zip(&axis.labels) {
            let top = area.bottom() - f64::from((band.row + band.sectors.count) * axis.row_px);
            inside(p, Area { y: top, ..area }, label);
        }
        for band in axis.bands.iter().skip(1) {
            let px = |rows: u32| f64::from(rows * axis.row_px);
            let gap = Area { y: area.bottom() - px(band.row), h: px(axis.gap_rows), ..area };
            p.svg.rect(gap, theme.gap, 1.0);
            let middle = gap.y + (gap.h / 2.0).floor() + 0.5;
            p.svg.line((gap.x, middle), (gap.right(), middle), theme.frame, 1.0, "3 4");
        }
    }
    let x = |c: &Column, t_ns: i64| frame::time_x(area, c.time, t_ns).clamp(area.x, area.right());
    let ends = |c: &Column, flow: &[(i64, f64); 2]| flow.map(|(t, row)| (x(c, t), area.y + row * f64::from(row_px)));
    for flow in &field.flows {
        let [from, to] = ends(&p.columns[i], flow);
        p.svg.line(from, to, theme.faint, 0.6, "");
    }
    if let Rows::Lanes { lanes, .. } = &field.rows {
        for (n, lane) in lanes.iter().enumerate() {
            let top = area.y + f64::from(lane.row * row_px);
            if n > 0 {
                p.svg.line((area.x, top - 2.0), (area.right(), top - 2.0), theme.grid, 1.0, "");
            }
            inside(p, Area { y: top, ..area }, &lane.label);
        }
    }
    let time: Cells = p.columns[i].time;
    for curve in &field.curves {
        let y: Vec<f64> = curve.values.iter().map(|v| area.y + field.rows.above(*v) * f64::from(row_px)).collect();
        let y: Vec<f64> = y.iter().zip(&curve.values).map(|(y, v)| if v.is_finite() { *y } else { f64::NAN }).collect();
        let stroke = Stroke { color: theme.color(curve.ink), width: curve.width, dash: curve.dash, fill: None };
        frame::steps(&mut p.svg, area, Places::Time(time, field.bins), (&y, &|_| 0.0), stroke);
    }
    p.svg.frame(area, theme.frame);
    Ok(())
}
