//! The table below the panels: one row per reel, and one for the difference of two.

use ioreel_analyze::{events::targets::Target, summary::device::DeviceSummary};

use crate::{
    canvas::{
        font,
        scale::{bytes, count, duration},
        svg::{Anchor, Area, Style, Svg},
    },
    draw::frame::{Pen, SMALL},
    model::sheet::{CallTotals, Sheet},
};

/// Height of a row, px.
const ROW: f64 = 22.0;
/// Maximum width of a reel's name, px.
const NAME_ROOM: f64 = 260.0;

/// Format of a number.
#[derive(Clone, Copy)]
enum As {
    Ns,
    Bytes,
    Count,
    Decimal,
    Share,
}

impl As {
    fn show(self, v: f64) -> String {
        let whole = v.abs().round() as u64;
        match self {
            Self::Ns => duration(whole.min(i64::MAX as u64) as i64),
            Self::Bytes => bytes(whole),
            Self::Count => count(whole),
            Self::Decimal => format!("{:.1}", v.abs()),
            Self::Share => format!("{:.1} %", v.abs() * 100.0),
        }
    }
}

/// Height of a table with this many rows, px. `sections` of columns are placed below each other.
pub(crate) fn height(rows: usize, sections: usize) -> f64 {
    (ROW * (rows as f64 + 1.0) + 8.0) * sections as f64
}

const NONE: &str = "–";

/// A column: its header, and a cell for each row.
type Column = (String, Vec<String>);

/// The table, divided into sections as wide as the picture.
pub(crate) struct Table {
    sections: Vec<Vec<Column>>,
    rows: usize,
}

impl Table {
    /// A table of the reels. `difference` adds the second minus the first. `detailed` adds all statistics of
    /// operations.
    pub(crate) fn new(sheets: &[Sheet], detailed: bool, difference: bool, width: f64) -> Self {
        let columns = columns(sheets, detailed, difference);
        let mut sections: Vec<Vec<Column>> = Vec::new();
        let mut left = 0.0;
        for column in columns.iter().skip(1) {
            let wide = wide(column) + 10.0;
            if sections.is_empty() || left < wide {
                // Each section starts with the names.
                sections.push(columns.first().cloned().into_iter().collect());
                left = width - 16.0 - columns.first().map_or(0.0, self::wide);
            }
            left -= wide;
            if let Some(section) = sections.last_mut() {
                section.push(column.clone());
            }
        }
        Self { sections, rows: sheets.len() + usize::from(difference) }
    }

    pub(crate) fn height(&self) -> f64 {
        height(self.rows, self.sections.len())
    }

    /// Draws the table.
    pub(crate) fn draw(&self, svg: &mut Svg, pen: &Pen, area: Area) {
        let each = height(self.rows, 1);
        for (i, section) in self.sections.iter().enumerate() {
            draw(svg, pen, Area { y: area.y + each * i as f64, ..area }, section, self.rows);
        }
    }
}

fn wide((head, cells): &Column) -> f64 {
    let cells = cells.iter().map(|c| font::width(c, SMALL, false));
    cells.fold(font::width(head, SMALL, true), f64::max)
}

fn draw(svg: &mut Svg, pen: &Pen, area: Area, columns: &[Column], rows: usize) {
    let widths: Vec<f64> = columns.iter().map(wide).collect();
    let spare = area.w - widths.iter().sum::<f64>() - 16.0;
    let gap = (spare / (columns.len().max(2) - 1) as f64).clamp(6.0, 44.0);
    svg.rect(Area { h: ROW, ..area }, pen.theme.gap, 1.0);
    let head = Style { size: SMALL, bold: true, fill: pen.theme.faint };
    let body = Style { size: SMALL, bold: false, fill: pen.theme.ink };
    let mut x = area.x + 8.0;
    for (i, ((name, cells), width)) in columns.iter().zip(&widths).enumerate() {
        // Names are left-aligned, values right-aligned.
        let (at, anchor) = if i == 0 { (x, Anchor::Start) } else { (x + width, Anchor::End) };
        svg.text((at, area.y + 15.5), name, head, anchor);
        for (row, cell) in cells.iter().enumerate() {
            let y = area.y + ROW * (row as f64 + 1.0) + 16.5;
            svg.text((at, y), cell, Style { bold: i == 0, ..body }, anchor);
        }
        x += width + gap;
    }
    let bottom = area.y + ROW * (rows as f64 + 1.0) + 3.0;
    svg.line((area.x, bottom.round() + 0.5), (area.right(), bottom.round() + 0.5), pen.theme.frame, 1.0, "");
}

/// Where calls moved bytes beside files. Both directions of each are one column.
fn other_targets(sheets: &[Sheet]) -> Vec<Target> {
    let moved = |target: &Target| sheets.iter().flat_map(|s| &s.calls).any(|t| t.moved.of(*target).sum() > 0);
    [Target::Pipes, Target::Devices, Target::Nowhere].into_iter().filter(moved).collect()
}

