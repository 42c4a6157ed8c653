//! P1, the offset map: sectors and time in flight of every request. If coloured by process, class or file, it shows
//! bios from queueing to completion instead.

use std::sync::Arc;

use ioreel_analyze::events::{bios::Bio, requests::Class};

use super::panel::{About, Issue, Needs, OFFSET_HEIGHT, Panel, Spec};
use crate::{
    canvas::{
        raster::{Cells, Grid},
        theme::Ink,
    },
    model::{
        offset_axis::OffsetAxis,
        palette::{ColorBy, Grids, Palette},
        shape::{Field, Layer, Shape},
        value_axis::Rows,
    },
};

pub(super) const SPEC: Spec = Spec {
    name: "offsets",
    title: "Device offset",
    unit: "",
    about: About::Device,
    height: OFFSET_HEIGHT,
    make: |s| {
        let words = ["discards, zeroing", "reads", "writes"];
        let layers = s.palette.layers(words).len();
        Ok(Box::new(Offsets {
            time: s.time,
            bins: s.bins,
            axis: s.offsets.clone(),
            dev: s.survey.device.as_ref().map_or(-1, |d| d.dev),
            palette: Arc::clone(&s.palette),
            words,
            grids: Grids::new(s.time.count, s.offsets.rows, layers),
            flushes: None,
        }))
    },
};

struct Offsets {
    time: Cells,
    bins: ioreel_analyze::meters::bins::Bins,
    axis: OffsetAxis,
    dev: i64,
    palette: Arc<Palette>,
    words: [&'static str; 3],
    grids: Grids,
    flushes: Option<Grid>,
}

impl Offsets {
    fn add(&mut self, class: Class, layer: usize, (from_ns, to_ns): (i64, i64), (start, end): (i64, i64)) {
        let Some(columns) = self.time.span(from_ns, to_ns) else { return };
        if class == Class::Flush || start < 0 {
            // A flush has no address; it is drawn in a strip.
            self.flushes.get_or_insert_with(|| Grid::new(self.time.count, 1)).add(columns, (0, 0));
        } else {
            let grids = &mut self.grids;
            self.axis.spans(start, end, |rows| grids.add(layer, columns, rows));
        }
    }
}

impl Panel for Offsets {
    fn needs(&self) -> Needs {
        if self.palette.needs_bios() { Needs::Bios } else { Needs::Requests }
    }

    fn cost(&self) -> u32 {
        3
    }

    fn requests(&mut self, batch: &[Issue]) {
        for i in batch {
            let r = &i.request;
            let layer = self.palette.of_request(r);
            self.add(r.class, layer, (r.issue_ns, r.last_ns()), (r.sector, r.end_sector()));
        }
    }

    fn bio(&mut self, b: &Bio<'_>) {
        if b.dev == self.dev {
            let layer = self.palette.of_bio(b);
            self.add(b.class, layer, (b.queue_ns, b.last_ns()), (b.sector, b.end_sector()));
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let mut layers = self.grids.layers(self.palette.layers(self.words));
        if self.palette.by == ColorBy::Op {
            // Discards are drawn below the data in one tint: they mean freed space, not activity.
            layers[0].flat = true;
        }
        let strip = self.flushes.map(|grid| Layer {
            ink: Ink::Flush,
            label: "flushes (strip on top)".into(),
            counts: grid.counts(),
            flat: false,
        });
        let note = if self.palette.needs_bios() { "of bios, queueing to completion".into() } else { String::new() };
        Shape::Field(Field {
            rows: Rows::Offsets(self.axis),
            layers,
            blend: self.palette.blend(),
            curves: Vec::new(),
            bins: self.bins,
            strip,
            flows: Vec::new(),
            note,
        })
    }
}
