//! File mappings: calls on them, and touches of their pages.
//!
//! Pages are touched by calls that return errors (`MADV_POPULATE_*`), not by loads and stores. Those would end the
//! replay with SIGBUS beyond the end of a file.

use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, atomic::Ordering::Relaxed};

use super::{cells::Cells, stamp::without_call, syscall::call};
use crate::{
    Call,
    contents::buffers::{Sink, WINDOW_BYTES},
    reel::input::Rec,
};

/// Highest advice that is issued (MADV_COLLAPSE). Higher values, such as MADV_HWPOISON, affect pages of the machine.
const LAST_ADVICE: i64 = 25;

impl Cells {
    fn use_map(&self, cell: u32) -> Option<RwLockReadGuard<'_, ()>> {
        Some(self.map_uses.get(cell as usize)?.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change_map(&self, cell: u32) -> Option<RwLockWriteGuard<'_, ()>> {
        Some(self.map_uses.get(cell as usize)?.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Length of the mapping in a cell, bytes.
    pub(super) fn mapped_bytes(&self, cell: u32) -> i64 {
        self.map_bytes.get(cell as usize).map_or(0, |c| c.load(Relaxed))
    }

    /// Maps a file into a cell. The mapping is never executable, and a private one reserves no memory in advance.
    /// Returns 0 or -errno.
    pub fn map(&self, cell: u32, len_bytes: i64, prot: i32, flags: i32, fd: i32, offset_bytes: i64) -> i64 {
        let flags = (flags & (libc::MAP_SHARED | libc::MAP_PRIVATE)) | libc::MAP_NORESERVE;
        let prot = touchable(prot);
        let ret = call(libc::SYS_mmap, [0, len_bytes, prot.into(), flags.into(), fd.into(), offset_bytes]);
        if ret > 0 {
            self.set_map(cell, ret, len_bytes, flags);
        }
        ret.min(0)
    }

    /// Unmaps the mapping in a cell. Returns the result of the call.
    pub fn unmap(&self, cell: u32) -> i64 {
        let _alone = self.change_map(cell);
        let len = self.mapped_bytes(cell);
        match self.maps.get(cell as usize).map_or(0, |c| c.swap(0, Relaxed)) {
            0 => without_call(-i64::from(libc::ENOMEM)),
            at => call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]),
        }
    }

    /// Replays mmap. `new`: the cell that gets the address.
    pub(super) fn map_again(&self, r: &Rec, fd: i64, offset: i64, new: u32) -> i64 {
        // Addresses are not replayed, nothing is executed, and private mappings reserve no memory in advance.
        let unwanted = libc::MAP_FIXED
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_32BIT
            | libc::MAP_GROWSDOWN
            | libc::MAP_LOCKED
            | libc::MAP_HUGETLB;
        let flags = (r.flags as i32 & !unwanted) | libc::MAP_NORESERVE;
        let prot = touchable(r.mode);
        let ret = call(libc::SYS_mmap, [0, r.len_bytes, prot.into(), flags.into(), fd, offset]);
        if ret > 0 && !self.set_map(new, ret, r.len_bytes, flags) {
            call(libc::SYS_munmap, [ret, r.len_bytes, 0, 0, 0, 0]);
        }
        ret
    }

    fn set_map(&self, cell: u32, at: i64, len: i64, flags: i32) -> bool {
        let Some(c) = self.maps.get(cell as usize) else { return false };
        let _alone = self.change_map(cell);
        c.store(at, Relaxed);
        self.map_bytes[cell as usize].store(len, Relaxed);
        self.map_is_private[cell as usize].store(flags & libc::MAP_PRIVATE != 0, Relaxed);
        true
    }

    /// Replays a call on part of the mapping in `slot`, or a touch of it.
    pub(super) fn on_mapping(&self, r: &Rec, slot: i32, sink: &mut Sink) -> i64 {
        let cell_index = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(cell) = self.maps.get(cell_index) else {
            return without_call(-i64::from(libc::EINVAL));
        };
        let in_use = self.use_map(slot as u32);
        let base = cell.load(Relaxed);
        let whole = self.mapped_bytes(slot as u32);
        if base == 0 {
            // The mmap itself failed in the replay.
            return without_call(-i64::from(libc::ENOMEM));
        }
        let from = r.offset2_bytes;
        if !(0..whole.max(1)).contains(&from) {
            return without_call(-i64::from(libc::ENOMEM));
        }
        let at = base + from;
        // Not beyond the pages of the mapping: other mappings follow.
        let room = (whole + 4095) / 4096 * 4096 - from;
        let len = r.len_bytes.clamp(0, room);
        // Writing to pages of a private mapping changes no file. It would only copy them, to any amount of memory.
        let writes = if self.map_is_private[cell_index].load(Relaxed) {
            libc::MADV_POPULATE_READ
        } else {
            libc::MADV_POPULATE_WRITE
        };
        match r.call {
            Call::Msync => call(libc::SYS_msync, [at, len, r.flags, 0, 0, 0]),
            Call::Madvise if !(0..=LAST_ADVICE).contains(&r.flags) => without_call(-i64::from(libc::EINVAL)),
            Call::Madvise if r.flags == i64::from(libc::MADV_POPULATE_WRITE) => {
                call(libc::SYS_madvise, [at, len, writes.into(), 0, 0, 0])
            }
            Call::Madvise => call(libc::SYS_madvise, [at, len, r.flags, 0, 0, 0]),
            Call::Mincore => {
                // A byte a page.
                let len = len.min((WINDOW_BYTES as i64 - 1) * 4096);
                call(libc::SYS_mincore, [at, len, sink.at(len as usize / 4096 + 1) as i64, 0, 0, 0])
            }
            Call::Mremap => {
                drop(in_use);
                self.resize(r, slot as u32)
            }
            Call::Fault | Call::MapPages => touch(at, len, libc::MADV_POPULATE_READ),
            Call::Dirty => touch(at, len, writes),
            _ if from == 0 && len >= whole => {
                drop(in_use);
                self.unmap(slot as u32)
            }
            _ => {
                // Part of a mapping is replaced with inaccessible memory. The address range stays reserved until the
                // rest is unmapped: another thread's mapping in the gap would be unmapped along with the rest.
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
                call(libc::SYS_mmap, [at, len, libc::PROT_NONE.into(), flags.into(), -1, 0]).min(0)
            }
        }
    }

    /// Replays mremap. The plan passes only whole mappings. They may move, since addresses are not replayed.
    fn resize(&self, r: &Rec, cell: u32) -> i64 {
        let _alone = self.change_map(cell);
        let (at, whole) = (self.maps[cell as usize].load(Relaxed), self.mapped_bytes(cell));
        if at == 0 {
            return without_call(-i64::from(libc::ENOMEM));
        }
        let ret = call(libc::SYS_mremap, [at, whole, r.aux2, libc::MREMAP_MAYMOVE.into(), 0, 0]);
        if ret > 0 {
            self.maps[cell as usize].store(ret, Relaxed);
            self.map_bytes[cell as usize].store(r.aux2, Relaxed);
        }
        ret
    }
}

/// The protection with which a file is mapped: readable, because touching a page requires that and later changes of the
/// protection are not recorded. Never executable.
fn touchable(prot: i32) -> i32 {
    libc::PROT_READ | (prot & libc::PROT_WRITE)
}

/// Touches the pages of a range. `at` may be inside a page.
fn touch(at: i64, len: i64, advice: i32) -> i64 {
    let from = at & !4095;
    call(libc::SYS_madvise, [from, (at - from) + len, advice.into(), 0, 0, 0])
}
