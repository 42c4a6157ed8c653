//! The recorded machine as of the current operation: names, processes, files and locks.
//!
//! Other files of this stage apply operations to it ([`super::effects`], [`super::mappings`], [`super::lock_effects`])
//! and find what an operation refers to ([`super::operands`], [`super::path_resolution`]). It knows nothing about the
//! plan.

use std::collections::{HashMap, HashSet};

use ioreel_traces::{text::to_bytes, xattrs};

use crate::{
    Skip,
    model::{
        attributes::{Attributes, AttributesOf},
        data_keys::Keys,
        locks::LockTable,
        named_files::NamedFiles,
        names::{Kind, Names, NodeId, PATH_BYTES, ROOT},
        outside_roots::BorderCrossings,
        processes::Processes,
        sizes::{BLOCK_BYTES, Sizes},
    },
    reel::{footprint::Scale, input::Input},
};

/// An effect of an operation that later stages must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// A name was created, moved or removed by an operation that returned at `end_ns`.
    NameChanged { end_ns: i64, node: NodeId },
    /// A directory lost its name while it was a working directory or open. `node` stands for it from now on.
    DirectoryUnnamed { node: NodeId },
    /// No later operation can refer to the file.
    FileForgotten { file: i64 },
}

/// Options of the model.
#[derive(Clone, Debug)]
pub(crate) struct MachineOptions<'a> {
    /// `--root`: absolute prefixes that the replay is limited to; empty for no limit.
    pub(crate) roots: &'a [Vec<u8>],
    /// The replay runs as root.
    pub(crate) privileged: bool,
    /// Set-ID bits and privileged attributes are replayed.
    pub(crate) set_ids: bool,
    /// Device nodes are replayed.
    pub(crate) device_nodes: bool,
    /// The target can share data between files.
    pub(crate) shares_data: bool,
    /// The target can have subvolumes.
    pub(crate) subvolumes: bool,
    /// Scale of file sizes.
    pub(crate) footprint: Scale,
    /// Data is generated from file and position (`--verify`).
    pub(crate) keep_keys: bool,
    /// There are operations before the slice.
    pub(crate) before_slice: bool,
}

/// The recorded machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The reel being read.
    pub(crate) reel: Input,
    pub(crate) names: Names,
    pub(crate) processes: Processes,
    pub(crate) sizes: Sizes,
    pub(crate) locks: LockTable,
    /// The file behind each name, as far as opens and stats showed it.
    pub(crate) named_files: NamedFiles,
    /// Names of the extended attributes that the workload set.
    pub(crate) set_attributes: HashMap<AttributesOf, HashSet<Box<[u8]>>>,
    /// Initial extended attributes, by initial name.
    pub(crate) attributes: HashMap<NodeId, Attributes>,
    /// Extended attributes that files were found not to have, by initial name.
    pub(crate) missing_attributes: HashSet<(NodeId, Box<[u8]>)>,
    /// The name that a file handle stands for, by bytes of the handle.
    pub(crate) handles: HashMap<Box<[u8]>, NodeId>,
    /// Keys of generated data.
    pub(crate) keys: Keys,
    /// Renames and links across the boundary of the roots.
    pub(crate) outside: BorderCrossings,
    /// A thread changed to a user other than root.
    pub(crate) users_change: bool,
    /// Inode flags were set; they may deny things even to root.
    pub(crate) flags_set: bool,
    /// Inode flags were not set in the replay, because only root may.
    pub(crate) flags_left_out: bool,
    /// The replay runs as root.
    pub(crate) privileged: bool,
    /// Set-ID bits and privileged attributes are replayed.
    pub(crate) set_ids: bool,
    /// Number of operations issued without the set-ID bits of their mode.
    pub(crate) set_ids_left_out: i64,
    /// The target can have subvolumes.
    pub(crate) subvolumes: bool,
    /// Initial names of subvolumes.
    pub(crate) subvolumes_before: HashSet<NodeId>,
    /// Number of names that snapshots copied.
    pub(crate) names_copied: usize,
    /// Device nodes are replayed.
    pub(crate) device_nodes: bool,
    /// Number of device nodes that are not created.
    pub(crate) device_nodes_left_out: i64,
    /// Number of calls on mounts that are not followed.
    pub(crate) mounts_left_out: i64,
    /// The first mounts that are not followed.
    pub(crate) unfollowed_mounts: Vec<String>,
    /// Scale of file sizes.
    pub(crate) footprint: Scale,
    /// Data is generated from file and position (`--verify`).
    pub(crate) keep_keys: bool,
    /// The current operation is before the slice: it is applied to the model and not replayed.
    pub(crate) before_slice: bool,
    /// Effects that later stages must know. They drain the list.
    pub(crate) consequences: Vec<Consequence>,
}

