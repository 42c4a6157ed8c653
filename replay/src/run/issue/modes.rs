//! Replays chmod calls.

use std::mem::MaybeUninit;

use super::{
    arguments::Arguments,
    syscall::{call, close},
};
use crate::{Call, base::privileges::SET_ID_BITS};

/// Sets the recorded mode. `set_ids`: including the set-ID bits of files other than directories.
///
/// The set-group-ID bit of a directory determines the group of new entries and gives no rights, so it is always set.
/// The mode is set through the descriptor whose type was checked, since a name may refer to another file a moment
/// later.
pub(super) fn change(a: Arguments<'_>, set_ids: bool) -> i64 {
    let mode = i64::from(a.rec.mode);
    let bits = i64::from(SET_ID_BITS);
    if set_ids || mode & bits == 0 {
        return set(a, mode);
    }
    if let Some(ret) = set_of_directory(a, mode) { ret } else { set(a, mode & !bits) }
}

/// Issues the recorded call with this mode.
fn set(a: Arguments<'_>, mode: i64) -> i64 {
    match a.rec.call {
        Call::Fchmod => call(libc::SYS_fchmod, [a.fd, mode, 0, 0, 0, 0]),
        Call::Fchmodat2 => call(libc::SYS_fchmodat2, [a.fd, a.path, mode, a.rec.flags, 0, 0]),
        _ => call(libc::SYS_fchmodat, [a.fd, a.path, mode, 0, 0, 0]),
    }
}

/// Sets the mode if the call refers to a directory that can be opened. Otherwise `None`.
fn set_of_directory(a: Arguments<'_>, mode: i64) -> Option<i64> {
    let empty = a.rec.call == Call::Fchmodat2 && a.rec.flags & i64::from(libc::AT_EMPTY_PATH) != 0;
    if a.rec.call == Call::Fchmod || empty && is_empty(a.path) {
        return is_directory(a.fd).then(|| set(a, mode));
    }
    let no_follow = a.rec.call == Call::Fchmodat2 && a.rec.flags & i64::from(libc::AT_SYMLINK_NOFOLLOW) != 0;
    let follow = if no_follow { libc::O_NOFOLLOW } else { 0 };
    let flags = i64::from(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | follow);
    let fd = call(libc::SYS_openat, [a.fd, a.path, flags, 0, 0, 0]);
    if fd < 0 {
        return None;
    }
    let ret = call(libc::SYS_fchmod, [fd, mode, 0, 0, 0, 0]);
    close(fd);
    Some(ret)
}

fn is_empty(path: i64) -> bool {
    // SAFETY: a NUL-terminated string of the plan, or null.
    path == 0 || unsafe { *(path as *const libc::c_char) } == 0
}

fn is_directory(fd: i64) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills the struct. If it fails, the struct is zeros.
    let stat = unsafe {
        libc::fstat(fd as i32, stat.as_mut_ptr());
        stat.assume_init()
    };
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}
