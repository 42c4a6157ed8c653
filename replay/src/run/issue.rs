//! Issues one recorded call: the same call with the same arguments, descriptors and addresses translated.
//!
//! Legacy x86-64 calls without a directory descriptor (`open`, `stat`, `unlink`, …) are issued as their
//! `*at` equivalents, which is what the kernel makes of them anyway.

use std::{
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicI32, AtomicI64, Ordering::Relaxed},
};

use libc::{c_long, c_void};

mod attributes;
mod copies;
mod direct;
mod locks;
mod memory;
mod requests;
pub(crate) mod stamp;
mod top;

pub use direct::Direct;
pub(crate) use locks::hold;

use crate::{
    Call,
    base::clock::monotonic_ns,
    contents::{
        buffers::{MAX_CALL_BYTES, Sink, Source},
        data::Data,
    },
    model::{
        operands::{BAD_FD, CWD, TOP},
        processes::clone,
    },
    plan::{
        chunk::Chunk,
        program::{Plan, Range},
    },
    reel::{
        call::closes_on_exec,
        input::{NO_ID, NONE, Rec},
    },
    run::credentials::become_again,
};

use stamp::without_call;

/// An attribute's name is no longer.
const MAX_NAME_BYTES: usize = 255;
/// No name of an attribute.
const TOO_LONG: &[u8; MAX_NAME_BYTES + 7] = &{
    let mut name = [b'x'; MAX_NAME_BYTES + 7];
    (name[0], name[1], name[2], name[3], name[4]) = (b'u', b's', b'e', b'r', b'.');
    name[MAX_NAME_BYTES + 6] = 0;
    name
};

/// Cells shared by all threads.
#[derive(Debug)]
pub struct Cells {
    /// Real descriptors; -1 where none is open.
    pub fds: Box<[AtomicI32]>,
    /// Real addresses of mappings; 0 where none is.
    pub maps: Box<[AtomicI64]>,
    /// Their lengths.
    map_bytes: Box<[AtomicI64]>,
    /// Direct I/O that the target refused.
    pub direct: Direct,
    /// The target's root, in all tables alike; -1 where no operation begins at it.
    top: AtomicI32,
}

impl Cells {
    /// Empty ones for this plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            fds: (0..plan.fd_slots).map(|_| AtomicI32::new(-1)).collect(),
            maps: (0..plan.map_slots).map(|_| AtomicI64::new(0)).collect(),
            map_bytes: (0..plan.map_slots).map(|_| AtomicI64::new(0)).collect(),
            direct: Direct::default(),
            top: AtomicI32::new(BAD_FD),
        }
    }

    /// The descriptor in a slot, or the special value that stands in its place.
    pub fn fd(&self, slot: i32) -> i32 {
        match usize::try_from(slot) {
            Ok(i) => self.fds.get(i).map_or(BAD_FD, |c| c.load(Relaxed)),
            Err(_) if slot == TOP => self.top.load(Relaxed),
            Err(_) => slot,
        }
    }

    /// Fills a slot; whether there is one.
    pub fn set(&self, slot: u32, fd: i32) -> bool {
        let cell = self.fds.get(slot as usize);
        if let Some(c) = cell {
            c.store(fd, Relaxed);
        }
        cell.is_some()
    }

    /// Closes what is in a slot.
    pub fn close(&self, slot: u32) -> i64 {
        let Some(c) = self.fds.get(slot as usize) else { return without_call(0) };
        match c.swap(-1, Relaxed) {
            fd if fd >= 0 => call(libc::SYS_close, [fd.into(), 0, 0, 0, 0, 0]),
            _ => without_call(0),
        }
    }

    /// The length of the mapping in a cell.
    fn mapped_bytes(&self, cell: u32) -> i64 {
        self.map_bytes.get(cell as usize).map_or(0, |c| c.load(Relaxed))
    }

    /// Maps a file into a cell: never executable, nothing private charged in advance. 0 or -errno.
    pub fn map(&self, cell: u32, len_bytes: i64, prot: i32, flags: i32, fd: i32, offset_bytes: i64) -> i64 {
        let flags = (flags & (libc::MAP_SHARED | libc::MAP_PRIVATE)) | libc::MAP_NORESERVE;
        let prot = memory::touchable(prot);
        let ret = call(libc::SYS_mmap, [0, len_bytes, prot.into(), flags.into(), fd.into(), offset_bytes]);
        if ret > 0
            && let Some(c) = self.maps.get(cell as usize)
        {
            c.store(ret, Relaxed);
            self.map_bytes[cell as usize].store(len_bytes, Relaxed);
        }
        ret.min(0)
    }

    /// Unmaps what is in a cell.
    pub fn unmap(&self, cell: u32) -> i64 {
        let len = self.mapped_bytes(cell);
        match self.maps.get(cell as usize).map_or(0, |c| c.swap(0, Relaxed)) {
            0 => without_call(-i64::from(libc::ENOMEM)),
            at => call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]),
        }
    }
}

