//! What kind of operation a record is, where that depends on more than its call.

use crate::{Call, reel::input::Rec};

/// Makes, moves or takes away a name, or would have.
pub(crate) fn changes_names(r: &Rec) -> bool {
    r.call.opens() && r.flags as i32 & (libc::O_CREAT | libc::O_TRUNC) != 0
        || r.call.renames()
        || r.call.links()
        || r.call.symlinks()
        || matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat)
        || matches!(r.call, Call::Unlink | Call::Unlinkat | Call::Rmdir)
}

/// Changes nothing wherever it leads.
pub(crate) fn only_looks(r: &Rec) -> bool {
    let opens = r.call.opens() && r.call != Call::Creat && r.flags as i32 & (libc::O_CREAT | libc::O_TRUNC) == 0;
    let asks = matches!(r.call, Call::Access | Call::Faccessat | Call::Faccessat2 | Call::Readlink | Call::Readlinkat);
    opens || asks || r.call.stats() || r.call.gets_attribute() || r.call.lists_attributes()
}

/// Whether the call reads or writes at the description's own position and moves it.
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
