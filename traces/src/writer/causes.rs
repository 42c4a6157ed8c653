//! Finds the operation that caused a bio. An operation gets its id when its segment closes, which may be long before or
//! after its bios end. Both are therefore identified by thread and start time of the operation.

use std::{collections::HashMap, hash::BuildHasherDefault};

use crate::format::columns::AddressHasher;

/// Thread and start time of an operation, ns since the start of the reel. No two operations share both.
pub type OpKey = (i64, i64);

/// Maximum number of ids per generation, 24 bytes each. There are more operations with I/O between two segments of bios
/// only if their bios are on devices that are not recorded.
const MAX_IDS: usize = 512 * 1024;

type Ids = HashMap<OpKey, i64, BuildHasherDefault<AddressHasher>>;

/// Ids of operations whose bios may still arrive, in two generations, and bios that wait for an id.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    young: Ids,
    old: Ids,
    /// For rows of the open segment of bios.
    waiting: Vec<(u32, OpKey)>,
    /// Number of bio segments closed when the first of these arrived.
    segment: usize,
}

impl Causes {
    /// Row `row` of bio segment number `segment` was caused by this operation.
    pub(crate) fn wait(&mut self, segment: usize, row: u32, key: OpKey) {
        if self.segment != segment {
            self.waiting.clear();
            self.segment = segment;
        }
        self.waiting.push((row, key));
    }

    /// Stores the ids of these operations.
    pub(crate) fn named(&mut self, ids: impl Iterator<Item = (OpKey, i64)>) {
        self.young.extend(ids);
        if self.young.len() > MAX_IDS {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// The causes of the rows of segment number `segment`. A cause without an id stays unknown, because its operation
    /// has not ended. Drops ids that no later bio can need.
    pub(crate) fn resolve(&mut self, segment: usize, rows: usize) -> Vec<Option<i64>> {
        let mut causes = vec![None; rows];
        if self.segment == segment {
            for (row, key) in self.waiting.drain(..) {
                let id = self.young.get(&key).or_else(|| self.old.get(&key));
                if let (Some(id), Some(cause)) = (id, causes.get_mut(row as usize)) {
                    *cause = Some(*id);
                }
            }
        }
        self.old = std::mem::take(&mut self.young);
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bios_find_operations_that_end_before_or_after_them() {
        let mut c = Causes::default();
        c.wait(0, 0, (1, 10));
        c.wait(0, 2, (2, 20));
        c.named([((1, 10), 7)].into_iter());
        assert_eq!(c.resolve(0, 3), [Some(7), None, None]);
        // A late bio of an operation in the previous segment, and one of an operation that has ended since.
        c.wait(1, 0, (1, 10));
        c.wait(1, 1, (2, 20));
        c.named([((2, 20), 9)].into_iter());
        assert_eq!(c.resolve(1, 2), [Some(7), Some(9)]);
        // Requests of a segment that closed without resolving them do not carry over to another.
        c.wait(2, 0, (2, 20));
        assert_eq!(c.resolve(3, 1), [None]);
    }
}
