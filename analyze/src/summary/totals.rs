//! Sums over calls.

use serde::Serialize;

use crate::events::calls::Call;

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Bytes that the calls read, from whatever it was.
    pub read_bytes: u64,
    /// Bytes that the calls wrote, to whatever it was.
    pub write_bytes: u64,
    /// Time spent in the calls.
    pub time_ns: u64,
}

impl Totals {
    /// Adds a call, with the bytes that it read and those that it wrote.
    pub(super) fn add_call(&mut self, call: &Call<'_>, read: u64, written: u64) {
        self.calls += 1;
        self.errors += u64::from(call.errno().is_some());
        self.time_ns = self.time_ns.saturating_add(call.dur_ns.and_then(|d| u64::try_from(d).ok()).unwrap_or(0));
        self.read_bytes = self.read_bytes.saturating_add(read);
        self.write_bytes = self.write_bytes.saturating_add(written);
    }

    /// Adds other sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
    }

    /// Bytes moved in either direction.
    pub fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }
}
