//! Dependency edges between bios: which earlier ones a bio waits for.
//!
//! | kind | what waits, for what |
//! |---|---|
//! | `overlap` | a bio for the end of earlier ones that share a byte with it, if one of the two changes it; for every `--order` |
//! | `flush` | a flush for the end of changes that had ended when it was queued; a bio queued after the end of a flush, for that end |
//! | `thread` | a bio for the end of those of its thread that had ended when it was queued, and for the issue of its thread's previous bio |
//! | `global` | a bio for the end of all that had ended when it was queued, and for the issue of the previous bio |
//!
//! `resource` enforces the first three, `thread` all but `flush`, `global` all, `none` only the first. What a file
//! system's threads wait for is not recorded. The edge `thread` approximates it: a thread that reads metadata goes on
//! after the read.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet},
};

use serde::Serialize;

use super::{bios::Io, fit::Place};
use crate::plan::edge::OrderMode;

/// Kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// The two share bytes, and one of them changes these.
    Overlap,
    /// One of the two is a flush.
    Flush,
    /// The two are of the same thread.
    Thread,
    /// The first had ended when the second was queued.
    Global,
}

impl Edge {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Flush => "flush",
            Self::Thread => "thread",
            Self::Global => "global",
        }
    }
}

/// What a bio waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// The ends of these bios, each listed once.
    pub(super) ends: Vec<(Edge, u64)>,
    /// The issue of this bio.
    pub(super) issue: Option<u64>,
}

/// A bio that was read and has not ended in the replay.
#[derive(Debug)]
struct Alive {
    place: Option<Place>,
    changes: bool,
    flushes: bool,
    complete_ns: i64,
}

/// Bios that are ordered by their recorded ends: those of one thread, or all.
#[derive(Debug, Default)]
struct Flow {
    /// Bios whose recorded end has not been passed, by that end.
    running: BinaryHeap<Reverse<(i64, u64)>>,
    last: Option<u64>,
}

impl Flow {
    /// Adds the next bio. Calls `ended` for those that had ended when it was queued. Returns the previous bio.
    fn follow(&mut self, number: u64, queue_ns: i64, complete_ns: i64, mut ended: impl FnMut(u64)) -> Option<u64> {
        while let Some(Reverse((end_ns, one))) = self.running.peek().copied()
            && end_ns <= queue_ns
        {
            self.running.pop();
            ended(one);
        }
        self.running.push(Reverse((complete_ns, number)));
        self.last.replace(number)
    }
}

/// Places are indexed by pieces of this size.
const PIECE_BYTES: i64 = 1 << 20;
/// A place that covers more pieces is compared with every bio instead.
const MOST_PIECES: i64 = 64;

/// Computes edges, bio by bio.
#[derive(Debug)]
pub(super) struct Order {
    mode: OrderMode,
    alive: BTreeMap<u64, Alive>,
    by_piece: HashMap<i64, Vec<u64>>,
    /// Bios that cover more than [`MOST_PIECES`] pieces.
    long: Vec<u64>,
    flushes: Vec<u64>,
    threads: HashMap<u32, Flow>,
    all: Flow,
}

impl Order {
    pub(super) fn new(mode: OrderMode) -> Self {
        Self {
            mode,
            alive: BTreeMap::new(),
            by_piece: HashMap::new(),
            long: Vec::new(),
            flushes: Vec::new(),
            threads: HashMap::new(),
            all: Flow::default(),
        }
    }

    /// What the next bio waits for. `number` increases from bio to bio; `place` is `None` for a flush.
    pub(super) fn next(&mut self, number: u64, io: &Io, place: Option<Place>) -> Waits {
        let mut out = Waits::default();
        let mut seen = HashSet::new();
        let mut wait = |kind: Edge, on: u64| {
            if seen.insert(on) {
                out.ends.push((kind, on));
            }
        };
        let changes = io.kind.changes();
        if let Some(place) = place {
            let alive = &self.alive;
            let mut meet = |on: u64| {
                let other = alive.get(&on).filter(|a| a.changes || changes).and_then(|a| a.place);
                if other.is_some_and(|p| p.offset < place.offset + place.len && place.offset < p.offset + p.len) {
                    wait(Edge::Overlap, on);
                }
            };
            match pieces(place) {
                Some(pieces) => {
                    for piece in pieces {
                        self.by_piece.get(&piece).into_iter().flatten().for_each(|on| meet(*on));
                        self.by_piece.entry(piece).or_default().push(number);
                    }
                    self.long.iter().for_each(|on| meet(*on));
                }
                None => {
                    alive.keys().for_each(|on| meet(*on));
                    self.long.push(number);
                }
            }
        }
        let (queue_ns, alive) = (io.queue_ns(), &self.alive);
        if matches!(self.mode, OrderMode::Resource | OrderMode::Global) {
            if io.flushes() {
                let before = alive.iter().filter(|(_, a)| a.changes && a.complete_ns <= queue_ns);
                before.for_each(|(on, _)| wait(Edge::Flush, *on));
            }
            let ended = |on: &&u64| alive.get(on).is_some_and(|a| a.complete_ns <= queue_ns);
            self.flushes.iter().filter(ended).for_each(|on| wait(Edge::Flush, *on));
        }
        // A bio that has already ended in the replay needs no edge.
        let mut live = |kind: Edge, on: u64| {
            if alive.contains_key(&on) {
                wait(kind, on);
            }
        };
        let before = match self.mode {
            OrderMode::None => None,
            OrderMode::Global => self.all.follow(number, queue_ns, io.complete_ns, |on| live(Edge::Global, on)),
            OrderMode::Resource | OrderMode::Thread => {
                let flow = self.threads.entry(io.thread).or_default();
                flow.follow(number, queue_ns, io.complete_ns, |on| live(Edge::Thread, on))
            }
        };
        out.issue = before;
        let flushes = io.flushes();
        if flushes {
            self.flushes.push(number);
        }
        self.alive.insert(number, Alive { place, changes, flushes, complete_ns: io.complete_ns });
        out
    }

