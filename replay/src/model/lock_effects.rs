//! Lets locks take effect in the model, and with them what closes descriptors.

use crate::{
    Call,
    model::{
        locks::{Lock, Owner},
        machine::Machine,
        operands::Operands,
        processes::Entry,
    },
    reel::input::{NO_ID, Rec},
};

/// What closing descriptors does to locks.
#[derive(Debug, Default)]
pub(crate) struct Unlocks {
    /// Locks that go with them: on which file, and whose.
    pub(crate) gone: Vec<(i64, Owner)>,
    /// Files whose locks live on by others of the same description. In another replay these may be closed first, and who locks next
    /// waits for all of them.
    pub(crate) shared: Vec<i64>,
}

impl Machine {
    /// The lock that a call asks for, and on which file.
    pub(crate) fn lock_of(&self, r: &Rec, v: &Operands) -> Option<(i64, Lock)> {
        let entry = v.entry?;
        let ofd = &self.processes.ofds[entry.ofd as usize];
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
            _ => Owner::Table(self.processes.of(r.task as usize).table),
        };
        let exclusive = match r.mode {
            libc::F_WRLCK => Some(true),
            libc::F_RDLCK => Some(false),
            _ => None,
        };
        Some((file, Lock { owner, from, to, exclusive }))
    }

    /// Whether somebody stands in the way of this lock as things are.
    pub(crate) fn is_refused(&self, r: &Rec, v: &Operands) -> bool {
        self.lock_of(r, v).is_some_and(|(file, lock)| self.locks.conflict(file, lock).is_some())
    }

    /// A lock was granted while somebody else's stands in its way: among the calls in flight are those that dropped it.
    /// Their numbers, those that come first.
    pub(crate) fn before_lock(&mut self, r: &Rec, pool: &[(u32, u32)]) -> Option<u32> {
        if !r.call.locks() || r.ret < 0 || self.locks.is_empty() {
            return None;
        }
        let v = self.operands(r);
        let (file, lock) = self.lock_of(r, &v)?;
        let owner = self.locks.conflict(file, lock)?;
        let found = pool.iter().find_map(|(id, row)| {
            if !self.reel.is_at_hand(*id, *row) {
                return None;
            }
            let other = self.reel.take(*id)?;
            let drops = self.drops(&other, file, owner);
            self.reel.recs[*id as usize] = Some(other);
            drops.then_some(*id)
        });
        if found.is_none() {
            // Dropped out of sight.
            self.locks.release(file, owner);
        }
        found
    }

    /// Whether a call takes a lock on the file away from this owner.
    fn drops(&mut self, r: &Rec, file: i64, owner: Owner) -> bool {
        if r.ret < 0 {
            return false;
        }
        if r.call.locks() {
            let v = self.operands(r);
            return self.lock_of(r, &v).is_some_and(|(f, lock)| (f, lock.owner) == (file, owner));
        }
        self.unlocks(r).gone.contains(&(file, owner))
    }

    /// Descriptors that a call is about to close.
    fn closes(&self, r: &Rec) -> Vec<Entry> {
        let task = r.task as usize;
        let one = |fd: i32| self.processes.entry(task, fd).into_iter().collect();
        match r.call {
            _ if r.ret < 0 || self.locks.is_empty() => Vec::new(),
            Call::Close => one(r.fd),
            Call::Dup2 | Call::Dup3 if r.fd != r.fd2 => one(r.fd2),
            Call::CloseRange if r.flags == 0 => {
                let table = &self.processes.tables[self.processes.of(task).table].value;
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
        if self.locks.is_empty() {
            return out;
        }
        let table = Owner::Table(self.processes.of(task).table);
        for entry in entries {
            let ofd = &self.processes.ofds[entry.ofd as usize];
            let is_last = ofd.refs as usize <= entries.iter().filter(|e| e.ofd == entry.ofd).count();
            for owner in [table, Owner::Ofd(entry.ofd), Owner::Flock(entry.ofd)] {
                if !self.locks.holds(ofd.file, owner) {
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

    /// They are dropped, whether or not a step was made of it.
    pub(crate) fn locks_dropped(&mut self, unlocks: &Unlocks) {
        unlocks.gone.iter().for_each(|(file, owner)| self.locks.release(*file, *owner));
    }

    /// A lock call took effect.
    pub(crate) fn locks_change(&mut self, r: &Rec, v: &Operands) {
        if r.call.locks()
            && r.ret >= 0
            && let Some((file, lock)) = self.lock_of(r, v)
        {
            self.locks.set(file, lock);
        }
    }
}
