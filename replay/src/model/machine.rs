//! The recorded machine, as of the operation at hand: what its names, processes, files and locks are.
//!
//! The files of this stage let operations take effect in it ([`super::effects`], [`super::mappings`], [`super::lock_effects`])
//! and find what an operation refers to ([`super::operands`], [`super::path_resolution`]). It knows no plan.

use std::collections::{HashMap, HashSet};

use ioreel_traces::text::to_bytes;

use crate::{
    model::{
        attributes::{Attributes, AttributesOf},
        data_keys::Keys,
        locks::LockTable,
        named_files::NamedFiles,
        names::{Kind, Names, NodeId, ROOT},
        outside_roots::BorderCrossings,
        processes::Processes,
        sizes::Sizes,
    },
    reel::{footprint::Scale, input::Input},
};

/// Something that an operation did to the model and that later stages have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// A name was made, moved or removed by an operation that returned at `end_ns`.
    NameChanged { end_ns: i64, node: NodeId },
    /// A directory lost its name while a thread stood in it or had it open; `node` stands for it from now on.
    DirectoryUnnamed { node: NodeId },
    /// No later operation can refer to the file.
    FileForgotten { file: i64 },
}

/// What a machine is told beside the reel.
#[derive(Clone, Debug)]
pub(crate) struct MachineOptions<'a> {
    /// Absolute prefixes that the replay is limited to; none for no limit.
    pub(crate) roots: &'a [Vec<u8>],
    /// The replay runs as root.
    pub(crate) privileged: bool,
    /// Set-ID bits and privileged attributes are replayed.
    pub(crate) set_ids: bool,
    /// How much smaller files are.
    pub(crate) footprint: Scale,
    /// Data depends on files and positions.
    pub(crate) keep_keys: bool,
    /// Operations before a slice come first.
    pub(crate) before_slice: bool,
}

/// The recorded machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The recording that is being read.
    pub(crate) reel: Input,
    pub(crate) names: Names,
    pub(crate) processes: Processes,
    pub(crate) sizes: Sizes,
    pub(crate) locks: LockTable,
    /// Which file is behind a name, as far as an open or stat showed.
    pub(crate) named_files: NamedFiles,
    /// Extended attributes that the workload set, by file and name.
    pub(crate) set_attributes: HashMap<AttributesOf, Vec<Box<[u8]>>>,
    /// Extended attributes before the start, by place.
    pub(crate) attributes: HashMap<NodeId, Attributes>,
    /// Attributes that files were found not to have.
    pub(crate) missing_attributes: HashSet<(NodeId, Box<[u8]>)>,
    /// The place that a file handle stands for, by the handle's bytes.
    pub(crate) handles: HashMap<Box<[u8]>, NodeId>,
    /// What the data of files depends on.
    pub(crate) keys: Keys,
    /// Renames and links over the border of the roots.
    pub(crate) outside: BorderCrossings,
    /// A thread became another user than root.
    pub(crate) users_change: bool,
    /// Inode flags were set, which may forbid things to root as well.
    pub(crate) flags_set: bool,
    /// Inode flags were not set here, because only root may.
    pub(crate) flags_left_out: bool,
    /// The replay runs as root.
    pub(crate) privileged: bool,
    /// Set-ID bits and privileged attributes are replayed.
    pub(crate) set_ids: bool,
    /// Operations that are issued without the set-ID bits of their mode.
    pub(crate) set_ids_left_out: i64,
    /// How much smaller files are.
    pub(crate) footprint: Scale,
    /// Data depends on files and positions.
    pub(crate) keep_keys: bool,
    /// Operations are followed up to the slice, and not replayed.
    pub(crate) before_slice: bool,
    /// What the last operations did that later stages have to know; these drain it.
    pub(crate) consequences: Vec<Consequence>,
}

impl Machine {
    /// The machine as the recording began, with the names that the reel lists.
    pub(crate) fn new(reel: Input, options: &MachineOptions<'_>) -> Self {
        let mut machine = Self {
            reel,
            names: Names::new(options.roots),
            processes: Processes::default(),
            sizes: Sizes::new(options.footprint),
            locks: LockTable::default(),
            named_files: NamedFiles::default(),
            set_attributes: HashMap::new(),
            attributes: HashMap::new(),
            missing_attributes: HashSet::new(),
            handles: HashMap::new(),
            keys: Keys::default(),
            outside: BorderCrossings::default(),
            users_change: false,
            flags_set: false,
            flags_left_out: false,
            privileged: options.privileged,
            set_ids: options.set_ids,
            set_ids_left_out: 0,
            footprint: options.footprint,
            keep_keys: options.keep_keys,
            before_slice: options.before_slice,
            consequences: Vec::new(),
        };
        machine.load_tree();
        machine
    }

    fn load_tree(&mut self) {
        for row in 0..self.reel.tree.len() {
            let t = &self.reel.tree[row];
            let node = self.names.literal(&to_bytes(&t.path));
            // What the recorder knew nothing of it calls a regular file.
            let guessed = t.origin == "derived" && t.kind == "regular" && t.size_bytes.is_none();
            let kind = if guessed { Kind::Unknown } else { Kind::from_name(&t.kind) };
            let target = t.target.as_ref().map(|t| to_bytes(t).into_boxed_slice());
            if node != ROOT {
                self.names.set_before(node, kind, target, row as u32);
                if let (Kind::Regular | Kind::Symlink | Kind::Fifo, Some(link)) = (kind, t.link_id) {
                    self.names.set_link(node, link);
                }
            }
            if let (Kind::Regular, Some(size)) = (kind, t.size_bytes) {
                self.sizes.listed.insert(node, size);
            }
        }
    }

    /// No later operation can refer to the file.
    pub(crate) fn forget(&mut self, file: i64) {
        self.reel.files.remove(&file);
        self.processes.mapped.remove(&file);
        // Whoever reads it in the slice, before it goes, asks when the plan is whole.
        if self.before_slice {
            self.keys.written.forget(file);
        }
        self.set_attributes.remove(&AttributesOf::File(file));
        self.names.forget_unnamed(file);
        self.consequences.push(Consequence::FileForgotten { file });
    }

    /// Whether a slice may begin with mappings of a file. Unmappings are not followed: a file that was ever mapped counts.
    pub(crate) fn may_be_mapped(&self, file: i64) -> bool {
        self.before_slice && self.processes.mapped.contains(&file)
    }

    /// A name goes; its file is forgotten with its last name, unless it is open or mapped.
    pub(crate) fn forget_file(&mut self, node: NodeId) {
        let Some(file) = self.named_files.remove(node).filter(|f| !self.named_files.is_named(*f)) else { return };
        // A name that the reel lists, and nobody opened it by.
        if let Some(other) = self.names.other_name(node) {
            return self.named_files.insert(other, file);
        }
        let open = self.processes.opens.get(&file).is_some_and(|n| *n > 0) || self.may_be_mapped(file);
        if open {
            self.names.unname(node, file);
        }
        if self.sizes.unlinked(file, open) {
            self.forget(file);
        }
    }

    /// The last descriptor of a file was closed.
    pub(crate) fn closed(&mut self, last: Option<i64>) {
        if let Some(file) = last
            && !self.may_be_mapped(file)
            && self.sizes.closed(file)
        {
            self.forget(file);
        }
    }
}
