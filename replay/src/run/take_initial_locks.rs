//! Takes the locks that were held when a slice begins.

use crate::{
    plan::{initial_locks::LockAtStart, program::Plan},
    run::issue::locks::hold,
};

/// Takes a lock in the calling thread's table; what went wrong.
fn take(lock: &LockAtStart, opened: &[i32]) -> Option<String> {
    let fd = opened.get(lock.open as usize).copied().filter(|fd| *fd >= 0)?;
    let ret = hold(fd, &lock.held);
    let told = || std::io::Error::from_raw_os_error(-ret as i32);
    (ret < 0).then(|| format!("a lock that was held at the start could not be taken: {}", told()))
}

/// Takes the locks of open file descriptions; what went wrong.
pub(crate) fn take_shared(plan: &Plan, opened: &[i32]) -> Vec<String> {
    plan.begin.locks.iter().filter(|l| l.table_of.is_none()).filter_map(|l| take(l, opened)).collect()
}

/// Takes the locks of the table that this thread begins with, in that; what went wrong.
pub(crate) fn take_own(plan: &Plan, task: u32, opened: &[i32]) -> Vec<String> {
    plan.begin.locks.iter().filter(|l| l.table_of == Some(task)).filter_map(|l| take(l, opened)).collect()
}
