//! Writes one table of a reel, segment by segment.

use std::{sync::Arc, time::Instant};

use parquet::file::reader::{FileReader, SerializedFileReader};
use rustix::fs::{Advice, fadvise};

use super::{LeftOut, Names, OnCreate, WriterOptions, chunks::Chunks, locked, parts::Parts};
use crate::{
    ReelError, Result,
    format::{
        columns::{Builder, Order},
        manifest::Segment,
        table::{Row, properties},
    },
    private::Folder,
    reader::{next_batch, open_segment},
    writer::causes::OpKey,
};

/// Estimated size of a row on disk before one is written.
const ROW_BYTES_GUESS: i64 = 12;

/// When a file reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// Before it gets its name, so that it survives a crash of the machine.
    AtOnce,
    /// When the kernel writes it back. It survives the death of this process.
    Later,
}

/// Writes one table.
#[derive(Debug)]
pub struct TableWriter<R: Row> {
    /// None of a table that is discarded.
    pub(super) reel: Option<Folder>,
    pub(super) options: WriterOptions,
    pub(super) columns: R::Columns,
    /// Time of each waiting row. Sorted instead of the rows, because it is smaller.
    pub(super) times: Vec<i64>,
    /// Latest end of a waiting row.
    to_ns: i64,
    /// Number of waiting rows that events led to.
    events: i64,
    pub(super) oldest: Option<Instant>,
    pub(super) next_id: i64,
    pub(super) next_segment: u32,
    pub(crate) segments: Vec<Segment>,
    /// Rows of events in closed segments, and rows of events that could not be written.
    pub(crate) events_written: i64,
    /// Number of rows dropped by rotation.
    pub(crate) rotated: i64,
    pub(super) lost: i64,
    pub(super) on_create: Option<OnCreate>,
    pub(super) names: Option<Names>,
    /// Waiting rows whose ids are needed, and those that have their ids.
    pub(super) asked: Vec<(u32, OpKey)>,
    pub(super) named: Vec<(OpKey, i64)>,
    /// Waiting rows that will refer to another waiting row.
    under: Vec<(u32, u32)>,
    tap: Option<Tap<R>>,
    chunks: Chunks,
    /// The open segment's rows on disk.
    pub(super) parts: Parts,
    /// Whether rows are discarded.
    pub(super) discard: bool,
}

/// Called with every row as it is pushed.
#[derive(Clone)]
pub struct Tap<R>(pub Arc<dyn Fn(&R) + Send + Sync>);

impl<R> std::fmt::Debug for Tap<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl<R: Row> TableWriter<R> {
    pub(crate) fn new(reel: Option<&Folder>, options: WriterOptions) -> Self {
        Self {
            reel: reel.cloned(),
            options,
            columns: R::Columns::default(),
            times: Vec::new(),
            to_ns: i64::MIN,
            events: 0,
            oldest: None,
            next_id: 0,
            next_segment: 0,
            segments: Vec::new(),
            events_written: 0,
            rotated: 0,
            lost: 0,
            on_create: None,
            names: None,
            asked: Vec::new(),
            named: Vec::new(),
            under: Vec::new(),
            tap: None,
            chunks: Chunks::default(),
            parts: Parts::default(),
            discard: false,
        }
    }

    /// Calls `tap` with every row from now on, before its names are mapped.
    pub fn tap(&mut self, tap: Tap<R>) {
        self.tap = Some(tap);
    }

    /// Adds related rows to the same segment, each with the index of the row it refers to.
    pub(super) fn push_together(&mut self, rows: Vec<(R, Option<usize>)>) -> Result<()> {
        let first = self.times.len();
        for (i, (mut row, above)) in rows.into_iter().enumerate() {
            if let Some(Tap(tap)) = &self.tap {
                tap(&row);
            }
            if self.discard {
                continue;
            }
            self.map_names(&mut row);
            self.add(&row);
            self.under.extend(above.map(|above| ((first + i) as u32, (first + above) as u32)));
        }
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    /// Adds a row, and closes the segment if it is full.
    pub fn push(&mut self, mut row: R) -> Result<()> {
        if let Some(Tap(tap)) = &self.tap {
            tap(&row);
        }
        if self.discard {
            return Ok(());
        }
        self.map_names(&mut row);
        self.push_as_is(&row)
    }

    pub(super) fn map_names(&self, row: &mut R) {
        if let Some(names) = &self.names {
            locked(names).row(row);
        }
    }

    /// Adds a row whose names are already mapped, if names are mapped at all.
    pub fn push_as_is(&mut self, row: &R) -> Result<()> {
        self.add(row);
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.times.len() >= self.options.segment_rows
    }

    pub(super) fn add(&mut self, row: &R) {
        if self.times.is_empty() {
            self.oldest = Some(Instant::now());
        }
        row.append(&mut self.columns, self.times.len());
        self.times.push(row.time_ns());
        self.to_ns = self.to_ns.max(row.end_ns());
        self.events += i64::from(row.is_event());
    }

    /// Closes the segment if it is old enough. To be called from time to time when no rows arrive.
    pub fn flush_if_old(&mut self) -> Result<()> {
        if self.is_old() { self.flush() } else { Ok(()) }
    }

    pub(super) fn is_old(&self) -> bool {
        self.oldest.is_some_and(|t| t.elapsed() >= self.options.segment_age)
    }

    /// The table's name.
    pub fn name(&self) -> &'static str {
        R::TABLE
    }

