//! Merges small segments. A rotating reel closes referenced tables as often as the tables that refer to them, and a
//! Parquet file of three rows takes 5 KB.

use crate::{
    ReelError, ReelWriter, Result,
    format::{manifest::Segment, table::Row},
    writer::{TableWriter, table::name_of},
};

/// A segment with fewer rows is small.
const SMALL_ROWS: i64 = 4096;
/// Number of small segments that triggers a merge.
const MANY: usize = 16;

impl ReelWriter {
    /// Merges the small segments of tables that do not rotate. The exchange is atomic, so a crash leaves one state or
    /// the other. If the file system cannot exchange folders atomically, nothing is merged.
    pub(super) fn merge_small(&mut self) -> Result<()> {
        merge(&mut self.tasks)?;
        merge(&mut self.execs)?;
        merge(&mut self.files)?;
        merge(&mut self.fds)?;
        merge(&mut self.maps)
    }
}

fn merge<R: Row>(table: &mut TableWriter<R>) -> Result<()> {
    let small: Vec<usize> = (0..table.segments.len()).filter(|i| table.segments[*i].rows < SMALL_ROWS).collect();
    let Some(last) = small.last().copied().filter(|_| small.len() >= MANY) else { return Ok(()) };
    let mut rows = Vec::new();
    for i in &small {
        rows.extend(table.rows_of(*i)?);
    }
    rows.sort_by_key(Row::time_ns);
    let next = format!("{}.tmp", R::TABLE);
    let file = table.segments[last].file.clone();
    let gone: Vec<&str> = small.iter().map(|i| name_of(&table.segments[*i].file)).collect();
    let reel = table.reel()?;
    let merged = put(table, &next, &file, &gone, &rows);
    // After the exchange, this folder contains the old segments.
    let removed = reel.remove_reel(&next);
    let Some(merged) = merged? else { return Ok(()) };
    removed.map_err(ReelError::io(&table.reel()?.path().join(&next), "removing the merged segments"))?;
    table.segments[last] = merged;
    let mut i = 0;
    table.segments.retain(|_| {
        let goes = i != last && small.binary_search(&i).is_ok();
        i += 1;
        !goes
    });
    Ok(())
}

/// Replaces the table's folder by one with the merged segment and links to all other files except `gone`.
fn put<R: Row>(table: &TableWriter<R>, next: &str, file: &str, gone: &[&str], rows: &[R]) -> Result<Option<Segment>> {
    let (reel, old) = (table.reel()?, table.folder()?);
    let path = reel.path().join(next);
    let new = reel.create_folder(next).map_err(ReelError::io(&path, "creating the table's next folder"))?;
    for entry in old.entries().map_err(ReelError::io(old.path(), "listing the table's folder"))? {
        if !gone.iter().any(|g| entry.name == *g) && old.link(&entry.name, &new).is_err() {
            return Ok(None);
        }
    }
    let segment = table.write_rows(&new, file, rows)?;
    new.sync().map_err(ReelError::io(&path, "syncing the table's next folder"))?;
    if reel.exchange(next, R::TABLE).is_err() {
        return Ok(None);
    }
    reel.sync().map_err(ReelError::io(reel.path(), "syncing the reel"))?;
    Ok(Some(segment))
}
