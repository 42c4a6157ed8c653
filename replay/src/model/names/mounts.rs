//! The tree of mounts (fs/namespace.c): what is mounted where, as far as the workload made it.
//!
//! A mount shows a directory or file of the recorded tree (a bind mount), or the root of a file system that is not part
//! of it. A mount point is a directory as another mount shows it: what is mounted on `b/sub` is not seen at `a/sub`,
//! even if `b` shows `a`. Every mount namespace has a root mount and a tree of mounts of its own.
//!
//! Mount propagation is not followed. Where it could show a mount, paths lead to an unfollowed mount.

use std::collections::HashMap;

use ioreel_traces::mounting::Propagation;

use super::{Names, NodeId, ROOT};
use crate::Skip;

/// Index of a mount in [`Mounts::all`].
pub(crate) type MountId = u32;
/// The root mount of the initial namespace. It stands for all mounts that were there before the workload.
pub(crate) const INITIAL: MountId = 0;

/// Most mounts. Beyond them, mounts are not followed.
const MOST_MOUNTS: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Mount {
    /// What it shows.
    root: NodeId,
    /// The mount that it is mounted on, and where. `None`: the root mount of a namespace, or not attached.
    on: Option<(MountId, NodeId)>,
    children: Vec<MountId>,
    /// What is mounted on it may appear elsewhere (shared mounts).
    sends: bool,
    /// What is mounted elsewhere may appear on it (shared and slave mounts).
    receives: bool,
}

/// A directory in a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) mount: MountId,
}

/// The mounts of all namespaces, and how the current path used them.
#[derive(Debug)]
pub(crate) struct Mounts {
    all: Vec<Mount>,
    /// Mounts by their mount points.
    over: HashMap<(MountId, NodeId), MountId>,
    /// Number of mounted file systems that are not part of the tree.
    others: u32,
    /// Mounts of the starting directory and of the root directory of paths to resolve.
    pub(crate) start: (MountId, MountId),
    /// Where the current path leads, also where operations are skipped. `None`: nowhere.
    pub(crate) led: Option<Place>,
    /// The current path led through a mount point.
    pub(crate) crossed: bool,
    /// The workload made mounts, or changed its root by `pivot_root`.
    pub(crate) any: bool,
}

impl Default for Mounts {
    fn default() -> Self {
        let initial = Mount { root: ROOT, on: None, children: Vec::new(), sends: true, receives: true };
        Self {
            all: vec![initial],
            over: HashMap::new(),
            others: 0,
            start: (INITIAL, INITIAL),
            led: None,
            crossed: false,
            any: false,
        }
    }
}

impl Mounts {
    fn of(&self, id: MountId) -> &Mount {
        &self.all[id as usize]
    }

    /// What a mount shows.
    pub(crate) fn shown_by(&self, id: MountId) -> NodeId {
        self.of(id).root
    }

    fn add(&mut self, mount: Mount) -> Option<MountId> {
        if self.all.len() >= MOST_MOUNTS {
            return None;
        }
        self.any = true;
        self.all.push(mount);
        Some(self.all.len() as u32 - 1)
    }

    /// The mount of which a place is the root, if that mount is not the root of a namespace.
    pub(crate) fn topped_by(&self, place: Place) -> Option<MountId> {
        (self.of(place.mount).root == place.node && place.mount != INITIAL).then_some(place.mount)
    }

    /// The place that `.` of a mount's root stands for in the mount below.
    pub(super) fn below(&self, place: Place) -> Option<Place> {
        let (mount, node) = self.of(place.mount).on.filter(|_| self.of(place.mount).root == place.node)?;
        Some(Place { node, mount })
    }

    pub(super) fn above(&self, place: Place) -> Option<Place> {
        let mount = *self.over.get(&(place.mount, place.node))?;
        Some(Place { node: self.of(mount).root, mount })
    }

