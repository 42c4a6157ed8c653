//! Time of the last read and write of each 4 KiB block, for rewrites, rereads and read-modify-write.
//!
//! * `waf.window(W)`: blocks written divided by distinct blocks written, summed over consecutive windows of length W
//!   from time 0.
//! * `rewrite_le(W)`: share of block writes at most W after the block's previous write.
//! * `dup_read(W)`: bytes reread at most W after their last read, without a write in between.
//! * `rmw`: block writes at most [`RMW_NS`] after the block was read, without a write in between.
//!
//! Partial blocks count as whole: a write of 512 bytes writes its block.

use rustc_hash::FxHashMap;
use serde::Serialize;

/// Block size of these statistics, in sectors.
const BLOCK_SHIFT: u32 = 3;
/// Blocks per region: 256 KiB.
const REGION_SHIFT: u32 = 6;
const REGION_BLOCKS: usize = 1 << REGION_SHIFT;
/// Maximum number of regions, 1 KiB each. Beyond it, half of them (by a hash of their address) are dropped, repeatedly,
/// and results are scaled. Up to 64 GiB of touched addresses are exact.
const MOST_REGIONS: usize = 256 * 1024;
/// The windows: 5 s (ext4's commit interval), 30 s (expiry of dirty data) and the whole run.
pub const WINDOWS_NS: [i64; 3] = [5_000_000_000, 30_000_000_000, i64::MAX];
/// Maximum time between a read and the write that depends on it.
pub const RMW_NS: i64 = 100_000_000;
const NEVER: i64 = i64::MIN;

struct Region {
    written_ns: [i64; REGION_BLOCKS],
    read_ns: [i64; REGION_BLOCKS],
}

/// Follows one device.
pub(super) struct RegionMeter {
    /// Index of the region at an address.
    places: FxHashMap<u64, u32>,
    regions: Vec<Region>,
    /// Dropped regions.
    free: Vec<u32>,
    most: usize,
    /// Only addresses whose hash ends with this many zero bits are counted.
    sample_bits: u32,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    written: u64,
    read: u64,
    distinct: [u64; 3],
    rewritten: [u64; 3],
    reread: [u64; 3],
    rmw: u64,
}

impl std::fmt::Debug for RegionMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionMeter").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl Default for RegionMeter {
    fn default() -> Self {
        Self {
            places: FxHashMap::default(),
            regions: Vec::new(),
            free: Vec::new(),
            most: MOST_REGIONS,
            sample_bits: 0,
            tally: Tally::default(),
        }
    }
}

/// The statistics, each for the windows 5 s, 30 s and the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RegionStats {
    /// `waf.window`; 1 if nothing was written.
    pub waf_window: [f64; 3],
    /// `rewrite_le`.
    pub rewrite_le: [f64; 3],
    /// `dup_read`, bytes.
    pub dup_read_bytes: [u64; 3],
    /// Blocks written, rewrites included.
    pub written_blocks: u64,
    /// Share of block writes that are `rmw`.
    pub rmw: f64,
    /// One in this many addresses was counted.
    pub sampled: u64,
}

impl RegionMeter {
    /// Adds a read or write of sectors `[start, end)`, dispatched at `t_ns`.
    pub(super) fn push(&mut self, write: bool, t_ns: i64, start: i64, end: i64) {
        if start < 0 || end <= start {
            return;
        }
        let (first, last) = ((start >> BLOCK_SHIFT) as u64, ((end - 1) >> BLOCK_SHIFT) as u64);
        let mut block = first;
        while block <= last {
            let place = block >> REGION_SHIFT;
            let until = last.min(((place + 1) << REGION_SHIFT) - 1);
            if self.follows(place) {
                self.touch(place, (block as usize) % REGION_BLOCKS..=(until as usize) % REGION_BLOCKS, write, t_ns);
            }
            block = until + 1;
        }
    }

    fn follows(&self, place: u64) -> bool {
        self.sample_bits == 0 || scatter(place).trailing_zeros() >= self.sample_bits
    }

    fn touch(&mut self, place: u64, blocks: std::ops::RangeInclusive<usize>, write: bool, t_ns: i64) {
        let known = self.places.get(&place).copied();
        if known.is_none() && self.places.len() >= self.most {
            self.let_go();
            if !self.follows(place) {
                return;
            }
        }
        let at = known.unwrap_or_else(|| self.make(place));
        let Some(region) = self.regions.get_mut(at as usize) else { return };
        let tally = &mut self.tally;
        let count = (blocks.end() - blocks.start() + 1) as u64;
        if write {
            tally.written += count;
            let mut first = 0;
            for b in blocks {
                let before = std::mem::replace(&mut region.written_ns[b], t_ns);
                let read = std::mem::replace(&mut region.read_ns[b], NEVER);
                tally.rmw += u64::from(read != NEVER && t_ns.saturating_sub(read) <= RMW_NS);
                if before == NEVER {
                    first += 1;
                    continue;
                }
                for (i, window) in WINDOWS_NS.iter().enumerate() {
                    tally.distinct[i] += u64::from(before.div_euclid(*window) != t_ns.div_euclid(*window));
                    tally.rewritten[i] += u64::from(t_ns.saturating_sub(before) <= *window);
                }
            }
            tally.distinct.iter_mut().for_each(|n| *n += first);
        } else {
            tally.read += count;
            for b in blocks {
                let before = std::mem::replace(&mut region.read_ns[b], t_ns);
                if before != NEVER {
                    for (i, window) in WINDOWS_NS.iter().enumerate() {
                        tally.reread[i] += u64::from(t_ns.saturating_sub(before) <= *window);
                    }
                }
            }
        }
    }

