//! The tree of mounts (fs/namespace.c): what is mounted where, as far as the workload made it.
//!
//! A mount shows a directory or file of the recorded tree (a bind mount), or the root of a file system that is not part
//! of it. A mount point is a directory as another mount shows it: what is mounted on `b/sub` is not seen at `a/sub`,
//! even if `b` shows `a`. Every mount namespace has a root mount and a tree of mounts of its own.
//!
//! Mount propagation is not followed. Where it could show a mount, paths lead to an unfollowed mount.

use std::collections::{HashMap, HashSet};

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
    /// Copies of what is around it leave it out.
    unbindable: bool,
}

impl Mount {
    /// Of a root, attached nowhere, without peers.
    fn of(root: NodeId) -> Self {
        Self { root, on: None, children: Vec::new(), sends: false, receives: false, unbindable: false }
    }
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
    /// Every node that is or was a mount point, or is shown by a mount.
    nodes: HashSet<NodeId>,
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
        let initial = Mount { sends: true, receives: true, ..Mount::of(ROOT) };
        Self {
            all: vec![initial],
            over: HashMap::new(),
            nodes: HashSet::new(),
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
        self.nodes.insert(mount.root);
        self.nodes.extend(mount.on.map(|(_, point)| point));
        self.all.push(mount);
        Some(self.all.len() as u32 - 1)
    }

    /// The mount of which a place is the root, unless it is the root mount of the initial namespace.
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

