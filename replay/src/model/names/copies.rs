//! Copies what is known about a directory and all below: a snapshot of a subvolume.

use std::collections::HashMap;

use super::{Guessed, Kind, NO_INODE, NO_NODE, Names, NodeId, State};

impl Names {
    /// `top` and all below it of which anything is known, directories before their entries. `None` if these are more than
    /// `most`.
    pub(crate) fn known_below(&mut self, top: NodeId, most: usize) -> Option<Vec<NodeId>> {
        let mut out = vec![top];
        let mut next = 0;
        while next < out.len() {
            let node = out[next];
            next += 1;
            self.bring_entries(node);
            out.extend(self.children_of(node));
            if out.len() > most {
                return None;
            }
        }
        self.work += out.len() as u64;
        Some(out)
    }

    /// Makes `to` a copy of `from`. `known`: what [`Self::known_below`] found below `from`. Names about which nothing is
    /// known follow from the initial name of their directory, as they do in `from`. A subvolume inside is an empty directory
    /// in the copy. Returns each name that was copied, and its copy.
    pub(crate) fn copy(&mut self, from: NodeId, to: NodeId, known: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let mut there = HashMap::from([(from, to)]);
        let mut inodes: HashMap<u32, u32> = HashMap::new();
        let mut copied = Vec::new();
        for node in known.iter().copied() {
            let copy = match there.get(&self.parent(node)) {
                _ if node == from => to,
                // Below a subvolume inside.
                None => continue,
                Some(parent) => {
                    let (parent, name) = (*parent, self.name_of(node).to_vec());
                    self.child(parent, &name)
                }
            };
            if node != from && self.set_of(node).subvolume {
                self.make(copy, Kind::Directory, None);
                self.set(copy, |t| t.guessed = Guessed { mode: true, uid: true, gid: true });
                continue;
            }
            there.insert(node, copy);
            self.state(node);
            let (state, inode) = (self.nodes[node as usize].state.clone(), self.nodes[node as usize].inode);
            let traits = self.traits_of_copy(node);
            self.bends(copy);
            self.nodes[copy as usize].state = state;
            self.bends(copy);
            (self.nodes[copy as usize].inode, self.nodes[copy as usize].traits) = (NO_INODE, traits);
            if inode != NO_INODE {
                let fresh = self.inodes;
                let inode = *inodes.entry(inode).or_insert(fresh);
                if inode == fresh {
                    self.inodes += 1;
                    self.share_traits(inode, traits);
                }
                self.nodes[copy as usize].inode = inode;
            }
            copied.push((node, copy));
        }
        copied
    }

    /// The file at `node` gets no initial name: it did not exist at the start.
    pub(crate) fn has_no_past(&mut self, node: NodeId) {
        if let State::Present { pre, .. } = &mut self.nodes[node as usize].state {
            *pre = NO_NODE;
        }
    }
}