/// Results are -errno, as in the reel.
pub(crate) fn call(number: c_long, args: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let entered_ns = monotonic_ns();
    // SAFETY: callers pass descriptors, NUL-terminated paths of the plan, and buffers of the length named.
    let r = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    // Reads the vDSO, which leaves errno alone.
    stamp::stamp(entered_ns);
    if r >= 0 {
        return r;
    }
    -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Closes a descriptor that nobody will use.
pub(crate) fn close(fd: i64) {
    call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
}

/// Flags of an open as it is issued. Those that are added are without effect on files and directories, and keep a FIFO that
/// stands where a file stood from blocking the replay. `O_PATH` opens nothing and takes no other flag.
pub(crate) fn open_flags(given: i64) -> i64 {
    let quick = if given as i32 & libc::O_PATH == 0 { i64::from(libc::O_NONBLOCK | libc::O_NOCTTY) } else { 0 };
    given | quick
}

fn ioctl(fd: i64, request: i64, argument: i64) -> i64 {
    call(libc::SYS_ioctl, [fd, request, argument, 0, 0, 0])
}

/// What most calls are made of.
#[derive(Clone, Copy)]
struct Arguments<'a> {
    rec: &'a Rec,
    fd: i64,
    fd2: i64,
    /// Addresses of NUL-terminated texts; 0 for none.
    path: i64,
    name: i64,
}

/// One thread's means of issuing calls.
#[derive(Debug)]
pub struct Issuer<'a> {
    cells: &'a Cells,
    source: &'a Source,
    data: &'a Data,
    /// Made data, of the operation in this row.
    made: (Sink, Option<u32>),
    sink: Sink,
    iov: Vec<libc::iovec>,
}

/// The layout that `openat2` takes.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

impl<'a> Issuer<'a> {
    /// For one thread.
    pub fn new(cells: &'a Cells, source: &'a Source, data: &'a Data) -> Self {
        Self { cells, source, data, made: (Sink::default(), None), sink: Sink::default(), iov: Vec::new() }
    }

