//! One method per system call: arguments as the call takes them, and the log entry as `docs/trace-format.md`
//! says the reel shows them.

use std::mem::MaybeUninit;

use super::{
    caller::{Caller, Open, P},
    log::Entry,
};

/// The pieces of a vector call.
pub(crate) struct Iov {
    iov: Vec<libc::iovec>,
    /// Keeps what the pieces point at.
    _buffers: Vec<Vec<u8>>,
}

impl Iov {
    pub(crate) fn new(lens: &[usize]) -> Self {
        let mut buffers: Vec<Vec<u8>> = lens.iter().map(|n| vec![b'v'; *n]).collect();
        let iov =
            buffers.iter_mut().map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() }).collect();
        Self { iov, _buffers: buffers }
    }

    pub(crate) fn raw(&self) -> i64 {
        self.iov.as_ptr() as i64
    }

    fn count(&self) -> i64 {
        self.iov.len() as i64
    }

    fn total(&self) -> i64 {
        self.iov.iter().map(|v| v.iov_len as i64).sum()
    }
}

/// What `openat2` takes.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

fn created(flags: i32, mode: u32, created: bool, path: &P) -> Entry {
    let makes = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
    Entry {
        path: path.text.clone(),
        flags: Some(i64::from(flags)),
        mode: makes.then_some(mode as i32),
        aux: Some(i64::from(created)),
        opened: path.text.clone().filter(|p| p.starts_with('/')),
        ..Entry::default()
    }
}

/// Opening and closing.
impl Caller {
    pub(crate) fn open(&mut self, path: impl Into<P>, flags: i32, mode: u32, makes: bool) -> Open {
        let p = path.into();
        let e = created(flags, mode, makes, &p);
        self.opening(libc::SYS_open, "open", [p.raw(), flags.into(), mode.into()], e)
    }

    pub(crate) fn creat(&mut self, path: impl Into<P>, mode: u32, makes: bool) -> Open {
        let p = path.into();
        let e = Entry { flags: None, mode: Some(mode as i32), ..created(libc::O_CREAT, mode, makes, &p) };
        self.opening(libc::SYS_creat, "creat", [p.raw(), mode.into()], e)
    }

    pub(crate) fn openat(&mut self, dirfd: i32, path: impl Into<P>, flags: i32, mode: u32, makes: bool) -> Open {
        let p = path.into();
        let e = Entry { dirfd: Some(dirfd), ..created(flags, mode, makes, &p) };
        self.opening(libc::SYS_openat, "openat", [dirfd.into(), p.raw(), flags.into(), mode.into()], e)
    }

    pub(crate) fn openat2(
        &mut self,
        dirfd: i32,
        path: impl Into<P>,
        (flags, mode): (i32, u32),
        resolve: u64,
        makes: bool,
    ) -> Open {
        let p = path.into();
        let how = OpenHow { flags: flags as u64, mode: mode.into(), resolve };
        let e = Entry { dirfd: Some(dirfd), aux2: Some(resolve as i64), ..created(flags, mode, makes, &p) };
        let args = [dirfd.into(), p.raw(), (&raw const how) as i64, size_of::<OpenHow>() as i64];
        self.opening(libc::SYS_openat2, "openat2", args, e)
    }

    pub(crate) fn close(&mut self, open: &Open) -> i64 {
        self.call(libc::SYS_close, "close", [open.fd.into()], open.entry())
    }

    pub(crate) fn close_range(&mut self, first: u32, last: u32, flags: i32) -> i64 {
        let e = Entry { fd: Some(first as i32), fd2: Some(last as i32), flags: Some(flags.into()), ..Entry::default() };
        self.call(libc::SYS_close_range, "close_range", [first.into(), last.into(), flags.into()], e)
    }

    pub(crate) fn dup(&mut self, open: &Open) -> Open {
        let fd = self.call(libc::SYS_dup, "dup", [open.fd.into()], open.entry());
        open.alias(fd)
    }

    pub(crate) fn dup2(&mut self, open: &Open, to: i32) -> Open {
        let e = Entry { fd2: Some(to), ..open.entry() };
        let fd = self.call(libc::SYS_dup2, "dup2", [open.fd.into(), to.into()], e);
        open.alias(fd)
    }

