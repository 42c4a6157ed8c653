//! Merges the rows of a table by time. Each segment is sorted, but segments overlap.

use std::{cmp::Reverse, collections::BinaryHeap, vec};

use crate::{Reel, ReelError, Result, format::table::Row, reader::Batches};

/// Maximum number of segments read at once because they overlap in time.
const MOST_OPEN: usize = 1024;

/// Rows of all segments in order of time. Memory: one batch per segment that is open at that time.
pub(crate) struct Ordered<R> {
    /// Segments not yet open, by start time; the earliest is last.
    later: Vec<(i64, usize)>,
    open: Vec<Segment<R>>,
    next: BinaryHeap<Reverse<(i64, usize)>>,
    reel: Reel,
}

struct Segment<R> {
    batches: Batches,
    rows: vec::IntoIter<R>,
    head: Option<R>,
}

impl<R: Row> Segment<R> {
    fn advance(&mut self) -> Result<()> {
        loop {
            self.head = self.rows.next();
            if self.head.is_some() {
                return Ok(());
            }
            let Some(batch) = self.batches.next() else { return Ok(()) };
            let mut rows = Vec::new();
            R::read(&batch?, &mut rows).map_err(|why| ReelError::BadSegment { path: R::TABLE.into(), why })?;
            self.rows = rows.into_iter();
        }
    }
}

impl<R: Row> Ordered<R> {
    pub(crate) fn new(reel: &Reel) -> Self {
        let listed = reel.manifest.segments.get(R::TABLE).map(Vec::as_slice).unwrap_or_default();
        let mut later: Vec<(i64, usize)> = listed.iter().enumerate().map(|(i, s)| (s.from_ns, i)).collect();
        later.sort_by_key(|(from, i)| Reverse((*from, *i)));
        Self { later, open: Vec::new(), next: BinaryHeap::new(), reel: reel.clone() }
    }

    /// Opens the segments that start at or before the earliest current row.
    fn open_due(&mut self) -> Result<()> {
        while let Some((from_ns, index)) = self.later.last().copied()
            && self.next.peek().is_none_or(|Reverse((at, _))| from_ns <= *at)
        {
            self.later.pop();
            let open = self.open.iter().filter(|s| s.head.is_some()).count();
            if open >= MOST_OPEN {
                let why = format!("more than {MOST_OPEN} segments of this table overlap at one time");
                return Err(ReelError::BadSegment { path: R::TABLE.into(), why });
            }
            let mut segment = Segment::<R> {
                batches: self.reel.segment_batches::<R>(index, &[]),
                rows: Vec::<R>::new().into_iter(),
                head: None,
            };
            segment.advance()?;
            if let Some(head) = &segment.head {
                // Reuses the slot of a finished segment.
                let slot = self.open.iter().position(|s| s.head.is_none()).unwrap_or(self.open.len());
                self.next.push(Reverse((head.time_ns(), slot)));
                if slot < self.open.len() {
                    self.open[slot] = segment;
                } else {
                    self.open.push(segment);
                }
            }
        }
        Ok(())
    }

    /// Time of the next row, without removing it.
    pub(crate) fn peek_ns(&mut self) -> Result<Option<i64>> {
        self.open_due()?;
        Ok(self.next.peek().map(|Reverse((at, _))| *at))
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<R>> {
        self.open_due()?;
        let Some(Reverse((_, slot))) = self.next.pop() else { return Ok(None) };
        let segment = &mut self.open[slot];
        let row = segment.head.take();
        segment.advance()?;
        if let Some(head) = &segment.head {
            self.next.push(Reverse((head.time_ns(), slot)));
        }
        Ok(row)
    }
}
