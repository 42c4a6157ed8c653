//! The calls that work on names: one method each, as in `calls`.

use std::mem::MaybeUninit;

use super::{
    caller::{Caller, Open, P},
    log::Entry,
};

/// Looking.
impl Caller {
    /// stat or lstat.
    pub(crate) fn stat(&mut self, nr: i64, op: &str, path: impl Into<P>) -> i64 {
        let p = path.into();
        let mut stat = MaybeUninit::uninit();
        let e = Entry { path: p.text.clone(), ..Entry::default() };
        let ret = self.call(nr, op, [p.raw(), stat.as_mut_ptr() as i64], e);
        self.found(ret, &stat);
        ret
    }

    pub(crate) fn newfstatat(&mut self, dirfd: i32, path: impl Into<P>, flags: i32) -> i64 {
        let p = path.into();
        let mut stat = MaybeUninit::uninit();
        let e = Entry { dirfd: Some(dirfd), path: p.text.clone(), flags: Some(flags.into()), ..Entry::default() };
        let args = [dirfd.into(), p.raw(), stat.as_mut_ptr() as i64, flags.into()];
        let ret = self.call(libc::SYS_newfstatat, "newfstatat", args, e);
        self.found(ret, &stat);
        ret
    }

    pub(crate) fn statx(&mut self, dirfd: i32, path: impl Into<P>, flags: i32, mask: u32) -> i64 {
        let p = path.into();
        let mut found = MaybeUninit::<libc::statx>::uninit();
        let e = Entry {
            dirfd: Some(dirfd),
            path: p.text.clone(),
            flags: Some(flags.into()),
            aux: Some(mask.into()),
            ..Entry::default()
        };
        let args = [dirfd.into(), p.raw(), flags.into(), mask.into(), found.as_mut_ptr() as i64];
        let ret = self.call(libc::SYS_statx, "statx", args, e);
        if ret == 0 {
            // SAFETY: the kernel filled it in.
            let found = unsafe { found.assume_init() };
            self.last().mode = Some(found.stx_mode.into());
            self.last().len_bytes = Some(found.stx_size as i64);
        }
        ret
    }

    pub(crate) fn access(&mut self, path: impl Into<P>, mask: i32) -> i64 {
        let p = path.into();
        let e = Entry { path: p.text.clone(), mode: Some(mask), ..Entry::default() };
        self.call(libc::SYS_access, "access", [p.raw(), mask.into()], e)
    }

    pub(crate) fn faccessat(&mut self, dirfd: i32, path: impl Into<P>, mask: i32) -> i64 {
        let p = path.into();
        let e = Entry { dirfd: Some(dirfd), path: p.text.clone(), mode: Some(mask), ..Entry::default() };
        self.call(libc::SYS_faccessat, "faccessat", [dirfd.into(), p.raw(), mask.into()], e)
    }

    pub(crate) fn faccessat2(&mut self, dirfd: i32, path: impl Into<P>, mask: i32, flags: i32) -> i64 {
        let p = path.into();
        let e = Entry {
            dirfd: Some(dirfd),
            path: p.text.clone(),
            mode: Some(mask),
            flags: Some(flags.into()),
            ..Entry::default()
        };
        self.call(libc::SYS_faccessat2, "faccessat2", [dirfd.into(), p.raw(), mask.into(), flags.into()], e)
    }

    pub(crate) fn readlink(&mut self, path: impl Into<P>, len: usize) -> i64 {
        let p = path.into();
        let mut buffer = vec![0_u8; len];
        let e = Entry { path: p.text.clone(), len_bytes: Some(len as i64), ..Entry::default() };
        self.call(libc::SYS_readlink, "readlink", [p.raw(), buffer.as_mut_ptr() as i64, len as i64], e)
    }

    pub(crate) fn readlinkat(&mut self, dirfd: i32, path: impl Into<P>, len: usize) -> i64 {
        let p = path.into();
        let mut buffer = vec![0_u8; len];
        let e = Entry { dirfd: Some(dirfd), path: p.text.clone(), len_bytes: Some(len as i64), ..Entry::default() };
        let args = [dirfd.into(), p.raw(), buffer.as_mut_ptr() as i64, len as i64];
        self.call(libc::SYS_readlinkat, "readlinkat", args, e)
    }

    /// getdents64 or getdents.
    pub(crate) fn getdents(&mut self, nr: i64, op: &str, open: &Open, len: usize) -> i64 {
        let mut buffer = vec![0_u8; len];
        let e = Entry { len_bytes: Some(len as i64), ..open.entry() };
        self.call(nr, op, [open.fd.into(), buffer.as_mut_ptr() as i64, len as i64], e)
    }
}

/// Changing.
impl Caller {
    /// A call that takes a path and nothing else: rmdir, unlink, chdir.
    pub(crate) fn on_path(&mut self, nr: i64, op: &str, path: impl Into<P>) -> i64 {
        let p = path.into();
        self.call(nr, op, [p.raw()], Entry { path: p.text.clone(), ..Entry::default() })
    }

