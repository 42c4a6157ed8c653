//! The lock table: which locks are held on a file, by whom. It decides whether a lock request would be granted at this
//! point.
//!
//! fcntl locks belong to a descriptor table and cover a range; closing any descriptor of the file releases them. OFD
//! locks and flock locks belong to an open file description. fcntl and OFD locks conflict with each other, flock locks
//! only with flock locks.

use std::collections::HashMap;

/// Holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// fcntl locks: a descriptor table, by index.
    Table(usize),
    /// OFD locks: an open file description, by index.
    Ofd(u32),
    /// flock locks: an open file description, by index.
    Flock(u32),
}

impl Owner {
    fn is_flock(self) -> bool {
        matches!(self, Self::Flock(_))
    }
}

/// A lock that is asked for or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Holder.
    pub owner: Owner,
    /// First byte.
    pub from: i64,
    /// End of the range, exclusive.
    pub to: i64,
    /// `Some(true)` exclusive, `Some(false)` shared, `None` release.
    pub exclusive: Option<bool>,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Holder.
    pub owner: Owner,
    /// First byte.
    pub from: i64,
    /// End of the range, exclusive.
    pub to: i64,
    /// Exclusive, not shared.
    pub exclusive: bool,
}

/// Held locks by file.
#[derive(Debug, Default)]
pub struct LockTable {
    held: HashMap<i64, Vec<HeldLock>>,
    /// Locks compared so far.
    pub(crate) work: u64,
}

/// As many comparisons are one unit of work.
const COMPARED_PER_WORK: u64 = 16;

impl LockTable {
    /// Holder of a lock that conflicts with this one.
    pub fn conflict(&self, file: i64, lock: Lock) -> Option<Owner> {
        let exclusive = lock.exclusive?;
        let held = self.held.get(&file)?.iter().find(|h| {
            h.owner != lock.owner
                && h.owner.is_flock() == lock.owner.is_flock()
                && (h.exclusive || exclusive)
                && h.from < lock.to
                && lock.from < h.to
        });
        held.map(|h| h.owner)
    }

    /// Sets or releases a lock. It replaces all locks of its owner within its range.
    pub fn set(&mut self, file: i64, lock: Lock) {
        let all = self.held.entry(file).or_default();
        self.work += all.len() as u64 / COMPARED_PER_WORK;
        let mut kept = Vec::with_capacity(all.len() + 2);
        for h in all.drain(..) {
            if h.owner != lock.owner || h.to <= lock.from || lock.to <= h.from {
                kept.push(h);
                continue;
            }
            if h.from < lock.from {
                kept.push(HeldLock { to: lock.from, ..h });
            }
            if lock.to < h.to {
                kept.push(HeldLock { from: lock.to, ..h });
            }
        }
        if let Some(exclusive) = lock.exclusive {
            kept.push(HeldLock { owner: lock.owner, from: lock.from, to: lock.to, exclusive });
        }
        *all = kept;
        self.tidy(file);
    }

    /// Whether the owner holds any lock on the file.
    pub fn holds(&self, file: i64, owner: Owner) -> bool {
        self.held.get(&file).is_some_and(|all| all.iter().any(|h| h.owner == owner))
    }

    /// Releases all locks that the owner holds on the file.
    pub fn release(&mut self, file: i64, owner: Owner) {
        if let Some(all) = self.held.get_mut(&file) {
            self.work += all.len() as u64 / COMPARED_PER_WORK;
            all.retain(|h| h.owner != owner);
            self.tidy(file);
        }
    }

    /// Whether no locks are held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// All held locks, with their files, in order.
    pub fn all(&self) -> Vec<(i64, HeldLock)> {
        let mut all: Vec<_> = self.held.iter().flat_map(|(file, held)| held.iter().map(|h| (*file, *h))).collect();
        all.sort_by_key(|(file, h)| (*file, h.from));
        all
    }

    /// Files on which one of these owners holds a lock.
    pub fn files_of(&self, mut owner: impl FnMut(Owner) -> bool) -> Vec<i64> {
        self.held.iter().filter(|(_, all)| all.iter().any(|h| owner(h.owner))).map(|(file, _)| *file).collect()
    }

    fn tidy(&mut self, file: i64) {
        if self.held.get(&file).is_some_and(Vec::is_empty) {
            self.held.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: Owner, from: i64, to: i64, exclusive: Option<bool>) -> Lock {
        Lock { owner, from, to, exclusive }
    }

    #[test]
    fn ranges_split_and_owners_exclude_each_other() {
        use Owner::*;
        let mut l = LockTable::default();
        l.set(1, lock(Table(1), 0, 100, Some(true)));
        l.set(1, lock(Table(1), 40, 60, None));
        assert_eq!(l.conflict(1, lock(Table(2), 45, 55, Some(true))), None);
        assert_eq!(l.conflict(1, lock(Ofd(7), 30, 45, Some(false))), Some(Table(1)));
        assert_eq!(l.conflict(1, lock(Table(1), 30, 45, Some(true))), None, "its own");
        assert_eq!(l.conflict(1, lock(Flock(7), 0, i64::MAX, Some(true))), None, "another kind");
        l.set(1, lock(Flock(7), 0, i64::MAX, Some(false)));
        assert_eq!(l.conflict(1, lock(Flock(8), 0, i64::MAX, Some(false))), None, "readers share");
        assert_eq!(l.conflict(1, lock(Flock(8), 0, i64::MAX, Some(true))), Some(Flock(7)));
        l.release(1, Table(1));
        l.release(1, Flock(7));
        assert!(l.is_empty());
    }
}
