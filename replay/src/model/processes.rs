//! A model of the recorded processes: descriptor tables, fs contexts and memory mappings, as fork and exec share, copy
//! and drop them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    Skip,
    model::names::{
        Kind, NO_NODE, NodeId,
        mounts::{INITIAL, MountId, Place},
    },
    reel::input::NO_ID,
};

/// Index of a cell that holds the actual descriptor at run time. Each opening gets its own.
pub type Slot = u32;

/// An entry of a descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its slot, or why operations on it are skipped.
    pub slot: Result<Slot, Skip>,
    /// Index of its open file description in [`Processes::ofds`].
    pub ofd: u32,
    /// Close-on-exec flag.
    pub cloexec: bool,
}

/// An open file description.
#[derive(Clone, Debug)]
pub struct Ofd {
    /// The name it was opened by.
    pub node: NodeId,
    /// File id, or `NO_ID`.
    pub file: i64,
    /// Kind of the file.
    pub kind: Kind,
    /// Position, if known.
    pub pos: Option<i64>,
    /// For a directory: bytes of entries returned since the start of the listing; `i64::MAX` at its end.
    pub listed_bytes: i64,
    /// Flags of the open, as changed by fcntl.
    pub flags: i32,
    /// Number of descriptors that refer to it, and before a slice, of ring slots.
    pub refs: u32,
    /// Its id in the reel, or `NO_ID`.
    pub recorded: i64,
    /// The mount that it was opened in.
    pub(crate) mount: MountId,
}

impl Ofd {
    /// Open for reading.
    pub fn reads(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Data of other files can be cloned to any position.
    pub fn takes_clones(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY && !self.appends()
    }

    /// Open for appending.
    pub fn appends(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }
}

/// A table and its users.
#[derive(Clone, Debug)]
pub struct Shared<T> {
    /// The table.
    pub value: T,
    /// Number of tasks that use it.
    pub users: u32,
    /// Several tasks used it at some time. A copy made by one that left must precede closes by the others.
    pub was_shared: bool,
    /// Incremented when a descriptor is added or removed.
    pub version: u64,
    /// All tasks that use or used it.
    pub tasks: Vec<usize>,
}

impl<T> Shared<T> {
    /// Used by this task alone.
    fn new(value: T, task: usize) -> Self {
        Self { value, users: 1, was_shared: false, version: 0, tasks: vec![task] }
    }
}

/// Working directory, root directory and umask (`CLONE_FS`).
#[derive(Clone, Copy, Debug)]
pub struct FsContext {
    /// Working directory, or why operations relative to it are skipped.
    pub cwd: Result<NodeId, Skip>,
    /// The recorded working directory, if it is outside the roots and the replay thread did not follow; otherwise
    /// meaningless.
    pub away: NodeId,
    /// Root directory.
    pub root: NodeId,
    /// Root directory of the replay thread: the target's if the recorded one is outside the roots.
    pub own_root: NodeId,
    /// The mount that the working directory is in.
    pub(crate) cwd_mount: MountId,
    /// The mount that the root directory is in.
    pub(crate) root_mount: MountId,
    /// Its mounts are not known.
    pub(crate) mounts_unknown: bool,
    /// File creation mask (umask).
    pub umask: i32,
    /// The reel has the mask; otherwise it is a default.
    pub umask_known: bool,
}

/// A replayed file mapping.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Length.
    pub len_bytes: i64,
    /// Slot of the actual address.
    pub slot: Slot,
    /// File id, or `NO_ID`.
    pub file: i64,
    /// The name the file was opened by.
    pub node: NodeId,
    /// Start of the mapping in the file.
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

/// A mapping that the replay does not have, because the call that made it is skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftOutMapping {
    /// Length.
    pub(crate) len_bytes: i64,
    /// File id, or `NO_ID`.
    pub(crate) file: i64,
    /// Why it is skipped.
    pub(crate) why: Skip,
}

/// Replayed file mappings by recorded address.
pub type Maps = BTreeMap<i64, Mapping>;

/// The tables that a thread uses, and its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Index in [`Processes::tables`].
    pub table: usize,
    /// Index in [`Processes::places`].
    pub place: usize,
    /// Index in [`Processes::maps`].
    pub maps: usize,
    /// Started and not ended.
    pub alive: bool,
    /// Ended.
    pub ended: bool,
    /// User and group ids.
    pub who: crate::model::credentials::Credentials,
    /// The reel has its ids; otherwise they are a default.
    pub who_known: bool,
    /// In another user namespace: the ids that it names are other users here.
    pub maps_users: bool,
}

