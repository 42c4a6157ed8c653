//! Blocks that are written or read again.

use rustc_hash::FxHashMap;

use crate::{
    events::{bios::Bio, requests::Class},
    meters::visits::Visits,
};

/// Sectors of a block.
const BLOCK_SECTORS: i64 = 8;
/// Maximum number of blocks followed. With more, a sample of them is followed: half as many each time.
const MOST_BLOCKS: usize = 1 << 20;
/// Maximum number of blocks visited one by one: 64 GiB of requests, or some million rows of damage.
const MOST_VISITS: u64 = 1 << 27;
/// A block written again within this time counts as rewritten. The kernel's own flusher waits as long.
pub const REWRITE_NS: i64 = 5_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Block {
    written_ns: Option<i64>,
    read: bool,
}

/// What a bio did to blocks that were touched before. In a sample, a single value says little; sums are right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Again {
    /// Share of its blocks written within [`REWRITE_NS`] before.
    pub(super) rewritten: f64,
    /// Share of its blocks read before and not written since.
    pub(super) reread: f64,
}

/// Follows blocks, or a sample of them. Memory: [`MOST_BLOCKS`].
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: FxHashMap<(i64, i64), Block>,
    /// Of the hashes of block numbers, those with these bits zero are followed.
    mask: u64,
    visits: Visits,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { blocks: FxHashMap::default(), mask: 0, visits: Visits::of(MOST_VISITS) }
    }
}

/// Spreads block numbers evenly (the finaliser of SplitMix64).
fn hash(block: i64) -> u64 {
    let mut x = block.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Blocks {
    /// Handles the next bio, in order of queueing.
    pub(super) fn push(&mut self, bio: &Bio<'_>) -> Again {
        let writes = match bio.class {
            Class::Write => true,
            Class::Read => false,
            _ => return Again::default(),
        };
        if bio.sector < 0 {
            return Again::default();
        }
        let end = self.visits.clip(bio.sector, bio.end_sector());
        let (first, end) = (bio.sector / BLOCK_SECTORS, end.saturating_add(BLOCK_SECTORS - 1) / BLOCK_SECTORS);
        let (mut rewritten, mut reread) = (0u64, 0u64);
        for block in first..end {
            if hash(block) & self.mask != 0 {
                continue;
            }
            let old = self.blocks.get(&(bio.dev, block)).copied();
            let new = if writes {
                let again = old.and_then(|o| o.written_ns).is_some_and(|at| bio.queue_ns - at <= REWRITE_NS);
                rewritten += u64::from(again);
                Block { written_ns: Some(bio.queue_ns), read: false }
            } else {
                reread += u64::from(old.is_some_and(|o| o.read));
                Block { written_ns: old.and_then(|o| o.written_ns), read: true }
            };
            self.blocks.insert((bio.dev, block), new);
        }
        let sampled = self.mask + 1;
        if self.blocks.len() > MOST_BLOCKS {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.blocks.retain(|(_, block), _| hash(*block) & mask == 0);
        }
        // Each block of the sample stands for those that are not followed.
        let share = |n: u64| n as f64 * sampled as f64 / (end - first).max(1) as f64;
        Again { rewritten: share(rewritten), reread: share(reread) }
    }
}
