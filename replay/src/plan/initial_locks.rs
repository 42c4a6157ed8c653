//! Locks that were held when a slice begins: taken again by who held them, before anybody's first step.
//!
//! A lock belongs to an open file description (flock's, OFD locks) or to a descriptor table (fcntl's). Who has no call left
//! to make stays in the way of others all the same: such threads are started, and end when they did.

use crate::model::locks::HeldLock;

/// A lock that is held at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAtStart {
    /// By, or through, which open file description: index in [`Begin::opens`](crate::plan::initial_descriptors::Begin::opens).
    pub open: u32,
    /// Of fcntl's: the thread that begins with the descriptor table.
    pub table_of: Option<u32>,
    /// What is held.
    pub held: HeldLock,
}
