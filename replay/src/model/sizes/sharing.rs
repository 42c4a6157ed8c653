//! Space of files that share data (reflinks) or lost some of it (punched holes).

use crate::model::{
    holes::Holes,
    sizes::{Sizes, blocks},
};

/// Files that share data. Together they take at most as much space as their lengths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Family {
    /// Bytes allocated.
    alloc: i64,
    /// Lengths of the files in whole blocks, bytes.
    whole: i64,
}

impl Sizes {
    pub(super) fn family_grows(&mut self, family: Option<u32>, by: i64) {
        let Some(family) = family.and_then(|n| self.families.get_mut(n as usize)) else { return };
        family.whole = family.whole.saturating_add(by).max(0);
        let alloc = family.alloc.min(family.whole);
        let less = family.alloc - alloc;
        family.alloc = alloc;
        self.take(-less);
    }

    /// Allocates up to `bytes` more for a file: never more than its length without its holes, or than the lengths of all
    /// files with which it shares data.
    pub(super) fn allocate(&mut self, file: i64, bytes: i64) {
        let f = self.file(file);
        let (had, most) = match f.family {
            None => (f.alloc, blocks(f.scaled).saturating_sub(f.holes.bytes())),
            Some(family) => self.families.get(family as usize).map_or((0, 0), |family| (family.alloc, family.whole)),
        };
        let alloc = had.saturating_add(bytes).min(most).max(had.min(most));
        self.set_allocated(file, alloc);
    }

    /// Sets the bytes allocated for a file, or for all files with which it shares data.
    pub(super) fn set_allocated(&mut self, file: i64, alloc: i64) {
        let f = self.file(file);
        let had = match f.family {
            None => std::mem::replace(&mut f.alloc, alloc),
            Some(family) => {
                self.families.get_mut(family as usize).map_or(alloc, |f| std::mem::replace(&mut f.alloc, alloc))
            }
        };
        self.take(alloc - had);
    }

    /// A file shares data of another, or on a target that cannot do that, gets a copy of it. `n` bytes at `from` of file
    /// `source`; a copy has no data where the source has none.
    pub fn cloned(&mut self, (source, from): (i64, i64), file: i64, offset: i64, n: i64) {
        if !self.shares_data() || source == file {
            let data = self.files.get(&source).filter(|s| s.family.is_none()).map_or(i64::MAX, |s| s.alloc);
            let scaled = self.scale.length(offset, n);
            self.lengthened(file, offset, n, scaled);
            let start = self.scale.position(offset).max(0);
            self.file(file).holes.fill(start..start.saturating_add(scaled));
            return self.allocate(file, blocks(scaled).min(data));
        }
        let scaled = self.scale.length(from, n);
        let family = self.family_of(source);
        let replaced = offset == 0 && self.size(file).is_some_and(|size| size <= n);
        self.joins(file, family, replaced);
        self.lengthened(file, offset, n, scaled);
    }

    /// The group of files that share data with this one.
    fn family_of(&mut self, file: i64) -> u32 {
        let new = self.families.len() as u32;
        let f = self.file(file);
        if let Some(family) = f.family {
            return family;
        }
        f.family = Some(new);
        f.holes = Holes::default();
        let family = Family { alloc: std::mem::take(&mut f.alloc), whole: blocks(f.scaled) };
        self.families.push(family);
        new
    }

    /// Adds a file to a group. `replaced`: none of its former data is left.
    fn joins(&mut self, file: i64, family: u32, replaced: bool) {
        let f = self.file(file);
        let whole = blocks(f.scaled);
        let old = f.family.replace(family);
        if old == Some(family) {
            return;
        }
        f.holes = Holes::default();
        let had = std::mem::take(&mut f.alloc);
        self.family_grows(old, -whole);
        // Of data shared with others, it is not known how much is this file's.
        let own = if old.is_some() { whole } else { had };
        let kept = if replaced { 0 } else { own };
        if let Some(family) = self.families.get_mut(family as usize) {
            family.alloc = family.alloc.saturating_add(kept);
            family.whole = family.whole.saturating_add(whole);
        }
        self.take(kept - had);
    }

