//! Predicates on recorded operations that depend on more than the call.

use crate::{Call, reel::input::Rec};

/// Creates, renames or removes a name, or tried to. An open counts if it may create or truncate.
pub(crate) fn changes_names(r: &Rec) -> bool {
    r.call.opens() && r.flags as i32 & (libc::O_CREAT | libc::O_TRUNC) != 0
        || r.call.renames()
        || r.call.links()
        || r.call.symlinks()
        || matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat)
        || matches!(r.call, Call::Unlink | Call::Unlinkat | Call::Rmdir)
        || r.call.concerns_all_below()
}

/// Changes mode, owner, extended attributes or flags of a file, or tried to.
pub(crate) fn alters(r: &Rec) -> bool {
    let call = r.call;
    call.changes_access() || call.sets_attribute() || call.removes_attribute() || call.sets_flags()
}

/// Changes nothing, whichever file its path leads to.
pub(crate) fn only_looks(r: &Rec) -> bool {
    let opens = r.call.opens() && r.call != Call::Creat && r.flags as i32 & (libc::O_CREAT | libc::O_TRUNC) == 0;
    let asks = matches!(r.call, Call::Access | Call::Faccessat | Call::Faccessat2 | Call::Readlink | Call::Readlinkat);
    opens || asks || r.call.stats() || r.call.gets_attribute() || r.call.lists_attributes()
}

/// Whether it reads or writes at the position of the open file description, and moves it.
pub(crate) fn moves_position(r: &Rec) -> bool {
    match r.call {
        Call::Read | Call::Readv | Call::Write | Call::Writev => true,
        Call::Preadv2 | Call::Pwritev2 => r.aux2 == 1,
        _ => false,
    }
}

/// Whether it failed with this error.
pub(crate) fn failed_with(r: &Rec, errno: i32) -> bool {
    r.ret == -i64::from(errno)
}

/// Whether it is a fallocate that removes or inserts a range, and so moves the data behind it.
pub(crate) fn shifts_data(r: &Rec) -> bool {
    r.call == Call::Fallocate && matches!(r.mode, libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE)
}

/// Whether it is a fallocate that failed after it may have lengthened its file: space or memory was used up, or a signal
/// came.
pub(crate) fn may_have_lengthened(r: &Rec) -> bool {
    const MIDWAY: [i32; 6] = [libc::ENOSPC, libc::EDQUOT, libc::EINTR, libc::ENOMEM, libc::EIO, libc::EFBIG];
    let lengthens = r.call == Call::Fallocate && matches!(r.mode, 0 | libc::FALLOC_FL_ZERO_RANGE);
    lengthens && (r.ret <= -512 || MIDWAY.iter().any(|e| failed_with(r, *e)))
}
