//! Issues io_uring and Linux AIO requests, in the batches in which they were submitted.
//!
//! Each thread has rings and contexts of its own, one for each that it used in the recording. If the kernel refuses to
//! create one (too old, a sysctl, a seccomp filter), its requests are issued as calls and the user gets a warning.

mod aio;
mod entry;
mod uring;

use std::collections::HashMap;

use crate::{
    Call,
    contents::{
        buffers::{MAX_CALL_BYTES, Sink, Source, WINDOW_BYTES, windows},
        data::Data,
    },
    plan::chunk::Chunk,
    reel::{
        input::Rec,
        submission::{Via, sqe},
    },
    run::{
        engine::Reaped,
        issue::cells::Cells,
        space::{Grant, Space, most_bytes},
    },
};

use aio::Context;
use uring::Uring;

/// Memory that must stay in place until a request has ended.
#[derive(Default)]
enum Keep {
    /// Nothing.
    #[default]
    Nothing,
    /// The I/O vector.
    Vector(#[expect(dead_code, reason = "the kernel reads it")] Box<[libc::iovec]>),
    /// The `open_how`.
    How(#[expect(dead_code, reason = "the kernel reads it")] Box<io_uring::types::OpenHow>),
    /// The buffer of statx.
    Stat(#[expect(dead_code, reason = "the kernel writes it")] Box<libc::statx>),
}

/// A request that was added to a batch.
struct Ticket<'a> {
    due_ns: i64,
    free_ns: i64,
    /// Time of submission. 0 before.
    start_ns: i64,
    /// Time of completion, and the result.
    done: Option<(i64, i64)>,
    /// The memory that it reads into.
    sink: Option<Sink>,
    keep: Keep,
    /// The disk space that it may take.
    _taken: Option<Grant<'a>>,
}

impl Ticket<'_> {
    /// Lets the kernel have the memory of a request whose end nobody will see: it may still read or write there.
    fn give_up_memory(&mut self) {
        std::mem::forget((self.sink.take(), std::mem::take(&mut self.keep)));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.start_ns != 0 && self.done.is_none() {
            self.give_up_memory();
        }
    }
}

/// A ring or context.
enum Means {
    Uring(Box<Uring>),
    Aio(Context),
    /// The kernel refused to create it.
    Refused,
}

/// The data that requests write, and memory that they read into.
pub(crate) struct Buffers<'a> {
    source: &'a Source,
    data: &'a Data,
    /// Memory for reads. Each request in flight has its own: a file system that verifies what it has read (btrfs)
    /// reports damage if another request writes there meanwhile.
    free: Vec<Sink>,
    /// The memory of the current request.
    taken: Option<Sink>,
}

impl Buffers<'_> {
    fn sink(&mut self, len: usize) -> *mut u8 {
        let mut sink = self.free.pop().unwrap_or_default();
        let at = sink.at(len);
        self.taken = Some(sink);
        at
    }

    /// Memory for a request: the data that it writes, or room for what it reads.
    fn data(&mut self, r: &Rec, len: usize) -> *mut u8 {
        if !r.call.writes() {
            return self.sink(len);
        }
        if !self.data.is_made() || len == 0 || bytes(r) > WINDOW_BYTES {
            return self.source.at(r.row, len).cast_mut();
        }
        let at = self.sink(len);
        if !at.is_null() {
            // SAFETY: the mapping belongs to this request and has at least this length.
            self.data.make(r, r.file, r.offset_bytes, unsafe { std::slice::from_raw_parts_mut(at, len) });
        }
        at
    }

    /// The I/O vector of a request, in parts of equal length.
    fn vector(&mut self, r: &Rec) -> Box<[libc::iovec]> {
        let len = bytes(r);
        if len > WINDOW_BYTES {
            return windows(self.data(r, WINDOW_BYTES), len).into();
        }
        let base = self.data(r, len);
        let count = r.aux.clamp(1, 1024) as usize;
        let piece = match len / count {
            piece if piece >= 4096 => piece & !4095,
            piece => piece,
        };
        let of = |i: usize| libc::iovec {
            iov_base: base.wrapping_add(i * piece).cast(),
            iov_len: if i + 1 == count { len - i * piece } else { piece },
        };
        (0..count).map(of).collect()
    }
}

/// Bytes that a request moves, at most.
fn bytes(r: &Rec) -> usize {
    r.len_bytes.clamp(0, MAX_CALL_BYTES as i64) as usize
}

