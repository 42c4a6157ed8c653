//! Calls that need nothing but their arguments.

use std::mem::MaybeUninit;

use super::{
    arguments::Arguments,
    requests,
    syscall::{call, ioctl},
};
use crate::{
    Call,
    model::processes::clone,
    reel::{call::closes_on_exec, input::Rec},
};

/// Calls that take a path. `None` for others.
pub(super) fn on_names(a: Arguments<'_>) -> Option<i64> {
    let Arguments { rec: r, fd, fd2, path: p, path2: p2, .. } = a;
    let mode = i64::from(r.mode);
    Some(match r.call {
        Call::Stat | Call::Lstat | Call::Newfstatat | Call::Fstat | Call::Statx => stat(r, fd, p),
        Call::Access | Call::Faccessat => call(libc::SYS_faccessat, [fd, p, mode, 0, 0, 0]),
        Call::Faccessat2 => call(libc::SYS_faccessat2, [fd, p, mode, r.flags, 0, 0]),
        Call::Truncate => call(libc::SYS_truncate, [p, r.len_bytes, 0, 0, 0, 0]),
        Call::Mkdir | Call::Mkdirat => call(libc::SYS_mkdirat, [fd, p, mode, 0, 0, 0]),
        Call::Rmdir => call(libc::SYS_unlinkat, [fd, p, libc::AT_REMOVEDIR.into(), 0, 0, 0]),
        Call::Unlink => call(libc::SYS_unlinkat, [fd, p, 0, 0, 0, 0]),
        Call::Unlinkat => call(libc::SYS_unlinkat, [fd, p, r.flags, 0, 0, 0]),
        Call::Rename | Call::Renameat => call(libc::SYS_renameat2, [fd, p, fd2, p2, 0, 0]),
        Call::Renameat2 => call(libc::SYS_renameat2, [fd, p, fd2, p2, r.flags, 0]),
        Call::Link => call(libc::SYS_linkat, [fd, p, fd2, p2, 0, 0]),
        Call::Linkat => call(libc::SYS_linkat, [fd, p, fd2, p2, r.flags, 0]),
        Call::Symlink | Call::Symlinkat => call(libc::SYS_symlinkat, [p, fd2, p2, 0, 0, 0]),
        // The plan passes only nodes that may be created.
        Call::Mknod | Call::Mknodat => call(libc::SYS_mknodat, [fd, p, mode, r.aux, 0, 0]),
        Call::Chown => call(libc::SYS_fchownat, [fd, p, r.aux, r.aux2, 0, 0]),
        Call::Lchown => call(libc::SYS_fchownat, [fd, p, r.aux, r.aux2, libc::AT_SYMLINK_NOFOLLOW.into(), 0]),
        Call::Fchownat => call(libc::SYS_fchownat, [fd, p, r.aux, r.aux2, r.flags, 0]),
        Call::Utime | Call::Utimes | Call::Futimesat | Call::Utimensat => times(r, fd, p),
        Call::Chdir => call(libc::SYS_chdir, [p, 0, 0, 0, 0, 0]),
        Call::Chroot => call(libc::SYS_chroot, [p, 0, 0, 0, 0, 0]),
        Call::NameToHandleAt => requests::handle(a),
        _ => return None,
    })
}

/// Calls that take a descriptor, or act on the process or the file system. `None` for others.
pub(super) fn on_descriptors(a: Arguments<'_>) -> Option<i64> {
    let Arguments { rec: r, fd, offset, .. } = a;
    let mode = i64::from(r.mode);
    Some(match r.call {
        Call::Lseek => call(libc::SYS_lseek, [fd, r.aux, r.flags, 0, 0, 0]),
        Call::Fsync => call(libc::SYS_fsync, [fd, 0, 0, 0, 0, 0]),
        Call::Fdatasync => call(libc::SYS_fdatasync, [fd, 0, 0, 0, 0, 0]),
        Call::SyncFileRange => call(libc::SYS_sync_file_range, [fd, offset, r.len_bytes, r.flags, 0, 0]),
        Call::Ftruncate => call(libc::SYS_ftruncate, [fd, r.len_bytes, 0, 0, 0, 0]),
        Call::Fallocate => call(libc::SYS_fallocate, [fd, mode, offset, r.len_bytes, 0, 0]),
        Call::Fchown => call(libc::SYS_fchown, [fd, r.aux, r.aux2, 0, 0, 0]),
        Call::Umask => call(libc::SYS_umask, [mode, 0, 0, 0, 0, 0]),
        Call::Fchdir => call(libc::SYS_fchdir, [fd, 0, 0, 0, 0, 0]),
        // FIOCLEX and FIONCLEX. The plan closes descriptors at an exec: nothing is executed here.
        Call::SetFd if closes_on_exec(r.flags).is_some() => ioctl(fd, r.flags, 0),
        Call::SetFd => call(libc::SYS_fcntl, [fd, libc::F_SETFD.into(), r.aux, 0, 0, 0]),
        Call::SetFl => call(libc::SYS_fcntl, [fd, libc::F_SETFL.into(), r.aux, 0, 0, 0]),
        Call::Cachestat => requests::cached(a),
        Call::Sync => requests::sync_all(),
        // The descriptor table is unshared by another step, which also fills new cells.
        Call::Unshare => call(libc::SYS_unshare, [r.flags & clone::FS, 0, 0, 0, 0, 0]),
        Call::Fadvise64 => call(libc::SYS_fadvise64, [fd, offset, r.len_bytes, r.flags, 0, 0]),
        Call::Readahead => call(libc::SYS_readahead, [fd, offset, r.len_bytes, 0, 0, 0]),
        Call::Syncfs => call(libc::SYS_syncfs, [fd, 0, 0, 0, 0, 0]),
        Call::Statfs | Call::Fstatfs => {
            let mut out = MaybeUninit::<libc::statfs>::uninit();
            let at = out.as_mut_ptr() as i64;
            match r.call {
                Call::Statfs => call(libc::SYS_statfs, [a.path, at, 0, 0, 0, 0]),
                _ => call(libc::SYS_fstatfs, [fd, at, 0, 0, 0, 0]),
            }
        }
        _ => return None,
    })
}

fn stat(r: &Rec, fd: i64, path: i64) -> i64 {
    let mut out = MaybeUninit::<libc::statx>::uninit();
    let mut old = MaybeUninit::<libc::stat>::uninit();
    match r.call {
        Call::Statx => call(libc::SYS_statx, [fd, path, r.flags, r.aux, out.as_mut_ptr() as i64, 0]),
        Call::Fstat => call(libc::SYS_fstat, [fd, old.as_mut_ptr() as i64, 0, 0, 0, 0]),
        other => {
            let flags = match other {
                Call::Lstat => i64::from(libc::AT_SYMLINK_NOFOLLOW),
                Call::Newfstatat => r.flags,
                _ => 0,
            };
            call(libc::SYS_newfstatat, [fd, path, old.as_mut_ptr() as i64, flags, 0, 0])
        }
    }
}

/// Decodes a time in `aux` or `aux2`.
fn timespec(ns: i64) -> libc::timespec {
    match ns {
        i64::MIN => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        x if x == i64::MIN + 1 => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        _ => libc::timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) },
    }
}

fn times(r: &Rec, fd: i64, path: i64) -> i64 {
    let both = [timespec(r.aux), timespec(r.aux2)];
    let flags = if r.call == Call::Utimensat { r.flags } else { 0 };
    call(libc::SYS_utimensat, [fd, path, both.as_ptr() as i64, flags, 0, 0])
}
