//! Sets the user and group ids of the calling thread to those of a recorded thread.
//!
//! The saved user id of a replaying thread stays root. It can therefore change to any ids again, also to those that the
//! recorded thread got from a set-user-ID program. Its capabilities follow from its effective user id, as in the
//! kernel.

//!
//! A recorded thread in a user name space has capabilities that hold for files of the ids of that name space. Its replaying
//! thread holds the same ones for all files, except while it repeats what was denied ([`hold_for`]).

use std::{cell::Cell, ffi::c_long, io};

/// Ids of a thread: real, effective and file system user id, then the group ids likewise. Last: [`IN_USER_NS`] and its
/// capabilities over files, or 0 in the initial user name space, where they follow from the effective user id.
pub(crate) type Words = [u32; 7];

/// In another user name space than the initial one.
pub(crate) const IN_USER_NS: u32 = 1 << 31;
/// CAP_FSETID. Whoever has it in a user name space loses set-ID bits by a write all the same.
pub(crate) const KEEP_SET_IDS: u32 = 1 << 4;
/// CAP_SYS_CHROOT.
const CHANGE_ROOT: u32 = 1 << 18;
/// Capabilities that count in a user name space: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER and those
/// above.
pub(crate) const OVER_FILES: u32 = 0xf | KEEP_SET_IDS | CHANGE_ROOT;

/// Limits on the effective capabilities of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Those that the recorded thread had, with [`IN_USER_NS`]. 0: no limits.
    may_hold: u32,
    /// Those that are effective now.
    holds: u32,
}

thread_local! {
    static LIMITS: Cell<Limits> = const { Cell::new(Limits { may_hold: 0, holds: 0 }) };
}

/// The limits of the calling thread. A thread that it starts is under the same.
pub(crate) fn limits() -> Limits {
    LIMITS.get()
}

/// Notes under which limits the calling thread was started.
pub(crate) fn inherit(limits: Limits) {
    LIMITS.set(limits);
}

/// A function that makes a system call with a number and arguments, and returns the result or -errno.
pub(crate) type SystemCall = fn(c_long, [i64; 6]) -> i64;

/// Makes a system call whose arguments are numbers or valid addresses.
pub(crate) fn system_call(number: c_long, [a, b, c, d, e, f]: [i64; 6]) -> i64 {
    // SAFETY: callers pass descriptors, NUL-terminated paths, and buffers of the length named.
    let r = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if r >= 0 { r } else { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) }
}

/// Makes those capabilities effective that the calling thread may have and that `allowed` contains. Returns 0 or -errno.
fn make_effective(call: SystemCall, allowed: u64) -> i64 {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    /// Effective, permitted, inheritable: the lower halves, then the upper ones.
    type Sets = [[u32; 3]; 2];
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let mut sets: Sets = Sets::default();
    let at = std::ptr::from_ref(&header) as i64;
    let got = call(libc::SYS_capget, [at, sets.as_mut_ptr() as i64, 0, 0, 0, 0]);
    if got < 0 {
        return got;
    }
    for (set, allowed) in sets.iter_mut().zip([allowed as u32, (allowed >> 32) as u32]) {
        set[0] = set[1] & allowed;
    }
    call(libc::SYS_capset, [at, sets.as_ptr() as i64, 0, 0, 0, 0])
}

/// Before a call by a thread in a user name space: holds the capabilities that its recorded thread used, or none if the call
/// was `denied`. A call that these allowed there, they allow here. `creates`: it may set set-ID bits; `changes_root`: it needs
/// the right to.
pub(crate) fn hold_for(denied: bool, creates: bool, changes_root: bool) {
    let limits = LIMITS.get();
    if limits.may_hold == 0 {
        return;
    }
    let unless = |used: bool, right: u32| if used { 0 } else { right };
    let unused = unless(creates, KEEP_SET_IDS) | unless(changes_root, CHANGE_ROOT);
    let holds = if denied { 0 } else { limits.may_hold & OVER_FILES & !unused };
    if holds != limits.holds && make_effective(system_call, holds.into()) == 0 {
        LIMITS.set(Limits { holds, ..limits });
    }
}

/// Sets the ids of the calling thread by `call`. Its effective or saved user id must be root. libc's functions are not
/// used, because they change every thread of the process. Returns 0 or -errno.
pub(crate) fn take_on(call: SystemCall, words: Words, groups: Option<&[u8]>) -> i64 {
    const KEEP: i64 = -1;
    let [ruid, euid, fsuid, rgid, egid, fsgid, may_hold] = words;
    if LIMITS.take().may_hold != 0 {
        make_effective(call, u64::MAX);
    }
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
    let limited = if may_hold == 0 {
        0
    } else {
        let holds = may_hold & OVER_FILES & !(KEEP_SET_IDS | CHANGE_ROOT);
        LIMITS.set(Limits { may_hold, holds });
        make_effective(call, holds.into())
    };
    [groups, group, user, limited].into_iter().find(|ret| *ret < 0).unwrap_or(0)
}