    /// Whether a mount shows this node or has it as its mount point.
    pub(crate) fn use_node(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Whether `..` stays at a place: the root of a mount that is mounted nowhere.
    pub(super) fn is_top(&self, place: Place) -> bool {
        let mount = self.of(place.mount);
        mount.root == place.node && mount.on.is_none() && self.any
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
        self.mounts.nodes.insert(over.node);
        let mut below = Some(over.mount);
        while let Some(mount) = below {
            self.work += 1;
            if mount == id {
                return false;
            }
            below = self.mounts.of(mount).on.map(|(mount, _)| mount);
        }
        self.detach(id);
        self.mounts.all[id as usize].on = Some((over.mount, over.node));
        self.mounts.all[over.mount as usize].children.push(id);
        self.mounts.over.insert((over.mount, over.node), id);
        self.shape += 1;
        if !self.mounts.of(over.mount).sends {
            return true;
        }
        self.propagate(id, Propagation::Shared, true);
        self.peers(over).into_iter().filter(|peer| *peer != id).all(|peer| self.may_appear(peer, over.node))
    }

    /// Other mounts that show a place and may receive what is mounted there.
    fn peers(&mut self, place: Place) -> Vec<MountId> {
        const STEPS: u64 = 8;
        self.work += self.mounts.all.len() as u64 * STEPS;
        (0..self.mounts.all.len() as u32)
            .filter(|n| *n != place.mount && self.mounts.of(*n).receives)
            .filter(|n| self.is_within(place.node, self.mounts.of(*n).root))
            .collect()
    }

    /// A mount may have appeared there. False: there are too many mounts.
    fn may_appear(&mut self, peer: MountId, point: NodeId) -> bool {
        if self.mounts.over.contains_key(&(peer, point)) {
            return true;
        }
        let root = self.other_file_system(Skip::UnfollowedMount);
        let Some(unknown) = self.mounts.add(Mount { on: Some((peer, point)), ..Mount::of(root) }) else { return false };
        self.mounts.over.insert((peer, point), unknown);
        self.mounts.all[peer as usize].children.push(unknown);
        true
    }

    /// Takes a mount, with what is mounted on it, from its mount point.
    fn detach(&mut self, id: MountId) {
        let Some(on) = self.mounts.all[id as usize].on.take() else { return };
        self.mounts.over.remove(&on);
        let children = &mut self.mounts.all[on.0 as usize].children;
        if let Some(at) = children.iter().rposition(|child| *child == id) {
            self.work += (children.len() - at) as u64;
            children.swap_remove(at);
        }
        self.shape += 1;
    }

    /// umount. `lazily`: what is mounted on it is taken away, too (`MNT_DETACH`).
    pub(crate) fn unmount(&mut self, id: MountId, lazily: bool) {
        if let Some((mount, node)) = self.mounts.of(id).on.filter(|(below, _)| self.mounts.of(*below).sends) {
            for peer in self.peers(Place { node, mount }) {
                if let Some(there) = self.mounts.over.get(&(peer, node)).copied() {
                    self.hide(there);
                }
            }
        }
        let mut todo = vec![id];
        while let Some(id) = todo.pop() {
            self.detach(id);
            (self.mounts.all[id as usize].sends, self.mounts.all[id as usize].receives) = (false, false);
            if lazily {
                todo.extend(&self.mounts.of(id).children);
            }
        }
    }

    /// What a mount shows is unknown from now on.
    pub(crate) fn hide(&mut self, id: MountId) {
        let root = self.other_file_system(Skip::UnfollowedMount);
        self.mounts.all[id as usize].root = root;
        self.shape += 1;
    }

    /// A name was removed, or another file took its place. Mounts on it are gone, and mounts that show its file show
    /// one without a name.
    pub(crate) fn name_left_mounts(&mut self, node: NodeId) {
        if !self.mounts.use_node(node) {
            return;
        }
        self.work += self.mounts.all.len() as u64;
        for id in 0..self.mounts.all.len() as u32 {
            if self.mounts.of(id).on.is_some_and(|(_, point)| point == node) {
                self.unmount(id, true);
            }
            if self.mounts.of(id).root == node {
                self.hide(id);
            }
        }
    }

    /// A mount that shows `root` and is attached nowhere. `None`: there are too many mounts.
    pub(crate) fn new_mount(&mut self, root: NodeId) -> Option<MountId> {
        self.mounts.add(Mount::of(root))
    }

    /// Likewise, a mount that shows a place and belongs to the peer group of its mount.
    pub(crate) fn new_bind(&mut self, place: Place) -> Option<MountId> {
        let Mount { sends, receives, .. } = *self.mounts.of(place.mount);
        self.mounts.add(Mount { sends, receives, ..Mount::of(place.node) })
    }

    /// A mount that shows a place, with what is mounted below it (`MS_REC`).
    pub(crate) fn copy_from(&mut self, place: Place) -> Option<MountId> {
        let copy = self.new_bind(place)?;
        self.copy_children((place.mount, copy), place.node, true)?;
        Some(copy)
    }

    /// Copies of what is mounted on `of` below `dir`: pairs of mount and copy, with `of` and `copy` itself. `binds`: what
    /// is unbindable is left out.
    fn copy_children(
        &mut self,
        (of, copy): (MountId, MountId),
        dir: NodeId,
        binds: bool,
    ) -> Option<HashMap<MountId, MountId>> {
        let mut copies = HashMap::from([(of, copy)]);
        let mut todo = vec![of];
        while let Some(parent) = todo.pop() {
            let children = self.mounts.of(parent).children.clone();
            self.work += children.len() as u64 + 1;
            for child in children {
                let Some((_, point)) = self.mounts.of(child).on else { continue };
                let left_out = child == copy || binds && self.mounts.of(child).unbindable;
                if left_out || parent == of && !self.is_within(point, dir) {
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
        self.copy_children((top, copy), ROOT, false)
    }

    /// Sets how a mount propagates; `below`: also what is mounted on it.
    pub(crate) fn propagate(&mut self, mount: MountId, how: Propagation, below: bool) {
        let mut todo = vec![mount];
        while let Some(id) = todo.pop() {
            self.work += 1;
            let mount = &mut self.mounts.all[id as usize];
            (mount.sends, mount.receives) =
                (how == Propagation::Shared, matches!(how, Propagation::Shared | Propagation::Slave));
            mount.unbindable = how == Propagation::Unbindable;
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
        self.detach(new);
        self.detach(old);
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
            let shown = moved(self, root);
            self.mounts.all[id as usize].root = shown;
            self.mounts.nodes.insert(shown);
            let Some((below, point)) = on else { continue };
            let there = moved(self, point);
            if there != point {
                self.mounts.over.remove(&(below, point));
                points.push((id, (below, there)));
            }
        }
        // Two directories may have been exchanged, so all old points go first.
        for (id, on) in points {
            self.mounts.nodes.insert(on.1);
            self.mounts.over.insert(on, id);
            self.mounts.all[id as usize].on = Some(on);
        }
    }
}

#[cfg(test)]
mod tests;
