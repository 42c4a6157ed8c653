//! P11, the miss ratio by cache size: the share of accesses to 4 KiB blocks that an LRU cache of each size would miss.
//! Uses reuse distances of a sample of blocks (SHARDS, Waldspurger and others, FAST'15) with a fixed number of blocks:
//! memory is bounded, and the curve is exact up to that number.

use std::collections::{BTreeMap, HashMap};

use ioreel_analyze::meters::visits::Visits;
use rustc_hash::FxBuildHasher;

use super::{
    panel::{About, CHART_HEIGHT, Issue, Needs, Panel, Spec},
    rewrites::scatter,
};
use crate::{
    canvas::{scale::bytes, theme::Ink},
    model::shape::{Chart, Line, Shape, Slots},
};

pub(super) const SPEC: Spec = Spec {
    name: "reuse",
    title: "Miss ratio of a cache",
    unit: "LRU, blocks of 4 KiB, reads and writes",
    about: About::Device,
    height: CHART_HEIGHT,
    make: |_| Ok(Box::new(Reuse::new(MOST_BLOCKS))),
};

/// Maximum number of sampled blocks. The error is then about 0.01.
const MOST_BLOCKS: usize = 1 << 16;
/// Maximum number of blocks visited one by one (8 TiB), and of uses of sampled blocks (512 GiB).
const MOST_VISITS: u64 = 1 << 31;
const MOST_SAMPLED: u64 = 1 << 27;
/// Sectors of a block.
const BLOCK: i64 = 8;
/// Number of cache sizes: powers of two, in blocks.
const SIZES: usize = 40;

struct Reuse {
    most: usize,
    /// Time of the last use of each sampled block.
    used: HashMap<i64, usize, FxBuildHasher>,
    /// A Fenwick tree with 1 at each time that is the last use of a block.
    tree: Vec<u32>,
    now: usize,
    /// Blocks with a hash below this are in the sample.
    below: u64,
    /// Hashes of the sampled blocks. The largest leaves first.
    hashes: BTreeMap<u64, i64>,
    /// Uses by the cache size they need, scaled by the sampled share.
    hits: [f64; SIZES],
    all: f64,
    visits: Visits,
    /// Limit on uses of sampled blocks.
    sampled: Visits,
}

impl Reuse {
    fn new(most: usize) -> Self {
        Self {
            most,
            used: HashMap::default(),
            tree: vec![0; most * 4],
            now: 0,
            below: u64::MAX,
            hashes: BTreeMap::new(),
            hits: [0.0; SIZES],
            all: 0.0,
            visits: Visits::of(MOST_VISITS),
            sampled: Visits::of(MOST_SAMPLED),
        }
    }

    fn put(&mut self, at: usize, n: i32) {
        let mut i = at + 1;
        while i < self.tree.len() {
            self.tree[i] = self.tree[i].wrapping_add_signed(n);
            i += i & i.wrapping_neg();
        }
    }

    /// Number of last uses before `at`.
    fn before(&self, at: usize) -> u32 {
        let (mut i, mut sum) = (at, 0u32);
        while i > 0 {
            sum = sum.wrapping_add(self.tree[i]);
            i -= i & i.wrapping_neg();
        }
        sum
    }

    /// Renumbers the times when the range is full.
    fn compact(&mut self) {
        let mut order: Vec<(usize, i64)> = self.used.iter().map(|(block, at)| (*at, *block)).collect();
        order.sort_unstable();
        self.tree.fill(0);
        for (now, (_, block)) in order.iter().enumerate() {
            self.used.insert(*block, now);
            self.put(now, 1);
        }
        self.now = order.len();
    }

