//! The table of recorded system calls: which argument plays which part, and how arguments become columns.
//!
//! The kernel side is told the parts ([`Call::desc`]) and knows no call by name; everything a call means
//! is here, one line each. `docs/trace-format.md` tabulates the same for readers of reels.

use std::ops::Range;

use ioreel_bpf::types::{call_desc, call_kind, call_user, op_flags};
use ioreel_traces::rows::Op;
use libc::{c_long, *};

/// What a call brought, as far as filling columns needs it.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// Arguments as passed in registers.
    pub args: [i64; 6],
    /// User memory the call pointed to, by the call's `user` kind.
    pub extra: [i64; 4],
    /// Result or -errno.
    pub ret: i64,
    /// Bits of the wire format's `op_flags`.
    pub flags: u16,
    /// Position of the first file on entry and exit.
    pub pos: (i64, i64),
    /// Position of the second file on entry and exit.
    pub pos2: (i64, i64),
    /// What calls before this moved over through the same open file descriptions.
    pub moved: Moved<'a>,
    /// The same of the second file.
    pub moved2: Moved<'a>,
}

/// Latest ranges that calls moved over through one open file description since it was last positioned:
/// no other such call can have acted there.
pub type Moved<'a> = &'a [Range<i64>];

impl Raw<'_> {
    /// A 32-bit argument, sign-extended.
    fn int(&self, i: usize) -> i32 {
        self.args[i] as i32
    }

    fn extra_known(&self) -> bool {
        u32::from(self.flags) & op_flags::OPF_USER_FAULT.0 == 0
    }

    /// Where a call that uses the file's own position acted.
    ///
    /// Undisturbed, the position on exit is the one on entry plus what was moved. Otherwise the call was an
    /// append, or others moved the position too: one that was served while this one waited for its turn
    /// makes the entry stale, one that was served before this one's exit was seen makes the exit stale,
    /// and then the range before it is taken.
    fn current(pos: (i64, i64), ret: i64, taken: Moved<'_>) -> Option<i64> {
        let moved = ret.max(0);
        let at = pos.1 - moved;
        let free = |at: i64| !taken.iter().any(|t| t.start < at + moved && at < t.end);
        let at = if pos.0 + moved == pos.1 || moved == 0 || (!free(at) && free(pos.0)) { pos.0 } else { at };
        (at >= 0).then_some(at)
    }

    fn position(&self) -> Option<i64> {
        Self::current(self.pos, self.ret, self.moved)
    }

    fn position2(&self) -> Option<i64> {
        Self::current(self.pos2, self.ret, self.moved2)
    }
}

