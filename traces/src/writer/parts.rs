//! Parts: the rows of an open segment on disk, in order of arrival, for a repair if the writer dies. A part is written
//! every few seconds, and is not synced, so that it costs the disk nothing. The parts of a segment are removed when it
//! is closed. Readers ignore them.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use arrow_array::RecordBatch;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties},
};

use super::{LIVING, LeftOut, OnCreate, ReelWriter, TableWriter, WriterOptions, table::Synced};
use crate::{
    ReelError, Result,
    format::{
        rows,
        table::{BATCH_ROWS, DEFAULT_ZSTD_LEVEL, Row, schema},
    },
    private::Folder,
};

/// Ending of the names of parts.
pub(crate) const ENDING: &str = ".part";
/// Interval of parts at the start of a recording, and its maximum. In between, it is a fraction of the time so far: what
/// a crash costs is small in relation to what is kept.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(2);
const FRACTION: u32 = 8;
/// With less free space, no parts are written: the segments need it.
const LEAST_FREE_BYTES: u64 = 64 << 20;

/// Bytes free on the file system of this folder. If it does not say: enough.
fn free_bytes(folder: &Folder) -> u64 {
    rustix::fs::fstatvfs(folder).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

/// The name of a part in its table's folder.
fn name_of(segment: u32, part: u32) -> String {
    format!("{segment:06}-{part:03}{ENDING}")
}

/// The number of the segment that the part with this name belongs to.
pub(crate) fn segment_of(name: &str) -> Option<u32> {
    let (segment, _) = name.strip_suffix(ENDING)?.split_once('-')?;
    segment.parse().ok()
}

/// When parts are written.
#[derive(Debug)]
pub(super) struct Schedule {
    begun: Instant,
    last: Instant,
}

impl Schedule {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, last: now }
    }

    fn interval(&self) -> Duration {
        (self.begun.elapsed() / FRACTION).clamp(SHORTEST, LONGEST)
    }

    /// The interval, if a part is due.
    pub(super) fn due(&mut self) -> Option<Duration> {
        let interval = self.interval();
        if self.last.elapsed() < interval {
            return None;
        }
        self.last = Instant::now();
        Some(interval)
    }
}

/// The parts of a table's open segment.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Number of rows in them.
    rows: usize,
    names: Vec<String>,
    /// Their I/O is left out of the recording until they are removed, because they may be written back at any time.
    left_out: Vec<LeftOut>,
}

impl ReelWriter {
    /// Writes the rows of open segments as parts, in the order of references: tasks and files before operations. Nothing
    /// happens while there are no new events.
    pub(super) fn write_parts(&mut self, interval: Duration, living: impl Fn() -> Vec<rows::Task>) -> Result<()> {
        let mut has_news = false;
        each_table!(self, t => has_news |= t.has_news());
        if !has_news || self.ops.discard || free_bytes(self.folder()?) < LEAST_FREE_BYTES {
            return Ok(());
        }
        // The old file may be written back until it is replaced.
        let left_out = self.tasks.write_apart(LIVING, living(), Synced::Later)?;
        self.living_left_out = left_out;
        each_table!(self, t => t.write_part(interval / 2)?);
        Ok(())
    }
}

impl<R: Row> TableWriter<R> {
    /// A writer that makes segment `number` of the rows of its parts, with ids from `next_id` on.
    pub(crate) fn joining(reel: &Folder, number: u32, next_id: i64) -> Self {
        let options = WriterOptions { segment_rows: usize::MAX, segment_age: Duration::MAX };
        let mut writer = Self::new(Some(reel), options);
        (writer.next_segment, writer.next_id) = (number, next_id);
        writer
    }

    /// The first id that is not in use.
    pub(crate) fn next_id(&self) -> i64 {
        self.next_id
    }

    /// Whether rows wait that are in no part.
    pub(super) fn has_news(&self) -> bool {
        self.times.len() > self.parts.rows
    }

    /// Writes a part with the rows since the last one. If the segment will be full within `soon`, it is not worth it.
    pub(super) fn write_part(&mut self, soon: Duration) -> Result<()> {
        let rows = self.parts.rows..self.times.len();
        if rows.is_empty() || self.discard || self.fills_within(soon) {
            return Ok(());
        }
        let reel = self.reel()?;
        let dir = reel.path().join(R::TABLE);
        let folder = reel.folder_or_create(R::TABLE).map_err(ReelError::io(&dir, "creating the table's folder"))?;
        let name = name_of(self.next_segment, self.parts.names.len() as u32);
        let path = dir.join(&name);
        let file = folder.replace_file(&name).map_err(ReelError::io(&path, "creating a part"))?;
        self.parts.left_out.extend(self.on_create.as_ref().map(|OnCreate(f)| f(&file)));
        self.parts.names.push(name);
        self.parts.rows = rows.end;
        encode::<R, _>(file, &mut self.columns, rows).map_err(|why| ReelError::Write { path, why })
    }

    /// Whether the segment will be full that soon, at the rate so far.
    fn fills_within(&self, soon: Duration) -> bool {
        let waited = self.oldest.map_or(Duration::ZERO, |t| t.elapsed());
        let (rows, most) = (self.times.len() as f64, self.options.segment_rows as f64);
        rows * (waited + soon).as_secs_f64() >= most * waited.as_secs_f64()
    }

    /// Removes the parts, after their segment was closed or lost. Returns whether there were any.
    pub(super) fn remove_parts(&mut self) -> bool {
        let parts = std::mem::take(&mut self.parts);
        if let Ok(folder) = self.folder() {
            for name in &parts.names {
                // Best effort: a repair removes the parts of closed segments.
                let _ = folder.remove_file(name);
            }
        }
        !parts.names.is_empty()
    }
}

/// Writes these rows to `to` as a Parquet file.
fn encode<R: Row, W: std::io::Write + Send>(to: W, columns: &mut R::Columns, rows: Range<usize>) -> Result<(), String> {
    let level = ZstdLevel::try_new(DEFAULT_ZSTD_LEVEL).map_err(|e| e.to_string())?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let schema = schema::<R>();
    let mut file = ArrowWriter::try_new(to, schema.clone(), Some(properties)).map_err(|e| e.to_string())?;
    for first in rows.clone().step_by(BATCH_ROWS) {
        let rows = first..rows.end.min(first + BATCH_ROWS);
        let arrays = R::builders(columns).into_iter().map(|b| b.copy(rows.clone())).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(|e| e.to_string())?;
        file.write(&batch).map_err(|e| e.to_string())?;
    }
    file.close().map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_s_name_tells_its_segment() {
        assert_eq!(name_of(12, 3), "000012-003.part");
        assert_eq!(segment_of("000012-003.part"), Some(12));
        for other in ["000012.parquet", "000012-003.part.tmp", "living.part", "x-1.part"] {
            assert_eq!(segment_of(other), None, "{other}");
        }
    }

    #[test]
    fn parts_are_frequent_at_first() {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.due(), None);
        assert_eq!(schedule.interval(), SHORTEST);
        let now = Instant::now();
        (schedule.begun, schedule.last) = (now - Duration::from_secs(8), now - Duration::from_secs(3));
        assert!(schedule.due().is_some_and(|interval| interval >= Duration::from_secs(1)));
        assert_eq!(schedule.due(), None);
        schedule.begun = now - Duration::from_secs(3600);
        assert_eq!(schedule.interval(), LONGEST);
    }
}
