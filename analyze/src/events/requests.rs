//! Streams the requests of a reel in dispatch order.

use std::{
    collections::{BTreeMap, VecDeque},
    vec,
};

use arrow_array::RecordBatch;
use ioreel_traces::{
    Reel, ReelError, Text,
    reader::Batches,
    rows::{Bio, Block},
    table::{Cell, Column, Row, column},
};
use serde::Serialize;

use crate::{Result, bad_column};

/// Maximum length of a request or bio: the kernel counts its bytes in 32 bits. A longer one is damage and counts as this
/// long.
pub const MOST_REQUEST_BYTES: i64 = u32::MAX as i64;

/// Maximum number of devices. No machine has more, but a damaged or hostile reel may name one per request.
pub const MOST_DEVICES: usize = 4096;

/// The entry of `dev` in `all`. `None` if there are too many devices.
pub fn of_device<T>(all: &mut BTreeMap<i64, T>, dev: i64, new: impl FnOnce() -> T) -> Option<&mut T> {
    if all.len() >= MOST_DEVICES && !all.contains_key(&dev) {
        return None;
    }
    Some(all.entry(dev).or_insert_with(new))
}

/// Bytes per sector, independent of the device's block size.
pub const SECTOR_BYTES: i64 = 512;

/// Operation of a request. Only `read` and `write` count as moved data; discards, zeroing and flushes have their own
/// classes and never count as written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush of the device's cache; has no address.
    Flush,
    /// Discard.
    Discard,
    /// Secure erase.
    SecureErase,
    /// Zeroing without data.
    WriteZeroes,
    /// Append to a zone.
    ZoneAppend,
    /// Zone open, close, finish, reset.
    ZoneMgmt,
    /// Anything else.
    Other,
}

impl Class {
    /// All classes, in display order.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Discard,
        Self::SecureErase,
        Self::WriteZeroes,
        Self::ZoneAppend,
        Self::ZoneMgmt,
        Self::Other,
    ];

    /// The name in the reel's `op` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::SecureErase => "secure_erase",
            Self::WriteZeroes => "write_zeroes",
            Self::ZoneAppend => "zone_append",
            Self::ZoneMgmt => "zone_mgmt",
            Self::Other => "other",
        }
    }

    /// The class of a name. `Other` if this version does not know it.
    pub fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|c| c.name() == name).unwrap_or(Self::Other)
    }

    /// Whether it is a read or a write.
    pub fn is_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// One request; fields as in [`Block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id. -1 unless requested.
    pub rq_id: i64,
    /// Time when its first bio was queued.
    pub queue_ns: Option<i64>,
    /// Time of issue to the driver.
    pub issue_ns: i64,
    /// Time of completion. `None` if the recording ended before.
    pub complete_ns: Option<i64>,
    /// Device number.
    pub dev: i64,
    /// First sector. Negative if it has none.
    pub sector: i64,
    /// Length.
    pub len_bytes: i64,
    /// Its operation.
    pub class: Class,
    /// 0 or a positive errno.
    pub error: i32,
}

impl Request {
    /// The sector after the last one.
    pub fn end_sector(&self) -> i64 {
        end_sector(self.sector, self.len_bytes)
    }

    /// Time of completion; if unknown, of issue.
    pub fn last_ns(&self) -> i64 {
        self.complete_ns.unwrap_or(self.issue_ns)
    }
}

/// The sector after `len_bytes` from `sector`.
pub(crate) fn end_sector(sector: i64, len_bytes: i64) -> i64 {
    sector.saturating_add(len_bytes.max(0).saturating_add(SECTOR_BYTES - 1) / SECTOR_BYTES)
}

const COLUMNS: [&str; 9] =
    ["queue_ns", "issue_ns", "complete_ns", "dev", "sector", "len_bytes", "op", "error", "rq_id"];
const BIO_COLUMNS: [&str; 8] = ["queue_ns", "complete_ns", "dev", "sector", "len_bytes", "op", "error", "bio_id"];

/// Streams the requests ordered by `issue_ns`. Each segment is sorted; overlapping ones are merged. Memory: one batch
/// per overlapping segment.
pub fn requests(reel: &Reel) -> Requests {
    in_order(reel, Source::Block(&COLUMNS[..COLUMNS.len() - 1]))
}

/// Like [`requests`], with ids, for code that looks up requests by their bios.
pub fn requests_with_ids(reel: &Reel) -> Requests {
    in_order(reel, Source::Block(&COLUMNS))
}

/// Streams the bios as requests that were issued when they were queued, for devices without requests (zram, device
/// mapper).
pub fn bios_as_requests(reel: &Reel) -> Requests {
    in_order(reel, Source::Bio(&BIO_COLUMNS[..BIO_COLUMNS.len() - 1]))
}

/// Like [`bios_as_requests`], each with the id of its bio.
pub fn bios_as_requests_with_ids(reel: &Reel) -> Requests {
    in_order(reel, Source::Bio(&BIO_COLUMNS))
}

