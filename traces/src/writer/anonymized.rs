//! A reel with all its names mapped.

use std::{collections::BTreeMap, path::Path, time::Duration};

use crate::anonymize::{Anonymizer, Key};
use crate::{
    Manifest, Reel, ReelError, ReelWriter, Result, WriterOptions,
    format::{
        manifest::{Segment, State},
        rows::{Content, Tree},
        table::Row,
        tables::{self, Visitor},
    },
    writer::TableWriter,
};

/// A segment of the output is one of the input, whatever its size and however long it takes.
const AS_THEY_COME: WriterOptions = WriterOptions { segment_rows: usize::MAX, segment_age: Duration::MAX };

/// Writes the reel `original`, its names mapped with `key`, to the folder `output`, which must not be there yet.
/// Rows, ids, times, segments and counts stay as they are. On failure nothing is left behind.
///
/// # Errors
/// When the reel was never closed, a segment of it cannot be read, or the output cannot be written.
pub fn anonymize(original: &Reel, output: &Path, key: &Key) -> Result<Manifest> {
    if original.manifest.state == State::Recording {
        return Err(ReelError::Unclosed { path: original.path().into() });
    }
    let mut anonymizer = Anonymizer::new(key);
    let manifest = anonymizer.manifest(&original.manifest);
    // The segments of the output are written here; this holds its lock and marks it as unfinished meanwhile.
    let unfinished = Manifest { segments: BTreeMap::new(), ..manifest.clone() };
    let lock = ReelWriter::create(output, &unfinished, WriterOptions::default())?;
    let mut copy = Copy { original, output, anonymizer, segments: BTreeMap::new() };
    let done = copy.all().and_then(|segments| {
        let mut manifest = manifest;
        manifest.cost.reel_bytes = segments.values().flatten().map(|s| s.bytes).sum();
        manifest.segments = segments;
        manifest.write(output)?;
        Ok(manifest)
    });
    drop(lock);
    done.inspect_err(|_| {
        // The first error is the one to tell.
        let _ = std::fs::remove_dir_all(output);
    })
}

struct Copy<'a> {
    original: &'a Reel,
    output: &'a Path,
    anonymizer: Anonymizer,
    segments: BTreeMap<String, Vec<Segment>>,
}

impl Copy<'_> {
    fn all(&mut self) -> Result<BTreeMap<String, Vec<Segment>>> {
        tables::each(self)?;
        self.tree()?;
        Ok(std::mem::take(&mut self.segments))
    }

    fn keep<R: Row>(&mut self, written: Vec<Segment>) {
        if !written.is_empty() {
            self.segments.insert(R::TABLE.into(), written);
        }
    }

    /// The name space goes by path, and so has another order now.
    fn tree(&mut self) -> Result<()> {
        let mut rows = self.original.rows::<Tree>().collect::<Result<Vec<Tree>>>()?;
        rows.iter_mut().for_each(|row| self.anonymizer.row(row));
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        let mut writer = TableWriter::new(self.output, WriterOptions::default());
        for (order, row) in rows.into_iter().enumerate() {
            writer.push(Tree { order: order as i64, ..row })?;
        }
        writer.flush()?;
        self.keep::<Tree>(writer.into_segments());
        Ok(())
    }
}

impl Visitor for Copy<'_> {
    type Error = ReelError;

    fn table<R: Row>(&mut self) -> Result<()> {
        // What was written cannot be hashed away; the name space comes later.
        if R::TABLE == Tree::TABLE || R::TABLE == Content::TABLE {
            return Ok(());
        }
        let mut writer = TableWriter::new(self.output, AS_THEY_COME);
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
