//! Pace `load`: keeps the recorded number of operations in flight. Each operation is issued in its turn, once fewer are
//! in flight than when it was recorded.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, PoisonError},
};

use crate::base::clock::monotonic_ns;

#[derive(Debug, Default)]
struct Gate {
    /// Each thread's next turn, earliest first.
    turns: BTreeSet<(i64, u32)>,
    /// The same by thread.
    next: Vec<Option<i64>>,
    in_flight: u32,
    /// When the state last changed, ns of the monotonic clock.
    changed_ns: i64,
}

impl Gate {
    fn set(&mut self, task: u32, turn_ns: Option<i64>) {
        self.changed_ns = monotonic_ns();
        if self.next.len() <= task as usize {
            self.next.resize(task as usize + 1, None);
        }
        let old = std::mem::replace(&mut self.next[task as usize], turn_ns);
        if let Some(old) = old {
            self.turns.remove(&(old, task));
        }
        if let Some(turn) = turn_ns {
            self.turns.insert((turn, task));
        }
    }
}

/// The gate that threads pass before they issue an operation.
#[derive(Debug, Default)]
pub(crate) struct LoadGate {
    gate: Mutex<Gate>,
    changed: Condvar,
}

impl LoadGate {
    /// Sets the thread's next turn; `None` at its end.
    pub(crate) fn set(&self, task: u32, turn_ns: Option<i64>) {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).set(task, turn_ns);
        self.changed.notify_all();
    }

    /// Waits until it is the thread's turn and fewer than `together` operations are in flight (one may always be).
    /// `next_ns` is the thread's next turn: operations with later turns wait for it. Returns when the operation was
    /// admitted, ns of the monotonic clock, or `None` if it did not have to wait.
    pub(crate) fn enter(&self, task: u32, turn_ns: i64, together: u32, next_ns: Option<i64>) -> Option<i64> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.set(task, Some(turn_ns));
        let mut let_go_ns = None;
        while gate.turns.first() != Some(&(turn_ns, task)) || gate.in_flight >= together.max(1) {
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
            let_go_ns = Some(gate.changed_ns);
        }
        gate.in_flight += 1;
        gate.set(task, next_ns);
        drop(gate);
        self.changed.notify_all();
        let_go_ns
    }

    /// One operation fewer is in flight.
    pub(crate) fn leave(&self) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.in_flight -= 1;
        gate.changed_ns = monotonic_ns();
        drop(gate);
        self.changed.notify_all();
    }
}
