//! Results that depend on timing: calls that failed because of a concurrent change by another thread, and requests of
//! one thread that were in flight together.
//!
//! Requests of a chain are ordered, and a drained request runs alone. For all others the kernel chooses the order, and
//! may choose another one in a replay.

use std::collections::{HashMap, VecDeque};

use crate::{
    Call,
    model::names::{NO_NODE, NodeId},
    model::{machine::Machine, operands::Operands},
    reel::record_kind::changes_names,
    reel::{
        input::{NO_ID, NONE, Rec},
        submission::{Phase, Via, sqe},
    },
};

/// Number of recent name changes kept, to compare with calls that overlapped them.
const CHANGES: usize = 256;

/// A ring of a thread.
type Ring = (u32, Via, i64);

/// Place of a request among those of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChainPosition {
    ring: Ring,
    /// Counts drained requests: each has its own number, the requests between two of them share one.
    round: u32,
    chain: u32,
}

/// Requests in flight, and recent changes of names.
#[derive(Debug, Default)]
pub(crate) struct Races {
    /// By row.
    positions: HashMap<u32, ChainPosition>,
    /// The last request of each ring.
    last: HashMap<Ring, ChainPosition>,
    /// The last changes of names: return time and name.
    changed: VecDeque<(i64, NodeId)>,
}

impl Races {
    /// A request is submitted. `linked`: its predecessor links to it.
    pub(crate) fn submitted(&mut self, r: &Rec, linked: bool) {
        let ring = (r.task, r.via, r.ring);
        let last = self.last.entry(ring).or_insert(ChainPosition { ring, round: 0, chain: 0 });
        let drains = u32::from(r.sqe_flags & sqe::DRAIN != 0);
        last.round = last.round.wrapping_add(drains);
        last.chain = last.chain.wrapping_add(u32::from(!linked));
        self.positions.insert(r.row, *last);
        last.round = last.round.wrapping_add(drains);
    }

    /// What exists at a name has changed.
    pub(crate) fn changed(&mut self, end_ns: i64, node: NodeId) {
        if self.changed.len() == CHANGES {
            self.changed.pop_front();
        }
        self.changed.push_back((end_ns, node));
    }

    /// A request has ended.
    pub(crate) fn ended(&mut self, row: u32) {
        self.positions.remove(&row);
    }

    fn are_ordered(&self, a: u32, b: u32) -> bool {
        match (self.positions.get(&a), self.positions.get(&b)) {
            (Some(a), Some(b)) => a.ring == b.ring && (a.round != b.round || a.chain == b.chain),
            _ => false,
        }
    }
}

/// Whether two operations use the same name. The first path of a symlink is its target, not a name.
fn share_a_name(a: &Rec, b: &Rec) -> bool {
    let names = |r: &Rec| [if r.call.symlinks() { NONE } else { r.path }, r.path2];
    names(a).into_iter().any(|name| name != NONE && names(b).contains(&name))
}

impl Races {
    /// Whether a failed call would succeed in the current state, and another one changed the cause of its failure
    /// meanwhile. Calls are not atomic: a link, for example, is refused if the file that it has looked up loses its
    /// last name before the new one is created.
    pub(crate) fn lost_race(&self, machine: &mut Machine, r: &Rec, v: &Operands) -> bool {
        let (missing, taken) = (r.ret == -i64::from(libc::ENOENT), r.ret == -i64::from(libc::EEXIST));
        if !(missing && machine.parents_exist() || taken) {
            return false;
        }
        let overlapping = |node| self.changed.iter().any(|(end_ns, n)| *n == node && *end_ns > r.start_ns);
        if missing {
            let lacks = machine.lacks(r, v);
            let there = lacks.iter().all(|n| machine.names.exists(*n) == Some(true));
            return there && lacks.into_iter().any(overlapping);
        }
        let to = if r.call.links() || r.call.symlinks() || r.call.renames() { v.node2 } else { v.node };
        to != NO_NODE && machine.names.exists(to) == Some(false) && overlapping(to)
    }

    /// Whether the results of two overlapping requests of one thread may depend on their order, which nothing enforces.
    pub(crate) fn may_race(&self, machine: &Machine, a: &Rec, b: &Rec) -> bool {
        if a.phase != Phase::Ended || b.phase != Phase::Ended || a.raced && b.raced {
            return false;
        }
        // What a read finds depends on whether the other operation extends or cuts the file there.
        let depends = |read: &Rec, other: &Rec| {
            let end = read.offset_bytes.max(0).saturating_add(read.len_bytes);
            let beyond = || machine.sizes.size(read.file).is_none_or(|size| size < end);
            let cuts = other.call == Call::Ftruncate && other.len_bytes < end;
            let grows = other.call.writes() || matches!(other.call, Call::Ftruncate | Call::Fallocate);
            read.call.reads() && (cuts || grows && beyond())
        };
        let of_names = (changes_names(a) || changes_names(b)) && share_a_name(a, b);
        let of_data = a.file != NO_ID && a.file == b.file && (depends(a, b) || depends(b, a));
        (of_names || of_data) && !self.are_ordered(a.row, b.row)
    }
}
