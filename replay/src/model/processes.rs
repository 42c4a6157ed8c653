//! A model of the recorded processes: descriptor tables, working directories and mappings, shared and
//! inherited as fork and exec do it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    Skip,
    model::names::{Kind, NO_NODE, NodeId},
    reel::input::NO_ID,
};

/// A cell that holds the real descriptor at run time; each opening gets its own.
pub type Slot = u32;

/// What a recorded descriptor number stands for.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its cell, or why operations on it are left out.
    pub slot: Result<Slot, Skip>,
    /// Index of its open file description in [`Processes::ofds`].
    pub ofd: u32,
    /// Closes on exec.
    pub cloexec: bool,
}

/// An open file description.
#[derive(Clone, Debug)]
pub struct Ofd {
    /// Name it was opened by.
    pub node: NodeId,
    /// File id, or `NO_ID`.
    pub file: i64,
    /// Kind of the file.
    pub kind: Kind,
    /// Position, when known.
    pub pos: Option<i64>,
    /// Of a directory: bytes of entries that listing told since its beginning; the greatest number at its end.
    pub listed_bytes: i64,
    /// Flags it was opened with, as `fcntl` left them.
    pub flags: i32,
    /// Descriptors that refer to it, and slots of rings that do before a slice.
    pub refs: u32,
    /// Its number in the recording, or `NO_ID`.
    pub recorded: i64,
}

impl Ofd {
    /// It may be read from.
    pub fn reads(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Data of other files can be put anywhere in it.
    pub fn takes_clones(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY && !self.appends()
    }

    /// Writes go to the end.
    pub fn appends(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }
}

/// A table with its number of users.
#[derive(Clone, Debug)]
pub struct Shared<T> {
    /// The table.
    pub value: T,
    /// Tasks that use it.
    pub users: u32,
    /// More than one did: what one that left has copied, others must not have closed before.
    pub was_shared: bool,
    /// Counts changes of which descriptors are in it.
    pub version: u64,
}

/// Working directory and root.
#[derive(Clone, Copy, Debug)]
pub struct FsContext {
    /// Working directory, or why nothing relative to it is replayed.
    pub cwd: Result<NodeId, Skip>,
    /// Where the recorded one is when the replay's did not follow it out of the roots; else of no meaning.
    pub away: NodeId,
    /// Root directory.
    pub root: NodeId,
    /// The one that the replay's own thread has: the target's where the recorded one is outside the roots, and is not entered.
    pub own_root: NodeId,
    /// File creation mask.
    pub umask: i32,
}

/// A replayed file mapping.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Length.
    pub len_bytes: i64,
    /// The cell of the real address.
    pub slot: Slot,
    /// File id, or `NO_ID`.
    pub file: i64,
    /// Name it was opened by.
    pub node: NodeId,
    /// Where in the file it begins.
    pub offset_bytes: i64,
    /// `PROT_*`.
    pub prot: i32,
    /// `MAP_*`.
    pub flags: i32,
}

impl Mapping {
    /// Whether stores reach the file.
    pub fn stores(&self) -> bool {
        self.prot & libc::PROT_WRITE != 0 && self.flags & libc::MAP_SHARED != 0
    }
}

/// Replayed file mappings by recorded address.
pub type Maps = BTreeMap<i64, Mapping>;

/// One thread: which tables it uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Index in [`Processes::tables`].
    pub table: usize,
    /// Index in [`Processes::places`].
    pub place: usize,
    /// Index in [`Processes::maps`].
    pub maps: usize,
    /// It has started and not ended.
    pub alive: bool,
    /// It has ended.
    pub ended: bool,
    /// Who it is.
    pub who: crate::model::credentials::Credentials,
    /// It is in a user name space of its own: users that it names are others here.
    pub maps_users: bool,
}

/// All processes.
#[derive(Debug, Default)]
pub struct Processes {
    /// Descriptor tables.
    pub tables: Vec<Shared<BTreeMap<i32, Entry>>>,
    /// Directories.
    pub places: Vec<Shared<FsContext>>,
    /// Mappings.
    pub maps: Vec<Shared<Maps>>,
    /// Open file descriptions.
    pub ofds: Vec<Ofd>,
    /// Of these, open directories: what moves when a directory is renamed.
    directories: BTreeSet<u32>,
    /// Numbers of those that are closed.
    free_ofds: Vec<u32>,
    /// By thread.
    pub uses: Vec<Use>,
    /// Descriptors open per file: an unlinked file keeps its space until the last goes.
    pub opens: HashMap<i64, u32>,
    /// Files that were mapped: without name and descriptor they may go on.
    pub mapped: HashSet<i64>,
    /// Slots handed out, whole blocks.
    pub slots: u32,
    /// The rest of each thread's block.
    blocks: HashMap<usize, std::ops::Range<Slot>>,
    /// By thread: cells of descriptors it closed. It alone may use them again: whoever else would have to wait for it.
    free_slots: HashMap<usize, Vec<Slot>>,
    /// Mapping cells handed out.
    pub map_slots: u32,
    /// Likewise.
    free_maps: HashMap<usize, Vec<Slot>>,
}

