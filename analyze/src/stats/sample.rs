//! Keeps values for statistics that need all of them: median and mode.

/// Maximum number of values, 32 MiB. Beyond it, every second one is dropped, repeatedly.
const MOST: usize = 1 << 22;

/// Collects all values while there is space, then every 2nd, 4th, ….
#[derive(Clone, Debug)]
pub(super) struct Sample {
    values: Vec<i64>,
    most: usize,
    step: u64,
    seen: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self { values: Vec::new(), most: MOST, step: 1, seen: 0 }
    }
}

impl Sample {
    /// Adds a value.
    pub(super) fn push(&mut self, value: i64) {
        if self.seen.is_multiple_of(self.step) {
            if self.values.len() >= self.most {
                let mut keep = false;
                self.values.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.step *= 2;
            }
            if self.seen.is_multiple_of(self.step) {
                self.values.push(value);
            }
        }
        self.seen += 1;
    }

    /// One in this many values was kept.
    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// Median (of an even number, the lower middle value) and mode (of equally frequent values, the one closest to
    /// zero). Exact while [`Sample::step`] is 1. `None` without values.
    pub(super) fn median_and_mode(mut self) -> Option<(i64, i64)> {
        self.values.sort_unstable();
        let median = *self.values.get(self.values.len().checked_sub(1)? / 2)?;
        let mut mode = (0, median);
        for run in self.values.chunk_by(|a, b| a == b) {
            let better = (run.len(), std::cmp::Reverse(run[0].unsigned_abs()))
                > (mode.0, std::cmp::Reverse(i64::unsigned_abs(mode.1)));
            if better {
                mode = (run.len(), run[0]);
            }
        }
        Some((median, mode.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_mode_are_true() {
        let mut s = Sample::default();
        assert_eq!(s.clone().median_and_mode(), None);
        [5, -3, 5, 100, -3, 5, 7].into_iter().for_each(|v| s.push(v));
        assert_eq!(s.clone().median_and_mode(), Some((5, 5)));
        let mut even = Sample::default();
        [4, 1, 3, 2].into_iter().for_each(|v| even.push(v));
        assert_eq!(even.median_and_mode(), Some((2, 1)));
    }

    #[test]
    fn memory_is_bounded_and_the_sample_stays_even() {
        let mut s = Sample { most: 1000, ..Sample::default() };
        (0..1_000_000).for_each(|v| s.push(v));
        assert!(s.values.len() <= 1000);
        assert!(s.values.windows(2).all(|w| w[1] - w[0] == s.step() as i64), "every {}th", s.step());
    }
}
