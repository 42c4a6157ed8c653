//! Hard links, and names that move.

use super::{Kind, NO_ATTRIBUTES, NO_INODE, NO_NODE, Names, NodeId, State};

/// The state of a node that is being moved.
#[derive(Debug)]
struct Lifted {
    /// Index of the entry of its directory.
    above: usize,
    name: u32,
    state: State,
    inode: u32,
    traits: u32,
}

impl Names {
    /// The reel's `tree` lists `node` as one of the hard links with this id.
    pub fn set_link(&mut self, node: NodeId, link_id: i64) {
        let fresh = self.inodes;
        let inode = *self.listed.entry(link_id).or_insert(fresh);
        self.inodes = self.inodes.max(inode + 1);
        self.nodes[node as usize].inode_before = inode;
        self.links.entry(inode).or_default().push(node);
    }

    /// Whether both names are known to be hard links of one file, or equal. Renaming one to the other then does
    /// nothing.
    pub fn same_file(&mut self, a: NodeId, b: NodeId) -> bool {
        self.state(a);
        self.state(b);
        let inode = |n: NodeId| match &self.nodes[n as usize] {
            node if matches!(node.state, State::Present { .. }) => node.inode,
            _ => NO_INODE,
        };
        a == b || (inode(a) != NO_INODE && inode(a) == inode(b))
    }

    /// Another name of the file at `node`, among those that the reel's `tree` lists.
    pub fn other_name(&mut self, node: NodeId) -> Option<NodeId> {
        let inode = self.inode_of(node)?;
        let listed = self.links.remove(&inode)?;
        let found =
            listed.iter().position(|n| *n != node && self.exists(*n) == Some(true) && self.inode_of(*n) == Some(inode));
        self.work += found.unwrap_or(listed.len()) as u64 / 8;
        let other = found.map(|at| listed[at]);
        self.links.insert(inode, listed);
        other
    }

    /// Makes `to` a hard link of the file at `from`.
    pub fn link(&mut self, from: NodeId, to: NodeId) {
        let state = match self.state(from) {
            State::Present { kind, target, pre } => State::Present { kind: *kind, target: target.clone(), pre: *pre },
            _ => State::Present { kind: Kind::Unknown, target: None, pre: NO_NODE },
        };
        if self.nodes[from as usize].inode == NO_INODE {
            self.nodes[from as usize].inode = self.inodes;
            self.share_traits(self.inodes, self.nodes[from as usize].traits);
            self.inodes += 1;
        }
        self.nodes[to as usize].inode = self.nodes[from as usize].inode;
        self.nodes[to as usize].traits = NO_ATTRIBUTES;
        self.bends(to);
        self.nodes[to as usize].state = state;
        self.bends(to);
    }

    /// A directory in `dir` that was removed while it was open or a working directory. It has no name and no entries,
    /// and nothing can be created in it; `..` leads to `dir`.
    pub fn nameless(&mut self, dir: NodeId) -> NodeId {
        let node = self.child(dir, b"");
        self.shape += 1;
        self.nodes[node as usize].state = State::Absent;
        node
    }

    /// Whether it is such a directory.
    pub fn is_nameless(&self, node: NodeId) -> bool {
        node != NO_NODE
            && node != super::ROOT
            && self.nodes[node as usize].name == self.nodes[super::ROOT as usize].name
    }

    /// Moves what exists at `from`, and all below, to `to`. Neither may be below the other.
    pub fn rename(&mut self, from: NodeId, to: NodeId) {
        if self.same_file(from, to) {
            return;
        }
        let moved = self.lift(from);
        self.lower(moved, to);
    }

    /// Exchanges two names. Neither may be below the other.
    pub fn exchange(&mut self, a: NodeId, b: NodeId) {
        if self.same_file(a, b) {
            return;
        }
        let (at_a, at_b) = (self.lift(a), self.lift(b));
        self.lower(at_a, b);
        self.lower(at_b, a);
    }

    /// Whether `node` is below `above`.
    pub fn is_below(&self, node: NodeId, above: NodeId) -> bool {
        let mut at = node;
        while at != super::ROOT {
            at = self.parent(at);
            if at == above {
                return true;
            }
        }
        false
    }

    /// Takes the known state of `from` and all below out of the model. What is not known yet follows from the initial
    /// name of `from`.
    fn lift(&mut self, from: NodeId) -> Vec<Lifted> {
        self.state(from);
        self.bends(from);
        let mut ids = vec![from];
        let mut out: Vec<Lifted> = Vec::new();
        let mut above = vec![0];
        let mut next = 0;
        while next < ids.len() {
            let node = &mut self.nodes[ids[next] as usize];
            let state = std::mem::replace(&mut node.state, State::Unset);
            let inode = std::mem::replace(&mut node.inode, NO_INODE);
            let traits = std::mem::replace(&mut node.traits, NO_ATTRIBUTES);
            out.push(Lifted { above: above[next], name: node.name, state, inode, traits });
            for child in self.children_of(ids[next]) {
                ids.push(child);
                above.push(next);
            }
            next += 1;
        }
        self.nodes[from as usize].state = State::Absent;
        self.work += out.len() as u64;
        out
    }

    /// Puts the result of [`Self::lift`] at `to`. The previous state of `to` and all below is dropped.
    fn lower(&mut self, lifted: Vec<Lifted>, to: NodeId) {
        let below = self.subtree(to);
        self.work += below.len() as u64 / 2;
        for n in below {
            self.bends(n);
            self.nodes[n as usize].state = State::Unset;
            self.nodes[n as usize].inode = NO_INODE;
            self.nodes[n as usize].traits = NO_ATTRIBUTES;
        }
        // Nodes are created only if the state of the node, or of one below, is known.
        let mut told: Vec<bool> = lifted.iter().map(|l| l.state != State::Unset).collect();
        for i in (1..lifted.len()).rev() {
            told[lifted[i].above] |= told[i];
        }
        let mut ids = vec![NO_NODE; lifted.len()];
        for (i, l) in lifted.into_iter().enumerate() {
            if i > 0 && !told[i] {
                continue;
            }
            ids[i] = if i == 0 {
                to
            } else {
                let name = self.texts[l.name as usize].clone();
                self.child(ids[l.above], &name)
            };
            self.nodes[ids[i] as usize].state = l.state;
            self.nodes[ids[i] as usize].inode = l.inode;
            self.nodes[ids[i] as usize].traits = l.traits;
        }
    }
}
