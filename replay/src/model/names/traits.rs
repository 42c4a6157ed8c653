//! Mode, owner and extended attributes that the workload set, followed up to the start of a slice, where they are
//! prepared.

use std::collections::{BTreeMap, HashMap};

use super::{NO_INODE, Names, NodeId};

/// Nothing was set.
pub(super) const NO_ATTRIBUTES: u32 = u32::MAX;

/// What the workload set of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Extended attributes: the value, or `None` if removed.
    pub attributes: BTreeMap<Box<[u8]>, Option<Box<[u8]>>>,
}

/// Stores each distinct value once, so that memory does not grow with the number of files.
#[derive(Debug, Default)]
pub(super) struct InodeAttributeSets {
    kept: Vec<InodeAttributes>,
    known: HashMap<InodeAttributes, u32>,
    /// Values of files with several names, by number of the file.
    shared: HashMap<u32, u32>,
    /// Values of files without a name, by id.
    unnamed: HashMap<i64, u32>,
}

impl InodeAttributeSets {
    /// Named files now have these attributes in the initial tree.
    pub(super) fn of_names_are_gone(&mut self) {
        self.shared.clear();
    }

    fn get(&self, number: u32) -> InodeAttributes {
        self.kept.get(number as usize).cloned().unwrap_or_default()
    }

    /// The index of the value that results from a change.
    fn changed(&mut self, number: u32, change: impl FnOnce(&mut InodeAttributes)) -> u32 {
        let mut new = self.get(number);
        change(&mut new);
        let fresh = self.kept.len() as u32;
        match self.known.get(&new) {
            Some(n) => *n,
            None => {
                self.kept.push(new.clone());
                self.known.insert(new, fresh);
                fresh
            }
        }
    }
}

impl Names {
    fn traits_of(&self, node: NodeId) -> u32 {
        let n = &self.nodes[node as usize];
        if n.inode == NO_INODE {
            return n.traits;
        }
        self.traits.shared.get(&n.inode).copied().unwrap_or(NO_ATTRIBUTES)
    }

    /// A file with one name gets a second one.
    pub(super) fn share_traits(&mut self, inode: u32, traits: u32) {
        if traits != NO_ATTRIBUTES {
            self.traits.shared.insert(inode, traits);
        }
    }

    /// What the workload set of the file at `node`.
    pub fn set_of(&self, node: NodeId) -> InodeAttributes {
        self.traits.get(self.traits_of(node))
    }

    /// Changes an attribute of the file at `node`.
    pub fn set(&mut self, node: NodeId, change: impl FnOnce(&mut InodeAttributes)) {
        self.state(node);
        let number = self.traits.changed(self.traits_of(node), change);
        self.bear(node, number);
    }

    fn bear(&mut self, node: NodeId, number: u32) {
        match self.nodes[node as usize].inode {
            NO_INODE => self.nodes[node as usize].traits = number,
            inode => {
                self.traits.shared.insert(inode, number);
            }
        }
    }

    /// What the workload set of a file without a name.
    pub fn set_of_unnamed(&self, file: i64) -> InodeAttributes {
        self.traits.get(self.traits.unnamed.get(&file).copied().unwrap_or(NO_ATTRIBUTES))
    }

    /// Changes an attribute of a file without a name.
    pub fn set_unnamed(&mut self, file: i64, change: impl FnOnce(&mut InodeAttributes)) {
        let before = self.traits.unnamed.get(&file).copied().unwrap_or(NO_ATTRIBUTES);
        let number = self.traits.changed(before, change);
        self.traits.unnamed.insert(file, number);
    }

    /// The file at `node` loses its last name and stays open.
    pub fn unname(&mut self, node: NodeId, file: i64) {
        match self.traits_of(node) {
            NO_ATTRIBUTES => {}
            number => {
                self.traits.unnamed.insert(file, number);
            }
        }
    }

    /// A file without a name gets a name.
    pub fn give_name(&mut self, file: i64, node: NodeId) {
        if let Some(number) = self.traits.unnamed.remove(&file) {
            self.bear(node, number);
        }
    }

    /// A file was dropped.
    pub fn forget_unnamed(&mut self, file: i64) {
        self.traits.unnamed.remove(&file);
    }
}
