//! A model of the name space as it changes: which names exist and of what kind, and what existed before the workload.
//! It is used for planning; the calls of the replay use the recorded paths.
//!
//! A node is a path, not a file: it stays when the file moves. Its state says which file has that path now. The
//! *initial name* (`pre`) of a file is the path that it had when the workload started. A name that the reel's `tree`
//! does not list is unknown until a result proves whether it exists. In a directory created by the workload, a name
//! that was not created does not exist.

use std::collections::{HashMap, HashSet};

use crate::Skip;
pub use crate::base::file_kind::Kind;
use mounts::Mounts;
pub use rebase::PresentName;
pub use traits::{Attribute, Device, Guessed, InodeAttributes};
use traits::{InodeAttributeSets, NO_ATTRIBUTES};

/// A path.
pub type NodeId = u32;
/// No path.
pub const NO_NODE: NodeId = u32::MAX;
/// The root directory.
pub const ROOT: NodeId = 0;
/// Absolute paths are followed up to this length, bytes. A call cannot name a longer path than [`PATH_BYTES`], but a
/// working directory can be deeper.
const DEEPEST_BYTES: u32 = 4 * PATH_BYTES as u32;
/// The kernel takes no longer path, bytes without NUL.
pub(crate) const PATH_BYTES: usize = 4095;
/// The file has only one known name.
const NO_INODE: u32 = u32::MAX;

/// What exists at a node now.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Not asked for yet.
    Unset,
    /// Unknown. If something exists, its initial name is `pre`.
    Unknown {
        /// Initial name.
        pre: NodeId,
    },
    /// Nothing.
    Absent,
    /// A file.
    Present {
        /// Its kind.
        kind: Kind,
        /// Target of a symbolic link.
        target: Option<Box<[u8]>>,
        /// Initial name; [`NO_NODE`] if the workload created it.
        pre: NodeId,
    },
}

/// What existed at a node when the workload started.
#[derive(Clone, Debug, PartialEq)]
pub enum InitialState {
    /// Unknown.
    Unknown,
    /// Proven to be absent.
    Absent,
    /// A file.
    Present {
        /// Its kind.
        kind: Kind,
        /// Target of a symbolic link.
        target: Option<Box<[u8]>>,
        /// Row in the reel's `tree`; [`NO_NODE`] if proven by a result only.
        row: u32,
        /// A result confirmed it.
        confirmed: bool,
    },
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    name: u32,
    /// Length of its path.
    path_bytes: u32,
    first_child: NodeId,
    next_sibling: NodeId,
    area: Option<Skip>,
    before: InitialState,
    state: State,
    /// Number of its file at the start, shared by all hard links; [`NO_INODE`] if it has one name.
    inode_before: u32,
    /// Likewise now.
    inode: u32,
    /// Created by the workload before the replayed slice: names in it that are not listed do not exist.
    made: bool,
    /// Attributes set by the workload: index in [`Names::traits`].
    traits: u32,
}

/// The name space.
#[derive(Debug)]
pub struct Names {
    nodes: Vec<Node>,
    names: HashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
    children: HashMap<(NodeId, u32), NodeId>,
    roots: HashSet<Vec<u8>>,
    /// Directories above the roots.
    above_roots: HashSet<Vec<u8>>,
    /// Number of files known to have several names.
    inodes: u32,
    /// Numbers of those that the reel's `tree` lists, by link id.
    listed: HashMap<i64, u32>,
    /// Names by number of the file.
    links: HashMap<u32, Vec<NodeId>>,
    /// Attributes that the workload set, followed before a slice. Names share values.
    traits: InodeAttributeSets,
    /// Directories that the paths of the current operation enter and leave again by `..`.
    pub(crate) crossed: Vec<NodeId>,
    /// Symbolic links that were followed.
    pub(crate) passed: Vec<NodeId>,
    /// Where the current path last entered the roots, and the rest of the path from there. Only with `--root`, and after the
    /// workload made a mount.
    pub(crate) entered: Option<(NodeId, Vec<u8>)>,
    /// Resolution of the current path depends on the root directory: it passed an absolute link, or `..` at the root.
    pub(crate) by_root: bool,
    /// Mounts that the workload made.
    pub(crate) mounts: Mounts,
    /// Incremented when paths may lead elsewhere: something other than a regular file was created, removed or moved.
    pub(crate) shape: u64,
    /// Nodes and components of paths visited so far.
    pub(crate) work: u64,
}

