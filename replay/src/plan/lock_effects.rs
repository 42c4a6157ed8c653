//! Lets locks take effect in the model, and with them what closes descriptors.

use std::collections::HashSet;

use crate::{
    Call,
    model::{
        locks::{Lock, Owner},
        processes::Entry,
    },
    plan::{
        dependencies::{Class, FINISH},
        operands::View,
        planner::Planner,
        program::{Act, Range},
    },
    reel::input::{NO_ID, Rec},
};

/// What closing descriptors does to locks.
#[derive(Debug, Default)]
pub(crate) struct Unlocks {
    /// Locks that go with them: on which file, and whose.
    gone: Vec<(i64, Owner)>,
    /// Files whose locks live on by others of the same description. In another replay these may be closed first, and who locks next
    /// waits for all of them.
    shared: Vec<i64>,
}

impl Planner {
    /// The lock that a call asks for, and on which file.
    pub(crate) fn lock_of(&self, r: &Rec, v: &View) -> Option<(i64, Lock)> {
        let entry = v.entry?;
        let ofd = &self.procs.ofds[entry.ofd as usize];
        let file = ofd.file;
        if r.call == Call::Flock {
            let exclusive = match r.flags as i32 & !libc::LOCK_NB {
                libc::LOCK_SH => Some(false),
                libc::LOCK_EX => Some(true),
                _ => None,
            };
            return Some((file, Lock { owner: Owner::Flock(entry.ofd), from: 0, to: i64::MAX, exclusive }));
        }
        let base = match r.aux2 as i32 {
            libc::SEEK_CUR => ofd.pos.unwrap_or(0),
            libc::SEEK_END => self.sizes.size(file).unwrap_or(0),
            _ => 0,
        };
        let start = base.saturating_add(if r.offset_bytes == NO_ID { 0 } else { r.offset_bytes });
        let (from, to) = match r.len_bytes {
            0 => (start, i64::MAX),
            len if len < 0 => (start.saturating_add(len), start),
            len => (start, start.saturating_add(len)),
        };
        let owner = match r.call {
            Call::OfdSetLk | Call::OfdSetLkw | Call::OfdGetLk => Owner::Ofd(entry.ofd),
            _ => Owner::Table(self.procs.of(r.task as usize).table),
        };
        let exclusive = match r.mode {
            libc::F_WRLCK => Some(true),
            libc::F_RDLCK => Some(false),
            _ => None,
        };
        Some((file, Lock { owner, from, to, exclusive }))
    }

    /// Whether somebody stands in the way of this lock as things are.
    pub(crate) fn is_refused(&self, r: &Rec, v: &View) -> bool {
        self.lock_of(r, v).is_some_and(|(file, lock)| self.locked.conflict(file, lock).is_some())
    }

    /// A lock was granted while somebody else's stands in its way: among the calls in flight are those that dropped it.
    /// Their numbers, those that come first.
    pub(crate) fn before_lock(&mut self, r: &Rec, pool: &[(u32, u32)]) -> Option<u32> {
        if !r.call.locks() || r.ret < 0 || self.locked.is_empty() {
            return None;
        }
        let v = self.view(r);
        let (file, lock) = self.lock_of(r, &v)?;
        let owner = self.locked.conflict(file, lock)?;
        let found = pool.iter().find_map(|(id, row)| {
            if !self.input.is_at_hand(*id, *row) {
                return None;
            }
            let other = self.input.take(*id)?;
            let drops = self.drops(&other, file, owner);
            self.input.recs[*id as usize] = Some(other);
            drops.then_some(*id)
        });
        if found.is_none() {
            // Dropped out of sight.
            self.locked.release(file, owner);
        }
        found
    }

    /// Whether a call takes a lock on the file away from this owner.
    fn drops(&mut self, r: &Rec, file: i64, owner: Owner) -> bool {
        if r.ret < 0 {
            return false;
        }
        if r.call.locks() {
            let v = self.view(r);
            return self.lock_of(r, &v).is_some_and(|(f, lock)| (f, lock.owner) == (file, owner));
        }
        self.unlocks(r).gone.contains(&(file, owner))
    }

