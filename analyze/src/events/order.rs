//! Sorts the rows of overlapping segments.
//!
//! Each segment is sorted, but the next one may start before its end, because rows are written when their events end.
//! Statistics that depend on order therefore delay rows near the border of a segment.

use std::collections::BTreeMap;

/// Maximum number of waiting events: as many as a segment has. Only in a damaged reel do more arrive out of order.
const MOST_WAITING: usize = 256 * 1024;

/// Sorts events. Memory: the events near the borders of segments.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<T> {
    /// By time, then by arrival.
    waiting: BTreeMap<(i64, u64), T>,
    arrived: u64,
    /// All events before this time have arrived.
    until_ns: i64,
    /// The next event, if it need not wait.
    next: Option<(i64, T)>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), arrived: 0, until_ns: i64::MIN, next: None }
    }
}

impl<T> InOrder<T> {
    /// Adds an event, not earlier than the previous ones of its segment. Later segments contain nothing before
    /// `settled_ns`. Call [`InOrder::pop`] until it returns `None` before the next push.
    pub(crate) fn push(&mut self, t_ns: i64, event: T, settled_ns: i64) {
        self.until_ns = t_ns.min(settled_ns);
        if self.waiting.is_empty() && t_ns <= settled_ns {
            self.next = Some((t_ns, event));
            return;
        }
        self.waiting.insert((t_ns, self.arrived), event);
        self.arrived += 1;
    }

    /// No more events will arrive.
    pub(crate) fn end(&mut self) {
        self.until_ns = i64::MAX;
    }

    /// The next event in order, if no earlier one can still arrive.
    pub(crate) fn pop(&mut self) -> Option<(i64, T)> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let crowded = self.waiting.len() > MOST_WAITING;
        let first = self.waiting.first_entry()?;
        if first.key().0 > self.until_ns && !crowded {
            return None;
        }
        let ((t_ns, _), event) = first.remove_entry();
        Some((t_ns, event))
    }
}

/// For each segment of a table, the earliest time in later segments: `settled_ns` for [`InOrder::push`].
pub(crate) fn settled_ns(listed: &[ioreel_traces::manifest::Segment]) -> Vec<i64> {
    let mut least = i64::MAX;
    let mut out: Vec<i64> = listed
        .iter()
        .rev()
        .map(|segment| {
            let after = least;
            least = least.min(segment.from_ns);
            after
        })
        .collect();
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_segments_that_overlap_come_out_in_order() {
        let segments: [&[i64]; 3] = [&[1, 5, 9, 20], &[3, 6, 6, 30], &[8, 25, 31]];
        let (mut order, mut out) = (InOrder::default(), Vec::new());
        for (rows, settled) in segments.iter().zip([3, 8, i64::MAX]) {
            for t in *rows {
                order.push(*t, *t, settled);
                out.extend(std::iter::from_fn(|| order.pop()).map(|(_, t)| t));
            }
        }
        order.end();
        out.extend(std::iter::from_fn(|| order.pop()).map(|(_, t)| t));
        assert_eq!(out, [1, 3, 5, 6, 6, 8, 9, 20, 25, 30, 31]);
    }
}