/// Issues requests for one thread.
pub(crate) struct Rings<'a> {
    cells: &'a Cells,
    buffers: Buffers<'a>,
    space: &'a Space,
    /// Recorded setup flags of the rings.
    ring_flags: &'a HashMap<i64, i64>,
    means: HashMap<(Via, i64), Means>,
    tickets: HashMap<u32, Ticket<'a>>,
    /// The requests of the current batch, and their ring.
    batch: Vec<u32>,
    on: (Via, i64),
    /// Why requests are issued as calls.
    refusals: Vec<String>,
}

impl<'a> Rings<'a> {
    /// Rings for one thread.
    pub(crate) fn new(
        cells: &'a Cells,
        (source, data): (&'a Source, &'a Data),
        space: &'a Space,
        ring_flags: &'a HashMap<i64, i64>,
    ) -> Self {
        Self {
            cells,
            space,
            ring_flags,
            buffers: Buffers { source, data, free: Vec::new(), taken: None },
            means: HashMap::new(),
            tickets: HashMap::new(),
            batch: Vec::new(),
            on: (Via::Call, 0),
            refusals: Vec::new(),
        }
    }

    /// Adds a request to the batch. If its ring could not be created, the request is only noted, and [`Self::reap`]
    /// says that it must be issued as a call.
    pub(crate) fn submit(
        &mut self,
        chunk: &Chunk,
        rec: u32,
        (fd, fd2): (i32, i32),
        (due_ns, free_ns): (i64, i64),
        now: impl Fn() -> i64,
    ) {
        let r = &chunk.recs[rec as usize];
        let key = (r.via, r.ring);
        if !self.batch.is_empty() && self.on != key {
            self.flush(&now);
        }
        self.on = key;
        let refusals = &mut self.refusals;
        let flags = self.ring_flags.get(&r.ring).copied().unwrap_or(0);
        let means = self.means.entry(key).or_insert_with(|| match make(r.via, flags) {
            Ok(means) => means,
            Err(e) => {
                let what = if r.via == Via::Aio { "Linux AIO" } else { "io_uring" };
                refusals.push(format!("{what} is refused here ({e}); its requests are issued as system calls"));
                Means::Refused
            }
        });
        let (fd, fd2) = (self.cells.fd(fd), self.cells.fd(fd2));
        // A request that is issued as a call asks for space then.
        let is_refused = matches!(means, Means::Refused);
        let taken = if is_refused { None } else { self.space.grant(r, most_bytes(r, || 0, || None)) };
        let keep = match means {
            Means::Refused => Some(Keep::Nothing),
            _ if taken.is_none() => Some(Keep::Nothing),
            Means::Uring(ring) => ring.put(chunk, r, (fd, fd2), &mut self.buffers),
            Means::Aio(context) => context.put(r, fd, &mut self.buffers),
        };
        let (done, keep) = match keep {
            Some(keep) if is_refused || taken.is_some() => (None, keep),
            Some(keep) => (Some((now(), -i64::from(libc::ENOSPC))), keep),
            // The queue is full of requests that the kernel does not accept.
            None => (Some((now(), -i64::from(libc::EAGAIN))), Keep::Nothing),
        };
        if !is_refused && done.is_none() {
            self.batch.push(r.row);
        }
        self.tickets.insert(
            r.row,
            Ticket { due_ns, free_ns, start_ns: 0, done, sink: self.buffers.taken.take(), keep, _taken: taken },
        );
    }

    /// Submits the batch with one call.
    pub(crate) fn flush(&mut self, now: impl Fn() -> i64) {
        if self.batch.is_empty() {
            return;
        }
        let start_ns = now();
        for row in self.batch.drain(..) {
            if let Some(t) = self.tickets.get_mut(&row) {
                t.start_ns = start_ns;
            }
        }
        let tickets = &mut self.tickets;
        let mut end = |row: u32, ret: i64| ended(tickets, row, ret, now());
        match self.means.get_mut(&self.on) {
            Some(Means::Uring(ring)) => ring.flush(&mut end),
            Some(Means::Aio(context)) => context.flush(&mut end),
            _ => {}
        }
    }

