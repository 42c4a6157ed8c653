//! Issues one recorded call: the same call with the same arguments. Descriptors and addresses are translated.
//!
//! Legacy x86-64 calls without a directory descriptor (`open`, `stat`, `unlink`, …) are issued as their `*at`
//! equivalents, by which the kernel implements them.

use std::ptr;

use libc::c_void;

mod arguments;
mod attributes;
pub mod cells;
mod copies;
mod direct;
mod direct_counts;
pub(crate) mod locks;
mod memory;
mod modes;
pub(crate) mod permitted;
mod plain;
mod requests;
pub(crate) mod stamp;
mod subvolumes;
pub(crate) mod syscall;
mod top;

use crate::{
    Call,
    contents::{
        buffers::{MAX_CALL_BYTES, Sink, Source, WINDOW_BYTES, windows},
        data::Data,
    },
    model::operands::{BAD_FD, CWD},
    plan::{chunk::Chunk, program::Range},
    reel::{
        equivalents::makes_subvolume,
        input::{NO_ID, NONE, Rec},
    },
    run::{
        credentials::{become_again, ready_for},
        space::{Space, most_bytes},
    },
};

use self::{
    arguments::Arguments,
    cells::Cells,
    stamp::without_call,
    syscall::{call, open_flags},
};

/// Parts of an I/O vector, at most (`UIO_MAXIOV`).
const MOST_PARTS: i64 = 1024;

/// Issues calls for one thread.
#[derive(Debug)]
pub struct Issuer<'a> {
    cells: &'a Cells,
    source: &'a Source,
    data: &'a Data,
    space: &'a Space,
    /// Set modes with their set-ID bits.
    set_ids: bool,
    /// Generated data, and the row of the operation for which it was generated.
    made: (Sink, Option<u32>),
    sink: Sink,
    iov: Vec<libc::iovec>,
}

/// The struct `open_how` of `openat2`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// The number of parts of a vector that is passed to the kernel: `count`, which are there, or one that it refuses before it
/// reads the vector, as it refused the recorded one. Not the recorded one itself: the kernel looks at its low 32 bits
/// alone, which may be any number.
fn passed_count(recorded: i64, count: usize) -> i64 {
    if (0..=MOST_PARTS).contains(&recorded) { count as i64 } else { u32::MAX.into() }
}

impl<'a> Issuer<'a> {
    /// An issuer for one thread.
    pub(crate) fn new(
        cells: &'a Cells,
        (source, data): (&'a Source, &'a Data),
        space: &'a Space,
        set_ids: bool,
    ) -> Self {
        Self {
            cells,
            source,
            data,
            space,
            set_ids,
            made: (Sink::default(), None),
            sink: Sink::default(),
            iov: Vec::new(),
        }
    }

    /// Issues operation `rec` of this piece with the descriptors in these slots. Returns the result or -errno.
    pub fn issue(&mut self, chunk: &Chunk, rec: u32, slot_fd: i32, slot_fd2: i32, new: u32, list: Range) -> i64 {
        let r = &chunk.recs[rec as usize];
        ready_for(r);
        stamp::begin(r.row);
        if slot_fd != CWD && r.call.takes_no_directory() {
            let dir = self.cells.fd(slot_fd);
            return top::stand(dir, r.call == Call::Chdir, || self.issue(chunk, rec, CWD, slot_fd2, new, list));
        }
        let a = Arguments::of(chunk, r, self.cells.fd(slot_fd).into(), self.cells.fd(slot_fd2).into());
        let mapped_bytes = || self.cells.mapped_bytes(slot_fd as u32);
        let space = self.space;
        let Some(_taken) = space.grant(r, most_bytes(r, mapped_bytes, || copies::length_bytes(a.fd))) else {
            return without_call(-i64::from(libc::ENOSPC));
        };
        match r.call {
            c if c.reads() || c.writes() => self.transfer(a),
            Call::Open | Call::Openat | Call::Creat | Call::Openat2 => self.open(r, a.fd, a.path, new),
            _ if makes_subvolume(r) => subvolumes::create(a, &self.cells.plain),
            Call::SnapCreate => subvolumes::snapshot(a),
            Call::SnapDestroy => subvolumes::destroy(a),
            Call::Close if slot_fd < 0 => call(libc::SYS_close, [a.fd, 0, 0, 0, 0, 0]),
            Call::Close => self.cells.close(slot_fd as u32),
            // The recorded range was invalid, so an invalid one is passed.
            Call::CloseRange if r.ret < 0 => call(libc::SYS_close_range, [1, 0, 0, 0, 0, 0]),
            Call::CloseRange => {
                for slot in list.of(&chunk.lists) {
                    self.cells.close(*slot);
                }
                without_call(0)
            }
            Call::Dup | Call::Dup2 | Call::Dup3 | Call::Fcntl => self.duplicate(r, a.fd, slot_fd, slot_fd2, new),
            c if c.copies() && r.ret >= 0 && (slot_fd == BAD_FD || slot_fd2 == BAD_FD) => {
                self.half_copy(r, slot_fd == BAD_FD, a.fd, a.fd2)
            }
            c if c.copies() => copies::copy(r, a.fd, a.fd2, a.len, a.offset),
            c if c.clones() => copies::clone(r, a.fd, a.fd2, a.offset, |bytes| space.grant(r, bytes).is_some()),
            c if c.sets_attribute() => attributes::set(a, chunk.paths.bytes(r.value)),
            c if c.sets_user() => become_again(r, if r.value == NONE { &[] } else { chunk.paths.bytes(r.value) }),
            Call::Mmap => self.cells.map_again(r, a.fd, a.offset, new),
            c if c.on_mapping() || c.touches() => self.cells.on_mapping(r, slot_fd, &mut self.sink),
            c if c.chmods() => modes::change(a, self.set_ids),
            _ if attributes::has_flags(r) => attributes::flags(a),
            c if c.locks() || c.asks_for_lock() => locks::lock(r, a.fd),
            _ => self
                .lookup(a)
                .or_else(|| plain::on_names(a))
                .or_else(|| plain::on_descriptors(a))
                // Not reached by planned calls: an open by handle, for example, is planned as an open by name.
                .unwrap_or_else(|| without_call(-i64::from(libc::ENOSYS))),
        }
    }