    /// A call that takes a path and a mode: mkdir, chmod.
    pub(crate) fn with_mode(&mut self, nr: i64, op: &str, path: impl Into<P>, mode: u32) -> i64 {
        let p = path.into();
        let e = Entry { path: p.text.clone(), mode: Some(mode as i32), ..Entry::default() };
        self.call(nr, op, [p.raw(), mode.into()], e)
    }

    /// A call that takes a directory, a path and a mode: mkdirat, fchmodat.
    pub(crate) fn with_mode_at(&mut self, nr: i64, op: &str, dirfd: i32, path: impl Into<P>, mode: u32) -> i64 {
        let p = path.into();
        let e = Entry { dirfd: Some(dirfd), path: p.text.clone(), mode: Some(mode as i32), ..Entry::default() };
        self.call(nr, op, [dirfd.into(), p.raw(), mode.into()], e)
    }

    pub(crate) fn mknod(&mut self, path: impl Into<P>, mode: u32, dev: u32) -> i64 {
        let p = path.into();
        let e = Entry { path: p.text.clone(), mode: Some(mode as i32), aux: Some(dev.into()), ..Entry::default() };
        self.call(libc::SYS_mknod, "mknod", [p.raw(), mode.into(), dev.into()], e)
    }

    pub(crate) fn mknodat(&mut self, dirfd: i32, path: impl Into<P>, mode: u32, dev: u32) -> i64 {
        let p = path.into();
        let e = Entry {
            dirfd: Some(dirfd),
            path: p.text.clone(),
            mode: Some(mode as i32),
            aux: Some(dev.into()),
            ..Entry::default()
        };
        self.call(libc::SYS_mknodat, "mknodat", [dirfd.into(), p.raw(), mode.into(), dev.into()], e)
    }

    pub(crate) fn unlinkat(&mut self, dirfd: i32, path: impl Into<P>, flags: i32) -> i64 {
        let p = path.into();
        let e = Entry { dirfd: Some(dirfd), path: p.text.clone(), flags: Some(flags.into()), ..Entry::default() };
        self.call(libc::SYS_unlinkat, "unlinkat", [dirfd.into(), p.raw(), flags.into()], e)
    }

    /// A call that takes two paths: rename, link, symlink (target, name).
    pub(crate) fn two_paths(&mut self, nr: i64, op: &str, from: impl Into<P>, to: impl Into<P>) -> i64 {
        let (a, b) = (from.into(), to.into());
        let e = Entry { path: a.text.clone(), path2: b.text.clone(), ..Entry::default() };
        self.call(nr, op, [a.raw(), b.raw()], e)
    }

    pub(crate) fn symlinkat(&mut self, target: impl Into<P>, dirfd: i32, name: impl Into<P>) -> i64 {
        let (a, b) = (target.into(), name.into());
        let e = Entry { path: a.text.clone(), dirfd2: Some(dirfd), path2: b.text.clone(), ..Entry::default() };
        self.call(libc::SYS_symlinkat, "symlinkat", [a.raw(), dirfd.into(), b.raw()], e)
    }

    /// A call that takes two directories with a path each: renameat.
    pub(crate) fn renameat(&mut self, from: (i32, &str), to: (i32, &str)) -> i64 {
        let (a, b) = (P::from(from.1), P::from(to.1));
        let e = Self::two_at(&a, from.0, &b, to.0);
        self.call(libc::SYS_renameat, "renameat", [from.0.into(), a.raw(), to.0.into(), b.raw()], e)
    }

    /// The same with flags: renameat2, linkat.
    pub(crate) fn two_at_flags(&mut self, nr: i64, op: &str, from: (i32, &str), to: (i32, &str), flags: i32) -> i64 {
        let (a, b) = (P::from(from.1), P::from(to.1));
        let e = Entry { flags: Some(flags.into()), ..Self::two_at(&a, from.0, &b, to.0) };
        self.call(nr, op, [from.0.into(), a.raw(), to.0.into(), b.raw(), flags.into()], e)
    }

    fn two_at(from: &P, dirfd: i32, to: &P, dirfd2: i32) -> Entry {
        Entry {
            dirfd: Some(dirfd),
            dirfd2: Some(dirfd2),
            path: from.text.clone(),
            path2: to.text.clone(),
            ..Entry::default()
        }
    }

    pub(crate) fn fchmod(&mut self, open: &Open, mode: u32) -> i64 {
        let e = Entry { mode: Some(mode as i32), ..open.entry() };
        self.call(libc::SYS_fchmod, "fchmod", [open.fd.into(), mode.into()], e)
    }

    /// chown or lchown; -1 leaves an id as it is.
    pub(crate) fn chown(&mut self, nr: i64, op: &str, path: impl Into<P>, uid: i32, gid: i32) -> i64 {
        let p = path.into();
        let e = Entry { path: p.text.clone(), aux: Some(uid.into()), aux2: Some(gid.into()), ..Entry::default() };
        self.call(nr, op, [p.raw(), uid.into(), gid.into()], e)
    }

