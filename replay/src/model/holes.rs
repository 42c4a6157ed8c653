//! Ranges of a file that lost their data.

use std::{collections::BTreeMap, ops::Range};

use crate::model::sizes::BLOCK_BYTES;

/// Ranges kept for each file. Of further ones, the model does not know that they have no data.
const MOST: usize = 4096;

/// Ranges without data, in whole blocks: end by start. They neither touch nor overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    ranges: BTreeMap<i64, i64>,
    bytes: i64,
}

impl Holes {
    /// Bytes without data.
    pub(crate) fn bytes(&self) -> i64 {
        self.bytes
    }

    /// The whole blocks inside `range` lose their data. Returns how many bytes did.
    pub(crate) fn punch(&mut self, range: Range<i64>) -> i64 {
        let start = range.start.saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end / BLOCK_BYTES * BLOCK_BYTES;
        if start >= end || self.ranges.len() >= MOST {
            return 0;
        }
        let before = self.bytes;
        let (mut from, mut to) = (start, end);
        while let Some((at, until)) = self.ranges.range(..=to).next_back().map(|(a, b)| (*a, *b)) {
            if until < from {
                break;
            }
            self.ranges.remove(&at);
            self.bytes -= until - at;
            (from, to) = (from.min(at), to.max(until));
        }
        self.ranges.insert(from, to);
        self.bytes += to - from;
        self.bytes - before
    }

    /// The blocks that `range` touches get data.
    pub(crate) fn fill(&mut self, range: Range<i64>) {
        if self.ranges.is_empty() || range.start >= range.end {
            return;
        }
        let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end.saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
        while let Some((at, until)) = self.ranges.range(..end).next_back().map(|(a, b)| (*a, *b)) {
            if until <= start {
                break;
            }
            self.ranges.remove(&at);
            self.bytes -= until - at;
            let rest = [(at, start), (end, until)];
            for (from, to) in rest.into_iter().filter(|(from, to)| from < to) {
                if self.ranges.len() < MOST {
                    self.ranges.insert(from, to);
                    self.bytes += to - from;
                }
            }
            if at < start {
                break;
            }
        }
    }

    /// The file ends at `size` now.
    pub(crate) fn cut(&mut self, size: i64) {
        self.fill(size..i64::MAX - BLOCK_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_counted_like_a_map_of_blocks() {
        let (mut holes, mut blocks) = (Holes::default(), vec![false; 64]);
        let mut x = 7_u64;
        let mut random = |below: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % below
        };
        for _ in 0..5000 {
            let (from, len) = (random(60) as usize, random(9) as usize);
            let range = from as i64 * BLOCK_BYTES..(from + len).min(64) as i64 * BLOCK_BYTES;
            let punches = random(2) == 0;
            let before = holes.bytes();
            if punches {
                assert_eq!(holes.punch(range), holes.bytes() - before);
            } else {
                holes.fill(range);
            }
            blocks[from..(from + len).min(64)].fill(punches);
            assert_eq!(holes.bytes(), blocks.iter().filter(|b| **b).count() as i64 * BLOCK_BYTES);
        }
        holes.cut(0);
        assert_eq!(holes.bytes(), 0);
    }

    #[test]
    fn only_whole_blocks_lose_their_data() {
        let mut holes = Holes::default();
        assert_eq!(holes.punch(1..2 * BLOCK_BYTES + 5), BLOCK_BYTES);
        holes.fill(BLOCK_BYTES..BLOCK_BYTES + 1);
        assert_eq!(holes.bytes(), 0);
    }
}
