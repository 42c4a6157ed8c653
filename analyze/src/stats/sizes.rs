//! Sizes and alignment of requests.

use rustc_hash::FxHashMap;
use serde::Serialize;

/// Number of sizes listed exactly; the others are only in the histogram.
pub(super) const TOP_SIZES: usize = 16;
/// Maximum number of distinct sizes counted. Requests have at most a few MiB, so this covers all sizes.
const MOST_SIZES: usize = 1 << 16;
/// Erase block size that `align_erase` assumes.
const ERASE_BYTES: i64 = 4 << 20;

/// Sizes and alignments of one device's reads and writes.
#[derive(Clone, Debug)]
pub(super) struct SizeMeter {
    sizes: FxHashMap<i64, u64>,
    log2: [u64; 64],
    count: u64,
    phys_bytes: i64,
    misaligned: [u64; 3],
}

/// `sizes`: a histogram by powers of two, and the [`TOP_SIZES`] most frequent sizes exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeStats {
    /// Requests of `[from_bytes, 2 * from_bytes)`, as (`from_bytes`, count); only where there are any.
    pub log2: Vec<(i64, u64)>,
    /// Most frequent sizes: (bytes, count).
    pub top: Vec<(i64, u64)>,
    /// `align4k`: share of requests whose start or length is not a multiple of 4 KiB.
    pub align4k: f64,
    /// `align_phys`: the same for the device's physical block size.
    pub align_phys: f64,
    /// `align_erase`: the same for 4 MiB, a common erase block size.
    pub align_erase: f64,
}

/// Whether start and length are multiples of `unit`.
fn aligned(sector: i64, len_bytes: i64, unit: i64) -> bool {
    if unit.count_ones() == 1 {
        // Overflow of the address does not change the bits below a power of two.
        return (sector.wrapping_shl(9) | len_bytes) & (unit - 1) == 0;
    }
    // In i128 no address can overflow.
    (i128::from(sector) << 9) % i128::from(unit) == 0 && len_bytes % unit == 0
}

impl SizeMeter {
    /// For a device with physical blocks of `phys_bytes` (512 if 0).
    pub(super) fn new(phys_bytes: i64) -> Self {
        Self {
            sizes: FxHashMap::default(),
            log2: [0; 64],
            count: 0,
            phys_bytes: if phys_bytes > 0 { phys_bytes } else { 512 },
            misaligned: [0; 3],
        }
    }

    /// Adds a read or write of `len_bytes` at `sector`.
    pub(super) fn push(&mut self, sector: i64, len_bytes: i64) {
        self.count += 1;
        let known = self.sizes.len();
        match self.sizes.get_mut(&len_bytes) {
            Some(n) => *n += 1,
            None if known < MOST_SIZES => _ = self.sizes.insert(len_bytes, 1),
            None => {}
        }
        self.log2[len_bytes.max(1).ilog2() as usize] += 1;
        for (n, unit) in self.misaligned.iter_mut().zip([4096, self.phys_bytes, ERASE_BYTES]) {
            *n += u64::from(!aligned(sector, len_bytes, unit));
        }
    }

    /// The statistics.
    pub(super) fn stats(&self) -> SizeStats {
        let mut top: Vec<(i64, u64)> = self.sizes.iter().map(|(s, n)| (*s, *n)).collect();
        top.sort_unstable_by_key(|(size, n)| (std::cmp::Reverse(*n), *size));
        top.truncate(TOP_SIZES);
        let [align4k, align_phys, align_erase] =
            self.misaligned.map(|n| if self.count == 0 { 0.0 } else { n as f64 / self.count as f64 });
        let log2 = self.log2.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (1i64 << i, *n)).collect();
        SizeStats { log2, top, align4k, align_phys, align_erase }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_alignments_are_counted() {
        let mut m = SizeMeter::new(4096);
        (0..100).for_each(|i| m.push((1 << 40) + i * 8, 4096));
        (0..50).for_each(|i| m.push(i * 8 + 1, 4096));
        (0..25).for_each(|i| m.push(i * 8192, 4 << 20));
        m.push(0, 512);
        let s = m.stats();
        assert_eq!(s.top, [(4096, 150), (4 << 20, 25), (512, 1)]);
        assert_eq!(s.log2, [(512, 1), (4096, 150), (4 << 20, 25)]);
        assert_eq!((s.align4k, s.align_phys), (51.0 / 176.0, 51.0 / 176.0));
        assert_eq!(s.align_erase, 151.0 / 176.0);
    }

    #[test]
    fn alignment_is_true_at_any_address_and_for_any_block() {
        for sector in [0, 1, 7, 8, -8, 8192, (1 << 40) + 8, i64::MAX - 7, i64::MAX, i64::MIN] {
            for len_bytes in [0, 512, 4096, 4160, 520, 4 << 20, i64::MAX] {
                for unit in [512, 520, 4096, 4160, 1 << 20, i64::MAX] {
                    let off = |v: i128| v % i128::from(unit) != 0;
                    let want = !off(i128::from(sector) << 9) && !off(i128::from(len_bytes));
                    assert_eq!(aligned(sector, len_bytes, unit), want, "{sector} {len_bytes} {unit}");
                }
            }
        }
    }
}
