//! Applies lock calls to the lock table, and the release of locks when descriptors are closed.

use std::collections::HashMap;

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

/// Effect of closing descriptors on locks.
#[derive(Debug, Default)]
pub(crate) struct Unlocks {
    /// Locks that are released: file and owner.
    pub(crate) gone: Vec<(i64, Owner)>,
    /// Files whose locks stay, because other descriptors of the same open file description exist. In a replay these may
    /// be closed earlier, so the next locker waits for all closes.
    pub(crate) shared: Vec<i64>,
}

impl Machine {
    /// The file and the lock that a call asks for.
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

    /// Whether a held lock conflicts with the one asked for.
    pub(crate) fn is_refused(&self, r: &Rec, v: &Operands) -> bool {
        self.lock_of(r, v).is_some_and(|(file, lock)| self.locks.conflict(file, lock).is_some())
    }

    /// A lock was granted although the model has a conflicting one. Returns the first call in flight (`pool`) that
    /// released it. If there is none, the release was not recorded, and the model drops the lock.
    pub(crate) fn before_lock(&mut self, r: &Rec, pool: impl FnOnce() -> Vec<(u32, u32)>) -> Option<u32> {
        if !r.call.locks() || r.ret < 0 || self.locks.is_empty() {
            return None;
        }
        let v = self.operands(r);
        let (file, lock) = self.lock_of(r, &v)?;
        let owner = self.locks.conflict(file, lock)?;
        let pool = pool();
        self.locks.work += pool.len() as u64 / 2;
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
            // Released by something not recorded.
            self.locks.release(file, owner);
        }
        found
    }

    /// Whether a call releases the locks that this owner holds on the file.
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

    /// Descriptors that a call closes.
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

    /// Effect of a call that closes descriptors on locks. Must run before they are closed.
    pub(crate) fn unlocks(&self, r: &Rec) -> Unlocks {
        self.unlocks_of(r.task as usize, &self.closes(r))
    }

    /// Likewise for descriptors of a task that are closed together.
    pub(crate) fn unlocks_of(&self, task: usize, entries: &[Entry]) -> Unlocks {
        let mut out = Unlocks::default();
        if self.locks.is_empty() {
            return out;
        }
        let table = Owner::Table(self.processes.of(task).table);
        let mut closed: HashMap<u32, u32> = HashMap::new();
        for entry in entries {
            *closed.entry(entry.ofd).or_default() += 1;
        }
        for entry in entries {
            let ofd = &self.processes.ofds[entry.ofd as usize];
            let is_last = ofd.refs <= closed[&entry.ofd];
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

    /// Releases the locks, whether or not a step was planned for it.
    pub(crate) fn locks_dropped(&mut self, unlocks: &Unlocks) {
        unlocks.gone.iter().for_each(|(file, owner)| self.locks.release(*file, *owner));
    }

    /// Applies a lock call.
    pub(crate) fn locks_change(&mut self, r: &Rec, v: &Operands) {
        if r.call.locks()
            && r.ret >= 0
            && let Some((file, lock)) = self.lock_of(r, v)
        {
            self.locks.set(file, lock);
        }
    }
}
