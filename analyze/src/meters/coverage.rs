//! The used part of an address space, as a bounded set of buckets with exact ends.

use std::collections::BTreeMap;

/// Maximum number of buckets. Beyond it, buckets double in size. 16 Ki buckets resolve gaps of a few pixels in any
/// picture.
const MAX_BUCKETS: usize = 16 * 1024;
/// Smallest bucket: 2^3 sectors, one page.
const LEAST_SHIFT: u32 = 3;

/// Number of sectors with 64-bit byte addresses. Larger addresses are damage.
const MOST_SECTORS: i64 = 1 << 55;

/// Addresses (sectors) seen.
#[derive(Clone, Debug)]
pub struct Coverage {
    shift: u32,
    /// Used buckets as ranges, first to last, that do not touch. A long range costs no more than a short one.
    buckets: BTreeMap<i64, i64>,
    /// Number of buckets in all ranges.
    count: i64,
    /// Range of the buckets added last, so that sequential streams need no search.
    recent: Option<(i64, i64)>,
    ends: Option<(i64, i64)>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { shift: LEAST_SHIFT, buckets: BTreeMap::new(), count: 0, recent: None, ends: None }
    }
}

impl Coverage {
    /// Adds `[start, end)`. Ignores negative, empty and impossible ranges.
    pub fn add(&mut self, start: i64, end: i64) {
        if start < 0 || end <= start || end > MOST_SECTORS {
            return;
        }
        self.ends = Some(self.ends.map_or((start, end), |(a, b)| (a.min(start), b.max(end))));
        // For a range larger than all buckets together, buckets grow first.
        while ((end - start) >> self.shift) as usize > MAX_BUCKETS {
            self.grow();
        }
        let (first, last) = (start >> self.shift, (end - 1) >> self.shift);
        if self.recent.is_some_and(|(a, b)| a <= first && last <= b) {
            return;
        }
        self.insert(first, last);
        self.recent = Some((first, last));
        while self.count > MAX_BUCKETS as i64 {
            self.grow();
        }
    }

    /// Adds buckets. Joins them with the ranges that they overlap or touch.
    fn insert(&mut self, mut first: i64, mut last: i64) {
        while let Some((from, to)) = self.buckets.range(..=last + 1).next_back().map(|(from, to)| (*from, *to))
            && to >= first - 1
        {
            self.buckets.remove(&from);
            self.count -= to - from + 1;
            (first, last) = (first.min(from), last.max(to));
        }
        self.buckets.insert(first, last);
        self.count += last - first + 1;
    }

    /// Adds another coverage.
    pub fn merge(&mut self, other: &Self) {
        for (start, end) in other.ranges() {
            self.add(start, end);
        }
    }

    fn grow(&mut self) {
        self.shift += 1;
        self.count = 0;
        for (first, last) in std::mem::take(&mut self.buckets) {
            self.insert(first >> 1, last >> 1);
        }
        self.recent = None;
    }

    /// Used ranges, in order, disjoint and not adjacent. The outermost ends are exact, the others rounded to buckets.
    pub fn ranges(&self) -> Vec<(i64, i64)> {
        let Some((least, most)) = self.ends else { return Vec::new() };
        let mut out: Vec<(i64, i64)> = Vec::new();
        for (first, last) in &self.buckets {
            let (start, end) = ((first << self.shift).max(least), ((last + 1) << self.shift).min(most));
            match out.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => out.push((start, end)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_seen_and_ends_are_exact() {
        let mut c = Coverage::default();
        for (a, b) in [(5, 9), (9, 17), (100_000, 100_001), (-1, 4), (7, 7), (1 << 40, (1 << 40) + 3)] {
            c.add(a, b);
        }
        assert_eq!(c.ranges(), [(5, 24), (100_000, 100_008), (1 << 40, (1 << 40) + 3)]);
    }

    #[test]
    fn memory_is_bounded_whatever_the_addresses() {
        let mut c = Coverage::default();
        (0..100_000i64).for_each(|i| c.add(i * 1_000_003, i * 1_000_003 + 8));
        c.add(0, 1 << 50);
        assert!(c.count <= MAX_BUCKETS as i64);
        assert_eq!(c.ranges(), [(0, 1 << 50)]);
    }
}
