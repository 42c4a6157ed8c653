//! A model of the name space while it changes: which names exist, of what kind, and what stood there
//! before the workload began. Used for planning only; the calls themselves carry the recorded paths.
//!
//! A node is a path, not a file: it stays when the file moves. Its state says what is there now.
//! What the reel's `tree` does not list is unknown until an operation's result proves it, one way or the
//! other; names inside a directory that the workload made itself are absent, never unknown.

use std::collections::{HashMap, HashSet};

use crate::Skip;
pub use crate::base::file_kind::Kind;
pub use rebase::PresentName;
pub use traits::InodeAttributes;
use traits::{InodeAttributeSets, NO_ATTRIBUTES};

/// A path in the model.
pub type NodeId = u32;
/// No node.
pub const NO_NODE: NodeId = u32::MAX;
/// The root directory.
pub const ROOT: NodeId = 0;
/// No file with several names.
const NO_INODE: u32 = u32::MAX;

/// What is at a node now.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nobody asked yet.
    Unset,
    /// Not known; if there is something, it was at `pre` when the workload began.
    Unknown {
        /// The same place at the start.
        pre: NodeId,
    },
    /// Nothing.
    Absent,
    /// Something.
    Present {
        /// What.
        kind: Kind,
        /// Text of a symbolic link.
        target: Option<Box<[u8]>>,
        /// Where it was at the start; [`NO_NODE`] when the workload made it.
        pre: NodeId,
    },
}

/// What stood at a node when the workload began.
#[derive(Clone, Debug, PartialEq)]
pub enum InitialState {
    /// Not known.
    Unknown,
    /// Proven to be absent.
    Absent,
    /// There.
    Present {
        /// What.
        kind: Kind,
        /// Text of a symbolic link.
        target: Option<Box<[u8]>>,
        /// Row in the reel's `tree`; [`NO_NODE`] when derived here.
        row: u32,
        /// A result confirmed it.
        confirmed: bool,
    },
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    name: u32,
    first_child: NodeId,
    next_sibling: NodeId,
    area: Option<Skip>,
    before: InitialState,
    state: State,
    /// Which hard links it had at the start: the same number, the same file; [`NO_INODE`] for none.
    inode_before: u32,
    /// Likewise now.
    inode: u32,
    /// The workload made it before the start of the slice that is replayed: names in it that are not listed were absent.
    made: bool,
    /// What the workload set of it: number in [`Names::traits`].
    traits: u32,
}

/// The model.
#[derive(Debug)]
pub struct Names {
    nodes: Vec<Node>,
    names: HashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
    children: HashMap<(NodeId, u32), NodeId>,
    roots: HashSet<Vec<u8>>,
    /// Directories that lead to these.
    above_roots: HashSet<Vec<u8>>,
    /// Files known to have several names.
    inodes: u32,
    /// Numbers of those that the reel's `tree` lists.
    listed: HashMap<i64, u32>,
    /// Their names.
    links: HashMap<u32, Vec<NodeId>>,
    /// What the workload set of names, where that is followed: values that many names share.
    traits: InodeAttributeSets,
    /// Directories that the paths of the operation at hand enter and leave by `..`.
    pub(crate) crossed: Vec<NodeId>,
    /// Links that were followed.
    pub(crate) passed: Vec<NodeId>,
    /// Where the path at hand came within the roots last, and what of it was left to walk then; only where there is a limit.
    pub(crate) entered: Option<(NodeId, Vec<u8>)>,
    /// The path at hand leads to the root on its way, by an absolute link, or is held there at a `..`.
    pub(crate) by_root: bool,
    /// Counts changes of where paths lead: of anything but regular files that come, go and move.
    pub(crate) shape: u64,
}

/// The directories that lead to this path, but for the root.
fn above(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/').map(|(i, _)| path[..i].to_vec())
}

impl Names {
    /// An unknown name space. `roots`: absolute prefixes that the replay is limited to; empty for no limit.
    pub fn new(roots: &[Vec<u8>]) -> Self {
        let root = Node {
            parent: ROOT,
            name: 0,
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
            shape: 0,
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

    /// The node's directory; the root's is itself.
    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node as usize].parent
    }

    /// Why nothing at this place is replayed, if so.
    pub fn area(&self, node: NodeId) -> Option<Skip> {
        self.nodes[node as usize].area
    }

    /// What the replay is limited to; nothing for no limit.
    pub fn roots(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.roots.iter()
    }

    /// The directory that leads to `node`, or the node itself, that came to lie where it is: the first below what was there at the start.
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

    /// Whether a root of the replay lies below this place.
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

