//! Calls through the 32-bit entry. On x86-64, i386's numbers and arguments are translated to those of the equivalent
//! 64-bit calls, so that rows have the same names and columns either way. On arm64 such calls are only counted.

use std::sync::LazyLock;

use ioreel_bpf::types::{call_desc, call_kind, call_user};

use super::{Call, Raw, all, numbered};

/// A call through the 32-bit entry.
pub struct Compat {
    /// Its number there.
    pub nr: usize,
    /// The equivalent 64-bit call; `None` if calls are only counted.
    pub call: Option<&'static Call>,
    /// Role of each argument of the i386 call.
    pub desc: call_desc,
    /// Converts i386's arguments to those of the 64-bit call.
    pub fix: fn(&mut Raw<'_>),
}

/// All known calls through the 32-bit entry.
pub fn compat() -> &'static [Compat] {
    static ALL: LazyLock<Vec<Compat>> = LazyLock::new(|| if cfg!(target_arch = "x86_64") { i386() } else { arm() });
    &ALL
}

/// Marks statfs64 in an argument that the call does not have, for the function that reads its result. No register of a
/// 32-bit program can hold this value.
pub(super) const WIDE_STATFS: i64 = 64 << 32;
/// Likewise for setgroups with 16-bit ids.
pub(super) const SHORT_GROUPS: i64 = 16 << 32;

/// From this number on, calls have the same number and fixed-width arguments on every architecture.
const UNIFIED: usize = 424;

