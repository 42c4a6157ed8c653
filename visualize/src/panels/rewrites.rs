//! P12, the rewrite map: every written 4 KiB block. Colour: time since its previous write. Shade: number of writes.

use std::collections::HashMap;

use ioreel_analyze::{
    events::requests::Class,
    meters::{bins::Bins, visits::Visits},
};
use rustc_hash::FxBuildHasher;

use super::panel::{About, Issue, Needs, OFFSET_HEIGHT, Panel, Spec};
use crate::{
    canvas::{
        raster::{Blend, Cells},
        theme::Ink,
    },
    model::{
        offset_axis::OffsetAxis,
        palette::Grids,
        shape::{Field, Shape},
        value_axis::Rows,
    },
};

pub(super) const SPEC: Spec = Spec {
    name: "rewrites",
    title: "Rewrites",
    unit: "blocks of 4 KiB by the time since they were last written",
    about: About::Device,
    height: OFFSET_HEIGHT,
    make: |s| {
        Ok(Box::new(Rewrites {
            time: s.time,
            bins: s.bins,
            axis: s.offsets.clone(),
            grids: Grids::new(s.time.count, s.offsets.rows, LABELS.len()),
            written: HashMap::default(),
            one_in: 1,
            visits: Visits::of(MOST_VISITS),
            sampled: Visits::of(MOST_SAMPLED),
        }))
    },
};

const LABELS: [&str; 4] = ["first write", "again after more than 30 s", "within 30 s", "within 5 s"];
const INKS: [Ink; 4] = [Ink::Grey, Ink::Hue(4), Ink::Hue(5), Ink::Write];
/// Sectors of a block.
const BLOCK: i64 = 8;
/// Maximum number of blocks. Beyond it, half of them, by a hash of their number, are ignored.
const MOST_BLOCKS: usize = 8 << 20;
/// Maximum number of written blocks visited one by one (8 TiB), and of those that are counted (2 TiB).
const MOST_VISITS: u64 = 1 << 31;
const MOST_SAMPLED: u64 = 1 << 29;

struct Rewrites {
    time: Cells,
    bins: Bins,
    axis: OffsetAxis,
    grids: Grids,
    /// Time of the last write of each block.
    written: HashMap<i64, i64, FxBuildHasher>,
    /// One in this many blocks is counted; a power of two.
    one_in: u64,
    visits: Visits,
    /// Limit on blocks that are counted.
    sampled: Visits,
}

/// Hashes a block number (the finaliser of MurmurHash3), so that sampling follows no pattern.
pub(super) fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

impl Rewrites {
    fn interval(since_ns: Option<i64>) -> usize {
        const S: i64 = 1_000_000_000;
        match since_ns {
            None => 0,
            Some(ns) if ns > 30 * S => 1,
            Some(ns) if ns > 5 * S => 2,
            Some(_) => 3,
        }
    }
}

impl Panel for Rewrites {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn cost(&self) -> u32 {
        8
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request).filter(|r| r.class == Class::Write && r.sector >= 0) {
            let Some(columns) = self.time.span(r.issue_ns, r.last_ns()) else { continue };
            let end = self.visits.clip(r.sector, r.end_sector());
            if end <= r.sector {
                continue;
            }
            for block in r.sector / BLOCK..=(end - 1) / BLOCK {
                if scatter(block as u64) & (self.one_in - 1) != 0 || self.sampled.take(1) == 0 {
                    continue;
                }
                let before = self.written.insert(block, r.issue_ns);
                let layer = Self::interval(before.map(|b| r.issue_ns.saturating_sub(b)));
                let (start, end) = ((block * BLOCK).max(r.sector), (block * BLOCK).saturating_add(BLOCK).min(end));
                let grids = &mut self.grids;
                self.axis.spans(start, end, |rows| grids.add(layer, columns, rows));
            }
            if self.written.len() > MOST_BLOCKS {
                self.one_in *= 2;
                let one_in = self.one_in;
                self.written.retain(|block, _| scatter(*block as u64) & (one_in - 1) == 0);
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let inks = INKS.into_iter().zip(LABELS.map(String::from)).collect();
        let mut note = if self.one_in > 1 { format!("1 in {} blocks", self.one_in) } else { String::new() };
        if self.visits.are_used_up() || self.sampled.are_used_up() {
            note.push_str(" (later writes left out)");
        }
        Shape::Field(Field {
            rows: Rows::Offsets(self.axis),
            layers: self.grids.layers(inks),
            blend: Blend::Last,
            curves: Vec::new(),
            bins: self.bins,
            strip: None,
            flows: Vec::new(),
            note,
        })
    }
}