    /// Waits for the end of a request. A descriptor that it opened goes into cell `new`. `Err`: the request must be
    /// issued as a call, with this deadline.
    pub(crate) fn reap(&mut self, r: &Rec, fd: i32, new: u32, now: impl Fn() -> i64) -> Result<Reaped, i64> {
        self.flush(&now);
        loop {
            let Some(t) = self.tickets.get(&r.row) else { return Err(now()) };
            if let Some((end_ns, ret)) = t.done {
                let (due_ns, free_ns, start_ns) =
                    (t.due_ns, t.free_ns, if t.start_ns == 0 { end_ns } else { t.start_ns });
                self.buffers.free.extend(self.tickets.remove(&r.row).and_then(|mut t| t.sink.take()));
                self.fill_cells(r, fd, new, ret);
                return Ok(Reaped { due_ns, free_ns, start_ns, end_ns, ret });
            }
            let due_ns = t.due_ns;
            let tickets = &mut self.tickets;
            let mut end = |row: u32, ret: i64| ended(tickets, row, ret, now());
            let waited = match self.means.get_mut(&(r.via, r.ring)) {
                Some(Means::Uring(ring)) => ring.wait(&mut end),
                Some(Means::Aio(context)) => context.wait(&mut end),
                _ => {
                    self.tickets.remove(&r.row);
                    return Err(due_ns);
                }
            };
            if let Err(errno) = waited {
                if let Some(t) = self.tickets.get_mut(&r.row) {
                    t.give_up_memory();
                }
                ended(&mut self.tickets, r.row, -i64::from(errno), now());
            }
        }
    }

    fn fill_cells(&self, r: &Rec, fd: i32, new: u32, ret: i64) {
        if ret < 0 || r.sqe_flags & sqe::DIRECT != 0 {
            return;
        }
        if r.call.opens() && !self.cells.set(new, ret as i32) {
            crate::run::issue::syscall::close(ret);
        }
        if let (Call::Close, Ok(slot)) = (r.call, u32::try_from(fd)) {
            self.cells.set(slot, -1);
        }
    }

    /// The `n` bytes that the last reaped read returned. `None` if memory did not hold them all.
    pub(crate) fn got(&mut self, n: usize) -> Option<&[u8]> {
        let at = self.buffers.free.last_mut().map_or(std::ptr::null_mut(), |s| s.at(n));
        if at.is_null() || n > WINDOW_BYTES {
            return None;
        }
        // SAFETY: nothing refers to the mapping since its request has ended, and it has at least this length.
        Some(unsafe { std::slice::from_raw_parts(at, n) })
    }

    /// Gives back memory that the last request took, where there is much of it.
    pub(crate) fn shrink(&mut self) {
        self.buffers.free.iter_mut().for_each(Sink::shrink);
    }

    /// Closes io_uring rings, which keep files open. Returns why requests were issued as calls. Contexts of Linux AIO
    /// are destroyed only when `self` is dropped: that takes the kernel about 10 ms, which no other thread should wait
    /// for.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.means.retain(|_, means| matches!(means, Means::Aio(_)));
        std::mem::take(&mut self.refusals)
    }
}

fn make(via: Via, flags: i64) -> std::io::Result<Means> {
    Ok(match via {
        Via::Aio => Means::Aio(Context::new()?),
        _ => Means::Uring(Box::new(Uring::new(flags)?)),
    })
}

fn ended(tickets: &mut HashMap<u32, Ticket<'_>>, row: u32, ret: i64, now_ns: i64) {
    if let Some(t) = tickets.get_mut(&row) {
        t.done = Some((now_ns, ret));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(start_ns: i64, done: Option<(i64, i64)>) -> (Ticket<'static>, *mut u8) {
        let mut sink = Sink::default();
        let at = sink.at(4096);
        let ticket =
            Ticket { due_ns: 0, free_ns: 0, start_ns, done, sink: Some(sink), keep: Keep::Nothing, _taken: None };
        (ticket, at)
    }

    fn is_mapped(at: *mut u8) -> bool {
        // SAFETY: only asks.
        unsafe { libc::msync(at.cast(), 4096, libc::MS_ASYNC) == 0 }
    }

    /// A replay that is given up leaves requests in flight, and the kernel still writes what they read.
    #[test]
    fn memory_of_requests_in_flight_stays() {
        let (in_flight, at) = ticket(5, None);
        drop(in_flight);
        assert!(is_mapped(at));
        let (mut lost, at) = ticket(5, None);
        lost.give_up_memory();
        lost.done = Some((7, -5));
        drop(lost);
        assert!(is_mapped(at));
        let (mut ended, at) = ticket(5, Some((7, 0)));
        assert!(is_mapped(at));
        assert!(ended.sink.take().is_some_and(|mut sink| sink.at(1) == at));
    }
}