/// Cells that a thread takes at a time: a cache line of them, so that threads do not share lines.
const BLOCK_SLOTS: u32 = 16;

/// `CLONE_*` bits that matter here.
pub mod clone {
    /// Memory.
    pub const VM: i64 = 0x100;
    /// Working directory, root, umask.
    pub const FS: i64 = 0x200;
    /// Descriptor table.
    pub const FILES: i64 = 0x400;
    /// A user name space of its own.
    pub const NEWUSER: i64 = 0x1000_0000;
}

impl Processes {
    /// A new cell, to be filled by thread `task`.
    pub fn new_slot(&mut self, task: usize) -> Slot {
        if let Some(slot) = self.free_slots.get_mut(&task).and_then(Vec::pop) {
            return slot;
        }
        let block = self.blocks.entry(task).or_default();
        if block.start >= block.end {
            *block = self.slots..self.slots + BLOCK_SLOTS;
            self.slots += BLOCK_SLOTS;
        }
        block.start += 1;
        block.start - 1
    }

    /// Thread `task` has closed what is in the cell.
    pub fn free_slot(&mut self, task: usize, slot: Slot) {
        self.free_slots.entry(task).or_default().push(slot);
    }

    /// A new cell for a mapping that thread `task` makes.
    pub fn new_map(&mut self, task: usize) -> Slot {
        self.free_maps.get_mut(&task).and_then(Vec::pop).unwrap_or_else(|| {
            self.map_slots += 1;
            self.map_slots - 1
        })
    }

    /// Thread `task` has unmapped it.
    pub fn free_map(&mut self, task: usize, slot: Slot) {
        self.free_maps.entry(task).or_default().push(slot);
    }

    /// Starts thread `task` with tables of its own.
    pub fn start_root(&mut self, task: usize, place: FsContext) {
        let tables = (self.tables.len(), self.places.len(), self.maps.len());
        self.tables.push(Shared { value: BTreeMap::new(), users: 1, was_shared: false, version: 0 });
        self.places.push(Shared { value: place, users: 1, was_shared: false, version: 0 });
        self.maps.push(Shared { value: Maps::new(), users: 1, was_shared: false, version: 0 });
        self.set(
            task,
            Use {
                table: tables.0,
                place: tables.1,
                maps: tables.2,
                alive: true,
                ended: false,
                who: Default::default(),
                maps_users: false,
            },
        );
    }

    fn set(&mut self, task: usize, u: Use) {
        if self.uses.len() <= task {
            self.uses.resize(task + 1, Use::default());
        }
        self.uses[task] = u;
    }

    /// What a thread uses.
    pub fn of(&self, task: usize) -> Use {
        self.uses.get(task).copied().unwrap_or_default()
    }

    /// Starts `child` as `parent`'s clone; the cells it copies, old and new.
    pub fn fork(&mut self, parent: usize, child: usize, flags: i64) -> Vec<(Slot, Slot)> {
        let p = self.of(parent);
        let mut copies = Vec::new();
        let mut u = Use { alive: true, maps_users: p.maps_users || flags & clone::NEWUSER != 0, ..p };
        if flags & clone::FILES != 0 {
            self.tables[p.table].users += 1;
            self.tables[p.table].was_shared = true;
        } else {
            u.table = self.copy_table(child, p.table, &mut copies);
        }
        if flags & clone::FS != 0 {
            self.places[p.place].users += 1;
        } else {
            u.place = self.places.len();
            let value = self.places[p.place].value;
            self.places.push(Shared { value, users: 1, was_shared: false, version: 0 });
        }
        if flags & clone::VM != 0 {
            self.maps[p.maps].users += 1;
        } else {
            // A forked child inherits mappings, which a replay does not repeat: they stay the parent's.
            u.maps = self.maps.len();
            self.maps.push(Shared { value: Maps::new(), users: 1, was_shared: false, version: 0 });
        }
        self.set(child, u);
        copies
    }

    fn copy_table(&mut self, task: usize, table: usize, copies: &mut Vec<(Slot, Slot)>) -> usize {
        let mut value = self.tables[table].value.clone();
        for entry in value.values_mut() {
            self.ofds[entry.ofd as usize].refs += 1;
            if let Ok(slot) = &mut entry.slot {
                let new = self.new_slot(task);
                copies.push((*slot, new));
                *slot = new;
            }
        }
        self.tables.push(Shared { value, users: 1, was_shared: false, version: 0 });
        self.tables.len() - 1
    }

    /// A thread that execs has a descriptor table of its own from then on; the cells it copies if it shared one.
    pub fn unshare_table(&mut self, task: usize) -> Vec<(Slot, Slot)> {
        let table = self.of(task).table;
        let mut copies = Vec::new();
        if self.tables[table].users > 1 {
            self.tables[table].users -= 1;
            self.uses[task].table = self.copy_table(task, table, &mut copies);
        }
        copies
    }

