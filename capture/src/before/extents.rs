//! `record --extents`: the on-disk location of files that existed before the workload.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
};

use ioreel_traces::{
    Manifest, ReelWriter, Result, Text,
    fiemap::{self, Extent},
    rows,
};
use rustix::fs::{Mode, OFlags, open};

/// Maximum number of extents of all files: 40 bytes each in memory, a few bytes in the reel.
const MOST: usize = 4_000_000;

/// The extents found.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    of: HashMap<PathBuf, Vec<Extent>>,
    count: usize,
    /// Files skipped because of [`MOST`].
    beyond: i64,
    /// Files that could not be read, and the first error.
    refused: i64,
    why: Option<io::Error>,
}

impl Extents {
    /// Reads the extents of a regular file.
    pub(crate) fn look(&mut self, path: &Path) {
        if self.count >= MOST {
            self.beyond += 1;
            return;
        }
        match of(path, MOST - self.count) {
            Ok(found) => {
                self.count += found.len();
                self.of.insert(path.into(), found);
            }
            Err(e) => {
                self.refused += 1;
                self.why.get_or_insert(e);
            }
        }
    }

    /// Writes the table, in the order of the rows of `tree`. `clear`: converts a name of the reel to the path on disk.
    pub(crate) fn write(
        mut self,
        tree: &[rows::Tree],
        clear: impl Fn(&Text) -> Option<PathBuf>,
        writer: &mut ReelWriter,
        manifest: &mut Manifest,
    ) -> Result<()> {
        let mut order = 0;
        let mut seen = HashSet::new();
        for row in tree.iter().filter(|r| r.kind == "regular" && r.size_bytes.is_some_and(|size| size > 0)) {
            // If a file has several names, the first one stands for all.
            if row.link_id.is_some_and(|link| !seen.insert(link)) {
                continue;
            }
            let Some(path) = clear(&row.path) else { continue };
            if row.origin == "first_touch" {
                self.look(&path);
            }
            for e in self.of.remove(&path).unwrap_or_default() {
                writer.extents.push_as_is(&rows::Extent {
                    order,
                    path: row.path.clone(),
                    offset_bytes: e.offset_bytes,
                    len_bytes: e.len_bytes,
                    physical_bytes: e.physical_bytes,
                    flags: e.flags,
                })?;
                order += 1;
            }
        }
        if self.beyond > 0 {
            let beyond = self.beyond;
            manifest
                .warnings
                .push(format!("the on-disk layout of {beyond} files is missing: the limit is {MOST} extents"));
        }
        if let (Some(why), n) = (self.why, self.refused) {
            manifest.warnings.push(format!("the on-disk layout of {n} files is missing: {why}"));
        }
        Ok(())
    }
}

/// The extents of a file, read without changing its access time if possible.
fn of(path: &Path, most: usize) -> io::Result<Vec<Extent>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::CLOEXEC;
    // Only the owner and root may use O_NOATIME.
    let fd = open(path, flags, Mode::empty()).or_else(|_| open(path, flags - OFlags::NOATIME, Mode::empty()))?;
    fiemap::extents(fd, false, most)
}
