//! P1f, the file map: reads and writes of file ranges over time. The files with most bytes have one lane each, from the
//! lowest touched byte (bottom) to the highest. Uses calls; for a reel without calls, bios with data.

use std::{collections::HashMap, sync::Arc};

use ioreel_analyze::{
    events::{
        bios::{Bio, each_bio},
        calls::{Call, each_call},
    },
    meters::bins::Bins,
};
use ioreel_traces::rows::{File, Op};

use super::panel::{About, Needs, Panel, Setup, Spec};
use crate::{
    Result,
    canvas::{font, raster::Cells, scale::bytes},
    model::{
        palette::{Grids, Palette},
        shape::{Field, Shape},
        value_axis::{Lane, Rows},
    },
};

pub(super) const SPEC: Spec =
    Spec { name: "files", title: "File offset", unit: "", about: About::All, height: HEIGHT, make };

const HEIGHT: u32 = 300;
/// Number of lanes: fewer would hide files, more would be too thin.
const LANES: usize = 10;
/// Rows of a lane for each cell size, and between lanes.
const LANE_PX: u32 = 28;
const GAP_PX: u32 = 4;

/// The range that a call or bio touches: file, first byte, byte after the last.
fn touched(c: &Call<'_>) -> Option<(i64, i64, i64)> {
    let (file, offset, n) = (c.file?, c.offset_bytes?, i64::try_from(c.bytes()).ok()?);
    (n > 0 && offset >= 0).then(|| (file, offset, offset.saturating_add(n)))
}

fn touched_by_bio(b: &Bio<'_>) -> Option<(i64, i64, i64)> {
    let (file, offset) = (b.file?, b.file_offset_bytes?);
    (b.len_bytes > 0 && offset >= 0).then(|| (file, offset, offset.saturating_add(b.len_bytes)))
}

/// Bytes moved of a file, and its touched range.
#[derive(Clone, Copy)]
struct Use {
    bytes: u64,
    from: i64,
    to: i64,
}

fn make(s: &Setup<'_>) -> Result<Box<dyn Panel>> {
    let of_bios = s.reel.count::<Op>() == 0;
    let mut uses: HashMap<i64, Use> = HashMap::new();
    let window = (s.time.from, s.time.to);
    let mut add = |t_ns: i64, touched: Option<(i64, i64, i64)>| {
        let Some((file, from, to)) = touched.filter(|_| t_ns >= window.0 && t_ns <= window.1) else { return };
        let u = uses.entry(file).or_insert(Use { bytes: 0, from, to });
        u.bytes = u.bytes.saturating_add(to.abs_diff(from));
        (u.from, u.to) = (u.from.min(from), u.to.max(to));
    };
    if of_bios {
        each_bio(s.reel, |b| add(b.last_ns(), touched_by_bio(b)))?;
    } else {
        each_call(s.reel, |c| {
            if !c.by_tool {
                add(c.end_ns(), touched(c));
            }
        })?;
    }
    let mut ranked: Vec<(i64, Use)> = uses.into_iter().collect();
    ranked.sort_by_key(|(file, u)| (std::cmp::Reverse(u.bytes), *file));
    let rest = ranked.len().saturating_sub(LANES);
    ranked.truncate(LANES);
    let mut names: HashMap<i64, String> = HashMap::new();
    for row in s.reel.rows::<File>() {
        let row = row?;
        if ranked.iter().any(|(file, _)| *file == row.file) {
            names.extend(row.path.map(|p| (row.file, font::showable(&p))));
        }
    }
    let cell_px = s.offsets.row_px;
    let (rows, gap) = (LANE_PX / cell_px, GAP_PX.div_ceil(cell_px));
    let lanes = ranked.iter().enumerate().map(|(i, (file, u))| {
        let name = names.get(file).cloned().unwrap_or_else(|| format!("file {file}"));
        let label = format!("{name}, {} to {}", bytes(u.from as u64), bytes(u.to as u64));
        Lane { key: name, label, row: i as u32 * (rows + gap), rows }
    });
    let axis = Rows::Lanes { lanes: lanes.collect(), row_px: cell_px };
    let words = ["others", "reads", "writes"];
    Ok(Box::new(Files {
        of_bios,
        time: s.time,
        bins: s.bins,
        grids: Grids::new(s.time.count, axis.count(), s.palette.layers(words).len()),
        places: ranked
            .iter()
            .enumerate()
            .map(|(i, (file, u))| (*file, (i as u32 * (rows + gap), Cells { from: u.from, to: u.to, count: rows })))
            .collect(),
        palette: Arc::clone(&s.palette),
        words,
        axis,
        rest,
    }))
}

struct Files {
    of_bios: bool,
    time: Cells,
    bins: Bins,
    palette: Arc<Palette>,
    words: [&'static str; 3],
    axis: Rows,
    /// First row and cells of each file's lane.
    places: HashMap<i64, (u32, Cells)>,
    grids: Grids,
    /// Number of files without a lane.
    rest: usize,
}

impl Files {
    fn add(&mut self, layer: usize, touched: Option<(i64, i64, i64)>, from_ns: i64, to_ns: i64) {
        let Some((file, from, to)) = touched else { return };
        let Some((row, cells)) = self.places.get(&file) else { return };
        let (Some(columns), Some((low, high))) = (self.time.span(from_ns, to_ns), cells.span(from, to - 1)) else {
            return;
        };
        let bottom = row + cells.count - 1;
        self.grids.add(layer, columns, (bottom - high, bottom - low));
    }
}

impl Panel for Files {
    fn needs(&self) -> Needs {
        if self.of_bios { Needs::Bios } else { Needs::Calls }
    }

    fn call(&mut self, c: &Call<'_>) {
        let layer = self.palette.of_call(c);
        self.add(layer, touched(c), c.start_ns, c.end_ns());
    }

    fn bio(&mut self, b: &Bio<'_>) {
        let layer = self.palette.of_bio(b);
        self.add(layer, touched_by_bio(b), b.queue_ns, b.last_ns());
    }

    fn finish(self: Box<Self>) -> Shape {
        let what = if self.of_bios { "by bios" } else { "by calls" };
        let rest = if self.rest > 0 { format!(", {} more files are not shown", self.rest) } else { String::new() };
        Shape::Field(Field {
            layers: self.grids.layers(self.palette.layers(self.words)),
            blend: self.palette.blend(),
            rows: self.axis,
            curves: Vec::new(),
            bins: self.bins,
            strip: None,
            flows: Vec::new(),
            note: format!("{what}, most bytes first{rest}"),
        })
    }
}
