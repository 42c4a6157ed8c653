//! Several reels in one column: over each other, or the second less the first. Works on shapes, so that every panel can be
//! compared without knowing of it.

use crate::{
    painter::Column,
    picture::Arrange,
    raster::{Blend, Counts},
    rows::Rows,
    shape::{Chart, Field, Layer, Line, Lines, Shape},
    theme::Ink,
};

/// Dashes of a reel's first, second and further lines.
const DASHES: [&str; 5] = ["", "5 3", "2 2", "1 3", "8 3 2 3"];

/// One column of all.
pub(crate) fn one(columns: Vec<Column>, arrange: Arrange) -> Vec<Column> {
    let names: Vec<String> = columns.iter().flat_map(|c| &c.surveys).map(|s| s.name.clone()).collect();
    let panels = columns.iter().map(|c| c.shapes.len()).max().unwrap_or(0);
    let mut columns = columns.into_iter();
    let Some(mut first) = columns.next() else { return Vec::new() };
    let mut shapes = vec![std::mem::take(&mut first.shapes)];
    for mut c in columns {
        first.surveys.append(&mut c.surveys);
        first.losses.append(&mut c.losses);
        shapes.push(c.shapes);
    }
    for i in 0..panels {
        let parts = shapes.iter_mut().map(|s| s.get_mut(i).and_then(Option::take)).collect();
        first.shapes.push(together(parts, &names, arrange));
    }
    vec![first]
}

