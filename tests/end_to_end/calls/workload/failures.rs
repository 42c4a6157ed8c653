//! Calls that fail, each in a known way.

use super::{
    caller::{Caller, Open, P},
    fails, ok,
};

const CWD: i32 = libc::AT_FDCWD;
/// A number that is never open here.
const CLOSED: i32 = 987;

/// All of them, in folder `home` as [`super::catalogue`] leaves it.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let dir = c.open(home, libc::O_RDONLY | libc::O_DIRECTORY, 0, false);
    let reading = c.open(format!("{home}/copy"), libc::O_RDONLY, 0, false);
    let writing = c.open(format!("{home}/copy"), libc::O_WRONLY, 0, false);
    opens(c, home, &dir);
    descriptors(c, &dir, &reading, &writing);
    names(c, home, &dir);
    for open in [&dir, &reading, &writing] {
        ok(c.close(open));
    }
}

fn opens(c: &mut Caller, home: &str, dir: &Open) {
    let missing = format!("{home}/missing{}", c.thread);
    fails(c.open(missing.as_str(), libc::O_RDWR, 0, false).ret(), libc::ENOENT);
    fails(c.open(format!("{home}/copy/below"), libc::O_RDONLY, 0, false).ret(), libc::ENOTDIR);
    fails(c.open(home, libc::O_WRONLY, 0, false).ret(), libc::EISDIR);
    fails(c.open(P::null(), libc::O_RDONLY, 0, false).ret(), libc::EFAULT);
    fails(c.openat(dir.fd, "copy", libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o655, false).ret(), libc::EEXIST);
    fails(c.openat(dir.fd, "soft2", libc::O_RDONLY | libc::O_NOFOLLOW, 0, false).ret(), libc::ELOOP);
    fails(c.openat(CLOSED, "copy", libc::O_RDONLY, 0, false).ret(), libc::EBADF);
    fails(c.openat(dir.fd, "n".repeat(256), libc::O_RDONLY, 0, false).ret(), libc::ENAMETOOLONG);
    fails(c.openat(dir.fd, "", libc::O_RDONLY, 0, false).ret(), libc::ENOENT);
    fails(c.openat2(dir.fd, "../up", (libc::O_RDONLY, 0), libc::RESOLVE_BENEATH, false).ret(), libc::EXDEV);
    fails(c.openat2(dir.fd, "soft2", (libc::O_RDWR, 0), libc::RESOLVE_NO_SYMLINKS, false).ret(), libc::ELOOP);
    fails(c.openat2(dir.fd, "copy", (libc::O_RDONLY, 0), 1 << 40, false).ret(), libc::EINVAL);
    fails(c.creat(format!("{home}/no/where"), 0o666, false).ret(), libc::ENOENT);
}

