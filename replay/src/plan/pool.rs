//! The operations that were entered and have not taken effect. At most one per thread is a call; the others are requests
//! in flight.

use std::collections::{BTreeMap, HashMap};

use crate::{
    plan::planner::Planner,
    reel::{input::Rec, submission::Phase},
};

/// Order by return, then by entry; the row makes it unique.
type Key = (i64, i64, u32);
/// Id and row of an operation.
type Entry = (u32, u32);

/// Operations in flight that are compared with one that takes effect: those that return first.
const COMPARED: usize = 1024;
/// Requests in flight of the same thread that are compared with one that ends.
const COMPARED_REQUESTS: usize = 1 << 14;

/// Operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    all: BTreeMap<Key, Entry>,
    /// Requests among them, by thread.
    requests: HashMap<u32, BTreeMap<Key, Entry>>,
}

fn key(r: &Rec) -> Key {
    (r.end_ns, r.start_ns, r.row)
}

impl Pool {
    /// Whether none is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The operation `r`, with this id, was entered.
    pub(crate) fn enter(&mut self, id: u32, r: &Rec) {
        self.all.insert(key(r), (id, r.row));
        if r.phase == Phase::Ended {
            self.requests.entry(r.task).or_default().insert(key(r), (id, r.row));
        }
    }

    /// The operation takes effect.
    pub(crate) fn leave(&mut self, r: &Rec) {
        self.all.remove(&key(r));
        if r.phase == Phase::Ended
            && let Some(requests) = self.requests.get_mut(&r.task)
        {
            requests.remove(&key(r));
            if requests.is_empty() {
                self.requests.remove(&r.task);
            }
        }
    }

    /// The operations to compare with another one, by return.
    pub(crate) fn first(&self) -> Vec<Entry> {
        self.all.values().take(COMPARED).copied().collect()
    }

    /// The requests of a thread.
    pub(crate) fn requests_of(&self, task: u32) -> Vec<Entry> {
        self.requests.get(&task).into_iter().flat_map(|all| all.values().take(COMPARED_REQUESTS).copied()).collect()
    }
}

impl Planner {
    /// Takes an operation out: it takes effect now.
    pub(crate) fn take(&mut self, id: u32) -> Option<Box<Rec>> {
        let taken = self.machine.reel.take(id)?;
        self.pool.leave(&taken);
        Some(taken)
    }
}
