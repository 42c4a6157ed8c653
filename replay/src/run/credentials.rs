//! Recorded calls that change the ids of their thread, issued again.

use crate::{
    Call,
    base::ids::{Words, take_on},
    plan::program::Range,
    reel::input::{NONE, Rec},
    run::issue::{stamp::without_call, syscall::call},
};

/// A recorded call that made its thread somebody else.
pub(crate) fn become_again(r: &Rec, groups: &[u8]) -> i64 {
    if r.ret < 0 {
        // Refused to whom the thread here may be: root, at heart.
        return without_call(r.ret);
    }
    let ids = [r.aux, r.aux2, r.offset_bytes, r.offset2_bytes, r.len_bytes, r.flags].map(|id| id as u32);
    match take_on(call, ids, (r.call == Call::Setgroups).then_some(if r.value == NONE { &[] } else { groups })) {
        // The old id, of those that tell it.
        0 => r.ret,
        failed => failed,
    }
}

/// The words of a list in a piece of a program.
pub(crate) fn of_list(list: Range, lists: &[u32]) -> Option<Words> {
    list.of(lists).try_into().ok()
}