    /// Takes a mount, with what is mounted on it, from its mount point.
    pub(crate) fn detach(&mut self, id: MountId) {
        let Some(on) = self.all[id as usize].on.take() else { return };
        self.over.remove(&on);
        self.all[on.0 as usize].children.retain(|child| *child != id);
    }
}

impl Names {
    /// The topmost place at a mount point.
    pub(crate) fn topmost(&mut self, mut place: Place) -> Place {
        while let Some(above) = self.mounts.above(place) {
            self.work += 1;
            place = above;
        }
        place
    }

    /// Mounts `id` over a place. False: it would contain itself.
    #[must_use]
    pub(crate) fn attach(&mut self, id: MountId, over: Place) -> bool {
        let over = self.topmost(over);
        let mut below = Some(over.mount);
        while let Some(mount) = below {
            self.work += 1;
            if mount == id {
                return false;
            }
            below = self.mounts.of(mount).on.map(|(mount, _)| mount);
        }
        self.mounts.detach(id);
        self.mounts.all[id as usize].on = Some((over.mount, over.node));
        self.mounts.all[over.mount as usize].children.push(id);
        self.mounts.over.insert((over.mount, over.node), id);
        if self.mounts.of(over.mount).sends {
            let mount = &mut self.mounts.all[id as usize];
            (mount.sends, mount.receives) = (true, true);
            self.may_appear(over, id);
        }
        self.shape += 1;
        true
    }

    /// What was mounted over a place may also be seen in other mounts that show this place.
    fn may_appear(&mut self, place: Place, id: MountId) {
        self.work += self.mounts.all.len() as u64;
        let peers: Vec<MountId> = (0..self.mounts.all.len() as u32)
            .filter(|n| *n != place.mount && *n != id && self.mounts.of(*n).receives)
            .filter(|n| self.is_within(place.node, self.mounts.of(*n).root))
            .filter(|n| !self.mounts.over.contains_key(&(*n, place.node)))
            .collect();
        for peer in peers {
            let root = self.other_file_system(Skip::UnfollowedMount);
            let unknown = Mount { root, on: Some((peer, place.node)), children: vec![], sends: false, receives: false };
            let Some(unknown) = self.mounts.add(unknown) else { return };
            self.mounts.over.insert((peer, place.node), unknown);
            self.mounts.all[peer as usize].children.push(unknown);
        }
    }

    /// A mount that shows `root` and is attached nowhere. `None`: there are too many mounts.
    pub(crate) fn new_mount(&mut self, root: NodeId) -> Option<MountId> {
        self.mounts.add(Mount { root, on: None, children: Vec::new(), sends: false, receives: false })
    }

    /// Likewise, a mount that shows a place and belongs to the peer group of its mount.
    pub(crate) fn new_bind(&mut self, place: Place) -> Option<MountId> {
        let Mount { sends, receives, .. } = *self.mounts.of(place.mount);
        self.mounts.add(Mount { root: place.node, on: None, children: Vec::new(), sends, receives })
    }

    /// A mount that shows a place, with what is mounted below it (`MS_REC`).
    pub(crate) fn copy_from(&mut self, place: Place) -> Option<MountId> {
        let copy = self.new_bind(place)?;
        self.copy_children(place.mount, copy, place.node)?;
        Some(copy)
    }

    /// Copies of what is mounted on `of` below `dir`: pairs of mount and copy, with `of` and `copy` itself.
    fn copy_children(&mut self, of: MountId, copy: MountId, dir: NodeId) -> Option<HashMap<MountId, MountId>> {
        let mut copies = HashMap::from([(of, copy)]);
        let mut todo = vec![of];
        while let Some(parent) = todo.pop() {
            let children = self.mounts.of(parent).children.clone();
            self.work += children.len() as u64 + 1;
            for child in children {
                let Some((_, point)) = self.mounts.of(child).on else { continue };
                if child == copy || parent == of && !self.is_within(point, dir) {
                    continue;
                }
                let on = (copies[&parent], point);
                let new = self.mounts.add(Mount { on: Some(on), children: vec![], ..*self.mounts.of(child) })?;
                self.mounts.over.insert(on, new);
                self.mounts.all[on.0 as usize].children.push(new);
                copies.insert(child, new);
                todo.push(child);
            }
        }
        Some(copies)
    }

