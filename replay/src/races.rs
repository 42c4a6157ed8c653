//! Requests of one thread that were under way together, and results that depend on which of them was carried out first.
//!
//! Within a chain they follow each other, and a drained one is alone; else the kernel chooses, and chooses anew in a replay.

use std::collections::HashMap;

use crate::{
    Call,
    input::{NO_ID, NONE, Rec},
    linear::Known,
    planner::Planner,
    via::{Phase, sqe},
};

/// Where a request stands among those of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stand {
    /// Of those between two drained ones, which are one each.
    round: u32,
    chain: u32,
}

/// Requests under way.
#[derive(Debug, Default)]
pub(crate) struct Races {
    /// By row.
    stands: HashMap<u32, Stand>,
    /// The last of each thread.
    last: HashMap<u32, Stand>,
}

impl Races {
    /// A request is submitted; `linked`: the one before it links to it.
    pub(crate) fn submitted(&mut self, r: &Rec, linked: bool) {
        let last = self.last.entry(r.task).or_insert(Stand { round: 0, chain: 0 });
        if r.sqe_flags & sqe::DRAIN != 0 {
            last.round += 1;
        }
        if !linked {
            last.chain += 1;
        }
        self.stands.insert(r.row, *last);
        if r.sqe_flags & sqe::DRAIN != 0 {
            last.round += 1;
        }
    }

    /// It has ended.
    pub(crate) fn ended(&mut self, row: u32) {
        self.stands.remove(&row);
    }

    fn are_ordered(&self, a: u32, b: u32) -> bool {
        match (self.stands.get(&a), self.stands.get(&b)) {
            (Some(a), Some(b)) => a.round != b.round || a.chain == b.chain,
            _ => false,
        }
    }
}

impl Planner {
    /// Whether the results of two overlapping operations of one thread may depend on their order, which nothing demands.
    pub(crate) fn may_race(&mut self, a: &Rec, b: &Rec) -> bool {
        if a.phase != Phase::Ended || b.phase != Phase::Ended || self.races.are_ordered(a.row, b.row) {
            return false;
        }
        if a.path != NONE && b.path != NONE {
            let (theirs, mine) = (self.touches(a), self.touches(b));
            return self.order_of(&theirs, &mine) != Known::Unrelated;
        }
        // A read beyond what the file is known to hold finds what the other has written, or does not.
        let reads_what_grows = |read: &Rec, other: &Rec| {
            let end = read.offset_bytes.max(0).saturating_add(read.len_bytes);
            let grows = other.call.writes() || matches!(other.call, Call::Ftruncate | Call::Fallocate);
            read.call.reads() && grows && self.sizes.size(read.file).is_none_or(|size| size < end)
        };
        a.file != NO_ID && a.file == b.file && (reads_what_grows(a, b) || reads_what_grows(b, a))
    }
}
