//! Replays calls that change the credentials of their thread.

use crate::{
    Call,
    base::ids::{Words, take_on},
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
    let ids = [r.aux, r.aux2, r.offset_bytes, r.offset2_bytes, r.len_bytes, r.flags].map(|id| id as u32);
    match take_on(call, ids, (r.call == Call::Setgroups).then_some(if r.value == NONE { &[] } else { groups })) {
        // Some of these calls return the previous id.
        0 => r.ret,
        failed => failed,
    }
}

/// The ids in a list of a chunk.
pub(crate) fn of_list(list: Range, lists: &[u32]) -> Option<Words> {
    list.of(lists).try_into().ok()
}
