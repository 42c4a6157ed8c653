//! Mounts that the workload made, by mount namespace: which part of the tree a path really leads to.
//!
//! A path as its thread sees it is *seen*; the path of the same file in the tree without these mounts is *real*. A mounted
//! file system that is not part of the tree has a real path that no file has: it starts with NUL.

use std::{collections::BTreeMap, rc::Rc};

/// The initial mount namespace.
pub(super) const INITIAL: usize = 0;

/// Mount points and what they show, the topmost mount last. Both are real paths, without a slash at the end: the root is
/// the empty path.
#[derive(Clone, Debug, Default)]
struct Table {
    at: BTreeMap<String, Vec<String>>,
    /// What the root directory shows, after `pivot_root`.
    root: String,
    /// Length of all paths, also of those that are gone.
    bytes: usize,
}

/// Where a seen path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Real {
    pub(super) path: String,
    /// The mount point at which the path ends.
    pub(super) point: Option<String>,
}

impl Real {
    /// The mount point of a mount over this place.
    pub(super) fn over(self) -> String {
        self.point.unwrap_or(self.path)
    }
}

/// Whether a real path is on a file system that is not part of the tree.
pub(super) fn is_elsewhere(real: &str) -> bool {
    real.starts_with('\0')
}

/// A path without a slash at its end; the root is empty.
fn bare(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// The rest of `path` below `dir`.
fn below<'a>(path: &'a str, dir: &str) -> Option<&'a str> {
    path.strip_prefix(dir).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Most bytes of paths in all namespaces together. Beyond them, mounts are not followed.
const MOST_BYTES: usize = 256 << 20;
/// Longest path of a mount point or of what it shows.
const LONGEST: usize = 16 << 10;
/// What an entry takes beside its paths.
const ENTRY_BYTES: usize = 128;

/// All mount namespaces.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    tables: Vec<Rc<Table>>,
    /// Length of all paths in all tables.
    bytes: usize,
    others: usize,
}

impl Mounts {
    /// Whether all paths are real in this namespace.
    pub(super) fn is_plain(&self, space: usize) -> bool {
        self.tables.get(space).is_none_or(|t| t.at.is_empty() && t.root.is_empty())
    }

    /// The table of a namespace, to be changed. `None`: there are too many mounts.
    fn table(&mut self, space: usize) -> Option<&mut Table> {
        if space >= self.tables.len() {
            self.tables.resize_with(space + 1, Rc::default);
        }
        let table = &mut self.tables[space];
        // A namespace that shares its mounts copies them now.
        if Rc::strong_count(table) > 1 {
            self.bytes += table.bytes;
        }
        (self.bytes < MOST_BYTES).then(|| Rc::make_mut(table))
    }

    /// A copy of a namespace.
    pub(super) fn copy(&mut self, space: usize) -> usize {
        let copy = self.tables.get(space).cloned().unwrap_or_default();
        self.tables.resize_with(self.tables.len().max(INITIAL + 1), Rc::default);
        self.tables.push(copy);
        self.tables.len() - 1
    }

    /// Where a seen path leads.
    pub(super) fn real(&self, space: usize, seen: &str) -> Real {
        let Some(table) = self.tables.get(space) else { return Real { path: bare(seen).to_owned(), point: None } };
        let mut path = table.root.clone();
        let mut point = None;
        for name in bare(seen).split('/').filter(|name| !name.is_empty()) {
            path.push('/');
            path.push_str(name);
            point = None;
            if let Some(shown) = table.at.get(&path).and_then(|mounted| mounted.last()) {
                point = Some(std::mem::replace(&mut path, shown.clone()));
            }
        }
        Real { path, point }
    }

    /// A seen path of a real one, if its namespace shows it at its place.
    pub(super) fn seen(&self, space: usize, real: &str) -> Option<String> {
        let root = self.tables.get(space).map_or("", |t| &*t.root);
        below(bare(real), root).map(|rest| if rest.is_empty() { "/".to_owned() } else { rest.to_owned() })
    }

