//! Draws through all panels over time: losses, clock jumps, the end of the work and the start of settling, cut edges,
//! and named markers.

use crate::{
    canvas::{
        font,
        scale::duration,
        svg::{Anchor, Area, Style, number},
    },
    draw::{
        frame::{self, SMALL},
        marks,
        painter::{Column, MARK_LANE, Painter},
    },
};

/// Maximum number of loss intervals. Further shades would overlap.
const MOST_LOSSES: usize = 2_000;
/// Height of a tooth of a torn edge, px.
const TOOTH: f64 = 6.0;

/// Draws everything that crosses all panels.
pub(crate) fn draw(p: &mut Painter) {
    for i in 0..p.columns.len() {
        let plots: Vec<Area> = p.plots.iter().filter(|a| a.x == p.columns[i].x).copied().collect();
        skipped(p, i, &plots);
        losses(p, i, &plots);
        clocks(p, i, &plots);
        ends(p, i, &plots);
        cuts(p, i, &plots);
    }
    if let Some(lane) = p.lane {
        let settling = if p.columns.iter().any(|c| c.settling().is_some()) { MARK_LANE } else { 0.0 };
        p.named_moments(lane + settling + marks::height(&p.columns) - 4.0);
    }
}

fn x(c: &Column, t_ns: i64) -> f64 {
    frame::time_x(c.area(0.0, 0.0), c.time, c.squeeze.place(t_ns))
}

/// Half the width of the mark of a cut, px.
const CUT: f64 = 3.0;

/// A gap between two lines where a quiet stretch was cut out, with its length in the first plot.
fn skipped(p: &mut Painter, i: usize, plots: &[Area]) {
    let c = &p.columns[i];
    let mut right = f64::MIN;
    for (place_ns, cut_ns) in c.squeeze.cuts() {
        let at = frame::time_x(c.area(0.0, 0.0), c.time, place_ns).round();
        for plot in plots {
            let gap = Area { x: (at - CUT).max(plot.x), w: 2.0 * CUT, ..*plot };
            p.svg.rect(gap, p.pen.theme.gap, 1.0);
            for x in [gap.x + 0.5, gap.right() - 0.5] {
                p.svg.line((x, plot.y), (x, plot.bottom()), p.pen.theme.faint, 1.0, "4 2");
            }
        }
        let text = format!("{} quiet", duration(cut_ns));
        let half = font::width(&text, SMALL, false) / 2.0 + 3.0;
        let Some(plot) = plots.first().filter(|plot| plot.w > 2.0 * half) else { continue };
        let middle = at.clamp(plot.x + half, plot.right() - half);
        if middle - half < right {
            continue;
        }
        right = middle + half;
        let y = plot.bottom() - 18.0;
        p.svg.rect(Area { x: middle - half, y, w: 2.0 * half, h: 15.0 }, p.pen.theme.paper, 0.9);
        p.svg.text((middle, y + 11.5), &text, p.pen.tick(), Anchor::Middle);
    }
}

fn losses(p: &mut Painter, i: usize, plots: &[Area]) {
    let c = &p.columns[i];
    for loss in c.losses.iter().take(MOST_LOSSES) {
        let place = |t_ns: i64| c.squeeze.place(t_ns);
        let (from, to) = (place(loss.from_ns).max(c.time.from), place(loss.to_ns).min(c.time.to));
        if from > to {
            continue;
        }
        let at = |place_ns: i64| frame::time_x(c.area(0.0, 0.0), c.time, place_ns);
        let (left, right) = (at(from), at(to));
        for plot in plots {
            let shade = Area { x: left.min(right - 2.0).max(plot.x), w: (right - left).max(2.0), ..*plot };
            p.svg.rect(shade, p.pen.theme.alarm, 0.22);
        }
    }
}

/// A dotted line at each clock jump.
fn clocks(p: &mut Painter, i: usize, plots: &[Area]) {
    let c = &p.columns[i];
    let mut last = f64::MIN;
    for t_ns in c.surveys.iter().flat_map(|s| &s.clock_jumps_ns) {
        let place_ns = c.squeeze.place(*t_ns);
        if place_ns < c.time.from || place_ns > c.time.to {
            continue;
        }
        // Lines at least 2 px apart.
        let at = x(c, *t_ns).round() + 0.5;
        if at <= last + 2.0 {
            continue;
        }
        last = at;
        for plot in plots {
            p.svg.line((at, plot.y), (at, plot.bottom()), p.pen.theme.clock, 1.5, "1 3");
        }
    }
}

/// The end of the work, if settling follows.
fn ends(p: &mut Painter, i: usize, plots: &[Area]) {
    let c = &p.columns[i];
    let Some((end, _)) = c.settling() else { return };
    let at = x(c, end).round() + 0.5;
    for plot in plots {
        p.svg.line((at, plot.y), (at, plot.bottom()), p.pen.theme.ink, 1.0, "5 4");
    }
    let Some(lane) = p.lane else { return };
    let text = format!("last operation {}", duration(end));
    let half = font::width(&text, SMALL, false) / 2.0;
    let at = at.clamp(c.x + half, (c.x + c.w - half).max(c.x + half));
    let style = Style { fill: p.pen.theme.ink, ..p.pen.tick() };
    p.svg.text((at, lane + MARK_LANE - 6.0), &text, style, Anchor::Middle);
}

/// Torn edges: of the window in the colour of text, of an incomplete recording in the colour of losses.
fn cuts(p: &mut Painter, i: usize, plots: &[Area]) {
    let c = &p.columns[i];
    let theme = p.pen.theme;
    let mut torn: Vec<(f64, &'static str)> = Vec::new();
    for s in &c.surveys {
        let dropped = s.kept_from_ns > 0 && s.kept_from_ns >= s.from_ns;
        torn.extend((s.window.0 || dropped).then_some((c.x, theme.faint)));
        torn.extend(s.window.1.then_some((c.x + c.w, theme.faint)));
        // If the recording continues after the window, its end is not in the picture.
        if !s.window.1 && (s.unfinished || !s.cut_short.is_empty()) {
            torn.push((x(c, s.to_ns), theme.alarm));
        }
    }
    torn.dedup();
    for (at, color) in torn {
        for plot in plots {
            let teeth = (plot.h / TOOTH) as u32;
            let mut d = format!("M{} {}", number(at), number(plot.y));
            for tooth in 0..teeth {
                let out = if tooth % 2 == 0 { 2.5 } else { -2.5 };
                let y = plot.y + (f64::from(tooth) + 0.5) * TOOTH;
                d.push_str(&format!("L{} {}", number(at + out), number(y)));
            }
            d.push_str(&format!("L{} {}", number(at), number(plot.bottom())));
            p.svg.path(&d, "none", 0.0, color, 1.6, "");
        }
    }
}