    /// A copy of the mount namespace that `mount` is in: pairs of mount and copy.
    pub(crate) fn copy_namespace(&mut self, mount: MountId) -> Option<HashMap<MountId, MountId>> {
        let mut top = mount;
        while let Some((below, _)) = self.mounts.of(top).on {
            self.work += 1;
            top = below;
        }
        let was_used = self.mounts.any;
        let root = self.mounts.of(top).root;
        let copy = self.new_bind(Place { node: root, mount: top })?;
        // A copy alone changes no path.
        self.mounts.any = was_used;
        self.copy_children(top, copy, ROOT)
    }

    /// Sets how a mount propagates; `below`: also what is mounted on it.
    pub(crate) fn propagate(&mut self, mount: MountId, how: Propagation, below: bool) {
        let mut todo = vec![mount];
        while let Some(id) = todo.pop() {
            self.work += 1;
            let mount = &mut self.mounts.all[id as usize];
            (mount.sends, mount.receives) = (how == Propagation::Shared, how != Propagation::Private);
            if below {
                todo.extend(&mount.children);
            }
        }
    }

    /// Shared ones of these mounts become slaves.
    pub(crate) fn propagate_to_slaves(&mut self, mounts: impl IntoIterator<Item = MountId>) {
        for id in mounts {
            self.mounts.all[id as usize].sends = false;
        }
    }

    /// `pivot_root`: `new` becomes the root of its namespace instead of `old`, which is then mounted over `put`.
    #[must_use]
    pub(crate) fn pivot(&mut self, new: MountId, old: MountId, put: Place) -> bool {
        let under_old = self.mounts.of(old).on;
        self.mounts.detach(new);
        self.mounts.detach(old);
        let attached = under_old.is_none_or(|(mount, node)| self.attach(new, Place { node, mount }));
        attached && self.attach(old, put)
    }

    /// The root of a mounted file system that is not part of the tree. `why`: why operations on it are skipped.
    pub(crate) fn other_file_system(&mut self, why: Skip) -> NodeId {
        self.mounts.others += 1;
        // No path of a workload has such a component.
        let node = self.child(ROOT, format!("\0{}", self.mounts.others).as_bytes());
        self.nodes[node as usize].area = Some(why);
        node
    }

