//! Combines several reels in one column: over each other, or the second minus the first. Works on shapes, so it
//! supports every panel.

use std::collections::BTreeMap;

use ioreel_analyze::meters::bins::Bins;

use crate::{
    canvas::{
        raster::{Blend, Counts},
        theme::Ink,
    },
    draw::painter::Column,
    draw::picture::Arrange,
    model::{
        shape::{Chart, Field, Layer, Line, Lines, Shape, Slots},
        value_axis::{Lane, Rows},
    },
};

/// Dashes of a reel's first, second and further lines.
const DASHES: [&str; 5] = ["", "5 3", "2 2", "1 3", "8 3 2 3"];

/// One column of all reels.
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

/// Sum of all layers of a field.
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
    if fields.iter().all(|(_, f)| matches!(f.rows, Rows::Lanes { .. })) {
        return of_lanes(fields, names);
    }
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
    first.layers = layers;
    first.blend = Blend::Overprint;
    first.strip = strips;
    Field { curves, ..first }
}

/// Lanes belong to files or threads of one reel, so lanes of different reels are not merged. Each reel has lanes in its
/// own colour; lanes of the same name are adjacent, in the order of the first reel with that name.
fn of_lanes(fields: Vec<(usize, Field)>, names: &[String]) -> Field {
    let lanes = |f: &Field| if let Rows::Lanes { lanes, .. } = &f.rows { lanes.clone() } else { Vec::new() };
    let of: Vec<Vec<Lane>> = fields.iter().map(|(_, f)| lanes(f)).collect();
    let mut keys: Vec<&str> = Vec::new();
    of.iter().flatten().for_each(|lane| {
        if !keys.contains(&lane.key.as_str()) {
            keys.push(&lane.key);
        }
    });
    let gaps = of.iter().filter_map(|lanes| lanes.get(..2)).map(|l| l[1].row.saturating_sub(l[0].row + l[0].rows));
    let gap = gaps.max().unwrap_or(1);
    let (mut placed, mut row) = (Vec::new(), 0);
    // New position of each field's lanes.
    let mut moved: Vec<Vec<(Lane, u32)>> = vec![Vec::new(); fields.len()];
    for key in keys {
        for (i, lanes) in of.iter().enumerate() {
            for lane in lanes.iter().filter(|l| l.key == key) {
                let reel = fields.get(i).and_then(|(reel, _)| names.get(*reel)).map_or("", String::as_str);
                placed.push(Lane { label: format!("{}  ·  {reel}", lane.label), row, ..lane.clone() });
                moved[i].push((lane.clone(), row));
                row += lane.rows + gap;
            }
        }
    }
    let height = row.saturating_sub(gap).max(1) as usize;
    let width = fields.iter().flat_map(|(_, f)| &f.layers).map(|l| l.counts.width).max().unwrap_or(1);
    let mut layers = Vec::new();
    let mut flows = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for ((reel, field), moved) in fields.iter().zip(&moved) {
        let all = sum(field);
        let mut cells = vec![0; width * height];
        for (lane, to) in moved.iter().filter(|_| all.width == width) {
            let from = lane.row as usize * width;
            let rows = (lane.rows as usize * width).min(all.cells.len().saturating_sub(from));
            let to = *to as usize * width;
            cells[to..to + rows].copy_from_slice(&all.cells[from..from + rows]);
        }
        let counts = Counts { width, height, cells };
        let label = names.get(*reel).cloned().unwrap_or_default();
        layers.push(Layer { ink: Ink::Hue(*reel), label, counts, flat: false });
        let at = |row: f64| {
            let holds = |l: &Lane| (f64::from(l.row)..=f64::from(l.row + l.rows)).contains(&row);
            moved.iter().find(|(l, _)| holds(l)).map_or(row, |(l, to)| f64::from(*to) + row - f64::from(l.row))
        };
        flows.extend(field.flows.iter().map(|flow| flow.map(|(t_ns, row)| (t_ns, at(row)))));
        if !field.note.is_empty() && !notes.contains(&field.note) {
            notes.push(field.note.clone());
        }
    }
    let row_px = fields.first().map_or(1, |(_, f)| f.rows.row_px(0));
    let bins = fields.first().map_or(Bins::new(0, 1, 1), |(_, f)| f.bins);
    let rows = Rows::Lanes { lanes: placed, row_px };
    let note = match &notes[..] {
        [note] => note.clone(),
        [] => String::new(),
        _ => "per reel, those with most; others are not shown".into(),
    };
    Field { layers, rows, bins, flows, note, ..empty() }
}