/// One recorded call.
#[derive(Clone, Copy)]
pub struct Call {
    /// Number on this architecture.
    pub nr: c_long,
    /// The kernel's name.
    pub name: &'static str,
    /// Parts, arguments counted from 1.
    pub desc: call_desc,
    /// Whether success changes the file system, so that settling has something to sync.
    pub modifies: bool,
    /// Fills the columns that the parts do not.
    pub fill: fn(&Raw<'_>, &mut Op),
}

const PLAIN: call_desc = call_desc {
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
    pad: [0; 6],
};
const OPEN: call_desc = call_desc { kind: call_kind::CALL_OPEN.0 as u8, ..PLAIN };
const FD: call_desc = call_desc { fd: 1, ..PLAIN };
const PATH: call_desc = call_desc { path: 1, ..PLAIN };
const AT: call_desc = call_desc { dirfd: 1, path: 2, ..PLAIN };

const fn user(desc: call_desc, kind: call_user, arg: u8, arg2: u8) -> call_desc {
    call_desc { user_kind: kind.0 as u8, user: arg, user2: arg2, ..desc }
}

macro_rules! calls {
    ($( $nr:ident $name:literal $desc:expr, $modifies:literal, $fill:expr; )*) => {
        /// Every recorded call.
        pub const CALLS: &[Call] = &[
            $( Call { nr: $nr, name: $name, desc: $desc, modifies: $modifies, fill: $fill }, )*
        ];
    };
}

fn nothing(_: &Raw<'_>, _: &mut Op) {}

fn transfer(r: &Raw<'_>, op: &mut Op) {
    op.len_bytes = Some(r.args[2]);
    op.offset_bytes = r.position();
}

fn transfer_at(r: &Raw<'_>, op: &mut Op) {
    op.len_bytes = Some(r.args[2]);
    op.offset_bytes = Some(r.args[3]);
}

/// Where a positioned write acted that `appends` whatever offset it names.
fn appended(r: &Raw<'_>, op: &mut Op, appends: bool) {
    if appends && u32::from(r.flags) & op_flags::OPF_AT_SIZE.0 != 0 {
        op.offset_bytes = Some(r.pos.1 - r.ret);
    }
}

fn append_only(r: &Raw<'_>) -> bool {
    u32::from(r.flags) & op_flags::OPF_APPEND.0 != 0
}

fn vector(r: &Raw<'_>, op: &mut Op) {
    op.len_bytes = r.extra_known().then_some(r.extra[0]);
    op.aux = Some(r.args[2]);
    op.offset_bytes = r.position();
}

fn vector_at(r: &Raw<'_>, op: &mut Op) {
    vector(r, op);
    op.offset_bytes = Some(r.args[3]);
}

fn vector_at2(r: &Raw<'_>, op: &mut Op) {
    vector_at(r, op);
    op.flags = Some(i64::from(r.int(5)));
    if r.args[3] == -1 {
        op.offset_bytes = r.position();
        op.aux2 = Some(1);
    }
}

fn opened(r: &Raw<'_>, op: &mut Op, flags: i64, mode: i64) {
    op.flags = Some(flags);
    // The kernel looks at the mode only when it may create something.
    if flags as c_int & (O_CREAT | O_TMPFILE & !O_DIRECTORY) != 0 {
        op.mode = Some(mode as i32);
    }
    if r.ret >= 0 {
        // The kernel does not mark a nameless file as created.
        let nameless = flags as c_int & O_TMPFILE == O_TMPFILE;
        op.aux = Some(i64::from(nameless || u32::from(r.flags) & op_flags::OPF_CREATED.0 != 0));
    }
}

fn stat(r: &Raw<'_>, op: &mut Op) {
    if r.ret == 0 && r.extra_known() {
        op.mode = Some(r.extra[0] as i32);
        op.len_bytes = Some(r.extra[1]);
    }
}

fn owner(r: &Raw<'_>, op: &mut Op, first: usize) {
    op.aux = Some(i64::from(r.int(first)));
    op.aux2 = Some(i64::from(r.int(first + 1)));
}

/// Column value of `UTIME_OMIT`.
pub const TIME_OMIT: i64 = i64::MIN;
/// Column value of `UTIME_NOW`, and of a null pointer.
pub const TIME_NOW: i64 = i64::MIN + 1;

fn times(r: &Raw<'_>, op: &mut Op, sub_ns: i64) {
    let at = |seconds: i64, sub: i64| match sub {
        _ if sub_ns == 1 && sub == UTIME_OMIT => TIME_OMIT,
        _ if sub_ns == 1 && sub == UTIME_NOW => TIME_NOW,
        _ => seconds.saturating_mul(1_000_000_000).saturating_add(sub.saturating_mul(sub_ns)),
    };
    if r.extra[1] == -1 {
        op.aux = Some(TIME_NOW);
        op.aux2 = Some(TIME_NOW);
    } else if r.extra_known() {
        op.aux = Some(at(r.extra[0], r.extra[1]));
        op.aux2 = Some(at(r.extra[2], r.extra[3]));
    }
}

fn utime(r: &Raw<'_>, op: &mut Op) {
    times(&Raw { extra: [r.extra[0], if r.args[1] == 0 { -1 } else { 0 }, r.extra[1], 0], ..*r }, op, 0);
}

fn two_offsets(r: &Raw<'_>, op: &mut Op) {
    let null = |bit: i64| r.extra[2] & bit != 0;
    op.offset_bytes = if null(1) { r.position() } else { r.extra_known().then_some(r.extra[0]) };
    op.offset2_bytes = if null(2) { r.position2() } else { r.extra_known().then_some(r.extra[1]) };
    op.aux = Some(r.extra[2] & 3);
}

#[rustfmt::skip]
calls! {
    SYS_open "open" call_desc { path: 1, ..OPEN }, true, |r, op| opened(r, op, i64::from(r.int(1)), r.args[2]);
    SYS_creat "creat" call_desc { path: 1, ..OPEN }, true, |r, op| opened(r, op, i64::from(O_CREAT | O_WRONLY | O_TRUNC), r.args[1]);
    SYS_openat "openat" call_desc { dirfd: 1, path: 2, ..OPEN }, true, |r, op| opened(r, op, i64::from(r.int(2)), r.args[3]);
    SYS_openat2 "openat2" user(call_desc { dirfd: 1, path: 2, ..OPEN }, call_user::USER_OPEN_HOW, 3, 0), true, |r, op| {
        if r.extra_known() {
            opened(r, op, r.extra[0], r.extra[1]);
            op.aux2 = Some(r.extra[2]);
        }
    };
    SYS_close "close" FD, false, nothing;
    SYS_close_range "close_range" PLAIN, false, |r, op| {
        op.fd = Some(r.int(0));
        op.fd2 = Some(r.int(1));
        op.flags = Some(i64::from(r.int(2)));
    };
    SYS_read "read" FD, false, transfer;
    SYS_write "write" FD, true, transfer;
    SYS_pread64 "pread64" FD, false, transfer_at;
    SYS_pwrite64 "pwrite64" FD, true, |r, op| {
        transfer_at(r, op);
        appended(r, op, append_only(r));
    };
    SYS_readv "readv" user(FD, call_user::USER_IOVEC, 2, 3), false, vector;
    SYS_writev "writev" user(FD, call_user::USER_IOVEC, 2, 3), true, vector;
    SYS_preadv "preadv" user(FD, call_user::USER_IOVEC, 2, 3), false, vector_at;
    SYS_pwritev "pwritev" user(FD, call_user::USER_IOVEC, 2, 3), true, |r, op| {
        vector_at(r, op);
        appended(r, op, append_only(r));
    };
    SYS_preadv2 "preadv2" user(FD, call_user::USER_IOVEC, 2, 3), false, vector_at2;
    SYS_pwritev2 "pwritev2" user(FD, call_user::USER_IOVEC, 2, 3), true, |r, op| {
        vector_at2(r, op);
        appended(r, op, append_only(r) || r.int(5) & RWF_APPEND != 0);
    };
    SYS_lseek "lseek" FD, false, |r, op| {
        op.aux = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
        op.offset_bytes = Some(r.pos.0);
    };
    SYS_fsync "fsync" FD, false, nothing;
    SYS_fdatasync "fdatasync" FD, false, nothing;
    SYS_sync_file_range "sync_file_range" FD, false, |r, op| {
        op.offset_bytes = Some(r.args[1]);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_truncate "truncate" PATH, true, |r, op| op.len_bytes = Some(r.args[1]);
    SYS_ftruncate "ftruncate" FD, true, |r, op| op.len_bytes = Some(r.args[1]);
    SYS_fallocate "fallocate" FD, true, |r, op| {
        op.mode = Some(r.int(1));
        op.offset_bytes = Some(r.args[2]);
        op.len_bytes = Some(r.args[3]);
    };
    SYS_stat "stat" user(PATH, call_user::USER_STAT, 2, 0), false, stat;
    SYS_lstat "lstat" user(PATH, call_user::USER_STAT, 2, 0), false, stat;
    SYS_fstat "fstat" user(FD, call_user::USER_STAT, 2, 0), false, stat;
    SYS_newfstatat "newfstatat" user(AT, call_user::USER_STAT, 3, 0), false, |r, op| {
        stat(r, op);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_statx "statx" user(AT, call_user::USER_STATX, 5, 0), false, |r, op| {
        stat(r, op);
        op.flags = Some(i64::from(r.int(2)));
        op.aux = Some(i64::from(r.int(3)));
    };
    SYS_access "access" PATH, false, |r, op| op.mode = Some(r.int(1));
    SYS_faccessat "faccessat" AT, false, |r, op| op.mode = Some(r.int(2));
    SYS_faccessat2 "faccessat2" AT, false, |r, op| {
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_getdents "getdents" FD, false, |r, op| {
        op.len_bytes = Some(i64::from(r.int(2)));
        op.offset_bytes = Some(r.pos.0);
    };
    SYS_getdents64 "getdents64" FD, false, |r, op| {
        op.len_bytes = Some(i64::from(r.int(2)));
        op.offset_bytes = Some(r.pos.0);
    };
    SYS_readlink "readlink" PATH, false, |r, op| op.len_bytes = Some(i64::from(r.int(2)));
    SYS_readlinkat "readlinkat" AT, false, |r, op| op.len_bytes = Some(i64::from(r.int(3)));
    SYS_mkdir "mkdir" PATH, true, |r, op| op.mode = Some(r.int(1));
    SYS_mkdirat "mkdirat" AT, true, |r, op| op.mode = Some(r.int(2));
    SYS_rmdir "rmdir" PATH, true, nothing;
    SYS_unlink "unlink" PATH, true, nothing;
    SYS_unlinkat "unlinkat" AT, true, |r, op| op.flags = Some(i64::from(r.int(2)));
    SYS_rename "rename" call_desc { path: 1, path2: 2, ..PLAIN }, true, nothing;
    SYS_renameat "renameat" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, true, nothing;
    SYS_renameat2 "renameat2" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, true, |r, op| op.flags = Some(i64::from(r.int(4)));
    SYS_link "link" call_desc { path: 1, path2: 2, ..PLAIN }, true, nothing;
    SYS_linkat "linkat" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, true, |r, op| op.flags = Some(i64::from(r.int(4)));
    SYS_symlink "symlink" call_desc { path: 1, path2: 2, ..PLAIN }, true, nothing;
    SYS_symlinkat "symlinkat" call_desc { path: 1, dirfd2: 2, path2: 3, ..PLAIN }, true, nothing;
    SYS_mknod "mknod" PATH, true, |r, op| {
        op.mode = Some(r.int(1));
        op.aux = Some(r.args[2]);
    };
    SYS_mknodat "mknodat" AT, true, |r, op| {
        op.mode = Some(r.int(2));
        op.aux = Some(r.args[3]);
    };
    SYS_chmod "chmod" PATH, true, |r, op| op.mode = Some(r.int(1));
    SYS_fchmod "fchmod" FD, true, |r, op| op.mode = Some(r.int(1));
    SYS_fchmodat "fchmodat" AT, true, |r, op| op.mode = Some(r.int(2));
    SYS_FCHMODAT2 "fchmodat2" AT, true, |r, op| {
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_chown "chown" PATH, true, |r, op| owner(r, op, 1);
    SYS_lchown "lchown" PATH, true, |r, op| owner(r, op, 1);
    SYS_fchown "fchown" FD, true, |r, op| owner(r, op, 1);
    SYS_fchownat "fchownat" AT, true, |r, op| {
        owner(r, op, 2);
        op.flags = Some(i64::from(r.int(4)));
    };
    SYS_utime "utime" user(PATH, call_user::USER_UTIMBUF, 2, 0), true, utime;
    SYS_utimes "utimes" user(PATH, call_user::USER_TIMEVAL, 2, 0), true, |r, op| times(r, op, 1_000);
    SYS_futimesat "futimesat" user(AT, call_user::USER_TIMEVAL, 3, 0), true, |r, op| times(r, op, 1_000);
    SYS_utimensat "utimensat" user(AT, call_user::USER_TIMESPEC, 3, 0), true, |r, op| {
        times(r, op, 1);
        op.flags = Some(i64::from(r.int(3)));
        // futimens: no path, the descriptor itself.
        if r.args[1] == 0 {
            op.fd = Some(r.int(0));
        }
    };
    SYS_umask "umask" PLAIN, false, |r, op| op.mode = Some(r.int(0));
    SYS_dup "dup" FD, false, nothing;
    SYS_dup2 "dup2" call_desc { fd: 1, fd2: 2, ..PLAIN }, false, nothing;
    SYS_dup3 "dup3" call_desc { fd: 1, fd2: 2, ..PLAIN }, false, |r, op| op.flags = Some(i64::from(r.int(2)));
    SYS_fcntl "fcntl" call_desc { kind: call_kind::CALL_FCNTL_DUP.0 as u8, ..FD }, false, |r, op| {
        op.flags = Some(i64::from(r.int(1)));
        op.aux = Some(r.args[2]);
    };
    SYS_chdir "chdir" PATH, false, nothing;
    SYS_fchdir "fchdir" FD, false, nothing;
    SYS_copy_file_range "copy_file_range" user(call_desc { fd: 1, fd2: 3, ..PLAIN }, call_user::USER_OFFSETS, 2, 4), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[4]);
        op.flags = Some(i64::from(r.int(5)));
    };
    SYS_sendfile "sendfile" user(call_desc { fd: 2, fd2: 1, ..PLAIN }, call_user::USER_OFFSETS, 3, 0), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[3]);
    };
    SYS_mmap "mmap" call_desc { kind: call_kind::CALL_MMAP.0 as u8, fd: 5, ..PLAIN }, true, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
        op.offset_bytes = Some(r.args[5]);
    };
    SYS_munmap "munmap" call_desc { kind: call_kind::CALL_VMA.0 as u8, ..PLAIN }, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
    };
    SYS_msync "msync" call_desc { kind: call_kind::CALL_VMA.0 as u8, ..PLAIN }, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
    };
}

