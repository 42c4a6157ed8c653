//! Credentials of a thread: they decide who owns the files it creates, and what it may access.

use ioreel_traces::{rows::Op, text};

use super::{
    Raw,
    compat::SHORT_GROUPS,
    parts::{PLAIN, calls, input},
};

/// Number of group ids recorded. The list is read up to this limit, because its length is not in bytes.
const GROUP_WORDS: u8 = 32;

fn one(r: &Raw<'_>, op: &mut Op) {
    op.aux = Some(i64::from(r.int(0)));
}

fn two(r: &Raw<'_>, op: &mut Op) {
    one(r, op);
    op.aux2 = Some(i64::from(r.int(1)));
}

fn three(r: &Raw<'_>, op: &mut Op) {
    two(r, op);
    op.flags = Some(i64::from(r.int(2)));
}

fn groups(r: &Raw<'_>, op: &mut Op) {
    one(r, op);
    let short = r.is_compat() && r.args[5] == SHORT_GROUPS;
    let bytes = usize::try_from(r.int(0)).ok().and_then(|n| n.checked_mul(if short { 2 } else { 4 }));
    let Some(ids) = bytes.and_then(|n| r.input.get(..n)).filter(|ids| !ids.is_empty()) else { return };
    let wide = |ids: &[u8]| -> Vec<u8> { ids.chunks(2).flat_map(|id| [id, &[0, 0]].concat()).collect() };
    op.value = Some(if short { text::from_bytes(&wide(ids)) } else { text::from_bytes(ids) });
}

#[rustfmt::skip]
calls! {
    105 146 "setuid" PLAIN, false, one;
    106 144 "setgid" PLAIN, false, one;
    113 145 "setreuid" PLAIN, false, two;
    114 143 "setregid" PLAIN, false, two;
    117 147 "setresuid" PLAIN, false, three;
    119 149 "setresgid" PLAIN, false, three;
    122 151 "setfsuid" PLAIN, false, one;
    123 152 "setfsgid" PLAIN, false, one;
    116 159 "setgroups" input(PLAIN, 2, 0, GROUP_WORDS), false, groups;
}