    /// A range of a file lost its data (FALLOC_FL_PUNCH_HOLE).
    pub fn punched(&mut self, file: i64, offset: i64, len: i64) {
        let scale = self.scale;
        let start = scale.position(offset).max(0);
        let end = start.saturating_add(scale.length(offset, len));
        let f = self.file(file);
        f.modify();
        let end = end.min(blocks(f.scaled));
        let freed = f.holes.punch(start..end);
        if f.family.is_none() {
            let alloc = f.alloc.saturating_sub(freed).max(0);
            self.set_allocated(file, alloc);
        }
    }

    /// Whether space is counted for a target that can share data between files.
    pub fn shares_data(&self) -> bool {
        self.shares_data && self.scale.is_none()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        model::{
            names::NO_NODE,
            sizes::{BLOCK_BYTES, Sizes},
        },
        reel::footprint::Scale,
    };

    #[test]
    fn shared_data_takes_room_once_where_the_target_can_share_it() {
        for (shares, times) in [(true, 1), (false, 11)] {
            let mut s = Sizes::new(Scale::NONE, shares);
            let size = 300 << 20;
            s.opened(0, NO_NODE, true);
            s.wrote(0, 0, size);
            for file in 1..=10 {
                s.opened(file, NO_NODE, true);
                s.cloned((0, 0), file, 0, size);
            }
            assert_eq!(s.peak_bytes, times * size + 11 * BLOCK_BYTES, "shares: {shares}");
            // A write to one of them takes room of its own.
            s.wrote(3, 1 << 20, 8192);
            let more = if shares { 8192 } else { 0 };
            assert_eq!(s.peak_bytes, times * size + 11 * BLOCK_BYTES + more);
            for file in 0..=10 {
                s.unlinked(file, false);
            }
            assert_eq!(s.room, 0);
        }
    }

    #[test]
    fn rewriting_clones_takes_no_more_than_their_lengths() {
        let mut s = Sizes::new(Scale::NONE, true);
        let size = 1 << 20;
        s.opened(0, NO_NODE, true);
        s.wrote(0, 0, size);
        for file in 1..50 {
            s.opened(file, NO_NODE, true);
            s.cloned((file - 1, 0), file, 0, size);
            s.wrote(file, 0, size);
            s.unlinked(file - 1, false);
        }
        assert_eq!(s.peak_bytes, 2 * size + 2 * BLOCK_BYTES);
    }

    #[test]
    fn punched_holes_give_room_back_once() {
        let mut s = Sizes::default();
        s.opened(1, NO_NODE, true);
        for i in 0..10 {
            s.wrote(1, i << 20, 1 << 20);
            s.punched(1, i << 20, 1 << 20);
            s.punched(1, i << 20, 1 << 20);
        }
        assert_eq!((s.peak_bytes, s.room), (BLOCK_BYTES + (1 << 20), BLOCK_BYTES));
        s.wrote(1, 0, 1 << 20);
        s.wrote(1, 0, 1 << 20);
        assert_eq!(s.room, BLOCK_BYTES + (1 << 20));
        s.truncated(1, 0);
        assert_eq!(s.room, BLOCK_BYTES);
    }

    #[test]
    fn a_copy_of_a_sparse_file_takes_what_the_file_takes() {
        let mut s = Sizes::default();
        s.listed.insert(7, 1 << 40);
        s.sparse.insert(7, 8192);
        s.opened(1, 7, false);
        s.opened(2, NO_NODE, true);
        s.cloned((1, 0), 2, 0, 1 << 40);
        assert_eq!(s.peak_bytes, BLOCK_BYTES + 8192);
    }
}
