//! Which operation caused a bio. An operation gets its id only when its segment closes, which may be long after its
//! bios ended, or before: so both are remembered by what is known of them at once, the thread and the time at
//! which the operation began.

use std::{collections::HashMap, hash::BuildHasherDefault};

use crate::format::columns::AddressHasher;

/// A thread and the time at which its operation began, ns since the reel's start: no two operations share these.
pub type OpKey = (i64, i64);

/// Ids remembered in either generation: 24 bytes each. More operations than this with I/O between two segments of
/// bios only happen when their bios are on devices not recorded.
const MAX_IDS: usize = 512 * 1024;

type Ids = HashMap<OpKey, i64, BuildHasherDefault<AddressHasher>>;

/// Ids of operations that may have caused a bio still to come, in two generations, and bios that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    young: Ids,
    old: Ids,
    /// For rows of the open segment of bios.
    waiting: Vec<(u32, OpKey)>,
    /// Segments of bios closed when the first of these came.
    segment: usize,
}

impl Causes {
    /// Row `row` of the segment number `segment` of bios was caused by this operation.
    pub(crate) fn wait(&mut self, segment: usize, row: u32, key: OpKey) {
        if self.segment != segment {
            self.waiting.clear();
            self.segment = segment;
        }
        self.waiting.push((row, key));
    }

    /// These operations have got their ids.
    pub(crate) fn named(&mut self, ids: impl Iterator<Item = (OpKey, i64)>) {
        self.young.extend(ids);
        if self.young.len() > MAX_IDS {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// The causes of the rows of segment number `segment`, as far as they have ids; the others stay unknown: their
    /// operations have not ended yet. Forgets what no later bio can ask for.
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
        // A late bio of an operation of the segment before, and one of an operation that has ended meanwhile.
        c.wait(1, 0, (1, 10));
        c.wait(1, 1, (2, 20));
        c.named([((2, 20), 9)].into_iter());
        assert_eq!(c.resolve(1, 2), [Some(7), Some(9)]);
        // What was meant for a segment that closed without asking is for no other.
        c.wait(2, 0, (2, 20));
        assert_eq!(c.resolve(3, 1), [None]);
    }
}