    pub(crate) fn fchown(&mut self, open: &Open, uid: i32, gid: i32) -> i64 {
        let e = Entry { aux: Some(uid.into()), aux2: Some(gid.into()), ..open.entry() };
        self.call(libc::SYS_fchown, "fchown", [open.fd.into(), uid.into(), gid.into()], e)
    }

    pub(crate) fn fchownat(&mut self, dirfd: i32, path: impl Into<P>, (uid, gid): (i32, i32), flags: i32) -> i64 {
        let p = path.into();
        let e = Entry {
            dirfd: Some(dirfd),
            path: p.text.clone(),
            aux: Some(uid.into()),
            aux2: Some(gid.into()),
            flags: Some(flags.into()),
            ..Entry::default()
        };
        let args = [dirfd.into(), p.raw(), uid.into(), gid.into(), flags.into()];
        self.call(libc::SYS_fchownat, "fchownat", args, e)
    }

    /// utime: whole seconds; `None` is the null pointer, now.
    pub(crate) fn utime(&mut self, path: impl Into<P>, times_s: Option<[i64; 2]>) -> i64 {
        let p = path.into();
        let ns = times_s.map(|t| t.map(|s| s * 1_000_000_000));
        let e = Self::timed(&p, ns);
        let pointer = times_s.as_ref().map_or(0, |t| t.as_ptr() as i64);
        self.call(libc::SYS_utime, "utime", [p.raw(), pointer], e)
    }

    /// utimes: microseconds.
    pub(crate) fn utimes(&mut self, path: impl Into<P>, times_us: Option<[i64; 2]>) -> i64 {
        let p = path.into();
        let e = Self::timed(&p, times_us.map(|t| t.map(|us| us * 1000)));
        let raw = times_us.map(|t| t.map(|us| [us / 1_000_000, us % 1_000_000]));
        let pointer = raw.as_ref().map_or(0, |t| t.as_ptr() as i64);
        self.call(libc::SYS_utimes, "utimes", [p.raw(), pointer], e)
    }

    /// futimesat: microseconds.
    pub(crate) fn futimesat(&mut self, dirfd: i32, path: impl Into<P>, times_us: Option<[i64; 2]>) -> i64 {
        let p = path.into();
        let e = Entry { dirfd: Some(dirfd), ..Self::timed(&p, times_us.map(|t| t.map(|us| us * 1000))) };
        let raw = times_us.map(|t| t.map(|us| [us / 1_000_000, us % 1_000_000]));
        let pointer = raw.as_ref().map_or(0, |t| t.as_ptr() as i64);
        self.call(libc::SYS_futimesat, "futimesat", [dirfd.into(), p.raw(), pointer], e)
    }

    /// utimensat; [`OMIT`] and [`NOW`] stand for `UTIME_OMIT` and `UTIME_NOW`.
    pub(crate) fn utimensat(&mut self, dirfd: i32, path: impl Into<P>, times_ns: Option<[i64; 2]>, flags: i32) -> i64 {
        let p = path.into();
        let e = Entry { dirfd: Some(dirfd), flags: Some(flags.into()), ..Self::timed(&p, times_ns) };
        self.call_utimensat(dirfd, &p, times_ns, flags, e)
    }

    /// utimensat of a descriptor: the path is null.
    pub(crate) fn utimensat_fd(&mut self, open: &Open, times_ns: [i64; 2]) -> i64 {
        let e = Entry { dirfd: Some(open.fd), ..Self::timed(&P::null(), Some(times_ns)) };
        let e = Entry { fd: Some(open.fd), file: open.file, flags: Some(0), ..e };
        self.call_utimensat(open.fd, &P::null(), Some(times_ns), 0, e)
    }

    fn call_utimensat(&mut self, dirfd: i32, p: &P, times_ns: Option<[i64; 2]>, flags: i32, e: Entry) -> i64 {
        let raw = times_ns.map(|t| {
            t.map(|ns| match ns {
                OMIT => [0, libc::UTIME_OMIT],
                NOW => [0, libc::UTIME_NOW],
                _ => [ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000)],
            })
        });
        let pointer = raw.as_ref().map_or(0, |t| t.as_ptr() as i64);
        self.call(libc::SYS_utimensat, "utimensat", [dirfd.into(), p.raw(), pointer, flags.into()], e)
    }

    fn timed(p: &P, times_ns: Option<[i64; 2]>) -> Entry {
        let [atime, mtime] = times_ns.unwrap_or([NOW, NOW]);
        Entry { path: p.text.clone(), aux: Some(atime), aux2: Some(mtime), ..Entry::default() }
    }

    pub(crate) fn umask(&mut self, mask: u32) -> i64 {
        let e = Entry { mode: Some(mask as i32), ..Entry::default() };
        self.call(libc::SYS_umask, "umask", [mask.into()], e)
    }
}

/// How the reel writes `UTIME_OMIT`.
pub(crate) const OMIT: i64 = i64::MIN;
/// How the reel writes `UTIME_NOW`.
pub(crate) const NOW: i64 = i64::MIN + 1;
