//! Writes a reel with all names mapped.

use std::{collections::BTreeMap, path::Path, time::Duration};

use crate::anonymize::{Anonymizer, Key};
use crate::{
    Manifest, Reel, ReelError, ReelWriter, Result, Text, WriterOptions,
    format::{
        manifest::{Segment, State},
        rows::{Content, FinalName, Tree},
        table::Row,
        tables::{self, Visitor},
    },
    private::Folder,
    writer::TableWriter,
};

/// Each output segment corresponds to an input segment, regardless of size and age.
const AS_THEY_COME: WriterOptions = WriterOptions { segment_rows: usize::MAX, segment_age: Duration::MAX };

/// Writes the reel `original` with names mapped by `key` to the folder `output`, which must not exist. Rows, ids,
/// times, segments and counts stay. On failure, nothing is left.
///
/// # Errors
/// If the reel was never closed, a segment cannot be read, or the output cannot be written.
pub fn anonymize(original: &Reel, output: &Path, key: &Key) -> Result<Manifest> {
    if original.manifest.state == State::Recording {
        return Err(ReelError::Unclosed { path: original.path().into() });
    }
    let mut anonymizer = Anonymizer::new(key);
    let manifest = anonymizer.manifest(&original.manifest);
    // The output segments are written below. This writer holds the lock and marks the reel as unfinished.
    let unfinished = Manifest { segments: BTreeMap::new(), ..manifest.clone() };
    let lock = ReelWriter::create(output, &unfinished, WriterOptions::default())?;
    let folder = lock.folder()?.clone();
    let mut copy = Copy { original, output: &folder, anonymizer, segments: BTreeMap::new() };
    let done = copy.all().and_then(|segments| {
        let mut manifest = manifest;
        manifest.cost.reel_bytes = segments.values().flatten().map(|s| s.bytes).sum();
        manifest.segments = segments;
        manifest.write(&folder)?;
        Ok(manifest)
    });
    drop(lock);
    done.inspect_err(|_| {
        // The first error is the one to report.
        let _ = folder.remove_this_reel();
    })
}

struct Copy<'a> {
    original: &'a Reel,
    output: &'a Folder,
    anonymizer: Anonymizer,
    segments: BTreeMap<String, Vec<Segment>>,
}

impl Copy<'_> {
    fn all(&mut self) -> Result<BTreeMap<String, Vec<Segment>>> {
        tables::each(self)?;
        self.by_path(|row: &Tree| &row.path, |row, order| row.order = order)?;
        self.by_path(|row: &FinalName| &row.path, |row, order| row.order = order)?;
        Ok(std::mem::take(&mut self.segments))
    }

    fn keep<R: Row>(&mut self, written: Vec<Segment>) {
        if !written.is_empty() {
            self.segments.insert(R::TABLE.into(), written);
        }
    }

    /// Tables sorted by path have another order under other names, which the order of the clear names would show.
    fn by_path<R: Row>(&mut self, path: impl Fn(&R) -> &Text, place: impl Fn(&mut R, i64)) -> Result<()> {
        let mut rows = self.original.rows::<R>().collect::<Result<Vec<R>>>()?;
        rows.iter_mut().for_each(|row| self.anonymizer.row(row));
        rows.sort_by(|a, b| path(a).cmp(path(b)));
        let mut writer = TableWriter::new(Some(self.output), WriterOptions::default());
        for (order, mut row) in rows.into_iter().enumerate() {
            place(&mut row, order as i64);
            writer.push(row)?;
        }
        writer.flush()?;
        self.keep::<R>(writer.into_segments());
        Ok(())
    }
}

impl Visitor for Copy<'_> {
    type Error = ReelError;

    fn table<R: Row>(&mut self) -> Result<()> {
        // Contents of writes cannot be hashed; trees are written later.
        if [Tree::TABLE, FinalName::TABLE, Content::TABLE].contains(&R::TABLE) {
            return Ok(());
        }
        let mut writer = TableWriter::new(Some(self.output), AS_THEY_COME);
        for segment in 0..self.original.segments::<R>().len() {
            for row in self.original.segment_rows::<R>(segment) {
                let mut row = row?;
                self.anonymizer.row(&mut row);
                writer.push(row)?;
            }
            writer.flush()?;
        }
        self.keep::<R>(writer.into_segments());
        Ok(())
    }
}
