//! Statistics from bios: merges, time between bios, bytes by class, file layout, readahead.

use std::collections::{BTreeMap, HashMap, HashSet};

use ioreel_traces::{
    Reel, Text,
    rows::{Bio, block_flags},
    table::{Cell, Column, Row, column},
};
use rustc_hash::FxHashSet;
use serde::Serialize;

use super::{block::Queued, extents::ExtentMeter, of_device, readahead::Readahead};
use crate::{
    Result, bad_column,
    events::{order::settled_ns, requests::Class, scope::Scope},
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

impl BioPass {
    pub(super) fn of(reel: &Reel, scope: &Scope) -> Result<Self> {
        let mut pass = Self::default();
        let mut known: HashMap<Text, usize> = HashMap::new();
        let columns = [
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
        let listed = reel.manifest.segments.get(Bio::TABLE).map(Vec::as_slice).unwrap_or_default();
        let batches = settled_ns(listed)
            .into_iter()
            .enumerate()
            .flat_map(|(i, settled_ns)| reel.segment_batches::<Bio>(i, &columns).map(move |batch| (settled_ns, batch)));
        for (settled_ns, batch) in batches {
            let batch = batch?;
            let bad = |why| bad_column(Bio::TABLE)(why);
            let number = |name| column::<i64>(&batch, name).map_err(bad);
            let maybe = |name| column::<Option<i64>>(&batch, name).map_err(bad);
            let (queue_ns, dev) = (number("queue_ns")?, number("dev")?);
            let (sector, len_bytes) = (number("sector")?, number("len_bytes")?);
            let (complete_ns, task_id) = (maybe("complete_ns")?, maybe("task_id")?);
            let (file, offset) = (maybe("file")?, maybe("file_offset_bytes")?);
            let flags = column::<i32>(&batch, "flags").map_err(bad)?;
            let (op, class) =
                (column::<Text>(&batch, "op").map_err(bad)?, column::<Text>(&batch, "class").map_err(bad)?);
            let (Column::Text(op, ops), Column::Text(class, classes)) = (&op, &class) else {
                return Err(bad("op or class is no text".into()));
            };
            let ops: Vec<Class> = ops.iter().map(|n| n.as_ref().map_or(Class::Other, |n| Class::of(n))).collect();
            let classes: Vec<usize> = classes
                .iter()
                .map(|n| {
                    let name = n.clone().unwrap_or_default();
                    let next = known.len();
                    let index = *known.entry(name.clone()).or_insert(next);
                    if index == pass.classes.len() {
                        pass.classes.push(ClassBytes { class: name.to_string(), ..ClassBytes::default() });
                    }
                    index
                })
                .collect();
            let is_index: Vec<bool> = pass.classes.iter().map(|c| INDEX.contains(&&*c.class)).collect();
            let is_data: Vec<bool> = pass.classes.iter().map(|c| c.class == "data").collect();
            let (number, maybe) = (<i64 as Cell>::get, <Option<i64> as Cell>::get);
            for i in 0..batch.num_rows() {
                let (queue_ns, dev) = (number(&queue_ns, i), number(&dev, i));
                let file = maybe(&file, i);
                if !scope.holds_time(queue_ns)
                    || !scope.holds_device(dev)
                    || !scope.holds(maybe(&task_id, i), [file, None])
                {
                    continue;
                }
                let len = number(&len_bytes, i);
                let op = op.key(i).and_then(|k| ops.get(k).copied()).unwrap_or(Class::Other);
                if let Some(q) = of_device(&mut pass.devices, dev, Queued::default) {
                    q.bios += 1;
                    q.queued(queue_ns, settled_ns);
                    q.data += u64::from(len > 0 && op.is_data());
                }
                let Some(class) = class.key(i).and_then(|k| classes.get(k).copied()) else { continue };
                if !op.is_data() {
                    continue;
                }
                let bytes = u64::try_from(len).unwrap_or(0);
                let c = &mut pass.classes[class];
                let (n, sum) = if op == Class::Read {
                    (&mut c.reads, &mut c.read_bytes)
                } else {
                    (&mut c.writes, &mut c.write_bytes)
                };
                *n += 1;
                *sum = sum.saturating_add(bytes);
                if let Some(complete) = maybe(&complete_ns, i) {
                    c.time_ns = c.time_ns.saturating_add(u64::try_from(complete.saturating_sub(queue_ns)).unwrap_or(0));
                }
                let sector = number(&sector, i);
                if is_index[class] && op == Class::Write && pass.index_blocks.len() < MOST_INDEX_BLOCKS {
                    let blocks = (sector >> 3)..=(sector.saturating_add(len.max(1) / 512 - 1).max(sector) >> 3);
                    pass.index_blocks.extend(blocks.take(1024).map(|b| (dev, b)));
                }
                if is_data[class]
                    && let (Some(file), Some(offset)) = (file, maybe(&offset, i))
                {
                    pass.layout.push(file, offset, dev, sector, len);
                    let flags = <i32 as Cell>::get(&flags, i);
                    if op == Class::Read && flags & block_flags::READAHEAD != 0 {
                        pass.readahead.read_ahead(file, offset, len, queue_ns);
                    }
                }
            }
        }
        pass.devices.values_mut().for_each(Queued::settle);
        pass.classes.retain(|c| c.reads + c.writes > 0);
        pass.classes.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.class.cmp(&b.class)));
        Ok(pass)
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
