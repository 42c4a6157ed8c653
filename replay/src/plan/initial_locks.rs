//! Locks held when a slice starts. Their holders take them again before any thread's first step.
//!
//! A lock belongs to an open file description (flock, OFD locks) or a descriptor table (fcntl). A holder without
//! further calls still blocks others: its thread is started, and ends when the recorded one did.

use crate::model::locks::HeldLock;

/// A lock held at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAtStart {
    /// The open file description that holds it, or through which it is taken: index in
    /// [`Begin::opens`](crate::plan::initial_descriptors::Begin::opens).
    pub open: u32,
    /// For an fcntl lock: the thread that starts with the descriptor table.
    pub table_of: Option<u32>,
    /// The lock.
    pub held: HeldLock,
}