    /// Issues operation `rec` of this piece on the descriptors in these slots.
    pub fn issue(&mut self, chunk: &Chunk, rec: u32, slot_fd: i32, slot_fd2: i32, new: u32, list: Range) -> i64 {
        let r = &chunk.recs[rec as usize];
        stamp::begin(r.row);
        if slot_fd != CWD && r.call.takes_no_directory() {
            let dir = self.cells.fd(slot_fd);
            return top::stand(dir, r.call == Call::Chdir, || self.issue(chunk, rec, CWD, slot_fd2, new, list));
        }
        let fd = i64::from(self.cells.fd(slot_fd));
        let fd2 = i64::from(self.cells.fd(slot_fd2));
        let path = |i: u32| if i == NONE { 0 } else { chunk.paths.c_str(i).as_ptr() as i64 };
        let (p, p2) = (path(r.path), path(r.path2));
        let mode = i64::from(r.mode);
        let len = r.len_bytes.clamp(0, MAX_CALL_BYTES as i64);
        let offset = if r.offset_bytes == NO_ID { 0 } else { r.offset_bytes };
        let name = match r.ret == -i64::from(libc::ERANGE) {
            true if r.name == NONE => c"".as_ptr() as i64,
            // Recorded cut off.
            true if chunk.paths.bytes(r.name).len() >= MAX_NAME_BYTES => TOO_LONG.as_ptr() as i64,
            _ => path(r.name),
        };
        let a = Arguments { rec: r, fd, fd2, path: p, name };
        match r.call {
            Call::Open | Call::Openat | Call::Creat | Call::Openat2 => self.open(r, fd, p, new),
            Call::Close => {
                if slot_fd < 0 {
                    return call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
                }
                self.cells.close(slot_fd as u32)
            }
            // Refused for a range that is none: none is given again.
            Call::CloseRange if r.ret < 0 => call(libc::SYS_close_range, [1, 0, 0, 0, 0, 0]),
            Call::CloseRange => {
                for slot in list.of(&chunk.lists) {
                    self.cells.close(*slot);
                }
                without_call(0)
            }
            Call::Read => call(libc::SYS_read, [fd, self.sink.at(len as usize) as i64, len, 0, 0, 0]),
            Call::Pread64 => call(libc::SYS_pread64, [fd, self.sink.at(len as usize) as i64, len, offset, 0, 0]),
            Call::Write => call(libc::SYS_write, [fd, self.written(r, len as usize) as i64, len, 0, 0, 0]),
            Call::Pwrite64 => call(libc::SYS_pwrite64, [fd, self.written(r, len as usize) as i64, len, offset, 0, 0]),
            Call::Readv | Call::Preadv | Call::Preadv2 | Call::Writev | Call::Pwritev | Call::Pwritev2 => {
                self.vector(r, fd, len as usize, offset)
            }
            Call::Lseek => call(libc::SYS_lseek, [fd, r.aux, r.flags, 0, 0, 0]),
            Call::Fsync => call(libc::SYS_fsync, [fd, 0, 0, 0, 0, 0]),
            Call::Fdatasync => call(libc::SYS_fdatasync, [fd, 0, 0, 0, 0, 0]),
            Call::SyncFileRange => call(libc::SYS_sync_file_range, [fd, offset, r.len_bytes, r.flags, 0, 0]),
            Call::Ftruncate => call(libc::SYS_ftruncate, [fd, r.len_bytes, 0, 0, 0, 0]),
            Call::Truncate => call(libc::SYS_truncate, [p, r.len_bytes, 0, 0, 0, 0]),
            Call::Fallocate => call(libc::SYS_fallocate, [fd, mode, offset, r.len_bytes, 0, 0]),
            Call::Stat | Call::Lstat | Call::Newfstatat | Call::Fstat | Call::Statx => stat(r, fd, p),
            Call::Access | Call::Faccessat => call(libc::SYS_faccessat, [fd, p, mode, 0, 0, 0]),
            Call::Faccessat2 => call(libc::SYS_faccessat2, [fd, p, mode, r.flags, 0, 0]),
            Call::Getdents | Call::Getdents64 => {
                call(libc::SYS_getdents64, [fd, self.sink.at(len as usize) as i64, len, 0, 0, 0])
            }
            Call::Readlink | Call::Readlinkat => {
                let buffer = self.sink.at(len as usize) as i64;
                call(libc::SYS_readlinkat, [fd, p, buffer, len, 0, 0])
            }
            Call::Mkdir | Call::Mkdirat => call(libc::SYS_mkdirat, [fd, p, mode, 0, 0, 0]),
            Call::Rmdir => call(libc::SYS_unlinkat, [fd, p, libc::AT_REMOVEDIR.into(), 0, 0, 0]),
            Call::Unlink => call(libc::SYS_unlinkat, [fd, p, 0, 0, 0, 0]),
            Call::Unlinkat => call(libc::SYS_unlinkat, [fd, p, r.flags, 0, 0, 0]),
            Call::Rename | Call::Renameat => call(libc::SYS_renameat2, [fd, p, fd2, p2, 0, 0]),
            Call::Renameat2 => call(libc::SYS_renameat2, [fd, p, fd2, p2, r.flags, 0]),
            Call::Link => call(libc::SYS_linkat, [fd, p, fd2, p2, 0, 0]),
            Call::Linkat => call(libc::SYS_linkat, [fd, p, fd2, p2, r.flags, 0]),
            Call::Symlink | Call::Symlinkat => call(libc::SYS_symlinkat, [p, fd2, p2, 0, 0, 0]),
            // The planner lets only FIFOs and regular files through, which have no device number.
            Call::Mknod | Call::Mknodat => call(libc::SYS_mknodat, [fd, p, mode, 0, 0, 0]),
            Call::Chmod | Call::Fchmodat => call(libc::SYS_fchmodat, [fd, p, mode, 0, 0, 0]),
            Call::Fchmodat2 => call(libc::SYS_fchmodat2, [fd, p, mode, r.flags, 0, 0]),
            Call::Fchmod => call(libc::SYS_fchmod, [fd, mode, 0, 0, 0, 0]),
            Call::Chown => call(libc::SYS_fchownat, [fd, p, r.aux, r.aux2, 0, 0]),
            Call::Lchown => call(libc::SYS_fchownat, [fd, p, r.aux, r.aux2, libc::AT_SYMLINK_NOFOLLOW.into(), 0]),
            Call::Fchownat => call(libc::SYS_fchownat, [fd, p, r.aux, r.aux2, r.flags, 0]),
            Call::Fchown => call(libc::SYS_fchown, [fd, r.aux, r.aux2, 0, 0, 0]),
            Call::Utime | Call::Utimes | Call::Futimesat | Call::Utimensat => times(r, fd, p),
            Call::Umask => call(libc::SYS_umask, [mode, 0, 0, 0, 0, 0]),
            Call::Dup | Call::Dup2 | Call::Dup3 | Call::Fcntl => self.duplicate(r, fd, slot_fd, slot_fd2, new),
            Call::Chdir => call(libc::SYS_chdir, [p, 0, 0, 0, 0, 0]),
            Call::Fchdir => call(libc::SYS_fchdir, [fd, 0, 0, 0, 0, 0]),
            c if c.copies() && r.ret >= 0 && (slot_fd == BAD_FD || slot_fd2 == BAD_FD) => {
                self.half_copy(r, slot_fd == BAD_FD, fd, fd2)
            }
            Call::CopyFileRange | Call::Sendfile | Call::Splice => copies::copy(r, fd, fd2, len, offset),
            // Numbers close on exec as the plan says; nothing is executed here.
            Call::SetFd if closes_on_exec(r.flags).is_some() => ioctl(fd, r.flags, 0),
            Call::SetFd => call(libc::SYS_fcntl, [fd, libc::F_SETFD.into(), r.aux, 0, 0, 0]),
            Call::SetFl => call(libc::SYS_fcntl, [fd, libc::F_SETFL.into(), r.aux, 0, 0, 0]),
            Call::Ficlone | Call::Ficlonerange => copies::clone(r, fd, fd2, offset),
            c if c.sets_attribute() => attributes::set(a, chunk.paths.bytes(r.value)),
            c if c.gets_attribute() || c.removes_attribute() || c.lists_attributes() => {
                let room = if len == 0 { 0 } else { self.sink.at(len as usize) as i64 };
                attributes::other(a, room, len)
            }
            _ if attributes::has_flags(r) => attributes::flags(a),
            c if c.is_request() => requests::request(a, &mut self.sink),
            c if c.locks() || c.asks_for_lock() => locks::lock(r, fd),
            c if c.sets_user() => become_again(r, if r.value == NONE { &[] } else { chunk.paths.bytes(r.value) }),
            Call::NameToHandleAt => requests::handle(a),
            Call::Cachestat => requests::cached(a, offset),
            Call::Getcwd => call(libc::SYS_getcwd, [self.sink.at(len as usize) as i64, len, 0, 0, 0, 0]),
            Call::Chroot => call(libc::SYS_chroot, [p, 0, 0, 0, 0, 0]),
            Call::Sync => requests::sync_all(),
            // The table is unshared by a step of its own, which fills cells anew.
            Call::Unshare => call(libc::SYS_unshare, [r.flags & clone::FS, 0, 0, 0, 0, 0]),
            Call::Fadvise64 => call(libc::SYS_fadvise64, [fd, offset, r.len_bytes, r.flags, 0, 0]),
            Call::Readahead => call(libc::SYS_readahead, [fd, offset, r.len_bytes, 0, 0, 0]),
            Call::Syncfs => call(libc::SYS_syncfs, [fd, 0, 0, 0, 0, 0]),
            Call::Statfs | Call::Fstatfs => {
                let mut out = MaybeUninit::<libc::statfs>::uninit();
                let at = out.as_mut_ptr() as i64;
                match r.call {
                    Call::Statfs => call(libc::SYS_statfs, [p, at, 0, 0, 0, 0]),
                    _ => call(libc::SYS_fstatfs, [fd, at, 0, 0, 0, 0]),
                }
            }
            Call::Mmap => self.cells.map_again(r, fd, offset, new),
            c if c.on_mapping() || c.touches() => self.cells.on_mapping(r, slot_fd, &mut self.sink),
            // Of a splice only one end is a file; an open by handle is planned as one by name.
            _ => without_call(-i64::from(libc::ENOSYS)),
        }
    }

