//! The operations of a reel in the order of their return, with few of them in memory at a time.
//!
//! Segments are sorted by entry and hold what ended while they were open, so they overlap in time. Each is read as far
//! as others may still hold something earlier, and no further.

use std::{cmp::Reverse, collections::BinaryHeap, collections::VecDeque};

use ioreel_traces::{
    Reel,
    reader::Rows,
    rows::{self, Op},
};

use crate::ReplayError;

/// A segment that is not open yet.
#[derive(Clone, Copy, Debug)]
struct Closed {
    index: usize,
    first_row: u32,
    /// Least entry and least return.
    start_ns: i64,
    end_ns: i64,
}

/// An open segment.
struct Open {
    rows: Rows<Op>,
    next_row: u32,
    /// Whatever comes was entered, and so returned, no earlier.
    from_ns: i64,
}

/// Segments that are opened as soon as one of their operations had been entered; later ones once one had returned: where
/// every segment holds an operation that took very long, all would be open at once otherwise.
const AHEAD: usize = 2;
/// Rows read of a segment at a time.
const ROWS: usize = 512;

/// Rows of `ops`, with their numbers counted over all segments.
pub(crate) struct Feed {
    reel: Reel,
    closed: VecDeque<Closed>,
    open: Vec<Open>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("closed", &self.closed).field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Feed {
    /// Of this reel.
    pub(crate) fn new(reel: &Reel) -> Result<Self, ReplayError> {
        let mut closed = Vec::new();
        let mut first_row = 0;
        for index in 0..reel.segments::<Op>().len() {
            if let Some(span) = reel.segment_span::<Op>(index)? {
                closed.push(Closed { index, first_row, start_ns: span.first_ns, end_ns: span.first_end_ns });
                first_row += span.rows as u32;
            }
        }
        closed.sort_by_key(|c| c.end_ns);
        Ok(Self { reel: reel.clone(), closed: closed.into(), open: Vec::new() })
    }

    /// Reads until whatever is left returned later than `until_ns`, or all is read. Each row is given to `take`.
    pub(crate) fn read(&mut self, until_ns: i64, mut take: impl FnMut(u32, &Op)) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < self.closed.len() {
            let c = self.closed[at];
            let from_ns = if at < AHEAD { c.start_ns } else { c.end_ns };
            if from_ns <= until_ns {
                self.closed.remove(at);
                let rows = self.reel.segment_rows::<Op>(c.index);
                self.open.push(Open { rows, next_row: c.first_row, from_ns: c.start_ns });
            } else if at >= AHEAD {
                break;
            } else {
                at += 1;
            }
        }
        for open in &mut self.open {
            while open.from_ns <= until_ns {
                let mut ended = true;
                for row in open.rows.by_ref().take(ROWS) {
                    let row = row?;
                    take(open.next_row, &row);
                    open.next_row += 1;
                    open.from_ns = row.start_ns;
                    ended = false;
                }
                if ended {
                    open.from_ns = i64::MAX;
                    break;
                }
            }
        }
        self.open.retain(|o| o.from_ns < i64::MAX);
        Ok(())
    }

    /// Nothing is left to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.is_empty()
    }

    /// The least time at which something left may have returned.
    pub(crate) fn left_ns(&self) -> i64 {
        let closed = self.closed.iter().enumerate().map(|(i, c)| if i < AHEAD { c.start_ns } else { c.end_ns });
        self.open.iter().map(|o| o.from_ns).chain(closed).min().unwrap_or(i64::MAX)
    }
}

/// Return, entry and row of an operation; its number.
pub(crate) type Returned = ((i64, i64, u32), u32);

/// What is in flight: operations that were read and have not taken effect, by number.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By return, the first one first: (return, entry, row), number.
    pub(crate) by_end: BinaryHeap<Reverse<Returned>>,
    /// By entry.
    pub(crate) by_start: BinaryHeap<Reverse<(i64, u32, u32)>>,
}

/// Files of a reel as they are first seen.
#[derive(Debug)]
pub(crate) struct FileFeed {
    reel: Reel,
    /// First time of each segment, and which.
    closed: VecDeque<(i64, usize)>,
}

impl FileFeed {
    pub(crate) fn new(reel: &Reel) -> Result<Self, ReplayError> {
        let mut closed = Vec::new();
        for index in 0..reel.segments::<rows::File>().len() {
            if let Some(first) = reel.segment_rows::<rows::File>(index).next() {
                closed.push((first?.first_ns, index));
            }
        }
        closed.sort_unstable();
        Ok(Self { reel: reel.clone(), closed: closed.into() })
    }

    /// Gives all files first seen by then to `take`, and some later ones.
    pub(crate) fn read(&mut self, until_ns: i64, mut take: impl FnMut(rows::File)) -> Result<(), ReplayError> {
        while self.closed.front().is_some_and(|c| c.0 <= until_ns) {
            if let Some((_, index)) = self.closed.pop_front() {
                for file in self.reel.segment_rows::<rows::File>(index) {
                    take(file?);
                }
            }
        }
        Ok(())
    }
}