    /// Creates a region for an address. Regions are stored contiguously; allocating them one by one would take a fifth
    /// of the total time.
    fn make(&mut self, place: u64) -> u32 {
        let new = Region { written_ns: [NEVER; REGION_BLOCKS], read_ns: [NEVER; REGION_BLOCKS] };
        let at = if let Some(at) = self.free.pop() {
            self.regions[at as usize] = new;
            at
        } else {
            self.regions.push(new);
            self.regions.len() as u32 - 1
        };
        self.places.insert(place, at);
        at
    }

    /// Drops half of the addresses.
    fn let_go(&mut self) {
        self.sample_bits += 1;
        let (bits, free) = (self.sample_bits, &mut self.free);
        self.places.retain(|place, at| {
            let kept = scatter(*place).trailing_zeros() >= bits;
            if !kept {
                free.push(*at);
            }
            kept
        });
        // On average, half of the counts belong to the dropped addresses.
        self.tally.halve();
    }

    /// The statistics.
    pub(super) fn stats(&self) -> RegionStats {
        let t = &self.tally;
        let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        let scale = 1u64 << self.sample_bits;
        RegionStats {
            waf_window: t.distinct.map(|d| if d == 0 { 1.0 } else { t.written as f64 / d as f64 }),
            rewrite_le: t.rewritten.map(|r| share(r, t.written)),
            dup_read_bytes: t.reread.map(|r| (r << BLOCK_SHIFT << 9).saturating_mul(scale)),
            written_blocks: t.written.saturating_mul(scale),
            rmw: share(t.rmw, t.written),
            sampled: scale,
        }
    }
}

impl Tally {
    fn halve(&mut self) {
        let all = [&mut self.written, &mut self.read, &mut self.rmw].into_iter();
        all.chain(&mut self.distinct).chain(&mut self.rewritten).chain(&mut self.reread).for_each(|n| *n /= 2);
    }
}

/// A well-mixed hash (the finaliser of MurmurHash3), so that sampling does not follow a pattern of addresses.
fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn windows_tell_rewriting_apart() {
        let mut m = RegionMeter::default();
        // One block at 2^40 sectors, written each second for 60 s.
        (0..60).for_each(|s| m.push(true, s * S, 1 << 40, (1 << 40) + 8));
        let stats = m.stats();
        assert_eq!(stats.waf_window, [5.0, 30.0, 60.0]);
        assert_eq!(stats.rewrite_le, [59.0 / 60.0; 3]);
        assert_eq!((stats.written_blocks, stats.sampled), (60, 1));
    }

    #[test]
    fn reads_again_count_unless_written_between() {
        let mut m = RegionMeter::default();
        m.push(false, 0, 0, 16);
        m.push(false, S, 0, 16);
        m.push(true, 2 * S, 0, 8);
        m.push(false, 20 * S, 0, 16);
        let stats = m.stats();
        // Both blocks once after 1 s, the second again after 19 s.
        assert_eq!(stats.dup_read_bytes, [2 * 4096, 3 * 4096, 3 * 4096]);
        assert_eq!(stats.rmw, 0.0, "the write came a second after the read");
    }

    #[test]
    fn a_write_soon_after_a_read_is_read_modify_write() {
        let mut m = RegionMeter::default();
        for i in 0..100 {
            m.push(false, i * S, i * 1024, i * 1024 + 8);
            m.push(true, i * S + 1_000_000, i * 1024, i * 1024 + 8);
            m.push(true, i * S + 2_000_000, i * 1024 + 512, i * 1024 + 520);
        }
        assert_eq!(m.stats().rmw, 0.5);
    }

    #[test]
    fn beyond_its_memory_it_samples_and_scales() {
        let mut m = RegionMeter { most: 1000, ..RegionMeter::default() };
        for pass in 0..4 {
            (0..100_000u64).for_each(|i| {
                let at = (scatter(i) >> 20) as i64 & !7;
                m.push(true, pass * S, at, at + 8);
            });
        }
        let stats = m.stats();
        assert!(m.places.len() <= 1000 && m.regions.len() <= 1000 && stats.sampled > 1);
        assert!((stats.waf_window[2] - 4.0).abs() < 0.2, "{stats:?}");
        assert!((stats.written_blocks as f64 / 400_000.0 - 1.0).abs() < 0.15, "{stats:?}");
    }
}
