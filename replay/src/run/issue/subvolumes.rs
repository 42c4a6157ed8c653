//! Makes and removes subvolumes of btrfs. Elsewhere, plain directories stand for them.

use std::{
    ffi::{CStr, CString},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use super::{
    arguments::Arguments,
    stamp::without_call,
    syscall::{call, close},
};
use crate::{base::subvolumes, reel::equivalents::READ_ONLY};

/// How many plain directories stand for subvolumes.
#[derive(Debug, Default)]
pub struct PlainDirectories(AtomicI64);

impl PlainDirectories {
    /// A warning for the user.
    pub fn told(&self) -> Option<String> {
        let n = self.0.load(Relaxed);
        (n > 0)
            .then(|| format!("{n} subvolumes are plain directories here: the target's file system has no subvolumes"))
    }
}

/// Calls `act` with the directory of a path, which starts at directory `fd`, and the last component. Returns its result or
/// -errno.
fn in_directory(fd: i64, path: i64, act: impl FnOnce(i64, &[u8]) -> i64) -> i64 {
    if path == 0 {
        return without_call(-i64::from(libc::ENOENT));
    }
    // SAFETY: not null, and a NUL-terminated string of the plan.
    let path = unsafe { CStr::from_ptr(path as *const libc::c_char) }.to_bytes();
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let above = if start == 0 { b"." } else { &path[..start] };
    let Ok(above) = CString::new(above) else { return without_call(-i64::from(libc::ENOENT)) };
    let flags = i64::from(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    let dir = call(libc::SYS_openat, [fd, above.as_ptr() as i64, flags, 0, 0, 0]);
    if dir < 0 {
        return dir;
    }
    let ret = act(dir, &path[start..end]);
    close(dir);
    ret
}

/// Makes a subvolume, or a plain directory.
pub(super) fn create(a: Arguments<'_>, plain: &PlainDirectories) -> i64 {
    let plainly = || call(libc::SYS_mkdirat, [a.fd, a.path, a.rec.mode.into(), 0, 0, 0]);
    // A refusal has the same causes either way.
    if a.rec.ret < 0 {
        return plainly();
    }
    let read_only = a.rec.flags & READ_ONLY != 0;
    match in_directory(a.fd, a.path, |dir, name| subvolumes::create(call, dir, name, None, read_only)) {
        ret if ret == -i64::from(libc::ENOTTY) => {
            plain.0.fetch_add(1, Relaxed);
            let made = plainly();
            if made == 0 {
                in_directory(a.fd, a.path, own_group);
            }
            made
        }
        ret => ret,
    }
}

/// A subvolume takes neither the group nor the set-group-ID bit of the directory that it is made in (fs/btrfs/ioctl.c,
/// `new_subvol_inode`).
fn own_group(dir: i64, name: &[u8]) -> i64 {
    let Ok(name) = CString::new(name) else { return -i64::from(libc::ENOENT) };
    let flags = i64::from(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let fd = call(libc::SYS_openat, [dir, name.as_ptr() as i64, flags, 0, 0, 0]);
    if fd < 0 {
        return fd;
    }
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills the struct. If it fails, the struct is zeros.
    let mode = unsafe {
        libc::fstat(fd as i32, stat.as_mut_ptr());
        stat.assume_init().st_mode
    };
    if mode & libc::S_ISGID != 0 {
        // Sets nothing, and returns the group of new files.
        let group = call(libc::SYS_setfsgid, [-1, 0, 0, 0, 0, 0]);
        call(libc::SYS_fchown, [fd, -1, group, 0, 0, 0]);
        call(libc::SYS_fchmod, [fd, (mode & 0o1777).into(), 0, 0, 0, 0]);
    }
    close(fd);
    0
}

/// Makes a snapshot of the subvolume that is open as `fd`.
pub(super) fn snapshot(a: Arguments<'_>) -> i64 {
    let read_only = a.rec.flags & READ_ONLY != 0;
    in_directory(a.fd2, a.path2, |dir, name| subvolumes::create(call, dir, name, Some(a.fd), read_only))
}

/// Removes a subvolume, or the plain directory that stands for one, with all in it.
pub(super) fn destroy(a: Arguments<'_>) -> i64 {
    in_directory(a.fd, a.path, |dir, name| match subvolumes::destroy(call, dir, name) {
        ret if ret == -i64::from(libc::ENOTTY) || ret == -i64::from(libc::EINVAL) => remove_all(dir, name),
        ret => ret,
    })
}

/// A directory that is being emptied.
struct Emptied {
    fd: i64,
    name: CString,
    /// What is in it, as far as read.
    entries: Vec<CString>,
}

/// Removes directory `name` in `dir` with all in it; follows no links. Returns 0 or -errno.
fn remove_all(dir: i64, name: &[u8]) -> i64 {
    let Ok(name) = CString::new(name) else { return without_call(-i64::from(libc::ENOENT)) };
    let mut open: Vec<Emptied> = Vec::new();
    let mut failed = enter(&mut open, dir, name);
    while failed == 0
        && let Some(mut last) = open.pop()
    {
        if let Some(entry) = last.entries.pop() {
            let ret = call(libc::SYS_unlinkat, [last.fd, entry.as_ptr() as i64, 0, 0, 0, 0]);
            let fd = last.fd;
            open.push(last);
            failed = match ret {
                // Linux has EISDIR for a directory, POSIX has EPERM.
                ret if ret == -i64::from(libc::EISDIR) || ret == -i64::from(libc::EPERM) => enter(&mut open, fd, entry),
                ret => ret.min(0),
            };
            continue;
        }
        last.entries = entries(last.fd);
        if !last.entries.is_empty() {
            open.push(last);
            continue;
        }
        let above = open.last().map_or(dir, |e| e.fd);
        close(last.fd);
        failed =
            call(libc::SYS_unlinkat, [above, last.name.as_ptr() as i64, libc::AT_REMOVEDIR.into(), 0, 0, 0]).min(0);
    }
    open.iter().for_each(|e| close(e.fd));
    failed
}

fn enter(open: &mut Vec<Emptied>, dir: i64, name: CString) -> i64 {
    let flags = i64::from(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let fd = call(libc::SYS_openat, [dir, name.as_ptr() as i64, flags, 0, 0, 0]);
    if fd >= 0 {
        open.push(Emptied { fd, name, entries: Vec::new() });
    }
    fd.min(0)
}

/// The first entries of a directory.
fn entries(dir: i64) -> Vec<CString> {
    /// `d_reclen` and `d_name` in `struct linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = vec![0_u64; 4096];
    call(libc::SYS_lseek, [dir, 0, libc::SEEK_SET.into(), 0, 0, 0]);
    let got = call(libc::SYS_getdents64, [dir, buffer.as_mut_ptr() as i64, size_of_val(&buffer[..]) as i64, 0, 0, 0]);
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).take(got.max(0) as usize).collect();
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(length) = bytes.get(at + LENGTH..at + LENGTH + 2) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]])).max(NAME);
        if let Some(name) = bytes.get(at + NAME..(at + length).min(bytes.len()))
            && let Ok(name) = CStr::from_bytes_until_nul(name)
            && !matches!(name.to_bytes(), b"." | b"..")
        {
            out.push(name.to_owned());
        }
        at += length;
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{fs, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn a_plain_directory_goes_with_all_in_it_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let deep: String = "d/".repeat(200);
        fs::create_dir_all(at(&format!("sub/{deep}"))).unwrap();
        for i in 0..3000 {
            fs::write(at(&format!("sub/a file with a long name, so that one read is not enough {i}")), "x").unwrap();
        }
        fs::create_dir(at("kept")).unwrap();
        fs::write(at("kept/f"), "x").unwrap();
        std::os::unix::fs::symlink("../kept", at("sub/link")).unwrap();
        let open = fs::File::open(dir.path()).unwrap();
        assert_eq!(remove_all(open.as_raw_fd().into(), b"sub"), 0);
        assert!(!at("sub").exists() && at("kept/f").exists());
        assert_eq!(remove_all(open.as_raw_fd().into(), b"sub"), -i64::from(libc::ENOENT));
    }

    #[test]
    fn the_directory_of_a_path_is_what_precedes_its_last_component() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let open = fs::File::open(dir.path()).unwrap();
        for (path, last) in [(c"x", "x"), (c"a/x//", "x"), (c"a/b/y", "y"), (c"a//b", "b")] {
            let mut seen = String::new();
            let ret = in_directory(open.as_raw_fd().into(), path.as_ptr() as i64, |_, name| {
                seen = String::from_utf8_lossy(name).into_owned();
                0
            });
            assert_eq!((ret, seen.as_str()), (0, last), "{path:?}");
        }
        assert_eq!(in_directory(open.as_raw_fd().into(), c"no/x".as_ptr() as i64, |_, _| 0), -2);
    }
}