fn descriptors(c: &mut Caller, dir: &Open, reading: &Open, writing: &Open) {
    let bad = Open::bad(CLOSED);
    let n = 10 + c.thread as usize;
    for f in [&bad, writing] {
        fails(c.read(f, n), libc::EBADF);
        fails(c.readv(f, &[n, n + 1]), libc::EBADF);
        fails(c.pread(f, n + 2, 3), libc::EBADF);
    }
    for f in [&bad, reading] {
        fails(c.write(f, &vec![b'x'; n + 3]), libc::EBADF);
        fails(c.pwrite(f, n + 4, 5), libc::EBADF);
    }
    fails(c.read(dir, n + 5), libc::EISDIR);
    fails(c.write_from_nowhere(writing, n + 6), libc::EFAULT);
    fails(c.pread(reading, n + 7, -1), libc::EINVAL);
    fails(c.writev_at(writing, std::ptr::null(), -1, None), libc::EINVAL);
    fails(c.writev_at(writing, 0x10 as *const u8, 2, None), libc::EFAULT);
    fails(c.preadv2(reading, &[n], 0, 1 << 30), libc::EOPNOTSUPP);
    fails(c.lseek(reading, -5, libc::SEEK_SET), libc::EINVAL);
    fails(c.lseek(reading, 1, 99), libc::EINVAL);
    fails(c.lseek(&bad, 1, libc::SEEK_SET), libc::EBADF);
    fails(c.on_fd(libc::SYS_fsync, "fsync", &bad), libc::EBADF);
    fails(c.on_fd(libc::SYS_fdatasync, "fdatasync", &bad), libc::EBADF);
    fails(c.sync_file_range(reading, 0, 1, 1 << 20), libc::EINVAL);
    fails(c.ftruncate(reading, 11), libc::EINVAL);
    fails(c.ftruncate(writing, -12), libc::EINVAL);
    fails(c.fallocate(writing, 0, 0, 0), libc::EINVAL);
    fails(c.fallocate(reading, 0, 0, 13), libc::EBADF);
    fails(c.close(&bad), libc::EBADF);
    fails(c.close_range(9, 8, 0), libc::EINVAL);
    fails(c.dup(&bad).ret(), libc::EBADF);
    fails(c.dup2(&bad, 7).ret(), libc::EBADF);
    fails(c.dup2(reading, -1).ret(), libc::EBADF);
    fails(c.dup3(reading, reading.fd, 0).ret(), libc::EINVAL);
    fails(c.fcntl_dup(reading, libc::F_DUPFD, i32::MAX).ret(), libc::EINVAL);
    fails(c.on_fd(libc::SYS_fchdir, "fchdir", reading), libc::ENOTDIR);
    fails(c.on_fd(libc::SYS_fchdir, "fchdir", &bad), libc::EBADF);
    fails(c.getdents(libc::SYS_getdents64, "getdents64", reading, 14), libc::ENOTDIR);
    assert!(c.fstat(&bad).is_none());
    fails(c.fchmod(&bad, 0o700), libc::EBADF);
    fails(c.fchown(&bad, 1, 2), libc::EBADF);
    fails(c.copy_file_range((reading, Some(1)), (&bad, Some(2)), 15, 0), libc::EBADF);
    fails(c.copy_file_range((reading, Some(3)), (writing, Some(4)), 16, 1), libc::EINVAL);
    fails(c.copy_file_range((writing, Some(5)), (writing, Some(6)), 17, 0), libc::EBADF);
    fails(c.sendfile((&bad, None), writing, 18), libc::EBADF);
    fails(c.sendfile((reading, Some(7)), reading, 19), libc::EBADF);
    fails(c.mmap(&bad, 4096, libc::PROT_READ, libc::MAP_SHARED, 0), libc::EBADF);
    fails(c.mmap(reading, 4096, libc::PROT_WRITE, libc::MAP_SHARED, 0), libc::EACCES);
    fails(c.mmap(reading, 4096, libc::PROT_READ, libc::MAP_SHARED, 12), libc::EINVAL);
}