/// The directories above a path, without the root.
fn above(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/').map(|(i, _)| path[..i].to_vec())
}

impl Names {
    /// A name space in which only the root is known. `roots`: absolute prefixes that the replay is limited to; empty
    /// for no limit.
    pub fn new(roots: &[Vec<u8>]) -> Self {
        let root = Node {
            parent: ROOT,
            name: 0,
            path_bytes: 0,
            first_child: NO_NODE,
            next_sibling: NO_NODE,
            area: (!roots.is_empty() && !roots.contains(&b"/"[..].to_vec())).then_some(Skip::Outside),
            before: InitialState::Present { kind: Kind::Directory, target: None, row: NO_NODE, confirmed: true },
            state: State::Present { kind: Kind::Directory, target: None, pre: ROOT },
            inode_before: NO_INODE,
            inode: NO_INODE,
            made: false,
            traits: NO_ATTRIBUTES,
        };
        Self {
            nodes: vec![root],
            names: HashMap::from([(Box::from(&b""[..]), 0)]),
            texts: vec![Box::from(&b""[..])],
            children: HashMap::new(),
            roots: roots.iter().cloned().collect(),
            above_roots: roots.iter().flat_map(|root| above(root)).collect(),
            inodes: 0,
            listed: HashMap::new(),
            links: HashMap::new(),
            traits: InodeAttributeSets::default(),
            crossed: Vec::new(),
            passed: Vec::new(),
            entered: None,
            by_root: false,
            mounts: Mounts::default(),
            shape: 0,
            work: 0,
        }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is only the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The node's directory. The root's is itself.
    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node as usize].parent
    }

    /// Why operations here are skipped; `None` if they are replayed.
    pub fn area(&self, node: NodeId) -> Option<Skip> {
        self.nodes[node as usize].area
    }

    /// The prefixes that the replay is limited to; empty for no limit.
    pub fn roots(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.roots.iter()
    }

    /// The topmost of `node` and the directories above it that was not at its current path at the start. `node` itself
    /// if there is none.
    pub fn brought(&mut self, node: NodeId) -> NodeId {
        let (mut brought, mut at) = (node, node);
        while at != ROOT {
            if self.pre(at) != at && self.exists(at) == Some(true) {
                brought = at;
            }
            at = self.parent(at);
        }
        brought
    }

    /// Whether a root of the replay lies below this path.
    pub fn leads_to_root(&self, node: NodeId) -> bool {
        node != NO_NODE && self.above_roots.contains(&self.path(node))
    }

    /// The node's absolute path.
    pub fn path(&self, node: NodeId) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = node;
        while at != ROOT {
            parts.push(self.nodes[at as usize].name);
            at = self.parent(at);
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(&self.texts[*part as usize]);
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// The node of `name` in `dir`. What is deeper than the model follows has no node of its own: it is in an area that
    /// is skipped.
    pub fn child(&mut self, dir: NodeId, name: &[u8]) -> NodeId {
        let path_bytes = self.nodes[dir as usize].path_bytes.saturating_add(name.len() as u32).saturating_add(1);
        if self.nodes[dir as usize].area == Some(Skip::LongPath) {
            return dir;
        }
        let text = match self.names.get(name) {
            Some(t) => *t,
            None => {
                let t = self.texts.len() as u32;
                self.texts.push(name.into());
                self.names.insert(name.into(), t);
                t
            }
        };
        if let Some(c) = self.children.get(&(dir, text)) {
            return *c;
        }
        let id = self.nodes.len() as NodeId;
        let next_sibling = std::mem::replace(&mut self.nodes[dir as usize].first_child, id);
        let mut node = Node {
            parent: dir,
            name: text,
            path_bytes,
            first_child: NO_NODE,
            next_sibling,
            area: self.nodes[dir as usize].area,
            before: InitialState::Unknown,
            state: State::Unset,
            inode_before: NO_INODE,
            inode: NO_INODE,
            made: false,
            traits: NO_ATTRIBUTES,
        };
        if dir == ROOT {
            match name {
                b"proc" => node.area = Some(Skip::Proc),
                b"sys" => node.area = Some(Skip::Sys),
                b"dev" => node.area = Some(Skip::Dev),
                _ => {}
            }
        } else if name == b"shm" && self.area(dir) == Some(Skip::Dev) && self.parent(dir) == ROOT {
            // /dev/shm is a file system like any other.
            node.area = self.area(ROOT).filter(|_| !self.roots.contains(&b"/dev"[..]));
        }
        if path_bytes > DEEPEST_BYTES {
            node.area = Some(Skip::LongPath);
        }
        self.nodes.push(node);
        self.children.insert((dir, text), id);
        if self.nodes[id as usize].area == Some(Skip::Outside) {
            let path = self.path(id);
            if self.roots.contains(&path) {
                self.nodes[id as usize].area = None;
            }
        }
        id
    }

    /// What exists at `node` now, as far as known.
    pub fn state(&mut self, node: NodeId) -> &State {
        if self.nodes[node as usize].state == State::Unset {
            // It follows from what its directory is, and so on upwards.
            let mut unset = vec![node];
            let mut above = self.parent(node);
            while above != ROOT && self.nodes[above as usize].state == State::Unset {
                unset.push(above);
                above = self.parent(above);
            }
            self.work += unset.len() as u64 / 2;
            unset.into_iter().rev().for_each(|n| self.inherit(n));
        }
        &self.nodes[node as usize].state
    }

    /// Determines the state of `node` from that of its directory, which is known.
    fn inherit(&mut self, node: NodeId) {
        let parent = self.parent(node);
        let inherited = match self.nodes[parent as usize].state {
            State::Unknown { pre } => pre,
            State::Present { kind: Kind::Directory | Kind::Unknown, pre, .. } => pre,
            _ => NO_NODE,
        };
        let mut inode = NO_INODE;
        let state = if inherited == NO_NODE {
            State::Absent
        } else {
            let pre = if inherited == parent {
                node
            } else {
                let name = self.texts[self.nodes[node as usize].name as usize].clone();
                self.child(inherited, &name)
            };
            inode = self.nodes[pre as usize].inode_before;
            match &self.nodes[pre as usize].before {
                InitialState::Unknown if self.nodes[inherited as usize].made => State::Absent,
                InitialState::Unknown => State::Unknown { pre },
                InitialState::Absent => State::Absent,
                InitialState::Present { kind, target, .. } => {
                    State::Present { kind: *kind, target: target.clone(), pre }
                }
            }
        };
        self.nodes[node as usize].state = state;
        self.nodes[node as usize].inode = inode;
    }

    /// Whether something exists there; `None` if unknown.
    pub fn exists(&mut self, node: NodeId) -> Option<bool> {
        match self.state(node) {
            State::Present { .. } => Some(true),
            State::Absent => Some(false),
            _ => None,
        }
    }

    /// Its kind, as far as known.
    pub fn kind(&mut self, node: NodeId) -> Kind {
        match self.state(node) {
            State::Present { kind, .. } => *kind,
            _ => Kind::Unknown,
        }
    }

    /// Initial name of what exists here; [`NO_NODE`] if the workload created it.
    pub fn pre(&mut self, node: NodeId) -> NodeId {
        match self.state(node) {
            State::Present { pre, .. } | State::Unknown { pre } => *pre,
            _ => NO_NODE,
        }
    }

    /// What existed at this path at the start.
    pub fn before(&self, node: NodeId) -> &InitialState {
        &self.nodes[node as usize].before
    }

    /// Sets what the reel's `tree` lists at this path.
    pub fn set_before(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>, row: u32) {
        self.nodes[node as usize].before = InitialState::Present { kind, target, row, confirmed: false };
    }

    /// What exists at `node` is about to change, so paths may lead elsewhere unless it is a regular file.
    pub(super) fn bends(&mut self, node: NodeId) {
        let state = &self.nodes[node as usize].state;
        let plain = matches!(state, State::Absent | State::Unset | State::Present { kind: Kind::Regular, .. });
        self.shape += u64::from(!plain);
    }

    /// Removes what exists at `node` and below.
    pub fn clear(&mut self, node: NodeId) {
        let below = self.subtree(node);
        self.work += below.len() as u64 / 2;
        for n in below {
            self.bends(n);
            self.nodes[n as usize].state = State::Absent;
            self.nodes[n as usize].inode = NO_INODE;
            self.nodes[n as usize].traits = NO_ATTRIBUTES;
        }
    }

    /// The workload created this.
    pub fn make(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        self.bends(node);
        self.shape += u64::from(kind != Kind::Regular);
        // No `clear`: nothing existed here, so names below are absent already, and nodes not asked for cost
        // nothing.
        self.nodes[node as usize].state = State::Present { kind, target, pre: NO_NODE };
        self.nodes[node as usize].inode = NO_INODE;
        self.nodes[node as usize].traits = NO_ATTRIBUTES;
    }

    /// Nodes directly below.
    pub fn children_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let next = |at: NodeId| (at != NO_NODE).then_some(at);
        std::iter::successors(next(self.nodes[node as usize].first_child), move |at| {
            next(self.nodes[*at as usize].next_sibling)
        })
    }

    /// The node and all nodes below.
    pub fn subtree(&self, node: NodeId) -> Vec<NodeId> {
        let mut out = vec![node];
        let mut next = 0;
        while next < out.len() {
            out.extend(self.children_of(out[next]));
            next += 1;
        }
        out
    }

    /// The last component of the path.
    pub fn name_of(&self, node: NodeId) -> &[u8] {
        &self.texts[self.nodes[node as usize].name as usize]
    }

    /// What exists at `node` now. Valid after [`Self::unfold`].
    pub fn now(&self, node: NodeId) -> &State {
        &self.nodes[node as usize].state
    }

    /// The number of the file, if it has several names.
    pub fn inode_of(&self, node: NodeId) -> Option<u32> {
        Some(self.nodes[node as usize].inode).filter(|i| *i != NO_INODE)
    }

    /// Determines the state of a node. If it is a directory that moved, creates nodes for the names that moved along.
    fn bring_entries(&mut self, node: NodeId) {
        let State::Present { pre, kind: Kind::Directory | Kind::Unknown, .. } = *self.state(node) else { return };
        if pre == NO_NODE || pre == node {
            return;
        }
        for old in self.children_of(pre).collect::<Vec<_>>() {
            if matches!(self.nodes[old as usize].before, InitialState::Present { .. }) {
                let name = self.name_of(old).to_vec();
                self.child(node, &name);
            }
        }
    }

    /// Determines the state of every node, and creates nodes for names that moved along with directories.
    pub fn unfold(&mut self) {
        let mut todo = vec![ROOT];
        while let Some(node) = todo.pop() {
            self.bring_entries(node);
            todo.extend(self.children_of(node));
        }
    }

    /// Where `node` is after `from` was renamed to `to`.
    pub fn moved(&mut self, node: NodeId, from: NodeId, to: NodeId) -> NodeId {
        let mut tail = Vec::new();
        let mut at = node;
        while at != from {
            if at == ROOT {
                return node;
            }
            tail.push(self.nodes[at as usize].name);
            at = self.parent(at);
        }
        let mut there = to;
        for name in tail.into_iter().rev() {
            let name = self.texts[name as usize].clone();
            there = self.child(there, &name);
        }
        there
    }
}

mod copies;
pub(crate) mod mounts;
mod moves;
mod paths;
mod proofs;
mod rebase;
#[cfg(test)]
mod tests;
mod traits;
