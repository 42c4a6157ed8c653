//! Locks that were held when a slice begins: taken again by who held them, before anybody's first step.
//!
//! A lock belongs to an open file description (flock's, OFD locks) or to a descriptor table (fcntl's). Who has no call left
//! to make stays in the way of others all the same: such threads are started, and end when they did.

use crate::{model::locks::Held, plan::program::Plan, run::issue::hold};

/// A lock that is held at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAtStart {
    /// By, or through, which open file description: index in [`Begin::opens`](crate::plan::initial_descriptors::Begin::opens).
    pub open: u32,
    /// Of fcntl's: the thread that begins with the descriptor table.
    pub table_of: Option<u32>,
    /// What is held.
    pub held: Held,
}

impl LockAtStart {
    /// Takes it in the calling thread's table; what went wrong.
    fn take(&self, opened: &[i32]) -> Option<String> {
        let fd = opened.get(self.open as usize).copied().filter(|fd| *fd >= 0)?;
        let ret = hold(fd, &self.held);
        let told = || std::io::Error::from_raw_os_error(-ret as i32);
        (ret < 0).then(|| format!("a lock that was held at the start could not be taken: {}", told()))
    }
}

impl Plan {
    /// Takes the locks of open file descriptions; what went wrong.
    pub(crate) fn take_shared_locks(&self, opened: &[i32]) -> Vec<String> {
        self.begin.locks.iter().filter(|l| l.table_of.is_none()).filter_map(|l| l.take(opened)).collect()
    }

    /// Takes the locks of the table that this thread begins with, in that; what went wrong.
    pub(crate) fn take_own_locks(&self, task: u32, opened: &[i32]) -> Vec<String> {
        self.begin.locks.iter().filter(|l| l.table_of == Some(task)).filter_map(|l| l.take(opened)).collect()
    }
}
