//! Statistics from bios: merges, time between bios, bytes by class, file layout, readahead.

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow_array::{DictionaryArray, RecordBatch, types::Int32Type};
use ioreel_traces::{
    Reel, Text,
    rows::{Bio, block_flags},
    table::{Cell, Column, Row, column},
};
use rustc_hash::FxHashSet;
use serde::Serialize;

use super::{block::Queued, extents::ExtentMeter, readahead::Readahead};
use crate::{
    Result, bad_column,
    events::{
        order::settled_ns,
        requests::{Class, MOST_REQUEST_BYTES, of_device},
        scope::Scope,
    },
};

/// Bytes and bios of one class (`data`, `journal`, …).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassBytes {
    /// The class, as in the reel.
    pub class: String,
    /// Bios that read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bios that write.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sum of the times from queueing to completion, ns.
    pub time_ns: u64,
}

/// Statistics collected from bios.
#[derive(Debug, Default)]
pub(super) struct BioPass {
    pub(super) devices: BTreeMap<i64, Queued>,
    pub(super) classes: Vec<ClassBytes>,
    pub(super) layout: ExtentMeter,
    pub(super) readahead: Readahead,
    /// Distinct 4 KiB blocks of metadata written, without the journal.
    pub(super) index_blocks: FxHashSet<(i64, i64)>,
}

/// Classes of file system structures at their final position.
const INDEX: [&str; 7] = ["metadata", "inode_table", "directory", "bitmap", "tree", "extent_map", "superblock"];
/// Maximum number of metadata blocks distinguished. Beyond it, `index_churn` is a lower bound.
const MOST_INDEX_BLOCKS: usize = 1 << 22;

/// Columns that are counted.
const COLUMNS: [&str; 11] = [
    "queue_ns",
    "complete_ns",
    "dev",
    "sector",
    "len_bytes",
    "op",
    "flags",
    "task_id",
    "file",
    "file_offset_bytes",
    "class",
];

/// A bio, as far as it is counted.
struct Counted {
    queue_ns: i64,
    complete_ns: Option<i64>,
    dev: i64,
    sector: i64,
    len_bytes: i64,
    op: Class,
    flags: i32,
    task_id: Option<i64>,
    file: Option<i64>,
    file_offset_bytes: Option<i64>,
    /// Place of its class among those of the batch; none where it has none.
    class: Option<usize>,
}

/// Bios of one batch, by column.
struct Bios<'a> {
    rows: usize,
    queue_ns: Column<'a>,
    complete_ns: Column<'a>,
    dev: Column<'a>,
    sector: Column<'a>,
    len_bytes: Column<'a>,
    flags: Column<'a>,
    task_id: Column<'a>,
    file: Column<'a>,
    file_offset_bytes: Column<'a>,
    op: &'a DictionaryArray<Int32Type>,
    /// What the words of `op` mean.
    ops: Vec<Class>,
    class: &'a DictionaryArray<Int32Type>,
    /// The words of `class`.
    classes: Vec<Text>,
}

impl<'a> Bios<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Self, String> {
        let number = |name| column::<i64>(batch, name);
        let maybe = |name| column::<Option<i64>>(batch, name);
        let (op, class) = (column::<Text>(batch, "op")?, column::<Text>(batch, "class")?);
        let (Column::Text(op, ops), Column::Text(class, classes)) = (op, class) else {
            return Err("op or class is no text".into());
        };
        Ok(Self {
            rows: batch.num_rows(),
            queue_ns: number("queue_ns")?,
            complete_ns: maybe("complete_ns")?,
            dev: number("dev")?,
            sector: number("sector")?,
            len_bytes: number("len_bytes")?,
            flags: column::<i32>(batch, "flags")?,
            task_id: maybe("task_id")?,
            file: maybe("file")?,
            file_offset_bytes: maybe("file_offset_bytes")?,
            op,
            ops: ops.iter().map(|n| n.as_ref().map_or(Class::Other, |n| Class::of(n))).collect(),
            class,
            classes: classes.into_iter().map(Option::unwrap_or_default).collect(),
        })
    }

    fn get(&self, i: usize) -> Counted {
        let (number, maybe) = (<i64 as Cell>::get, <Option<i64> as Cell>::get);
        Counted {
            queue_ns: number(&self.queue_ns, i),
            complete_ns: maybe(&self.complete_ns, i),
            dev: number(&self.dev, i),
            sector: number(&self.sector, i),
            len_bytes: number(&self.len_bytes, i).min(MOST_REQUEST_BYTES),
            op: self.op.key(i).and_then(|k| self.ops.get(k).copied()).unwrap_or(Class::Other),
            flags: <i32 as Cell>::get(&self.flags, i),
            task_id: maybe(&self.task_id, i),
            file: maybe(&self.file, i),
            file_offset_bytes: maybe(&self.file_offset_bytes, i),
            class: self.class.key(i).filter(|k| *k < self.classes.len()),
        }
    }
}

