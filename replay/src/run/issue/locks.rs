//! Replays file locks. No lock call blocks: the plan issues it after conflicting locks are released. If it is refused
//! nevertheless, that is a different result instead of a deadlock.

use std::ptr;

use super::syscall::call;
use crate::{
    Call,
    model::locks::{HeldLock, Owner},
    reel::input::Rec,
};

/// Takes a lock that was held at the start. Returns the result of the call.
pub(crate) fn hold(fd: i32, held: &HeldLock) -> i64 {
    let fd = i64::from(fd);
    let command = match held.owner {
        Owner::Flock(_) => {
            let how = if held.exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
            return call(libc::SYS_flock, [fd, i64::from(how | libc::LOCK_NB), 0, 0, 0, 0]);
        }
        Owner::Ofd(_) => libc::F_OFD_SETLK,
        Owner::Table(_) => libc::F_SETLK,
    };
    let mut lock = libc::flock {
        l_type: if held.exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: held.from,
        l_len: if held.to == i64::MAX { 0 } else { held.to - held.from },
        l_pid: 0,
    };
    call(libc::SYS_fcntl, [fd, command.into(), ptr::from_mut(&mut lock) as i64, 0, 0, 0])
}

/// Issues a lock call on a descriptor.
pub(super) fn lock(r: &Rec, fd: i64) -> i64 {
    if r.call == Call::Flock {
        return call(libc::SYS_flock, [fd, r.flags | i64::from(libc::LOCK_NB), 0, 0, 0, 0]);
    }
    let command = match r.call {
        Call::GetLk => libc::F_GETLK,
        Call::OfdGetLk => libc::F_OFD_GETLK,
        Call::OfdSetLk | Call::OfdSetLkw => libc::F_OFD_SETLK,
        _ => libc::F_SETLK,
    };
    let mut lock = libc::flock {
        l_type: r.mode as i16,
        l_whence: r.aux2 as i16,
        l_start: if r.offset_bytes == crate::reel::input::NO_ID { 0 } else { r.offset_bytes },
        l_len: r.len_bytes,
        l_pid: 0,
    };
    call(libc::SYS_fcntl, [fd, command.into(), ptr::from_mut(&mut lock) as i64, 0, 0, 0])
}
