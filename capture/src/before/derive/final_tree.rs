//! The final tree: what the names of the snapshot and of the operations lead to when a recording ends, and what else is
//! in the directories whose whole content was known at the start.
//!
//! It holds what the operations cannot tell: effects of programs that are not recorded, of the kernel, and of privileges
//! and mount options that the recorder does not follow.
//!
//! The same look finds what the initial tree lacks: the content of directories that the workload moved from places that
//! no snapshot saw, and of those that the snapshot did not reach in time.

use std::{
    collections::HashSet,
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ioreel_traces::{
    manifest::Mount,
    rows::{FinalName, Tree},
    text,
};

use super::{Deriver, is_virtual, rows::Disk};
use crate::{
    before::{namespace::Names, snapshot::MOST_ATTRIBUTE_BYTES},
    host::{self, listing, signals},
};

/// Words of `kind` for names that are not there, and for those that were not looked at.
const ABSENT: &str = "absent";
const UNSEEN: &str = "unseen";
/// The reel itself.
const REEL: &str = "reel";

/// Where the look at the final tree ends. A larger tree is cut, and the manifest says so.
const MOST_NAMES: usize = 2_000_000;
/// See [`MOST_NAMES`].
const MOST_TIME: Duration = Duration::from_secs(20);

/// Time to list directories that the snapshot did not reach: at least as long as the snapshot of a working directory
/// may take, and a tenth of the command's time.
const LEAST_REST_TIME: Duration = Duration::from_millis(300);
/// See [`LEAST_REST_TIME`].
const REST_SHARE: u32 = 10;

/// What a look at the final tree must know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtEnd<'a> {
    /// Mounts when the recording began. Where these have changed, names lead elsewhere, so nothing is looked at.
    pub(crate) mounts: &'a [Mount],
    /// The reel itself.
    pub(crate) output: &'a Path,
    /// How long the command ran.
    pub(crate) elapsed_ns: i64,
}

/// The final tree.
#[derive(Debug, Default)]
pub(super) struct FinalTree {
    /// Sorted by path.
    pub(super) rows: Vec<FinalName>,
    /// Content of directories that the workload moved as a whole, or that the snapshot did not reach.
    pub(super) moved: Vec<Moved>,
    /// A limit was reached.
    pub(super) cut: bool,
    /// What the snapshot did not see is in `moved`.
    pub(super) completes: bool,
}

/// Something under a name that no operation used, in a directory that the workload moved or the snapshot did not reach.
#[derive(Debug)]
pub(super) struct Moved {
    /// Its path before the recording.
    pub(super) old: String,
    /// What it is like now.
    pub(super) row: Tree,
}

/// A directory to list.
struct Directory {
    path: String,
    /// Its path before the recording, if its content then is not known.
    old: Option<String>,
    /// Index in the rows.
    row: usize,
}

struct Look<'a> {
    names: &'a Names,
    /// Directories of which the snapshot has seen a part.
    cut: &'a [String],
    /// Until when those are listed, and whether some were not.
    rest_deadline: Instant,
    is_rest_left: bool,
    /// Names that something was moved to.
    moved_to: HashSet<&'a str>,
    with_reel: Option<&'a str>,
    disk: &'a Disk,
    output: Option<String>,
    /// Mount points that are not entered.
    closed: HashSet<PathBuf>,
    /// Places whose mount has changed.
    changed_mounts: Vec<String>,
    /// Device and inode numbers of the recorder's own output.
    own: Vec<(u64, u64)>,
    deadline: Instant,
    attribute_bytes: usize,
    waiting: Vec<Directory>,
    out: FinalTree,
}

