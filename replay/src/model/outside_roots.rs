//! Follows names outside `--root`, because paths can lead through them to the inside, and what crosses the boundary.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
};

use crate::{
    Call, Skip,
    model::{
        machine::Machine,
        names::{Kind, NO_NODE, NodeId, ROOT, mounts::Place},
        operands::Operands,
    },
    reel::input::Rec,
};

/// Renames and links between the inside and the outside of the roots.
#[derive(Debug, Default)]
pub(crate) struct BorderCrossings {
    /// Outer ends of those with one end inside.
    strayed: BTreeSet<NodeId>,
    /// Those with both ends outside.
    joined: Vec<(NodeId, NodeId)>,
}

impl BorderCrossings {
    /// All names that files which crossed ever had outside. These must become roots for the plan to be right.
    fn all(self) -> BTreeSet<NodeId> {
        let mut joined: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for (a, b) in self.joined {
            joined.entry(a).or_default().push(b);
            joined.entry(b).or_default().push(a);
        }
        let mut todo: Vec<NodeId> = self.strayed.iter().copied().collect();
        let mut all = self.strayed;
        while let Some(node) = todo.pop() {
            todo.extend(joined.get(&node).into_iter().flatten().filter(|n| all.insert(**n)));
        }
        all
    }
}

impl Machine {
    /// Paths outside that must become roots.
    pub(crate) fn strayed(&mut self) -> BTreeSet<Vec<u8>> {
        let all = mem::take(&mut self.outside).all();
        all.into_iter().map(|node| self.names.path(node)).collect()
    }

    /// Applies an operation that is not replayed because it lies outside. The outer end of a crossing becomes a root
    /// when the plan is made again; in the current plan, the file is still followed under its new name.
    pub(crate) fn outside_names_change(&mut self, r: &Rec, v: &Operands, why: Skip) {
        let (node, node2) = (v.node, v.node2);
        let two = r.call.renames() || r.call.links();
        // A loop of symbolic links leads nowhere.
        if r.ret < 0 || node == NO_NODE && node2 == NO_NODE || two && node2 == NO_NODE {
            return;
        }
        if two && why == Skip::Outside {
            self.goes(r, v);
        }
        match r.call {
            // O_TMPFILE creates a file without a name.
            c if c.opens() && r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE => {}
            c if c.opens() && r.aux & 1 != 0 => self.made_outside(node, Kind::Regular, None),
            Call::Mkdir | Call::Mkdirat => self.made_outside(node, Kind::Directory, None),
            c if c.symlinks() => {
                let text = self.reel.texts.paths.bytes(r.path).into();
                self.made_outside(node2, Kind::Symlink, Some(text));
            }
            // An unnamed file, created outside.
            c if c.links() && node == NO_NODE => self.names.make(node2, Kind::Foreign, None),
            c if c.links() => self.names.link(node, node2),
            c if c.renames() && node != NO_NODE => self.renamed(r, node, node2),
            Call::Chroot if node != NO_NODE => self.enters_root(r.task as usize, Place { node, mount: v.mount }),
            Call::Unlink | Call::Unlinkat | Call::Rmdir => {
                if r.removes_directory() {
                    self.left_nameless(node);
                }
                self.names.clear(node);
            }
            _ => {}
        }
    }

    /// A thread changes its root directory. The replay thread follows only to one inside the roots.
    pub(crate) fn enters_root(&mut self, task: usize, Place { node, mount }: Place) {
        let own_root = self.own_root(node);
        let place = self.processes.of(task).place;
        let place = &mut self.processes.places[place].value;
        (place.root, place.own_root, place.root_mount) = (node, own_root, mount);
        self.names.shape += 1;
    }

    /// Whether a thread with a root directory inside the roots changes it to one outside.
    pub(crate) fn leaves_root(&self, r: &Rec, root: NodeId) -> bool {
        let place = self.processes.places[self.processes.of(r.task as usize).place].value;
        root != NO_NODE && place.own_root != ROOT && self.names.area(root).is_some_and(Skip::is_elsewhere)
    }

    /// The root directory that the replay thread has if the recorded one is `root`.
    pub(crate) fn own_root(&self, root: NodeId) -> NodeId {
        if self.names.area(root).is_some_and(Skip::is_elsewhere) { ROOT } else { root }
    }

    /// Records a rename or link with an end outside.
    fn goes(&mut self, r: &Rec, v: &Operands) {
        let (node, node2) = (v.node, v.node2);
        let names = &self.names;
        let is_within = |n: NodeId| n != NO_NODE && names.area(n).is_none();
        let from_within = is_within(node) || node == NO_NODE && v.entry.is_some();
        let moves_roots = r.call.renames() && (names.leads_to_root(node) || names.leads_to_root(node2));
        let strays = from_within != is_within(node2) || moves_roots;
        let outside: Vec<NodeId> = [node, node2].into_iter().filter(|n| *n != NO_NODE && !is_within(*n)).collect();
        let brought: Vec<NodeId> = outside.into_iter().map(|n| self.names.brought(n)).collect();
        match brought[..] {
            [from, to] if !strays => self.outside.joined.push((from, to)),
            _ if strays => self.outside.strayed.extend(brought),
            _ => {}
        }
    }

    fn made_outside(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        self.names.clear(node);
        self.names.make(node, kind, target);
    }
}
