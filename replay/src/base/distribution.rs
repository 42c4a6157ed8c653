//! Distributions of times: percentiles, and distances between distributions.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Significant digits kept of each value.
const DIGITS: u8 = 3;

/// Mean and percentiles of a time, ns. Percentiles have three significant digits, the mean is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Number of values.
    pub count: i64,
    /// Mean.
    pub mean: i64,
    /// Median.
    pub p50: i64,
    /// 90th percentile.
    pub p90: i64,
    /// 99th percentile.
    pub p99: i64,
    /// 99.9th percentile.
    pub p999: i64,
    /// Maximum.
    pub max: i64,
}

/// A histogram of times. Takes 20 to 400 KiB, whatever the number of values.
#[derive(Clone, Debug)]
pub struct Times {
    histogram: Histogram<u64>,
    sum: i128,
    max: i64,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new(DIGITS).expect("three digits are within the histogram's range");
        Self { histogram, sum: 0, max: 0 }
    }
}

impl Times {
    /// Adds a value, ns. A negative value counts as 0.
    pub fn add(&mut self, ns: i64) {
        let ns = ns.max(0);
        self.sum += i128::from(ns);
        self.max = self.max.max(ns);
        // Cannot fail: the histogram resizes itself and has room for every time of a reel.
        let _ = self.histogram.record(ns as u64);
    }

    /// Number of values.
    pub fn count(&self) -> i64 {
        self.histogram.len() as i64
    }

    /// Sum of all values, ns, at most `i64::MAX`.
    pub fn sum(&self) -> i64 {
        i64::try_from(self.sum).unwrap_or(i64::MAX)
    }

    /// Mean and percentiles.
    pub fn spread(&self) -> Spread {
        if self.histogram.is_empty() {
            return Spread::default();
        }
        let at = |q: f64| (self.histogram.value_at_quantile(q) as i64).min(self.max);
        Spread {
            count: self.count(),
            mean: (self.sum / i128::from(self.count())) as i64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max,
        }
    }

    /// Distance to another distribution. `None` if one of the two is empty.
    pub fn distance(&self, other: &Self) -> Option<Distance> {
        if self.histogram.is_empty() || other.histogram.is_empty() {
            return None;
        }
        let mut steps: Vec<(u64, f64)> = Vec::new();
        for (h, sign) in [(&self.histogram, 1.0), (&other.histogram, -1.0)] {
            let all = h.len() as f64;
            steps.extend(
                h.iter_recorded().map(|v| (v.value_iterated_to(), sign * v.count_since_last_iteration() as f64 / all)),
            );
        }
        steps.sort_by_key(|s| s.0);
        let (mut apart, mut w1, mut ks, mut last) = (0.0_f64, 0.0, 0.0_f64, 0);
        for (i, (value, share)) in steps.iter().enumerate() {
            w1 += apart.abs() * (value - last) as f64;
            apart += share;
            last = *value;
            if steps.get(i + 1).is_none_or(|next| next.0 != *value) {
                ks = ks.max(apart.abs());
            }
        }
        Some(Distance { w1_ns: w1.round() as i64, ks })
    }
}

/// Distance between two distributions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// Wasserstein-1 distance, ns: how far values must move on average to turn one distribution into the other.
    pub w1_ns: i64,
    /// Kolmogorov-Smirnov D: the largest difference of the cumulative shares, 0 to 1.
    pub ks: f64,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = i64>) -> Times {
        let mut t = Times::default();
        values.into_iter().for_each(|v| t.add(v));
        t
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let s = of((1..=100).rev()).spread();
        assert_eq!((s.count, s.p50, s.p90, s.p99, s.max, s.mean), (100, 50, 90, 99, 100, 50));
        assert_eq!(of([]).spread(), Spread::default());
        let s = of([i64::MAX, -5]).spread();
        assert_eq!((s.max, s.p50), (i64::MAX, 0));
    }

    #[test]
    fn distances_are_those_of_the_definition() {
        let a = of((0..1000).map(|i| i % 10));
        assert_eq!(a.distance(&a).unwrap(), Distance { w1_ns: 0, ks: 0.0 });
        // All moved by 100.
        let d = a.distance(&of((0..500).map(|i| i % 10 + 100))).unwrap();
        assert!(d.w1_ns == 100 && (d.ks - 1.0).abs() < 1e-9, "{d:?}");
        // A quarter of the values moved by 40.
        let d = of([0, 0, 0, 0]).distance(&of([0, 0, 0, 40])).unwrap();
        assert_eq!((d.w1_ns, d.ks), (10, 0.25));
        assert!(a.distance(&of([])).is_none());
    }
}
