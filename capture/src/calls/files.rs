//! Calls on data and names of files.

use ioreel_bpf::types::{call_desc, call_kind, call_user, op_flags};
use ioreel_traces::{rows::Op, text};
use libc::*;

use super::{
    Raw, appends,
    parts::{AT, FD, OPEN, PATH, PLAIN, VMA, calls, kind, nothing, owner, user},
    users::listed,
};

fn transfer(r: &Raw<'_>, op: &mut Op) {
    op.len_bytes = Some(r.args[2]);
    op.offset_bytes = r.position();
}

fn transfer_at(r: &Raw<'_>, op: &mut Op) {
    op.len_bytes = Some(r.args[2]);
    op.offset_bytes = Some(r.args[3]);
}

/// Offset of a positioned write that goes to the end of the file whatever offset it names.
fn appended(r: &Raw<'_>, op: &mut Op, appends: bool) {
    if appends && u32::from(r.flags) & op_flags::OPF_AT_SIZE.0 != 0 {
        op.offset_bytes = Some(r.pos.1 - r.ret);
    }
}

fn append_only(r: &Raw<'_>) -> bool {
    u32::from(r.flags) & op_flags::OPF_APPEND.0 != 0
}

pub(super) fn vector(r: &Raw<'_>, op: &mut Op) {
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
    // The kernel uses the mode only if the call may create a file.
    if flags as c_int & (O_CREAT | O_TMPFILE & !O_DIRECTORY) != 0 {
        op.mode = Some(mode as i32);
    }
    if r.ret >= 0 {
        // The kernel does not set FMODE_CREATED for O_TMPFILE.
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

/// The path of `struct sockaddr_un` need not end with a zero: the length of the address counts.
fn bound(r: &Raw<'_>, op: &mut Op) {
    const FAMILY_BYTES: i64 = 2;
    if r.has(op_flags::OPF_MIDWAY) {
        // What was read is the address, not the path in it.
        op.path = None;
    }
    let most = usize::try_from(i64::from(r.int(2)) - FAMILY_BYTES).unwrap_or(0);
    if let Some(path) = op.path.as_ref().map(|p| text::to_bytes(p)).filter(|p| p.len() > most) {
        op.path = Some(text::from_bytes(&path[..most]));
    }
}

fn owners(r: &Raw<'_>, op: &mut Op, first: usize) {
    op.aux = Some(i64::from(r.int(first)));
    op.aux2 = Some(i64::from(r.int(first + 1)));
    op.value = listed(r.output);
}

/// Value of the time columns for `UTIME_OMIT`.
pub const TIME_OMIT: i64 = i64::MIN;
/// Value of the time columns for `UTIME_NOW`, and for a null pointer.
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

/// Size of the first version of `struct open_how` (uapi/linux/openat2.h, OPEN_HOW_SIZE_VER0).
const OPEN_HOW_BYTES: i64 = 24;

pub(super) fn two_offsets(r: &Raw<'_>, op: &mut Op) {
    let null = |bit: i64| r.extra[2] & bit != 0;
    op.offset_bytes = if null(1) { r.position() } else { r.extra_known().then_some(r.extra[0]) };
    op.offset2_bytes = if null(2) { r.position2() } else { r.extra_known().then_some(r.extra[1]) };
    op.aux = Some(r.extra[2] & 3);
}

#[rustfmt::skip]
calls! {
    2 - "open" call_desc { path: 1, ..OPEN }, true, |r, op| opened(r, op, i64::from(r.int(1)), r.args[2]);
    85 - "creat" call_desc { path: 1, ..OPEN }, true, |r, op| opened(r, op, i64::from(O_CREAT | O_WRONLY | O_TRUNC), r.args[1]);
    257 56 "openat" call_desc { dirfd: 1, path: 2, ..OPEN }, true, |r, op| opened(r, op, i64::from(r.int(2)), r.args[3]);
    437 437 "openat2" user(call_desc { dirfd: 1, path: 2, ..OPEN }, call_user::USER_OPEN_HOW, 3, 0), true, |r, op| {
        // The kernel rejects a smaller struct with EINVAL without reading it.
        if r.extra_known() && r.args[3] >= OPEN_HOW_BYTES {
            opened(r, op, r.extra[0], r.extra[1]);
            op.aux2 = Some(r.extra[2]);
        }
    };
    3 57 "close" FD, false, nothing;
    436 436 "close_range" PLAIN, false, |r, op| {
        op.fd = Some(r.int(0));
        op.fd2 = Some(r.int(1));
        op.flags = Some(i64::from(r.int(2)));
    };
    0 63 "read" FD, false, transfer;
    1 64 "write" FD, true, transfer;
    17 67 "pread64" FD, false, transfer_at;
    18 68 "pwrite64" FD, true, |r, op| {
        transfer_at(r, op);
        appended(r, op, append_only(r));
    };
    19 65 "readv" user(FD, call_user::USER_IOVEC, 2, 3), false, vector;
    20 66 "writev" user(FD, call_user::USER_IOVEC, 2, 3), true, vector;
    295 69 "preadv" user(FD, call_user::USER_IOVEC, 2, 3), false, vector_at;
    296 70 "pwritev" user(FD, call_user::USER_IOVEC, 2, 3), true, |r, op| {
        vector_at(r, op);
        appended(r, op, append_only(r));
    };
    327 286 "preadv2" user(FD, call_user::USER_IOVEC, 2, 3), false, vector_at2;
    328 287 "pwritev2" user(FD, call_user::USER_IOVEC, 2, 3), true, |r, op| {
        vector_at2(r, op);
        appended(r, op, appends(append_only(r), r.int(5).into()));
    };
    8 62 "lseek" FD, false, |r, op| {
        op.aux = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
        op.offset_bytes = Some(r.pos.0);
    };
    74 82 "fsync" FD, false, nothing;
    75 83 "fdatasync" FD, false, nothing;
    162 81 "sync" PLAIN, false, nothing;
    306 267 "syncfs" FD, false, nothing;
    187 213 "readahead" FD, false, |r, op| {
        op.offset_bytes = Some(r.args[1]);
        op.len_bytes = Some(r.args[2]);
    };
    221 223 "fadvise64" FD, false, |r, op| {
        op.offset_bytes = Some(r.args[1]);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    277 84 "sync_file_range" FD, false, |r, op| {
        op.offset_bytes = Some(r.args[1]);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    76 45 "truncate" PATH, true, |r, op| op.len_bytes = Some(r.args[1]);
    77 46 "ftruncate" FD, true, |r, op| op.len_bytes = Some(r.args[1]);
    285 47 "fallocate" FD, true, |r, op| {
        op.mode = Some(r.int(1));
        op.offset_bytes = Some(r.args[2]);
        op.len_bytes = Some(r.args[3]);
    };
    4 - "stat" user(PATH, call_user::USER_STAT, 2, 0), false, stat;
    6 - "lstat" user(PATH, call_user::USER_STAT, 2, 0), false, stat;
    5 80 "fstat" user(FD, call_user::USER_STAT, 2, 0), false, stat;
    262 79 "newfstatat" user(AT, call_user::USER_STAT, 3, 0), false, |r, op| {
        stat(r, op);
        op.flags = Some(i64::from(r.int(3)));
    };
    332 291 "statx" user(AT, call_user::USER_STATX, 5, 0), false, |r, op| {
        stat(r, op);
        op.flags = Some(i64::from(r.int(2)));
        op.aux = Some(i64::from(r.int(3)));
    };
    21 - "access" PATH, false, |r, op| op.mode = Some(r.int(1));
    269 48 "faccessat" AT, false, |r, op| op.mode = Some(r.int(2));
    439 439 "faccessat2" AT, false, |r, op| {
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
    };
    78 - "getdents" FD, false, |r, op| {
        op.len_bytes = Some(i64::from(r.int(2)));
        op.offset_bytes = Some(r.pos.0);
    };
    217 61 "getdents64" FD, false, |r, op| {
        op.len_bytes = Some(i64::from(r.int(2)));
        op.offset_bytes = Some(r.pos.0);
    };
    89 - "readlink" PATH, false, |r, op| op.len_bytes = Some(i64::from(r.int(2)));
    267 78 "readlinkat" AT, false, |r, op| op.len_bytes = Some(i64::from(r.int(3)));
    83 - "mkdir" PATH, true, |r, op| op.mode = Some(r.int(1));
    258 34 "mkdirat" AT, true, |r, op| op.mode = Some(r.int(2));
    84 - "rmdir" PATH, true, nothing;
    87 - "unlink" PATH, true, nothing;
    263 35 "unlinkat" AT, true, |r, op| op.flags = Some(i64::from(r.int(2)));
    82 - "rename" call_desc { path: 1, path2: 2, ..PLAIN }, true, nothing;
    264 38 "renameat" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, true, nothing;
    316 276 "renameat2" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, true, |r, op| op.flags = Some(i64::from(r.int(4)));
    86 - "link" call_desc { path: 1, path2: 2, ..PLAIN }, true, nothing;
    265 37 "linkat" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, true, |r, op| op.flags = Some(i64::from(r.int(4)));
    88 - "symlink" call_desc { path: 1, path2: 2, ..PLAIN }, true, nothing;
    266 36 "symlinkat" call_desc { path: 1, dirfd2: 2, path2: 3, ..PLAIN }, true, nothing;
    133 - "mknod" PATH, true, |r, op| {
        op.mode = Some(r.int(1));
        op.aux = Some(r.args[2]);
    };
    49 200 "bind" kind(call_desc { fd: 1, path: 2, ..PLAIN }, call_kind::CALL_BIND), true, bound;
    259 33 "mknodat" AT, true, |r, op| {
        op.mode = Some(r.int(2));
        op.aux = Some(r.args[3]);
    };
    90 - "chmod" PATH, true, |r, op| op.mode = Some(r.int(1));
    91 52 "fchmod" FD, true, |r, op| op.mode = Some(r.int(1));
    268 53 "fchmodat" AT, true, |r, op| op.mode = Some(r.int(2));
    452 452 "fchmodat2" AT, true, |r, op| {
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
    };
    92 - "chown" owner(PATH, 2), true, |r, op| owners(r, op, 1);
    94 - "lchown" owner(PATH, 2), true, |r, op| owners(r, op, 1);
    93 55 "fchown" owner(FD, 2), true, |r, op| owners(r, op, 1);
    260 54 "fchownat" owner(AT, 3), true, |r, op| {
        owners(r, op, 2);
        op.flags = Some(i64::from(r.int(4)));
    };
    132 - "utime" user(PATH, call_user::USER_UTIMBUF, 2, 0), true, utime;
    235 - "utimes" user(PATH, call_user::USER_TIMEVAL, 2, 0), true, |r, op| times(r, op, 1_000);
    261 - "futimesat" user(AT, call_user::USER_TIMEVAL, 3, 0), true, |r, op| times(r, op, 1_000);
    280 88 "utimensat" user(AT, call_user::USER_TIMESPEC, 3, 0), true, |r, op| {
        times(r, op, 1);
        op.flags = Some(i64::from(r.int(3)));
        // futimens: without a path, the descriptor itself is meant.
        if r.args[1] == 0 {
            op.fd = Some(r.int(0));
        }
    };
    95 166 "umask" PLAIN, false, |r, op| op.mode = Some(r.int(0));
    80 49 "chdir" PATH, false, nothing;
    81 50 "fchdir" FD, false, nothing;
    326 285 "copy_file_range" user(call_desc { fd: 1, fd2: 3, ..PLAIN }, call_user::USER_OFFSETS, 2, 4), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[4]);
        op.flags = Some(i64::from(r.int(5)));
    };
    275 76 "splice" user(call_desc { fd: 1, fd2: 3, ..PLAIN }, call_user::USER_OFFSETS, 2, 4), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[4]);
        op.flags = Some(i64::from(r.int(5)));
    };
    276 77 "tee" call_desc { fd: 1, fd2: 2, ..PLAIN }, false, |r, op| {
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    278 75 "vmsplice" user(FD, call_user::USER_IOVEC, 2, 3), false, |r, op| {
        vector(r, op);
        op.flags = Some(i64::from(r.int(3)));
        op.offset_bytes = None;
    };
    40 71 "sendfile" user(call_desc { fd: 2, fd2: 1, ..PLAIN }, call_user::USER_OFFSETS, 3, 0), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[3]);
    };
    425 425 "io_uring_setup" call_desc { kind: call_kind::CALL_URING_SETUP.0 as u8, ..PLAIN }, false, nothing;
    426 426 "io_uring_enter" call_desc { kind: call_kind::CALL_URING.0 as u8, user: 4, user2: 4, ..FD }, false, |r, op| {
        op.aux = Some(i64::from(r.int(1)));
        op.aux2 = Some(i64::from(r.int(2)));
        op.flags = Some(i64::from(r.int(3)));
    };
    427 427 "io_uring_register" call_desc { kind: call_kind::CALL_URING.0 as u8, user: 2, user2: 31, ..FD }, false, |r, op| {
        op.aux = Some(r.args[1] & 0x7fff_ffff);
        op.aux2 = Some(i64::from(r.int(3)));
        op.flags = Some(r.args[1] & 0x8000_0000);
    };
    9 222 "mmap" call_desc { kind: call_kind::CALL_MMAP.0 as u8, fd: 5, ..PLAIN }, true, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
        op.offset_bytes = Some(r.args[5]);
    };
    11 215 "munmap" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
    };
    26 227 "msync" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
    };
    25 216 "mremap" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.aux2 = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    28 233 "madvise" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
    };
    440 440 "process_madvise" user(FD, call_user::USER_IOVEC, 2, 3), false, |r, op| {
        vector(r, op);
        op.offset_bytes = None;
        op.flags = Some(i64::from(r.int(3)));
        op.aux2 = Some(r.args[4] & 0xffff_ffff);
    };
    27 232 "mincore" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
    };
    216 234 "remap_file_pages" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.offset_bytes = Some(r.args[3].saturating_mul(rustix::param::page_size() as i64));
        op.flags = Some(i64::from(r.int(4)));
    };
}
