//! Draws shapes and the page around them. One file per kind of shape, shared by all panels.
//!
//! In: columns of shapes. Out: a [`picture::Picture`]. May use: `canvas`, `model`, `panels` (their titles and heights).
//!
//! * `painter` lays out the page; `frame` draws frames, grids, legends and axes;
//! * `fields`, `lines` and `charts` draw the three kinds of shapes, `facts` the table below them;
//! * `through` and `marks` draw across all panels: losses, clock jumps, the end of the work, named markers.

pub(crate) mod charts;
pub(crate) mod facts;
pub(crate) mod fields;
pub(crate) mod frame;
pub(crate) mod lines;
pub(crate) mod marks;
pub(crate) mod painter;
pub(crate) mod picture;
pub(crate) mod through;

use crate::{
    canvas::{
        svg::{Area, Svg},
        theme::Theme,
    },
    draw::painter::Column,
};

/// A tint over the settling time of the file systems.
fn settle_shade(svg: &mut Svg, theme: &Theme, area: Area, c: &Column) {
    if let Some((from_ns, to_ns)) = c.settling() {
        let x = |t_ns: i64| frame::time_x(area, c.time, c.squeeze.place(t_ns));
        svg.rect(Area { x: x(from_ns), w: (x(to_ns) - x(from_ns)).max(0.0), ..area }, theme.shade, 0.13);
    }
}
