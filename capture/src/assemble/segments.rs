//! Writing during and at the end of a recording: segments, copies, and rows that waited for an end.

use std::path::Path;

use ioreel_traces::{
    Manifest, Result,
    rotate::Keep,
    rows::{File, Task},
};

use super::{Assembler, Life};

impl Assembler {
    /// Drops the oldest segments of a rotating reel.
    pub(crate) fn rotate(&mut self, keep: Keep) -> Result<()> {
        let living: Vec<Task> = self.tasks.values().map(|l| l.row.clone()).collect();
        let before = self.writer.contents.rotated();
        self.writer.rotate(keep, self.last_ns, &living)?;
        if let Some(contents) = self.contents.as_mut().filter(|_| self.writer.contents.rotated() != before) {
            contents.rotated();
        }
        Ok(())
    }

    /// Closes segments that have been open long enough.
    pub(crate) fn flush_if_old(&mut self) -> Result<()> {
        let tasks = &self.tasks;
        self.writer.flush_if_old(|| tasks.values().map(|l| l.row.clone()).collect())
    }

    /// Writes the rows that waited for an end: requests, living tasks, files without a description.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if let Some(waits) = &mut self.waits {
            let rest = waits.rest();
            rest.into_iter().try_for_each(|row| self.writer.waits.push(row))?;
        }
        self.start.rest().into_iter().try_for_each(|row| self.writer.fds.push(row))?;
        self.aio.take_unknown().into_iter().try_for_each(|request| self.aio_unknown(request))?;
        self.rest_below()?;
        let mut lives: Vec<Life> = std::mem::take(&mut self.tasks).into_values().collect();
        lives.sort_by_key(|l| l.row.task_id);
        for life in lives {
            self.writer.tasks.push(life.row)?;
        }
        self.undescribed().into_iter().try_for_each(|file| self.writer.files.push(file))
    }

    /// Copies the reel written so far to `path`, with the rows that it refers to and that are not written yet.
    pub(crate) fn copy_to(&mut self, path: &Path, manifest: &Manifest) -> Result<()> {
        let mut living: Vec<Task> = self.tasks.values().map(|l| l.row.clone()).collect();
        living.sort_by_key(|t| t.task_id);
        let files = self.undescribed();
        self.writer.copy_to(path, manifest, living, files)
    }

    /// Rows of files that no record has described.
    fn undescribed(&self) -> Vec<File> {
        let mut unknown: Vec<_> = self.files.all(|f| !f.described).into_iter().collect();
        unknown.sort_unstable_by_key(|(_, f)| f.id);
        unknown.into_iter().map(|(key, known)| self.undescribed_file(key, known)).collect()
    }
}
