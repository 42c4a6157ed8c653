//! Latency percentiles with three significant digits.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Significant digits. A percentile is at most 0.1 % too high. Two digits would be 1 %; four cost ten times the memory.
pub const DEFAULT_DIGITS: u8 = 3;

/// Collects durations. Memory is bounded: 16 KiB initially, growing with the logarithm of the longest duration.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    histogram: Option<Histogram<u64>>,
    total_ns: u64,
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(DEFAULT_DIGITS).expect("three digits are within the histogram's range");
    histogram.auto(true);
    histogram
}

/// A distribution of durations, ns. All zero if `count` is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Durations.
    pub count: u64,
    /// Least.
    pub min_ns: u64,
    /// Mean, rounded down.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Greatest, exact to three digits.
    pub max_ns: u64,
    /// Sum, exact.
    pub total_ns: u64,
}

impl Latency {
    /// Adds a duration. Negative ones (clocks of an import may disagree) count as 0.
    pub fn record(&mut self, dur_ns: i64) {
        let ns = u64::try_from(dur_ns).unwrap_or(0);
        // Fails only if the histogram must not grow, but it may.
        let _ = self.histogram.get_or_insert_with(histogram).record(ns);
        self.total_ns = self.total_ns.saturating_add(ns);
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &Self) {
        if let Some(histogram) = &other.histogram {
            // See above.
            let _ = self.histogram.get_or_insert_with(self::histogram).add(histogram);
        }
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }

    /// Sum, ns.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The distribution.
    pub fn summary(&self) -> LatencySummary {
        let Some(h) = self.histogram.as_ref().filter(|h| !h.is_empty()) else { return LatencySummary::default() };
        // A bucket's upper edge may exceed the maximum value.
        let at = |q: f64| h.value_at_quantile(q).min(h.max());
        LatencySummary {
            count: h.len(),
            min_ns: h.min(),
            mean_ns: self.total_ns / h.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: h.max(),
            total_ns: self.total_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut l = Latency::default();
        (1..=1000).for_each(|n| l.record(n * 1000));
        let s = l.summary();
        assert_eq!((s.count, s.total_ns, s.mean_ns), (1000, 500_500_000, 500_500));
        for (got, want) in [(s.p50_ns, 500_000), (s.p90_ns, 900_000), (s.p99_ns, 990_000), (s.p999_ns, 999_000u64)] {
            assert!(got.abs_diff(want) <= want / 500, "{got} for {want}");
        }
    }

    #[test]
    fn nothing_and_one() {
        assert_eq!(Latency::default().summary(), LatencySummary::default());
        let mut l = Latency::default();
        l.record(7);
        l.record(-3);
        let s = l.summary();
        assert_eq!((s.count, s.min_ns, s.max_ns, s.p999_ns), (2, 0, 7, 7));
    }

    #[test]
    fn sums_are_of_both() {
        let (mut a, mut b) = (Latency::default(), Latency::default());
        a.record(10);
        b.record(5_000_000_000_000);
        a.add(&b);
        assert_eq!(a.summary().count, 2);
        assert_eq!(a.summary().total_ns, 5_000_000_000_010);
    }
}
