//! Files that threads have open or mapped before their first step. Found by planning, opened by `run::open_initial`.

use crate::{
    base::privileges,
    model::{
        attributes::Attributes,
        names::{InodeAttributes, NodeId},
        processes::Slot,
    },
    plan::{initial_locks::LockAtStart, program::Plan},
};

/// A file that is open or mapped at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialFile {
    /// Absolute path of a file with a name.
    Path(Vec<u8>),
    /// File without a name: index in [`Begin::unnamed`].
    Unnamed(u32),
}

/// Kinds of files without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnnamedKind {
    /// A regular file whose last name was removed.
    Removed,
    /// A file created without a name (`O_TMPFILE`), which can still be linked.
    Temporary,
    /// A removed directory.
    Directory,
}

/// A file without a name that is open or mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Node that represents it in the model. The file has this name while it is created.
    pub node: NodeId,
    /// Its kind.
    pub kind: UnnamedKind,
    /// Length, bytes.
    pub size_bytes: i64,
    /// Key of its generated data.
    pub key: u64,
    /// Permission bits and owner, as far as the user of the replay may set them.
    pub set: InodeAttributes,
    /// Extended attributes, likewise.
    pub attributes: Attributes,
}

/// An open file description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAtStart {
    /// Its file.
    pub file: InitialFile,
    /// Open flags.
    pub flags: i32,
    /// Position.
    pub offset_bytes: i64,
    /// For a directory, instead of the position: bytes of entries already listed.
    pub listed_bytes: i64,
    /// A thread that has steps uses it.
    pub needed: bool,
}

/// A file mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapAtStart {
    /// Its file.
    pub file: InitialFile,
    /// Start of the mapping in the file.
    pub offset_bytes: i64,
    /// Length.
    pub len_bytes: i64,
    /// `PROT_*`.
    pub prot: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// Slot of its address.
    pub slot: Slot,
    /// Threads that have it.
    pub tasks: Vec<u32>,
    /// One of these threads has steps.
    pub needed: bool,
}

/// What is open, mapped and locked at the start.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// Files without a name.
    pub unnamed: Vec<Unnamed>,
    /// Open file descriptions.
    pub opens: Vec<OpenAtStart>,
    /// Mappings.
    pub maps: Vec<MapAtStart>,
    /// Locks held.
    pub locks: Vec<LockAtStart>,
    /// Number of files without a name that are created without set-ID bits or privileged attributes.
    pub set_ids_left_out: i64,
}

impl Begin {
    /// Space for files without a name, bytes.
    pub fn bytes(&self) -> i64 {
        self.unnamed.iter().fold(0, |sum: i64, u| sum.saturating_add(u.size_bytes))
    }
}

impl Plan {
    /// Marks what a thread with steps needs, and sets final sizes. Requires complete programs and sizes.
    pub(crate) fn finish_begin(&mut self) {
        let busy = |task: &u32| !self.tasks[*task as usize].program.is_empty();
        for (i, task) in self.tasks.iter().enumerate() {
            let Some(root) = task.root.as_ref().filter(|_| busy(&(i as u32))) else { continue };
            for open in root.fds.iter().map(|(open, _)| *open).chain(root.cwd_open) {
                self.begin.opens[open as usize].needed = true;
            }
        }
        for map in &mut self.begin.maps {
            map.needed = map.tasks.iter().any(busy);
        }
        for lock in &self.begin.locks {
            self.begin.opens[lock.open as usize].needed = true;
        }
        for u in &mut self.begin.unnamed {
            let listed = self.sizes.listed.get(&u.node).copied();
            u.size_bytes = self.sizes.bounds.get(&u.node).map_or(listed.unwrap_or(0), |b| b.size(listed)).max(0);
            u.size_bytes = self.sizes.scale().size(u.size_bytes);
            if !self.set_ids {
                let mut mode = u.set.mode.unwrap_or(0);
                let directory = u.kind == UnnamedKind::Directory;
                let left_out = privileges::leave_out(directory, &mut mode, &mut u.attributes);
                u.set.mode = u.set.mode.map(|_| mode);
                self.begin.set_ids_left_out += i64::from(left_out);
            }
        }
    }
}
