//! Counts the recorded operations in flight, for `--pace load`.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Return times of the operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Load(BinaryHeap<Reverse<i64>>);

impl Load {
    /// Adds an operation and returns the number in flight at its entry, itself included. Entries must come in time
    /// order.
    pub(crate) fn enter(&mut self, start_ns: i64, end_ns: i64) -> u32 {
        while self.0.peek().is_some_and(|Reverse(end)| *end <= start_ns) {
            self.0.pop();
        }
        self.0.push(Reverse(end_ns));
        self.0.len() as u32
    }
}
