//! The rings of operations: one per CPU, in memory shared with the probes (`op_rings` in `maps.bpf.h`), and
//! read by copying whole stretches of records.

use std::{
    mem::size_of,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use ioreel_bpf::types::{op_ring, rec_op};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::CaptureError;

/// Bytes of one record.
pub(crate) const RECORD_BYTES: usize = size_of::<rec_op>();

/// A mapped BPF array.
struct Mapped {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn new(map: BorrowedFd<'_>, bytes: usize) -> Result<Self, CaptureError> {
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, map, 0) }
                .map_err(|e| CaptureError::Os { doing: "mapping the rings of operations", source: e.into() })?;
        let at = NonNull::new(at.cast()).ok_or(CaptureError::Os {
            doing: "mapping the rings of operations",
            source: std::io::Error::other("no address"),
        })?;
        Ok(Self { at, bytes })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing borrowed from it outlives this. It cannot fail on such a mapping.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// All rings.
pub(crate) struct OpRings {
    records: Mapped,
    heads: Mapped,
    cpus: usize,
    /// Records each ring holds.
    size: usize,
}

/// What a ring has counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Operations seen, which is how many numbers were given out.
    pub(crate) seen: u64,
    /// Operations that no ring had room for.
    pub(crate) lost: u64,
}

impl OpRings {
    /// Maps the arrays `records` and `heads`, of `cpus` rings of `size` records.
    pub(crate) fn map(
        records: BorrowedFd<'_>,
        heads: BorrowedFd<'_>,
        cpus: usize,
        size: usize,
    ) -> Result<Self, CaptureError> {
        Ok(Self {
            records: Mapped::new(records, cpus * size * RECORD_BYTES)?,
            heads: Mapped::new(heads, cpus * size_of::<op_ring>())?,
            cpus,
            size,
        })
    }

    /// How many rings there are.
    pub(crate) fn len(&self) -> usize {
        self.cpus
    }

    fn ring(&self, cpu: usize) -> *mut op_ring {
        assert!(cpu < self.cpus);
        // SAFETY: inside the mapping, which holds an op_ring for each CPU.
        unsafe { self.heads.at.as_ptr().cast::<op_ring>().add(cpu) }
    }

    /// A counter that the kernel writes while we read.
    fn counter(&self, cpu: usize, of: fn(*mut op_ring) -> *mut u64) -> &AtomicU64 {
        // SAFETY: an aligned u64 of the mapping, which lives as long as `self` and is shared with the kernel alone.
        unsafe { AtomicU64::from_ptr(of(self.ring(cpu))) }
    }

    /// What this CPU's probe has counted.
    pub(crate) fn counted(&self, cpu: usize) -> Counted {
        // SAFETY: only the fields' addresses are taken.
        let seen = self.counter(cpu, |r| unsafe { &raw mut (*r).seq });
        // SAFETY: as above.
        let lost = self.counter(cpu, |r| unsafe { &raw mut (*r).lost });
        Counted { seen: seen.load(Ordering::Relaxed), lost: lost.load(Ordering::Relaxed) }
    }

    /// Records waiting in this CPU's ring.
    pub(crate) fn waiting(&self, cpu: usize) -> usize {
        // SAFETY: only the fields' addresses are taken.
        let head = self.counter(cpu, |r| unsafe { &raw mut (*r).head });
        // SAFETY: as above.
        let tail = self.counter(cpu, |r| unsafe { &raw mut (*r).tail });
        let waiting = head.load(Ordering::Acquire).wrapping_sub(tail.load(Ordering::Relaxed));
        usize::try_from(waiting).map_or(self.size, |n| n.min(self.size))
    }

    /// Moves at most `limit` records of this CPU's ring to the end of `out`; returns how many.
    pub(crate) fn take(&self, cpu: usize, limit: usize, out: &mut Vec<u8>) -> usize {
        let n = self.waiting(cpu).min(limit);
        if n == 0 {
            return 0;
        }
        // SAFETY: only the field's address is taken.
        let tail = self.counter(cpu, |r| unsafe { &raw mut (*r).tail });
        let taken = tail.load(Ordering::Relaxed);
        let first = (taken % self.size as u64) as usize;
        let to_end = n.min(self.size - first);
        for (from, count) in [(first, to_end), (0, n - to_end)] {
            // SAFETY: these records lie inside this CPU's part of the mapping, and the probe leaves them alone until
            // the tail has passed them.
            let bytes = unsafe {
                let at = self.records.at.as_ptr().add((cpu * self.size + from) * RECORD_BYTES);
                std::slice::from_raw_parts(at, count * RECORD_BYTES)
            };
            out.extend_from_slice(bytes);
        }
        tail.store(taken.wrapping_add(n as u64), Ordering::Release);
        n
    }
}
