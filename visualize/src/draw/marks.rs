//! Draws named markers (`ioreel mark`): a line through all panels of a column, with the name above.

use ioreel_traces::manifest::Mark;

use crate::{
    canvas::{
        font,
        raster::Cells,
        svg::{Anchor, Area, Style},
    },
    draw::{
        frame::{self, SMALL},
        painter::{Column, Painter},
    },
};

/// Height of a row of names, px.
const ROW: f64 = 15.0;
/// Maximum number of rows of names. A marker without space for its name has only a line.
const MOST_ROWS: usize = 3;
/// Maximum width of a name, px.
const NAME_ROOM: f64 = 180.0;
/// Maximum number of markers per column.
const MOST_MARKS: usize = 200;

/// A marker with its position.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// Time of the marker.
    ns: i64,
    /// Its name, shortened if necessary.
    label: String,
    /// Row of its name, from the bottom. `None` without space.
    row: Option<usize>,
}

/// The markers on a time axis `width` px wide, each with the lowest row that has space for its name.
pub(crate) fn place(marks: &[Mark], time: Cells, width: f64) -> Vec<Placed> {
    let mut inside: Vec<&Mark> = marks.iter().filter(|m| m.ns >= time.from && m.ns <= time.to).collect();
    inside.sort_by_key(|m| m.ns);
    let mut ends = [f64::MIN; MOST_ROWS];
    let axis = Area { x: 0.0, y: 0.0, w: width, h: 0.0 };
    inside
        .into_iter()
        .take(MOST_MARKS)
        .map(|m| {
            let label = font::fit(&font::showable(&m.name), SMALL, false, NAME_ROOM.min(width));
            let wide = font::width(&label, SMALL, false);
            // Near the right edge, a name moves to the left.
            let left = (frame::time_x(axis, time, m.ns) - 2.0).min(width - wide);
            let row = ends.iter().position(|end| *end <= left);
            if let Some(row) = row {
                ends[row] = left + wide + 8.0;
            }
            Placed { ns: m.ns, label, row }
        })
        .collect()
}

/// Height needed above the first panel for the names of all columns.
pub(crate) fn height(columns: &[Column]) -> f64 {
    let rows = columns.iter().flat_map(|c| &c.marks).filter_map(|m| m.row).map(|r| r + 1).max();
    rows.unwrap_or(0) as f64 * ROW
}

impl Painter {
    /// Draws the markers: names upwards from `bottom`, lines through `plots`.
    pub(crate) fn named_moments(&mut self, bottom: f64) {
        let theme = self.pen.theme;
        for c in &self.columns {
            for mark in &c.marks {
                let column = Area { x: c.x, y: 0.0, w: c.w, h: 0.0 };
                let x = frame::time_x(column, c.time, mark.ns).round() + 0.5;
                for plot in self.plots.iter().filter(|p| p.x == c.x) {
                    self.svg.line((x, plot.y), (x, plot.bottom()), theme.mark, 1.0, "2 3");
                }
                if let Some(row) = mark.row {
                    self.svg.line((x, bottom - row as f64 * ROW + 1.0), (x, bottom + 4.0), theme.mark, 1.0, "");
                }
            }
            for mark in &c.marks {
                let Some(row) = mark.row else { continue };
                let column = Area { x: c.x, y: 0.0, w: c.w, h: 0.0 };
                let wide = font::width(&mark.label, SMALL, false);
                let left = (frame::time_x(column, c.time, mark.ns) - 2.0).min(c.x + c.w - wide).max(c.x);
                let y = bottom - row as f64 * ROW;
                // A background, so that stems of upper rows do not cross names of lower rows.
                self.svg.rect(Area { x: left - 1.0, y: y - 10.0, w: wide + 2.0, h: 13.0 }, theme.paper, 0.85);
                self.svg.text((left, y), &mark.label, Style { fill: theme.mark, ..self.pen.tick() }, Anchor::Start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(ns: i64, name: &str) -> Mark {
        Mark { ns, name: name.into() }
    }

    #[test]
    fn names_do_not_lie_on_each_other_and_all_inside_are_placed() {
        let time = Cells { from: 0, to: 1000, count: 500 };
        let marks: Vec<Mark> = (0..20).map(|i| mark(1000 - i * 10, "a name of some length")).collect();
        let placed = place(&marks, time, 500.0);
        assert_eq!(placed.len(), 20);
        assert!(placed.is_sorted_by_key(|p| p.ns));
        for row in 0..MOST_ROWS {
            let mut end = f64::MIN;
            for p in placed.iter().filter(|p| p.row == Some(row)) {
                let wide = font::width(&p.label, SMALL, false);
                let left = (p.ns as f64 / 2.0 - 2.0).min(500.0 - wide);
                assert!(left >= end, "row {row}: {left} after {end}");
                end = left + wide;
            }
        }
        assert!(placed.iter().any(|p| p.row.is_none()), "too many for three rows");
    }

    #[test]
    fn marks_outside_the_window_are_not_drawn() {
        let time = Cells { from: 100, to: 200, count: 50 };
        let placed = place(&[mark(99, "a"), mark(150, "b"), mark(201, "c"), mark(-5, "d")], time, 400.0);
        assert_eq!(placed.len(), 1);
        assert_eq!(placed[0].label, "b");
    }
}
