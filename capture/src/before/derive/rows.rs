//! The rows of `tree`. What is unchanged is read from disk; the rest is what the results of operations implied.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
    sync::{MutexGuard, PoisonError},
};

use ioreel_traces::{anonymize::Anonymizer, host, rows::Tree, text, text::Text, writer::Names as MappedNames, xattrs};

use super::{Changes, Clue, Deriver, final_tree::Moved, is_virtual};
use crate::{before::snapshot::Snapshot, host::listing};

/// The disk, accessed by the names of the reel, which are hashes if the reel is anonymised.
pub(super) struct Disk {
    pub(super) names: Option<MappedNames>,
    /// Do not read the disk.
    pub(super) unseen: bool,
}

impl Disk {
    fn names(&self) -> Option<MutexGuard<'_, Anonymizer>> {
        self.names.as_ref().map(|n| n.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The path on disk of a name of the reel.
    pub(super) fn clear(&self, path: &str) -> Option<PathBuf> {
        match self.names() {
            Some(names) => names.original(path),
            None => Some(host::os_path(path)),
        }
    }

    /// The name in the reel of a path on disk.
    pub(super) fn name_of(&self, clear: &str) -> String {
        match self.names() {
            Some(mut names) => names.path(&clear.into()).to_string(),
            None => clear.to_owned(),
        }
    }

    /// The row of a file on disk.
    pub(super) fn row(&self, clear: &Path, meta: &Metadata, origin: &str) -> Tree {
        let mut row = crate::before::snapshot::entry(clear, meta, origin);
        if let Some(mut names) = self.names() {
            names.row(&mut row);
        }
        row
    }

    /// The row of what is at `path` now; `None` if there is nothing, or the original name is unknown.
    fn look(&self, path: &str, origin: &str) -> Option<Tree> {
        let clear = self.clear(path).filter(|_| !self.unseen)?;
        let meta = fs::symlink_metadata(&clear).ok()?;
        Some(self.row(&clear, &meta, origin))
    }

    /// The current entries of the directory `path`: path in the reel, and path on disk. `None` if it cannot be listed.
    pub(super) fn children(&self, path: &str) -> Option<impl Iterator<Item = io::Result<(String, PathBuf)>>> {
        let dir = self.clear(path)?;
        let entries = listing::children(&dir).ok()?;
        Some(entries.map(|entry| {
            let clear = entry?;
            Ok((self.name_of(&text::from_bytes(clear.as_os_str().as_encoded_bytes())), clear))
        }))
    }

    /// Converts the snapshot to the names of the reel.
    pub(super) fn mapped(&self, mut snapshot: Snapshot) -> Snapshot {
        if let Some(mut names) = self.names() {
            let (listed, with_reel) = (std::mem::take(&mut snapshot.listed), snapshot.with_reel.take());
            for cut in &mut snapshot.cut {
                *cut = names.path(&cut.as_str().into()).to_string();
            }
            for (path, mut row) in std::mem::take(&mut snapshot.entries) {
                names.row(&mut row);
                if listed.contains(&path) {
                    snapshot.listed.insert(row.path.to_string());
                }
                if with_reel.as_ref() == Some(&path) {
                    snapshot.with_reel = Some(row.path.to_string());
                }
                snapshot.entries.insert(row.path.to_string(), row);
            }
        }
        snapshot
    }
}

impl Deriver {
    /// All rows, including those of the snapshot. `moved`: content of directories that the workload moved as a whole, as
    /// it is now.
    pub(super) fn rows(self, disk: &Disk, moved: Vec<Moved>) -> Vec<Tree> {
        let Self { mut names, clues, mut changes, filled, .. } = self;
        let (snapshot, mut before) = names.take_before();
        let mut moved: HashMap<String, Tree> =
            moved.into_iter().map(|m| (m.old.clone(), as_it_was(m, &changes))).collect();
        before.extend(moved.keys().cloned());
        for dir in filled {
            // Entries seen later explain why the directory was not empty. If there are none, an entry is invented.
            let below = format!("{dir}/");
            if !before.range(below.clone()..).next().is_some_and(|p| p.starts_with(&below)) {
                before.insert(below + ".unseen-entry");
            }
        }
        let mut rows: Vec<Tree> = snapshot.into_values().collect();
        let linked = linked(&before, &clues, &mut changes);
        for path in before {
            if is_virtual(&path) {
                continue;
            }
            if let Some(row) = moved.remove(&path) {
                rows.push(row);
                continue;
            }
            let clue = clues.get(&path).cloned().unwrap_or_default();
            let mut found = row(disk, &path, clue, &changes);
            if let Some(now) = names.name_now(&path).filter(|now| *now != path) {
                look_at_moved(disk, &mut found, (&path, &now), &changes);
            }
            rows.push(found);
        }
        share_links(&mut rows, &linked);
        rows
    }
}

/// The initial row of something in a moved directory. What the workload changed is not known.
fn as_it_was(Moved { old, mut row }: Moved, changes: &Changes) -> Tree {
    if changes.content.contains(&*row.path) {
        (row.size_bytes, row.alloc_bytes, row.mtime_ns) = (None, None, None);
    }
    if changes.any.contains(&*row.path) {
        (row.mode, row.uid, row.gid) = (None, None, None);
    }
    row.xattrs = lasting(row.xattrs, changes, &[&row.path]);
    row.path = old.into();
    row
}

/// Groups the names that belonged to one file, according to opens through them. What the workload wrote through one
/// name, it wrote through all.
fn linked(before: &BTreeSet<String>, clues: &HashMap<String, Clue>, changes: &mut Changes) -> HashMap<String, i64> {
    let mut names_of: HashMap<i64, Vec<&String>> = HashMap::new();
    for (name, clue) in clues.iter().filter(|(name, _)| before.contains(*name)) {
        if let Some(file) = clue.file {
            names_of.entry(file).or_default().push(name);
        }
    }
    let mut linked = HashMap::new();
    for (file, names) in names_of.into_iter().filter(|(_, names)| names.len() > 1) {
        for set in [&mut changes.any, &mut changes.content, &mut changes.attributes] {
            if names.iter().any(|n| set.contains(*n)) {
                set.extend(names.iter().map(|n| (*n).clone()));
            }
        }
        linked.extend(names.into_iter().map(|n| (n.clone(), file)));
    }
    linked
}

/// Gives all names of a file the same `link_id`: the one found on disk, or a negative one, which no file system uses.
fn share_links(rows: &mut [Tree], linked: &HashMap<String, i64>) {
    let mut of_file: HashMap<i64, Vec<&mut Tree>> = HashMap::new();
    for row in rows {
        if let Some(file) = linked.get(&*row.path) {
            of_file.entry(*file).or_default().push(row);
        }
    }
    for (file, names) in of_file {
        let id = names.iter().find_map(|row| row.link_id).or(Some(file.saturating_neg().saturating_sub(1)));
        names.into_iter().for_each(|row| row.link_id = id);
    }
}

/// The row of a name outside the snapshot.
fn row(disk: &Disk, path: &str, clue: Clue, changes: &Changes) -> Tree {
    let there = disk.look(path, "first_touch");
    if !changes.any.contains(path)
        && let Some(mut there) = there
    {
        there.xattrs = there.xattrs.filter(|_| !changes.attributes.contains(path));
        return there;
    }
    let same_kind = there.filter(|there| clue.kind.as_ref().is_none_or(|kind| *kind == there.kind));
    let xattrs = same_kind.and_then(|there| lasting(there.xattrs, changes, &[path]));
    Tree {
        path: path.into(),
        origin: "derived".into(),
        kind: clue.kind.unwrap_or_else(|| "regular".into()),
        size_bytes: clue.size_bytes,
        mode: clue.mode,
        xattrs,
        ..Tree::default()
    }
}

/// Extended attributes that a file has now and had at the start, unless they were set under one of these names. Writes
/// and changes of mode and owner leave `user.*` and `trusted.*` alone.
fn lasting(now: Option<Text>, changes: &Changes, names: &[&str]) -> Option<Text> {
    let any_in = |set: &HashSet<String>| names.iter().any(|name| set.contains(*name));
    if any_in(&changes.attributes) {
        return None;
    }
    if !any_in(&changes.any) {
        return now;
    }
    let lasts = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"trusted.");
    let kept = xattrs::from_text(&now?).into_iter().filter(|(name, _)| lasts(name)).collect();
    xattrs::to_text(&kept)
}

/// Adds what can be read about something that the workload moved from `path` to `now` and did not remove: its kind, and
/// its size and attributes if these are unchanged.
fn look_at_moved(disk: &Disk, row: &mut Tree, (path, now): (&str, &str), changes: &Changes) {
    let Some(there) = disk.look(now, "derived") else { return };
    let same = |changed: &HashSet<String>| !changed.contains(path) && !changed.contains(now);
    let same_content = same(&changes.content);
    row.kind = there.kind;
    row.target = there.target;
    row.rdev = there.rdev;
    row.mode = row.mode.or(there.mode);
    (row.uid, row.gid) = (there.uid, there.gid);
    row.xattrs = lasting(there.xattrs, changes, &[path, now]);
    if same_content {
        (row.size_bytes, row.alloc_bytes, row.mtime_ns) = (there.size_bytes, there.alloc_bytes, there.mtime_ns);
    } else if row.kind != "regular" {
        row.size_bytes = None;
    }
}
