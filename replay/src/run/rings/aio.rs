//! A context of Linux AIO. libc has no wrappers for its five calls.

use std::{io, ptr};

use super::{Buffers, Keep, bytes};
use crate::{
    Call,
    contents::buffers::WINDOW_BYTES,
    reel::input::{NO_ID, Rec},
};

/// Requests in flight, at most.
const EVENTS: i64 = 512;

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

fn call(number: i64, args: [i64; 5]) -> Result<i64, i32> {
    let [a, b, c, d, e] = args;
    // SAFETY: callers pass contexts of this module, and memory of the given length.
    match unsafe { libc::syscall(number, a, b, c, d, e) } {
        r if r >= 0 => Ok(r),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// A context (`io_context_t`).
pub(super) struct Context {
    id: i64,
    queue: Vec<ControlBlock>,
    in_flight: i64,
}

impl Context {
    pub(super) fn new() -> io::Result<Self> {
        let mut id = 0_i64;
        call(libc::SYS_io_setup, [EVENTS, ptr::from_mut(&mut id) as i64, 0, 0, 0])
            .map_err(io::Error::from_raw_os_error)?;
        Ok(Self { id, queue: Vec::new(), in_flight: 0 })
    }

    pub(super) fn put(&mut self, r: &Rec, fd: i32, buffers: &mut Buffers<'_>) -> Option<Keep> {
        const PREAD: u16 = 0;
        const PWRITE: u16 = 1;
        const FSYNC: u16 = 2;
        const FDSYNC: u16 = 3;
        const PREADV: u16 = 7;
        const PWRITEV: u16 = 8;
        let len = bytes(r);
        let mut keep = Keep::Nothing;
        let (opcode, buffer, len) = match r.call {
            Call::Pread64 if len <= WINDOW_BYTES => (PREAD, buffers.data(r, len) as u64, len as u64),
            Call::Pwrite64 if len <= WINDOW_BYTES => (PWRITE, buffers.data(r, len) as u64, len as u64),
            Call::Fsync => (FSYNC, 0, 0),
            Call::Fdatasync => (FDSYNC, 0, 0),
            call => {
                let vector = buffers.vector(r);
                let (at, count) = (vector.as_ptr() as u64, vector.len() as u64);
                keep = Keep::Vector(vector);
                (if call.reads() { PREADV } else { PWRITEV }, at, count)
            }
        };
        self.queue.push(ControlBlock {
            data: r.row.into(),
            rw_flags: if matches!(opcode, FSYNC | FDSYNC) { 0 } else { r.flags as i32 },
            opcode,
            fd: fd as u32,
            buffer,
            len,
            // An append has no recorded position. The kernel ignores this one.
            offset: if r.offset_bytes == NO_ID || matches!(opcode, FSYNC | FDSYNC) { 0 } else { r.offset_bytes },
            ..ControlBlock::default()
        });
        Some(keep)
    }

    pub(super) fn flush(&mut self, end: &mut dyn FnMut(u32, i64)) {
        let mut blocks = std::mem::take(&mut self.queue);
        let mut at = 0;
        while at < blocks.len() {
            let pointers: Vec<*mut ControlBlock> = blocks[at..].iter_mut().map(ptr::from_mut).collect();
            match call(libc::SYS_io_submit, [self.id, pointers.len() as i64, pointers.as_ptr() as i64, 0, 0]) {
                Ok(n) if n > 0 => {
                    at += n as usize;
                    self.in_flight += n;
                }
                Err(libc::EINTR) => {}
                // The context is full.
                Err(libc::EAGAIN) if self.in_flight > 0 && self.wait(end).is_ok() => {}
                refused => {
                    end(blocks[at].data as u32, -i64::from(refused.err().unwrap_or(libc::EAGAIN)));
                    at += 1;
                }
            }
        }
    }

    pub(super) fn wait(&mut self, end: &mut dyn FnMut(u32, i64)) -> Result<(), i32> {
        const MOST: usize = 64;
        if self.in_flight == 0 {
            return Err(libc::ECANCELED);
        }
        let mut events = [Event::default(); MOST];
        let n = loop {
            match call(libc::SYS_io_getevents, [self.id, 1, MOST as i64, events.as_mut_ptr() as i64, 0]) {
                Ok(n) => break n,
                Err(libc::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        };
        self.in_flight -= n;
        events.iter().take(n as usize).for_each(|e| end(e.data as u32, e.result));
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // The kernel destroys it at the end of the process at the latest.
        let _ = call(libc::SYS_io_destroy, [self.id, 0, 0, 0, 0]);
    }
}
