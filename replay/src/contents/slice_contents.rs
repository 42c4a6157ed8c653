//! What files hold when a slice begins over what an earlier one left: `--verify` with `--skip-prepare`.
//!
//! There a file need not be filled as a preparation fills it: where an earlier slice cut, lengthened or wrote beyond the end, it has holes.
//! So the part of the reel before the slice is followed, and of a file that was changed there only its beginning, as far as
//! it was written without a gap, counts as data. Behind that both data and zeros are right. The target may as well have been prepared for this
//! very slice, or have been left by slices that began in the middle: where it has a beginning without a gap, so have these.

use std::collections::HashMap;

use crate::contents::read_checks::Change;

/// What a file holds at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InitialData {
    /// So many bytes of it, from its beginning on, are data.
    pub(crate) data_bytes: i64,
    /// Content came from elsewhere.
    pub(crate) foreign: bool,
}

impl InitialData {
    fn change(&mut self, change: Change) {
        match change {
            Change::Wrote { from, to } if from <= self.data_bytes => self.data_bytes = self.data_bytes.max(to),
            Change::Wrote { .. } | Change::Reserved => {}
            Change::Cut { len } => {
                self.data_bytes = self.data_bytes.min(len);
                self.foreign &= len > 0;
            }
            Change::Foreign => self.foreign = true,
        }
    }
}

/// Files that were changed before the slice.
#[derive(Debug, Default)]
pub(crate) struct ChangedFiles {
    files: HashMap<i64, InitialData>,
}

impl ChangedFiles {
    /// What this file holds, if a preparation would fill `prepared_bytes` of it.
    pub(crate) fn left(&self, file: i64, prepared_bytes: i64) -> InitialData {
        let left = self.files.get(&file).copied();
        left.map_or(InitialData { data_bytes: prepared_bytes, foreign: false }, |l| InitialData {
            data_bytes: l.data_bytes.min(prepared_bytes),
            ..l
        })
    }

    /// An operation before the slice changed the file, which held `at_start` until its first change.
    pub(crate) fn change(&mut self, file: i64, at_start: InitialData, change: Change) {
        self.files.entry(file).or_insert(at_start).change(change);
    }

    /// The file is gone.
    pub(crate) fn forget(&mut self, file: i64) {
        self.files.remove(&file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_gap_is_not_taken_for_data() {
        let mut left = InitialData { data_bytes: 8000, foreign: false };
        left.change(Change::Wrote { from: 9000, to: 10_000 });
        assert_eq!(left.data_bytes, 8000);
        left.change(Change::Wrote { from: 8000, to: 9000 });
        left.change(Change::Wrote { from: 10, to: 20 });
        assert_eq!(left.data_bytes, 9000, "what had been written behind it was not remembered");
        left.change(Change::Cut { len: 20_000 });
        assert_eq!(left.data_bytes, 9000);
        left.change(Change::Cut { len: 100 });
        left.change(Change::Foreign);
        left.change(Change::Cut { len: 7000 });
        assert_eq!(left, InitialData { data_bytes: 100, foreign: true });
        left.change(Change::Cut { len: 0 });
        assert_eq!(left, InitialData::default());
    }
}