    pub(crate) fn dup3(&mut self, open: &Open, to: i32, flags: i32) -> Open {
        let e = Entry { fd2: Some(to), flags: Some(flags.into()), ..open.entry() };
        let fd = self.call(libc::SYS_dup3, "dup3", [open.fd.into(), to.into(), flags.into()], e);
        open.alias(fd)
    }

    /// `command` is `F_DUPFD` or `F_DUPFD_CLOEXEC`.
    pub(crate) fn fcntl_dup(&mut self, open: &Open, command: i32, least: i32) -> Open {
        let e = Entry { flags: Some(command.into()), aux: Some(least.into()), ..open.entry() };
        let fd = self.call(libc::SYS_fcntl, "fcntl", [open.fd.into(), command.into(), least.into()], e);
        open.alias(fd)
    }
}

/// Data.
impl Caller {
    /// A call at the file's own position, which it moves.
    fn moving<const N: usize>(&mut self, nr: i64, op: &str, open: &Open, args: [i64; N], e: Entry) -> i64 {
        let ret = self.call(nr, op, args, Entry { offset_bytes: open.pos(), ..e });
        if let Some(pos) = open.pos().filter(|_| ret > 0) {
            open.set_pos(pos + ret);
        }
        ret
    }

    pub(crate) fn read(&mut self, open: &Open, len: usize) -> i64 {
        let mut buffer = vec![0_u8; len];
        let e = Entry { len_bytes: Some(len as i64), ..open.entry() };
        self.moving(libc::SYS_read, "read", open, [open.fd.into(), buffer.as_mut_ptr() as i64, len as i64], e)
    }

    pub(crate) fn write(&mut self, open: &Open, data: &[u8]) -> i64 {
        let e = Entry { len_bytes: Some(data.len() as i64), ..open.entry() };
        self.moving(libc::SYS_write, "write", open, [open.fd.into(), data.as_ptr() as i64, data.len() as i64], e)
    }

    /// A write whose bytes lie at an address that is not mapped.
    pub(crate) fn write_from_nowhere(&mut self, open: &Open, len: usize) -> i64 {
        let e = Entry { len_bytes: Some(len as i64), ..open.entry() };
        self.moving(libc::SYS_write, "write", open, [open.fd.into(), 0x10, len as i64], e)
    }

    pub(crate) fn pread(&mut self, open: &Open, len: usize, at: i64) -> i64 {
        let mut buffer = vec![0_u8; len];
        let e = Entry { len_bytes: Some(len as i64), offset_bytes: open.ofd.map(|_| at), ..open.entry() };
        self.call(libc::SYS_pread64, "pread64", [open.fd.into(), buffer.as_mut_ptr() as i64, len as i64, at], e)
    }

    pub(crate) fn pwrite(&mut self, open: &Open, len: usize, at: i64) -> i64 {
        let buffer = vec![b'p'; len];
        let e = Entry { len_bytes: Some(len as i64), offset_bytes: open.ofd.map(|_| at), ..open.entry() };
        self.call(libc::SYS_pwrite64, "pwrite64", [open.fd.into(), buffer.as_ptr() as i64, len as i64, at], e)
    }

    fn vector_entry(open: &Open, iov: &Iov) -> Entry {
        Entry { len_bytes: Some(iov.total()), aux: Some(iov.count()), ..open.entry() }
    }

    pub(crate) fn readv(&mut self, open: &Open, lens: &[usize]) -> i64 {
        let iov = Iov::new(lens);
        let e = Self::vector_entry(open, &iov);
        self.moving(libc::SYS_readv, "readv", open, [open.fd.into(), iov.raw(), iov.count()], e)
    }

    pub(crate) fn writev(&mut self, open: &Open, lens: &[usize]) -> i64 {
        let iov = Iov::new(lens);
        let e = Self::vector_entry(open, &iov);
        self.moving(libc::SYS_writev, "writev", open, [open.fd.into(), iov.raw(), iov.count()], e)
    }

    /// A writev whose vector lies at `iov` already: `count` pieces of `total` bytes.
    pub(crate) fn writev_at(&mut self, open: &Open, iov: *const u8, count: i64, total: Option<i64>) -> i64 {
        let e = Entry { len_bytes: total, aux: Some(count), ..open.entry() };
        self.moving(libc::SYS_writev, "writev", open, [open.fd.into(), iov as i64, count], e)
    }

