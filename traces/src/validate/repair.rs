//! Makes a complete reel from what a dead writer or a damaged disk left.

use super::{
    folder::{entries, table},
    tables::{bytes_of, has_columns, read},
};
use crate::{
    Manifest, ReelError, Result,
    format::{
        manifest::{ROW_CLASSES, Segment, State},
        table::Row,
        tables::{self, Visitor},
    },
    private::Folder,
    reader::{limits::listed_twice, plain_segment},
};

/// Makes folder and manifest consistent, and returns one sentence per change. Writes the manifest only if something
/// changed.
pub(super) fn repair(reel: &Folder, manifest: &mut Manifest) -> Result<Vec<String>> {
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
        let mut events = 0;
        if let Some(file) = listed_twice(&listed) {
            self.done.push(format!("{file}: listed more than once, now once"));
        }
        for (name, _) in names.into_iter().filter(|(name, _)| name.ends_with(".parquet")) {
            let file = format!("{}/{name}", R::TABLE);
            match measure::<R>(self.reel, &file) {
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
                    if let Some(folder) = &folder {
                        let path = folder.path().join(&name);
                        let moved = folder.rename(&name, format!("{name}.damaged"));
                        moved.map_err(ReelError::io(&path, "moving the damaged segment aside"))?;
                    }
                    self.done.push(format!("{file}: moved aside to .damaged ({why})"));
                }
            }
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

/// Reads a segment completely. Returns its manifest entry, and the number of its rows that events led to.
fn measure<R: Row>(reel: &Folder, file: &str) -> Result<(Segment, i64), String> {
    let mut segment = Segment { file: file.into(), ..Segment::default() };
    let (mut from, mut to, mut events) = (None, None, 0);
    let mut rows: Vec<R> = Vec::new();
    for batch in read(reel, file)? {
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
    segment.bytes = bytes_of(reel, file).map_err(|e| e.to_string())?;
    Ok((segment, events))
}
