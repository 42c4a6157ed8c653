//! Locks, and fcntl on descriptors.

use ioreel_bpf::types::{call_desc, call_kind};
use ioreel_traces::rows::Op;
use libc::*;

use super::{
    Raw,
    parts::{FD, PLAIN, calls, kind, nothing, word},
};

#[rustfmt::skip]
calls! {
    32 23 "dup" FD, false, nothing;
    33 - "dup2" call_desc { fd: 1, fd2: 2, ..PLAIN }, false, nothing;
    292 24 "dup3" call_desc { fd: 1, fd2: 2, ..PLAIN }, false, |r, op| op.flags = Some(i64::from(r.int(2)));
    438 438 "pidfd_getfd" kind(PLAIN, call_kind::CALL_FD), false, |r, op| {
        op.fd = Some(r.int(0));
        op.fd2 = Some(r.int(1));
        op.flags = Some(i64::from(r.int(2)));
    };
    308 268 "setns" FD, false, |r, op| op.flags = Some(i64::from(r.int(1)));
    272 97 "unshare" PLAIN, false, |r, op| op.flags = Some(r.args[0] & 0xffff_ffff);
    73 32 "flock" FD, false, |r, op| op.flags = Some(i64::from(r.int(1)));
    72 25 "fcntl" kind(FD, call_kind::CALL_FCNTL), false, fcntl;
    46 211 "sendmsg" kind(FD, call_kind::CALL_MSG), false, message;
    47 212 "recvmsg" call_desc { out: 2, ..kind(FD, call_kind::CALL_MSG) }, false, message;
    307 269 "sendmmsg" call_desc { user2: 2, ..kind(FD, call_kind::CALL_MSG) }, false, messages;
    299 243 "recvmmsg" call_desc { user2: 2, out: 2, ..kind(FD, call_kind::CALL_MSG) }, false, messages;
}

/// Recorded commands of fcntl.
pub const COMMANDS: [(&str, c_int); 14] = [
    ("F_DUPFD", F_DUPFD),
    ("F_DUPFD_CLOEXEC", F_DUPFD_CLOEXEC),
    ("F_SETFD", F_SETFD),
    ("F_SETFL", F_SETFL),
    ("F_GETLK", F_GETLK),
    ("F_SETLK", F_SETLK),
    ("F_SETLKW", F_SETLKW),
    ("F_OFD_GETLK", F_OFD_GETLK),
    ("F_OFD_SETLK", F_OFD_SETLK),
    ("F_OFD_SETLKW", F_OFD_SETLKW),
    ("F_SETLEASE", F_SETLEASE),
    ("F_NOTIFY", F_NOTIFY),
    ("F_ADD_SEALS", F_ADD_SEALS),
    ("F_SET_RW_HINT", 1036),
];

fn message(r: &Raw<'_>, op: &mut Op) {
    op.flags = Some(i64::from(r.int(2)));
    op.aux = r.extra_known().then_some(r.extra[0]);
}

fn messages(r: &Raw<'_>, op: &mut Op) {
    op.flags = Some(i64::from(r.int(3)));
    op.aux = r.extra_known().then_some(r.extra[0]);
    op.aux2 = Some(i64::from(r.int(2)));
}

/// Commands of i386's fcntl64 that take a `struct flock64`; they are recorded as the plain commands.
const F_GETLK64: c_int = 12;
const F_SETLKW64: c_int = 14;

/// A byte-range lock as the caller's struct describes it.
#[derive(Debug, PartialEq, Eq)]
struct Lock {
    kind: i64,
    whence: i64,
    start: i64,
    len: i64,
}

/// Layout of the lock struct.
#[derive(Clone, Copy)]
enum Layout {
    /// 64-bit, with natural alignment.
    Wide,
    /// i386's `struct flock64`, which aligns 64-bit members to 4.
    Packed,
    /// i386's `struct flock`.
    Narrow,
}

fn lock(bytes: &[u8], layout: Layout) -> Option<Lock> {
    let signed = |v: i64| v as i16;
    let (start, len) = match layout {
        Layout::Wide => (word::i64(bytes, 8)?, word::i64(bytes, 16)?),
        Layout::Packed => (word::i64(bytes, 4)?, word::i64(bytes, 12)?),
        Layout::Narrow => (word::i32(bytes, 4)?, word::i32(bytes, 8)?),
    };
    let (kind, whence) = (signed(word::u16(bytes, 0)?), signed(word::u16(bytes, 2)?));
    Some(Lock { kind: kind.into(), whence: whence.into(), start, len })
}

fn fcntl(r: &Raw<'_>, op: &mut Op) {
    let given = r.int(1);
    let narrow = r.is_compat() && (F_GETLK..=F_SETLKW).contains(&given);
    let command = match given {
        F_GETLK64..=F_SETLKW64 if r.is_compat() => given - F_GETLK64 + F_GETLK,
        other => other,
    };
    op.flags = Some(command.into());
    if !matches!(command, F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW) {
        op.aux = Some(r.args[2]);
        return;
    }
    let layout = match (narrow, r.is_compat()) {
        (true, _) => Layout::Narrow,
        (_, true) => Layout::Packed,
        _ => Layout::Wide,
    };
    if let Some(asked) = lock(r.input, layout) {
        op.mode = Some(asked.kind as i32);
        op.aux2 = Some(asked.whence);
        op.offset_bytes = Some(asked.start);
        op.len_bytes = Some(asked.len);
    }
    op.aux = lock(r.output, layout).map(|found| found.kind);
}