fn empty() -> Field {
    Field {
        rows: Rows::Lanes { lanes: Vec::new(), row_px: 1 },
        layers: Vec::new(),
        blend: Blend::Overprint,
        curves: Vec::new(),
        bins: Bins::new(0, 1, 1),
        strip: None,
        flows: Vec::new(),
        note: String::new(),
    }
}

/// Cells where both have equal counts, where the first has more, and where the second has more.
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
    let mut notes: Vec<&str> = lines.iter().map(|(_, l)| l.note.as_str()).filter(|n| !n.is_empty()).collect();
    notes.dedup();
    let note = notes.join(" / ");
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
        return Lines { bins: b.bins, lines, stacked: false, top: None, note };
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
            None => out = Some(Lines { lines: recoloured, stacked: false, note: note.clone(), ..of }),
        }
    }
    out.unwrap_or(Lines { bins: Bins::new(0, 1, 1), lines: Vec::new(), stacked: false, top: None, note })
}

/// Outlines in the reels' colours. A stack becomes one line.
fn of_charts(charts: Vec<(usize, Vec<Chart>)>) -> Vec<Chart> {
    let count = charts.iter().map(|(_, c)| c.len()).max().unwrap_or(0);
    let of = |i: usize| charts.iter().filter_map(|(reel, charts)| Some((*reel, charts.get(i)?))).collect();
    (0..count).filter_map(|i| of_chart(of(i))).collect()
}

fn of_chart(parts: Vec<(usize, &Chart)>) -> Option<Chart> {
    let (_, first) = parts.first()?;
    let total = |chart: &Chart, slot: usize| -> f64 { chart.series.iter().filter_map(|s| s.values.get(slot)).sum() };
    // Mapping from the slots of each chart to the common slots.
    let (slots, places): (Slots, Vec<Vec<Option<usize>>>) = match &first.slots {
        Slots::Same(_) => {
            let most = parts.iter().map(|(_, c)| c.count()).max().unwrap_or(0);
            (first.slots.clone(), vec![(0..most).map(Some).collect(); parts.len()])
        }
        Slots::Numbered { label, at, .. } => {
            let from = |c: &Chart| if let Slots::Numbered { first, .. } = c.slots { first } else { 0 };
            let least = parts.iter().map(|(_, c)| from(c)).min().unwrap_or(0);
            let end = parts.iter().map(|(_, c)| from(c) + c.count() as i64).max().unwrap_or(0);
            let place = |(_, c): &(usize, &Chart)| (least..end).map(|n| usize::try_from(n - from(c)).ok()).collect();
            (Slots::Numbered { first: least, label: *label, at: *at }, parts.iter().map(place).collect())
        }
        Slots::Named { label, most, .. } => {
            let keys = |c: &Chart| if let Slots::Named { keys, .. } = &c.slots { keys.clone() } else { Vec::new() };
            let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
            for (_, c) in &parts {
                keys(c).into_iter().enumerate().for_each(|(i, key)| *sums.entry(key).or_default() += total(c, i));
            }
            let mut ranked: Vec<(i64, f64)> = sums.into_iter().collect();
            ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let all: Vec<i64> = ranked.into_iter().map(|(key, _)| key).collect();
            let place =
                |(_, c): &(usize, &Chart)| all.iter().map(|k| keys(c).iter().position(|key| key == k)).collect();
            let places = parts.iter().map(place).collect();
            (Slots::Named { keys: all, label: *label, most: *most }, places)
        }
    };
    let line = |((reel, chart), places): (&(usize, &Chart), &Vec<Option<usize>>)| {
        let mut last = 0.0;
        let value = |place: &Option<usize>| {
            let here = place.filter(|slot| *slot < chart.count()).map(|slot| total(chart, slot));
            // A curve continues with its last value. A missing bar is 0.
            last = here.unwrap_or(if chart.bars { 0.0 } else { last });
            last
        };
        Line::plain(Ink::Hue(*reel), "", places.iter().map(value).collect())
    };
    let series = parts.iter().zip(&places).map(line).collect();
    let mut notes: Vec<&str> = parts.iter().map(|(_, c)| c.note.as_str()).filter(|n| !n.is_empty()).collect();
    notes.dedup();
    Some(Chart { slots, series, bars: false, note: notes.join(" / "), ..(*first).clone() })
}
