//! What the workload set of files beside their names and sizes: modes, owners, extended attributes. Followed only
//! where it has to be made later, at the start of a slice.

use std::collections::{BTreeMap, HashMap};

use super::{NO_INODE, Names, NodeId};

/// Nothing was set.
pub(super) const NO_TRAITS: u32 = u32::MAX;

/// What was set of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trait {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Extended attributes: the value, or `None` for one that was removed.
    pub attributes: BTreeMap<Box<[u8]>, Option<Box<[u8]>>>,
}

/// Each different one is kept once, so that what is kept does not grow with the number of files.
#[derive(Debug, Default)]
pub(super) struct Traits {
    kept: Vec<Trait>,
    known: HashMap<Trait, u32>,
    /// Of files with several names, by number of the file.
    shared: HashMap<u32, u32>,
}

impl Names {
    fn traits_of(&self, node: NodeId) -> u32 {
        let n = &self.nodes[node as usize];
        if n.inode == NO_INODE {
            return n.traits;
        }
        self.traits.shared.get(&n.inode).copied().unwrap_or(NO_TRAITS)
    }

    /// A file with one name gets a second one.
    pub(super) fn share_traits(&mut self, inode: u32, traits: u32) {
        if traits != NO_TRAITS {
            self.traits.shared.insert(inode, traits);
        }
    }

    /// What was set of the file at `node`.
    pub fn set_of(&self, node: NodeId) -> Trait {
        self.traits.kept.get(self.traits_of(node) as usize).cloned().unwrap_or_default()
    }

    /// Sets something of the file at `node`.
    pub fn set(&mut self, node: NodeId, change: impl FnOnce(&mut Trait)) {
        self.state(node);
        let mut new = self.set_of(node);
        change(&mut new);
        let fresh = self.traits.kept.len() as u32;
        let number = match self.traits.known.get(&new) {
            Some(n) => *n,
            None => {
                self.traits.kept.push(new.clone());
                self.traits.known.insert(new, fresh);
                fresh
            }
        };
        match self.nodes[node as usize].inode {
            NO_INODE => self.nodes[node as usize].traits = number,
            inode => {
                self.traits.shared.insert(inode, number);
            }
        }
    }
}
