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
    canvas::{
        font,
        raster::Cells,
        scale::{bytes, count},
    },
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
/// Paths with less than one part in this many of the bytes of the first have no lane: libraries that a program loads.
const LEAST_PART: u64 = 100;
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

/// The files that had a path one after the other, such as a journal that is made again for each transaction.
struct Place {
    name: String,
    files: Vec<i64>,
    used: Use,
}

/// Joins the files with the same path.
fn by_path(s: &Setup<'_>, uses: HashMap<i64, Use>) -> Result<Vec<Place>> {
    let mut places: HashMap<String, Place> = HashMap::new();
    let mut add = |name: String, file: i64, used: Use| {
        let place =
            places.entry(name.clone()).or_insert(Place { name, files: Vec::new(), used: Use { bytes: 0, ..used } });
        place.used.bytes = place.used.bytes.saturating_add(used.bytes);
        (place.used.from, place.used.to) = (place.used.from.min(used.from), place.used.to.max(used.to));
        place.files.push(file);
    };
    let mut unnamed = uses;
    for row in s.reel.rows::<File>() {
        let row = row?;
        if let Some(path) = row.path
            && let Some(used) = unnamed.remove(&row.file)
        {
            add(font::showable(&path), row.file, used);
        }
    }
    unnamed.into_iter().for_each(|(file, used)| add(format!("file {file}"), file, used));
    let mut places: Vec<Place> = places.into_values().collect();
    places.iter_mut().for_each(|p| p.files.sort_unstable());
    Ok(places)
}

fn make(s: &Setup<'_>) -> Result<Box<dyn Panel>> {
    let of_bios = s.reel.count::<Op>() == 0;
    let mut uses: HashMap<i64, Use> = HashMap::new();
    let window = (s.time.from, s.time.to);
    let mut add = |t_ns: i64, touched: Option<(i64, i64, i64)>| {
        let t_ns = s.squeeze.place(t_ns);
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
                c.parts().for_each(|part| add(c.end_ns(), touched(&part)));
            }
        })?;
    }
    let mut ranked = by_path(s, uses)?;
    ranked.sort_by_key(|p| (std::cmp::Reverse(p.used.bytes), p.files.first().copied()));
    let all = ranked.len();
    ranked.truncate(LANES);
    let least = ranked.first().map_or(0, |p| p.used.bytes / LEAST_PART);
    ranked.retain(|p| p.used.bytes >= least);
    let rest = all - ranked.len();
    let cell_px = s.offsets.row_px;
    let (rows, gap) = (LANE_PX / cell_px, GAP_PX.div_ceil(cell_px));
    let lanes = ranked.iter().enumerate().map(|(i, p)| {
        let files = if p.files.len() > 1 { format!(", {} files", count(p.files.len() as u64)) } else { String::new() };
        let label = format!("{}{files}, {} to {}", p.name, bytes(p.used.from as u64), bytes(p.used.to as u64));
        Lane { key: p.name.clone(), label, row: i as u32 * (rows + gap), rows }
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
            .flat_map(|(i, p)| {
                let place = (i as u32 * (rows + gap), Cells { from: p.used.from, to: p.used.to, count: rows });
                p.files.iter().map(move |file| (*file, place))
            })
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
        for part in c.parts() {
            let layer = self.palette.of_call(&part);
            self.add(layer, touched(&part), c.start_ns, c.end_ns());
        }
    }

    fn bio(&mut self, b: &Bio<'_>) {
        let layer = self.palette.of_bio(b);
        self.add(layer, touched_by_bio(b), b.queue_ns, b.last_ns());
    }

    fn finish(self: Box<Self>) -> Shape {
        let what = if self.of_bios { "by bios" } else { "by calls" };
        let rest = if self.rest > 0 { format!(", {} more paths are not shown", self.rest) } else { String::new() };
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
