//! Direct I/O on a target that needs another alignment than the original's, or has no direct I/O.
//!
//! An operation that the target refuses goes through the page cache and is counted. It is not widened, because that
//! would change more of the file than the original did.

use std::{mem::MaybeUninit, sync::atomic::Ordering::Relaxed};

use super::{Issuer, syscall::call};
use crate::{
    plan::{chunk::Chunk, program::Range},
    reel::input::Rec,
};

impl Issuer<'_> {
    /// Repeats a direct operation that was refused with EINVAL, through the page cache. `None` if the operation was not
    /// direct.
    pub fn without_direct(
        &mut self,
        chunk: &Chunk,
        rec: u32,
        (slot_fd, slot_fd2): (i32, i32),
        new: u32,
    ) -> Option<i64> {
        let r = &chunk.recs[rec as usize];
        let direct = i64::from(libc::O_DIRECT);
        if r.call.opens() {
            if r.flags & direct == 0 {
                return None;
            }
            let buffered = Rec { flags: r.flags & !direct, ..r.clone() };
            let path = chunk.paths.c_str(r.path).as_ptr() as i64;
            let ret = self.open(&buffered, self.cells.fd(slot_fd).into(), path, new);
            self.count(r, -1);
            return Some(ret);
        }
        if !r.call.reads() && !r.call.writes() {
            return None;
        }
        let fd = i64::from(self.cells.fd(slot_fd));
        let flags = call(libc::SYS_fcntl, [fd, libc::F_GETFL.into(), 0, 0, 0, 0]);
        if flags < 0 || flags & direct == 0 {
            return None;
        }
        // Other threads that use this description meanwhile go through the page cache as well, which does no harm.
        call(libc::SYS_fcntl, [fd, libc::F_SETFL.into(), flags & !direct, 0, 0, 0]);
        self.make_ready(r);
        let ret = self.issue(chunk, rec, slot_fd, slot_fd2, new, Range::default());
        call(libc::SYS_fcntl, [fd, libc::F_SETFL.into(), flags, 0, 0, 0]);
        self.count(r, fd);
        Some(ret)
    }

    fn count(&self, r: &Rec, fd: i64) {
        let direct = &self.cells.direct;
        if r.call.opens() {
            direct.opens.fetch_add(1, Relaxed);
            return;
        }
        if direct.adjusted.fetch_add(1, Relaxed) > 0 {
            return;
        }
        let mut told = MaybeUninit::<libc::statx>::zeroed();
        let (path, mask) = (c"".as_ptr() as i64, i64::from(libc::STATX_DIOALIGN));
        let at = told.as_mut_ptr();
        if call(libc::SYS_statx, [fd, path, libc::AT_EMPTY_PATH.into(), mask, at as i64, 0]) == 0 {
            // SAFETY: zeros are valid for this struct of numbers, and the kernel has filled it.
            let align = unsafe { (*at).stx_dio_offset_align };
            direct.align_bytes.store(align.into(), Relaxed);
        }
    }
}
