//! A ring of io_uring.

use std::{collections::HashMap, io};

use io_uring::IoUring;

use super::{Buffers, Keep, entry};
use crate::{
    plan::chunk::Chunk,
    reel::{
        input::Rec,
        submission::sqe::{DIRECT, FIXED},
    },
};

/// Requests that fit into a batch; a greater one is submitted in parts.
const ENTRIES: u32 = 512;
/// Completions that fit; beyond, the kernel keeps them.
const COMPLETIONS: u32 = 4096;
/// Slots of the table of files.
const FILES: u32 = 1024;

/// `IORING_SETUP_*`, `include/uapi/linux/io_uring.h`.
const COOP_TASKRUN: i64 = 1 << 8;
const SINGLE_ISSUER: i64 = 1 << 12;
const DEFER_TASKRUN: i64 = 1 << 13;

/// A ring.
pub(super) struct Uring {
    ring: IoUring,
    /// The table of files is there.
    has_files: bool,
    /// What is in its slots, by recorded open file description.
    files: HashMap<u32, i64>,
}

impl Uring {
    /// Of how it was set up (`IORING_SETUP_*`), what says when requests are told to be at their ends is kept: it decides on how often
    /// the thread is interrupted.
    pub(super) fn new(flags: i64) -> io::Result<Self> {
        let has = |flag: i64| flags & flag != 0;
        let mut wanted = IoUring::builder();
        wanted.setup_cqsize(COMPLETIONS);
        let plain = wanted.clone();
        if has(COOP_TASKRUN) {
            wanted.setup_coop_taskrun();
        }
        if has(SINGLE_ISSUER) {
            wanted.setup_single_issuer();
        }
        if has(DEFER_TASKRUN) {
            wanted.setup_single_issuer().setup_defer_taskrun();
        }
        // An older kernel, or a combination that only a hostile reel has.
        let ring = wanted.build(ENTRIES).or_else(|_| plain.build(ENTRIES))?;
        Ok(Self { ring, has_files: false, files: HashMap::new() })
    }

    /// Whether this slot of the ring's table can be used.
    fn slot(&mut self, slot: i32) -> Option<u32> {
        let slot = u32::try_from(slot).ok().filter(|s| *s < FILES)?;
        self.has_files = self.has_files || self.ring.submitter().register_files_sparse(FILES).is_ok();
        self.has_files.then_some(slot)
    }

    /// Puts a file into the slot by which the request knows it.
    fn register(&mut self, r: &Rec, fd: i32) -> Option<u32> {
        let slot = self.slot(r.fd)?;
        if fd >= 0 && self.files.get(&slot) != Some(&r.ofd) {
            self.ring.submitter().register_files_update(slot, &[fd]).ok()?;
            self.files.insert(slot, r.ofd);
        } else if fd < 0 && r.ret == -i64::from(libc::EBADF) && self.files.remove(&slot).is_some() {
            // What was registered there was taken out.
            self.ring.submitter().register_files_update(slot, &[-1]).ok()?;
        }
        Some(slot)
    }

    /// Puts a request into the queue; `None` when there is no room.
    pub(super) fn put(
        &mut self,
        chunk: &Chunk,
        r: &Rec,
        (fd, fd2): (i32, i32),
        buffers: &mut Buffers<'_>,
    ) -> Option<Keep> {
        let by_slot = if r.sqe_flags & FIXED != 0 { self.register(r, fd) } else { None };
        let direct = if r.sqe_flags & DIRECT != 0 {
            // What was there before a slice is put there first.
            let slot = if r.call.opens() { self.slot(r.fd2) } else { self.register(r, fd) };
            // Something else is there then.
            slot.inspect(|s| {
                self.files.remove(s);
            })
        } else {
            None
        };
        let (entry, keep) = entry::of(chunk, r, entry::Files { fd, fd2, by_slot, direct }, buffers);
        let entry = entry.user_data(r.row.into());
        if self.ring.submission().is_full() {
            // A batch greater than the queue.
            self.ring.submit().ok()?;
        }
        // SAFETY: buffers, paths and structures stay until the request has ended: paths are the chunk's, which is kept until the batch is
        // submitted, after which the kernel has copies; `Keep` is kept with the ticket; buffers live as long as the thread.
        unsafe { self.ring.submission().push(&entry) }.ok()?;
        Some(keep)
    }

    /// Submits what is in the queue.
    pub(super) fn flush(&mut self, end: &mut dyn FnMut(u32, i64)) {
        while !self.ring.submission().is_empty() {
            if let Err(e) = self.ring.submit() {
                match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Completions are in the way.
                    Some(libc::EBUSY | libc::EAGAIN) => {
                        if self.wait(end).is_err() {
                            return;
                        }
                    }
                    _ => return,
                }
            }
        }
    }

    /// Waits for an end, unless some are there; tells all.
    pub(super) fn wait(&mut self, end: &mut dyn FnMut(u32, i64)) -> Result<(), i32> {
        if self.take(end) {
            return Ok(());
        }
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => break,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => break,
                Err(e) => return Err(e.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        self.take(end);
        Ok(())
    }

    fn take(&mut self, end: &mut dyn FnMut(u32, i64)) -> bool {
        let mut any = false;
        for done in self.ring.completion() {
            end(done.user_data() as u32, done.result().into());
            any = true;
        }
        any
    }
}