    /// After a directory moved: mount points and roots of mounts move along.
    pub(crate) fn relocate_mounts(&mut self, mut moved: impl FnMut(&mut Self, NodeId) -> NodeId) {
        if !self.mounts.any {
            return;
        }
        self.work += self.mounts.all.len() as u64;
        let mut points = Vec::new();
        for id in 0..self.mounts.all.len() as u32 {
            let Mount { root, on, .. } = *self.mounts.of(id);
            self.mounts.all[id as usize].root = moved(self, root);
            let Some((below, point)) = on else { continue };
            let there = moved(self, point);
            if there != point {
                self.mounts.over.remove(&(below, point));
                points.push((id, (below, there)));
            }
        }
        // Two directories may have been exchanged, so all old points go first.
        for (id, on) in points {
            self.mounts.over.insert(on, id);
            self.mounts.all[id as usize].on = Some(on);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(&[])
    }

    /// Mounts what is at `from` over `to`, in the namespace with the root mount `space`.
    fn bind(n: &mut Names, space: MountId, from: &str, to: &str) -> MountId {
        let [from, to] = [from, to].map(|path| place(n, space, path));
        let new = n.new_bind(from).unwrap();
        assert!(n.attach(new, to));
        new
    }

    fn place(n: &mut Names, space: MountId, path: &str) -> Place {
        n.mounts.start = (space, space);
        n.resolve(ROOT, ROOT, path.as_bytes(), true).expect("no loop");
        n.mounts.led.unwrap()
    }

    fn led(n: &mut Names, space: MountId, path: &str) -> String {
        let place = place(n, space, path);
        String::from_utf8(n.path(place.node)).unwrap()
    }

    fn new_space(n: &mut Names, of: MountId) -> MountId {
        let copy = n.copy_namespace(of).unwrap()[&of];
        n.propagate(copy, Propagation::Private, true);
        copy
    }

    #[test]
    fn paths_continue_behind_a_bind_mount_in_its_namespace_alone() {
        let mut n = names();
        let space = new_space(&mut n, INITIAL);
        bind(&mut n, space, "/from", "/to");
        assert_eq!(led(&mut n, space, "/to/a/b"), "/from/a/b");
        let from = n.literal(b"/from");
        assert_eq!(n.entered.take(), Some((from, b"a/b".to_vec())), "where a replay starts its path");
        assert_eq!(led(&mut n, INITIAL, "/to/a/b"), "/to/a/b");
        assert_eq!(led(&mut n, space, "/to/../x"), "/x", "a mount's parent is that of its mount point");
        let deeper = new_space(&mut n, space);
        let top = place(&mut n, deeper, "/to").mount;
        n.mounts.detach(top);
        assert_eq!(led(&mut n, deeper, "/to/a"), "/to/a");
        assert_eq!(led(&mut n, space, "/to/a"), "/from/a");
    }

    #[test]
    fn a_directory_in_a_mount_has_the_parent_of_the_mount_point() {
        let mut n = names();
        bind(&mut n, INITIAL, "/a/from", "/b/c/to");
        let cwd = place(&mut n, INITIAL, "/b/c/to/s");
        n.mounts.start = (cwd.mount, INITIAL);
        let node = n.resolve(ROOT, cwd.node, b"../../x", true).expect("no loop");
        assert_eq!(n.path(node), b"/b/c/x");
        let here = n.resolve(ROOT, cwd.node, b"../x", true).expect("no loop");
        assert_eq!(n.path(here), b"/a/from/x");
    }

    #[test]
    fn the_topmost_mount_counts_and_a_directory_may_be_mounted_on_itself() {
        let mut n = names();
        let mounts = ["/to", "/a", "/b"].map(|from| bind(&mut n, INITIAL, from, "/to"));
        for (top, shown) in mounts.into_iter().rev().zip(["/b/x", "/a/x", "/to/x"]) {
            assert_eq!(led(&mut n, INITIAL, "/to/x"), shown);
            assert_eq!(led(&mut n, INITIAL, "/to/../x"), "/x");
            let place = place(&mut n, INITIAL, "/to");
            assert_eq!(n.mounts.topped_by(place), Some(top));
            n.mounts.detach(top);
        }
        assert_eq!(led(&mut n, INITIAL, "/to/x"), "/to/x");
    }

    #[test]
    fn a_mount_in_a_mount_is_seen_there_alone() {
        let mut n = names();
        let space = new_space(&mut n, INITIAL);
        bind(&mut n, space, "/a", "/b");
        bind(&mut n, space, "/c", "/b/s");
        assert_eq!(led(&mut n, space, "/b/s/x"), "/c/x");
        assert_eq!(led(&mut n, space, "/a/s/x"), "/a/s/x");
        // A bind mount shows its directory alone, a recursive one what is mounted there, too.
        bind(&mut n, space, "/b", "/plain");
        assert_eq!(led(&mut n, space, "/plain/s/x"), "/a/s/x");
        let from = place(&mut n, space, "/b");
        let (copy, over) = (n.copy_from(from).unwrap(), place(&mut n, space, "/all"));
        assert!(n.attach(copy, over));
        assert_eq!(led(&mut n, space, "/all/s/x"), "/c/x");
    }

    #[test]
    fn where_a_mount_may_propagate_paths_lead_to_an_unfollowed_one() {
        let mut n = names();
        bind(&mut n, INITIAL, "/a", "/b");
        bind(&mut n, INITIAL, "/c", "/b/s");
        assert_eq!(led(&mut n, INITIAL, "/b/s/x"), "/c/x");
        let seen = place(&mut n, INITIAL, "/a/s/x");
        assert_eq!(n.area(seen.node), Some(Skip::UnfollowedMount));
        assert_eq!(led(&mut n, INITIAL, "/a/t"), "/a/t");
    }

    #[test]
    fn a_moved_mount_takes_along_what_is_mounted_on_it() {
        let mut n = names();
        let space = new_space(&mut n, INITIAL);
        let moved = bind(&mut n, space, "/a", "/b");
        let cwd = place(&mut n, space, "/b");
        bind(&mut n, space, "/c", "/b/s");
        let to = place(&mut n, space, "/d/e");
        assert!(n.attach(moved, to));
        assert_eq!(led(&mut n, space, "/d/e/s/x"), "/c/x");
        assert_eq!(led(&mut n, space, "/b/s"), "/b/s");
        n.mounts.start = (cwd.mount, space);
        let node = n.resolve(ROOT, cwd.node, b"../x", true).expect("no loop");
        assert_eq!(n.path(node), b"/d/x");
        let inside = place(&mut n, space, "/d/e/s");
        assert!(!n.attach(moved, inside), "a mount in itself");
    }

    #[test]
    fn a_new_root_stands_on_the_old_one() {
        let mut n = names();
        let space = new_space(&mut n, INITIAL);
        let new = bind(&mut n, space, "/jail", "/jail");
        let put = place(&mut n, space, "/jail/old");
        assert!(n.pivot(new, space, put));
        n.mounts.start = (new, new);
        let root = n.literal(b"/jail");
        let led = |n: &mut Names, path: &[u8]| {
            let node = n.resolve(root, root, path, true).expect("no loop");
            n.path(node)
        };
        assert_eq!(led(&mut n, b"/etc/x"), b"/jail/etc/x");
        assert_eq!(led(&mut n, b"/old/etc/x"), b"/etc/x");
        assert_eq!(led(&mut n, b"/old/../x"), b"/jail/x");
        assert_eq!(led(&mut n, b"/../../x"), b"/jail/x");
        n.mounts.detach(space);
        assert_eq!(led(&mut n, b"/old/etc/x"), b"/jail/old/etc/x");
    }

    #[test]
    fn exchanged_mount_points_keep_their_mounts() {
        let mut n = names();
        bind(&mut n, INITIAL, "/x", "/a");
        bind(&mut n, INITIAL, "/y", "/b");
        let (a, b) = (n.literal(b"/a"), n.literal(b"/b"));
        n.relocate_mounts(|_, node| {
            if node == a {
                b
            } else if node == b {
                a
            } else {
                node
            }
        });
        assert_eq!(led(&mut n, INITIAL, "/a"), "/y");
        assert_eq!(led(&mut n, INITIAL, "/b"), "/x");
    }

    #[test]
    fn too_many_mounts_are_refused() {
        let mut n = names();
        for at in 0..1000 {
            bind(&mut n, INITIAL, "/a", &format!("/{at}"));
        }
        let copies = (0..2 * MOST_MOUNTS / 1000).map_while(|_| n.copy_namespace(INITIAL)).count();
        assert!((MOST_MOUNTS / 1100..MOST_MOUNTS / 900).contains(&copies), "{copies}");
    }

    #[test]
    fn other_file_systems_are_skipped() {
        let mut n = names();
        let to = place(&mut n, INITIAL, "/to");
        let other = n.other_file_system(Skip::OtherMount);
        let mount = n.new_mount(other).unwrap();
        assert!(n.attach(mount, to));
        let seen = place(&mut n, INITIAL, "/to/x/y");
        assert_eq!(n.area(seen.node), Some(Skip::OtherMount));
        assert_eq!(n.area(to.node), None);
    }
}
