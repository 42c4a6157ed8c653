//! A bare io_uring: system calls and shared memory only, so that nothing stands between the test and the kernel.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::*, fence},
};

/// A submission queue entry.
pub(crate) type Sqe = [u64; 8];

/// An entry with these common fields.
pub(crate) fn sqe(opcode: u8, fd: i32, off: i64, addr: u64, len: u32, op_flags: u32, user_data: u64) -> Sqe {
    let first = u64::from(opcode) | u64::from(fd as u32) << 32;
    [first, off as u64, addr, u64::from(len) | u64::from(op_flags) << 32, user_data, 0, 0, 0]
}

/// The entry with these `IOSQE_*` flags.
pub(crate) fn with_flags(mut sqe: Sqe, flags: u8) -> Sqe {
    sqe[0] |= u64::from(flags) << 8;
    sqe
}

/// The entry with its `buf_index` or `buf_group`.
pub(crate) fn with_buffer(mut sqe: Sqe, index: u16) -> Sqe {
    sqe[5] |= u64::from(index);
    sqe
}

/// The entry with its `file_index` or `splice_fd_in`.
pub(crate) fn with_file_index(mut sqe: Sqe, index: u32) -> Sqe {
    sqe[5] |= u64::from(index) << 32;
    sqe
}

/// A completion: user data, result, flags.
pub(crate) type Cqe = (u64, i32, u32);

pub(crate) struct Ring {
    pub(crate) fd: i32,
    flags: u32,
    sq: *mut u8,
    sqes: *mut Sqe,
    params: [u32; 30],
}

pub(crate) const SQPOLL: u32 = 2;
pub(crate) const SINGLE_ISSUER: u32 = 1 << 12;
pub(crate) const DEFER_TASKRUN: u32 = 1 << 13;
const GETEVENTS: u32 = 1;
const SQ_WAKEUP: u32 = 2;
const REGISTERED_RING: u32 = 16;

impl Ring {
    pub(crate) fn new(entries: u32, flags: u32) -> Self {
        let mut params = [0u32; 30];
        params[2] = flags;
        // SAFETY: the parameters are as long as the kernel's struct io_uring_params, 120 bytes.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params.as_mut_ptr()) } as i32;
        assert!(fd >= 0, "io_uring_setup: {}", std::io::Error::last_os_error());
        // Both rings in one mapping (IORING_FEAT_SINGLE_MMAP, 5.4): whichever ends later.
        let sq_bytes = params[16] + params[0] * 4;
        let cq_bytes = params[25] + params[1] * 16;
        let map = |len: u32, offset: i64| {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new shared mapping.
            let at = unsafe {
                libc::mmap(ptr::null_mut(), len as usize, prot, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset)
            };
            assert!(at != libc::MAP_FAILED);
            at.cast::<u8>()
        };
        let sq = map(sq_bytes.max(cq_bytes), 0);
        let sqes = map(params[0] * 64, 0x1000_0000).cast();
        Self { fd, flags, sq, sqes, params }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: offsets are those that the kernel told, inside the mapping.
        unsafe { &*self.sq.add(self.params[offset] as usize).cast::<AtomicU32>() }
    }

    /// Puts entries into the queue without telling the kernel.
    pub(crate) fn put(&self, entries: &[Sqe]) {
        // sq_off: head, tail, ring_mask, ring_entries, flags, dropped, array.
        let (tail, mask) = (self.word(11), self.word(12).load(Relaxed));
        let mut at = tail.load(Relaxed);
        for entry in entries {
            let slot = at & mask;
            // SAFETY: the slot is inside both mappings and the kernel has taken what was in it.
            unsafe {
                self.sqes.add(slot as usize).write(*entry);
                self.sq.add(self.params[16] as usize).cast::<u32>().add(slot as usize).write(slot);
            }
            at = at.wrapping_add(1);
        }
        tail.store(at, Release);
    }

    /// `io_uring_enter`; its result.
    pub(crate) fn enter(&self, submit: usize, wait: usize, flags: u32) -> i64 {
        let flags = if wait > 0 || self.flags & DEFER_TASKRUN != 0 { flags | GETEVENTS } else { flags };
        // SAFETY: no signal mask is passed.
        unsafe { libc::syscall(libc::SYS_io_uring_enter, self.fd, submit, wait, flags, 0usize, 0usize) }
    }

    /// The same through a ring registered under this number.
    pub(crate) fn enter_registered(&self, number: u32, submit: usize, wait: usize) -> i64 {
        let flags = GETEVENTS | REGISTERED_RING;
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_io_uring_enter, number, submit, wait, flags, 0usize, 0usize) }
    }

    /// Submits and waits for this many completions.
    pub(crate) fn submit(&self, entries: &[Sqe], wait: usize) -> Vec<Cqe> {
        self.put(entries);
        if self.flags & SQPOLL != 0 {
            let mut done = Vec::new();
            while done.len() < wait {
                // The tail is out before the flag is read: else both might wait for the other.
                fence(SeqCst);
                if self.word(14).load(Relaxed) & 1 != 0 {
                    self.enter(0, 0, SQ_WAKEUP);
                }
                done.extend(self.reap());
                std::thread::yield_now();
            }
            return done;
        }
        let submitted = self.enter(entries.len(), wait, 0);
        assert_eq!(submitted, entries.len() as i64, "{}", std::io::Error::last_os_error());
        self.reap()
    }

    /// Takes what is in the completion queue.
    pub(crate) fn reap(&self) -> Vec<Cqe> {
        // cq_off: head, tail, ring_mask, ring_entries, overflow, cqes.
        let (head, tail, mask) = (self.word(20), self.word(21).load(Acquire), self.word(22).load(Relaxed));
        let mut at = head.load(Relaxed);
        let mut done = Vec::new();
        while at != tail {
            // SAFETY: inside the mapping, and filled by the kernel before it moved the tail.
            let cqe = unsafe {
                let cqes = self.sq.add(self.params[25] as usize).cast::<[u32; 4]>();
                cqes.add((at & mask) as usize).read()
            };
            done.push((u64::from(cqe[0]) | u64::from(cqe[1]) << 32, cqe[2] as i32, cqe[3]));
            at = at.wrapping_add(1);
        }
        head.store(at, Release);
        done
    }

    /// `io_uring_register`; its result.
    /// Whether this kernel has the operation (IORING_REGISTER_PROBE).
    pub(crate) fn knows(&self, opcode: u8) -> bool {
        const PROBE: u32 = 8;
        const SUPPORTED: u8 = 1;
        const OPERATIONS: usize = 256;
        // struct io_uring_probe: 16 bytes, then 8 for each operation, whose flags are the third.
        let mut probe = vec![0u8; 16 + OPERATIONS * 8];
        assert_eq!(self.register(PROBE, probe.as_mut_ptr().cast(), OPERATIONS as u32), 0);
        probe[16 + usize::from(opcode) * 8 + 2] & SUPPORTED != 0
    }

    pub(crate) fn register(&self, opcode: u32, arg: *const libc::c_void, count: u32) -> i64 {
        // SAFETY: the caller passes what the opcode asks for.
        unsafe { libc::syscall(libc::SYS_io_uring_register, self.fd, opcode, arg, count) }
    }
}