/// A class that occurs in a batch.
struct ClassPlace {
    /// Where it is counted.
    at: usize,
    is_index: bool,
    is_data: bool,
}

impl ClassBytes {
    /// Counts a bio that reads or writes.
    fn push(&mut self, bio: &Counted) {
        let (n, sum) = if bio.op == Class::Read {
            (&mut self.reads, &mut self.read_bytes)
        } else {
            (&mut self.writes, &mut self.write_bytes)
        };
        *n += 1;
        *sum = sum.saturating_add(u64::try_from(bio.len_bytes).unwrap_or(0));
        if let Some(complete_ns) = bio.complete_ns {
            let took_ns = u64::try_from(complete_ns.saturating_sub(bio.queue_ns)).unwrap_or(0);
            self.time_ns = self.time_ns.saturating_add(took_ns);
        }
    }
}

impl BioPass {
    pub(super) fn of(reel: &Reel, scope: &Scope) -> Result<Self> {
        let mut pass = Self::default();
        let mut known: HashMap<Text, usize> = HashMap::new();
        let listed = reel.manifest.segments.get(Bio::TABLE).map(Vec::as_slice).unwrap_or_default();
        let batches = settled_ns(listed)
            .into_iter()
            .enumerate()
            .flat_map(|(i, settled_ns)| reel.segment_batches::<Bio>(i, &COLUMNS).map(move |batch| (settled_ns, batch)));
        for (settled_ns, batch) in batches {
            let batch = batch?;
            let bios = Bios::of(&batch).map_err(bad_column(Bio::TABLE))?;
            let classes = pass.places_of(&bios.classes, &mut known);
            for bio in (0..bios.rows).map(|i| bios.get(i)) {
                if scope.holds_time(bio.queue_ns)
                    && scope.holds_device(bio.dev)
                    && scope.holds(bio.task_id, [bio.file, None])
                {
                    pass.push(&bio, settled_ns, &classes);
                }
            }
        }
        pass.devices.values_mut().for_each(Queued::settle);
        pass.classes.retain(|c| c.reads + c.writes > 0);
        pass.classes.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.class.cmp(&b.class)));
        Ok(pass)
    }

    /// Where each of these classes is counted, the new ones added.
    fn places_of(&mut self, names: &[Text], known: &mut HashMap<Text, usize>) -> Vec<ClassPlace> {
        let place = |name: &Text| {
            let next = known.len();
            let at = *known.entry(name.clone()).or_insert(next);
            if at == self.classes.len() {
                self.classes.push(ClassBytes { class: name.to_string(), ..ClassBytes::default() });
            }
            ClassPlace { at, is_index: INDEX.contains(&&**name), is_data: **name == *"data" }
        };
        names.iter().map(place).collect()
    }

    fn push(&mut self, bio: &Counted, settled_ns: i64, classes: &[ClassPlace]) {
        if let Some(q) = of_device(&mut self.devices, bio.dev, Queued::default) {
            q.bios += 1;
            q.queued(bio.queue_ns, settled_ns);
            q.data += u64::from(bio.len_bytes > 0 && bio.op.is_data());
        }
        let Some(class) = bio.class.and_then(|k| classes.get(k)) else { return };
        if !bio.op.is_data() {
            return;
        }
        self.classes[class.at].push(bio);
        if class.is_index && bio.op == Class::Write {
            self.index_written(bio);
        }
        if class.is_data {
            self.data_moved(bio);
        }
    }

    /// Notes which blocks of metadata a bio writes.
    fn index_written(&mut self, bio: &Counted) {
        if self.index_blocks.len() < MOST_INDEX_BLOCKS {
            let (sector, len) = (bio.sector, bio.len_bytes);
            let blocks = (sector >> 3)..=(sector.saturating_add(len.max(1) / 512 - 1).max(sector) >> 3);
            self.index_blocks.extend(blocks.take(1024).map(|b| (bio.dev, b)));
        }
    }

    /// Notes where a file's data lies, and whether it was read ahead.
    fn data_moved(&mut self, bio: &Counted) {
        let (Some(file), Some(offset)) = (bio.file, bio.file_offset_bytes) else { return };
        self.layout.push(file, offset, bio.dev, bio.sector, bio.len_bytes);
        if bio.op == Class::Read && bio.flags & block_flags::READAHEAD != 0 {
            self.readahead.read_ahead(file, offset, bio.len_bytes, bio.queue_ns);
        }
    }

    /// Bytes written of a class.
    pub(super) fn written(&self, class: &str) -> u64 {
        self.classes.iter().find(|c| c.class == class).map_or(0, |c| c.write_bytes)
    }

    /// Files with readahead.
    pub(super) fn files_read_ahead(&self) -> HashSet<i64> {
        self.readahead.files()
    }
}