    fn touch(&mut self, block: i64) {
        let hash = scatter(block as u64);
        if hash >= self.below || self.sampled.take(1) == 0 {
            return;
        }
        if self.now + 2 >= self.tree.len() {
            self.compact();
        }
        let scale = u64::MAX as f64 / self.below as f64;
        self.all += scale;
        let now = self.now;
        self.now += 1;
        if let Some(at) = self.used.insert(block, now) {
            // Distinct blocks used since then, plus this one.
            let distance = f64::from(self.before(now) - self.before(at)) * scale;
            let size = distance.max(1.0).log2().ceil() as usize;
            self.hits[size.min(SIZES - 1)] += scale;
            self.put(at, -1);
        } else {
            self.hashes.insert(hash, block);
        }
        self.put(now, 1);
        while self.used.len() > self.most {
            let Some((hash, block)) = self.hashes.pop_last() else { break };
            self.below = hash;
            if let Some(at) = self.used.remove(&block) {
                self.put(at, -1);
            }
        }
    }

    /// The share of uses that a cache of 2^i blocks would miss.
    fn misses(&self) -> Vec<f64> {
        let mut left = self.all;
        self.hits
            .iter()
            .map(|n| {
                left -= n;
                (left / self.all.max(1.0)).clamp(0.0, 1.0)
            })
            .collect()
    }
}

/// Label of a cache size (power of two in blocks), for every other one.
fn size(power: i64) -> Option<String> {
    (power % 2 == 0 && power < 50).then(|| bytes(4096 << power))
}

impl Panel for Reuse {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn cost(&self) -> u32 {
        8
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().filter(|i| i.inside && i.request.class.is_data()).map(|i| &i.request) {
            let end = self.visits.clip(r.sector, r.end_sector());
            if end > r.sector {
                (r.sector / BLOCK..=(end - 1) / BLOCK).for_each(|block| self.touch(block));
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let misses = self.misses();
        // Up to the size at which more memory no longer helps.
        let last = misses.last().copied().unwrap_or(0.0);
        let until = misses.iter().position(|m| *m <= last + 1e-9).unwrap_or(0);
        let shown = (until + 2).clamp(12, SIZES);
        let values = misses.iter().take(shown).map(|m| m * 100.0).collect();
        let first = if self.all > 0.0 { format!("{:.1} % are first uses", last * 100.0) } else { String::new() };
        let sampled = u64::MAX as f64 / self.below as f64;
        let mut note = if sampled > 1.5 { format!("{first}, sample of 1 in {sampled:.0}") } else { first };
        if self.visits.are_used_up() || self.sampled.are_used_up() {
            note.push_str(", later uses left out");
        }
        Shape::Charts(vec![Chart {
            title: "% of uses that miss, by the size of the cache".into(),
            slots: Slots::Numbered { first: 0, label: size, at: 0.5 },
            x: String::new(),
            top: Some(100.0),
            series: vec![Line::area(Ink::Hue(3), "", values)],
            bars: false,
            note,
        }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_over_blocks_misses_until_the_cache_holds_them_all() {
        let mut r = Reuse::new(1000);
        for _ in 0..50 {
            (0..100).for_each(|b| r.touch(b * 77));
        }
        let misses = r.misses();
        // 128 blocks hold the loop of 100, so only first uses miss; 64 blocks always miss.
        assert!((misses[7] - 0.02).abs() < 1e-9 && misses[6] > 0.999, "{misses:?}");
    }

    #[test]
    fn a_sample_tells_the_same() {
        let (mut exact, mut sampled) = (Reuse::new(1 << 20), Reuse::new(2000));
        let mut x = 1u64;
        for _ in 0..300_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
            // Half of the uses go to 1 % of the blocks.
            let block = if x >> 63 == 0 { (x >> 20) % 300 } else { (x >> 20) % 30_000 };
            exact.touch(block as i64);
            sampled.touch(block as i64);
        }
        assert!(sampled.used.len() <= 2000 && sampled.below < u64::MAX);
        for (a, b) in exact.misses().iter().zip(sampled.misses()) {
            assert!((a - b).abs() < 0.06, "{a} {b}");
        }
    }
}
