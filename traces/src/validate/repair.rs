//! Makes a complete reel from what a dead writer or a damaged disk left.

use std::{fs, path::Path};

use super::{
    folder::entries,
    tables::{has_columns, read},
};
use crate::{
    Manifest, ReelError, Result,
    format::{
        manifest::{ROW_CLASSES, Segment, State},
        table::Row,
        tables::{self, Visitor},
    },
    reader::plain_segment,
};

/// Makes folder and manifest consistent, and returns one sentence per change. Writes the manifest only if something
/// changed.
pub(super) fn repair(reel: &Path, manifest: &mut Manifest) -> Result<Vec<String>> {
    let mut repair = Repair { reel, manifest: manifest.clone(), done: Vec::new() };
    if manifest.state == State::Recording {
        repair
            .done
            .push("the recording was not completed: its complete segments are kept, state is now truncated".into());
    }
    repair.leftovers(reel, "")?;
    tables::each(&mut repair)?;
    let Repair { manifest: mut new, done, .. } = repair;
    if done.is_empty() {
        return Ok(done);
    }
    new.state = State::Truncated;
    new.cost.reel_bytes = new.segments.values().flatten().map(|s| s.bytes).sum();
    if new.span.elapsed_ns == 0 {
        let moments = ["ops", "tasks", "execs"].iter().filter_map(|t| new.segments.get(*t)).flatten();
        new.span.elapsed_ns = moments.map(|s| s.to_ns).max().unwrap_or(0);
    }
    new.warnings.push(format!("repaired: {}", done.join("; ")));
    new.write(reel)?;
    *manifest = new;
    Ok(done)
}

struct Repair<'a> {
    reel: &'a Path,
    manifest: Manifest,
    done: Vec<String>,
}

impl Visitor for Repair<'_> {
    type Error = ReelError;

    fn table<R: Row>(&mut self) -> Result<()> {
        let folder = self.reel.join(R::TABLE);
        if folder.is_symlink() {
            let why = "a symbolic link, whose target is not part of the reel; replace it by the folder itself";
            return Err(ReelError::io(&folder, "repairing the table")(std::io::Error::other(why)));
        }
        self.leftovers(&folder, R::TABLE)?;
        let listed = self.manifest.segments.remove(R::TABLE).unwrap_or_default();
        let mut kept = Vec::new();
        let mut events = 0;
        for (name, _) in entries(&folder)?.into_iter().filter(|(name, _)| name.ends_with(".parquet")) {
            let file = format!("{}/{name}", R::TABLE);
            let path = self.reel.join(&file);
            match measure::<R>(&path, &file) {
                Ok((segment, of_events)) => {
                    match listed.iter().find(|s| s.file == file) {
                        None => self.done.push(format!("{file}: added, {} rows", segment.rows)),
                        Some(old) if *old != segment => self.done.push(format!("{file}: its entry corrected")),
                        Some(_) => {}
                    }
                    events += of_events;
                    kept.push(segment);
                }
                Err(why) => {
                    let aside = path.with_extension("parquet.damaged");
                    fs::rename(&path, &aside).map_err(ReelError::io(&path, "moving the damaged segment aside"))?;
                    self.done.push(format!("{file}: moved aside to .damaged ({why})"));
                }
            }
        }
        for gone in listed.iter().filter(|s| !plain_segment(R::TABLE, &s.file) || !self.reel.join(&s.file).exists()) {
            if !self.reel.join(&gone.file).with_extension("parquet.damaged").exists() {
                self.done.push(format!("{}: removed from the manifest, {} rows are missing", gone.file, gone.rows));
            }
        }
        self.balance(R::TABLE, events);
        if !kept.is_empty() {
            self.manifest.segments.insert(R::TABLE.into(), kept);
        }
        Ok(())
    }
}

impl Repair<'_> {
    /// Removes incomplete files of a dead writer.
    fn leftovers(&mut self, folder: &Path, table: &str) -> Result<()> {
        for (name, entry) in entries(folder)?.into_iter().filter(|(name, _)| name.ends_with(".tmp")) {
            let path = entry.path();
            // Segments are merged in a separate folder.
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(ReelError::io(&path, "removing the leftover"))?;
            let slash = if table.is_empty() { "" } else { "/" };
            self.done.push(format!("{table}{slash}{name}: removed, it was incomplete"));
        }
        Ok(())
    }

    /// Missing rows count as lost. If a dead writer left no ledger, none is invented.
    fn balance(&mut self, class: &str, rows: i64) {
        if ROW_CLASSES.contains(&class)
            && let Some(l) = self.manifest.ledger.get_mut(class)
            && l.written != rows
        {
            l.written = rows;
            l.seen = l.seen.max(rows + l.filtered);
            l.lost = l.seen - l.written - l.filtered;
            self.done.push(format!("ledger of {class}: {rows} written, {} lost", l.lost));
        }
    }
}

/// Reads a segment completely. Returns its manifest entry, and the number of its rows that events led to.
fn measure<R: Row>(path: &Path, file: &str) -> Result<(Segment, i64), String> {
    let mut segment = Segment { file: file.into(), ..Segment::default() };
    let (mut from, mut to, mut events) = (None, None, 0);
    let mut rows: Vec<R> = Vec::new();
    for batch in read(path)? {
        let batch = batch?;
        has_columns::<R>(&batch)?;
        rows.clear();
        R::read(&batch, &mut rows)?;
        segment.rows += rows.len() as i64;
        from = from.or(rows.first().map(Row::time_ns));
        to = to.max(rows.iter().map(Row::end_ns).max());
        events += rows.iter().filter(|r| r.is_event()).count() as i64;
    }
    segment.from_ns = from.unwrap_or(0);
    segment.to_ns = to.unwrap_or(0);
    segment.bytes = fs::metadata(path).map_err(|e| e.to_string())?.len() as i64;
    Ok((segment, events))
}
