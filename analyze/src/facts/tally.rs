//! A number of operations with their cost.

use super::operation::Ended;

/// A number of operations, their bytes, time and share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Operations.
    pub count: u64,
    /// Bytes moved, read or dirty, as the owner says.
    pub bytes: u64,
    /// Sum of their durations, ns.
    pub time_ns: f64,
    /// By how much the elapsed time would be shorter without them, ns.
    pub share_ns: f64,
    /// Start of the first.
    pub first_ns: i64,
    /// End of the last.
    pub last_ns: i64,
    /// The longest, ns.
    pub max_ns: i64,
}

impl Tally {
    /// Adds an operation with this share.
    pub fn push(&mut self, ended: &Ended<'_>, bytes: u64, share_ns: f64) {
        let op = ended.op;
        if self.count == 0 || op.start_ns < self.first_ns {
            self.first_ns = op.start_ns;
        }
        self.last_ns = self.last_ns.max(op.end_ns);
        self.max_ns = self.max_ns.max(op.dur_ns());
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.time_ns += op.dur_ns() as f64;
        self.share_ns += share_ns;
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.first_ns = if self.count == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time_ns += other.time_ns;
        self.share_ns += other.share_ns;
    }

    /// Mean number of bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }

    /// Mean duration, ns.
    pub fn mean_ns(&self) -> f64 {
        self.time_ns / self.count.max(1) as f64
    }
}