/// Text of initial extended attributes that is decoded at most, bytes. A recorder writes less.
const MOST_ATTRIBUTE_BYTES: usize = 256 << 20;

impl Machine {
    /// The machine at the start of the recording, with the names that the reel lists.
    pub(crate) fn new(mut reel: Input, options: &MachineOptions<'_>) -> Self {
        reel.set_roots(options.roots);
        let mut machine = Self {
            reel,
            names: Names::new(options.roots),
            processes: Processes::default(),
            sizes: Sizes::new(options.footprint, options.shares_data),
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
            subvolumes: options.subvolumes,
            subvolumes_before: HashSet::new(),
            names_copied: 0,
            device_nodes: options.device_nodes,
            device_nodes_left_out: 0,
            mounts_left_out: 0,
            unfollowed_mounts: Vec::new(),
            footprint: options.footprint,
            keep_keys: options.keep_keys,
            before_slice: options.before_slice,
            consequences: Vec::new(),
        };
        machine.load_tree();
        machine
    }

    fn load_tree(&mut self) {
        let mut attribute_room = MOST_ATTRIBUTE_BYTES;
        for row in 0..self.reel.tree.len() {
            let t = &self.reel.tree[row];
            if t.path.len() > PATH_BYTES && to_bytes(&t.path).len() > PATH_BYTES {
                *self.reel.other_layers.entry(Skip::LongPath).or_default() += 1;
                continue;
            }
            let node = self.names.literal(&to_bytes(&t.path));
            if let Some((text, left)) = t.xattrs.as_ref().and_then(|t| Some((t, attribute_room.checked_sub(t.len())?)))
            {
                attribute_room = left;
                let all = xattrs::from_text(text).into_iter();
                let kept: Attributes = all.filter(|(name, _)| self.may_prepare(name)).collect();
                self.attributes.insert(node, kept);
            }
            // The recorder derived a name about which it knows nothing more: its kind is a default.
            let guessed = t.origin == "derived" && t.kind == "regular" && t.size_bytes.is_none();
            let kind = if guessed { Kind::Unknown } else { Kind::from_name(&t.kind) };
            let target = t.target.as_ref().map(|t| to_bytes(t).into_boxed_slice());
            if node != ROOT {
                self.names.set_before(node, kind, target, row as u32);
                if let (Kind::Regular | Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::Device, Some(link)) =
                    (kind, t.link_id)
                {
                    self.names.set_link(node, link);
                }
            }
            if let (Kind::Regular, Some(size)) = (kind, t.size_bytes) {
                self.sizes.listed.insert(node, size);
                if let Some(alloc) = t.alloc_bytes.filter(|alloc| *alloc <= size - BLOCK_BYTES) {
                    self.sizes.sparse.insert(node, alloc.max(0));
                }
            }
        }
    }

    /// Drops a file that no later operation can refer to.
    pub(crate) fn forget(&mut self, file: i64) {
        self.reel.files.remove(&file);
        self.processes.mapped.remove(&file);
        // Reads in the slice need the contents until the plan is complete, so these are dropped only before it.
        if self.before_slice {
            self.keys.written.forget(file);
        }
        self.set_attributes.remove(&AttributesOf::File(file));
        self.names.forget_unnamed(file);
        self.consequences.push(Consequence::FileForgotten { file });
    }

    /// Whether a slice may start with mappings of a file. Unmapping is not followed: a file that was ever mapped
    /// counts.
    pub(crate) fn may_be_mapped(&self, file: i64) -> bool {
        self.before_slice && self.processes.mapped.contains(&file)
    }

    /// A name is removed. With its last name the file is dropped, unless it is open or mapped.
    pub(crate) fn forget_file(&mut self, node: NodeId) {
        let Some(file) = self.named_files.remove(node).filter(|f| !self.named_files.is_named(*f)) else { return };
        // A name from the reel's tree through which nobody opened the file.
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

    /// The last descriptor of the file `last` was closed.
    pub(crate) fn closed(&mut self, last: Option<i64>) {
        if let Some(file) = last
            && !self.may_be_mapped(file)
            && self.sizes.closed(file)
        {
            self.forget(file);
        }
    }
}
