//! An io_uring.

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

/// Size of the submission queue. A larger batch is submitted in parts.
const ENTRIES: u32 = 512;
/// Size of the completion queue. The kernel keeps further completions.
const COMPLETIONS: u32 = 4096;
/// Size of the table of registered files.
const FILES: u32 = 1024;

/// `IORING_SETUP_*`, `include/uapi/linux/io_uring.h`.
const COOP_TASKRUN: i64 = 1 << 8;
const SINGLE_ISSUER: i64 = 1 << 12;
const DEFER_TASKRUN: i64 = 1 << 13;

/// A ring and its registered files.
pub(super) struct Uring {
    ring: IoUring,
    /// The table of registered files exists.
    has_files: bool,
    /// Registered files: recorded open file description, by slot.
    files: HashMap<u32, i64>,
}

impl Uring {
    /// Creates a ring. Of the recorded setup flags (`IORING_SETUP_*`), it keeps those that determine when completions
    /// are posted, because these decide how often the thread is interrupted.
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
        // The kernel is older, or the reel has a combination of flags that no program could have used.
        let ring = wanted.build(ENTRIES).or_else(|_| plain.build(ENTRIES))?;
        Ok(Self { ring, has_files: false, files: HashMap::new() })
    }

    /// This slot of the table of registered files. `None` if it cannot be used.
    fn slot(&mut self, slot: i32) -> Option<u32> {
        let slot = u32::try_from(slot).ok().filter(|s| *s < FILES)?;
        self.has_files = self.has_files || self.ring.submitter().register_files_sparse(FILES).is_ok();
        self.has_files.then_some(slot)
    }

    /// Registers a file in the slot that the request uses.
    fn register(&mut self, r: &Rec, fd: i32) -> Option<u32> {
        let slot = self.slot(r.fd)?;
        if fd >= 0 && self.files.get(&slot) != Some(&r.ofd) {
            self.ring.submitter().register_files_update(slot, &[fd]).ok()?;
            self.files.insert(slot, r.ofd);
        } else if fd < 0 && r.ret == -i64::from(libc::EBADF) && self.files.remove(&slot).is_some() {
            // The recorded program had unregistered the file in this slot.
            self.ring.submitter().register_files_update(slot, &[-1]).ok()?;
        }
        Some(slot)
    }

    /// Adds a request to the queue. `None` if there is no room.
    pub(super) fn put(
        &mut self,
        chunk: &Chunk,
        r: &Rec,
        (fd, fd2): (i32, i32),
        buffers: &mut Buffers<'_>,
    ) -> Option<Keep> {
        let by_slot = if r.sqe_flags & FIXED != 0 { self.register(r, fd) } else { None };
        let direct = if r.sqe_flags & DIRECT != 0 {
            // A file that was registered before the slice started is registered first.
            let slot = if r.call.opens() { self.slot(r.fd2) } else { self.register(r, fd) };
            // The request changes the content of the slot.
            slot.inspect(|s| {
                self.files.remove(s);
            })
        } else {
            None
        };
        let (entry, keep) = entry::of(chunk, r, entry::Files { fd, fd2, by_slot, direct }, buffers);
        let entry = entry.user_data(r.row.into());
        if self.ring.submission().is_full() {
            // The batch is larger than the queue.
            self.ring.submit().ok()?;
        }
        // SAFETY: buffers, paths and structs outlive the request. The chunk owns the paths and is kept until the batch
        // is submitted, after which the kernel has copies. `Keep` is in the ticket. Buffers live as long as the thread.
        unsafe { self.ring.submission().push(&entry) }.ok()?;
        Some(keep)
    }

    /// Submits the queue.
    pub(super) fn flush(&mut self, end: &mut dyn FnMut(u32, i64)) {
        while !self.ring.submission().is_empty() {
            if let Err(e) = self.ring.submit() {
                match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The completion queue is full.
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

    /// Waits for a completion, unless there is one already. Passes all completions to `end`.
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
