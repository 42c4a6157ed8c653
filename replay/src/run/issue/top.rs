//! Operations that begin at the target's root, in threads that have another: that root is a descriptor, which leads out of theirs.

use std::{
    os::fd::{BorrowedFd, IntoRawFd},
    sync::atomic::Ordering::Relaxed,
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::fchdir,
};

use super::{cells::Cells, stamp::without_call};

impl Cells {
    /// Opens it, in the table that all others are copies of.
    pub fn open_top(&self) -> Result<(), Errno> {
        let top = open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        self.top.store(top.into_raw_fd(), Relaxed);
        Ok(())
    }
}

/// Issues a call that takes no directory: its thread stands in `dir` meanwhile (the target's root, or where a link of /proc's leads),
/// and goes on from where it stood, unless it `moves` and is not refused.
pub(super) fn stand(dir: i32, moves: bool, issue: impl FnOnce() -> i64) -> i64 {
    let back = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    // SAFETY: open in this thread's table from its beginning to its end.
    let stood = back.and_then(|back| fchdir(unsafe { BorrowedFd::borrow_raw(dir.max(0)) }).map(|()| back));
    let back = match stood {
        Ok(back) => back,
        Err(e) => return without_call(-i64::from(e.raw_os_error())),
    };
    let ret = issue();
    if moves && ret >= 0 {
        return ret;
    }
    match fchdir(&back) {
        Ok(()) => ret,
        Err(e) => -i64::from(e.raw_os_error()),
    }
}
