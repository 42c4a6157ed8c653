//! Streams the bios of a reel.

use std::collections::BTreeSet;

use ioreel_traces::{
    Reel, Text,
    rows::Bio as Row,
    table::{Cell, Column, Row as _, column},
};

use crate::{
    Result, bad_column,
    events::requests::{Class, MOST_DEVICES, MOST_REQUEST_BYTES},
};

/// One bio; fields as in [`Row`].
#[derive(Clone, Copy, Debug)]
pub struct Bio<'a> {
    /// Its id.
    pub bio_id: i64,
    /// The request that contains it. `None` on a device without requests.
    pub rq_id: Option<i64>,
    /// Time of queueing.
    pub queue_ns: i64,
    /// Time of completion. `None` if the recording ended before.
    pub complete_ns: Option<i64>,
    /// Device number.
    pub dev: i64,
    /// First sector.
    pub sector: i64,
    /// Length.
    pub len_bytes: i64,
    /// Its operation: read, write, …
    pub class: Class,
    /// The thread that queued it.
    pub task_id: Option<i64>,
    /// That thread's name.
    pub comm: &'a Text,
    /// The file whose data it carries.
    pub file: Option<i64>,
    /// Offset in the file.
    pub file_offset_bytes: Option<i64>,
    /// Class of its content: `data`, `journal`, …
    pub content: &'a Text,
    /// The operation that caused it.
    pub cause: Option<i64>,
}

impl Bio<'_> {
    /// The sector after the last one.
    pub fn end_sector(&self) -> i64 {
        crate::events::requests::end_sector(self.sector, self.len_bytes)
    }

    /// Time of completion; if unknown, of queueing.
    pub fn last_ns(&self) -> i64 {
        self.complete_ns.unwrap_or(self.queue_ns)
    }
}

const COLUMNS: [&str; 14] = [
    "bio_id",
    "rq_id",
    "queue_ns",
    "complete_ns",
    "dev",
    "sector",
    "len_bytes",
    "op",
    "task_id",
    "comm",
    "file",
    "file_offset_bytes",
    "class",
    "cause",
];

/// The devices that bios were queued to, at most [`MOST_DEVICES`].
///
/// # Errors
/// When the reel cannot be read.
pub fn devices_of_bios(reel: &Reel) -> Result<BTreeSet<i64>> {
    let mut devices = BTreeSet::new();
    let mut last = None;
    for batch in reel.batches::<Row>(&["dev"]) {
        let batch = batch?;
        let dev = column::<i64>(&batch, "dev").map_err(bad_column(Row::TABLE))?;
        for i in 0..batch.num_rows() {
            let dev = <i64 as Cell>::get(&dev, i);
            if last.replace(dev) != Some(dev) && devices.len() < MOST_DEVICES {
                devices.insert(dev);
            }
        }
    }
    Ok(devices)
}

/// Calls `each` with every bio, segment by segment. Memory: one batch.
///
/// # Errors
/// When the reel cannot be read.
pub fn each_bio(reel: &Reel, mut each: impl FnMut(&Bio<'_>)) -> Result<()> {
    let none = Text::default();
    for batch in reel.batches::<Row>(&COLUMNS) {
        let batch = batch?;
        let bad = |why| bad_column(Row::TABLE)(why);
        let number = |name| column::<i64>(&batch, name).map_err(bad);
        let maybe = |name| column::<Option<i64>>(&batch, name).map_err(bad);
        let (queue_ns, dev, sector, len) =
            (number("queue_ns")?, number("dev")?, number("sector")?, number("len_bytes")?);
        let bio_id = number("bio_id")?;
        let (complete_ns, task_id, file) = (maybe("complete_ns")?, maybe("task_id")?, maybe("file")?);
        let (offset, cause, rq_id) = (maybe("file_offset_bytes")?, maybe("cause")?, maybe("rq_id")?);
        let text = |name| column::<Text>(&batch, name).map_err(bad);
        let (op, comm, content) = (text("op")?, text("comm")?, text("class")?);
        let (Column::Text(op, ops), Column::Text(comm, comms), Column::Text(content, contents)) =
            (&op, &comm, &content)
        else {
            return Err(bad("op, comm or class is no text".into()));
        };
        let classes: Vec<Option<Class>> = ops.iter().map(|n| n.as_ref().map(|n| Class::of(n))).collect();
        let get = <i64 as Cell>::get;
        let option = <Option<i64> as Cell>::get;
        for i in 0..batch.num_rows() {
            each(&Bio {
                bio_id: get(&bio_id, i),
                rq_id: option(&rq_id, i),
                queue_ns: get(&queue_ns, i),
                complete_ns: option(&complete_ns, i),
                dev: get(&dev, i),
                sector: get(&sector, i),
                len_bytes: get(&len, i).min(MOST_REQUEST_BYTES),
                class: op.key(i).and_then(|k| classes.get(k).copied().flatten()).unwrap_or(Class::Other),
                task_id: option(&task_id, i),
                comm: comm.key(i).and_then(|k| comms.get(k)?.as_ref()).unwrap_or(&none),
                file: option(&file, i),
                file_offset_bytes: option(&offset, i),
                content: content.key(i).and_then(|k| contents.get(k)?.as_ref()).unwrap_or(&none),
                cause: option(&cause, i),
            });
        }
    }
    Ok(())
}
