//! Sets the user and group ids of the calling thread to those of a recorded thread.
//!
//! The saved user id of a replaying thread stays root. It can therefore change to any ids again, also to those that the
//! recorded thread got from a set-user-ID program. Its capabilities follow from its effective user id, as in the
//! kernel.

use std::{ffi::c_long, io};

/// Ids of a thread: real, effective and file system user id, then the group ids likewise.
pub(crate) type Words = [u32; 6];

/// A function that makes a system call with a number and arguments, and returns the result or -errno.
pub(crate) type SystemCall = fn(c_long, [i64; 6]) -> i64;

/// Makes a system call whose arguments are numbers or valid addresses.
pub(crate) fn system_call(number: c_long, [a, b, c, d, e, f]: [i64; 6]) -> i64 {
    // SAFETY: callers pass descriptors, NUL-terminated paths, and buffers of the length named.
    let r = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if r >= 0 { r } else { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) }
}

/// Sets the ids of the calling thread by `call`. Its effective or saved user id must be root. libc's functions are not
/// used, because they change every thread of the process. Returns 0 or -errno.
pub(crate) fn take_on(call: SystemCall, [ruid, euid, fsuid, rgid, egid, fsgid]: Words, groups: Option<&[u8]>) -> i64 {
    const KEEP: i64 = -1;
    let user = |r: i64, e: i64, s: i64| call(libc::SYS_setresuid, [r, e, s, 0, 0, 0]);
    let root = user(KEEP, 0, KEEP);
    if root < 0 {
        return root;
    }
    let groups = groups.map_or(0, |g| call(libc::SYS_setgroups, [g.len() as i64 / 4, g.as_ptr() as i64, 0, 0, 0, 0]));
    let group = call(libc::SYS_setresgid, [rgid.into(), egid.into(), KEEP, 0, 0, 0]);
    // setfsgid and setfsuid return the previous id, not an error.
    call(libc::SYS_setfsgid, [fsgid.into(), 0, 0, 0, 0, 0]);
    let user = user(ruid.into(), euid.into(), 0);
    call(libc::SYS_setfsuid, [fsuid.into(), 0, 0, 0, 0, 0]);
    [groups, group, user].into_iter().find(|ret| *ret < 0).unwrap_or(0)
}
