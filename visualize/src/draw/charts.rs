//! Draws plots with their own x axes, side by side in each column.

use super::lines::{legend, stroke};
use crate::{
    canvas::{
        font,
        scale::ValueScale,
        svg::{Anchor, Area, Style},
    },
    draw::{
        frame::{self, Heading, Places, SMALL},
        painter::Painter,
    },
    model::shape::{Chart, Line, Shape},
    panels::panel::Spec,
};

/// Width left of every chart except the first, for labels of its values.
const LABELS: f64 = 64.0;
/// Height below a chart, for labels of its slots and of the x axis.
const BELOW: f64 = 36.0;
/// Height between heading and charts, for their titles.
const TITLES: f64 = 18.0;

/// Draws a panel of charts.
pub(crate) fn draw(p: &mut Painter, spec: &Spec, shapes: &[Option<&Shape>]) {
    let theme = p.pen.theme;
    let of = |s: &Option<&Shape>| if let Some(Shape::Charts(c)) = s { c.clone() } else { Vec::new() };
    let all: Vec<Vec<Chart>> = shapes.iter().map(|s| of(s).into_iter().map(Chart::cut).collect()).collect();
    let height = f64::from(spec.height);
    let entries = legend(theme, all.iter().flatten().flat_map(|c| &c.series));
    let heading = Heading::new(&p.pen, p.room(), spec.title, spec.unit, entries);
    let (y, place) = p.panel(height, TITLES, heading.more(), false);
    heading.draw(&mut p.svg, &p.pen, place);
    let count = all.iter().map(|c| c.len()).max().unwrap_or(0);
    let scales: Vec<ValueScale> = (0..count).map(|n| scale(all.iter().filter_map(|c| c.get(n)))).collect();
    for (i, charts) in all.iter().enumerate() {
        let whole = p.columns[i].area(y, height);
        if charts.is_empty() {
            frame::paper(&mut p.svg, &p.pen, whole, (p.columns[i].time, &p.columns[i].squeeze));
            p.nothing(whole, spec.about);
            p.svg.frame(whole, theme.frame);
        }
        let wide = (whole.w - LABELS * (charts.len().max(1) - 1) as f64) / charts.len().max(1) as f64;
        for (n, (chart, scale)) in charts.iter().zip(&scales).enumerate() {
            let area = Area { x: whole.x + (wide + LABELS) * n as f64, w: wide.max(1.0), ..whole };
            one(p, area, chart, *scale, n > 0 || i == 0);
        }
    }
    p.y += BELOW;
}

/// Sums of the stacked series per slot.
fn stacked(chart: &Chart) -> Vec<f64> {
    let slots = chart.count();
    let of = |i: usize| chart.series.iter().filter_map(move |s| s.values.get(i));
    (0..slots).map(|i| if chart.bars { of(i).sum() } else { of(i).copied().fold(0.0, f64::max) }).collect()
}

fn scale<'a>(charts: impl Iterator<Item = &'a Chart>) -> ValueScale {
    let (mut most, mut top) = (0.0, None);
    for chart in charts {
        most = stacked(chart).into_iter().fold(most, f64::max);
        top = top.or(chart.top);
    }
    match top {
        Some(top) => ValueScale { bottom: 0.0, top, step: top / 4.0 },
        None => ValueScale::new(most, 4),
    }
}

fn one(p: &mut Painter, area: Area, chart: &Chart, scale: ValueScale, labels: bool) {
    let theme = p.pen.theme;
    p.svg.rect(area, theme.paper, 1.0);
    frame::value_grid(&mut p.svg, &p.pen, area, scale, labels);
    let title = Style { size: SMALL, bold: false, fill: theme.faint };
    p.svg.text((area.x, area.y - 6.0), &font::fit(&chart.title, SMALL, false, area.w), title, Anchor::Start);
    let slots = chart.count().max(1);
    let y = |v: f64| area.bottom() - (v / scale.top).clamp(0.0, 1.0) * area.h;
    if chart.bars {
        bars(p, area, chart, slots, &y);
    } else {
        for line in &chart.series {
            let values: Vec<f64> = line.values.iter().map(|v| y(*v)).collect();
            frame::steps(&mut p.svg, area, Places::Slots(slots), (&values, &|_| area.bottom()), stroke(theme, line));
        }
    }
    let mut right = f64::MIN;
    for (slot, label) in &chart.ticks() {
        let x = area.x + area.w * slot / slots as f64;
        p.svg.line((x.round() + 0.5, area.bottom()), (x.round() + 0.5, area.bottom() + 4.0), theme.frame, 1.0, "");
        let half = font::width(label, 11.0, false) / 2.0;
        let at = x.clamp(area.x + half - 6.0, (area.right() - half + 6.0).max(area.x + half - 6.0));
        if at - half >= right + 6.0 {
            let style = Style { size: 11.0, ..p.pen.tick() };
            p.svg.text((at, area.bottom() + 16.0), label, style, Anchor::Middle);
            right = at + half;
        }
    }
    p.svg.text((area.x + area.w / 2.0, area.bottom() + 31.0), &chart.x, p.pen.tick(), Anchor::Middle);
    if !chart.note.is_empty() {
        frame::corner(&mut p.svg, &p.pen, area, &chart.note);
    }
    p.svg.frame(area, theme.frame);
}

fn bars(p: &mut Painter, area: Area, chart: &Chart, slots: usize, y: &dyn Fn(f64) -> f64) {
    let theme = p.pen.theme;
    let wide = area.w / slots as f64;
    // Narrow bars touch each other.
    let gap = if wide >= 6.0 { 1.5 } else { 0.0 };
    let mut below = vec![0.0; slots];
    for Line { ink, values, .. } in &chart.series {
        for (slot, v) in values.iter().enumerate().filter(|(_, v)| **v > 0.0) {
            let top = y(below[slot] + v);
            // A non-zero value is at least one pixel high.
            let h = (y(below[slot]) - top).max(1.0);
            let bar =
                Area { x: area.x + wide * slot as f64 + gap / 2.0, y: top.min(area.bottom() - h), w: wide - gap, h };
            p.svg.rect(bar, theme.color(*ink), 1.0);
            below[slot] += v;
        }
    }
}
