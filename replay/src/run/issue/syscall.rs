//! Makes system calls, with timestamps at entry and return.

use libc::c_long;

use super::stamp;
use crate::base::clock::monotonic_ns;

/// Makes a system call. Returns the result or -errno, as in the reel.
pub(crate) fn call(number: c_long, args: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let entered_ns = monotonic_ns();
    // SAFETY: callers pass descriptors, NUL-terminated paths of the plan, and buffers of the length named.
    let r = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    // Reading the clock does not change errno.
    stamp::stamp(entered_ns);
    if r >= 0 {
        return r;
    }
    -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Closes a descriptor that nothing else uses.
pub(crate) fn close(fd: i64) {
    call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
}

/// Flags of an open as it is issued. O_NONBLOCK and O_NOCTTY are added. They have no effect on files and directories,
/// and keep the replay from blocking in a FIFO that has replaced a file. `O_PATH` opens nothing and takes no other
/// flags.
pub(crate) fn open_flags(given: i64) -> i64 {
    let quick = if given as i32 & libc::O_PATH == 0 { i64::from(libc::O_NONBLOCK | libc::O_NOCTTY) } else { 0 };
    given | quick
}

/// Issues an ioctl.
pub(super) fn ioctl(fd: i64, request: i64, argument: i64) -> i64 {
    call(libc::SYS_ioctl, [fd, request, argument, 0, 0, 0])
}
