//! `unmerged_adjacent`: pairs of requests of one kind that touch (one ends where the other starts) and that were dispatched
//! separately at most 10 ms apart. A request counts in at most one pair as the later one.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::requests::Class;

/// How far apart in time two requests may be dispatched to count as a pair that could have been one.
pub const ADJACENT_NS: i64 = 10_000_000;

/// Follows one device, in dispatch order. Memory: requests of the last 10 ms, at most [`MOST`].
#[derive(Clone, Debug, Default)]
pub(super) struct AdjacentMeter {
    recent: VecDeque<(i64, Class, i64, i64)>,
    ends: FxHashMap<(Class, i64), u32>,
    starts: FxHashMap<(Class, i64), u32>,
    pairs: u64,
}

/// Requests remembered: 10 ms at 6 M requests/s.
const MOST: usize = 1 << 16;

fn release(map: &mut FxHashMap<(Class, i64), u32>, key: (Class, i64)) {
    if let Some(n) = map.get_mut(&key) {
        *n -= 1;
        if *n == 0 {
            map.remove(&key);
        }
    }
}

impl AdjacentMeter {
    /// The next request: sectors `[start, end)` dispatched at `t_ns`.
    pub(super) fn push(&mut self, class: Class, t_ns: i64, start: i64, end: i64) {
        if end <= start {
            return;
        }
        while let Some((then, class, start, end)) = self.recent.front().copied() {
            if t_ns.saturating_sub(then) <= ADJACENT_NS && self.recent.len() < MOST {
                break;
            }
            self.recent.pop_front();
            release(&mut self.ends, (class, end));
            release(&mut self.starts, (class, start));
        }
        let touches = self.ends.contains_key(&(class, start)) || self.starts.contains_key(&(class, end));
        self.pairs += u64::from(touches);
        self.recent.push_back((t_ns, class, start, end));
        *self.ends.entry((class, end)).or_default() += 1;
        *self.starts.entry((class, start)).or_default() += 1;
    }

    /// Pairs so far.
    pub(super) fn pairs(&self) -> u64 {
        self.pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn pairs(requests: &[(Class, i64, i64, i64)]) -> u64 {
        let mut m = AdjacentMeter::default();
        requests.iter().for_each(|(class, t, start, end)| m.push(*class, *t, *start, *end));
        m.pairs()
    }

    #[test]
    fn neighbours_count_in_either_direction_within_ten_milliseconds() {
        use Class::{Read, Write};
        assert_eq!(pairs(&[(Write, 0, 0, 8), (Write, MS, 8, 16), (Write, 2 * MS, 16, 24)]), 2);
        assert_eq!(pairs(&[(Write, 0, 8, 16), (Write, MS, 0, 8)]), 1, "one that goes before");
        assert_eq!(pairs(&[(Write, 0, 0, 8), (Read, MS, 8, 16)]), 0, "other kinds do not merge");
        assert_eq!(pairs(&[(Write, 0, 0, 8), (Write, 10 * MS, 8, 16)]), 1);
        assert_eq!(pairs(&[(Write, 0, 0, 8), (Write, 10 * MS + 1, 8, 16)]), 0);
        assert_eq!(pairs(&[(Write, 0, 0, 8), (Write, 1, 9, 16)]), 0, "a hole");
    }

    #[test]
    fn memory_is_bounded() {
        let mut m = AdjacentMeter::default();
        (0..1_000_000).for_each(|i| m.push(Class::Read, 0, i * 8, i * 8 + 8));
        assert!(m.recent.len() <= MOST && m.ends.len() <= MOST);
        assert_eq!(m.pairs(), 999_999);
    }
}