    /// Reads and writes.
    fn transfer(&mut self, a: Arguments<'_>) -> i64 {
        let Arguments { rec: r, fd, len, offset, .. } = a;
        // A count of parts that the kernel refuses is passed on below.
        if len > WINDOW_BYTES as i64 && (0..=MOST_PARTS).contains(&r.aux) {
            return self.long_transfer(a);
        }
        match r.call {
            Call::Read => call(libc::SYS_read, [fd, self.sink.at(len as usize) as i64, len, 0, 0, 0]),
            Call::Pread64 => call(libc::SYS_pread64, [fd, self.sink.at(len as usize) as i64, len, offset, 0, 0]),
            Call::Write => call(libc::SYS_write, [fd, self.written(r, len as usize) as i64, len, 0, 0, 0]),
            Call::Pwrite64 => call(libc::SYS_pwrite64, [fd, self.written(r, len as usize) as i64, len, offset, 0, 0]),
            _ => self.vector(r, fd, len as usize, offset),
        }
    }

    /// Calls that fill a buffer with something other than file data. `None` for others.
    fn lookup(&mut self, a: Arguments<'_>) -> Option<i64> {
        let (fd, len) = (a.fd, a.len);
        let mut buffer = || self.sink.at(len as usize) as i64;
        Some(match a.rec.call {
            Call::Getdents | Call::Getdents64 => call(libc::SYS_getdents64, [fd, buffer(), len, 0, 0, 0]),
            Call::Readlink | Call::Readlinkat => call(libc::SYS_readlinkat, [fd, a.path, buffer(), len, 0, 0]),
            Call::Getcwd => call(libc::SYS_getcwd, [buffer(), len, 0, 0, 0, 0]),
            c if c.gets_attribute() || c.removes_attribute() || c.lists_attributes() => {
                attributes::other(a, if len == 0 { 0 } else { buffer() }, len)
            }
            c if c.is_request() => requests::request(a, &mut self.sink),
            _ => return None,
        })
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
                // The open failed in the recording, so no later step closes this descriptor.
                call(libc::SYS_close, [ret, 0, 0, 0, 0, 0]);
            } else {
                self.cells.set(new, ret as i32);
            }
        }
        ret
    }

    /// Generates the data that an operation is going to write.
    pub fn make_ready(&mut self, r: &Rec) {
        let len = r.len_bytes.clamp(0, MAX_CALL_BYTES as i64) as usize;
        if !self.data.is_made() || !r.call.writes() || len == 0 || len > WINDOW_BYTES {
            return;
        }
        let at = self.made.0.at(len);
        if at.is_null() {
            return;
        }
        // SAFETY: the mapping belongs to this thread, has at least this length, and nothing else refers to it.
        let out = unsafe { std::slice::from_raw_parts_mut(at, len) };
        self.data.make(r, r.file, r.offset_bytes, out);
        self.made.1 = Some(r.row);
    }

    /// The data that an operation writes.
    fn written(&mut self, r: &Rec, len: usize) -> *const u8 {
        if self.made.1.take() == Some(r.row) { self.made.0.at(len) } else { self.source.at(r.row, len) }
    }

    /// The `n` bytes that the last read returned. `None` if memory did not hold them all.
    pub fn got(&mut self, n: usize) -> Option<&[u8]> {
        let at = self.sink.at(n);
        if at.is_null() || n > WINDOW_BYTES {
            return None;
        }
        // SAFETY: the mapping belongs to this thread and has at least this length. The call that wrote it has returned.
        Some(unsafe { std::slice::from_raw_parts(at, n) })
    }

    /// Gives back memory that the last operation took, where there is much of it.
    pub fn shrink(&mut self) {
        self.sink.shrink();
        self.made.0.shrink();
    }

    /// A read or write of more than a window, as one call.
    fn long_transfer(&mut self, a: Arguments<'_>) -> i64 {
        let Arguments { rec: r, fd, len, offset, .. } = a;
        let base =
            if r.call.writes() { self.source.at(r.row, WINDOW_BYTES).cast_mut() } else { self.sink.at(WINDOW_BYTES) };
        let parts = windows(base, len as usize);
        let (iov, n) = (parts.as_ptr() as i64, parts.len() as i64);
        match r.call {
            Call::Read | Call::Readv => call(libc::SYS_readv, [fd, iov, n, 0, 0, 0]),
            Call::Write | Call::Writev => call(libc::SYS_writev, [fd, iov, n, 0, 0, 0]),
            Call::Pread64 | Call::Preadv => call(libc::SYS_preadv, [fd, iov, n, offset, 0, 0]),
            Call::Pwrite64 | Call::Pwritev => call(libc::SYS_pwritev, [fd, iov, n, offset, 0, 0]),
            other => {
                let at = if r.aux2 == 1 { -1 } else { offset };
                let number = if other == Call::Preadv2 { libc::SYS_preadv2 } else { libc::SYS_pwritev2 };
                call(number, [fd, iov, n, at, 0, r.flags])
            }
        }
    }

    fn vector(&mut self, r: &Rec, fd: i64, len: usize, offset: i64) -> i64 {
        let count = r.aux.clamp(0, MOST_PARTS) as usize;
        let writes = r.call.writes();
        let base = if writes { self.written(r, len).cast_mut() } else { self.sink.at(len) };
        // The lengths of the vector's parts are not recorded. They are made equal, in whole pages if possible, as
        // direct I/O requires.
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
        let n = passed_count(r.aux, count);
        let iov = self.iov.as_ptr() as i64;
        // The position is passed as two halves. On a 64-bit kernel, the low half is the whole position.
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

    /// A copy between a file and something else (a pipe, a socket): reads or writes the file, as many bytes as were
    /// copied.
    fn half_copy(&mut self, r: &Rec, writes: bool, fd: i64, fd2: i64) -> i64 {
        let len = r.ret.clamp(0, MAX_CALL_BYTES as i64);
        let (fd, at, position) =
            if writes { (fd2, r.offset2_bytes, r.aux & 2 != 0) } else { (fd, r.offset_bytes, r.aux & 1 != 0) };
        let window = (len as usize).min(WINDOW_BYTES);
        let data = if writes { self.source.at(r.row, window).cast_mut() } else { self.sink.at(window) };
        let parts = windows(data, len as usize);
        let number = match (writes, position || at == NO_ID) {
            (false, true) => libc::SYS_readv,
            (false, false) => libc::SYS_preadv,
            (true, true) => libc::SYS_writev,
            (true, false) => libc::SYS_pwritev,
        };
        call(number, [fd, parts.as_ptr() as i64, parts.len() as i64, at, 0, 0])
    }

    fn duplicate(&self, r: &Rec, fd: i64, slot_fd: i32, slot_fd2: i32, new: u32) -> i64 {
        let cloexec = r.call == Call::Dup3 && r.flags as i32 & libc::O_CLOEXEC != 0
            || r.call == Call::Fcntl && r.flags == i64::from(libc::F_DUPFD_CLOEXEC);
        let onto = self.cells.fd(slot_fd2);
        let ret = if matches!(r.call, Call::Dup2 | Call::Dup3) && r.fd == r.fd2 {
            // The same number twice: dup2 only checks the descriptor, dup3 fails.
            if r.call == Call::Dup3 {
                return without_call(-i64::from(libc::EINVAL));
            }
            return call(libc::SYS_fcntl, [fd, libc::F_GETFD.into(), 0, 0, 0, 0]).min(0);
        } else if matches!(r.call, Call::Dup2 | Call::Dup3) && slot_fd2 >= 0 && onto >= 0 && r.ret >= 0 {
            let flags = if cloexec { i64::from(libc::O_CLOEXEC) } else { 0 };
            call(libc::SYS_dup3, [fd, onto.into(), flags, 0, 0, 0])
        } else if r.ret < 0 && slot_fd >= 0 && fd >= 0 {
            // The kernel refused the number (EINVAL, EBADF). Numbers are not replayed, so the refusal is repeated
            // without a call.
            return without_call(r.ret);
        } else {
            // The requested number was free in the recording and may be in use here. Any other number will do.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reads_no_more_parts_than_there_are() {
        assert_eq!((passed_count(0, 0), passed_count(7, 7), passed_count(1024, 1024)), (0, 7, 1024));
        for recorded in [-1, 1025, i64::MIN, i64::MAX, (1 << 32) + 5, 1000 - (1 << 32)] {
            let refused = passed_count(recorded, recorded.clamp(0, MOST_PARTS) as usize) as u32;
            assert!(i64::from(refused) > MOST_PARTS, "{recorded}: {refused}");
        }
    }
}