    /// Number of rows in closed segments.
    pub fn written(&self) -> i64 {
        self.segments.iter().map(|s| s.rows).sum()
    }

    /// Size of the table: its closed segments, and the expected size of the open one.
    pub fn bytes_about(&self) -> i64 {
        let closed: i64 = self.segments.iter().map(|s| s.bytes).sum();
        let rows = self.written();
        let waiting = self.times.len() as i64;
        if rows == 0 { waiting * ROW_BYTES_GUESS } else { closed + waiting * closed / rows }
    }

    /// Number of rows in the open segment.
    pub fn waiting(&self) -> usize {
        self.times.len()
    }

    /// Number of rows of events that could not be written.
    pub fn lost(&self) -> i64 {
        self.lost
    }

    /// Number of rows dropped by rotation.
    pub fn rotated(&self) -> i64 {
        self.rotated
    }

    /// Number of non-null values of this integer column in the closed segments, from the files' footers.
    ///
    /// # Errors
    /// If a segment cannot be read, or has no such column.
    pub fn values_of(&self, column: &str) -> Result<i64> {
        let mut values = 0;
        for segment in &self.segments {
            let path = self.reel()?.path().join(&segment.file);
            let bad = |why: String| ReelError::BadSegment { path: path.clone(), why };
            let file =
                self.folder()?.file(name_of(&segment.file)).map_err(ReelError::io(&path, "opening the segment"))?;
            let reader = SerializedFileReader::new(file).map_err(|e| bad(e.to_string()))?;
            for group in reader.metadata().row_groups() {
                let chunk = group.columns().iter().find(|c| c.column_path().string() == column);
                let nulls = chunk.and_then(|c| c.statistics()?.null_count_opt());
                let nulls = nulls.ok_or_else(|| bad(format!("its footer does not count nulls of {column}")))?;
                values += group.num_rows() - nulls as i64;
            }
        }
        Ok(values)
    }

    /// Replaces the rows of a closed segment, or removes it if there are none. Ids stay as they are.
    pub(crate) fn replace(&mut self, index: usize, rows: &[R]) -> Result<()> {
        let file = self.segments[index].file.clone();
        if rows.is_empty() {
            let folder = self.folder()?;
            let path = folder.path().join(name_of(&file));
            folder.remove_file(name_of(&file)).map_err(ReelError::io(&path, "dropping the segment"))?;
            self.segments.remove(index);
            return Ok(());
        }
        let mut apart = self.apart(rows);
        let (bytes, _) = apart.put_segment(&file, None, Synced::AtOnce)?;
        self.segments[index] = span_of(file, bytes, rows);
        Ok(())
    }

    /// A writer for these rows only, which are sorted and have ids.
    fn apart(&self, rows: &[R]) -> Self {
        let mut apart = Self { on_create: self.on_create.clone(), ..Self::new(self.reel.as_ref(), self.options) };
        for row in rows {
            row.append(&mut apart.columns, apart.times.len());
            apart.times.push(row.time_ns());
        }
        apart
    }

    /// Writes rows, which are sorted and have their ids, into `folder` as what will be the segment `file`.
    pub(crate) fn write_rows(&self, folder: &Folder, file: &str, rows: &[R]) -> Result<Segment> {
        let (bytes, _) = self.apart(rows).write_segment(folder, name_of(file), None, Synced::AtOnce)?;
        Ok(span_of(file.into(), bytes, rows))
    }