    /// Descriptors that a call is about to close.
    fn closes(&self, r: &Rec) -> Vec<Entry> {
        let task = r.task as usize;
        let one = |fd: i32| self.procs.entry(task, fd).into_iter().collect();
        match r.call {
            _ if r.ret < 0 || self.locked.is_empty() => Vec::new(),
            Call::Close => one(r.fd),
            Call::Dup2 | Call::Dup3 if r.fd != r.fd2 => one(r.fd2),
            Call::CloseRange if r.flags == 0 => {
                let table = &self.procs.tables[self.procs.of(task).table].value;
                table
                    .iter()
                    .filter(|(fd, _)| (r.fd as u32..=r.fd2 as u32).contains(&(**fd as u32)))
                    .map(|(_, e)| *e)
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a call does that closes descriptors; to be asked before it closes them.
    pub(crate) fn unlocks(&self, r: &Rec) -> Unlocks {
        self.unlocks_of(r.task as usize, &self.closes(r))
    }

    /// The same of descriptors of a task that are closed together.
    pub(crate) fn unlocks_of(&self, task: usize, entries: &[Entry]) -> Unlocks {
        let mut out = Unlocks::default();
        if self.locked.is_empty() {
            return out;
        }
        let table = Owner::Table(self.procs.of(task).table);
        for entry in entries {
            let ofd = &self.procs.ofds[entry.ofd as usize];
            let is_last = ofd.refs as usize <= entries.iter().filter(|e| e.ofd == entry.ofd).count();
            for owner in [table, Owner::Ofd(entry.ofd), Owner::Flock(entry.ofd)] {
                if !self.locked.holds(ofd.file, owner) {
                    continue;
                }
                if owner == table || is_last {
                    out.gone.push((ofd.file, owner));
                } else {
                    out.shared.push(ofd.file);
                }
            }
        }
        out
    }

    /// The step that is being made uses locks.
    pub(crate) fn uses_of_locks(&mut self, r: &Rec, v: &View, unlocks: &Unlocks) {
        if r.call.locks() || r.call.asks_for_lock() {
            let changes = r.call.locks() && r.ret >= 0;
            if let Some((file, _)) = self.lock_of(r, v) {
                self.order.lock(file, if changes { Class::Alone } else { Class::Read });
            }
        }
        self.drop_locks(unlocks);
    }

    /// The step that is being made closes what holds locks.
    pub(crate) fn drop_locks(&mut self, unlocks: &Unlocks) {
        unlocks.shared.iter().for_each(|file| self.order.lock(*file, Class::Add));
        unlocks.gone.iter().for_each(|(file, _)| self.order.lock(*file, Class::Alone));
    }

    /// They are dropped, whether or not a step was made of it.
    pub(crate) fn locks_dropped(&mut self, unlocks: &Unlocks) {
        unlocks.gone.iter().for_each(|(file, owner)| self.locked.release(*file, *owner));
    }

    /// A lock call took effect.
    pub(crate) fn locks_change(&mut self, r: &Rec, v: &View) {
        if r.call.locks()
            && r.ret >= 0
            && let Some((file, lock)) = self.lock_of(r, v)
        {
            self.locked.set(file, lock);
        }
    }

    /// The last thread of a descriptor table is about to end: what the table holds is dropped when all its threads have ended.
    pub(crate) fn exit_drops_locks(&mut self, task: usize) {
        let table = self.procs.of(task).table;
        if self.locked.is_empty() || self.procs.tables[table].users > 1 {
            return;
        }
        let entries: Vec<Entry> = self.procs.tables[table].value.values().copied().collect();
        let unlocks = self.unlocks_of(task, &entries);
        self.ends_with(task, unlocks);
    }

    /// The reel, or its slice, ends before these threads did: here they end when their last call is made, but with what they
    /// hold they stay in the way of those that were refused because of it.
    pub(crate) fn locks_outlast(&mut self) {
        let held: Vec<(i64, Owner)> = self.locked.all().into_iter().map(|(file, h)| (file, h.owner)).collect();
        let mut done = HashSet::new();
        for task in 0..self.tasks.len() {
            let table = self.procs.of(task).table;
            if held.is_empty() || !self.procs.of(task).alive || !done.insert(table) {
                continue;
            }
            let ofds: HashSet<u32> = self.procs.tables[table].value.values().map(|e| e.ofd).collect();
            let own = held.iter().filter(|(_, owner)| match owner {
                Owner::Table(of) => *of == table,
                Owner::Ofd(ofd) | Owner::Flock(ofd) => ofds.contains(ofd),
            });
            let gone = own.copied().collect();
            self.ends_with(task, Unlocks { gone, shared: Vec::new() });
        }
    }

    /// The threads of this one's descriptor table end, and with it these locks.
    fn ends_with(&mut self, task: usize, unlocks: Unlocks) {
        let table = self.procs.of(task).table;
        if unlocks.gone.is_empty() && unlocks.shared.is_empty() {
            return;
        }
        // A step that does nothing: the end waits for whoever was refused because of these locks.
        self.push(task, Act::Close(Range::default()), i64::MAX, |p| p.drop_locks(&unlocks));
        let files = || unlocks.gone.iter().map(|(file, _)| file).chain(&unlocks.shared);
        let threads = (0..self.procs.uses.len()).filter(|t| self.procs.uses[*t].table == table);
        for thread in threads.collect::<Vec<_>>() {
            self.order.begin(thread, FINISH as usize);
            for file in files() {
                // Together: whoever locks next waits for all of them.
                self.order.lock(*file, Class::Add);
            }
        }
        self.order.edges.clear();
        self.locks_dropped(&unlocks);
        // It has something to do as long as it holds them.
        self.tasks[task].holds_locks = !self.silent;
    }
}