/// Table of the requests.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// `block`, with these columns.
    Block(&'static [&'static str]),
    /// `bio`, with these columns.
    Bio(&'static [&'static str]),
}

impl Source {
    fn table(self) -> &'static str {
        match self {
            Self::Block(_) => Block::TABLE,
            Self::Bio(_) => Bio::TABLE,
        }
    }

    fn batches(self, reel: &Reel, segment: usize) -> Batches {
        match self {
            Self::Block(columns) => reel.segment_batches::<Block>(segment, columns),
            Self::Bio(columns) => reel.segment_batches::<Bio>(segment, columns),
        }
    }

    fn decode(self, batch: &RecordBatch) -> Result<Vec<Request>> {
        decode(batch, matches!(self, Self::Bio(_))).map_err(bad_column(self.table()))
    }
}

fn in_order(reel: &Reel, source: Source) -> Requests {
    let listed = reel.manifest.segments.get(source.table()).map(Vec::as_slice).unwrap_or_default();
    let mut waiting: Vec<(i64, usize)> = listed.iter().enumerate().map(|(i, s)| (s.from_ns, i)).collect();
    waiting.sort_unstable();
    Requests {
        reel: reel.clone(),
        source,
        waiting: waiting.into(),
        open: Vec::new(),
        ready: Vec::new().into_iter(),
        failed: false,
    }
}

/// Calls `each` with the requests of one segment of `block`, batch by batch. For code that needs no order between
/// segments, so that several threads can share the work.
///
/// # Errors
/// When the segment cannot be read.
pub fn each_of_segment(reel: &Reel, segment: usize, mut each: impl FnMut(&[Request])) -> Result<()> {
    let source = Source::Block(&COLUMNS[1..COLUMNS.len() - 2]);
    for batch in source.batches(reel, segment) {
        each(&source.decode(&batch?)?);
    }
    Ok(())
}

/// Requests in dispatch order; see [`requests`]. Ends after the first error.
#[derive(Debug)]
pub struct Requests {
    reel: Reel,
    source: Source,
    /// Segments not yet open, with their first time.
    waiting: VecDeque<(i64, usize)>,
    open: Vec<Cursor>,
    /// Sorted rows not yet returned.
    ready: vec::IntoIter<Request>,
    failed: bool,
}

/// An open segment. There is always a row at `at`.
#[derive(Debug)]
struct Cursor {
    batch: Vec<Request>,
    at: usize,
    batches: Batches,
}

impl Cursor {
    /// `None` for an empty segment.
    fn open(source: Source, batches: Batches) -> Result<Option<Self>> {
        let mut cursor = Self { batch: Vec::new(), at: 0, batches };
        Ok(cursor.refill(source)?.then_some(cursor))
    }

    /// Whether there is a row at `at`. Reads the next batch if necessary.
    fn refill(&mut self, source: Source) -> Result<bool> {
        while self.at >= self.batch.len() {
            let Some(batch) = self.batches.next().transpose()? else { return Ok(false) };
            (self.batch, self.at) = (source.decode(&batch)?, 0);
        }
        Ok(true)
    }

    fn head_ns(&self) -> i64 {
        self.batch.get(self.at).map_or(i64::MAX, |r| r.issue_ns)
    }
}

fn decode(batch: &RecordBatch, bios: bool) -> Result<Vec<Request>, String> {
    let queue_ns = batch.column_by_name("queue_ns").map(|_| column::<Option<i64>>(batch, "queue_ns")).transpose()?;
    let complete_ns = column::<Option<i64>>(batch, "complete_ns")?;
    let issue_ns = column::<i64>(batch, if bios { "queue_ns" } else { "issue_ns" })?;
    let dev = column::<i64>(batch, "dev")?;
    let [sector, len_bytes] = [column::<i64>(batch, "sector")?, column::<i64>(batch, "len_bytes")?];
    let error = batch.column_by_name("error").map(|_| column::<Option<i32>>(batch, "error")).transpose()?;
    let id = if bios { "bio_id" } else { "rq_id" };
    let rq_id = batch.column_by_name(id).map(|_| column::<i64>(batch, id)).transpose()?;
    let op = column::<Text>(batch, "op")?;
    let (keys, classes) = match &op {
        Column::Text(keys, names) => (keys, names.iter().map(|n| n.as_ref().map(|n| Class::of(n))).collect::<Vec<_>>()),
        _ => return Err("column op is no text".into()),
    };
    let number = <i64 as Cell>::get;
    let maybe = <Option<i64> as Cell>::get;
    Ok((0..batch.num_rows())
        .map(|i| Request {
            rq_id: rq_id.as_ref().map_or(-1, |c| number(c, i)),
            queue_ns: queue_ns.as_ref().and_then(|c| maybe(c, i)),
            issue_ns: number(&issue_ns, i),
            complete_ns: maybe(&complete_ns, i),
            dev: number(&dev, i),
            sector: number(&sector, i),
            len_bytes: number(&len_bytes, i).min(MOST_REQUEST_BYTES),
            class: keys.key(i).and_then(|k| classes.get(k).copied().flatten()).unwrap_or(Class::Other),
            error: error.as_ref().and_then(|c| <Option<i32> as Cell>::get(c, i)).unwrap_or(0),
        })
        .collect())
}

