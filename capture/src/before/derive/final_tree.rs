//! The final tree: what the names of the snapshot and of the operations lead to when a recording ends, and what else is
//! in the directories whose whole content is known.
//!
//! It holds what the operations cannot tell: effects of programs that are not recorded, of the kernel, and of privileges
//! and mount options that the recorder does not follow.

use std::{
    collections::HashSet,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use super::{is_virtual, rows::Disk};
use crate::{before::namespace::Names, host};
use ioreel_traces::{
    manifest::Mount,
    rows::{FinalName, Tree},
    text,
};

/// Where the look at the final tree ends. A larger tree is cut, and the manifest says so.
const MOST_NAMES: usize = 2_000_000;
/// See [`MOST_NAMES`].
const MOST_TIME: Duration = Duration::from_secs(20);

/// What a look at the final tree must know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtEnd<'a> {
    /// Mounts when the recording began. Where these have changed, names lead elsewhere, so nothing is looked at.
    pub(crate) mounts: &'a [Mount],
    /// The reel itself.
    pub(crate) output: &'a Path,
}

/// The final tree.
#[derive(Debug, Default)]
pub(super) struct FinalTree {
    /// Sorted by path.
    pub(super) rows: Vec<FinalName>,
    /// Rows of the initial tree: what directories contained that the workload moved as a whole.
    pub(super) moved: Vec<Tree>,
    /// A limit was reached.
    pub(super) cut: bool,
}

/// A directory to list.
struct Directory {
    path: String,
    /// Its path before the recording, if its content then is not known.
    old: Option<String>,
    dev: u64,
    /// Index in the rows.
    row: usize,
}

struct Look<'a> {
    names: &'a Names,
    walked: &'a HashSet<String>,
    disk: &'a Disk,
    /// The reel itself, and places whose mount has changed.
    elsewhere: Vec<String>,
    /// Device and inode numbers of the recorder's own output.
    own: Vec<(u64, u64)>,
    deadline: Instant,
    waiting: Vec<Directory>,
    out: FinalTree,
}

/// Looks at the final tree. `walked`: directories whose content was known at the start.
pub(super) fn look(names: &Names, walked: &HashSet<String>, disk: &Disk, at_end: AtEnd<'_>) -> FinalTree {
    let mut elsewhere = changed_mounts(at_end.mounts, &host::mounts());
    elsewhere
        .extend(at_end.output.canonicalize().map(|p| text::from_bytes(p.as_os_str().as_encoded_bytes()).to_string()));
    let mut look = Look {
        names,
        walked,
        disk,
        elsewhere: elsewhere.into_iter().map(|path| disk.name_of(&path)).collect(),
        own: own_output(),
        deadline: Instant::now() + MOST_TIME,
        waiting: Vec::new(),
        out: FinalTree::default(),
    };
    for (path, made) in names.present() {
        if look.is_cut() {
            break;
        }
        look.known(path, made);
        while let Some(dir) = look.waiting.pop() {
            look.list(&dir);
        }
    }
    let mut out = look.out;
    if out.cut {
        // Some of their names may be missing.
        out.rows.iter_mut().for_each(|row| row.complete = None);
    }
    out.rows.sort_by(|a, b| a.path.cmp(&b.path));
    for (order, row) in out.rows.iter_mut().enumerate() {
        row.order = order as i64;
    }
    out
}

