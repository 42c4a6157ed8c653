//! What threads have open, and mapped, before their first step: found by planning, made by
//! `run::open_initial`.

use crate::{
    base::privileges,
    model::{
        names::{InodeAttributes, NodeId},
        processes::Slot,
    },
    plan::{initial_locks::LockAtStart, program::Plan},
};

/// A file that is open or mapped at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialFile {
    /// It has a name: the absolute path.
    Path(Vec<u8>),
    /// It has none: index in [`Begin::unnamed`].
    Unnamed(u32),
}

/// Kinds of files without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnnamedKind {
    /// A regular file whose last name went.
    Removed,
    /// One that never had a name, and may get one (`O_TMPFILE`).
    Temporary,
    /// A directory that was removed.
    Directory,
}

/// A file without a name that somebody has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// The place that stands for it in the model, and whose name it has while it is made.
    pub node: NodeId,
    /// What it is.
    pub kind: UnnamedKind,
    /// Length, bytes.
    pub size_bytes: i64,
    /// What its data depends on.
    pub key: u64,
    /// Permission bits, owner and extended attributes, as far as this user can set them.
    pub set: InodeAttributes,
}

/// An open file description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAtStart {
    /// Of which file.
    pub file: InitialFile,
    /// Open flags.
    pub flags: i32,
    /// Position.
    pub offset_bytes: i64,
    /// Of a directory, in place of that: bytes of entries that were listed.
    pub listed_bytes: i64,
    /// Somebody who has something to do has it.
    pub needed: bool,
}

/// A file mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapAtStart {
    /// Of which file.
    pub file: InitialFile,
    /// Where in it it begins.
    pub offset_bytes: i64,
    /// Length.
    pub len_bytes: i64,
    /// `PROT_*`.
    pub prot: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// The cell of its address.
    pub slot: Slot,
    /// Threads that have it.
    pub tasks: Vec<u32>,
    /// One of them has something to do.
    pub needed: bool,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// Files without a name.
    pub unnamed: Vec<Unnamed>,
    /// Open file descriptions.
    pub opens: Vec<OpenAtStart>,
    /// Mappings.
    pub maps: Vec<MapAtStart>,
    /// Locks held on them.
    pub locks: Vec<LockAtStart>,
    /// Files without a name that are made without set-ID bits or attributes that give privileges.
    pub set_ids_left_out: i64,
}

impl Begin {
    /// Bytes that files without a name take.
    pub fn bytes(&self) -> i64 {
        self.unnamed.iter().fold(0, |sum: i64, u| sum.saturating_add(u.size_bytes))
    }
}

impl Plan {
    /// Once programs and sizes are known: what nobody needs is left out.
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
                let left_out = privileges::leave_out(directory, &mut mode, &mut u.set.attributes);
                u.set.mode = u.set.mode.map(|_| mode);
                self.begin.set_ids_left_out += i64::from(left_out);
            }
        }
    }
}