/// Rows merged at a time in overlapping segments.
const MERGED: usize = 4096;
/// Maximum number of segments read at once because they overlap in time. Requests are short, so two or three overlap.
const MOST_OPEN: usize = 256;

impl Requests {
    /// The next available requests in order. `None` at the end.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Request>>> {
        if self.ready.len() > 0 {
            return Ok(Some(std::mem::take(&mut self.ready).collect()));
        }
        if self.failed {
            return Ok(None);
        }
        let batch = self.read_on();
        self.failed = batch.is_err();
        batch
    }

    fn read_on(&mut self) -> Result<Option<Vec<Request>>> {
        let mut merged = Vec::new();
        while merged.len() < MERGED {
            // The earliest current row, unless a segment that is not yet open starts earlier.
            let first = loop {
                let first = (0..self.open.len()).min_by_key(|i| self.open[*i].head_ns());
                let due = first.map_or(i64::MAX, |i| self.open[i].head_ns());
                match self.waiting.front() {
                    Some((from_ns, segment)) if *from_ns <= due => {
                        if self.open.len() >= MOST_OPEN {
                            return Err(too_many_overlap(self.source.table()));
                        }
                        let batches = self.source.batches(&self.reel, *segment);
                        self.waiting.pop_front();
                        self.open.extend(Cursor::open(self.source, batches)?);
                    }
                    _ => break first,
                }
            };
            let Some(i) = first else { break };
            let alone = self.open.len() == 1;
            let cursor = &mut self.open[i];
            // A segment without overlap is returned as it is.
            let until_ns = self.waiting.front().map_or(i64::MAX, |(from_ns, _)| *from_ns);
            if alone && cursor.batch.iter().skip(cursor.at).all(|r| r.issue_ns < until_ns) {
                if !merged.is_empty() {
                    break;
                }
                merged = std::mem::take(&mut cursor.batch);
                merged.drain(..cursor.at);
                cursor.at = 0;
                if !cursor.refill(self.source)? {
                    self.open.remove(i);
                }
                break;
            }
            merged.extend(cursor.batch.get(cursor.at));
            cursor.at += 1;
            if !cursor.refill(self.source)? {
                self.open.remove(i);
            }
        }
        Ok((!merged.is_empty()).then_some(merged))
    }
}

fn too_many_overlap(table: &'static str) -> ReelError {
    bad_column(table)(format!(
        "more than {MOST_OPEN} segments of this table overlap at one time; no recorder writes that"
    ))
}

impl Iterator for Requests {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(request) = self.ready.next() {
            return Some(Ok(request));
        }
        match self.next_batch() {
            Ok(batch) => {
                self.ready = batch?.into_iter();
                self.ready.next().map(Ok)
            }
            Err(e) => Some(Err(e)),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use ioreel_traces::{Manifest, ReelWriter, WriterOptions, manifest::Kind};

    use super::*;

    #[test]
    fn segments_that_overlap_are_merged_by_time() {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions { segment_rows: 7, segment_age: Duration::MAX };
        let manifest = Manifest::new(Kind::Synthetic, "test");
        let mut w = ReelWriter::create(&dir.path().join("r.reel"), &manifest, options).unwrap();
        // Rows arrive in order of completion, so issue times jump between segments.
        let issues: Vec<i64> = (0..500).map(|i| i * 10 + if i % 3 == 0 { -155 } else { 40 }).collect();
        for issue_ns in &issues {
            w.block
                .push(Block { rq_id: -1, issue_ns: *issue_ns, op: "write".into(), len_bytes: 512, ..Block::default() })
                .unwrap();
        }
        w.close(manifest).unwrap();
        let reel = Reel::open(dir.path().join("r.reel")).unwrap();
        let got: Vec<i64> = requests(&reel).map(|r| r.unwrap().issue_ns).collect();
        let mut want = issues;
        want.sort_unstable();
        assert_eq!(got, want);
    }

    #[test]
    fn classes_know_their_names() {
        for c in Class::ALL {
            assert_eq!(Class::of(c.name()), c);
        }
        assert_eq!(Class::of("new in some kernel"), Class::Other);
    }

    #[test]
    fn ends_round_up_to_whole_sectors() {
        let r = |sector, len_bytes| Request {
            rq_id: -1,
            queue_ns: None,
            issue_ns: 0,
            complete_ns: None,
            dev: 1,
            sector,
            len_bytes,
            class: Class::Read,
            error: 0,
        };
        assert_eq!(r(1 << 40, 4096).end_sector(), (1 << 40) + 8);
        assert_eq!(r(0, 1).end_sector(), 1);
        assert_eq!(r(5, 0).end_sector(), 5);
        assert_eq!(r(i64::MAX, i64::MAX).end_sector(), i64::MAX);
    }
}
