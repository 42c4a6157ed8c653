//! Credentials of a thread: they decide who owns the files it creates, and what it may access.

use ioreel_bpf::types::{call_desc, call_kind, kernel_ids};
use ioreel_traces::{Text, rows::Op, text};

use super::{
    Raw,
    compat::SHORT_GROUPS,
    parts::{PLAIN, calls, input, kind, word},
};

/// Number of group ids recorded. The list is read up to this limit, because its length is not in bytes.
const GROUP_WORDS: u8 = 32;

/// A call that changes ids of its thread.
const IDS: call_desc = kind(PLAIN, call_kind::CALL_IDS);

/// Ids of the initial user name space as signed numbers, as in `aux`: -1 for none. `None` in the initial name space.
pub(super) fn listed(ids: &[u8]) -> Option<Text> {
    let ids: Vec<String> = (0..ids.len() / 4).filter_map(|i| Some(word::i32(ids, i * 4)?.to_string())).collect();
    (!ids.is_empty()).then(|| ids.join(",").into())
}

fn one(r: &Raw<'_>, op: &mut Op) {
    op.aux = Some(i64::from(r.int(0)));
    // After the capabilities, the record has the ids in the order of the column.
    if let Some(known) = r.output.get(..size_of::<kernel_ids>())
        && let (Some(capabilities), Some(ids)) = (word::i64(known, 0), listed(&known[8..]))
    {
        op.value = Some(format!("{ids},{capabilities:#x}").into());
    }
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
    op.aux = Some(i64::from(r.int(0)));
    if !r.output.is_empty() {
        op.aux2 = Some(1);
        // One byte stands for more than the probe stores.
        op.value = r.output.len().is_multiple_of(4).then(|| text::from_bytes(r.output));
        return;
    }
    let short = r.is_compat() && r.args[5] == SHORT_GROUPS;
    let bytes = usize::try_from(r.int(0)).ok().and_then(|n| n.checked_mul(if short { 2 } else { 4 }));
    let Some(ids) = bytes.and_then(|n| r.input.get(..n)).filter(|ids| !ids.is_empty()) else { return };
    let wide = |ids: &[u8]| -> Vec<u8> { ids.chunks(2).flat_map(|id| [id, &[0, 0]].concat()).collect() };
    op.value = Some(if short { text::from_bytes(&wide(ids)) } else { text::from_bytes(ids) });
}

#[rustfmt::skip]
calls! {
    105 146 "setuid" IDS, false, one;
    106 144 "setgid" IDS, false, one;
    113 145 "setreuid" IDS, false, two;
    114 143 "setregid" IDS, false, two;
    117 147 "setresuid" IDS, false, three;
    119 149 "setresgid" IDS, false, three;
    122 151 "setfsuid" IDS, false, one;
    123 152 "setfsgid" IDS, false, one;
    116 159 "setgroups" input(kind(PLAIN, call_kind::CALL_GROUPS), 2, 0, GROUP_WORDS), false, groups;
}
