//! Cells: the real descriptors and addresses behind the slots of a plan.

use std::sync::{
    RwLock,
    atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering::Relaxed},
};

use super::{direct_counts::DirectCounts, stamp::without_call, subvolumes::PlainDirectories, syscall::call};
use crate::{
    model::operands::{BAD_FD, TOP},
    plan::program::Plan,
};

/// The cells, shared by all threads.
#[derive(Debug)]
pub struct Cells {
    /// Real descriptors by slot. -1: not open.
    pub fds: Box<[AtomicI32]>,
    /// Real addresses of mappings by slot. 0: not mapped.
    pub maps: Box<[AtomicI64]>,
    /// Lengths of the mappings.
    pub(super) map_bytes: Box<[AtomicI64]>,
    /// Held shared by calls on a mapping, and alone by those that end or move it: without order between threads, a call could
    /// otherwise change memory that has taken the mapping's place.
    pub(super) map_uses: Box<[RwLock<()>]>,
    /// Whether they are private.
    pub(super) map_is_private: Box<[AtomicBool]>,
    /// Counts of direct I/O that the target refused.
    pub direct: DirectCounts,
    /// Count of subvolumes that the target cannot have.
    pub plain: PlainDirectories,
    /// Descriptor of the target's root, the same number in every table. -1 if no operation starts there.
    pub(super) top: AtomicI32,
}

impl Cells {
    /// Empty cells for this plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            fds: (0..plan.fd_slots).map(|_| AtomicI32::new(-1)).collect(),
            maps: (0..plan.map_slots).map(|_| AtomicI64::new(0)).collect(),
            map_bytes: (0..plan.map_slots).map(|_| AtomicI64::new(0)).collect(),
            map_uses: (0..plan.map_slots).map(|_| RwLock::new(())).collect(),
            map_is_private: (0..plan.map_slots).map(|_| AtomicBool::new(false)).collect(),
            direct: DirectCounts::default(),
            plain: PlainDirectories::default(),
            top: AtomicI32::new(BAD_FD),
        }
    }

    /// The descriptor in a slot. A negative slot is a special value: the target's root, or a value passed to the
    /// kernel.
    pub fn fd(&self, slot: i32) -> i32 {
        match usize::try_from(slot) {
            Ok(i) => self.fds.get(i).map_or(BAD_FD, |c| c.load(Relaxed)),
            Err(_) if slot == TOP => self.top.load(Relaxed),
            Err(_) => slot,
        }
    }

    /// Stores a descriptor in a slot. Returns whether the slot exists.
    pub fn set(&self, slot: u32, fd: i32) -> bool {
        let cell = self.fds.get(slot as usize);
        if let Some(c) = cell {
            c.store(fd, Relaxed);
        }
        cell.is_some()
    }

    /// Closes the descriptor in a slot. Returns the result of the call.
    pub fn close(&self, slot: u32) -> i64 {
        let Some(c) = self.fds.get(slot as usize) else { return without_call(0) };
        match c.swap(-1, Relaxed) {
            fd if fd >= 0 => call(libc::SYS_close, [fd.into(), 0, 0, 0, 0, 0]),
            _ => without_call(0),
        }
    }
}