    /// The reel's folder.
    pub(crate) fn reel(&self) -> Result<&Folder> {
        let why =
            || ReelError::Write { path: R::TABLE.into(), why: "the table is discarded, and has no folder".into() };
        self.reel.as_ref().ok_or_else(why)
    }

    /// The table's folder, which is there once a segment has been closed.
    pub(crate) fn folder(&self) -> Result<Folder> {
        let reel = self.reel()?;
        reel.folder(R::TABLE).map_err(ReelError::io(&reel.path().join(R::TABLE), "opening the table's folder"))
    }

    /// The rows of a closed segment.
    pub(crate) fn rows_of(&self, index: usize) -> Result<Vec<R>> {
        let (reel, file) = (self.reel()?, &self.segments[index].file);
        let path = reel.path().join(file);
        let mut rows = Vec::new();
        let mut reader = open_segment(reel, file, None, &[])?;
        while let Some(batch) = next_batch(&mut reader) {
            batch
                .and_then(|b| R::read(&b, &mut rows))
                .map_err(|why| ReelError::BadSegment { path: path.clone(), why })?;
        }
        Ok(rows)
    }

    /// The closed segments.
    pub(crate) fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    /// Closes the open segment. On failure, its rows count as lost, and nothing of it stays on disk.
    pub fn flush(&mut self) -> Result<()> {
        self.oldest = None;
        if self.times.is_empty() {
            return Ok(());
        }
        let done = self.close_segment();
        match done {
            Ok(()) => self.events_written += self.events,
            Err(_) => self.lost += self.events,
        }
        self.remove_parts();
        R::builders(&mut self.columns).into_iter().for_each(Builder::clear);
        self.asked.clear();
        self.under.clear();
        self.times.clear();
        self.to_ns = i64::MIN;
        self.events = 0;
        done
    }

    /// Frees the memory of waiting rows, of which there are none.
    pub(super) fn release(&mut self) {
        if self.times.is_empty() {
            self.columns = R::Columns::default();
            self.times = Vec::new();
        }
    }

    fn close_segment(&mut self) -> Result<()> {
        let times = &self.times;
        // Calls are written when they end and sorted by start, so rows of a single thread are already sorted.
        let sorted = (!times.is_sorted()).then(|| order_of(times));
        let order = sorted.as_deref();
        let from_ns = times[order.map_or(0, |o| o[0] as usize)];
        R::assign_ids(&mut self.columns, order, &mut self.next_id);
        if !self.under.is_empty() {
            let mut to = vec![None; self.times.len()];
            for (row, above) in self.under.drain(..) {
                to[row as usize] = R::id_of(&self.columns, above);
            }
            R::refer(&mut self.columns, to);
        }
        let columns = &self.columns;
        let ids = self.asked.drain(..).filter_map(|(row, key)| Some((key, R::id_of(columns, row)?)));
        self.named.extend(ids);
        let name = format!("{}/{:06}.parquet", R::TABLE, self.next_segment);
        let (bytes, _) = match self.put_segment(&name, order, Synced::AtOnce) {
            // On a full disk, its parts may take the space that it needs.
            Err(_) if self.remove_parts() => self.put_segment(&name, order, Synced::AtOnce)?,
            done => done?,
        };
        self.next_segment += 1;
        self.segments.push(Segment { file: name, rows: self.times.len() as i64, bytes, from_ns, to_ns: self.to_ns });
        Ok(())
    }

    /// Writes separate rows as the segment `name`, replacing an earlier one. Neither counted nor listed.
    pub(super) fn write_apart(&mut self, name: &str, mut rows: Vec<R>, sync: Synced) -> Result<Option<LeftOut>> {
        if rows.is_empty() {
            return self.remove_apart(name).map(|()| None);
        }
        rows.sort_by_key(Row::time_ns);
        let mut apart = Self { on_create: self.on_create.clone(), ..Self::new(self.reel.as_ref(), self.options) };
        for mut row in rows {
            if let Some(names) = &self.names {
                locked(names).row(&mut row);
            }
            row.append(&mut apart.columns, apart.times.len());
            apart.times.push(row.time_ns());
        }
        apart.put_segment(&format!("{}/{name}", R::TABLE), None, sync).map(|(_, left_out)| left_out)
    }