    pub(crate) fn preadv(&mut self, open: &Open, lens: &[usize], at: i64) -> i64 {
        let iov = Iov::new(lens);
        let e = Entry { offset_bytes: Some(at), ..Self::vector_entry(open, &iov) };
        self.call(libc::SYS_preadv, "preadv", [open.fd.into(), iov.raw(), iov.count(), at, 0], e)
    }

    pub(crate) fn pwritev(&mut self, open: &Open, lens: &[usize], at: i64) -> i64 {
        let iov = Iov::new(lens);
        let e = Entry { offset_bytes: Some(at), ..Self::vector_entry(open, &iov) };
        self.call(libc::SYS_pwritev, "pwritev", [open.fd.into(), iov.raw(), iov.count(), at, 0], e)
    }

    /// `at` -1 means the file's own position.
    pub(crate) fn preadv2(&mut self, open: &Open, lens: &[usize], at: i64, flags: i32) -> i64 {
        self.vector2(libc::SYS_preadv2, "preadv2", open, lens, at, flags)
    }

    /// `at` -1 means the file's own position.
    pub(crate) fn pwritev2(&mut self, open: &Open, lens: &[usize], at: i64, flags: i32) -> i64 {
        self.vector2(libc::SYS_pwritev2, "pwritev2", open, lens, at, flags)
    }

    fn vector2(&mut self, nr: i64, op: &str, open: &Open, lens: &[usize], at: i64, flags: i32) -> i64 {
        let iov = Iov::new(lens);
        let args = [open.fd.into(), iov.raw(), iov.count(), at, 0, flags.into()];
        let e = Entry { flags: Some(flags.into()), ..Self::vector_entry(open, &iov) };
        if at == -1 {
            self.moving(nr, op, open, args, Entry { aux2: Some(1), ..e })
        } else {
            self.call(nr, op, args, Entry { offset_bytes: Some(at), ..e })
        }
    }

    pub(crate) fn lseek(&mut self, open: &Open, offset: i64, whence: i32) -> i64 {
        let e = Entry { aux: Some(offset), flags: Some(whence.into()), offset_bytes: open.pos(), ..open.entry() };
        let ret = self.call(libc::SYS_lseek, "lseek", [open.fd.into(), offset, whence.into()], e);
        if ret >= 0 {
            open.set_pos(ret);
        }
        ret
    }

    /// `from_at`, `to_at`: explicit positions, or the files' own.
    pub(crate) fn copy_file_range(
        &mut self,
        (from, from_at): (&Open, Option<i64>),
        (to, to_at): (&Open, Option<i64>),
        len: i64,
        flags: i64,
    ) -> i64 {
        let (mut source, mut destination) = (from_at.unwrap_or(0), to_at.unwrap_or(0));
        let pointer = |given: Option<i64>, at: &mut i64| if given.is_some() { (at as *mut i64) as i64 } else { 0 };
        let e = Entry {
            offset_bytes: from_at.or(from.pos()),
            fd2: Some(to.fd),
            ofd2: to.ofd,
            file2: to.file,
            offset2_bytes: to_at.or(to.pos()),
            len_bytes: Some(len),
            flags: Some(flags),
            aux: Some(i64::from(from_at.is_none()) | i64::from(to_at.is_none()) << 1),
            ..from.entry()
        };
        let args =
            [from.fd.into(), pointer(from_at, &mut source), to.fd.into(), pointer(to_at, &mut destination), len, flags];
        let ret = self.call(libc::SYS_copy_file_range, "copy_file_range", args, e);
        move_by(from, from_at, ret);
        move_by(to, to_at, ret);
        ret
    }

    pub(crate) fn sendfile(&mut self, (from, at): (&Open, Option<i64>), to: &Open, len: i64) -> i64 {
        let mut source = at.unwrap_or(0);
        let pointer = if at.is_some() { (&raw mut source) as i64 } else { 0 };
        let e = Entry {
            offset_bytes: at.or(from.pos()),
            fd2: Some(to.fd),
            ofd2: to.ofd,
            file2: to.file,
            offset2_bytes: to.pos(),
            len_bytes: Some(len),
            // A sendfile always writes at the destination's own position: bit 1.
            aux: Some(i64::from(at.is_none()) | 2),
            ..from.entry()
        };
        let ret = self.call(libc::SYS_sendfile, "sendfile", [to.fd.into(), from.fd.into(), pointer, len], e);
        move_by(from, at, ret);
        move_by(to, None, ret);
        ret
    }

