//! Locks that were held when a slice begins: taken again by who held them, before anybody's first step.
//!
//! A lock belongs to an open file description (flock's, OFD locks) or to a descriptor table (fcntl's). Who has nothing left
//! to do is not started, but stays in the way of others: a thread of its own holds their locks until the end.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::{contain::close_all, issue::hold, locked::Held, plan::Plan};

/// A lock that is held at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAtStart {
    /// By, or through, which open file description: index in [`Begin::opens`](crate::begin::Begin::opens).
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

    /// Locks of those who are not started.
    fn idle_locks(&self) -> Vec<LockAtStart> {
        let busy = |task: &u32| !self.tasks[*task as usize].program.is_empty();
        let had = |open: u32| {
            let of = |i: &u32| self.tasks[*i as usize].root.iter().any(|r| r.fds.iter().any(|(o, _)| *o == open));
            (0..self.tasks.len() as u32).filter(busy).any(|i| of(&i))
        };
        let idle = |l: &&LockAtStart| l.table_of.map_or_else(|| !had(l.open), |task| !busy(&task));
        self.begin.locks.iter().filter(idle).copied().collect()
    }
}

/// Holds the locks of those who are not started, for as long as it lives.
pub(crate) struct Keeper {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    /// What went wrong.
    pub(crate) warnings: Vec<String>,
}

impl Keeper {
    /// Called by the thread that opened what is open at the start.
    pub(crate) fn new(plan: &Plan, opened: &[i32]) -> Self {
        let locks = plan.idle_locks();
        if locks.is_empty() {
            return Self { thread: None, warnings: Vec::new() };
        }
        let ((end, ended), (tell, told)) = (channel(), channel());
        let opened = opened.to_vec();
        match thread::Builder::new().name("keeper".into()).spawn(move || keep(&locks, &opened, &tell, &ended)) {
            Ok(thread) => Self { thread: Some((end, thread)), warnings: told.recv().unwrap_or_default() },
            Err(e) => Self { thread: None, warnings: vec![format!("locks of idle processes are not held: {e}")] },
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

fn keep(locks: &[LockAtStart], opened: &[i32], tell: &Sender<Vec<String>>, ended: &Receiver<()>) {
    // A table of its own: fcntl's locks go when any descriptor of the file closes in their table.
    // SAFETY: descriptors are plain numbers to this thread, owned by no Rust value.
    let mut warnings = match unsafe { unshare_unsafe(UnshareFlags::FILES) } {
        Ok(()) => Vec::new(),
        Err(e) => {
            let _ = tell.send(vec![format!("locks of idle processes are not held: {e}")]);
            return;
        }
    };
    for (i, fd) in opened.iter().enumerate() {
        if *fd >= 0 && !locks.iter().any(|l| l.open as usize == i) {
            // SAFETY: open in this thread's table.
            unsafe { libc::close(*fd) };
        }
    }
    warnings.extend(locks.iter().filter(|l| l.table_of.is_some()).filter_map(|l| l.take(opened)));
    let _ = tell.send(warnings);
    // Nothing is sent: it ends when the other end goes.
    let _ = ended.recv();
    // Before the thread's end, which others may see sooner than its table's.
    close_all();
}
