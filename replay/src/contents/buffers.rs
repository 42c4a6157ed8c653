//! What is written, and where reads go.
//!
//! Written data is pseudo-random and holds no zero byte, so that no file system keeps it sparse or
//! compresses it away. One mebibyte of it, mapped over and over, serves writes of any length at
//! next to no memory. Each thread reads into a mapping of its own, which only takes memory where used. A read or write of
//! more than [`WINDOW_BYTES`] is one call over the same memory again and again ([`windows`]).

use std::{
    io,
    os::fd::AsFd,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::pwrite,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
};

use crate::{ReplayError, contents::data::mix};

/// Length of the pattern.
pub const PATTERN_BYTES: usize = 1 << 20;
/// The kernel moves no more than this in one call (`MAX_RW_COUNT`).
pub const MAX_CALL_BYTES: usize = 0x7fff_f000;

/// Memory of one buffer, at most. Data of longer reads and writes is not generated and not checked.
pub const WINDOW_BYTES: usize = 16 << 20;
/// Buffers of all threads together keep no more than about this much between calls.
const KEPT_BYTES: usize = 256 << 20;
/// A buffer of this length is kept in any case.
const SMALL_BYTES: usize = 1 << 20;
/// Length of all buffers.
static BUFFERED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Pseudo-random bytes without zeros, the same for the same seed.
pub fn pattern(seed: u64, out: &mut [u8]) {
    // xorshift's state is never zero, and seeds that differ little must lead to different data.
    let mut x = mix(seed) | 1;
    for chunk in out.chunks_mut(8) {
        // xorshift64*: fast, and no compressor finds a pattern in it.
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        let bytes = x.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
        for (o, b) in chunk.iter_mut().zip(bytes) {
            *o = b.max(1);
        }
    }
}

/// Memory that stays mapped as long as the value lives.
#[derive(Debug)]
struct Mapping {
    at: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the value, and moving the value to another thread moves only the pointer.
unsafe impl Send for Mapping {}
// SAFETY: through a shared value only the address is given out; the kernel does all reading and writing.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value alone owns the range, and it ends here.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

impl Mapping {
    fn anonymous(len: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Self { at: at.cast(), len })
    }

    /// The pattern in this file, `copies` times in a row.
    fn repeated(file: impl AsFd, copies: usize) -> io::Result<Self> {
        let (len, prot) = (PATTERN_BYTES, ProtFlags::READ);
        let whole = Self::anonymous(copies * len)?;
        for i in 0..copies {
            // SAFETY: each piece replaces a part of the mapping just made, and lies inside it.
            unsafe {
                mmap(whole.at.add(i * len).cast(), len, prot, MapFlags::SHARED | MapFlags::FIXED, file.as_fd(), 0)
            }?;
        }
        Ok(whole)
    }
}

/// An I/O vector of `len` bytes, each part of which is the window at `base`, or the start of it.
pub fn windows(base: *mut u8, len: usize) -> Vec<libc::iovec> {
    let part = |i: usize| libc::iovec { iov_base: base.cast(), iov_len: (len - i * WINDOW_BYTES).min(WINDOW_BYTES) };
    (0..len.div_ceil(WINDOW_BYTES)).map(part).collect()
}

/// The data that writes take.
#[derive(Debug)]
pub struct Source {
    data: Mapping,
    /// A write of so many bytes may begin anywhere in the first pattern.
    longest: usize,
}

impl Source {
    /// For writes of up to `longest` bytes.
    pub fn new(seed: u64, longest: usize) -> Result<Self, ReplayError> {
        let io = |source: rustix::io::Errno| ReplayError::Io { doing: "making data to write", source: source.into() };
        let mut data = vec![0; PATTERN_BYTES];
        pattern(seed, &mut data);
        let file = memfd_create("ioreel-pattern", MemfdFlags::CLOEXEC).map_err(io)?;
        let mut done = 0;
        while done < data.len() {
            done += pwrite(&file, &data[done..], done as u64).map_err(io)?;
        }
        // One pattern more, so that writes may begin anywhere in the first.
        let longest = longest.min(MAX_CALL_BYTES);
        let copies = longest.div_ceil(PATTERN_BYTES) + 1;
        let whole = Mapping::repeated(&file, copies)
            .map_err(|source| ReplayError::Io { doing: "making data to write", source })?;
        Ok(Self { data: whole, longest })
    }

    /// Where the data of a write of `len` bytes begins; page-aligned, different from one operation to the next. Null, which the
    /// kernel refuses with EFAULT, for more than there is: memory behind it is not the file's to have.
    pub fn at(&self, salt: u32, len: usize) -> *const u8 {
        if len > self.longest {
            return ptr::null();
        }
        let page = (salt as usize).wrapping_mul(37) % (PATTERN_BYTES / 4096);
        // SAFETY: less than one pattern from the start, and the mapping holds at least two.
        unsafe { self.data.at.add(page * 4096) }
    }
}

/// Where a thread's reads go.
#[derive(Debug, Default)]
pub struct Sink(Option<Mapping>);

impl Sink {
    /// A page-aligned place for `len` bytes; null, which the kernel refuses with EFAULT, when there is no
    /// address space left.
    pub fn at(&mut self, len: usize) -> *mut u8 {
        if self.0.as_ref().is_none_or(|m| m.len < len) {
            self.unmap();
            self.0 = Mapping::anonymous(len.max(64 << 10).next_power_of_two()).ok();
            BUFFERED_BYTES.fetch_add(self.memory_bytes(), Relaxed);
        }
        self.0.as_ref().map_or(ptr::null_mut(), |m| m.at)
    }

    fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |m| m.len)
    }

    fn unmap(&mut self) {
        BUFFERED_BYTES.fetch_sub(self.memory_bytes(), Relaxed);
        self.0 = None;
    }

    /// Gives large memory back after a call, where many threads have such.
    pub fn shrink(&mut self) {
        if self.memory_bytes() > SMALL_BYTES && BUFFERED_BYTES.load(Relaxed) > KEPT_BYTES {
            self.unmap();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.unmap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_seeded_and_never_zero() {
        let (mut a, mut b) = (vec![0; 4096], vec![0; 4096]);
        pattern(7, &mut a);
        pattern(7, &mut b);
        assert_eq!(a, b);
        assert!(!a.contains(&0));
    }

    #[test]
    fn the_source_is_longer_than_the_longest_write() {
        let s = Source::new(1, 3 * PATTERN_BYTES + 5).expect("memory");
        // SAFETY: within the promised length.
        let last = unsafe { *s.at(12345, 3 * PATTERN_BYTES + 5).add(3 * PATTERN_BYTES + 4) };
        assert_ne!(last, 0);
        assert!(s.at(12345, 3 * PATTERN_BYTES + 6).is_null());
    }

    #[test]
    fn a_long_transfer_is_one_vector_over_the_same_memory() {
        let mut sink = Sink::default();
        let base = sink.at(WINDOW_BYTES);
        let parts = windows(base, 3 * WINDOW_BYTES + 5);
        let lengths: Vec<usize> = parts.iter().map(|p| p.iov_len).collect();
        assert_eq!(lengths, [WINDOW_BYTES, WINDOW_BYTES, WINDOW_BYTES, 5]);
        assert!(parts.iter().all(|p| p.iov_base.cast() == base));
        assert!(windows(base, MAX_CALL_BYTES).len() <= 1024, "the kernel takes that many");
    }
}
