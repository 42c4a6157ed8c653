//! Merges small segments. A rotating reel closes referenced tables as often as the tables that refer to them, and a
//! Parquet file of three rows takes 5 KB.

use std::{
    fs::{self, File},
    path::Path,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{
    ReelError, ReelWriter, Result,
    format::{manifest::Segment, table::Row},
    writer::TableWriter,
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
    let dir = table.reel().join(R::TABLE);
    let next = table.reel().join(format!("{}.tmp", R::TABLE));
    let file = table.segments[last].file.clone();
    let gone: Vec<String> = small.iter().map(|i| table.segments[*i].file.clone()).collect();
    let merged = put(table, &dir, &next, &file, &gone, &rows);
    // After the exchange, this folder contains the old segments.
    let removed = fs::remove_dir_all(&next);
    let Some(merged) = merged? else { return Ok(()) };
    removed.map_err(ReelError::io(&next, "removing the merged segments"))?;
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
fn put<R: Row>(
    table: &TableWriter<R>,
    dir: &Path,
    next: &Path,
    file: &str,
    gone: &[String],
    rows: &[R],
) -> Result<Option<Segment>> {
    fs::create_dir(next).map_err(ReelError::io(next, "creating the table's next folder"))?;
    let listing = fs::read_dir(dir).map_err(ReelError::io(dir, "listing the table's folder"))?;
    for entry in listing {
        let name = entry.map_err(ReelError::io(dir, "listing the table's folder"))?.file_name();
        let path = format!("{}/{}", R::TABLE, name.to_string_lossy());
        if !gone.contains(&path) && fs::hard_link(dir.join(&name), next.join(&name)).is_err() {
            return Ok(None);
        }
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let path = next.join(name);
    let segment = table.write_rows(&path, file, rows)?;
    File::open(next).and_then(|d| d.sync_all()).map_err(ReelError::io(next, "syncing the table's next folder"))?;
    if renameat_with(CWD, next, CWD, dir, RenameFlags::EXCHANGE).is_err() {
        return Ok(None);
    }
    File::open(table.reel()).and_then(|d| d.sync_all()).map_err(ReelError::io(table.reel(), "syncing the reel"))?;
    Ok(Some(segment))
}
