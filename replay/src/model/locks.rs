//! A model of locks: who holds what, so that a lock is asked for when it was to be had, and refused when it was refused.
//!
//! fcntl's locks belong to a descriptor table and a range; closing any descriptor of the file drops them. OFD locks and
//! flock's belong to an open file description. The first two exclude each other, flock's only their like.

use std::collections::HashMap;

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A descriptor table, by number: fcntl's.
    Table(usize),
    /// An open file description, by number: OFD locks.
    Ofd(u32),
    /// Likewise: flock's.
    Flock(u32),
}

impl Owner {
    fn is_flock(self) -> bool {
        matches!(self, Self::Flock(_))
    }
}

/// A lock as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who.
    pub owner: Owner,
    /// First byte.
    pub from: i64,
    /// The byte behind the last.
    pub to: i64,
    /// Shared with other readers, or exclusive; `None` drops it.
    pub exclusive: Option<bool>,
}

/// A lock as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// By whom.
    pub owner: Owner,
    /// First byte.
    pub from: i64,
    /// The byte behind the last.
    pub to: i64,
    /// Not shared with other readers.
    pub exclusive: bool,
}

/// Locks by file.
#[derive(Debug, Default)]
pub struct LockTable(HashMap<i64, Vec<HeldLock>>);

impl LockTable {
    /// Whose lock stands in the way of this one.
    pub fn conflict(&self, file: i64, lock: Lock) -> Option<Owner> {
        let exclusive = lock.exclusive?;
        let held = self.0.get(&file)?.iter().find(|h| {
            h.owner != lock.owner
                && h.owner.is_flock() == lock.owner.is_flock()
                && (h.exclusive || exclusive)
                && h.from < lock.to
                && lock.from < h.to
        });
        held.map(|h| h.owner)
    }

    /// The lock is set or dropped: within its range nothing else of this owner is left.
    pub fn set(&mut self, file: i64, lock: Lock) {
        let all = self.0.entry(file).or_default();
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

    /// Whether this owner holds any lock on the file.
    pub fn holds(&self, file: i64, owner: Owner) -> bool {
        self.0.get(&file).is_some_and(|all| all.iter().any(|h| h.owner == owner))
    }

    /// All that this owner holds on the file is gone.
    pub fn release(&mut self, file: i64, owner: Owner) {
        if let Some(all) = self.0.get_mut(&file) {
            all.retain(|h| h.owner != owner);
            self.tidy(file);
        }
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is held, by file.
    pub fn all(&self) -> Vec<(i64, HeldLock)> {
        let mut all: Vec<_> = self.0.iter().flat_map(|(file, held)| held.iter().map(|h| (*file, *h))).collect();
        all.sort_by_key(|(file, h)| (*file, h.from));
        all
    }

    /// Files on which one of these owners holds a lock.
    pub fn files_of(&self, mut owner: impl FnMut(Owner) -> bool) -> Vec<i64> {
        self.0.iter().filter(|(_, all)| all.iter().any(|h| owner(h.owner))).map(|(file, _)| *file).collect()
    }

    fn tidy(&mut self, file: i64) {
        if self.0.get(&file).is_some_and(Vec::is_empty) {
            self.0.remove(&file);
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
