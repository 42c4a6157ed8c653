//! Mounts that the workload made: what a mount point shows, by mount namespace.
//!
//! A bind mount shows another directory or file of the tree: paths through the mount point continue at its node. Any
//! other mount shows a file system that is not part of the recorded tree: paths continue at a node of its own, in an area
//! that is skipped.

use std::{collections::BTreeMap, sync::Arc};

use super::{Names, NodeId, ROOT};
use crate::Skip;

/// The initial mount namespace.
pub(crate) const INITIAL: u32 = 0;
/// A mount namespace whose mounts are unknown.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// Most mounts in all namespaces together. Beyond them, mounts are not followed.
const MOST_MOUNTS: usize = 1 << 20;

/// Mount points of one namespace, and the roots of what is mounted there, the topmost last.
type MountPoints = BTreeMap<NodeId, Vec<NodeId>>;

/// The mounts of all mount namespaces.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// By number of the namespace. Namespaces without changes of their own share their mounts.
    tables: Vec<Arc<MountPoints>>,
    /// Mounts in all tables, and those that are gone since a table was copied.
    held: usize,
    /// Number of mounted file systems that are not part of the tree.
    others: u32,
    /// The namespace in which paths are resolved.
    pub(crate) current: u32,
    /// The mount point at which the current path ends.
    pub(crate) end: Option<NodeId>,
    /// The node to which the current path leads, also where operations are skipped.
    pub(crate) led: Option<NodeId>,
    /// The current path led through a mount point.
    pub(crate) crossed: bool,
    /// The workload made mounts, or changed its root by `pivot_root`.
    pub(crate) any: bool,
}

impl Mounts {
    /// The table of a namespace, to be changed. `None`: it is not known, or there are too many mounts.
    fn table(&mut self, space: u32) -> Option<&mut MountPoints> {
        if space == UNKNOWN {
            return None;
        }
        let space = space as usize;
        if space >= self.tables.len() {
            self.tables.resize_with(space + 1, Arc::default);
        }
        let table = &mut self.tables[space];
        // A namespace that shares its mounts copies them now.
        if Arc::strong_count(table) > 1 {
            self.held += table.len();
        }
        (self.held < MOST_MOUNTS).then(|| Arc::make_mut(table))
    }

    /// What the topmost mount at `point` shows.
    pub(crate) fn shown(&self, space: u32, point: NodeId) -> Option<NodeId> {
        self.tables.get(space as usize)?.get(&point)?.last().copied()
    }
}

impl Names {
    /// A copy of a mount namespace.
    pub(crate) fn new_mount_space(&mut self, of: u32) -> u32 {
        if of == UNKNOWN {
            return UNKNOWN;
        }
        let tables = &mut self.mounts.tables;
        if tables.is_empty() {
            tables.push(Arc::default());
        }
        tables.push(tables.get(of as usize).cloned().unwrap_or_default());
        tables.len() as u32 - 1
    }

    /// Mounts at `point` what `root` shows. False: there are too many mounts.
    #[must_use]
    pub(crate) fn mount(&mut self, space: u32, point: NodeId, root: NodeId) -> bool {
        let Some(table) = self.mounts.table(space) else { return false };
        table.entry(point).or_default().push(root);
        self.mounts.held += 1;
        self.mounts.any = true;
        self.shape += 1;
        true
    }

    /// A mount point at which `root` is shown.
    pub(crate) fn mount_point_of(&mut self, space: u32, root: NodeId) -> Option<NodeId> {
        let table = self.mounts.tables.get(space as usize)?;
        self.work += table.len() as u64 / 4;
        table.iter().find(|(_, roots)| roots.last() == Some(&root)).map(|(point, _)| *point)
    }

    /// Removes the topmost mount at `point`, and returns its root.
    pub(crate) fn unmount(&mut self, space: u32, point: NodeId) -> Option<NodeId> {
        let table = self.mounts.table(space)?;
        let roots = table.get_mut(&point)?;
        let root = roots.pop();
        if roots.is_empty() {
            table.remove(&point);
        }
        self.shape += 1;
        root
    }

    /// The root of a mounted file system that is not part of the tree. `why`: why operations on it are skipped.
    pub(crate) fn other_file_system(&mut self, why: Skip) -> NodeId {
        self.mounts.others += 1;
        // No path of a workload has such a component.
        let node = self.child(ROOT, format!("\0{}", self.mounts.others).as_bytes());
        self.nodes[node as usize].area = Some(why);
        node
    }