    /// The node of `name` in `dir`.
    pub fn child(&mut self, dir: NodeId, name: &[u8]) -> NodeId {
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
            // A file system in memory like any other.
            node.area = self.area(ROOT).filter(|_| !self.roots.contains(&b"/dev"[..]));
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

    /// What is at `node` now, as far as known.
    pub fn state(&mut self, node: NodeId) -> &State {
        if self.nodes[node as usize].state == State::Unset {
            let parent = self.parent(node);
            let inherited = match *self.state(parent) {
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
        &self.nodes[node as usize].state
    }

    /// Whether something is there: `None` when not known.
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

    /// Where it stood at the start; [`NO_NODE`] for what the workload made.
    pub fn pre(&mut self, node: NodeId) -> NodeId {
        match self.state(node) {
            State::Present { pre, .. } | State::Unknown { pre } => *pre,
            _ => NO_NODE,
        }
    }

    /// What stood at this path at the start.
    pub fn before(&self, node: NodeId) -> &InitialState {
        &self.nodes[node as usize].before
    }

    /// Says from the reel's `tree` what stood there.
    pub fn set_before(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>, row: u32) {
        self.nodes[node as usize].before = InitialState::Present { kind, target, row, confirmed: false };
    }

    /// A result proved that something of this kind is at `node` now.
    pub fn prove_present(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        if self.is_nameless(node) {
            return;
        }
        let (pre, known) = match self.state(node) {
            State::Unknown { pre } => (*pre, Kind::Unknown),
            State::Present { pre, kind, .. } => (*pre, *kind),
            // Made by something that was not recorded: from here on it is there, and left alone.
            State::Absent | State::Unset => {
                self.shape += 1;
                self.nodes[node as usize].state = State::Present { kind: Kind::Foreign, target: None, pre: NO_NODE };
                return;
            }
        };
        let unproven =
            pre != NO_NODE && !matches!(self.nodes[pre as usize].before, InitialState::Present { confirmed: true, .. });
        let settles = known == Kind::Unknown && kind != Kind::Unknown;
        // A link that was looked at before it was read.
        let reads = target.is_some()
            && pre != NO_NODE
            && matches!(self.nodes[pre as usize].before, InitialState::Present { target: None, .. });
        if !unproven && !settles && !reads {
            return;
        }
        let kind = if known == Kind::Unknown { kind } else { known };
        self.shape += u64::from(kind != Kind::Regular);
        if pre != NO_NODE {
            let before = &mut self.nodes[pre as usize].before;
            match before {
                InitialState::Present { confirmed, kind: k, target: t, .. } => {
                    *confirmed = true;
                    *k = kind;
                    if t.is_none() {
                        *t = target.clone();
                    }
                }
                _ => *before = InitialState::Present { kind, target: target.clone(), row: NO_NODE, confirmed: true },
            }
        }
        if let State::Present { kind: k, target: t, .. } = &mut self.nodes[node as usize].state {
            *k = kind;
            if t.is_none() {
                *t = target;
            }
        } else {
            self.nodes[node as usize].state = State::Present { kind, target, pre };
        }
        if node != ROOT {
            let parent = self.parent(node);
            self.prove_present(parent, Kind::Directory, None);
        }
    }

    /// A result proved that nothing is at `node` now. Where the reel's `tree` claims otherwise and nothing
    /// confirmed it, the claim is dropped, and what it claims below: a first touch may be looked at only after the
    /// workload made it.
    pub fn prove_absent(&mut self, node: NodeId) {
        let pre = self.pre(node);
        let confirmed = |n: &Node| matches!(n.before, InitialState::Present { confirmed: true, .. });
        if pre != NO_NODE && !confirmed(&self.nodes[pre as usize]) {
            for n in self.subtree(pre) {
                let n = &mut self.nodes[n as usize];
                if !confirmed(n) {
                    n.before = InitialState::Absent;
                }
            }
        }
        self.clear(node);
    }

    /// What is at `node` is about to change: paths lead elsewhere, but for regular files.
    pub(super) fn bends(&mut self, node: NodeId) {
        let state = &self.nodes[node as usize].state;
        let plain = matches!(state, State::Absent | State::Unset | State::Present { kind: Kind::Regular, .. });
        self.shape += u64::from(!plain);
    }

    /// Takes away what is at `node` and below.
    pub fn clear(&mut self, node: NodeId) {
        for n in self.subtree(node) {
            self.bends(n);
            self.nodes[n as usize].state = State::Absent;
            self.nodes[n as usize].inode = NO_INODE;
            self.nodes[n as usize].traits = NO_ATTRIBUTES;
        }
    }

    /// The workload made this.
    pub fn make(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        self.bends(node);
        self.shape += u64::from(kind != Kind::Regular);
        // Not `clear`: names below are absent because nothing is there before, and unset ones stay cheap.
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

    /// The node and all below it.
    pub fn subtree(&self, node: NodeId) -> Vec<NodeId> {
        let mut out = vec![node];
        let mut next = 0;
        while next < out.len() {
            out.extend(self.children_of(out[next]));
            next += 1;
        }
        out
    }

    /// The node's own name.
    pub fn name_of(&self, node: NodeId) -> &[u8] {
        &self.texts[self.nodes[node as usize].name as usize]
    }

    /// What is at `node` now, once [`Self::unfold`] has been called.
    pub fn now(&self, node: NodeId) -> &State {
        &self.nodes[node as usize].state
    }

    /// The number that names of one file share, where it has several.
    pub fn inode_of(&self, node: NodeId) -> Option<u32> {
        Some(self.nodes[node as usize].inode).filter(|i| *i != NO_INODE)
    }

    /// Finds out for every node what is there, and makes nodes for what moved along with directories.
    pub fn unfold(&mut self) {
        let mut todo = vec![ROOT];
        while let Some(node) = todo.pop() {
            if let State::Present { pre, kind: Kind::Directory | Kind::Unknown, .. } = *self.state(node)
                && pre != NO_NODE
                && pre != node
            {
                for old in self.children_of(pre).collect::<Vec<_>>() {
                    if matches!(self.nodes[old as usize].before, InitialState::Present { .. }) {
                        let name = self.name_of(old).to_vec();
                        self.child(node, &name);
                    }
                }
            }
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

mod moves;
mod paths;
mod rebase;
#[cfg(test)]
mod tests;
mod traits;