/// Looks at the final tree.
pub(super) fn look(d: &Deriver, disk: &Disk, at_end: AtEnd<'_>) -> FinalTree {
    let names = &d.names;
    let elapsed = Duration::from_nanos(at_end.elapsed_ns.max(0) as u64);
    let output = at_end.output.canonicalize().map(|p| text::from_bytes(p.as_os_str().as_encoded_bytes()));
    let mounts = host::mounts();
    let mut look = Look {
        names,
        cut: &d.cut,
        rest_deadline: Instant::now() + LEAST_REST_TIME.max(elapsed / REST_SHARE).min(MOST_TIME),
        is_rest_left: false,
        moved_to: names.moved_to(),
        with_reel: d.with_reel.as_deref(),
        disk,
        output: output.ok().map(|path| disk.name_of(&path)),
        changed_mounts: changed_mounts(at_end.mounts, &mounts).iter().map(|p| disk.name_of(p)).collect(),
        closed: host::not_walked(&mounts),
        own: own_output(),
        deadline: Instant::now() + MOST_TIME,
        attribute_bytes: 0,
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
    out.completes = !out.cut && !look.is_rest_left;
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

/// Whether `path` is `dir` or below it. Both are canonical.
fn is_at_or_below(path: &str, dir: &str) -> bool {
    let dir = dir.strip_suffix('/').unwrap_or(dir);
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Look<'_> {
    fn is_cut(&mut self) -> bool {
        let is_full = self.out.rows.len() >= MOST_NAMES || self.attribute_bytes >= MOST_ATTRIBUTE_BYTES;
        self.out.cut |= is_full || Instant::now() > self.deadline || signals::waiting_end().is_some();
        self.out.cut
    }

    /// Whether this name is not looked at. Where a mount has changed, a row says so.
    fn leaves_out(&mut self, path: &str) -> bool {
        if is_virtual(path) {
            return true;
        }
        if self.output.as_deref().is_some_and(|output| is_at_or_below(path, output)) {
            if self.output.as_deref() == Some(path) {
                self.push_without_look(path, REEL);
            }
            return true;
        }
        let Some(place) = self.changed_mounts.iter().find(|place| is_at_or_below(path, place)) else { return false };
        if place == path {
            self.push_without_look(path, UNSEEN);
        }
        true
    }

    /// The status of a name. If there is none, a row says so.
    fn status(&mut self, path: &str, clear: Option<&Path>) -> Option<Metadata> {
        match clear.map(listing::current_status) {
            Some(Ok(meta)) => return Some(meta),
            Some(Err(e)) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                self.push_without_look(path, ABSENT);
            }
            // The name on disk is not known, too long, or the file system does not answer.
            _ => self.push_without_look(path, UNSEEN),
        }
        None
    }

    /// A name that exists, as far as the operations tell. `made`: the workload created it, or moved it there.
    fn known(&mut self, path: &str, made: bool) {
        if self.leaves_out(path) {
            return;
        }
        let clear = self.disk.clear(path);
        let Some((clear, meta)) = clear.as_deref().zip(self.status(path, clear.as_deref())) else { return };
        let row = self.disk.row(clear, &meta, "derived");
        let at = self.push(&row, &meta);
        let was_listed = |path: &str| self.names.is_listed(path) || self.with_reel == Some(path);
        if !meta.is_dir() || self.closed.contains(clear) {
            return;
        }
        if !made && !was_listed(path) && self.cut.iter().any(|dir| is_at_or_below(path, dir)) {
            let old = Some(path.to_owned());
            self.waiting.push(Directory { path: path.to_owned(), old, row: at });
        } else if made || was_listed(path) {
            // Few directories are moved, and a search takes time in proportion to the moves.
            let mut at_or_above = Path::new(path).ancestors().filter_map(Path::to_str);
            let is_moved = made && at_or_above.any(|dir| self.moved_to.contains(dir));
            let old = if is_moved { self.names.origin(path) } else { None };
            let old = old.filter(|old| !was_listed(old));
            self.waiting.push(Directory { path: path.to_owned(), old, row: at });
        }
    }

    /// Lists a directory whose row is in the table. Known names in it are looked at by themselves.
    fn list(&mut self, dir: &Directory) {
        let is_rest = dir.old.as_ref() == Some(&dir.path);
        if is_rest && Instant::now() > self.rest_deadline {
            self.is_rest_left = true;
            return;
        }
        let Some(children) = self.disk.children(&dir.path) else {
            self.is_rest_left |= dir.old.is_some();
            return;
        };
        self.out.rows[dir.row].complete = Some(1);
        for child in children {
            if self.is_cut() {
                return;
            }
            let Ok((path, clear)) = child else {
                self.out.rows[dir.row].complete = None;
                return;
            };
            if self.names.is_there(&path) || self.leaves_out(&path) {
                continue;
            }
            let Some(meta) = self.status(&path, Some(&clear)) else {
                let is_unseen = self.out.rows.last().is_some_and(|row| row.kind == *UNSEEN);
                self.is_rest_left |= is_unseen && dir.old.is_some();
                continue;
            };
            let row = self.disk.row(&clear, &meta, "derived");
            let at = self.push(&row, &meta);
            let name = path.rsplit('/').next().unwrap_or_default();
            let old = dir.old.as_ref().map(|old| format!("{old}/{name}"));
            if let Some(old) = old.as_ref().filter(|old| !self.names.was_there(old)) {
                self.out.moved.push(Moved { old: old.clone(), row });
            }
            if meta.is_dir() && !self.closed.contains(&clear) {
                self.waiting.push(Directory { path, old, row: at });
            }
        }
    }

    fn push_without_look(&mut self, path: &str, kind: &str) {
        self.out.rows.push(FinalName { path: path.into(), kind: kind.into(), ..FinalName::default() });
    }

    fn push(&mut self, row: &Tree, meta: &Metadata) -> usize {
        self.attribute_bytes += row.xattrs.as_ref().map_or(0, |text| text.len());
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
    fn below_is_meant_by_component() {
        assert!(is_at_or_below("/a/b", "/a") && is_at_or_below("/a", "/a") && is_at_or_below("/a", "/"));
        assert!(!is_at_or_below("/ab", "/a") && !is_at_or_below("/", "/a"));
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
