//! Snapshots of existing files: a single entry, or a directory tree.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ioreel_traces::{rows::Tree, text};

use crate::{assemble::kind_of, before::extents::Extents, host::signals};

/// Maximum number of entries; a larger tree is cut, and the manifest says so.
pub(crate) const DEFAULT_SNAPSHOT_ENTRIES: usize = 1_000_000;
/// Maximum duration of a snapshot.
pub(crate) const DEFAULT_SNAPSHOT_TIME: Duration = Duration::from_secs(20);

/// Result of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Entries by absolute path.
    pub(crate) entries: HashMap<String, Tree>,
    /// Directories all of whose entries are included.
    pub(crate) listed: HashSet<String>,
    /// A limit was reached.
    pub(crate) cut: bool,
    /// On-disk locations of its files, if requested.
    pub(crate) extents: Option<Extents>,
}

/// The `tree` row of an existing file.
pub(crate) fn entry(path: &Path, meta: &Metadata, origin: &str) -> Tree {
    let kind = kind_of(meta.mode());
    Tree {
        order: 0,
        path: text::from_bytes(path.as_os_str().as_bytes()),
        origin: origin.into(),
        kind: kind.into(),
        size_bytes: Some(meta.size() as i64),
        alloc_bytes: Some(meta.blocks() as i64 * 512),
        mode: Some((meta.mode() & 0o7777) as i32),
        uid: Some(meta.uid() as i32),
        gid: Some(meta.gid() as i32),
        mtime_ns: Some(meta.mtime() * 1_000_000_000 + meta.mtime_nsec()),
        link_id: (kind != "directory" && meta.nlink() > 1).then_some(meta.ino() as i64 ^ (meta.dev() as i64) << 40),
        target: if kind == "symlink" {
            fs::read_link(path).ok().map(|t| text::from_bytes(t.as_os_str().as_bytes()))
        } else {
            None
        },
    }
}

impl Snapshot {
    /// Adds the directory `dir`, everything below it on the same file system, and the directories above it. Entries
    /// that disappear meanwhile are left out.
    pub(crate) fn add(&mut self, dir: &Path) -> io::Result<()> {
        let dir = dir.canonicalize()?;
        let device = fs::metadata(&dir)?.dev();
        let deadline = Instant::now() + DEFAULT_SNAPSHOT_TIME;
        for above in dir.ancestors().skip(1) {
            if let Ok(meta) = fs::symlink_metadata(above) {
                self.insert(above, &meta);
            }
        }
        let mut waiting: Vec<PathBuf> = vec![dir];
        while let Some(path) = waiting.pop() {
            // The caller checks for the signal too.
            if signals::waiting_end().is_some() {
                return Ok(());
            }
            if self.entries.len() >= DEFAULT_SNAPSHOT_ENTRIES || Instant::now() > deadline {
                self.cut = true;
                // The parents of the remaining entries are unknown, so no directory is known to be complete.
                self.listed.clear();
                return Ok(());
            }
            let Ok(meta) = fs::symlink_metadata(&path) else {
                self.not_whole(&path);
                continue;
            };
            self.insert(&path, &meta);
            if meta.is_dir() && meta.dev() == device {
                let Ok(names) = fs::read_dir(&path) else { continue };
                let mut whole = true;
                waiting.extend(names.filter_map(|e| e.inspect_err(|_| whole = false).ok()).map(|e| e.path()));
                if whole {
                    self.listed.insert(text::from_bytes(path.as_os_str().as_bytes()).to_string());
                }
            }
        }
        Ok(())
    }

    /// Programs that already ran may have created and removed entries meanwhile.
    pub(crate) fn of_what_runs(&mut self) {
        self.listed.clear();
    }

    /// Removes `path` and everything below it: the reel itself.
    pub(crate) fn forget(&mut self, path: &Path) {
        self.not_whole(path);
        let path = text::from_bytes(path.as_os_str().as_bytes());
        self.entries
            .retain(|p, _| p.strip_prefix(&*path).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('/')));
    }

    /// The parent of `path` is not listed completely.
    fn not_whole(&mut self, path: &Path) {
        if let Some(above) = path.parent() {
            self.listed.remove(&*text::from_bytes(above.as_os_str().as_bytes()));
        }
    }

    fn insert(&mut self, path: &Path, meta: &Metadata) {
        let row = entry(path, meta, "snapshot");
        if let Some(extents) = self.extents.as_mut().filter(|_| row.kind == "regular" && meta.size() > 0) {
            extents.look(path);
        }
        self.entries.insert(row.path.to_string(), row);
    }
}