    /// The node at which a path continues that has reached `at`.
    pub(super) fn through_mount(&mut self, at: NodeId) -> NodeId {
        self.mounts.end = None;
        let Some(root) = self.mounts.shown(self.mounts.current, at) else { return at };
        (self.mounts.end, self.mounts.crossed) = (Some(at), true);
        root
    }

    /// After a directory moved: mount points and roots of mounts move along.
    pub(crate) fn relocate_mounts(&mut self, mut moved: impl FnMut(&mut Self, NodeId) -> NodeId) {
        if !self.mounts.any {
            return;
        }
        let mut tables = std::mem::take(&mut self.mounts.tables);
        for table in &mut tables {
            self.work += table.len() as u64;
            let old = std::mem::take(table);
            let new = old
                .iter()
                .map(|(point, roots)| (moved(self, *point), roots.iter().map(|root| moved(self, *root)).collect()));
            *table = Arc::new(new.collect());
        }
        self.mounts.tables = tables;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(&[])
    }

    fn led(names: &mut Names, space: u32, path: &str) -> Vec<u8> {
        names.mounts.current = space;
        let node = names.resolve(ROOT, ROOT, path.as_bytes(), true).expect("no loop");
        names.path(node)
    }

    #[test]
    fn paths_continue_behind_a_bind_mount_in_its_namespace_alone() {
        let mut n = names();
        let (from, to) = (n.literal(b"/from"), n.literal(b"/to"));
        let space = n.new_mount_space(INITIAL);
        assert!(n.mount(space, to, from));
        assert_eq!(led(&mut n, space, "/to/a/b"), b"/from/a/b");
        assert_eq!(n.entered.take(), Some((from, b"a/b".to_vec())), "where a replay starts its path");
        assert_eq!(led(&mut n, INITIAL, "/to/a/b"), b"/to/a/b");
        assert_eq!(led(&mut n, space, "/to/../x"), b"/x", "a mount's parent is that of its mount point");
        let deeper = n.new_mount_space(space);
        assert_eq!(n.unmount(deeper, to), Some(from));
        assert_eq!(led(&mut n, deeper, "/to/a"), b"/to/a");
        assert_eq!(led(&mut n, space, "/to/a"), b"/from/a");
    }

    #[test]
    fn the_topmost_mount_counts_and_a_directory_may_be_mounted_on_itself() {
        let mut n = names();
        let [a, b, to] = ["/a", "/b", "/to"].map(|p| n.literal(p.as_bytes()));
        assert!([to, a, b].into_iter().all(|root| n.mount(INITIAL, to, root)));
        assert_eq!(led(&mut n, INITIAL, "/to/x"), b"/b/x");
        n.unmount(INITIAL, to);
        assert_eq!(led(&mut n, INITIAL, "/to/x"), b"/a/x");
        n.unmount(INITIAL, to);
        assert_eq!(led(&mut n, INITIAL, "/to/x"), b"/to/x");
        assert_eq!(n.mount_point_of(INITIAL, to), Some(to));
    }

    #[test]
    fn copies_of_many_mounts_are_refused() {
        let mut n = names();
        let points: Vec<NodeId> = (0..1000).map(|i| n.literal(format!("/{i}").as_bytes())).collect();
        assert!(points.iter().all(|point| n.mount(INITIAL, *point, ROOT)));
        let spaces = 2 * MOST_MOUNTS / points.len();
        let followed = (0..spaces).filter(|_| {
            let space = n.new_mount_space(INITIAL);
            n.mount(space, points[0], ROOT)
        });
        assert!((spaces / 3..spaces).contains(&followed.count()));
    }

    #[test]
    fn other_file_systems_are_skipped() {
        let mut n = names();
        let to = n.literal(b"/to");
        let other = n.other_file_system(Skip::OtherMount);
        assert!(n.mount(INITIAL, to, other));
        n.mounts.current = INITIAL;
        let node = n.resolve(ROOT, ROOT, b"/to/x/y", true).expect("no loop");
        assert_eq!(n.area(node), Some(Skip::OtherMount));
        assert_eq!(n.area(to), None);
    }
}