    /// A mount point at which `shown` is mounted on top.
    pub(super) fn point_of(&self, space: usize, shown: &str) -> Option<String> {
        let table = self.tables.get(space)?;
        table.at.iter().find(|(_, mounted)| mounted.last().is_some_and(|s| s == shown)).map(|(point, _)| point.clone())
    }

    /// A new file system that is not part of the tree.
    pub(super) fn other(&mut self) -> String {
        self.others += 1;
        format!("\0{}", self.others)
    }

    /// Mounts what `shown` is at `point`. False: there are too many mounts.
    #[must_use]
    pub(super) fn mount(&mut self, space: usize, point: String, shown: String) -> bool {
        let bytes = point.len() + shown.len() + ENTRY_BYTES;
        if bytes > LONGEST {
            return false;
        }
        let Some(table) = self.table(space) else { return false };
        table.at.entry(point).or_default().push(shown);
        table.bytes += bytes;
        self.bytes += bytes;
        true
    }

    /// Removes the topmost mount at `point`, and returns what it showed.
    pub(super) fn unmount(&mut self, space: usize, point: &str) -> Option<String> {
        if self.is_plain(space) {
            return None;
        }
        let at = &mut self.table(space)?.at;
        let mounted = at.get_mut(point)?;
        let shown = mounted.pop();
        if mounted.is_empty() {
            at.remove(point);
        }
        shown
    }

    /// The root of the namespace becomes `new`. Returns the former root; `None`: there are too many mounts.
    pub(super) fn pivot(&mut self, space: usize, new: String) -> Option<String> {
        Some(std::mem::replace(&mut self.table(space)?.root, new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_real_behind_mounts() {
        let mut m = Mounts::default();
        let space = m.copy(INITIAL);
        assert!(m.mount(space, "/to".into(), "/from".into()));
        let real = |m: &Mounts, space, seen: &str| m.real(space, seen).path;
        assert_eq!(real(&m, space, "/to/a"), "/from/a");
        assert_eq!(real(&m, space, "/tomato"), "/tomato");
        assert_eq!(real(&m, INITIAL, "/to/a"), "/to/a");
        let other = m.other();
        assert!(m.mount(space, "/from/tmp".into(), other));
        assert!(is_elsewhere(&real(&m, space, "/to/tmp/x")) && is_elsewhere(&real(&m, space, "/from/tmp")));
        assert_eq!(m.real(space, "/to/tmp").point.as_deref(), Some("/from/tmp"));
        m.unmount(space, "/from/tmp");
        assert_eq!(real(&m, space, "/to/tmp/x"), "/from/tmp/x");
        assert_eq!(m.unmount(space, "/from/tmp"), None);
    }

    #[test]
    fn mounts_in_themselves_end() {
        let mut m = Mounts::default();
        let longer = std::iter::successors(Some("/m".to_owned()), |at| Some(format!("{at}/{}", "x".repeat(4000))));
        let followed = longer.take(100).map_while(|at| m.mount(INITIAL, "/m".into(), at).then_some(())).count();
        assert!((2..10).contains(&followed), "{followed}");
    }

    #[test]
    fn a_new_root_shows_its_part_of_the_tree() {
        let mut m = Mounts::default();
        let space = m.copy(INITIAL);
        assert!(m.mount(space, "/jail".into(), "/jail".into()));
        assert_eq!(m.point_of(space, "/jail").as_deref(), Some("/jail"));
        assert_eq!(m.pivot(space, "/jail".into()).as_deref(), Some(""));
        assert!(m.mount(space, "/jail/old".into(), String::new()));
        assert_eq!(m.real(space, "/etc/x").path, "/jail/etc/x");
        assert_eq!(m.real(space, "/old/etc/x").path, "/etc/x");
        assert_eq!(m.seen(space, "/jail/etc").as_deref(), Some("/etc"));
        assert_eq!((m.seen(space, "/jail").as_deref(), m.seen(space, "/etc")), (Some("/"), None));
    }
}