    /// A call that takes a descriptor and nothing else: fsync, fdatasync, fchdir.
    pub(crate) fn on_fd(&mut self, nr: i64, op: &str, open: &Open) -> i64 {
        self.call(nr, op, [open.fd.into()], open.entry())
    }

    pub(crate) fn sync_file_range(&mut self, open: &Open, at: i64, len: i64, flags: i32) -> i64 {
        let e = Entry { offset_bytes: Some(at), len_bytes: Some(len), flags: Some(flags.into()), ..open.entry() };
        self.call(libc::SYS_sync_file_range, "sync_file_range", [open.fd.into(), at, len, flags.into()], e)
    }

    pub(crate) fn ftruncate(&mut self, open: &Open, len: i64) -> i64 {
        let e = Entry { len_bytes: Some(len), ..open.entry() };
        self.call(libc::SYS_ftruncate, "ftruncate", [open.fd.into(), len], e)
    }

    pub(crate) fn truncate(&mut self, path: impl Into<P>, len: i64) -> i64 {
        let p = path.into();
        let e = Entry { path: p.text.clone(), len_bytes: Some(len), ..Entry::default() };
        self.call(libc::SYS_truncate, "truncate", [p.raw(), len], e)
    }

    pub(crate) fn fallocate(&mut self, open: &Open, mode: i32, at: i64, len: i64) -> i64 {
        let e = Entry { mode: Some(mode), offset_bytes: Some(at), len_bytes: Some(len), ..open.entry() };
        self.call(libc::SYS_fallocate, "fallocate", [open.fd.into(), mode.into(), at, len], e)
    }

    /// The address, or -errno.
    pub(crate) fn mmap(&mut self, open: &Open, len: i64, prot: i32, flags: i32, at: i64) -> i64 {
        let e = Entry {
            len_bytes: Some(len),
            mode: Some(prot),
            flags: Some(flags.into()),
            offset_bytes: Some(at),
            aux: Some(0),
            ..open.entry()
        };
        self.call(libc::SYS_mmap, "mmap", [0, len, prot.into(), flags.into(), open.fd.into(), at], e)
    }

    /// `file` is what is mapped there.
    pub(crate) fn munmap(&mut self, open: &Open, address: i64, len: i64) -> i64 {
        let e = Entry { file: open.file, aux: Some(address), len_bytes: Some(len), ..Entry::default() };
        self.call(libc::SYS_munmap, "munmap", [address, len], e)
    }

    /// `file` is what is mapped there.
    pub(crate) fn msync(&mut self, open: &Open, address: i64, len: i64, flags: i32) -> i64 {
        let e = Entry {
            file: open.file,
            aux: Some(address),
            len_bytes: Some(len),
            flags: Some(flags.into()),
            ..Entry::default()
        };
        self.call(libc::SYS_msync, "msync", [address, len, flags.into()], e)
    }

    pub(crate) fn fstat(&mut self, open: &Open) -> Option<libc::stat> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        let ret = self.call(libc::SYS_fstat, "fstat", [open.fd.into(), stat.as_mut_ptr() as i64], open.entry());
        self.found(ret, &stat)
    }

    /// Completes the entry of a stat call with what it found.
    pub(crate) fn found(&mut self, ret: i64, stat: &MaybeUninit<libc::stat>) -> Option<libc::stat> {
        if ret != 0 {
            return None;
        }
        // SAFETY: the kernel filled it in.
        let stat = unsafe { stat.assume_init() };
        self.last().mode = Some(stat.st_mode as i32);
        self.last().len_bytes = Some(stat.st_size);
        Some(stat)
    }
}

fn move_by(open: &Open, explicit: Option<i64>, ret: i64) {
    if let (None, Some(pos)) = (explicit, open.pos())
        && ret > 0
    {
        open.set_pos(pos + ret);
    }
}
