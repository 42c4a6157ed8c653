//! Divides elapsed time among what is in flight at each moment.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Divides each moment evenly among the items in flight. The shares of all items add up to the time in which anything was
/// in flight, so a share is the time by which the whole would be shorter without the item, if the others went on at the
/// same rate (processor sharing). Memory: the items in flight.
#[derive(Clone, Debug)]
pub struct ShareClock<T> {
    /// By end, then by arrival.
    ends: BinaryHeap<Reverse<(i64, u64)>>,
    /// Items in flight by arrival, with the clock at their start.
    items: Vec<Option<(T, f64)>>,
    free: Vec<usize>,
    now_ns: i64,
    /// Time per item so far, ns.
    elapsed_share_ns: f64,
    /// Time in which anything was in flight, ns.
    busy_ns: f64,
}

impl<T> Default for ShareClock<T> {
    fn default() -> Self {
        Self {
            ends: BinaryHeap::new(),
            items: Vec::new(),
            free: Vec::new(),
            now_ns: i64::MIN,
            elapsed_share_ns: 0.0,
            busy_ns: 0.0,
        }
    }
}

impl<T> ShareClock<T> {
    /// Adds an item, not earlier than the previous one. Passes each item that ended before to `ended`, with its share in ns.
    pub fn start(&mut self, start_ns: i64, end_ns: i64, item: T, ended: &mut impl FnMut(T, f64)) {
        self.run_until(start_ns, ended);
        let start_share = self.elapsed_share_ns;
        let at = match self.free.pop() {
            Some(at) => {
                self.items[at] = Some((item, start_share));
                at
            }
            None => {
                self.items.push(Some((item, start_share)));
                self.items.len() - 1
            }
        };
        self.ends.push(Reverse((end_ns.max(start_ns), at as u64)));
    }

    /// Ends all items in flight.
    pub fn finish(&mut self, ended: &mut impl FnMut(T, f64)) {
        self.run_until(i64::MAX, ended);
    }

    /// Number of items in flight.
    pub fn in_flight(&self) -> usize {
        self.ends.len()
    }

    /// Time in which at least one item was in flight, ns.
    pub fn busy_ns(&self) -> f64 {
        self.busy_ns
    }

    fn run_until(&mut self, t_ns: i64, ended: &mut impl FnMut(T, f64)) {
        while let Some(Reverse((end_ns, at))) = self.ends.peek().copied()
            && end_ns <= t_ns
        {
            self.advance(end_ns);
            self.ends.pop();
            let at = at as usize;
            if let Some((item, start_share)) = self.items.get_mut(at).and_then(Option::take) {
                self.free.push(at);
                ended(item, self.elapsed_share_ns - start_share);
            }
        }
        if t_ns != i64::MAX {
            self.advance(t_ns);
        }
    }

    fn advance(&mut self, t_ns: i64) {
        if !self.ends.is_empty() && t_ns > self.now_ns {
            let passed = t_ns.saturating_sub(self.now_ns) as f64;
            self.elapsed_share_ns += passed / self.ends.len() as f64;
            self.busy_ns += passed;
        }
        self.now_ns = self.now_ns.max(t_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(items: &[(i64, i64)]) -> (Vec<f64>, f64) {
        let mut clock = ShareClock::default();
        let mut out = vec![0.0; items.len()];
        for (i, (start, end)) in items.iter().enumerate() {
            clock.start(*start, *end, i, &mut |i: usize, share| out[i] = share);
        }
        clock.finish(&mut |i, share| out[i] = share);
        (out, clock.busy_ns())
    }

    #[test]
    fn time_is_divided_among_what_is_in_flight() {
        // Alone from 0 to 10, two from 10 to 20, alone from 20 to 30; a gap; two that are equal.
        let (each, busy) = shares(&[(0, 20), (10, 30), (100, 110), (100, 110)]);
        assert_eq!(each, [15.0, 15.0, 5.0, 5.0]);
        assert_eq!(busy, 40.0);
    }

    #[test]
    fn shares_add_up_to_the_busy_time() {
        let items: Vec<(i64, i64)> = (0..1000).map(|i| (i * 7, i * 7 + i * 37 % 101)).collect();
        let (each, busy) = shares(&items);
        assert!((each.iter().sum::<f64>() - busy).abs() < 1e-3);
    }

    #[test]
    fn ends_before_starts_and_extreme_times_do_no_harm() {
        let (each, _) = shares(&[(i64::MIN, i64::MIN), (5, 1), (6, i64::MAX)]);
        assert!(each.iter().all(|s| s.is_finite()));
    }
}
