//! Subvolumes of btrfs: what a snapshot copies, and what goes with a subvolume.
//!
//! On a target without subvolumes, a subvolume is a plain directory, and a snapshot is left out.

use crate::{
    Skip,
    model::{
        machine::Machine,
        names::{Attribute, Kind, NO_NODE, NodeId},
        operands::{Last, Operands},
    },
    reel::input::{NO_ID, Rec},
};

/// Names that snapshots may copy, in all.
const MOST_NAMES: usize = 1 << 20;

impl Machine {
    /// Resolves source and name of a snapshot.
    pub(crate) fn look_at_snapshot(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        if r.ret < 0 {
            return Err(Skip::ForeignCause);
        }
        v.entry = self.processes.entry(r.task as usize, r.fd);
        v.node = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
        (v.fd2, v.node2, v.rooted[1]) = self.name(r, r.dirfd2, r.path2, Last::Name, v)?;
        let source = self.descriptor(r, r.fd, r.file).map(|(slot, _)| slot);
        self.refuse_unreachable(r, v)?;
        // A snapshot of what the replay does not have is an entry that it does not have.
        v.fd = source.map_err(|why| if why == Skip::Outside { Skip::Snapshot } else { why })?;
        if !self.subvolumes || v.node == NO_NODE || v.node2 == NO_NODE || self.names.is_below(v.node, v.node2) {
            return Err(Skip::Snapshot);
        }
        match self.names.known_below(v.node, MOST_NAMES.saturating_sub(self.names_copied)) {
            Some(_) => Ok(()),
            None => Err(Skip::Snapshot),
        }
    }

    /// A snapshot was taken: the new name has all that its source has now.
    pub(crate) fn snapshot_taken(&mut self, v: &Operands) {
        let (from, to) = (v.node, v.node2);
        let left = MOST_NAMES.saturating_sub(self.names_copied);
        let Some(known) = self.names.known_below(from, left).filter(|_| to != NO_NODE) else { return };
        self.was_subvolume(from);
        self.names_copied += known.len();
        if self.names.exists(to) != Some(false) {
            self.names.prove_absent(to);
        }
        let parent = self.names.parent(to);
        self.names.prove_present(parent, Kind::Directory, None);
        self.named_files.remove(to);
        for (node, copy) in self.names.copy(from, to, &known) {
            self.content_copied(node, copy);
        }
        self.names.shape += 1;
        self.names.set(from, |t| t.subvolume = true);
        self.names.set(to, |t| t.subvolume = true);
        self.sizes.made();
    }

    /// The copy of a file that the workload changed has nothing to do with what was there at the start.
    fn content_copied(&mut self, node: NodeId, copy: NodeId) {
        self.named_files.remove(copy);
        let Some(file) = self.named_files.get(node).filter(|f| self.sizes.is_modified(*f)) else { return };
        let pre = self.names.pre(node);
        let row = self.row_before(pre).cloned().unwrap_or_default();
        let len_bytes = self.sizes.exact(file).unwrap_or(NO_ID);
        let mode = self.initial_mode(pre);
        let attributes = self.attributes.get(&pre).cloned().unwrap_or_default();
        for (name, value) in attributes {
            if self.names.attributes_set(copy).is_none_or(|all| !all.contains_key(&name)) {
                self.names.set_attribute(copy, name, Attribute::Value(value));
            }
        }
        self.names.set(copy, |t| {
            t.len_bytes = Some(len_bytes);
            t.content_copied = true;
            t.mode = t.mode.or(mode);
            t.uid = t.uid.or(row.uid.map(|id| id as u32));
            t.gid = t.gid.or(row.gid.map(|id| id as u32));
        });
        self.names.has_no_past(copy);
    }

    /// A subvolume was removed with all that was in it.
    pub(crate) fn subvolume_removed(&mut self, node: NodeId) {
        self.names.prove_present(node, Kind::Directory, None);
        self.was_subvolume(node);
        for below in self.names.subtree(node) {
            self.forget_file(below);
        }
        self.named_files.lift(&self.names, node);
        self.left_nameless(node);
        self.names.clear(node);
    }

    /// The directory is a subvolume, because only a subvolume can be the source of a snapshot. If it existed at the start, it was
    /// one then.
    fn was_subvolume(&mut self, node: NodeId) {
        let pre = self.names.pre(node);
        if pre != NO_NODE {
            self.subvolumes_before.insert(pre);
        }
    }

    /// At the start of a slice, what is a subvolume now is prepared as one.
    pub(crate) fn subvolumes_anew(&mut self, there: impl IntoIterator<Item = NodeId>) {
        let now = there.into_iter().filter(|n| self.names.set_of(*n).subvolume);
        self.subvolumes_before = now.collect();
    }
}
