//! Half-open bins over a window of time, and rates in them.

/// Bins `[from + i·width, from + (i+1)·width)` over `[from, to]`. The last bin ends at `to` inclusive and has 0.5 to
/// 1.5 times the width of the others; its rates use its real width. So the end of a curve shows no spike, neither from
/// extrapolation nor from a tiny bin with one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bins {
    from_ns: i64,
    to_ns: i64,
    width_ns: i64,
    /// Stored, because every event needs it.
    count: usize,
}

impl Bins {
    /// Bins of `width_ns` over the window. An empty window becomes one bin of 1 ns.
    pub fn new(from_ns: i64, to_ns: i64, width_ns: i64) -> Self {
        let to_ns = to_ns.max(from_ns.saturating_add(1));
        let width_ns = width_ns.clamp(1, to_ns - from_ns);
        let (span, width) = ((to_ns - from_ns) as u64, width_ns as u64);
        let rest_is_a_bin = span % width >= width.div_ceil(2);
        let count = (span / width + u64::from(rest_is_a_bin)).max(1) as usize;
        Self { from_ns, to_ns, width_ns, count }
    }

    /// Number of bins, at least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Width of all bins except possibly the last, ns.
    pub fn width_ns(&self) -> i64 {
        self.width_ns
    }

    /// Width of the window, ns.
    pub fn span_ns(&self) -> i64 {
        self.to_ns - self.from_ns
    }

    /// The bin of `t_ns`, if it is in the window.
    pub fn index(&self, t_ns: i64) -> Option<usize> {
        if t_ns < self.from_ns || t_ns > self.to_ns {
            return None;
        }
        let i = ((t_ns - self.from_ns) as u64 / self.width_ns as u64) as usize;
        Some(i.min(self.count() - 1))
    }

    /// Edges of bin `i`, ns. The right edge of the last bin is the end of the window.
    pub fn edges_ns(&self, i: usize) -> (i64, i64) {
        let left = self.from_ns + i as i64 * self.width_ns;
        (left, if i + 1 >= self.count() { self.to_ns } else { left + self.width_ns })
    }

    /// Events or bytes per second in bin `i`, by its real width.
    pub fn rate(&self, i: usize, n: u64) -> f64 {
        let (left, right) = self.edges_ns(i);
        n as f64 * 1e9 / (right - left).max(1) as f64
    }
}

/// The smallest of 1, 2, 5, 10, 20, … times `least_ns` that divides `span_ns` into at most `count` bins.
pub fn nice_width_ns(span_ns: i64, count: usize, least_ns: i64) -> i64 {
    let want = span_ns.max(1) as f64 / count.max(1) as f64;
    let mut decade = least_ns.max(1);
    loop {
        for step in [1, 2, 5] {
            let width = decade.saturating_mul(step);
            if width as f64 >= want || width == i64::MAX {
                return width;
            }
        }
        decade = decade.saturating_mul(10);
    }
}

/// Time in flight per bin. Adds the overlap of an interval with bins in constant time.
#[derive(Clone, Debug)]
pub struct Overlap {
    bins: Bins,
    /// Overlap with bins in which an interval starts or ends, ns.
    partial_ns: Vec<i64>,
    /// Number of intervals that start (+1) and stop (-1) to cover bins completely.
    whole: Vec<i64>,
}

impl Overlap {
    /// Empty.
    pub fn new(bins: Bins) -> Self {
        Self { bins, partial_ns: vec![0; bins.count()], whole: vec![0; bins.count() + 1] }
    }

    /// Adds `[from_ns, to_ns)`.
    pub fn add(&mut self, from_ns: i64, to_ns: i64) {
        let (from, to) = (from_ns.max(self.bins.from_ns), to_ns.min(self.bins.to_ns));
        if from >= to {
            return;
        }
        let (Some(first), Some(last)) = (self.bins.index(from), self.bins.index(to)) else { return };
        if first == last {
            self.partial_ns[first] += to - from;
            return;
        }
        self.partial_ns[first] += self.bins.edges_ns(first).1 - from;
        self.partial_ns[last] += to - self.bins.edges_ns(last).0;
        self.whole[first + 1] += 1;
        self.whole[last] -= 1;
    }

    /// Mean number of concurrent intervals, per bin.
    pub fn means(&self) -> Vec<f64> {
        let mut covering = 0;
        (0..self.bins.count())
            .map(|i| {
                covering += self.whole[i];
                let (left, right) = self.bins.edges_ns(i);
                covering as f64 + self.partial_ns[i] as f64 / (right - left).max(1) as f64
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sliver_at_the_end_belongs_to_the_bin_before() {
        let b = Bins::new(0, 349, 100);
        assert_eq!((b.count(), b.edges_ns(2), b.index(349)), (3, (200, 349), Some(2)));
        let b = Bins::new(0, 350, 100);
        assert_eq!((b.count(), b.edges_ns(3), b.index(349)), (4, (300, 350), Some(3)));
    }

    #[test]
    fn bins_are_half_open_and_the_last_is_closed() {
        let b = Bins::new(100, 350, 100);
        assert_eq!(b.count(), 3);
        assert_eq!(
            [99, 100, 199, 200, 299, 300, 350, 351].map(|t| b.index(t)),
            [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]
        );
        assert_eq!(b.edges_ns(2), (300, 350));
        assert_eq!(Bins::new(0, 200, 100).index(200), Some(1));
    }

    #[test]
    fn a_partial_last_bin_is_divided_by_its_own_width() {
        // 10 events per 100 ns throughout, also in the last 30 ns.
        let b = Bins::new(0, 280, 100);
        assert_eq!(b.rate(0, 10), 1e8);
        assert_eq!(b.rate(2, 8), 1e8);
    }

    #[test]
    fn windows_of_no_length_have_one_bin() {
        for b in [Bins::new(5, 5, 1000), Bins::new(5, 4, 0), Bins::new(0, 1, 1_000_000)] {
            assert_eq!(b.count(), 1);
            assert!(b.rate(0, 1).is_finite());
        }
    }

    #[test]
    fn widths_are_round() {
        assert_eq!(nice_width_ns(1_000_000_000, 1000, 1_000_000), 1_000_000);
        assert_eq!(nice_width_ns(3_000_000_000, 1000, 1_000_000), 5_000_000);
        assert_eq!(nice_width_ns(10, 1000, 1000), 1000);
        assert_eq!(nice_width_ns(i64::MAX, 1, 1000), i64::MAX);
    }

    #[test]
    fn overlap_equals_brute_force() {
        let bins = Bins::new(10, 135, 20);
        let intervals = [(0, 500), (10, 30), (15, 95), (29, 31), (134, 135), (50, 50), (130, 200), (0, 10), (20, 50)];
        let mut o = Overlap::new(bins);
        intervals.iter().for_each(|(a, b)| o.add(*a, *b));
        for (i, mean) in o.means().iter().enumerate() {
            let (left, right) = bins.edges_ns(i);
            let held: i64 = intervals.iter().map(|(a, b)| (right.min(*b) - left.max(*a)).max(0)).sum();
            assert!((mean - held as f64 / (right - left) as f64).abs() < 1e-12, "bin {i}");
        }
    }
}