impl Look<'_> {
    fn is_cut(&mut self) -> bool {
        self.out.cut |= self.out.rows.len() >= MOST_NAMES || Instant::now() > self.deadline;
        self.out.cut
    }

    /// Whether nothing is known or wanted of this name.
    fn leaves_out(&self, path: &str) -> bool {
        let within = |dir: &String| path.strip_prefix(dir.as_str()).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        is_virtual(path) || self.elsewhere.iter().any(within)
    }

    /// A name that exists, as far as the operations tell. `made`: the workload created it, or moved it there.
    fn known(&mut self, path: &str, made: bool) {
        if self.leaves_out(path) {
            return;
        }
        let Some(clear) = self.disk.clear(path) else { return };
        let Ok(meta) = fs::symlink_metadata(&clear) else {
            return self.out.rows.push(FinalName { path: path.into(), kind: "absent".into(), ..FinalName::default() });
        };
        let row = self.disk.row(&clear, &meta, "derived");
        let at = self.push(&row, &meta);
        if meta.is_dir() && (made || self.walked.contains(path)) {
            let old = if made { self.names.origin(path).filter(|old| !self.walked.contains(old)) } else { None };
            self.waiting.push(Directory { path: path.to_owned(), old, dev: meta.dev(), row: at });
        }
    }

    /// Lists a directory whose row is in the table. Known names in it are looked at by themselves.
    fn list(&mut self, dir: &Directory) {
        let Some(children) = self.disk.children(&dir.path) else { return };
        self.out.rows[dir.row].complete = Some(1);
        for path in children {
            if self.names.is_there(&path) || self.leaves_out(&path) {
                continue;
            }
            if self.is_cut() {
                return;
            }
            let Some((clear, meta)) =
                self.disk.clear(&path).and_then(|p| Some((p.clone(), fs::symlink_metadata(p).ok()?)))
            else {
                continue;
            };
            let row = self.disk.row(&clear, &meta, "derived");
            let at = self.push(&row, &meta);
            let name = path.rsplit('/').next().unwrap_or_default();
            let old = dir.old.as_ref().map(|old| format!("{old}/{name}"));
            if let Some(old) = old.as_ref().filter(|old| !self.names.is_known(old)) {
                self.out.moved.push(Tree { path: old.as_str().into(), ..row });
            }
            if meta.is_dir() && meta.dev() == dir.dev {
                self.waiting.push(Directory { path, old, dev: dir.dev, row: at });
            }
        }
    }

    /// Adds a row. Returns its index.
    fn push(&mut self, row: &Tree, meta: &Metadata) -> usize {
        let own = self.own.contains(&(meta.dev(), meta.ino()));
        self.out.rows.push(FinalName {
            order: 0,
            path: row.path.clone(),
            kind: row.kind.clone(),
            size_bytes: row.size_bytes.filter(|_| meta.is_file() && !own),
            mode: row.mode,
            uid: row.uid,
            gid: row.gid,
            links: (!meta.is_dir()).then_some(meta.nlink() as i64),
            link_id: row.link_id,
            target: row.target.clone(),
            rdev: row.rdev,
            xattrs: row.xattrs.clone(),
            complete: None,
        });
        self.out.rows.len() - 1
    }
}

/// Files that the recorder itself writes messages to. What it wrote is not the workload's.
fn own_output() -> Vec<(u64, u64)> {
    let files = (0..3).map(|fd| fs::metadata(format!("/proc/self/fd/{fd}")));
    files.flatten().map(|meta| (meta.dev(), meta.ino())).collect()
}

/// Places where something was mounted or unmounted meanwhile.
fn changed_mounts(before: &[Mount], now: &[Mount]) -> Vec<String> {
    let of = |mounts: &[Mount]| -> HashSet<(String, i64, String)> {
        mounts.iter().map(|m| (m.mountpoint.clone(), m.sb_dev, m.root.clone())).collect()
    };
    of(before).symmetric_difference(&of(now)).map(|(place, ..)| place.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(mountpoint: &str, sb_dev: i64) -> Mount {
        Mount { mountpoint: mountpoint.into(), sb_dev, root: "/".into(), ..Mount::default() }
    }

    #[test]
    fn where_mounts_changed_nothing_is_looked_at() {
        let before = [mount("/", 1), mount("/a", 2), mount("/b", 3)];
        let now = [mount("/", 1), mount("/b", 4), mount("/c", 5)];
        let mut changed = changed_mounts(&before, &now);
        changed.sort();
        changed.dedup();
        assert_eq!(changed, ["/a", "/b", "/c"]);
        assert!(changed_mounts(&before, &before).is_empty());
    }
}
