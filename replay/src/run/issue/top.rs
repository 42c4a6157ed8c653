//! Path resolution from the target's root, in threads that have another root directory (chroot). A descriptor of the
//! target's root leads out of the thread's own root.

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
    /// Opens the target's root, in the descriptor table from which all others are copied.
    pub fn open_top(&self) -> Result<(), Errno> {
        let top = open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        self.top.store(top.into_raw_fd(), Relaxed);
        Ok(())
    }
}

/// Issues a call that takes no directory descriptor, with `dir` as working directory (the target's root, or where a
/// link in /proc leads). Restores the working directory, unless the call `moves` it and succeeds.
pub(super) fn stand(dir: i32, moves: bool, issue: impl FnOnce() -> i64) -> i64 {
    let back = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    // SAFETY: this descriptor is open as long as the thread's table exists.
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
