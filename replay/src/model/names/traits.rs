//! What the recording says about each file beside its name and data: mode, owner, extended attributes, device number.
//! At the start of a slice, this is prepared; at the end, it is what the final tree must have.

use std::collections::{BTreeMap, HashMap};

use super::{Kind, NO_INODE, Names, NodeId};

/// Nothing was set.
pub(super) const NO_ATTRIBUTES: u32 = u32::MAX;

/// The number of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// A block device; otherwise a character device.
    pub block: bool,
    /// The kernel's `dev_t` as mknod(2) takes it.
    pub number: u32,
}

/// Properties that follow from something the recording does not contain, such as an unrecorded umask. They are good
/// enough to prepare a file, and are not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Guessed {
    /// The permission bits.
    pub mode: bool,
    /// The owner.
    pub uid: bool,
    /// The group.
    pub gid: bool,
}

/// What the workload set of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Which of these are uncertain.
    pub guessed: Guessed,
    /// Its kind, where the replay does not have the file ([`Kind::Foreign`]).
    pub kind: Option<Kind>,
    /// Of a device node.
    pub device: Option<Device>,
    /// Length of a regular file that nothing opened: as truncate(2) or mknod(2) set it. `NO_ID`: unknown.
    pub len_bytes: Option<i64>,
    /// A subvolume of btrfs.
    pub subvolume: bool,
    /// Its data is that of another file of the workload: a snapshot copied it.
    pub content_copied: bool,
    /// Index of its extended attributes.
    attributes: Option<u32>,
}

/// What is known about an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// It was removed.
    Removed,
    /// It exists, with a value that was not recorded.
    Unknown,
    /// Its value.
    Value(Box<[u8]>),
}

/// Extended attributes that the workload changed, by name.
pub(crate) type ChangedAttributes = BTreeMap<Box<[u8]>, Attribute>;

/// Stores each distinct value once, so that memory does not grow with the number of files.
#[derive(Debug, Default)]
pub(super) struct InodeAttributeSets {
    kept: Vec<InodeAttributes>,
    known: HashMap<InodeAttributes, u32>,
    /// Extended attributes, one map for each file that has any.
    attributes: Vec<ChangedAttributes>,
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
        self.kept.get(number as usize).copied().unwrap_or_default()
    }

    /// The index of the value that results from a change.
    fn changed(&mut self, number: u32, change: impl FnOnce(&mut InodeAttributes)) -> u32 {
        let mut new = self.get(number);
        change(&mut new);
        if new == self.get(number) {
            return number;
        }
        let fresh = self.kept.len() as u32;
        match self.known.get(&new) {
            Some(n) => *n,
            None => {
                self.kept.push(new);
                self.known.insert(new, fresh);
                fresh
            }
        }
    }

    /// The index of the value that results from a change of an extended attribute.
    fn attribute_changed(&mut self, number: u32, name: Box<[u8]>, to: Attribute) -> u32 {
        let fresh = self.attributes.len() as u32;
        let index = self.get(number).attributes.unwrap_or(fresh);
        if index == fresh {
            self.attributes.push(ChangedAttributes::new());
        }
        self.attributes[index as usize].insert(name, to);
        self.changed(number, |t| t.attributes = Some(index))
    }

    /// The index of an equal value that shares no extended attributes with it.
    fn copied(&mut self, number: u32) -> u32 {
        let Some(attributes) = self.attributes(number).cloned() else { return number };
        let fresh = self.attributes.len() as u32;
        self.attributes.push(attributes);
        self.changed(number, |t| t.attributes = Some(fresh))
    }

    fn attributes(&self, number: u32) -> Option<&ChangedAttributes> {
        self.attributes.get(self.get(number).attributes? as usize)
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

    /// What a copy of the file at `node` has.
    pub(super) fn traits_of_copy(&mut self, node: NodeId) -> u32 {
        let number = self.traits_of(node);
        self.traits.copied(number)
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

    /// Extended attributes that the workload changed of the file at `node`.
    pub(crate) fn attributes_set(&self, node: NodeId) -> Option<&ChangedAttributes> {
        self.traits.attributes(self.traits_of(node))
    }

    /// Changes an attribute of the file at `node`.
    pub fn set(&mut self, node: NodeId, change: impl FnOnce(&mut InodeAttributes)) {
        self.state(node);
        let number = self.traits.changed(self.traits_of(node), change);
        self.bear(node, number);
    }

    /// Changes an extended attribute of the file at `node`.
    pub fn set_attribute(&mut self, node: NodeId, name: Box<[u8]>, to: Attribute) {
        self.state(node);
        let number = self.traits.attribute_changed(self.traits_of(node), name, to);
        self.bear(node, number);
    }

    fn bear(&mut self, node: NodeId, number: u32) {
        if number == NO_ATTRIBUTES {
            return;
        }
        match self.nodes[node as usize].inode {
            NO_INODE => self.nodes[node as usize].traits = number,
            inode => {
                self.traits.shared.insert(inode, number);
            }
        }
    }

    fn unnamed_traits(&self, file: i64) -> u32 {
        self.traits.unnamed.get(&file).copied().unwrap_or(NO_ATTRIBUTES)
    }

    /// What the workload set of a file without a name.
    pub fn set_of_unnamed(&self, file: i64) -> InodeAttributes {
        self.traits.get(self.unnamed_traits(file))
    }

    /// Extended attributes that the workload changed of a file without a name.
    pub(crate) fn attributes_set_of_unnamed(&self, file: i64) -> Option<&ChangedAttributes> {
        self.traits.attributes(self.unnamed_traits(file))
    }

    /// Changes an attribute of a file without a name.
    pub fn set_unnamed(&mut self, file: i64, change: impl FnOnce(&mut InodeAttributes)) {
        let number = self.traits.changed(self.unnamed_traits(file), change);
        self.traits.unnamed.insert(file, number);
    }

    /// Changes an extended attribute of a file without a name.
    pub fn set_attribute_of_unnamed(&mut self, file: i64, name: Box<[u8]>, to: Attribute) {
        let number = self.traits.attribute_changed(self.unnamed_traits(file), name, to);
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

    /// The recording has a file at `node`, and the replay does not, or not with this kind.
    pub(crate) fn make_foreign(&mut self, node: NodeId, kind: Option<Kind>) {
        let known = match self.state(node) {
            super::State::Present { kind: Kind::Foreign, .. } => None,
            super::State::Present { kind, .. } => Some(*kind),
            _ => None,
        };
        self.shape += 1;
        if let super::State::Present { kind, .. } = &mut self.nodes[node as usize].state {
            *kind = Kind::Foreign;
        } else {
            self.make(node, Kind::Foreign, None);
        }
        if let Some(kind) = kind.or(known).filter(|k| *k != Kind::Unknown) {
            self.set(node, |t| t.kind = Some(kind));
        }
    }
}