    /// A thread gets a working directory, root and umask of its own.
    pub fn unshare_place(&mut self, task: usize) {
        let place = self.of(task).place;
        if self.places.get(place).is_some_and(|p| p.users > 1) {
            self.places[place].users -= 1;
            let value = self.places[place].value;
            self.uses[task].place = self.places.len();
            self.places.push(Shared { value, users: 1, was_shared: false, version: 0 });
        }
    }

    /// The descriptor's meaning for a thread.
    pub fn entry(&self, task: usize, fd: i32) -> Option<Entry> {
        self.tables.get(self.of(task).table)?.value.get(&fd).copied()
    }

    /// A new open file description.
    pub fn new_ofd(&mut self, node: NodeId, file: i64, kind: Kind, pos: Option<i64>, flags: i32) -> u32 {
        *self.opens.entry(file).or_default() += 1;
        let new = Ofd { node, file, kind, pos, listed_bytes: 0, flags, refs: 0, recorded: NO_ID };
        let id = match self.free_ofds.pop() {
            Some(id) => {
                self.ofds[id as usize] = new;
                id
            }
            None => {
                self.ofds.push(new);
                self.ofds.len() as u32 - 1
            }
        };
        if matches!(kind, Kind::Directory | Kind::Unknown) {
            self.directories.insert(id);
        }
        id
    }

    /// Puts a descriptor into a thread's table; what was there before is closed. Returns that one, and the
    /// file whose last descriptor it was.
    pub fn install(&mut self, task: usize, fd: i32, entry: Entry) -> (Option<Entry>, Option<i64>) {
        let table = self.of(task).table;
        self.ofds[entry.ofd as usize].refs += 1;
        self.tables[table].version += 1;
        let old = self.tables[table].value.insert(fd, entry);
        (old, old.and_then(|e| self.unref(e.ofd)))
    }

    /// Takes a descriptor out; likewise.
    pub fn remove(&mut self, task: usize, fd: i32) -> (Option<Entry>, Option<i64>) {
        let table = self.of(task).table;
        self.tables[table].version += 1;
        let old = self.tables[table].value.remove(&fd);
        (old, old.and_then(|e| self.unref(e.ofd)))
    }

    /// One descriptor less refers to it. The file, when that was the last of all that do.
    pub fn unref(&mut self, ofd: u32) -> Option<i64> {
        let o = &mut self.ofds[ofd as usize];
        o.refs = o.refs.saturating_sub(1);
        if o.refs > 0 {
            return None;
        }
        let file = o.file;
        self.directories.remove(&ofd);
        self.free_ofds.push(ofd);
        let opens = self.opens.get_mut(&file)?;
        *opens = opens.saturating_sub(1);
        let last = *opens == 0;
        if last {
            self.opens.remove(&file);
        }
        last.then_some(file)
    }

    /// Ends a thread. Returns the files whose last descriptor went with it, and the mappings that end.
    pub fn exit(&mut self, task: usize) -> (Vec<i64>, Maps) {
        let u = self.of(task);
        if !u.alive {
            return (Vec::new(), Maps::new());
        }
        self.uses[task].alive = false;
        self.uses[task].ended = true;
        self.blocks.remove(&task);
        self.free_slots.remove(&task);
        self.free_maps.remove(&task);
        let mut last = Vec::new();
        let table = &mut self.tables[u.table];
        table.users -= 1;
        if table.users == 0 {
            for entry in std::mem::take(&mut table.value).into_values() {
                last.extend(self.unref(entry.ofd));
            }
        }
        self.places[u.place].users -= 1;
        (last, self.drop_maps(task))
    }

    /// The mappings that end when a thread leaves its memory (exit, exec); none when others still use it.
    pub fn drop_maps(&mut self, task: usize) -> Maps {
        let maps = &mut self.maps[self.uses[task].maps];
        maps.users -= 1;
        if maps.users == 0 { std::mem::take(&mut maps.value) } else { Maps::new() }
    }

    /// A fresh memory after exec.
    pub fn new_maps(&mut self, task: usize) {
        self.uses[task].maps = self.maps.len();
        self.maps.push(Shared { value: Maps::new(), users: 1, was_shared: false, version: 0 });
    }

    /// After a directory moved: working directories, roots and directory descriptors move with it.
    pub fn relocate(&mut self, mut moved: impl FnMut(NodeId) -> NodeId) {
        for place in self.places.iter_mut().filter(|p| p.users > 0) {
            if let Ok(cwd) = place.value.cwd {
                place.value.cwd = Ok(moved(cwd));
            }
            if place.value.away != NO_NODE {
                place.value.away = moved(place.value.away);
            }
            (place.value.root, place.value.own_root) = (moved(place.value.root), moved(place.value.own_root));
        }
        for d in &self.directories {
            let ofd = &mut self.ofds[*d as usize];
            if ofd.node != NO_NODE {
                ofd.node = moved(ofd.node);
            }
        }
    }
}