    fn open(&self, r: &Rec, fd: i64, path: i64, new: u32) -> i64 {
        let given = match r.call {
            Call::Creat => i64::from(libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY),
            _ => r.flags,
        };
        let flags = open_flags(given);
        let ret = if r.call == Call::Openat2 {
            let how = OpenHow { flags: flags as u64, mode: u64::from(r.mode as u32), resolve: r.aux2 as u64 };
            let size = size_of::<OpenHow>() as i64;
            call(libc::SYS_openat2, [fd, path, ptr::from_ref(&how) as i64, size, 0, 0])
        } else {
            call(libc::SYS_openat, [fd, path, flags, r.mode.into(), 0, 0])
        };
        if ret >= 0 {
            if new == NONE {
                // It failed in the recording: nobody will close it.
                call(libc::SYS_close, [ret, 0, 0, 0, 0, 0]);
            } else {
                self.cells.set(new, ret as i32);
            }
        }
        ret
    }

    /// Makes what an operation is to write.
    pub fn make_ready(&mut self, r: &Rec) {
        let len = r.len_bytes.clamp(0, MAX_CALL_BYTES as i64) as usize;
        if !self.data.is_made() || !r.call.writes() || len == 0 {
            return;
        }
        let at = self.made.0.at(len);
        if at.is_null() {
            return;
        }
        // SAFETY: the mapping is this thread's own, at least so long, and nobody else refers to it.
        let out = unsafe { std::slice::from_raw_parts_mut(at, len) };
        self.data.make(r, r.file, r.offset_bytes, out);
        self.made.1 = Some(r.row);
    }