fn names(c: &mut Caller, home: &str, dir: &Open) {
    let d = dir.fd;
    let at = |name: &str| format!("{home}/{name}");
    fails(c.stat(libc::SYS_stat, "stat", at("missing")), libc::ENOENT);
    fails(c.stat(libc::SYS_lstat, "lstat", at("copy/below")), libc::ENOTDIR);
    fails(c.newfstatat(d, "missing", 0), libc::ENOENT);
    fails(c.newfstatat(d, "copy", 1), libc::EINVAL);
    fails(c.statx(d, "missing", 0, libc::STATX_SIZE), libc::ENOENT);
    fails(c.statx(d, "copy", libc::AT_STATX_SYNC_TYPE, libc::STATX_SIZE), libc::EINVAL);
    fails(c.access(at("missing"), libc::R_OK), libc::ENOENT);
    fails(c.access(at("copy"), 64), libc::EINVAL);
    fails(c.access(at("copy"), libc::X_OK), libc::EACCES);
    fails(c.faccessat(d, "missing", libc::W_OK), libc::ENOENT);
    fails(c.faccessat2(d, "copy", libc::F_OK, 1), libc::EINVAL);
    fails(c.readlink(at("copy"), 21), libc::EINVAL);
    fails(c.readlinkat(d, "missing", 22), libc::ENOENT);
    fails(c.truncate(home, 23), libc::EISDIR);
    fails(c.truncate(at("missing"), 24), libc::ENOENT);
    fails(c.with_mode(libc::SYS_mkdir, "mkdir", at("sub"), 0o700), libc::EEXIST);
    fails(c.with_mode_at(libc::SYS_mkdirat, "mkdirat", d, "no/where", 0o701), libc::ENOENT);
    fails(c.on_path(libc::SYS_rmdir, "rmdir", home), libc::ENOTEMPTY);
    fails(c.on_path(libc::SYS_rmdir, "rmdir", at("copy")), libc::ENOTDIR);
    fails(c.on_path(libc::SYS_unlink, "unlink", at("missing")), libc::ENOENT);
    fails(c.on_path(libc::SYS_unlink, "unlink", at("sub")), libc::EISDIR);
    fails(c.unlinkat(d, "copy", 1), libc::EINVAL);
    fails(c.unlinkat(d, "copy", libc::AT_REMOVEDIR), libc::ENOTDIR);
    fails(c.mknod(at("copy"), libc::S_IFREG | 0o600, 0), libc::EEXIST);
    fails(c.mknodat(d, "no/where", libc::S_IFIFO | 0o600, 0), libc::ENOENT);
    fails(c.two_paths(libc::SYS_rename, "rename", at("missing"), at("other")), libc::ENOENT);
    fails(c.two_paths(libc::SYS_rename, "rename", at("sub"), at("sub/inside")), libc::EINVAL);
    fails(c.two_paths(libc::SYS_rename, "rename", at("copy"), at("sub")), libc::EISDIR);
    fails(c.renameat((d, "sub"), (d, "copy")), libc::ENOTDIR);
    let noreplace = libc::RENAME_NOREPLACE as i32;
    fails(c.two_at_flags(libc::SYS_renameat2, "renameat2", (d, "copy"), (d, "b"), noreplace), libc::EEXIST);
    fails(c.two_at_flags(libc::SYS_renameat2, "renameat2", (d, "copy"), (d, "b"), 3), libc::EINVAL);
    fails(c.two_paths(libc::SYS_link, "link", at("copy"), at("b")), libc::EEXIST);
    fails(c.two_paths(libc::SYS_link, "link", at("sub"), at("linked")), libc::EPERM);
    fails(c.two_at_flags(libc::SYS_linkat, "linkat", (d, "missing"), (d, "linked"), 0), libc::ENOENT);
    fails(c.two_paths(libc::SYS_symlink, "symlink", "anything", at("copy")), libc::EEXIST);
    fails(c.symlinkat("anything", d, "no/where"), libc::ENOENT);
    fails(c.with_mode(libc::SYS_chmod, "chmod", at("missing"), 0o600), libc::ENOENT);
    fails(c.with_mode_at(libc::SYS_fchmodat, "fchmodat", d, "copy/below", 0o601), libc::ENOTDIR);
    fails(c.chown(libc::SYS_chown, "chown", at("missing"), 25, 26), libc::ENOENT);
    fails(c.chown(libc::SYS_lchown, "lchown", at("copy/below"), 27, 28), libc::ENOTDIR);
    fails(c.fchownat(d, "copy", (29, 30), 1), libc::EINVAL);
    fails(c.utime(at("missing"), None), libc::ENOENT);
    fails(c.utimes(at("missing"), Some([1_000_000, 2_000_000])), libc::ENOENT);
    fails(c.futimesat(d, "missing", None), libc::ENOENT);
    fails(c.utimensat(d, "copy/below", None, 0), libc::ENOTDIR);
    fails(c.on_path(libc::SYS_chdir, "chdir", at("missing")), libc::ENOENT);
    fails(c.on_path(libc::SYS_chdir, "chdir", at("copy")), libc::ENOTDIR);
    fails(c.stat(libc::SYS_stat, "stat", format!("{home}/{}", "x/".repeat(100))), libc::ENOENT);
    fails(c.openat(CWD, at("missing/too"), libc::O_RDONLY, 0, false).ret(), libc::ENOENT);
}
