//! Constants and macros that the call tables are written with.

use ioreel_bpf::types::{call_desc, call_kind, call_user};

/// A call with no roles.
pub(super) const PLAIN: call_desc = call_desc {
    kind: call_kind::CALL_PLAIN.0 as u8,
    fd: 0,
    fd2: 0,
    dirfd: 0,
    dirfd2: 0,
    path: 0,
    path2: 0,
    user_kind: 0,
    user: 0,
    user2: 0,
    name: 0,
    r#in: 0,
    in_len: 0,
    in_words: 0,
    out: 0,
    out_words: 0,
    unwanted: 0,
    data: 0,
    context: 0,
    memory: 0,
    tail: 0,
};
/// A call whose result is a new open file description.
pub(super) const OPEN: call_desc = kind(PLAIN, call_kind::CALL_OPEN);
/// A call on the descriptor in argument 1.
pub(super) const FD: call_desc = call_desc { fd: 1, ..PLAIN };
/// A call on the path in argument 1.
pub(super) const PATH: call_desc = call_desc { path: 1, ..PLAIN };
/// A call on a path (argument 2) relative to a directory descriptor (argument 1).
pub(super) const AT: call_desc = call_desc { dirfd: 1, path: 2, ..PLAIN };
/// A call on a mapped address.
pub(super) const VMA: call_desc = kind(PLAIN, call_kind::CALL_VMA);

/// Changes the kind.
pub(super) const fn kind(desc: call_desc, kind: call_kind) -> call_desc {
    call_desc { kind: kind.0 as u8, ..desc }
}

/// Argument `arg` points to a struct of this kind; `arg2` is the argument that belongs to it.
pub(super) const fn user(desc: call_desc, kind: call_user, arg: u8, arg2: u8) -> call_desc {
    call_desc { user_kind: kind.0 as u8, user: arg, user2: arg2, ..desc }
}

/// Argument `arg` is a string that is not a path.
pub(super) const fn name(desc: call_desc, arg: u8) -> call_desc {
    call_desc { name: arg, ..desc }
}

/// Argument `arg` points to at most `words` 8-byte words that the kernel reads; argument `len`, if not 0, holds their
/// length in bytes. With 0 words it points to a string.
pub(super) const fn input(desc: call_desc, arg: u8, len: u8, words: u8) -> call_desc {
    call_desc { r#in: arg, in_len: len, in_words: words, ..desc }
}

/// Argument `arg` points to `words` 8-byte words that the kernel writes.
pub(super) const fn output(desc: call_desc, arg: u8, words: u8) -> call_desc {
    call_desc { out: arg, out_words: words, ..desc }
}

/// One line per call: its number on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), its number in the generic table
/// (asm-generic/unistd.h, scripts/syscall.tbl), `-` where there is none, then the call.
macro_rules! calls {
    ($( $x86_64:tt $generic:tt $name:literal $desc:expr, $modifies:literal, $fill:expr; )*) => {
        /// Calls of this group.
        pub(super) const CALLS: &[super::Call] = &[
            $( super::Call {
                numbers: [super::parts::number!($x86_64), super::parts::number!($generic)],
                name: $name,
                desc: $desc,
                modifies: $modifies,
                fill: $fill,
            }, )*
        ];
    };
}

macro_rules! number {
    (-) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}
pub(super) use calls;
pub(super) use number;

/// A call that gives a file the user in argument `arg` and the group in the next one.
pub(super) const fn owner(desc: call_desc, arg: u8) -> call_desc {
    call_desc { user: arg, user2: arg + 1, ..kind(desc, call_kind::CALL_OWNER) }
}

/// For calls whose `desc` determines all columns.
pub(super) fn nothing(_: &super::Raw<'_>, _: &mut ioreel_traces::rows::Op) {}

/// Reads little-endian integers from recorded memory; `None` beyond its end.
pub(super) mod word {
    pub(in super::super) fn u16(bytes: &[u8], at: usize) -> Option<i64> {
        Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
    }

    pub(in super::super) fn u32(bytes: &[u8], at: usize) -> Option<i64> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?).into())
    }

    pub(in super::super) fn i32(bytes: &[u8], at: usize) -> Option<i64> {
        Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?).into())
    }

    pub(in super::super) fn i64(bytes: &[u8], at: usize) -> Option<i64> {
        Some(i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    }
}
