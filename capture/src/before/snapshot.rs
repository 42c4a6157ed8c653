//! The name space as it is on disk: one entry, or a whole folder.

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

/// Entries a snapshot takes at most; a larger folder is cut, and the manifest says so.
pub(crate) const DEFAULT_SNAPSHOT_ENTRIES: usize = 1_000_000;
/// Time a snapshot takes at most.
pub(crate) const DEFAULT_SNAPSHOT_TIME: Duration = Duration::from_secs(20);

/// What a walk brought.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Entries by absolute path.
    pub(crate) entries: HashMap<String, Tree>,
    /// Folders all of whose names are among them.
    pub(crate) listed: HashSet<String>,
    /// The walk stopped at a limit.
    pub(crate) cut: bool,
    /// Where its files lie, where that is asked for.
    pub(crate) extents: Option<Extents>,
}

/// The `tree` row of what is at `path` now.
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
    /// Adds the folder `dir` and all below it on the same file system, and the folders above it.
    /// Entries that vanish meanwhile are left out.
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
            // Whoever asked for this asks then, too.
            if signals::waiting_end().is_some() {
                return Ok(());
            }
            if self.entries.len() >= DEFAULT_SNAPSHOT_ENTRIES || Instant::now() > deadline {
                self.cut = true;
                // Of those still to be looked at nobody knows which folder they are in.
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

    /// What ran already while the names were listed may have made and removed some.
    pub(crate) fn of_what_runs(&mut self) {
        self.listed.clear();
    }

    /// Leaves out `path` and what is below it: the reel itself.
    pub(crate) fn forget(&mut self, path: &Path) {
        self.not_whole(path);
        let path = text::from_bytes(path.as_os_str().as_bytes());
        self.entries
            .retain(|p, _| p.strip_prefix(&*path).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('/')));
    }

    /// The folder that `path` is in holds more than is listed.
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
