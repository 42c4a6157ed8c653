//! Makes a complete reel from what a dead writer or a damaged disk left.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use super::{
    folder::{entries, table},
    tables::{bytes_of, has_columns, read},
};
use crate::{
    Manifest, ReelError, Result,
    format::{
        manifest::{KILLED, Kind, ROW_CLASSES, Segment, State},
        table::{Column, Row, column},
        tables::{self, Visitor},
    },
    private::{Entry, Folder},
    reader::{limits::listed_twice, plain_segment},
    writer::{TableWriter, parts},
};

/// Makes folder and manifest consistent, and returns one sentence per change. Writes the manifest only if something
/// changed.
pub(super) fn repair(reel: &Folder, manifest: &mut Manifest) -> Result<Vec<String>> {
    let mut repair = Repair { reel, manifest: manifest.clone(), done: Vec::new() };
    let was_killed = manifest.state == State::Recording;
    repair.leftovers(reel, "")?;
    tables::each(&mut repair)?;
    let Repair { manifest: mut new, mut done, .. } = repair;
    if was_killed {
        done.insert(0, end_of(&new));
        if new.kind == Kind::Recording {
            new.ended = KILLED.into();
        }
    }
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

/// What is known of the end of a recording whose recorder died.
fn end_of(manifest: &Manifest) -> String {
    let last_ns = manifest.segments.get("ops").into_iter().flatten().map(|s| s.to_ns).max();
    // Operations are written in the order of their end.
    let kept = match last_ns {
        Some(ns) => format!("the operations that ended in the first {:.3} s are here", ns as f64 / 1e9),
        None => "no operations were written before".into(),
    };
    format!("the writer of this reel was killed: {kept}, later ones are missing; state is now truncated")
}

struct Repair<'a> {
    reel: &'a Folder,
    manifest: Manifest,
    done: Vec<String>,
}

