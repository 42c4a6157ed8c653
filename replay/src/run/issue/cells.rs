//! Where descriptors and mappings of a plan are in the replay.

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::Relaxed};

use super::{direct_counts::DirectCounts, stamp::without_call, syscall::call};
use crate::{
    model::operands::{BAD_FD, TOP},
    plan::program::Plan,
};

/// Cells shared by all threads.
#[derive(Debug)]
pub struct Cells {
    /// Real descriptors; -1 where none is open.
    pub fds: Box<[AtomicI32]>,
    /// Real addresses of mappings; 0 where none is.
    pub maps: Box<[AtomicI64]>,
    /// Their lengths.
    pub(super) map_bytes: Box<[AtomicI64]>,
    /// Direct I/O that the target refused.
    pub direct: DirectCounts,
    /// The target's root, in all tables alike; -1 where no operation begins at it.
    pub(super) top: AtomicI32,
}

impl Cells {
    /// Empty ones for this plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            fds: (0..plan.fd_slots).map(|_| AtomicI32::new(-1)).collect(),
            maps: (0..plan.map_slots).map(|_| AtomicI64::new(0)).collect(),
            map_bytes: (0..plan.map_slots).map(|_| AtomicI64::new(0)).collect(),
            direct: DirectCounts::default(),
            top: AtomicI32::new(BAD_FD),
        }
    }

    /// The descriptor in a slot, or the special value that stands in its place.
    pub fn fd(&self, slot: i32) -> i32 {
        match usize::try_from(slot) {
            Ok(i) => self.fds.get(i).map_or(BAD_FD, |c| c.load(Relaxed)),
            Err(_) if slot == TOP => self.top.load(Relaxed),
            Err(_) => slot,
        }
    }

    /// Fills a slot; whether there is one.
    pub fn set(&self, slot: u32, fd: i32) -> bool {
        let cell = self.fds.get(slot as usize);
        if let Some(c) = cell {
            c.store(fd, Relaxed);
        }
        cell.is_some()
    }

    /// Closes what is in a slot.
    pub fn close(&self, slot: u32) -> i64 {
        let Some(c) = self.fds.get(slot as usize) else { return without_call(0) };
        match c.swap(-1, Relaxed) {
            fd if fd >= 0 => call(libc::SYS_close, [fd.into(), 0, 0, 0, 0, 0]),
            _ => without_call(0),
        }
    }
}
