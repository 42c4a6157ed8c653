//! The io_uring with which bios are issued.

use std::{io, os::fd::AsRawFd, time::Duration};

use io_uring::{
    IoUring, opcode, squeue,
    types::{Fd, FsyncFlags, SubmitArgs, Timespec},
};
use rustix::fs::FallocateFlags;

use super::{bios::Kind, device::Device, fit::Place};
use crate::{
    ReplayError,
    contents::{
        buffers::{Sink, Source},
        data::random_seed,
    },
};

/// Bios in flight, at most.
pub(super) const MOST_IN_FLIGHT: usize = 4096;
/// `BLOCK_URING_CMD_DISCARD` of `include/uapi/linux/blkdev.h`, Linux 6.12: `_IO(0x12, 0)`.
const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;
/// `BLKDISCARD` of `include/uapi/linux/fs.h`.
const BLKDISCARD: libc::c_ulong = 0x1277;

/// Issues bios and returns their results.
pub(super) struct Ring {
    uring: IoUring,
    fd: Fd,
    is_device: bool,
    /// The kernel cannot discard with io_uring, so discards are done with ioctl, which blocks the loop.
    discards_here: bool,
    source: Source,
    sink: *mut u8,
    /// Length of that memory.
    sink_bytes: i64,
    /// Owns the memory that `sink` points to.
    _sink: Sink,
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> ReplayError {
    move |source| ReplayError::Io { doing, source }
}

impl Ring {
    /// Creates a ring for transfers of up to `longest_bytes`.
    pub(super) fn new(device: &Device, longest_bytes: i64) -> Result<Self, ReplayError> {
        let longest = usize::try_from(longest_bytes).unwrap_or(0).max(4096);
        let make = || {
            let quick = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(MOST_IN_FLIGHT as u32);
            // Linux before 6.0 does not know these flags.
            quick.or_else(|_| IoUring::new(MOST_IN_FLIGHT as u32))
        };
        let uring = make().map_err(failed("setting up io_uring (is kernel.io_uring_disabled set?)"))?;
        let mut sink = Sink::default();
        let at = sink.at(longest);
        Ok(Self {
            uring,
            fd: Fd(device.file.as_raw_fd()),
            is_device: device.dev != 0,
            discards_here: false,
            source: Source::new(random_seed()?, longest)?,
            sink: at,
            sink_bytes: longest as i64,
            _sink: sink,
        })
    }

    fn push(&mut self, number: u64, entry: squeue::Entry) -> Result<(), ReplayError> {
        let entry = entry.user_data(number);
        loop {
            // SAFETY: buffers of reads and writes are mappings that live as long as the ring. They are at least as long
            // as any transfer: `issue` passes none that is longer. Nobody looks at what reads leave there.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Queues a bio. [`Ring::submit`] passes it to the kernel.
    pub(super) fn issue(&mut self, number: u64, kind: Kind, place: Place, fua: bool) -> Result<(), ReplayError> {
        let (offset, len) = (place.offset as u64, place.len as u64);
        let entry = match kind {
            Kind::Read => {
                // The reel is read a second time here, and may have changed since the survey. Null is refused with EFAULT.
                let to = if place.len <= self.sink_bytes { self.sink } else { std::ptr::null_mut() };
                opcode::Read::new(self.fd, to, len as u32).offset(offset).build()
            }
            Kind::Write => {
                let flags = if fua { libc::RWF_DSYNC } else { 0 };
                let data = self.source.at(number as u32, place.len as usize);
                opcode::Write::new(self.fd, data, len as u32).offset(offset).rw_flags(flags).build()
            }
            Kind::Discard if self.is_device => {
                let mut cmd = [0; 16];
                cmd[..8].copy_from_slice(&len.to_ne_bytes());
                opcode::UringCmd16::new(self.fd, BLOCK_URING_CMD_DISCARD).cmd(cmd).addr(Some(offset)).build()
            }
            Kind::Discard => self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len),
            Kind::WriteZeroes => self.fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, len),
            Kind::Flush => opcode::Fsync::new(self.fd).flags(FsyncFlags::DATASYNC).build(),
        };
        self.push(number, entry)
    }

    fn fallocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> squeue::Entry {
        opcode::Fallocate::new(self.fd, len).offset(offset).mode(mode.bits().cast_signed()).build()
    }

    /// Repeats with ioctl a discard that io_uring refused, if the kernel lacks the command. Returns the result, or
    /// `None` if the refusal had another reason.
    pub(super) fn discard_again(&mut self, place: Place, refused: i32) -> Option<i32> {
        let unknown = refused == -libc::EOPNOTSUPP || refused == -libc::EINVAL;
        if !self.is_device || !(unknown || self.discards_here) {
            return None;
        }
        let range = [place.offset as u64, place.len as u64];
        // SAFETY: the ioctl reads two numbers from this address.
        let done = unsafe { libc::ioctl(self.fd.0, BLKDISCARD, range.as_ptr()) };
        self.discards_here |= done == 0;
        Some(if done == 0 { 0 } else { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) })
    }

    /// Passes everything queued to the kernel.
    pub(super) fn submit(&mut self) -> Result<(), ReplayError> {
        match self.uring.submit() {
            // The kernel lacks memory or room for completions. The caller takes completions next and submits again.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR)) => Ok(()),
            other => other.map(|_| ()).map_err(failed("submitting to io_uring")),
        }
    }

    /// Waits for a completion, for `at_most` this long. Also submits what is queued.
    pub(super) fn wait(&mut self, at_most: Option<Duration>) -> Result<(), ReplayError> {
        let done = match at_most {
            Some(time) => {
                let time = Timespec::from(time);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            None => self.uring.submit_and_wait(1),
        };
        match done {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::EINTR)) => {
                Ok(())
            }
            other => other.map(|_| ()).map_err(failed("waiting for io_uring")),
        }
    }

    /// Takes the completions: number and result of each bio.
    pub(super) fn ends(&mut self, out: &mut Vec<(u64, i32)>) {
        out.extend(self.uring.completion().map(|c| (c.user_data(), c.result())));
    }
}