/// All processes.
#[derive(Debug, Default)]
pub struct Processes {
    /// Descriptor tables.
    pub tables: Vec<Shared<BTreeMap<i32, Entry>>>,
    /// Fs contexts.
    pub places: Vec<Shared<FsContext>>,
    /// Mappings.
    pub maps: Vec<Shared<Maps>>,
    /// Fs contexts in use.
    live_places: BTreeSet<usize>,
    /// Descriptors copied, and directories relocated, so far.
    pub(crate) work: u64,
    /// Open file descriptions.
    pub ofds: Vec<Ofd>,
    /// Those of directories, which move when a directory is renamed.
    directories: BTreeSet<u32>,
    /// Indices of closed ones, for reuse.
    free_ofds: Vec<u32>,
    /// By thread.
    pub uses: Vec<Use>,
    /// Number of open file descriptions per file. An unlinked file keeps its space until the last is closed.
    pub opens: HashMap<i64, u32>,
    /// Files that were mapped. They may live on without name and descriptor.
    pub mapped: HashSet<i64>,
    /// Number of slots handed out, in whole blocks.
    pub slots: u32,
    /// The unused part of each thread's block.
    blocks: HashMap<usize, std::ops::Range<Slot>>,
    /// Slots of descriptors that a thread closed. Only the same thread reuses them; others would have to wait for it.
    free_slots: HashMap<usize, Vec<Slot>>,
    /// Number of mapping slots handed out.
    pub map_slots: u32,
    /// Mappings that the replay does not have, by index in `maps` and address.
    pub(crate) left_out_maps: HashMap<usize, BTreeMap<i64, LeftOutMapping>>,
    /// Mapping slots for reuse, by thread.
    free_maps: HashMap<usize, Vec<Slot>>,
}

/// Slots that a thread takes at a time: one cache line, so that threads do not share lines.
const BLOCK_SLOTS: u32 = 16;

/// A copied descriptor takes memory in the plan, too.
const WORK_PER_COPY: u64 = 8;

/// `CLONE_*` flags that matter here.
pub mod clone {
    /// Shared memory.
    pub const VM: i64 = 0x100;
    /// Shared fs context.
    pub const FS: i64 = 0x200;
    /// Shared descriptor table.
    pub const FILES: i64 = 0x400;
    /// New mount namespace.
    pub const NEWNS: i64 = 0x2_0000;
    /// New user namespace.
    pub const NEWUSER: i64 = 0x1000_0000;
}

impl Processes {
    /// A new descriptor slot, filled by thread `task`.
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

    /// Thread `task` has closed the descriptor in the slot.
    pub fn free_slot(&mut self, task: usize, slot: Slot) {
        self.free_slots.entry(task).or_default().push(slot);
    }

    /// A new slot for a mapping by thread `task`.
    pub fn new_map(&mut self, task: usize) -> Slot {
        self.free_maps.get_mut(&task).and_then(Vec::pop).unwrap_or_else(|| {
            self.map_slots += 1;
            self.map_slots - 1
        })
    }

    /// Thread `task` has unmapped the mapping in the slot.
    pub fn free_map(&mut self, task: usize, slot: Slot) {
        self.free_maps.entry(task).or_default().push(slot);
    }

