//! Counts operations in flight while the recording is gone through.

use std::{cmp::Reverse, collections::BinaryHeap};

/// How many operations are in flight.
#[derive(Debug, Default)]
pub(crate) struct Load(BinaryHeap<Reverse<i64>>);

impl Load {
    /// One is entered; entries come in order of time. How many are in flight then, itself included.
    pub(crate) fn enter(&mut self, start_ns: i64, end_ns: i64) -> u32 {
        while self.0.peek().is_some_and(|Reverse(end)| *end <= start_ns) {
            self.0.pop();
        }
        self.0.push(Reverse(end_ns));
        self.0.len() as u32
    }
}