    pub(super) fn remove_apart(&self, name: &str) -> Result<()> {
        let reel = self.reel()?;
        let removed = reel.folder(R::TABLE).and_then(|folder| folder.remove_file(name));
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(ReelError::io(&reel.path().join(R::TABLE).join(name), "removing the segment")(e))
            }
            _ => Ok(()),
        }
    }

    /// Writes the waiting rows as the file `name`, completely or not at all. Returns its size, see
    /// [`Self::write_segment`].
    fn put_segment(&mut self, name: &str, order: Order<'_>, sync: Synced) -> Result<(i64, Option<LeftOut>)> {
        let reel = &self.reel()?.clone();
        let dir = reel.path().join(R::TABLE);
        // In the reel's open folder: if somebody has removed that, this fails, and a folder put in its place gets nothing.
        let folder = reel.folder_or_create(R::TABLE).map_err(ReelError::io(&dir, "creating the table's folder"))?;
        let name = name_of(name);
        let tmp = format!("{name}.tmp");
        let written = self.write_segment(&folder, &tmp, order, sync).inspect_err(|_| {
            // Best effort: on a full disk, this frees space for the manifest. The folder goes if it is empty.
            let _ = folder.remove_file(&tmp).and_then(|()| reel.remove_folder(R::TABLE));
        })?;
        folder.rename(&tmp, name).map_err(ReelError::io(&dir.join(name), "putting the segment in place"))?;
        // The name must survive a crash of the machine too.
        if sync == Synced::AtOnce {
            folder.sync().map_err(ReelError::io(&dir, "syncing the table's folder"))?;
        }
        Ok(written)
    }

    /// Writes the waiting rows as the file `name`. Returns its size and, if it is not synced, what must live as long as
    /// the file may be written back.
    fn write_segment(
        &mut self,
        folder: &Folder,
        name: &str,
        order: Order<'_>,
        sync: Synced,
    ) -> Result<(i64, Option<LeftOut>)> {
        let tmp = &folder.path().join(name);
        let bad = |why: String| ReelError::Write { path: tmp.into(), why };
        let file = folder.replace_file(name).map_err(ReelError::io(tmp, "creating the segment"))?;
        let left_out = self.on_create.as_ref().map(|OnCreate(f)| f(&file));
        let properties = properties::<R>(&mut self.columns, order)?;
        let rows = self.times.len();
        let file = self.chunks.write::<R, _>(file, properties, &mut self.columns, rows, order).map_err(bad)?;
        let bytes = file.metadata().map_err(ReelError::io(tmp, "measuring the segment"))?.len() as i64;
        if sync == Synced::Later {
            return Ok((bytes, left_out));
        }
        file.sync_all().map_err(ReelError::io(tmp, "syncing the segment"))?;
        // Nobody will read it soon, so its pages leave the cache for the recorded programs. Best effort.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        Ok((bytes, None))
    }
}

/// A segment's name in its table's folder.
pub(super) fn name_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Row numbers ordered by time. Rows of the same time keep their order of arrival.
fn order_of(times: &[i64]) -> Vec<u32> {
    let least = times.iter().min().copied().unwrap_or_default();
    let most = times.iter().max().copied().unwrap_or_default();
    let bits = usize::BITS - times.len().leading_zeros();
    if u128::from(most.abs_diff(least)) << bits > u128::from(u64::MAX >> 1) {
        let mut rows: Vec<u32> = (0..times.len() as u32).collect();
        rows.sort_by_key(|row| times[*row as usize]);
        return rows;
    }
    // Segments nearly always span a few hours at most. Time and row then fit into one number, which sorts twice as
    // fast.
    let key = |(row, time): (usize, &i64)| time.abs_diff(least) << bits | row as u64;
    let mut keys: Vec<u64> = times.iter().enumerate().map(key).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| (key & ((1 << bits) - 1)) as u32).collect()
}

/// The manifest entry of a segment with these rows.
fn span_of<R: Row>(file: String, bytes: i64, rows: &[R]) -> Segment {
    let from_ns = rows.first().map_or(0, Row::time_ns);
    let to_ns = rows.iter().map(Row::end_ns).max().unwrap_or(from_ns);
    Segment { file, rows: rows.len() as i64, bytes, from_ns, to_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ordered_by_time_and_then_by_arrival() {
        assert_eq!(order_of(&[30, 10, 20, 10]), [1, 3, 2, 0]);
        assert_eq!(order_of(&[-5, i64::MAX, 0, i64::MIN, 0]), [3, 0, 2, 4, 1]);
        let hours: Vec<i64> = (0..1000).map(|i| (i * 7919 % 1000) * 36_000_000_000).collect();
        assert!(order_of(&hours).is_sorted_by_key(|row| hours[*row as usize]));
    }
}