    /// Bio `number` has ended in the replay.
    pub(super) fn ended(&mut self, number: u64) {
        let Some(one) = self.alive.remove(&number) else { return };
        if one.flushes {
            self.flushes.retain(|n| *n != number);
        }
        match one.place.map(pieces) {
            Some(Some(pieces)) => {
                for piece in pieces {
                    if let Some(list) = self.by_piece.get_mut(&piece) {
                        list.retain(|n| *n != number);
                        if list.is_empty() {
                            self.by_piece.remove(&piece);
                        }
                    }
                }
            }
            Some(None) => self.long.retain(|n| *n != number),
            None => {}
        }
    }
}

/// The pieces that a place touches. `None` if there are more than [`MOST_PIECES`].
fn pieces(place: Place) -> Option<std::ops::RangeInclusive<i64>> {
    let (first, last) = (place.offset / PIECE_BYTES, (place.offset + place.len - 1) / PIECE_BYTES);
    (last - first < MOST_PIECES).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use ioreel_traces::rows::Bio;

    use super::{super::bios::Kind, *};

    fn io(kind: Kind, thread: u32, queue_ns: i64, complete_ns: i64) -> Io {
        let row = Bio { queue_ns, complete_ns: Some(complete_ns), ..Bio::default() };
        Io { kind, complete_ns, thread, together: 1, row }
    }

    fn at(offset: i64, len: i64) -> Option<Place> {
        Some(Place { offset, len, adjusted: false })
    }

    #[test]
    fn changes_of_the_same_bytes_stay_in_order_and_reads_do_not_wait_for_reads() {
        let mut o = Order::new(OrderMode::None);
        assert_eq!(o.next(0, &io(Kind::Read, 0, 0, 100), at(0, 8192)), Waits::default());
        assert_eq!(o.next(1, &io(Kind::Read, 1, 1, 100), at(4096, 4096)), Waits::default());
        let w = o.next(2, &io(Kind::Write, 2, 2, 100), at(4096, 1 << 30));
        assert_eq!(w.ends, [(Edge::Overlap, 0), (Edge::Overlap, 1)]);
        assert_eq!(o.next(3, &io(Kind::Write, 3, 3, 100), at(0, 4096)).ends, [(Edge::Overlap, 0)]);
        o.ended(0);
        o.ended(1);
        assert_eq!(o.next(4, &io(Kind::Read, 4, 4, 100), at(4 << 20, 4096)).ends, [(Edge::Overlap, 2)]);
        o.ended(2);
        assert_eq!(o.next(5, &io(Kind::Discard, 5, 5, 100), at(4 << 20, 4096)).ends, [(Edge::Overlap, 4)]);
        (3..6).for_each(|n| o.ended(n));
        assert!(o.alive.is_empty() && o.by_piece.is_empty() && o.long.is_empty());
    }

    #[test]
    fn a_thread_waits_for_what_had_ended_and_not_for_what_was_in_flight() {
        let mut o = Order::new(OrderMode::Thread);
        o.next(0, &io(Kind::Read, 7, 0, 100), at(0, 512));
        o.next(1, &io(Kind::Read, 7, 10, 300), at(512, 512));
        let w = o.next(2, &io(Kind::Read, 7, 150, 400), at(1024, 512));
        assert_eq!((w.ends, w.issue), (vec![(Edge::Thread, 0)], Some(1)));
        let w = o.next(3, &io(Kind::Read, 8, 500, 600), at(2048, 512));
        assert_eq!(w, Waits::default(), "another thread");
        let mut o = Order::new(OrderMode::Global);
        o.next(0, &io(Kind::Read, 7, 0, 100), at(0, 512));
        let w = o.next(1, &io(Kind::Read, 8, 100, 600), at(2048, 512));
        assert_eq!((w.ends, w.issue), (vec![(Edge::Global, 0)], Some(0)));
    }

    #[test]
    fn a_commit_block_stays_behind_its_journal_and_what_follows_behind_the_flush() {
        let mut o = Order::new(OrderMode::Resource);
        o.next(0, &io(Kind::Write, 1, 0, 100), at(0, 4096));
        o.next(1, &io(Kind::Write, 2, 0, 900), at(8192, 4096));
        let w = o.next(2, &io(Kind::Flush, 3, 150, 300), None);
        assert_eq!(w.ends, [(Edge::Flush, 0)], "the other write had not ended");
        assert_eq!(o.next(3, &io(Kind::Write, 4, 200, 400), at(1 << 20, 512)).ends, []);
        assert_eq!(o.next(4, &io(Kind::Write, 5, 300, 400), at(2 << 20, 512)).ends, [(Edge::Flush, 2)]);
    }
}