impl Visitor for Repair<'_> {
    type Error = ReelError;

    fn table<R: Row>(&mut self) -> Result<()> {
        let folder = table(self.reel, R::TABLE)?;
        let listed = self.manifest.segments.remove(R::TABLE).unwrap_or_default();
        let mut names = Vec::new();
        if let Some(folder) = &folder {
            self.leftovers(folder, R::TABLE)?;
            names = entries(folder)?;
        }
        let mut kept = Vec::new();
        let (mut events, mut next_id) = (0, 0);
        if let Some(file) = listed_twice(&listed) {
            self.done.push(format!("{file}: listed more than once, now once"));
        }
        for (name, _) in names.iter().filter(|(name, _)| name.ends_with(".parquet")) {
            let file = format!("{}/{name}", R::TABLE);
            match measure::<R>(self.reel, &file) {
                Ok((segment, of_events, last_id)) => {
                    next_id = next_id.max(last_id + 1);
                    match listed.iter().find(|s| s.file == file) {
                        None => self.done.push(format!("{file}: added, {} rows", segment.rows)),
                        Some(old) if *old != segment => self.done.push(format!("{file}: its entry corrected")),
                        Some(_) => {}
                    }
                    events += of_events;
                    kept.push(segment);
                }
                Err(why) => {
                    if let Some(folder) = &folder {
                        let path = folder.path().join(name);
                        let moved = folder.rename(name, format!("{name}.damaged"));
                        moved.map_err(ReelError::io(&path, "moving the damaged segment aside"))?;
                    }
                    self.done.push(format!("{file}: moved aside to .damaged ({why})"));
                }
            }
        }
        if let Some(folder) = &folder {
            let joined = self.join_parts::<R>(folder, &names, next_id)?;
            events += joined.iter().map(|(_, events)| events).sum::<i64>();
            kept.extend(joined.into_iter().map(|(segment, _)| segment));
        }
        let there = |name: &str| folder.as_ref().is_some_and(|f| f.has(name));
        let name_of = |s: &Segment| s.file.rsplit('/').next().unwrap_or_default().to_owned();
        for gone in listed.iter().filter(|s| !plain_segment(R::TABLE, &s.file) || !there(&name_of(s))) {
            if !there(&format!("{}.damaged", name_of(gone))) {
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
    /// Makes segments of the parts of open segments, and removes the parts. Returns each segment and the number of its
    /// rows that events led to.
    fn join_parts<R: Row>(
        &mut self,
        folder: &Folder,
        names: &[(String, Entry)],
        mut next_id: i64,
    ) -> Result<Vec<(Segment, i64)>> {
        let mut of_segment: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (name, _) in names {
            if let Some(segment) = parts::segment_of(name) {
                of_segment.entry(segment).or_default().push(name);
            }
        }
        let mut joined = Vec::new();
        for (number, parts) in of_segment {
            // If its segment was closed, the writer died while it removed the parts.
            if !names.iter().any(|(name, _)| *name == format!("{number:06}.parquet")) {
                let mut table = TableWriter::<R>::joining(self.reel, number, next_id);
                let mut events = 0;
                for part in &parts {
                    // The last part may be incomplete.
                    for row in rows_of::<R>(self.reel, &format!("{}/{part}", R::TABLE)).unwrap_or_default() {
                        events += i64::from(row.is_event());
                        table.push_as_is(&row)?;
                    }
                }
                table.flush()?;
                next_id = table.next_id();
                for segment in table.into_segments() {
                    self.done.push(format!("{}: made of the open segment's {} rows", segment.file, segment.rows));
                    joined.push((segment, events));
                }
            }
            for part in parts {
                folder.remove_file(part).map_err(ReelError::io(&folder.path().join(part), "removing the part"))?;
            }
        }
        Ok(joined)
    }

    /// Removes incomplete files of a dead writer.
    fn leftovers(&mut self, folder: &Folder, table: &str) -> Result<()> {
        for (name, entry) in entries(folder)?.into_iter().filter(|(name, _)| name.ends_with(".tmp")) {
            // Segments are merged in a separate folder.
            let removed = match entry.is_folder {
                true => folder.remove_reel(&entry.name),
                false => folder.remove_file(&entry.name),
            };
            removed.map_err(ReelError::io(&folder.path().join(&name), "removing the leftover"))?;
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

/// All rows of a part.
fn rows_of<R: Row>(reel: &Folder, file: &str) -> Result<Vec<R>, String> {
    let mut rows = Vec::new();
    for batch in read(reel, file)? {
        let batch = batch?;
        has_columns::<R>(&batch)?;
        R::read(&batch, &mut rows)?;
    }
    Ok(rows)
}

/// The largest id in a batch of a table that has ids.
fn last_id<R: Row>(batch: &RecordBatch) -> Option<i64> {
    match column::<i64>(batch, R::ID?) {
        Ok(Column::I64(ids)) => ids.iter().flatten().max(),
        _ => None,
    }
}

/// Reads a segment completely. Returns its manifest entry, the number of its rows that events led to, and its largest id
/// (-1: none).
fn measure<R: Row>(reel: &Folder, file: &str) -> Result<(Segment, i64, i64), String> {
    let mut segment = Segment { file: file.into(), ..Segment::default() };
    let (mut from, mut to, mut events, mut id) = (None, None, 0, -1);
    let mut rows: Vec<R> = Vec::new();
    for batch in read(reel, file)? {
        let batch = batch?;
        has_columns::<R>(&batch)?;
        rows.clear();
        R::read(&batch, &mut rows)?;
        id = id.max(last_id::<R>(&batch).unwrap_or(-1));
        segment.rows += rows.len() as i64;
        from = from.or(rows.first().map(Row::time_ns));
        to = to.max(rows.iter().map(Row::end_ns).max());
        events += rows.iter().filter(|r| r.is_event()).count() as i64;
    }
    segment.from_ns = from.unwrap_or(0);
    segment.to_ns = to.unwrap_or(0);
    segment.bytes = bytes_of(reel, file).map_err(|e| e.to_string())?;
    Ok((segment, events, id))
}