    /// Starts thread `task` with empty tables of its own.
    pub fn start_root(&mut self, task: usize, place: FsContext) {
        let tables = (self.tables.len(), self.places.len(), self.maps.len());
        self.tables.push(Shared::new(BTreeMap::new(), task));
        self.new_place(task, place);
        self.maps.push(Shared::new(Maps::new(), task));
        self.set(
            task,
            Use {
                table: tables.0,
                place: tables.1,
                maps: tables.2,
                alive: true,
                ended: false,
                who: Default::default(),
                who_known: false,
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

    /// The tables and state of a thread.
    pub fn of(&self, task: usize) -> Use {
        self.uses.get(task).copied().unwrap_or_default()
    }

    /// Starts `child` as a clone of `parent`. Returns the slots whose descriptors are copied: old and new.
    pub fn fork(&mut self, parent: usize, child: usize, flags: i64) -> Vec<(Slot, Slot)> {
        let p = self.of(parent);
        let mut copies = Vec::new();
        let mut u = Use { alive: true, ..p };
        if flags & clone::NEWUSER != 0 {
            u.maps_users = true;
            u.who = if p.who_known { p.who.in_new_user_ns() } else { p.who };
        }
        if flags & clone::FILES != 0 {
            self.tables[p.table].users += 1;
            self.tables[p.table].tasks.push(child);
            self.tables[p.table].was_shared = true;
        } else {
            u.table = self.copy_table(child, p.table, &mut copies);
        }
        if flags & clone::FS != 0 {
            self.places[p.place].users += 1;
        } else {
            u.place = self.new_place(child, self.places[p.place].value);
        }
        if flags & clone::VM != 0 {
            self.maps[p.maps].users += 1;
        } else {
            // A forked child inherits mappings. The replay does not repeat that: they stay with the parent.
            u.maps = self.maps.len();
            self.maps.push(Shared::new(Maps::new(), child));
        }
        self.set(child, u);
        copies
    }

    fn copy_table(&mut self, task: usize, table: usize, copies: &mut Vec<(Slot, Slot)>) -> usize {
        let mut value = self.tables[table].value.clone();
        self.work += value.len() as u64 * WORK_PER_COPY;
        for entry in value.values_mut() {
            self.ofds[entry.ofd as usize].refs += 1;
            if let Ok(slot) = &mut entry.slot {
                let new = self.new_slot(task);
                copies.push((*slot, new));
                *slot = new;
            }
        }
        self.tables.push(Shared::new(value, task));
        self.tables.len() - 1
    }

    /// exec gives a thread its own descriptor table. Returns the slots whose descriptors are copied if it shared one.
    pub fn unshare_table(&mut self, task: usize) -> Vec<(Slot, Slot)> {
        let table = self.of(task).table;
        let mut copies = Vec::new();
        if self.tables[table].users > 1 {
            self.tables[table].users -= 1;
            self.uses[task].table = self.copy_table(task, table, &mut copies);
        }
        copies
    }

    /// Gives a thread its own fs context.
    pub fn unshare_place(&mut self, task: usize) {
        let place = self.of(task).place;
        if self.places.get(place).is_some_and(|p| p.users > 1) {
            self.places[place].users -= 1;
            self.uses[task].place = self.new_place(task, self.places[place].value);
        }
    }

    /// The threads whose root or working directory is `old` get `new` instead (`pivot_root`). Replay threads keep
    /// theirs, so that paths are replaced.
    pub(crate) fn pivot(&mut self, old: Place, new: Place) {
        self.work += self.live_places.len() as u64;
        for place in &self.live_places {
            let place = &mut self.places[*place].value;
            if (place.root, place.root_mount) == (old.node, old.mount) {
                (place.root, place.root_mount) = (new.node, new.mount);
            }
            let cwd = place.cwd.unwrap_or(place.away);
            if (cwd, place.cwd_mount) == (old.node, old.mount) {
                (place.cwd, place.away, place.cwd_mount) = (Err(Skip::Outside), new.node, new.mount);
            }
        }
    }

    fn new_place(&mut self, task: usize, value: FsContext) -> usize {
        self.live_places.insert(self.places.len());
        self.places.push(Shared::new(value, task));
        self.places.len() - 1
    }

    /// The entry of a thread's descriptor.
    pub fn entry(&self, task: usize, fd: i32) -> Option<Entry> {
        self.tables.get(self.of(task).table)?.value.get(&fd).copied()
    }

    /// Adds an open file description and returns its index.
    pub fn new_ofd(&mut self, node: NodeId, file: i64, kind: Kind, pos: Option<i64>, flags: i32) -> u32 {
        *self.opens.entry(file).or_default() += 1;
        let new = Ofd { node, file, kind, pos, listed_bytes: 0, flags, refs: 0, recorded: NO_ID, mount: INITIAL };
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

    /// Puts a descriptor into a thread's table and closes the one that had the number. Returns that one, and the file
    /// if its last open file description was closed.
    pub fn install(&mut self, task: usize, fd: i32, entry: Entry) -> (Option<Entry>, Option<i64>) {
        let table = self.of(task).table;
        self.ofds[entry.ofd as usize].refs += 1;
        self.tables[table].version += 1;
        let old = self.tables[table].value.insert(fd, entry);
        (old, old.and_then(|e| self.unref(e.ofd)))
    }

    /// Removes a descriptor; returns the same.
    pub fn remove(&mut self, task: usize, fd: i32) -> (Option<Entry>, Option<i64>) {
        let table = self.of(task).table;
        self.tables[table].version += 1;
        let old = self.tables[table].value.remove(&fd);
        (old, old.and_then(|e| self.unref(e.ofd)))
    }

    /// Removes a reference to an open file description. Returns the file if this closed its last one.
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

    /// Ends a thread. Returns the files whose last open file description was closed, and the mappings that end.
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
        let place = &mut self.places[u.place];
        place.users -= 1;
        if place.users == 0 {
            self.live_places.remove(&u.place);
        }
        (last, self.drop_maps(task))
    }

    /// Detaches a thread from its memory (exit, exec). Returns the mappings that end; none if other threads use the
    /// memory.
    pub fn drop_maps(&mut self, task: usize) -> Maps {
        let maps = &mut self.maps[self.uses[task].maps];
        maps.users -= 1;
        if maps.users > 0 {
            return Maps::new();
        }
        self.left_out_maps.remove(&self.uses[task].maps);
        std::mem::take(&mut maps.value)
    }

    /// New memory after exec.
    pub fn new_maps(&mut self, task: usize) {
        self.uses[task].maps = self.maps.len();
        self.maps.push(Shared::new(Maps::new(), task));
    }

    /// After a directory moved: moves working directories, root directories and directory descriptors along.
    pub fn relocate(&mut self, mut moved: impl FnMut(NodeId) -> NodeId) {
        self.work += (self.live_places.len() + self.directories.len()) as u64;
        for place in &self.live_places {
            let place = &mut self.places[*place];
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
