//! Snapshots of existing files: a single entry, or a directory tree.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::{self, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ioreel_traces::{
    host::attributes,
    rows::Tree,
    text,
    xattrs::{self, Attributes},
};

use crate::{
    assemble::kind_of,
    before::extents::Extents,
    host::{listing, signals},
};

/// Extended attributes that a look at a tree takes at most, bytes.
pub(crate) const MOST_ATTRIBUTE_BYTES: usize = 128 << 20;

/// Where a snapshot ends. A larger tree is cut, and the manifest says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of names.
    pub names: usize,
    /// Maximum duration.
    pub time: Duration,
}

impl Bound {
    /// Of the working directory: nobody asked for its snapshot, and the command waits for it.
    pub const CWD: Self = Self { names: 50_000, time: Duration::from_millis(300) };
    /// Of a directory that the user named.
    pub const ASKED: Self = Self { names: 1_000_000, time: Duration::from_secs(20) };
}

/// Result of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Entries by absolute path.
    pub(crate) entries: HashMap<String, Tree>,
    /// Directories all of whose entries are included. What was missing there came later.
    pub(crate) listed: HashSet<String>,
    /// The directory of the reel, if it is included but for the reel itself.
    pub(crate) with_reel: Option<String>,
    /// Bytes of extended attributes.
    pub(crate) attribute_bytes: usize,
    /// Requested directories of which a limit was reached.
    pub(crate) cut: Vec<String>,
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
        rdev: matches!(kind, "char" | "block").then(|| device_number(meta.rdev())),
        xattrs: xattrs::to_text(&attributes_of(path)),
    }
}

/// Those extended attributes of a file that a replay can give it.
fn attributes_of(path: &Path) -> Attributes {
    let all = attributes::attributes(path, attributes::is_of_workload);
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A device number of stat(2) as in the reel.
fn device_number(dev: u64) -> i64 {
    i64::from(libc::major(dev)) << 20 | i64::from(libc::minor(dev))
}

impl Snapshot {
    /// Adds the directory `dir`, everything below it, and the directories above it. It leaves out mounts at `closed`
    /// places, and entries that disappear meanwhile. At `bound`, the names farthest from `dir` are missing.
    pub(crate) fn add(&mut self, dir: &Path, bound: Bound, closed: &HashSet<PathBuf>) -> io::Result<()> {
        let dir = dir.canonicalize()?;
        let meta = fs::symlink_metadata(&dir)?;
        let deadline = Instant::now() + bound.time;
        let most = self.entries.len().saturating_add(bound.names);
        for above in dir.ancestors().skip(1) {
            if let Ok(meta) = fs::symlink_metadata(above) {
                self.insert(above, &meta);
            }
        }
        self.insert(&dir, &meta);
        let asked = text::from_bytes(dir.as_os_str().as_bytes()).to_string();
        let mut is_cut = false;
        let mut waiting = VecDeque::from([dir]);
        while let Some(dir) = waiting.pop_front() {
            let names = match listing::children(&dir) {
                Ok(names) => names,
                Err(e) => {
                    is_cut |= e.kind() != io::ErrorKind::NotFound;
                    continue;
                }
            };
            let mut whole = true;
            for name in names {
                // The caller checks for the signal too.
                if signals::waiting_end().is_some() {
                    return Ok(());
                }
                let is_full = self.entries.len() >= most || self.attribute_bytes >= MOST_ATTRIBUTE_BYTES;
                if is_full || Instant::now() > deadline {
                    self.cut.push(asked);
                    return Ok(());
                }
                let found = name.and_then(|path| fs::symlink_metadata(&path).map(|meta| (path, meta)));
                let (path, meta) = match found {
                    Ok(found) => found,
                    Err(e) => {
                        whole = false;
                        // It exists, but its path is too long, or the file system does not answer.
                        is_cut |= e.kind() != io::ErrorKind::NotFound;
                        continue;
                    }
                };
                self.insert(&path, &meta);
                if meta.is_dir() && !closed.contains(&path) {
                    waiting.push_back(path);
                }
            }
            if whole {
                self.listed.insert(text::from_bytes(dir.as_os_str().as_bytes()).to_string());
            }
        }
        if is_cut {
            self.cut.push(asked);
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
            self.with_reel = self.listed.take(&*text::from_bytes(above.as_os_str().as_bytes()));
        }
    }

    fn insert(&mut self, path: &Path, meta: &Metadata) {
        let row = entry(path, meta, "snapshot");
        if let Some(extents) = self.extents.as_mut().filter(|_| row.kind == "regular" && meta.size() > 0) {
            extents.look(path);
        }
        self.attribute_bytes += row.xattrs.as_ref().map_or(0, |text| text.len());
        self.entries.insert(row.path.to_string(), row);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Five directories of ten files each, in one directory.
    fn tree() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        for dir in 0..5 {
            let dir = top.path().join(dir.to_string());
            fs::create_dir(&dir).unwrap();
            (0..10).for_each(|file| fs::write(dir.join(file.to_string()), "x").unwrap());
        }
        top
    }

    fn snapshot(dir: &Path, names: usize) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.add(dir, Bound { names, time: Duration::from_secs(60) }, &HashSet::new()).unwrap();
        snapshot
    }

    #[test]
    fn a_bound_cuts_the_farthest_names_and_only_whole_directories_are_listed() {
        let dir = tree();
        let top = dir.path().canonicalize().unwrap();
        let above = top.ancestors().count() - 1;
        let whole = snapshot(&top, 1000);
        assert_eq!((whole.entries.len(), whole.listed.len(), whole.cut.len()), (above + 1 + 5 + 50, 6, 0));
        let cut = snapshot(&top, above + 1 + 5 + 25);
        assert_eq!((cut.entries.len(), cut.listed.len(), cut.cut.len()), (above + 1 + 5 + 25, 3, 1));
        assert!(cut.listed.contains(top.to_str().unwrap()));
        let none = snapshot(&top, above + 1 + 3);
        assert!(none.listed.is_empty() && none.cut.len() == 1);
    }

    #[test]
    fn time_is_a_bound() {
        let dir = tree();
        let mut cut = Snapshot::default();
        cut.add(dir.path(), Bound { names: 1000, time: Duration::ZERO }, &HashSet::new()).unwrap();
        assert!(cut.cut.len() == 1 && cut.listed.is_empty());
    }
}
