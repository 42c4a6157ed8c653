//! Finds gaps in sequence numbers: where events were lost.

use std::collections::BTreeMap;

use ioreel_traces::manifest::Loss;

/// Missing sequence numbers of one CPU's stream. Within a pass over the rings numbers arrive out of order, because
/// short and long operations are in different rings. They may also be slightly out of order across passes: a completion
/// interrupt may hit a call's probe between taking its number and writing its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    next: u64,
    last_ns: i64,
    /// First missing number, end of the range, and the times before and after it.
    open: BTreeMap<u64, (u64, i64, i64)>,
    /// Old gaps merged into one: number of events, and the times before and after.
    merged: Option<(u64, i64, i64)>,
}

/// Number of gaps kept apart; the oldest beyond that are merged.
const MAX_HOLES: usize = 4096;

impl Holes {
    /// Notes a record with this number and end time.
    pub(crate) fn see(&mut self, seq: u64, end_ns: i64) {
        if seq >= self.next {
            if seq > self.next {
                self.open.insert(self.next, (seq, self.last_ns, end_ns));
            }
            self.next = seq + 1;
        } else if let Some((&start, &(end, from, to))) = self.open.range(..=seq).next_back()
            && seq < end
        {
            self.open.remove(&start);
            if start < seq {
                self.open.insert(start, (seq, from, to));
            }
            if seq + 1 < end {
                self.open.insert(seq + 1, (end, from, to));
            }
        }
        self.last_ns = self.last_ns.max(end_ns);
    }

    /// Call this after a complete pass: what is missing now is almost surely lost, so old gaps may be merged to bound
    /// memory.
    pub(crate) fn settle(&mut self) {
        while self.open.len() > MAX_HOLES
            && let Some((start, (end, from, to))) = self.open.pop_first()
        {
            let (events, first, last) = self.merged.unwrap_or((0, from, to));
            self.merged = Some((events + (end - start), first.min(from), last.max(to)));
        }
    }

    /// Ends the stream: numbers up to `numbered` were assigned, so those after the last one seen are missing too.
    pub(crate) fn end(&mut self, numbered: u64, end_ns: i64) {
        if numbered > self.next {
            self.open.insert(self.next, (numbered, self.last_ns, end_ns));
            self.next = numbered;
        }
    }

    /// The losses, in the form of the manifest.
    pub(crate) fn losses(self, cpu: i32, t0_ns: i64) -> impl Iterator<Item = Loss> {
        let open = self.open.into_iter().map(|(start, (end, from, to))| (end - start, from, to));
        self.merged.into_iter().chain(open).map(move |(events, from, to)| Loss {
            cpu,
            from_ns: (from - t0_ns).max(0),
            to_ns: to - t0_ns,
            events: events as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_located_and_late_numbers_fill_them() {
        let mut h = Holes::default();
        for (seq, ns) in [(0, 10), (2, 30), (1, 20), (3, 40), (9, 100), (6, 70)] {
            h.see(seq, ns);
        }
        let losses: Vec<_> = h.losses(1, 0).map(|l| (l.from_ns, l.to_ns, l.events)).collect();
        assert_eq!(losses, [(40, 100, 2), (40, 100, 2)], "4, 5 and 7, 8 are missing");
    }

    /// A pass brings all short operations before the long ones in between.
    #[test]
    fn very_many_numbers_come_late_within_a_pass() {
        let mut h = Holes::default();
        for start in [0, 1] {
            for seq in (start..50_000).step_by(2) {
                h.see(seq, seq as i64);
            }
        }
        h.settle();
        assert_eq!(h.losses(0, 0).count(), 0);
    }

    #[test]
    fn very_many_holes_keep_their_count() {
        let mut h = Holes::default();
        for i in 0..10_000 {
            h.see(i * 2, i as i64);
            h.settle();
        }
        h.end(20_004, 20_000);
        assert!(h.open.len() <= MAX_HOLES + 1);
        assert_eq!(h.losses(0, 0).map(|l| l.events).sum::<i64>(), 9_999 + 5);
    }
}