    /// What an operation writes.
    fn written(&mut self, r: &Rec, len: usize) -> *const u8 {
        if self.made.1.take() == Some(r.row) { self.made.0.at(len) } else { self.source.at(r.row) }
    }

    /// The bytes that a read got.
    pub fn got(&mut self, n: usize) -> &[u8] {
        let at = self.sink.at(n);
        if at.is_null() {
            return &[];
        }
        // SAFETY: the mapping is this thread's own and at least so long; the call that wrote it has returned.
        unsafe { std::slice::from_raw_parts(at, n) }
    }

    fn vector(&mut self, r: &Rec, fd: i64, len: usize, offset: i64) -> i64 {
        let count = r.aux.clamp(0, 1024) as usize;
        let writes = r.call.writes();
        let base = if writes { self.written(r, len).cast_mut() } else { self.sink.at(len) };
        // How the bytes were spread is not recorded: evenly, in whole pages where that is possible, which
        // is what direct I/O needs.
        let mut piece = len / count.max(1);
        if piece >= 4096 {
            piece &= !4095;
        }
        self.iov.clear();
        for i in 0..count {
            let from = i * piece;
            let iov_len = if i + 1 == count { len - from } else { piece };
            self.iov.push(libc::iovec { iov_base: base.wrapping_add(from).cast::<c_void>(), iov_len });
        }
        // A number that the kernel refuses is passed on: it is looked at before the vector.
        let n = if (0..=1024).contains(&r.aux) { count as i64 } else { r.aux };
        let iov = self.iov.as_ptr() as i64;
        // The position is passed as two halves; on 64-bit kernels the low half is all of it.
        match r.call {
            Call::Readv => call(libc::SYS_readv, [fd, iov, n, 0, 0, 0]),
            Call::Writev => call(libc::SYS_writev, [fd, iov, n, 0, 0, 0]),
            Call::Preadv => call(libc::SYS_preadv, [fd, iov, n, offset, 0, 0]),
            Call::Pwritev => call(libc::SYS_pwritev, [fd, iov, n, offset, 0, 0]),
            other => {
                let at = if r.aux2 == 1 { -1 } else { offset };
                let number = if other == Call::Preadv2 { libc::SYS_preadv2 } else { libc::SYS_pwritev2 };
                call(number, [fd, iov, n, at, 0, r.flags])
            }
        }
    }

