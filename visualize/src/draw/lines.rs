//! Draws values over time, with a common scale for all columns.

use super::settle_shade;
use crate::{
    canvas::{
        scale::{ValueScale, quantity},
        svg::Area,
        theme::Theme,
    },
    draw::{
        frame::{self, Entry, Heading, Key, Places, Stroke},
        painter::Painter,
    },
    model::shape::{Line, Lines, Shape},
    panels::panel::Spec,
};

/// Heights of a line in each bin, and of its base: the previous lines if stacked.
struct Heights {
    top: Vec<f64>,
    base: Vec<f64>,
}

fn heights(lines: &Lines, area: Area, scale: ValueScale) -> Vec<Heights> {
    let y = |v: f64| {
        let share = (v - scale.bottom) / (scale.top - scale.bottom);
        if v.is_finite() { area.bottom() - share.clamp(0.0, 1.0) * area.h } else { f64::NAN }
    };
    let mut below = vec![0.0; lines.bins.count()];
    lines
        .lines
        .iter()
        .map(|line| {
            let base = below.iter().map(|v| y(*v)).collect();
            let top: Vec<f64> = line.values.iter().zip(&below).map(|(v, b)| v + b).collect();
            if lines.stacked {
                below.clone_from(&top);
            }
            Heights { top: top.into_iter().map(y).collect(), base }
        })
        .collect()
}

/// Stroke of a line.
pub(super) fn stroke(theme: &Theme, line: &Line) -> Stroke {
    Stroke { color: theme.color(line.ink), width: line.width, dash: line.dash, fill: line.fill }
}

/// The legend, without duplicates.
pub(super) fn legend<'a>(theme: &Theme, lines: impl Iterator<Item = &'a Line>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in lines {
        if !line.label.is_empty() && !entries.iter().any(|e| e.label == line.label) {
            let key = Key::Line(theme.color(line.ink), 3.0, line.dash);
            entries.push(Entry { key, label: line.label.clone() });
        }
    }
    entries
}

/// Mean over time and maximum, beside each other: a peak alone tells little of a rate.
fn mean_and_peak(values: &[f64]) -> String {
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    let mean = finite().sum::<f64>() / finite().count().max(1) as f64;
    format!("mean {}, peak {}", quantity(mean), quantity(finite().fold(0.0, f64::max)))
}

/// All lines together, in each bin.
fn sums(lines: &Lines) -> Vec<f64> {
    (0..lines.bins.count()).map(|i| lines.lines.iter().filter_map(|l| l.values.get(i)).sum()).collect()
}

/// The numbers of a panel: of each rate; of the sum, if lines are stacked; else the peak of all.
fn numbers(lines: &Lines) -> String {
    if lines.stacked {
        return mean_and_peak(&sums(lines));
    }
    let rates = lines.lines.iter().filter(|l| l.is_rate());
    let words: Vec<String> = rates.map(|l| format!("{}: {}", l.label, mean_and_peak(&l.values))).collect();
    let all = lines.lines.iter().flat_map(|l| l.values.iter().copied()).filter(|v| v.is_finite());
    if words.is_empty() { format!("peak {}", quantity(all.fold(0.0, f64::max))) } else { words.join("; ") }
}

/// Draws a panel of lines.
pub(crate) fn draw(p: &mut Painter, spec: &Spec, shapes: &[Option<&Shape>]) {
    let theme = p.pen.theme;
    let all: Vec<Option<&Lines>> =
        shapes.iter().map(|s| if let Some(Shape::Lines(l)) = s { Some(l) } else { None }).collect();
    let values = || all.iter().flatten().flat_map(|l| &l.lines).flat_map(|l| l.values.iter().copied());
    let sums = all.iter().flatten().filter(|l| l.stacked).flat_map(|l| sums(l));
    let most = values().chain(sums).filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
    let top = all.iter().flatten().find_map(|l| l.top);
    let scale = match top {
        Some(top) => ValueScale { bottom: 0.0, top, step: top / 4.0 },
        None if values().any(|v| v < 0.0) => ValueScale::signed(most, 4),
        None => ValueScale::new(most, 4),
    };
    let height = f64::from(spec.height);
    let mut entries = legend(theme, all.iter().flatten().flat_map(|l| &l.lines));
    if let [Some(one)] = &all[..] {
        entries.iter_mut().for_each(|e| {
            if let Some(line) =
                one.lines.iter().find(|l| l.label == e.label && l.is_rate() && l.values.iter().any(|v| *v > 0.0))
            {
                e.label = format!("{} ({})", e.label, mean_and_peak(&line.values));
            }
        });
    }
    let heading = Heading::new(&p.pen, p.room(), spec.title, spec.unit, entries);
    let (y, place) = p.panel(height, 0.0, heading.more(), true);
    heading.draw(&mut p.svg, &p.pen, place);
    for (i, lines) in all.iter().enumerate() {
        let area = p.columns[i].area(y, height);
        let time = p.columns[i].time;
        frame::paper(&mut p.svg, &p.pen, area, (time, &p.columns[i].squeeze));
        frame::value_grid(&mut p.svg, &p.pen, area, scale, i == 0);
        settle_shade(&mut p.svg, theme, area, &p.columns[i]);
        let Some(lines) = lines else {
            p.nothing(area, spec.about);
            p.svg.frame(area, theme.frame);
            continue;
        };
        for (line, h) in lines.lines.iter().zip(heights(lines, area, scale)) {
            if line.values.iter().all(|v| *v == 0.0 || !v.is_finite()) {
                continue;
            }
            let base = |i: usize| h.base.get(i).copied().unwrap_or(area.bottom());
            frame::steps(&mut p.svg, area, Places::Time(time, lines.bins), (&h.top, &base), stroke(theme, line));
        }
        // With a common scale, a slower reel may be hard to see, so its numbers are printed.
        let peak = (all.len() > 1).then(|| numbers(lines));
        let note = Some(lines.note.clone()).filter(|n| !n.is_empty());
        let words: Vec<String> = note.into_iter().chain(peak).collect();
        if !words.is_empty() {
            p.corners.push((area, words.join("; ")));
        }
        p.svg.frame(area, theme.frame);
        p.plots.push(area);
    }
}
