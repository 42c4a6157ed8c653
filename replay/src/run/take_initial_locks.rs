//! Takes the locks that were held when the slice starts.

use crate::{
    plan::{initial_locks::LockAtStart, program::Plan},
    run::issue::locks::hold,
};

/// Takes a lock with the calling thread's descriptor table. Returns a warning if that fails.
fn take(lock: &LockAtStart, opened: &[i32]) -> Option<String> {
    let fd = opened.get(lock.open as usize).copied().filter(|fd| *fd >= 0)?;
    let ret = hold(fd, &lock.held);
    let told = || std::io::Error::from_raw_os_error(-ret as i32);
    (ret < 0).then(|| format!("cannot take a lock that was held at the start: {}", told()))
}

/// Takes the locks that belong to open file descriptions. Returns warnings.
pub(crate) fn take_shared(plan: &Plan, opened: &[i32]) -> Vec<String> {
    plan.begin.locks.iter().filter(|l| l.table_of.is_none()).filter_map(|l| take(l, opened)).collect()
}

/// Takes the locks that belong to the descriptor table with which this thread starts. Returns warnings.
pub(crate) fn take_own(plan: &Plan, task: u32, opened: &[i32]) -> Vec<String> {
    plan.begin.locks.iter().filter(|l| l.table_of == Some(task)).filter_map(|l| take(l, opened)).collect()
}