    /// A copy between a file and something that is none (a pipe, a socket): the file's side of it, as much as was moved.
    fn half_copy(&mut self, r: &Rec, writes: bool, fd: i64, fd2: i64) -> i64 {
        let len = r.ret.clamp(0, MAX_CALL_BYTES as i64);
        let (fd, at, position) =
            if writes { (fd2, r.offset2_bytes, r.aux & 2 != 0) } else { (fd, r.offset_bytes, r.aux & 1 != 0) };
        let data = if writes { self.source.at(r.row) as i64 } else { self.sink.at(len as usize) as i64 };
        let number = match (writes, position || at == NO_ID) {
            (false, true) => libc::SYS_read,
            (false, false) => libc::SYS_pread64,
            (true, true) => libc::SYS_write,
            (true, false) => libc::SYS_pwrite64,
        };
        call(number, [fd, data, len, at, 0, 0])
    }

    fn duplicate(&self, r: &Rec, fd: i64, slot_fd: i32, slot_fd2: i32, new: u32) -> i64 {
        let cloexec = r.call == Call::Dup3 && r.flags as i32 & libc::O_CLOEXEC != 0
            || r.call == Call::Fcntl && r.flags == i64::from(libc::F_DUPFD_CLOEXEC);
        let onto = self.cells.fd(slot_fd2);
        let ret = if matches!(r.call, Call::Dup2 | Call::Dup3) && r.fd == r.fd2 {
            // Onto itself: dup2 only checks the descriptor, dup3 refuses.
            if r.call == Call::Dup3 {
                return without_call(-i64::from(libc::EINVAL));
            }
            return call(libc::SYS_fcntl, [fd, libc::F_GETFD.into(), 0, 0, 0, 0]).min(0);
        } else if matches!(r.call, Call::Dup2 | Call::Dup3) && slot_fd2 >= 0 && onto >= 0 && r.ret >= 0 {
            let flags = if cloexec { i64::from(libc::O_CLOEXEC) } else { 0 };
            call(libc::SYS_dup3, [fd, onto.into(), flags, 0, 0, 0])
        } else if r.ret < 0 && slot_fd >= 0 && fd >= 0 {
            // A refused number (EINVAL, EBADF): numbers are not replayed, so the refusal is repeated.
            return without_call(r.ret);
        } else {
            // The number asked for is free in the recording and may be taken here: any other will do.
            let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
            call(libc::SYS_fcntl, [fd, command.into(), 0, 0, 0, 0])
        };
        if ret >= 0 {
            if new == NONE {
                call(libc::SYS_close, [ret, 0, 0, 0, 0, 0]);
            } else {
                if slot_fd2 >= 0 && i64::from(onto) == ret {
                    self.cells.set(slot_fd2 as u32, -1);
                }
                self.cells.set(new, ret as i32);
            }
        }
        ret
    }
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

/// `aux` and `aux2` as the reel stores times.
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
