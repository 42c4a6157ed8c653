//! The table under the panels: one row per reel.

use crate::{
    color, font,
    panel::SMALL,
    scale::{bytes, count, duration},
    survey::Survey,
    svg::{Anchor, Area, Style, Svg},
};

/// Height of a row, px.
pub const ROW: f64 = 22.0;
/// Widest name of a reel, px.
const NAME_ROOM: f64 = 260.0;

/// Height of the table for so many reels, px.
pub fn height(reels: usize) -> f64 {
    ROW * (reels as f64 + 1.0) + 8.0
}

const NONE: &str = "–";

/// Draws the table; `detailed` with all that is known of operations.
pub fn draw(svg: &mut Svg, area: Area, surveys: &[Survey], detailed: bool) {
    let columns = columns(surveys, detailed);
    let wide = |(head, cells): &(String, Vec<String>)| {
        let cells = cells.iter().map(|c| font::width(c, SMALL, false));
        cells.fold(font::width(head, SMALL, true), f64::max)
    };
    let widths: Vec<f64> = columns.iter().map(wide).collect();
    let spare = area.w - widths.iter().sum::<f64>() - 16.0;
    let gap = (spare / (columns.len().max(2) - 1) as f64).clamp(6.0, 44.0);
    svg.rect(Area { h: ROW, ..area }, "#f3f5f8", 1.0);
    let head = Style { size: SMALL, bold: true, fill: color::FAINT };
    let body = Style { size: SMALL, bold: false, fill: color::INK };
    let mut x = area.x + 8.0;
    for (i, ((name, cells), width)) in columns.iter().zip(&widths).enumerate() {
        // Names flush left, quantities flush right.
        let (at, anchor) = if i == 0 { (x, Anchor::Start) } else { (x + width, Anchor::End) };
        svg.text((at, area.y + 15.5), name, head, anchor);
        for (row, cell) in cells.iter().enumerate() {
            let y = area.y + ROW * (row as f64 + 1.0) + 16.5;
            svg.text((at, y), cell, Style { bold: i == 0, ..body }, anchor);
        }
        x += width + gap;
    }
    let bottom = area.y + ROW * (surveys.len() as f64 + 1.0) + 3.0;
    svg.line((area.x, bottom.round() + 0.5), (area.right(), bottom.round() + 0.5), color::FRAME, 1.0, "");
}

fn columns(surveys: &[Survey], detailed: bool) -> Vec<(String, Vec<String>)> {
    let ns = |n: u64| duration(i64::try_from(n).unwrap_or(i64::MAX));
    let of = |head: &str, cell: &dyn Fn(&Survey) -> Option<String>| {
        (head.to_owned(), surveys.iter().map(|s| cell(s).unwrap_or_else(|| NONE.into())).collect::<Vec<_>>())
    };
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut out = vec![
        of("reel", &|s| Some(font::fit(&s.name, SMALL, true, NAME_ROOM))),
        of("file system", &|s| known(&s.fstype)),
        of("elapsed", &|s| (s.elapsed_ns > 0).then(|| duration(s.elapsed_ns))),
        of("settling", &|s| (s.settle_ns > 0).then(|| duration(s.settle_ns))),
    ];
    if surveys.iter().any(|s| s.device.is_some()) {
        let of = |head: &str, cell: &dyn Fn(&ioreel_analyze::device::DeviceSummary) -> Option<String>| {
            of(head, &|s| s.device.as_ref().and_then(|d| cell(&d.summary)))
        };
        let data = |d: &ioreel_analyze::device::DeviceSummary| d.d2c.count;
        out.extend([
            of("read", &|d| Some(bytes(d.read_bytes))),
            of("written", &|d| Some(bytes(d.write_bytes))),
            of("requests", &|d| Some(count(d.requests))),
            of("mean size", &|d| (data(d) > 0).then(|| bytes(d.read_bytes.saturating_add(d.write_bytes) / data(d)))),
            of("seeks.exact", &|d| Some(count(d.seeks.exact))),
            of("seeks.sw64k", &|d| Some(count(d.seeks.sw64k))),
            of("D2C p50", &|d| (data(d) > 0).then(|| ns(d.d2c.p50_ns))),
            of("D2C p99", &|d| (data(d) > 0).then(|| ns(d.d2c.p99_ns))),
            of("qd_mean", &|d| Some(format!("{:.1}", d.qd_mean))),
        ]);
    }
    if surveys.iter().any(|s| s.calls.is_some()) {
        let of = |head: &str, cell: &dyn Fn(&crate::survey::CallSurvey) -> Option<String>| {
            of(head, &|s| s.calls.as_ref().and_then(cell))
        };
        out.push(of("calls", &|c| Some(count(c.totals.calls))));
        let details = [
            of("failed", &|c| Some(count(c.totals.errors))),
            of("calls read", &|c| Some(bytes(c.totals.read_bytes))),
            of("calls wrote", &|c| Some(bytes(c.totals.write_bytes))),
            of("call p50", &|c| (c.latency.count > 0).then(|| ns(c.latency.p50_ns))),
            of("call p99", &|c| (c.latency.count > 0).then(|| ns(c.latency.p99_ns))),
        ];
        out.extend(details.into_iter().filter(|_| detailed));
    }
    if surveys.iter().any(|s| s.lost > 0) {
        out.push(of("events lost", &|s| Some(count(s.lost.max(0) as u64))));
    }
    out
}
