//! Copies a reel while it is being written.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{ReelWriter, TableWriter, create_folder, locked};
use crate::{
    Manifest, ReelError, Result,
    format::{
        manifest::{Segment, State},
        rows::{File, Task},
        table::Row,
    },
};

impl ReelWriter {
    /// Makes the reel `path` from the closed segments; call [`ReelWriter::flush`] before. Segments are hard-linked if
    /// possible, otherwise copied. `living` and `files` are rows that the writer gets only at its end and that others
    /// refer to. `manifest` is written last, as that of a complete reel, with mapped names if names are mapped.
    ///
    /// # Errors
    /// If a file cannot be linked or written; the partial copy is removed. This writer continues in any case.
    pub fn copy_to(&mut self, path: &Path, manifest: &Manifest, living: Vec<Task>, files: Vec<File>) -> Result<()> {
        create_folder(path)?;
        self.fill_copy(path, manifest, living, files).inspect_err(|_| {
            // A partial reel is useless; on a full disk, this frees space.
            let _ = fs::remove_dir_all(path);
        })
    }

    fn fill_copy(&mut self, path: &Path, manifest: &Manifest, living: Vec<Task>, files: Vec<File>) -> Result<()> {
        let mut segments: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
        each_table!(self, t => { segments.insert(t.name().to_owned(), t.link_to(path)?); });
        let tasks = self.tasks.add_to(path, living)?;
        let files = self.files.add_to(path, files)?;
        segments.entry(Task::TABLE.into()).or_default().extend(tasks);
        segments.entry(File::TABLE.into()).or_default().extend(files);
        segments.retain(|_, s| !s.is_empty());
        let mut manifest = Manifest { state: State::Complete, segments, ..manifest.clone() };
        manifest.cost.reel_bytes = manifest.segments.values().flatten().map(|s| s.bytes).sum();
        match &self.names {
            Some(names) => locked(names).manifest(&manifest).write(path),
            None => manifest.write(path),
        }
    }
}

impl<R: Row> TableWriter<R> {
    /// Links the closed segments into the reel at `to`.
    fn link_to(&self, to: &Path) -> Result<Vec<Segment>> {
        if !self.segments.is_empty() {
            let dir = to.join(R::TABLE);
            fs::create_dir(&dir).map_err(ReelError::io(&dir, "creating the table's folder"))?;
        }
        for segment in &self.segments {
            let (from, to): (PathBuf, PathBuf) = (self.reel.join(&segment.file), to.join(&segment.file));
            // The file system may not support hard links.
            fs::hard_link(&from, &to)
                .or_else(|_| fs::copy(&from, &to).map(drop))
                .map_err(ReelError::io(&to, "copying the segment"))?;
        }
        Ok(self.segments.clone())
    }

    /// Writes rows that this table does not contain into the reel at `to`, after the output of
    /// [`TableWriter::link_to`].
    fn add_to(&self, to: &Path, rows: Vec<R>) -> Result<Vec<Segment>> {
        let mut table = Self::new(to, self.options);
        table.on_create.clone_from(&self.on_create);
        table.names.clone_from(&self.names);
        (table.next_segment, table.next_id) = (self.next_segment, self.next_id);
        rows.into_iter().try_for_each(|row| table.push(row))?;
        table.flush()?;
        Ok(table.into_segments())
    }
}
