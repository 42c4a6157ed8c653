//! A bounded sample of events: all while they fit, otherwise one in 2, 4, 8, …, chosen by a hash of their number, and
//! in addition the slowest.

use std::{cmp::Ordering, collections::BinaryHeap};

/// Collects a sample.
#[derive(Debug)]
pub(crate) struct Sample<T> {
    most: usize,
    most_slow: usize,
    seen: u64,
    /// An event is in the sample if its hash has none of these bits.
    mask: u64,
    kept: Vec<(u64, T)>,
    slow: BinaryHeap<Slow<T>>,
}

#[derive(Debug)]
struct Slow<T> {
    took_ns: i64,
    number: u64,
    event: T,
}

// Reversed, so that the heap's maximum is the fastest of the slow events, which leaves first.
impl<T> Ord for Slow<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.took_ns, self.number).cmp(&(self.took_ns, other.number))
    }
}
impl<T> PartialOrd for Slow<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> PartialEq for Slow<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Slow<T> {}

/// The final sample, in order of arrival.
#[derive(Debug)]
pub(crate) struct Held<T> {
    /// The events.
    pub(crate) events: Vec<T>,
    /// Whether each event is included for being slow.
    pub(crate) slow: Vec<bool>,
    /// Total number of events.
    pub(crate) total: u64,
    /// One in this many is included, apart from the slow ones.
    pub(crate) one_in: u64,
}

impl<T: Clone> Sample<T> {
    /// A sample of at most `most` random events and `most_slow` slow ones.
    pub(crate) fn new(most: usize, most_slow: usize) -> Self {
        Self { most: most.max(1), most_slow, seen: 0, mask: 0, kept: Vec::new(), slow: BinaryHeap::new() }
    }

    /// Adds the next event with its duration.
    pub(crate) fn push(&mut self, took_ns: i64, event: T) {
        let number = self.seen;
        self.seen += 1;
        let full = self.slow.len() >= self.most_slow;
        if self.most_slow > 0 && (!full || self.slow.peek().is_some_and(|least| took_ns > least.took_ns)) {
            if full {
                self.slow.pop();
            }
            self.slow.push(Slow { took_ns, number, event: event.clone() });
        }
        if hash(number) & self.mask != 0 {
            return;
        }
        self.kept.push((number, event));
        while self.kept.len() > self.most {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.kept.retain(|(number, _)| hash(*number) & mask == 0);
        }
    }

    /// The result.
    pub(crate) fn finish(self) -> Held<T> {
        let one_in = self.mask + 1;
        let mut all: Vec<(u64, bool, T)> = self.kept.into_iter().map(|(n, e)| (n, false, e)).collect();
        if one_in > 1 {
            all.extend(self.slow.into_iter().map(|s| (s.number, true, s.event)));
            // Of two copies, the slow one sorts first, and the other is dropped.
            all.sort_by_key(|(n, slow, _)| (*n, !*slow));
            all.dedup_by_key(|(n, ..)| *n);
        }
        let slow = all.iter().map(|(_, slow, _)| *slow).collect();
        Held { events: all.into_iter().map(|(.., e)| e).collect(), slow, total: self.seen, one_in }
    }
}

impl<T> Held<T> {
    /// Whether all events are included.
    pub(crate) fn is_complete(&self) -> bool {
        self.one_in == 1
    }

    /// All events or, if they were not all kept, the slowest, in order of arrival. At most as many as were kept as
    /// slow.
    pub(crate) fn slowest(self, most: usize) -> Vec<T> {
        let complete = self.is_complete();
        let both = self.events.into_iter().zip(self.slow);
        both.filter(|(_, slow)| complete || *slow).map(|(e, _)| e).take(most).collect()
    }

    /// Drops every second event that is not slow; if there are few, slow ones too.
    pub(crate) fn halve(&mut self) {
        let few = self.slow.iter().filter(|s| !**s).count() < 512;
        let mut n = 0u64;
        let keep: Vec<bool> = self
            .slow
            .iter()
            .map(|slow| {
                let spare = *slow && !few;
                n += u64::from(!spare);
                spare || n.is_multiple_of(2)
            })
            .collect();
        retain(&mut self.events, &keep);
        retain(&mut self.slow, &keep);
        self.one_in *= 2;
    }
}

fn retain<T>(v: &mut Vec<T>, keep: &[bool]) {
    let mut i = 0;
    v.retain(|_| {
        i += 1;
        keep.get(i - 1).copied().unwrap_or(false)
    });
}

/// A hash (splitmix64), so that sampling does not follow a pattern of the events.
fn hash(n: u64) -> u64 {
    let z = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_held_while_they_fit() {
        let mut s = Sample::new(100, 5);
        (0..100).for_each(|i| s.push(i % 7, i));
        let held = s.finish();
        assert!(held.is_complete() && held.events == (0..100).collect::<Vec<_>>());
        assert!(held.slow.iter().all(|s| !s));
    }

    #[test]
    fn many_become_a_fair_share_and_the_slowest() {
        let mut s = Sample::new(1000, 10);
        (0..100_000i64).for_each(|i| s.push(if i % 10_000 == 77 { 1_000_000 + i } else { i % 13 }, i));
        let mut held = s.finish();
        assert_eq!((held.total, held.is_complete()), (100_000, false));
        let slow: Vec<i64> = held.events.iter().zip(&held.slow).filter(|(_, s)| **s).map(|(e, _)| *e).collect();
        assert_eq!(slow, (0..10).map(|k| k * 10_000 + 77).collect::<Vec<_>>());
        assert!(held.events.is_sorted() && (500..=1010).contains(&held.events.len()), "{}", held.events.len());
        let early = held.events.iter().filter(|e| **e < 50_000).count();
        assert!((350..650).contains(&(early * 1000 / held.events.len())), "spread over the whole");
        let (before, one_in) = (held.events.len(), held.one_in);
        held.halve();
        assert_eq!(held.slow.iter().filter(|s| **s).count(), 10, "the slow stay");
        assert!(held.events.len() <= before / 2 + 10 && held.one_in == one_in * 2);
    }
}
