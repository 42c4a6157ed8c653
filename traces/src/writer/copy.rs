//! Copies a reel while it is being written.

use std::{collections::BTreeMap, io, path::Path};

use super::{ReelWriter, TableWriter, create_folder, locked};
use crate::{
    Manifest, ReelError, Result,
    format::{
        manifest::{Segment, State},
        rows::{File, Task},
        table::Row,
    },
    private::Folder,
    writer::table::name_of,
};

impl ReelWriter {
    /// Makes the reel `path` from the closed segments; call [`ReelWriter::flush`] before. Segments are hard-linked if
    /// possible, otherwise copied. `living` and `files` are rows that the writer gets only at its end and that others
    /// refer to. `manifest` is written last, as that of a complete reel, with mapped names if names are mapped.
    ///
    /// # Errors
    /// If a file cannot be linked or written; the partial copy is removed. This writer continues in any case.
    pub fn copy_to(&mut self, path: &Path, manifest: &Manifest, living: Vec<Task>, files: Vec<File>) -> Result<()> {
        let copy = create_folder(path)?;
        self.fill_copy(&copy, manifest, living, files).inspect_err(|_| {
            // A partial reel is useless; on a full disk, this frees space.
            let _ = copy.remove_this_reel();
        })
    }

    fn fill_copy(&mut self, copy: &Folder, manifest: &Manifest, living: Vec<Task>, files: Vec<File>) -> Result<()> {
        let mut segments: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
        each_table!(self, t => { segments.insert(t.name().to_owned(), t.link_to(copy)?); });
        let tasks = self.tasks.add_to(copy, living)?;
        let files = self.files.add_to(copy, files)?;
        segments.entry(Task::TABLE.into()).or_default().extend(tasks);
        segments.entry(File::TABLE.into()).or_default().extend(files);
        segments.retain(|_, s| !s.is_empty());
        let mut manifest = Manifest { state: State::Complete, segments, ..self.with_kept(manifest) };
        manifest.cost.reel_bytes = manifest.segments.values().flatten().map(|s| s.bytes).sum();
        match &self.names {
            Some(names) => locked(names).manifest(&manifest).write(copy),
            None => manifest.write(copy),
        }
    }
}

impl<R: Row> TableWriter<R> {
    /// Links the closed segments into the reel at `to`.
    fn link_to(&self, reel: &Folder) -> Result<Vec<Segment>> {
        if self.segments.is_empty() {
            return Ok(Vec::new());
        }
        let from = self.folder()?;
        let dir = reel.path().join(R::TABLE);
        let to = reel.create_folder(R::TABLE).map_err(ReelError::io(&dir, "creating the table's folder"))?;
        for segment in &self.segments {
            let name = name_of(&segment.file);
            // The file system may not support hard links.
            from.link(name, &to)
                .or_else(|_| io::copy(&mut from.file(name)?, &mut to.create_file(name)?).map(drop))
                .map_err(ReelError::io(&dir.join(name), "copying the segment"))?;
        }
        Ok(self.segments.clone())
    }

    /// Writes rows that this table does not contain into the reel at `to`, after the output of
    /// [`TableWriter::link_to`].
    fn add_to(&self, to: &Folder, rows: Vec<R>) -> Result<Vec<Segment>> {
        let mut table = Self::new(Some(to), self.options);
        table.on_create.clone_from(&self.on_create);
        table.names.clone_from(&self.names);
        (table.next_segment, table.next_id) = (self.next_segment, self.next_id);
        rows.into_iter().try_for_each(|row| table.push(row))?;
        table.flush()?;
        Ok(table.into_segments())
    }
}