fn columns(sheets: &[Sheet], detailed: bool, difference: bool) -> Vec<Column> {
    let text = |head: &str, cell: &dyn Fn(&Sheet) -> String, last: &str| {
        let mut cells: Vec<String> = sheets.iter().map(cell).collect();
        cells.iter_mut().filter(|c| c.is_empty()).for_each(|c| *c = NONE.into());
        cells.extend(difference.then(|| last.to_owned()));
        (head.to_owned(), cells)
    };
    let of = |head: &str, unit: As, value: &dyn Fn(&Sheet) -> Option<f64>| {
        let values: Vec<Option<f64>> = sheets.iter().map(value).collect();
        let mut cells: Vec<String> = values.iter().map(|v| v.map_or(NONE.into(), |v| unit.show(v))).collect();
        if difference {
            let ends = values.first().copied().flatten().zip(values.last().copied().flatten());
            cells.push(ends.map_or(NONE.into(), |(a, b)| {
                let sign = if b > a {
                    "+"
                } else if b < a {
                    "−"
                } else {
                    ""
                };
                format!("{sign}{}", unit.show(b - a))
            }));
        }
        (head.to_owned(), cells)
    };
    let mut out = vec![
        text("reel", &|s| font::fit(&s.survey.name, SMALL, true, NAME_ROOM), "difference"),
        text("file system", &|s| s.survey.fstype.clone(), ""),
        of("elapsed", As::Ns, &|s| (s.survey.elapsed_ns > 0).then_some(s.survey.elapsed_ns as f64)),
        of("settling", As::Ns, &|s| (s.survey.settle_ns > 0).then_some(s.survey.settle_ns as f64)),
    ];
    if sheets.iter().any(|s| s.device.is_some()) {
        type Of<'a> = &'a dyn Fn(&DeviceSummary) -> Option<f64>;
        let of = |head: &str, unit: As, value: Of<'_>| of(head, unit, &|s| s.device.as_ref().and_then(value));
        // Only successful requests count; failed ones moved an unknown number of bytes.
        let data = |d: &DeviceSummary| -> u64 {
            d.classes.iter().filter(|c| c.op.is_data()).map(|c| c.count - c.errors - c.incomplete).sum()
        };
        let latency = |d: &DeviceSummary, ns: u64| (d.d2c.count > 0).then_some(ns as f64);
        out.extend([
            of("read", As::Bytes, &|d| Some(d.read_bytes as f64)),
            of("written", As::Bytes, &|d| Some(d.write_bytes as f64)),
            of("requests", As::Count, &|d| Some(d.requests as f64)),
            of("mean size", As::Bytes, &|d| {
                (data(d) > 0).then(|| d.read_bytes.saturating_add(d.write_bytes) as f64 / data(d) as f64)
            }),
            of("adjacent seeks", As::Count, &|d| Some(d.seeks.exact as f64)),
            of("far seeks", As::Count, &|d| Some(d.seeks.sw64k as f64)),
            of("D2C p50", As::Ns, &|d| latency(d, d.d2c.p50_ns)),
            of("p99", As::Ns, &|d| latency(d, d.d2c.p99_ns)),
            of("p99.9", As::Ns, &|d| latency(d, d.d2c.p999_ns)),
            of("max", As::Ns, &|d| latency(d, d.d2c.max_ns)),
            of("qd_mean", As::Decimal, &|d| Some(d.qd_mean)),
            of("util", As::Share, &|d| Some(d.util)),
        ]);
    }
    if sheets.iter().any(|s| s.calls.is_some()) {
        type Of<'a> = &'a dyn Fn(&CallTotals) -> Option<f64>;
        let of = |head: &str, unit: As, value: Of<'_>| of(head, unit, &|s| s.calls.as_ref().and_then(value));
        out.push(of("calls", As::Count, &|t| Some(t.calls as f64)));
        if detailed {
            out.extend([
                of("failed", As::Count, &|t| Some(t.errors as f64)),
                of("files read", As::Bytes, &|t| Some(t.moved.files.read_bytes as f64)),
                of("files written", As::Bytes, &|t| Some(t.moved.files.write_bytes as f64)),
            ]);
            let others = other_targets(sheets).into_iter();
            out.extend(others.map(|o| of(o.name(), As::Bytes, &|t| Some(t.moved.of(o).sum() as f64))));
            out.extend([
                of("call p50", As::Ns, &|t| (t.latency.count > 0).then_some(t.latency.p50_ns as f64)),
                of("call p99", As::Ns, &|t| (t.latency.count > 0).then_some(t.latency.p99_ns as f64)),
            ]);
        }
    }
    if sheets.iter().any(|s| s.survey.lost > 0) {
        out.push(of("events lost", As::Count, &|s| Some(s.survey.lost.max(0) as f64)));
    }
    out
}
