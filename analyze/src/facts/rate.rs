//! Rates of a device over time, to see a limit: a rate that stays at its top while requests wait.

use crate::events::requests::Class;

/// Width of a bin at first, ns: limits of clouds and control groups are enforced over about as long.
const LEAST_WIDTH_NS: i64 = 100_000_000;
/// Maximum number of bins. Beyond it, bins double in width.
const MOST_BINS: usize = 4096;

/// What a bin holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    /// Reads and writes completed.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their times from issue to completion, ns.
    pub time_ns: f64,
}

/// Reads and writes by time of completion.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Width of a bin, ns.
    pub width_ns: i64,
    /// The bins.
    pub bins: Vec<Bin>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { width_ns: LEAST_WIDTH_NS, bins: Vec::new() }
    }
}

impl Rates {
    /// Adds a request.
    pub fn push(&mut self, issue_ns: i64, complete_ns: i64, bytes: u64, class: Class) {
        if !class.is_data() || complete_ns < 0 {
            return;
        }
        while complete_ns / self.width_ns >= MOST_BINS as i64 {
            self.widen();
        }
        let at = (complete_ns / self.width_ns) as usize;
        if at >= self.bins.len() {
            self.bins.resize(at + 1, Bin::default());
        }
        let bin = &mut self.bins[at];
        bin.count += 1;
        bin.bytes = bin.bytes.saturating_add(bytes);
        bin.time_ns += complete_ns.saturating_sub(issue_ns).max(0) as f64;
    }

    fn widen(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        self.bins = self
            .bins
            .chunks(2)
            .map(|two| {
                two.iter().fold(Bin::default(), |sum, bin| Bin {
                    count: sum.count + bin.count,
                    bytes: sum.bytes.saturating_add(bin.bytes),
                    time_ns: sum.time_ns + bin.time_ns,
                })
            })
            .collect();
    }

    /// The bins in which requests completed without a pause: those between busy ones.
    pub fn busy(&self) -> Vec<Bin> {
        let n = self.bins.len();
        (1..n.saturating_sub(1))
            .filter(|i| (i - 1..=i + 1).all(|j| self.bins[j].count > 0))
            .map(|i| self.bins[i])
            .collect()
    }
}
