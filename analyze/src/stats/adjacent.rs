//! `unmerged_adjacent`: pairs of requests of the same class that are adjacent (one ends where the other starts) and
//! were dispatched separately within 10 ms. A request counts in at most one pair as the later one.

use rustc_hash::FxHashMap;

use crate::events::requests::Class;

/// Maximum time between the dispatches of such a pair.
pub const ADJACENT_NS: i64 = 10_000_000;

/// Observes one device, in dispatch order. Memory: requests of the last 10 ms, at most [`MOST`], and as many expired
/// ones.
#[derive(Clone, Debug, Default)]
pub(super) struct AdjacentMeter {
    /// For each class, the sectors where requests start or end.
    edges: [FxHashMap<i64, Edge>; Class::ALL.len()],
    seen: u64,
    pairs: u64,
    /// Number of entries that triggers the removal of expired ones.
    room: usize,
}

/// The last request that ended at a sector, and the last that started there. An earlier one cannot be closer in time.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    ended: Met,
    started: Met,
}

/// Dispatch time of a request, and its number, from [`MOST`] on. 0 means none.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    t_ns: i64,
    number: u64,
}

impl Met {
    fn is_near(self, now: Self) -> bool {
        now.t_ns.saturating_sub(self.t_ns) <= ADJACENT_NS && now.number - self.number < MOST
    }
}

/// Maximum number of requests remembered: 10 ms at 6 M requests/s.
const MOST: u64 = 1 << 16;
/// Number of entries below which expired ones are not removed.
const LEAST_ROOM: usize = 256;

impl AdjacentMeter {
    /// Adds the next request: sectors `[start, end)`, dispatched at `t_ns`.
    pub(super) fn push(&mut self, class: Class, t_ns: i64, start: i64, end: i64) {
        if end <= start {
            return;
        }
        let now = Met { t_ns, number: self.seen + MOST };
        self.seen += 1;
        let edges = &mut self.edges[class as usize];
        let first = edges.entry(start).or_default();
        first.started = now;
        let follows = first.ended.is_near(now);
        let last = edges.entry(end).or_default();
        last.ended = now;
        let precedes = last.started.is_near(now);
        self.pairs += u64::from(follows || precedes);
        if edges.len() > self.room.max(LEAST_ROOM) {
            let is_near = |edge: &Edge| edge.ended.is_near(now) || edge.started.is_near(now);
            self.edges.iter_mut().for_each(|edges| edges.retain(|_, edge| is_near(edge)));
            // Twice the number of live entries, so that each entry is checked once or twice.
            self.room = 2 * self.edges.iter().map(FxHashMap::len).max().unwrap_or(0);
        }
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
        assert!(m.edges.iter().all(|edges| edges.len() <= 4 * MOST as usize + 2));
        assert_eq!(m.pairs(), 999_999);
    }
}
