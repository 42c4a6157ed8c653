//! Where new files begin on disk, relative to the end of the previous one.

use rustc_hash::FxHashMap;

/// A gap of up to this many sectors (1 MiB) was left by an allocator; a larger one leads to another region.
const MOST_GAP_SECTORS: i64 = 2048;

/// Steps from the end of the data written last to the beginning of a new file.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Steps.
    pub steps: u64,
    /// Steps with a gap of up to 1 MiB.
    pub with_gap: u64,
    /// Sum of these gaps, sectors.
    pub gap_sectors: i64,
    /// Where the last write of data ended, by device.
    head: FxHashMap<i64, i64>,
}

impl Gaps {
    /// Adds a write of file data. `is_new`: it is the first one of its file, at its start.
    pub(super) fn push(&mut self, dev: i64, sector: i64, end_sector: i64, is_new: bool) {
        let before = self.head.insert(dev, end_sector);
        if let (true, Some(head)) = (is_new, before) {
            self.steps += 1;
            let gap = sector - head;
            if gap > 0 && gap <= MOST_GAP_SECTORS {
                self.with_gap += 1;
                self.gap_sectors += gap;
            }
        }
    }
}
