//! A limit on the work that the lengths in rows cause.

/// Sectors of a block.
const BLOCK_SECTORS: i64 = 8;

/// Counts the blocks that a meter visits one by one. A few bytes of a reel can claim requests of many terabytes.
#[derive(Clone, Copy, Debug)]
pub struct Visits {
    left: u64,
}

impl Visits {
    /// Allows this many blocks of 4 KiB.
    pub fn of(blocks: u64) -> Self {
        Self { left: blocks }
    }

    /// Takes `wanted` blocks, or as many as are left. Returns their number.
    pub fn take(&mut self, wanted: u64) -> u64 {
        let got = wanted.min(self.left);
        self.left -= got;
        got
    }

    /// Takes the blocks of sectors `[start, end)`, or as many as are left. Returns the end of the taken sectors.
    pub fn clip(&mut self, start: i64, end: i64) -> i64 {
        let wanted = end.saturating_sub(start).max(0).unsigned_abs().div_ceil(BLOCK_SECTORS.unsigned_abs());
        let got = self.take(wanted);
        if got == wanted { end } else { start.saturating_add(got as i64 * BLOCK_SECTORS) }
    }

    /// Whether no blocks are left.
    pub fn are_used_up(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_blocks_are_visited_than_are_left() {
        let mut visits = Visits::of(3);
        assert_eq!(visits.clip(5, 6), 6);
        assert_eq!(visits.clip(80, 70), 70);
        assert_eq!(visits.clip(100, i64::MAX), 116);
        assert!(visits.are_used_up());
        assert_eq!(visits.clip(7, 9), 7);
    }
}