fn together(parts: Vec<Option<Shape>>, names: &[String], arrange: Arrange) -> Option<Shape> {
    let difference = arrange == Arrange::Difference;
    let (mut fields, mut lines, mut charts, mut sheets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (reel, part) in parts.into_iter().enumerate() {
        match part {
            Some(Shape::Field(f)) => fields.push((reel, f)),
            Some(Shape::Lines(l)) => lines.push((reel, l)),
            Some(Shape::Charts(c)) => charts.push((reel, c)),
            Some(Shape::Table(t)) => sheets.extend(t),
            None => {}
        }
    }
    if !fields.is_empty() {
        return Some(Shape::Field(of_fields(fields, names, difference)));
    }
    if !lines.is_empty() {
        return Some(Shape::Lines(of_lines(lines, difference)));
    }
    if !charts.is_empty() {
        return Some(Shape::Charts(of_charts(charts)));
    }
    (!sheets.is_empty()).then_some(Shape::Table(sheets))
}

/// All layers of a field in one.
fn sum(field: &Field) -> Counts {
    let mut layers = field.layers.iter();
    let mut all = layers.next().map(|l| l.counts.clone()).unwrap_or_default();
    layers.for_each(|l| all.add(&l.counts));
    all
}

fn of_fields(fields: Vec<(usize, Field)>, names: &[String], difference: bool) -> Field {
    let sums: Vec<(usize, Counts)> = fields.iter().map(|(reel, f)| (*reel, sum(f))).collect();
    let strips = fields.iter().filter_map(|(_, f)| f.strip.clone()).reduce(|mut a, b| {
        a.counts.add(&b.counts);
        a
    });
    let curves = fields
        .iter()
        .flat_map(|(reel, f)| {
            f.curves.iter().filter(|c| ["p50", "p99"].contains(&c.label.as_str())).map(|c| (*reel, c))
        })
        .map(|(reel, c)| Line { ink: Ink::Hue(reel), ..c.clone() })
        .collect();
    let lanes = fields.len() > 1 && matches!(fields.first(), Some((_, Field { rows: Rows::Lanes { .. }, .. })));
    let layers = match (&sums[..], difference) {
        ([(_, a), (_, b)], true) if a.cells.len() == b.cells.len() => differences(a, b),
        _ => sums
            .into_iter()
            .map(|(reel, counts)| Layer {
                ink: Ink::Hue(reel),
                label: names.get(reel).cloned().unwrap_or_default(),
                counts,
                flat: false,
            })
            .collect(),
    };
    let Some((_, mut first)) = fields.into_iter().next() else { return empty() };
    // Lanes are files or threads of one reel: those of another cannot lie on them.
    first.layers = if lanes { layers.into_iter().take(1).collect() } else { layers };
    if lanes {
        first.note = "of the first reel alone".into();
        first.flows.clear();
    }
    first.blend = Blend::Overprint;
    first.strip = strips;
    Field { curves, ..first }
}

fn empty() -> Field {
    Field {
        rows: Rows::Lanes { lanes: Vec::new(), row_px: 1 },
        layers: Vec::new(),
        blend: Blend::Overprint,
        curves: Vec::new(),
        bins: ioreel_analyze::bins::Bins::new(0, 1, 1),
        strip: None,
        flows: Vec::new(),
        note: String::new(),
    }
}

/// Cells where both have as many, where the first has more, where the second has.
fn differences(a: &Counts, b: &Counts) -> Vec<Layer> {
    let of = |f: &dyn Fn(u32, u32) -> u32| Counts {
        cells: a.cells.iter().zip(&b.cells).map(|(a, b)| f(*a, *b)).collect(),
        ..*a
    };
    let layer = |ink, label: &str, counts, flat| Layer { ink, label: label.into(), counts, flat };
    vec![
        layer(Ink::Grey, "as many in both", of(&|a, b| if a == b { a } else { 0 }), true),
        layer(Ink::Hue(0), "more in A", of(&|a, b| a.saturating_sub(b)), false),
        layer(Ink::Hue(1), "more in B", of(&|a, b| b.saturating_sub(a)), false),
    ]
}

fn of_lines(lines: Vec<(usize, Lines)>, difference: bool) -> Lines {
    if let ([(_, a), (_, b)], true) = (&lines[..], difference) {
        let minus = |(b, a): (&Line, &Line)| Line {
            values: b.values.iter().zip(&a.values).map(|(b, a)| b - a).collect(),
            label: format!("{}: B − A", b.label),
            fill: Some(0.25),
            width: b.width.max(1.0),
            ..b.clone()
        };
        let lines = b
            .lines
            .iter()
            .filter_map(|line| Some((line, a.lines.iter().find(|other| other.label == line.label)?)))
            .map(minus)
            .collect();
        return Lines { bins: b.bins, lines, stacked: false, top: None };
    }
    let mut out: Option<Lines> = None;
    for (reel, of) in lines {
        let recoloured: Vec<Line> = of
            .lines
            .into_iter()
            .enumerate()
            .map(|(i, line)| Line {
                ink: Ink::Hue(reel),
                dash: DASHES[i.min(DASHES.len() - 1)],
                width: line.width.max(1.0),
                fill: None,
                ..line
            })
            .collect();
        match &mut out {
            Some(all) => all.lines.extend(recoloured),
            None => out = Some(Lines { lines: recoloured, bins: of.bins, stacked: false, top: of.top }),
        }
    }
    out.unwrap_or(Lines {
        bins: ioreel_analyze::bins::Bins::new(0, 1, 1),
        lines: Vec::new(),
        stacked: false,
        top: None,
    })
}

/// Outlines in the reels' colours; what was stacked is one line.
fn of_charts(charts: Vec<(usize, Vec<Chart>)>) -> Vec<Chart> {
    let mut out: Vec<Chart> = Vec::new();
    for (reel, charts) in charts {
        for (i, chart) in charts.into_iter().enumerate() {
            let slots = chart.series.iter().map(|s| s.values.len()).max().unwrap_or(0);
            let at = |slot: usize| chart.series.iter().filter_map(|s| s.values.get(slot)).sum();
            let line = Line::plain(Ink::Hue(reel), "", (0..slots).map(at).collect());
            match out.get_mut(i) {
                // Categories of another reel have slots of their own: they cannot lie on these.
                Some(there) if there.ticks == chart.ticks => there.series.push(line),
                Some(there) => there.note = "of the first reel alone".into(),
                None => out.push(Chart { series: vec![line], bars: false, ..chart }),
            }
        }
    }
    out
}
