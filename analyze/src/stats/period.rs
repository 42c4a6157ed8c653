//! `period`: whether writing is periodic, as with a file system that commits every 5 s.

use serde::Serialize;

/// Number of bins over the span. Resolves a period of a thousandth of the span, and is fast.
const BINS: usize = 4096;
/// Minimum correlation of a period.
const LEAST_STRENGTH: f64 = 0.3;
/// Minimum variation of the bins (standard deviation over mean) of bursty writing.
const LEAST_VARIATION: f64 = 0.25;
/// Minimum number of periods in the span.
const LEAST_REPEATS: usize = 3;

/// Collects bytes written and the slowest request over time.
#[derive(Clone, Debug)]
pub(super) struct PeriodMeter {
    from_ns: i64,
    width_ns: i64,
    bytes: Vec<u64>,
    slowest_ns: Vec<i64>,
    /// The first requests, while there are few. Most devices of a damaged reel have no more, and need no bins.
    first: Vec<(i64, i64, u64)>,
}

/// Number of requests at which bins are created.
const LEAST_REQUESTS: usize = 64;

/// Periodic writing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Period {
    /// Time between bursts, ns.
    pub period_ns: i64,
    /// Autocorrelation of the written bytes at that distance, 0 to 1.
    pub strength: f64,
    /// Of the bins with a request slower than the 99th percentile, the share in which more than the mean is written.
    pub stall_overlap: f64,
}

impl PeriodMeter {
    /// A meter for `[from_ns, to_ns]`.
    pub(super) fn new(from_ns: i64, to_ns: i64) -> Self {
        let span = to_ns.saturating_sub(from_ns).max(1);
        let width_ns = span / BINS as i64 + 1;
        Self { from_ns, width_ns, bytes: Vec::new(), slowest_ns: Vec::new(), first: Vec::new() }
    }

    /// Adds a request issued at `t_ns` that took `dur_ns` and wrote `written` bytes.
    pub(super) fn push(&mut self, t_ns: i64, dur_ns: i64, written: u64) {
        if !self.bytes.is_empty() {
            self.count(t_ns, dur_ns, written);
        } else {
            self.first.push((t_ns, dur_ns, written));
            if self.first.len() >= LEAST_REQUESTS {
                (self.bytes, self.slowest_ns) = (vec![0; BINS], vec![0; BINS]);
                let first = std::mem::take(&mut self.first);
                first.into_iter().for_each(|(t_ns, dur_ns, written)| self.count(t_ns, dur_ns, written));
            }
        }
    }

    fn count(&mut self, t_ns: i64, dur_ns: i64, written: u64) {
        let i = t_ns.saturating_sub(self.from_ns).div_euclid(self.width_ns);
        if let Ok(i) = usize::try_from(i)
            && i < BINS
        {
            self.bytes[i] = self.bytes[i].saturating_add(written);
            self.slowest_ns[i] = self.slowest_ns[i].max(dur_ns);
        }
    }

    /// The period, if there is one. `p99_ns`: the device's 99th percentile of D2C.
    pub(super) fn period(&self, p99_ns: u64) -> Option<Period> {
        let used = self.bytes.iter().rposition(|b| *b > 0)? + 1;
        let x: Vec<f64> = self.bytes[..used].iter().map(|b| *b as f64).collect();
        let mean = x.iter().sum::<f64>() / used as f64;
        let x: Vec<f64> = x.iter().map(|v| v - mean).collect();
        let power: f64 = x.iter().map(|v| v * v).sum();
        // Steady writing varies a little with the bin edges, which is not a period.
        if power / used as f64 <= (LEAST_VARIATION * mean).powi(2) {
            return None;
        }
        let at = |lag: usize| {
            let sum: f64 = x.iter().zip(&x[lag..]).map(|(a, b)| a * b).sum();
            // Longer distances have fewer products.
            sum / power * used as f64 / (used - lag) as f64
        };
        let correlation: Vec<f64> = (0..used / LEAST_REPEATS).map(at).collect();
        // Skips the width of the bursts: starts where the correlation first reaches zero.
        let fallen = correlation.iter().position(|c| *c <= 0.0)?;
        let best = correlation[fallen..].iter().copied().fold(0.0, f64::max);
        if best < LEAST_STRENGTH {
            return None;
        }
        // Every multiple of a period correlates equally well, so the first one near the best is the period. Then finds
        // its peak.
        let first = fallen + correlation[fallen..].iter().position(|c| *c >= best * 0.9)?;
        let mut lag = first;
        while correlation.get(lag + 1).is_some_and(|c| *c > correlation[lag]) {
            lag += 1;
        }
        let slow = self.slowest_ns.iter().map(|s| u64::try_from(*s).unwrap_or(0) > p99_ns);
        let (mut stalls, mut both) = (0u64, 0u64);
        for (slow, bytes) in slow.zip(&self.bytes) {
            stalls += u64::from(slow);
            both += u64::from(slow && *bytes as f64 > mean);
        }
        Some(Period {
            period_ns: lag as i64 * self.width_ns,
            strength: correlation[lag].min(1.0),
            stall_overlap: if stalls == 0 { 0.0 } else { both as f64 / stalls as f64 },
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_burst_every_five_seconds_is_a_period_of_five_seconds() {
        let mut m = PeriodMeter::new(0, 120_000 * MS);
        for t in 0..120_000i64 {
            let burst = t % 5000 < 400;
            m.push(t * MS, if burst { 90 * MS } else { MS }, if burst { 1 << 20 } else { 4096 });
        }
        let p = m.period(50 * MS as u64).unwrap();
        assert!((p.period_ns - 5000 * MS).abs() <= 60 * MS, "{p:?}");
        assert!(p.strength > 0.9 && p.stall_overlap > 0.95, "{p:?}");
    }

    #[test]
    fn steady_and_random_writing_have_none() {
        let mut steady = PeriodMeter::new(0, 100_000 * MS);
        (0..100_000).for_each(|t| steady.push(t * MS, MS, 4096));
        assert_eq!(steady.period(0), None);
        let (mut random, mut seed) = (PeriodMeter::new(0, 100_000 * MS), 1u64);
        for t in 0..100_000i64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.push(t * MS, MS, seed >> 50);
        }
        assert_eq!(random.period(0), None);
        assert_eq!(PeriodMeter::new(0, 0).period(0), None);
    }
}
