//! Replays calls that change the credentials of their thread.

use crate::{
    Call,
    base::ids::{Words, hold_for, take_on},
    plan::program::Range,
    reel::input::{NONE, Rec},
    run::issue::{stamp::without_call, syscall::call},
};

/// Replays a recorded call that changed the ids of its thread.
pub(crate) fn become_again(r: &Rec, groups: &[u8]) -> i64 {
    if r.ret < 0 {
        // The call was refused in the recording. It is not issued, because the replaying thread, whose saved user id is
        // root, would be allowed to do it.
        return without_call(r.ret);
    }
    let ids = [r.aux, r.aux2, r.offset_bytes, r.offset2_bytes, r.len_bytes, r.flags, r.mode.into()];
    let ids = ids.map(|id| id as u32);
    match take_on(call, ids, (r.call == Call::Setgroups).then_some(if r.value == NONE { &[] } else { groups })) {
        // Some of these calls return the previous id.
        0 => r.ret,
        failed => failed,
    }
}

/// Before an operation of a thread in a user name space: see [`hold_for`].
pub(crate) fn ready_for(r: &Rec) {
    let denied = [libc::EACCES, libc::EPERM].iter().any(|e| r.ret == -i64::from(*e));
    let makes = matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat) || r.call.chmods();
    hold_for(denied, makes || r.call.opens() && r.aux & 1 != 0, r.call == Call::Chroot);
}

/// The ids in a list of a chunk.
pub(crate) fn of_list(list: Range, lists: &[u32]) -> Option<Words> {
    list.of(lists).try_into().ok()
}
