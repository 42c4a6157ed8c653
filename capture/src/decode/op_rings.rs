//! The rings of operations: one per CPU, in memory shared with the probes (`op_rings` in `base/maps.bpf.h`). A record
//! takes one slot of 144 bytes, or several if it has a tail. Reading copies runs of whole slots.

use std::{
    mem::size_of,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use ioreel_bpf::types::{op_ring, rec_op};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{CaptureError, decode::wire};

/// Size of a slot.
pub(crate) const RECORD_BYTES: usize = size_of::<rec_op>();

/// A mapped BPF array.
struct Mapped {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn new(map: BorrowedFd<'_>, bytes: usize) -> Result<Self, CaptureError> {
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address that the kernel chooses.
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

/// The rings of all CPUs.
pub(crate) struct OpRings {
    records: Mapped,
    heads: Mapped,
    cpus: usize,
    /// Slots per ring.
    size: usize,
}

/// Counters of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Operations seen, which is also how many sequence numbers were assigned.
    pub(crate) seen: u64,
    /// Operations lost because the ring was full.
    pub(crate) lost: u64,
}

impl OpRings {
    /// Maps the BPF arrays `records` and `heads`: `cpus` rings of `size` slots each.
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

    /// Number of rings.
    pub(crate) fn len(&self) -> usize {
        self.cpus
    }

    fn ring(&self, cpu: usize) -> *mut op_ring {
        assert!(cpu < self.cpus);
        // SAFETY: inside the mapping, which holds an op_ring for each CPU.
        unsafe { self.heads.at.as_ptr().cast::<op_ring>().add(cpu) }
    }

    /// A counter that the probes write concurrently.
    fn counter(&self, cpu: usize, of: fn(*mut op_ring) -> *mut u64) -> &AtomicU64 {
        // SAFETY: an aligned u64 of the mapping, which lives as long as `self` and is shared with the kernel alone.
        unsafe { AtomicU64::from_ptr(of(self.ring(cpu))) }
    }

    /// Counters of this CPU's probe.
    pub(crate) fn counted(&self, cpu: usize) -> Counted {
        // SAFETY: only the fields' addresses are taken.
        let seen = self.counter(cpu, |r| unsafe { &raw mut (*r).seq });
        // SAFETY: as above.
        let lost = self.counter(cpu, |r| unsafe { &raw mut (*r).lost });
        Counted { seen: seen.load(Ordering::Relaxed), lost: lost.load(Ordering::Relaxed) }
    }

    /// Used slots of this CPU's ring.
    pub(crate) fn waiting(&self, cpu: usize) -> usize {
        // SAFETY: only the fields' addresses are taken.
        let head = self.counter(cpu, |r| unsafe { &raw mut (*r).head });
        // SAFETY: as above.
        let tail = self.counter(cpu, |r| unsafe { &raw mut (*r).tail });
        let waiting = head.load(Ordering::Acquire).wrapping_sub(tail.load(Ordering::Relaxed));
        usize::try_from(waiting).map_or(self.size, |n| n.min(self.size))
    }

    /// Appends the records in at most `limit` slots of this CPU's ring to `out`. Returns whether some remain.
    pub(crate) fn take(&self, cpu: usize, limit: usize, out: &mut Vec<u8>) -> bool {
        let waiting = self.waiting(cpu);
        let mut n = waiting.min(limit);
        if n == 0 {
            return false;
        }
        let before = out.len();
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
        // The used slots end with a whole record. A part of them may end in the middle of one, which is left for the
        // next pass.
        if n < waiting {
            n = whole_records(&out[before..]) / RECORD_BYTES;
            out.truncate(before + n * RECORD_BYTES);
        }
        tail.store(taken.wrapping_add(n as u64), Ordering::Release);
        n < waiting
    }
}

/// Length in bytes of the whole records at the start of `places`.
fn whole_records(places: &[u8]) -> usize {
    let mut at = 0;
    while let Some(hdr) = wire::header(&places[at..]) {
        at += hdr.len_bytes as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(counts: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for n in counts {
            let at = bytes.len() + std::mem::offset_of!(ioreel_bpf::types::rec_hdr, len_bytes);
            bytes.resize(bytes.len() + n * RECORD_BYTES, 0);
            bytes[at..at + 4].copy_from_slice(&((n * RECORD_BYTES) as u32).to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_record_over_several_places_is_not_cut() {
        let bytes = places(&[1, 3, 2]);
        let whole: Vec<usize> = (0..=6).map(|n| whole_records(&bytes[..n * RECORD_BYTES]) / RECORD_BYTES).collect();
        assert_eq!(whole, [0, 1, 1, 1, 4, 4, 6]);
    }
}
