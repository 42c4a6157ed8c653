//! File map of a reel without operations, from bios.

use ioreel_analyze::events::{
    bios::{Bio, each_bio},
    requests::Class,
};
use ioreel_traces::{Reel, rows};
use rustc_hash::FxHashMap;

use super::{
    columns::Column,
    container::Thin,
    lanes::{Lanes, Used},
    requests::{MAP_ROWS, Plan},
    sample::{Held, Sample},
};
use crate::{
    Result,
    canvas::raster::{Cells, Counts, Grid},
};

/// A bio with data of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleBio {
    queue_ns: i64,
    complete_ns: Option<i64>,
    class: Class,
    file: i64,
    offset_bytes: i64,
    len_bytes: i64,
}

/// Data of the file map.
#[derive(Debug)]
pub(super) struct BiosView {
    /// Axis of the files.
    pub(super) lanes: Lanes,
    /// Number of bios per cell of time and position: reads, writes. `None` if all are in the page individually.
    pub(super) map: Option<[Counts; 2]>,
    /// Individual bios.
    pub(super) singles: Held<SingleBio>,
}

impl SingleBio {
    /// For a read or write of a file at a known offset.
    fn of(b: &Bio<'_>) -> Option<Self> {
        let (file, offset_bytes) = (b.file?, b.file_offset_bytes?);
        let single = Self {
            queue_ns: b.queue_ns,
            complete_ns: b.complete_ns,
            class: b.class,
            file,
            offset_bytes,
            len_bytes: b.len_bytes,
        };
        (b.class.is_data() && offset_bytes >= 0 && b.len_bytes > 0).then_some(single)
    }

    fn took_ns(&self) -> i64 {
        self.complete_ns.map_or(0, |c| c.saturating_sub(self.queue_ns)).max(0)
    }
}

/// Reads the bios. Reads them again for the map if not all fit into the page individually.
pub(super) fn draw(reel: &Reel, plan: &Plan) -> Result<Option<BiosView>> {
    let fits = u64::try_from(reel.count::<rows::Bio>()).unwrap_or(0) <= plan.singles as u64;
    let mut used: FxHashMap<i64, Used> = FxHashMap::default();
    let mut singles = Sample::new(plan.singles, if fits { 0 } else { plan.slowest });
    let each = |each: &mut dyn FnMut(&SingleBio)| {
        each_bio(reel, |b| {
            if let Some(single) = SingleBio::of(b).filter(|_| plan.window.meets(b.queue_ns, b.last_ns())) {
                each(&single);
            }
        })
    };
    each(&mut |b| {
        used.entry(b.file).or_default().add(b.offset_bytes, u64::try_from(b.len_bytes).unwrap_or(0));
        singles.push(b.took_ns(), *b);
    })?;
    let singles = singles.finish();
    if used.is_empty() {
        return Ok(None);
    }
    let lanes = Lanes::new(reel, &used)?;
    let mut map = None;
    if !singles.is_complete() {
        let time = Cells { from: plan.window.from_ns, to: plan.window.to_ns, count: plan.columns };
        let mut grids: [Grid; 2] = std::array::from_fn(|_| Grid::new(time.count, MAP_ROWS));
        each(&mut |b| {
            let bytes = u64::try_from(b.len_bytes).unwrap_or(0);
            let rows = lanes.place(b.file).and_then(|lane| lanes.rows(lane, b.offset_bytes, bytes, MAP_ROWS));
            if let (Some(rows), Some(columns)) = (rows, time.span(b.queue_ns, b.complete_ns.unwrap_or(b.queue_ns))) {
                grids[usize::from(b.class == Class::Write)].add(columns, rows);
            }
        })?;
        map = Some(grids.map(|g| g.counts()));
    }
    Ok(Some(BiosView { lanes, map, singles }))
}

/// Individual bios as columns.
#[derive(Debug)]
pub(super) struct BioTable {
    rows: Held<SingleBio>,
    /// Lane of each bio's file.
    places: FxHashMap<i64, i64>,
}

impl BioTable {
    /// With the lane of each file.
    pub(super) fn new(rows: Held<SingleBio>, place: impl Fn(i64) -> i64) -> Self {
        let places = rows.events.iter().map(|b| (b.file, place(b.file))).collect();
        Self { rows, places }
    }
}

impl Thin for BioTable {
    fn columns(&self) -> Vec<Column> {
        let rows = || self.rows.events.iter();
        let flags = rows().zip(&self.rows.slow).map(|(b, slow)| {
            use super::table::bits;
            let bit = |is: bool, bit: u8| if is { bit } else { 0 };
            bits::QUEUED | bit(*slow, bits::SLOW) | bit(b.complete_ns.is_some(), bits::COMPLETE)
        });
        vec![
            Column::integers("bios.total", [self.rows.total as i64, self.rows.one_in as i64].into_iter()),
            Column::differences("bios.at", rows().map(|b| b.queue_ns)),
            Column::integers("bios.took", rows().map(SingleBio::took_ns)),
            Column::bytes("bios.class", rows().map(|b| b.class as u8).collect()),
            Column::bytes("bios.flags", flags.collect()),
            Column::integers("bios.file", rows().map(|b| self.places.get(&b.file).copied().unwrap_or(-1))),
            Column::integers("bios.offset", rows().map(|b| b.offset_bytes)),
            Column::integers("bios.bytes", rows().map(|b| b.len_bytes)),
        ]
    }

    fn halve(&mut self) {
        self.rows.halve();
    }

    fn held(&self) -> usize {
        self.rows.events.len()
    }
}