/// libc has no name for it on every platform.
const SYS_FCHMODAT2: c_long = 452;

/// Whether the operation's result, if it succeeded, is a new descriptor.
pub(crate) fn makes_descriptor(call: &Call, op: &Op) -> bool {
    let kind = u32::from(call.desc.kind);
    kind == call_kind::CALL_OPEN.0 || kind == call_kind::CALL_FCNTL_DUP.0 || matches!(&*op.op, "dup" | "dup2" | "dup3")
}

/// The kernel's table, by number.
pub fn descriptors() -> Vec<(usize, call_desc)> {
    let clone = call_desc { kind: call_kind::CALL_CLONE.0 as u8, ..PLAIN };
    CALLS.iter().map(|c| (c.nr as usize, c.desc)).chain([(SYS_ioctl as usize, clone)]).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn raw(args: [i64; 6]) -> Raw<'static> {
        Raw { args, extra: [0; 4], ret: 0, flags: 0, pos: (0, 0), pos2: (0, 0), moved: &[], moved2: &[] }
    }

    fn fill(name: &str, r: &Raw<'_>) -> Op {
        let mut op = Op::default();
        (CALLS.iter().find(|c| c.name == name).unwrap().fill)(r, &mut op);
        op
    }

    #[test]
    fn every_call_stands_once() {
        let mut numbers: Vec<_> = CALLS.iter().map(|c| c.nr).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), CALLS.len());
        assert!(numbers.iter().all(|n| (0..512).contains(n)));
    }

    #[test]
    fn plain_reads_and_appends_get_their_true_position() {
        let read = Raw { ret: 10, pos: (100, 110), ..raw([3, 0, 64, 0, 0, 0]) };
        assert_eq!(fill("read", &read).offset_bytes, Some(100));
        let append = Raw { ret: 50, pos: (0, 150), ..raw([3, 0, 50, 0, 0, 0]) };
        assert_eq!(
            fill("write", &append).offset_bytes,
            Some(100),
            "an append acts at the end, not at the old position"
        );
        let failed = Raw { ret: -9, pos: (7, 7), ..raw([3, 0, 50, 0, 0, 0]) };
        assert_eq!(fill("write", &failed).offset_bytes, Some(7));
        let pipe = Raw { ret: 50, pos: (0, 0), ..raw([3, 0, 50, 0, 0, 0]) };
        assert_eq!(fill("write", &pipe).offset_bytes, None, "a pipe has no position");
    }

    #[test]
    fn calls_that_wait_for_each_other_get_their_own_ranges() {
        // A and B enter at 0; A is served first, but is seen to return only after B.
        let b = Raw { ret: 50, pos: (0, 150), ..raw([3, 0, 50, 0, 0, 0]) };
        assert_eq!(fill("write", &b).offset_bytes, Some(100));
        let a = Raw { ret: 100, pos: (0, 150), moved: std::slice::from_ref(&(100..150)), ..raw([3, 0, 100, 0, 0, 0]) };
        assert_eq!(fill("write", &a).offset_bytes, Some(0));
    }

    #[test]
    fn preadv2_with_minus_one_uses_the_file_position() {
        let r = Raw { ret: 4, pos: (20, 24), extra: [4, 0, 0, 0], ..raw([3, 0, 1, -1, 0, 8]) };
        let op = fill("preadv2", &r);
        assert_eq!((op.offset_bytes, op.aux2, op.flags, op.len_bytes), (Some(20), Some(1), Some(8), Some(4)));
    }

    #[test]
    fn times_keep_their_special_values() {
        let r = Raw { extra: [1, 5, 2, UTIME_OMIT], ..raw([-100, 1, 1, 0, 0, 0]) };
        let op = fill("utimensat", &r);
        assert_eq!((op.aux, op.aux2), (Some(1_000_000_005), Some(TIME_OMIT)));
        let null = Raw { extra: [0, -1, 0, 0], ..raw([-100, 1, 0, 0, 0, 0]) };
        assert_eq!(fill("utimensat", &null).aux2, Some(TIME_NOW));
        let old = Raw { extra: [3, 4, 0, 0], ..raw([1, 1, 0, 0, 0, 0]) };
        assert_eq!((fill("utime", &old).aux, fill("utime", &old).aux2), (Some(3_000_000_000), Some(4_000_000_000)));
    }

    #[test]
    fn the_creation_mode_counts_only_where_something_may_be_created() {
        let r = raw([-100, 1, i64::from(O_RDONLY), 0o7777, 0, 0]);
        assert_eq!(fill("openat", &r).mode, None);
        let r = raw([-100, 1, i64::from(O_CREAT), 0o640, 0, 0]);
        assert_eq!(fill("openat", &r).mode, Some(0o640));
    }
}
