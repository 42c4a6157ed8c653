//! Gives the calling thread the user and group ids that a recorded thread had.
//!
//! The saved user id of a replaying thread is always root: so it can take on any ids again, also those that a recorded thread
//! got by executing a set-user-ID program. Its capabilities follow its effective user id as the kernel has it.

use std::{ffi::c_long, io};

/// Ids that a thread takes on: real, effective, for files, of user and group.
pub(crate) type Words = [u32; 6];

/// Makes a system call: its number and arguments; the result or -errno.
pub(crate) type SystemCall = fn(c_long, [i64; 6]) -> i64;

/// Makes a system call that takes numbers, or addresses that are valid for it.
pub(crate) fn system_call(number: c_long, [a, b, c, d, e, f]: [i64; 6]) -> i64 {
    // SAFETY: callers pass descriptors, NUL-terminated paths, and buffers of the length named.
    let r = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if r >= 0 { r } else { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) }
}

/// Gives the calling thread these ids, by `call`; its effective or saved user id has to be root. libc's functions are not used,
/// because they change all threads of the process. 0 or -errno.
pub(crate) fn take_on(call: SystemCall, [ruid, euid, fsuid, rgid, egid, fsgid]: Words, groups: Option<&[u8]>) -> i64 {
    const KEEP: i64 = -1;
    let user = |r: i64, e: i64, s: i64| call(libc::SYS_setresuid, [r, e, s, 0, 0, 0]);
    let root = user(KEEP, 0, KEEP);
    if root < 0 {
        return root;
    }
    let groups = groups.map_or(0, |g| call(libc::SYS_setgroups, [g.len() as i64 / 4, g.as_ptr() as i64, 0, 0, 0, 0]));
    let group = call(libc::SYS_setresgid, [rgid.into(), egid.into(), KEEP, 0, 0, 0]);
    // They return what was before.
    call(libc::SYS_setfsgid, [fsgid.into(), 0, 0, 0, 0, 0]);
    let user = user(ruid.into(), euid.into(), 0);
    call(libc::SYS_setfsuid, [fsuid.into(), 0, 0, 0, 0, 0]);
    [groups, group, user].into_iter().find(|ret| *ret < 0).unwrap_or(0)
}