/// A call whose arguments differ by more than the width of registers.
#[derive(Clone, Copy)]
struct Change {
    nr: usize,
    name: &'static str,
    fix: fn(&mut Raw<'_>),
    desc: fn(&mut call_desc),
}

fn same_args(_: &mut Raw<'_>) {}
fn same_desc(_: &mut call_desc) {}

fn long(r: &Raw<'_>, low: usize) -> i64 {
    (r.args[low] & 0xffff_ffff) | r.args[low + 1] << 32
}

fn signed(r: &mut Raw<'_>, i: usize) {
    r.args[i] = i64::from(r.args[i] as i32);
}

/// Extends 16-bit ids; -1 still means "unchanged".
fn short(r: &mut Raw<'_>, ids: &[usize]) {
    for i in ids {
        r.args[*i] = if r.args[*i] as u16 == u16::MAX { -1 } else { i64::from(r.args[*i] as u16) };
    }
}

/// User and group of chown and its variants.
fn short_ids(r: &mut Raw<'_>) {
    short(r, &[1, 2]);
}

/// Arguments of setuid and its variants.
fn short_users(r: &mut Raw<'_>) {
    short(r, &[0, 1, 2]);
}

/// Two times, each with 32-bit seconds and 32-bit nanoseconds or microseconds.
fn short_times(r: &mut Raw<'_>) {
    let [a, b, ..] = r.extra;
    // The second word is -1: null pointer.
    if b != -1 {
        let halves = |v: i64| [i64::from(v as i32), i64::from((v >> 32) as i32)];
        let ([s, n], [s2, n2]) = (halves(a), halves(b));
        r.extra = [s, n, s2, n2];
    }
}

fn sixteen_bytes(d: &mut call_desc) {
    d.user_kind = call_user::USER_UTIMBUF.0 as u8;
}

fn stat32(d: &mut call_desc) {
    d.user_kind = call_user::USER_STAT32.0 as u8;
}

fn stat64(d: &mut call_desc) {
    d.user_kind = call_user::USER_STAT64.0 as u8;
}

fn short_owner(d: &mut call_desc) {
    d.in_words = 2;
}

fn statfs64(d: &mut call_desc) {
    d.out = 3;
}

fn offset_at_3(r: &mut Raw<'_>) {
    r.args[3] = long(r, 3);
}

macro_rules! same {
    ($( $nr:literal $name:literal )*) => {
        /// Calls whose arguments are in the same places as those of the 64-bit call.
        const SAME: &[(usize, &str)] = &[ $( ($nr, $name), )* ];
    };
}

same! {
    3 "read" 4 "write" 5 "open" 6 "close" 8 "creat" 9 "link" 10 "unlink" 12 "chdir" 14 "mknod" 15 "chmod"
    21 "mount" 33 "access" 36 "sync" 38 "rename" 39 "mkdir" 40 "rmdir" 41 "dup" 52 "umount2" 54 "ioctl"
    55 "fcntl" 60 "umask" 61 "chroot" 62 "ustat" 63 "dup2" 83 "symlink" 85 "readlink" 87 "swapon" 91 "munmap"
    94 "fchmod" 99 "statfs" 100 "fstatfs" 115 "swapoff" 118 "fsync" 131 "quotactl" 133 "fchdir" 141 "getdents"
    143 "flock" 144 "msync" 145 "readv" 146 "writev" 148 "fdatasync" 163 "mremap" 183 "getcwd" 198 "lchown"
    203 "setreuid" 204 "setregid" 206 "setgroups" 208 "setresuid" 210 "setresgid" 213 "setuid" 214 "setgid" 215 "setfsuid" 216 "setfsgid"
    207 "fchown" 212 "chown" 217 "pivot_root" 218 "mincore" 219 "madvise" 220 "getdents64" 221 "fcntl"
    226 "setxattr" 227 "lsetxattr" 228 "fsetxattr" 229 "getxattr" 230 "lgetxattr" 231 "fgetxattr"
    232 "listxattr" 233 "llistxattr" 234 "flistxattr" 235 "removexattr" 236 "lremovexattr" 237 "fremovexattr"
    239 "sendfile" 257 "remap_file_pages" 295 "openat" 296 "mkdirat" 297 "mknodat" 298 "fchownat"
    301 "unlinkat" 302 "renameat" 303 "linkat" 304 "symlinkat" 305 "readlinkat" 306 "fchmodat" 307 "faccessat" 310 "unshare"
    313 "splice" 315 "tee" 316 "vmsplice" 330 "dup3" 341 "name_to_handle_at" 342 "open_by_handle_at"
    344 "syncfs" 346 "setns" 353 "renameat2" 356 "memfd_create" 361 "bind" 377 "copy_file_range" 383 "statx"
}

/// Calls whose arguments differ on i386.
const CHANGED: &[Change] = &[
    Change { nr: 16, name: "lchown", fix: short_ids, desc: short_owner },
    Change { nr: 23, name: "setuid", fix: short_users, desc: same_desc },
    Change { nr: 19, name: "lseek", fix: |r| signed(r, 1), desc: same_desc },
    // The old umount has no flags.
    Change { nr: 22, name: "umount2", fix: |r| r.args[1] = 0, desc: same_desc },
    Change { nr: 30, name: "utime", fix: short_utime, desc: same_desc },
    Change { nr: 46, name: "setgid", fix: short_users, desc: same_desc },
    Change { nr: 70, name: "setreuid", fix: short_users, desc: same_desc },
    Change { nr: 71, name: "setregid", fix: short_users, desc: same_desc },
    Change { nr: 138, name: "setfsuid", fix: short_users, desc: same_desc },
    Change { nr: 139, name: "setfsgid", fix: short_users, desc: same_desc },
    Change { nr: 164, name: "setresuid", fix: short_users, desc: same_desc },
    Change { nr: 170, name: "setresgid", fix: short_users, desc: same_desc },
    Change { nr: 81, name: "setgroups", fix: |r| r.args[5] = SHORT_GROUPS, desc: same_desc },
    Change { nr: 92, name: "truncate", fix: |r| signed(r, 1), desc: same_desc },
    Change { nr: 93, name: "ftruncate", fix: |r| signed(r, 1), desc: same_desc },
    Change { nr: 95, name: "fchown", fix: short_ids, desc: short_owner },
    Change { nr: 106, name: "stat", fix: same_args, desc: stat32 },
    Change { nr: 107, name: "lstat", fix: same_args, desc: stat32 },
    Change { nr: 108, name: "fstat", fix: same_args, desc: stat32 },
    Change { nr: 140, name: "lseek", fix: llseek, desc: same_desc },
    Change { nr: 180, name: "pread64", fix: offset_at_3, desc: same_desc },
    Change { nr: 181, name: "pwrite64", fix: offset_at_3, desc: same_desc },
    Change { nr: 182, name: "chown", fix: short_ids, desc: short_owner },
    Change { nr: 187, name: "sendfile", fix: same_args, desc: |d| d.user_kind = call_user::USER_OFFSETS32.0 as u8 },
    // The offset is in units of 4096 bytes, whatever the page size.
    Change { nr: 192, name: "mmap", fix: |r| r.args[5] <<= 12, desc: same_desc },
    Change { nr: 193, name: "truncate", fix: |r| r.args[1] = long(r, 1), desc: same_desc },
    Change { nr: 194, name: "ftruncate", fix: |r| r.args[1] = long(r, 1), desc: same_desc },
    Change { nr: 195, name: "stat", fix: same_args, desc: stat64 },
    Change { nr: 196, name: "lstat", fix: same_args, desc: stat64 },
    Change { nr: 197, name: "fstat", fix: same_args, desc: stat64 },
    Change { nr: 225, name: "readahead", fix: |r| (r.args[1], r.args[2]) = (long(r, 1), r.args[3]), desc: same_desc },
    Change {
        nr: 250,
        name: "fadvise64",
        fix: |r| (r.args[1], r.args[2], r.args[3]) = (long(r, 1), r.args[3], r.args[4]),
        desc: same_desc,
    },
    Change { nr: 268, name: "statfs", fix: |r| r.args[5] = WIDE_STATFS, desc: statfs64 },
    Change { nr: 269, name: "fstatfs", fix: |r| r.args[5] = WIDE_STATFS, desc: statfs64 },
    Change { nr: 271, name: "utimes", fix: short_times, desc: sixteen_bytes },
    Change {
        nr: 272,
        name: "fadvise64",
        fix: |r| (r.args[1], r.args[2], r.args[3]) = (long(r, 1), long(r, 3), r.args[5]),
        desc: same_desc,
    },
    Change { nr: 299, name: "futimesat", fix: short_times, desc: sixteen_bytes },
    Change { nr: 300, name: "newfstatat", fix: same_args, desc: stat64 },
    Change {
        nr: 314,
        name: "sync_file_range",
        fix: |r| (r.args[1], r.args[2], r.args[3]) = (long(r, 1), long(r, 3), r.args[5]),
        desc: same_desc,
    },
    Change { nr: 320, name: "utimensat", fix: short_times, desc: sixteen_bytes },
    Change { nr: 324, name: "fallocate", fix: |r| (r.args[2], r.args[3]) = (long(r, 2), long(r, 4)), desc: same_desc },
    Change { nr: 333, name: "preadv", fix: offset_at_3, desc: same_desc },
    Change { nr: 334, name: "pwritev", fix: offset_at_3, desc: same_desc },
    Change { nr: 378, name: "preadv2", fix: offset_at_3, desc: same_desc },
    // A 32-bit program's nanoseconds have 32 bits; the upper half of the word is arbitrary (kernel/time/time.c).
    Change { nr: 412, name: "utimensat", fix: narrow_nanoseconds, desc: same_desc },
    Change { nr: 379, name: "pwritev2", fix: offset_at_3, desc: same_desc },
];

/// Calls on files that are only counted: those with structs unused for decades (oldstat, readdir, the first mmap), and
/// Linux AIO, whose control blocks the probes read only in 64-bit form.
const COUNTED: &[usize] = &[18, 28, 84, 86, 89, 90, 245, 246, 247, 248, 249, 385, 416];

/// Calls on files of arm's EABI (arch/arm/tools/syscall.tbl), up to where numbers are the same everywhere.
#[rustfmt::skip]
const ARM: &[usize] = &[
    3, 4, 5, 6, 8, 9, 10, 12, 14, 15, 16, 19, 21, 23, 33, 36, 38, 39, 40, 41, 46, 52, 54, 55, 60, 61, 62, 63, 70, 71, 81,
    83, 85, 86, 87, 91, 92, 93, 94, 95, 99, 100, 106, 107, 108, 115, 118, 131, 133, 138, 139, 140, 141, 143, 144, 145, 146,
    148, 163, 164, 170, 180, 181, 182, 183, 187, 192, 193, 194, 195, 196, 197, 198, 203, 204, 206, 207, 208, 210, 212,
    213, 214, 215, 216, 217, 218, 219, 220, 221, 225, 226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 239,
    243, 244, 245, 246, 247, 253, 266, 267, 269, 270, 296, 297, 322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332,
    333, 334, 337, 340, 341, 342, 343, 348, 352, 358, 361, 362, 365, 370, 371, 373, 374, 375, 382, 385, 391, 392, 393,
    397, 399, 412, 416,
];

/// `struct utimbuf` with two 32-bit words, which arrived in one 64-bit word.
fn short_utime(r: &mut Raw<'_>) {
    let both = r.extra[0];
    (r.extra[0], r.extra[1]) = (i64::from(both as i32), i64::from((both >> 32) as i32));
}

/// Clears the upper halves of the nanoseconds of two timespecs with 64-bit seconds, unless the pointer was null.
fn narrow_nanoseconds(r: &mut Raw<'_>) {
    if r.extra[1] != -1 {
        r.extra[1] &= 0xffff_ffff;
        r.extra[3] &= 0xffff_ffff;
    }
}

/// The position comes in two halves; the new position is returned through a pointer.
fn llseek(r: &mut Raw<'_>) {
    (r.args[1], r.args[2]) = ((r.args[1] << 32) | (r.args[2] & 0xffff_ffff), r.args[4]);
    if r.ret == 0 {
        r.ret = r.pos.1;
    }
}

fn counted(nr: usize) -> Compat {
    let desc = call_desc { kind: call_kind::CALL_UNMAPPED.0 as u8, ..super::parts::PLAIN };
    Compat { nr, call: None, desc, fix: same_args }
}

fn arm() -> Vec<Compat> {
    let same = numbered().map(|(nr, _)| nr).filter(|nr| *nr >= UNIFIED);
    ARM.iter().copied().chain(same).map(counted).collect()
}

fn i386() -> Vec<Compat> {
    let find = |name: &str| all().find(|c| c.name == name);
    let mut out: Vec<Compat> = SAME
        .iter()
        .map(|(nr, name)| Change { nr: *nr, name, fix: same_args, desc: same_desc })
        .chain(CHANGED.iter().copied())
        .filter_map(|c| {
            let call = find(c.name)?;
            let mut desc = call.desc;
            narrow(&mut desc);
            (c.desc)(&mut desc);
            Some(Compat { nr: c.nr, call: Some(call), desc, fix: c.fix })
        })
        .collect();
    out.extend(numbered().filter(|(nr, _)| *nr >= UNIFIED).map(|(nr, call)| {
        let mut desc = call.desc;
        narrow(&mut desc);
        Compat { nr, call: Some(call), desc, fix: same_args }
    }));
    out.extend(COUNTED.iter().copied().map(counted));
    out
}

fn narrow(desc: &mut call_desc) {
    if u32::from(desc.user_kind) == call_user::USER_IOVEC.0 {
        desc.user_kind = call_user::USER_IOVEC32.0 as u8;
    }
}
