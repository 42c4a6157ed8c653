//! Pace `load`: keeps the recorded number of operations in flight. Each operation is issued in its turn, once fewer are
//! in flight than when it was recorded.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::base::clock::monotonic_ns;

/// How long nothing may change while threads wait and no operation is in flight. Then the recorded turns contradict the
/// dependency edges, as those of a damaged reel may: the thread whose turn it is waits for one that waits for its turn.
const STALL: Duration = Duration::from_secs(5);
/// The same while operations are in flight, which may take long by themselves.
const LONG_STALL: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Gate {
    /// Each thread's next turn, earliest first.
    turns: BTreeSet<(i64, u32)>,
    /// The same by thread.
    next: Vec<Option<i64>>,
    in_flight: u32,
    /// When the state last changed, ns of the monotonic clock.
    changed_ns: i64,
    /// Turns are not kept any more.
    is_given_up: bool,
}

impl Gate {
    /// Whether the operation with this turn may be issued.
    fn admits(&self, turn: (i64, u32), together: u32) -> bool {
        self.is_given_up || self.turns.first() == Some(&turn) && self.in_flight < together.max(1)
    }

    fn stalls(&self) -> bool {
        let longest = if self.in_flight == 0 { STALL } else { LONG_STALL };
        monotonic_ns() - self.changed_ns >= longest.as_nanos() as i64
    }

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
        while !gate.admits((turn_ns, task), together) {
            gate = self.changed.wait_timeout(gate, STALL).unwrap_or_else(PoisonError::into_inner).0;
            let_go_ns = Some(gate.changed_ns);
            if gate.stalls() {
                gate.is_given_up = true;
                self.changed.notify_all();
            }
        }
        gate.in_flight += 1;
        gate.set(task, next_ns);
        drop(gate);
        self.changed.notify_all();
        let_go_ns
    }

    /// Whether operations were issued out of turn, because turns and dependency edges contradict each other.
    pub(crate) fn is_given_up(&self) -> bool {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).is_given_up
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn a_turn_that_never_comes_is_not_waited_for_for_ever() {
        let gate = Arc::new(LoadGate::default());
        // Task 0 comes first, and never enters: it waits for task 1, say.
        gate.set(0, Some(1));
        let second = gate.clone();
        let ended = thread::spawn(move || {
            second.enter(1, 2, 1, None);
            second.leave();
        });
        ended.join().unwrap();
        assert!(gate.is_given_up());
    }
}
