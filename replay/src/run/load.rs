//! Keeps the recorded number of operations in flight: each is issued in its turn, when no more are in flight than were.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, PoisonError},
};

use crate::base::clock::monotonic_ns;

#[derive(Debug, Default)]
struct Gate {
    /// Each thread's next turn, the first thread to go first.
    turns: BTreeSet<(i64, u32)>,
    /// The same by thread.
    next: Vec<Option<i64>>,
    in_flight: u32,
    /// The last change, ns of the monotonic clock.
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

/// What threads pass before they issue.
#[derive(Debug, Default)]
pub(crate) struct LoadGate {
    gate: Mutex<Gate>,
    changed: Condvar,
}

impl LoadGate {
    /// The thread's next turn; none at its end.
    pub(crate) fn set(&self, task: u32, turn_ns: Option<i64>) {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).set(task, turn_ns);
        self.changed.notify_all();
    }

    /// Waits for the thread's turn and until fewer than `together` are in flight (one may always be).
    /// Whoever comes after the thread's next turn must not go before it. When it could go, ns of the monotonic clock; `None` when it
    /// had not to wait.
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

    /// One less is in flight.
    pub(crate) fn leave(&self) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.in_flight -= 1;
        gate.changed_ns = monotonic_ns();
        drop(gate);
        self.changed.notify_all();
    }
}
