//! Makes a system call, and stamps when it entered the kernel and returned.

use libc::c_long;

use super::stamp;
use crate::base::clock::monotonic_ns;

/// Results are -errno, as in the reel.
pub(crate) fn call(number: c_long, args: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let entered_ns = monotonic_ns();
    // SAFETY: callers pass descriptors, NUL-terminated paths of the plan, and buffers of the length named.
    let r = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    // Reads the vDSO, which leaves errno alone.
    stamp::stamp(entered_ns);
    if r >= 0 {
        return r;
    }
    -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Closes a descriptor that nobody will use.
pub(crate) fn close(fd: i64) {
    call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
}

/// Flags of an open as it is issued. Those that are added are without effect on files and directories, and keep a FIFO that
/// stands where a file stood from blocking the replay. `O_PATH` opens nothing and takes no other flag.
pub(crate) fn open_flags(given: i64) -> i64 {
    let quick = if given as i32 & libc::O_PATH == 0 { i64::from(libc::O_NONBLOCK | libc::O_NOCTTY) } else { 0 };
    given | quick
}

/// A request of ioctl.
pub(super) fn ioctl(fd: i64, request: i64, argument: i64) -> i64 {
    call(libc::SYS_ioctl, [fd, request, argument, 0, 0, 0])
}
