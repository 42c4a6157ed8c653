//! Follows operations that the replay leaves out, because the final tree is compared with what the recording left.
//!
//! A name that such an operation creates is [`Kind::Foreign`] in the model: it exists in the recording, not in the
//! replay, which then leaves out operations on it as well.

use std::collections::HashMap;

use crate::{
    Call, Skip,
    model::{
        machine::Machine,
        names::{InitialState, Kind, NO_NODE, NodeId, State},
        operands::Operands,
    },
    reel::input::{NO_ID, NONE, Rec},
};

impl Machine {
    /// Applies an operation inside the roots that succeeded and is left out because of `why`.
    pub(crate) fn left_out_changes(&mut self, r: &Rec, v: &Operands, why: Skip) {
        // A privileged attribute is left out of the tree on purpose, and the target directory is not compared.
        if r.ret < 0 || matches!(why, Skip::PrivilegedAttribute | Skip::TargetDirectory | Skip::Impossible) {
            return;
        }
        let within = |m: &Self, node: NodeId| node != NO_NODE && m.names.area(node).is_none();
        let named = within(self, v.node) || within(self, v.node2);
        if named {
            self.left_out_names(r, v, why);
        }
        if named || v.node == NO_NODE && v.entry.is_some() {
            self.attribute_shown(r, v);
            self.traits_change(r, v);
        }
        if named || self.file_is_within(r.file) || self.file_is_within(r.file2) {
            self.sizes_change(r, v);
        }
    }

    /// Whether a file has a name inside the roots, or had one when it was first seen.
    pub(crate) fn file_is_within(&self, file: i64) -> bool {
        let Some(info) = self.reel.files.get(&file).filter(|_| file != NO_ID) else { return false };
        let name = self.named_files.name_of(file);
        matches!(info.kind, Kind::Regular | Kind::Directory | Kind::Symlink)
            && (info.within || name.is_some_and(|node| self.names.area(node).is_none()))
    }

    fn left_out_names(&mut self, r: &Rec, v: &Operands, why: Skip) {
        let (node, node2) = (v.node, v.node2);
        let within = |m: &Self, node: NodeId| node != NO_NODE && m.names.area(node).is_none();
        match r.call {
            c if c.opens() && r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE => {}
            c if c.opens() && r.aux & 1 != 0 => {
                self.appears(node, Kind::Regular, None);
                if r.file != NO_ID {
                    self.file_opened(r.file, NO_NODE, true);
                    self.named_files.insert(node, r.file);
                }
            }
            Call::Mkdir | Call::Mkdirat => self.appears(node, Kind::Directory, None),
            Call::Mknod | Call::Mknodat => {
                let kind = Some(Kind::from_mode(r.mode)).filter(|k| *k != Kind::Unknown);
                self.appears(node, kind.unwrap_or(Kind::Regular), None);
            }
            c if c.symlinks() => {
                let text = self.reel.texts.paths.bytes(r.path).into();
                self.appears(node2, Kind::Symlink, Some(text));
            }
            c if c.links() && within(self, node2) => {
                let kind = if node == NO_NODE { Kind::Unknown } else { self.true_kind(node) };
                if node != NO_NODE && self.names.exists(node) == Some(true) {
                    self.names.link(node, node2);
                    self.names.make_foreign(node2, Some(kind));
                } else {
                    self.appears(node2, kind, None);
                }
            }
            c if c.renames() && node != NO_NODE && node2 != NO_NODE => {
                let kind = self.true_kind(node);
                if self.names.exists(node) != Some(true) {
                    self.names.make_foreign(node, None);
                }
                self.renamed(r, node, node2);
                self.names.make_foreign(node2, Some(kind));
            }
            Call::SnapCreate => self.appears(node2, Kind::Directory, None),
            Call::SnapDestroy if within(self, node) => self.subvolume_removed(node),
            Call::Unlink | Call::Unlinkat | Call::Rmdir if within(self, node) => {
                self.forget_file(node);
                if r.removes_directory() {
                    self.left_nameless(node);
                }
                self.names.clear(node);
            }
            _ if within(self, node) && r.path != NONE => self.seen(r, node, why),
            _ => {}
        }
    }

    /// An operation that is left out created this name.
    fn appears(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        if node == NO_NODE || self.names.area(node).is_some() {
            return;
        }
        self.named_files.remove(node);
        self.names.clear(node);
        self.names.make(node, kind, target);
        self.names.make_foreign(node, Some(kind));
    }

    /// An operation that is left out showed that this name exists.
    fn seen(&mut self, r: &Rec, node: NodeId, why: Skip) {
        let kind = match r.call {
            c if c.stats() => Kind::from_mode(r.mode),
            c if c.opens() => self.reel.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind),
            _ => Kind::Unknown,
        };
        match self.names.state(node) {
            State::Present { kind: Kind::Foreign, .. } => self.names.make_foreign(node, Some(kind)),
            State::Absent if why == Skip::OutOfSight => {
                self.names.make_foreign(node, Some(kind));
            }
            // Its kind must be known, or the replay would prepare a regular file.
            State::Unknown { .. } | State::Present { kind: Kind::Unknown, .. } if kind != Kind::Unknown => {
                self.names.prove_present(node, kind, None);
            }
            _ => {}
        }
    }

    /// The kind of the file at `node` in the recording.
    fn true_kind(&mut self, node: NodeId) -> Kind {
        match self.names.kind(node) {
            Kind::Foreign => self.names.set_of(node).kind.unwrap_or(Kind::Unknown),
            kind => kind,
        }
    }

    /// Lengths that regular files have at the end, by name, bytes on the target, as far as the recording determines
    /// them.
    pub(crate) fn end_sizes(&self) -> HashMap<NodeId, i64> {
        let mut sizes = HashMap::new();
        // A name through which nobody opened the file has the length of the file's other names.
        let mut by_inode: HashMap<u32, Option<i64>> = HashMap::new();
        for (node, file) in self.named_files.iter() {
            let size = self.sizes.end_size(file);
            if let Some(inode) = self.names.inode_of(node) {
                by_inode.insert(inode, size);
            }
            if let Some(size) = size {
                sizes.insert(node, size);
            }
        }
        for node in 1..self.names.len() as NodeId {
            if self.names.area(node).is_some() || self.named_files.get(node).is_some() {
                continue;
            }
            let State::Present { kind, pre, .. } = self.names.now(node) else { continue };
            if !matches!(kind, Kind::Regular | Kind::Foreign) {
                continue;
            }
            let shared = self.names.inode_of(node).and_then(|inode| by_inode.get(&inode).copied());
            let set = self.names.set_of(node).len_bytes;
            let size = match (shared, set) {
                (Some(size), _) => size,
                (None, Some(NO_ID)) => None,
                (None, Some(len_bytes)) => Some(self.sizes.scale().size(len_bytes)),
                (None, None) => self.size_listed(*pre),
            };
            if let Some(size) = size {
                sizes.insert(node, size);
            }
        }
        sizes
    }

    /// Length on the target of a file that nothing changed, if the reel lists it.
    fn size_listed(&self, pre: NodeId) -> Option<i64> {
        if pre == NO_NODE {
            return None;
        }
        let InitialState::Present { row, kind: Kind::Regular, .. } = self.names.before(pre) else { return None };
        let row = self.reel.tree.get(*row as usize).filter(|r| r.origin != "derived")?;
        row.size_bytes?;
        Some(self.sizes.prepared_lengths(pre, Some(row)).0)
    }
}
