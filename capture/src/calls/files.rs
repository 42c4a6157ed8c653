//! Data and names: the calls that every program makes.

use ioreel_bpf::types::{call_desc, call_kind, call_user, op_flags};
use ioreel_traces::rows::Op;
use libc::{c_long, *};

use super::{
    Raw,
    parts::{AT, FD, OPEN, PATH, PLAIN, VMA, calls, nothing, user},
};

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

pub(super) fn two_offsets(r: &Raw<'_>, op: &mut Op) {
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
    SYS_sync "sync" PLAIN, false, nothing;
    SYS_syncfs "syncfs" FD, false, nothing;
    SYS_readahead "readahead" FD, false, |r, op| {
        op.offset_bytes = Some(r.args[1]);
        op.len_bytes = Some(r.args[2]);
    };
    SYS_fadvise64 "fadvise64" FD, false, |r, op| {
        op.offset_bytes = Some(r.args[1]);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
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
    SYS_chdir "chdir" PATH, false, nothing;
    SYS_fchdir "fchdir" FD, false, nothing;
    SYS_copy_file_range "copy_file_range" user(call_desc { fd: 1, fd2: 3, ..PLAIN }, call_user::USER_OFFSETS, 2, 4), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[4]);
        op.flags = Some(i64::from(r.int(5)));
    };
    SYS_splice "splice" user(call_desc { fd: 1, fd2: 3, ..PLAIN }, call_user::USER_OFFSETS, 2, 4), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[4]);
        op.flags = Some(i64::from(r.int(5)));
    };
    SYS_tee "tee" call_desc { fd: 1, fd2: 2, ..PLAIN }, false, |r, op| {
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_vmsplice "vmsplice" user(FD, call_user::USER_IOVEC, 2, 3), false, |r, op| {
        vector(r, op);
        op.flags = Some(i64::from(r.int(3)));
        op.offset_bytes = None;
    };
    SYS_sendfile "sendfile" user(call_desc { fd: 2, fd2: 1, ..PLAIN }, call_user::USER_OFFSETS, 3, 0), true, |r, op| {
        two_offsets(r, op);
        op.len_bytes = Some(r.args[3]);
    };
    SYS_io_uring_setup "io_uring_setup" call_desc { kind: call_kind::CALL_URING_SETUP.0 as u8, ..PLAIN }, false, nothing;
    SYS_io_uring_enter "io_uring_enter" call_desc { kind: call_kind::CALL_URING.0 as u8, user: 4, user2: 4, ..FD }, false, |r, op| {
        op.aux = Some(i64::from(r.int(1)));
        op.aux2 = Some(i64::from(r.int(2)));
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_io_uring_register "io_uring_register" call_desc { kind: call_kind::CALL_URING.0 as u8, user: 2, user2: 31, ..FD }, false, |r, op| {
        op.aux = Some(r.args[1] & 0x7fff_ffff);
        op.aux2 = Some(i64::from(r.int(3)));
        op.flags = Some(r.args[1] & 0x8000_0000);
    };
    SYS_mmap "mmap" call_desc { kind: call_kind::CALL_MMAP.0 as u8, fd: 5, ..PLAIN }, true, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.mode = Some(r.int(2));
        op.flags = Some(i64::from(r.int(3)));
        op.offset_bytes = Some(r.args[5]);
    };
    SYS_munmap "munmap" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
    };
    SYS_msync "msync" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
    };
    SYS_mremap "mremap" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.aux2 = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_madvise "madvise" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.flags = Some(i64::from(r.int(2)));
    };
    SYS_process_madvise "process_madvise" user(FD, call_user::USER_IOVEC, 2, 3), false, |r, op| {
        vector(r, op);
        op.offset_bytes = None;
        op.flags = Some(i64::from(r.int(3)));
        op.aux2 = Some(r.args[4] & 0xffff_ffff);
    };
    SYS_mincore "mincore" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
    };
    SYS_remap_file_pages "remap_file_pages" VMA, false, |r, op| {
        op.aux = Some(r.args[0]);
        op.len_bytes = Some(r.args[1]);
        op.offset_bytes = Some(r.args[3].saturating_mul(PAGE_BYTES));
        op.flags = Some(i64::from(r.int(4)));
    };
}

/// libc has no name for it on every platform.
const SYS_FCHMODAT2: c_long = 452;
/// x86's.
const PAGE_BYTES: i64 = 4096;
