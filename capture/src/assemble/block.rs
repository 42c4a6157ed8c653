//! Records of the block layer become rows.

use ioreel_bpf::types::{bio_flags, rec_bio, rec_rq};
use ioreel_traces::{
    Text,
    rows::{Bio, Block, block_flags},
};
use rustc_hash::FxHashMap;

use crate::{assemble::classify::Told, host::layout::Layouts};

/// State for making rows of the block layer.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Layouts of the devices seen.
    pub(crate) layouts: Layouts,
    comms: FxHashMap<[u8; 16], Text>,
}

impl Blocks {
    fn comm(&mut self, bytes: [u8; 16]) -> Text {
        // Worker threads rename themselves often, so the number of names is bounded.
        if self.comms.len() > MAX_COMMS {
            self.comms.clear();
        }
        self.comms.entry(bytes).or_insert_with(|| comm(&bytes)).clone()
    }

    /// The row of a request. `t0_ns`: start of the reel on the monotonic clock.
    #[inline]
    pub(crate) fn request(&mut self, rec: &rec_rq, t0_ns: i64) -> Block {
        let (op, flags) = kind(rec.opf);
        let bare = rec.sector == u64::MAX || op == "flush";
        Block {
            rq_id: rec.rq_id as i64,
            queue_ns: (rec.queue_ns != 0).then(|| rec.queue_ns as i64 - t0_ns),
            issue_ns: rec.issue_ns as i64 - t0_ns,
            complete_ns: (rec.no_end == 0).then(|| rec.hdr.end_ns as i64 - t0_ns),
            dev: i64::from(rec.dev),
            sector: if bare { -1 } else { rec.sector as i64 },
            len_bytes: if op == "flush" { 0 } else { i64::from(rec.len_bytes) },
            op: Text::word(op),
            flags,
            cpu: rec.issue_cpu as i32,
            error: errno(rec.error),
            requeues: Some(rec.requeues as i32),
            bios: (rec.no_end == 0).then_some(rec.bios as i32),
        }
    }

    /// The row of a bio classified as `told`, without file and cause. `comm`: name of the thread that queued it, if
    /// that is recorded.
    #[inline]
    pub(crate) fn bio(&mut self, rec: &rec_bio, told: Told, comm: Option<Text>, t0_ns: i64) -> Bio {
        let (op, mut flags) = kind(rec.opf);
        for (bit, flag) in [(bio_flags::BIOF_SPLIT, block_flags::SPLIT), (bio_flags::BIOF_MERGED, block_flags::MERGED)]
        {
            if u32::from(rec.flags) & bit.0 != 0 {
                flags |= flag;
            }
        }
        let end_ns = rec.hdr.end_ns as i64 - t0_ns;
        // Passthrough commands have no position on the device.
        let has_sector = rec.len_bytes != 0 && rec.sector != u64::MAX && op != "other";
        let moved = rec.orig_dev != 0;
        Bio {
            bio_id: -1,
            rq_id: (rec.rq_id != 0).then_some(rec.rq_id as i64),
            queue_ns: if rec.queue_ns != 0 { rec.queue_ns as i64 - t0_ns } else { end_ns },
            complete_ns: (u32::from(rec.flags) & bio_flags::BIOF_NO_END.0 == 0).then_some(end_ns),
            dev: i64::from(rec.dev),
            sector: if has_sector { rec.sector as i64 } else { -1 },
            len_bytes: i64::from(rec.len_bytes),
            op: Text::word(op),
            flags,
            task_id: (rec.task_id != 0).then_some(i64::from(rec.task_id)),
            comm: comm.unwrap_or_else(|| self.comm(rec.comm.map(|b| b as u8))),
            file: None,
            file_offset_bytes: None,
            class: Text::word(told.class),
            confidence: told.confidence,
            cause: None,
            orig_dev: moved.then_some(i64::from(rec.orig_dev)),
            orig_sector: (moved && has_sector).then_some(rec.orig_sector as i64),
            detail: told.detail.map(Text::word),
            how: told.how.map(Text::word),
            error: Some(errno(rec.error)),
        }
    }
}

/// Maximum number of thread names kept for sharing.
const MAX_COMMS: usize = 4096;

/// Converts a `blk_status_t` to an errno (block/blk-core.c, `blk_errors`). Older kernels passed -errno. Values above 13
/// changed between releases; all of them mean that the device failed.
fn errno(status: i32) -> i32 {
    match status {
        ..=0 => -status,
        1 => libc::EOPNOTSUPP,
        2 => libc::ETIMEDOUT,
        3 => libc::ENOSPC,
        4 => libc::ENOLINK,
        5 => libc::EREMOTEIO,
        6 => libc::EBADE,
        7 => libc::ENODATA,
        8 => libc::EILSEQ,
        9 => libc::ENOMEM,
        11 => libc::EREMCHG,
        12 => libc::EAGAIN,
        13 => libc::EBUSY,
        _ => libc::EIO,
    }
}

/// The name of a thread as text.
pub(crate) fn comm(bytes: &[impl Copy + Into<i64>; 16]) -> Text {
    let bytes: Vec<u8> = bytes.iter().map(|b| (*b).into() as u8).take_while(|b| *b != 0).collect();
    ioreel_traces::text::from_bytes(&bytes)
}

/// Name of the operation and flags in the kernel's `opf` (include/linux/blk_types.h; the same in 6.1 to 7.x).
fn kind(opf: u32) -> (&'static str, i32) {
    let op = match opf & 0xff {
        0 => "read",
        1 => "write",
        2 => "flush",
        3 => "discard",
        5 => "secure_erase",
        7 => "zone_append",
        9 => "write_zeroes",
        10..=19 => "zone_mgmt",
        _ => "other",
    };
    const BITS: [(u32, i32); 7] = [
        (11, block_flags::SYNC),
        (12, block_flags::META),
        (13, block_flags::PRIO),
        (17, block_flags::FUA),
        (18, block_flags::PREFLUSH),
        (19, block_flags::READAHEAD),
        (20, block_flags::BACKGROUND),
    ];
    let flags = BITS.iter().filter(|(bit, _)| opf >> bit & 1 != 0).fold(0, |acc, (_, f)| acc | f);
    (op, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::classify::classify;

    /// include/linux/blk_types.h: REQ_OP_DRV_IN.
    const PASSED_THROUGH: u32 = 34;

    #[test]
    fn what_is_passed_through_has_a_length_and_no_place() {
        let mut blocks = Blocks::default();
        let rq = rec_rq { opf: PASSED_THROUGH, sector: u64::MAX, len_bytes: 96, ..rec_rq::default() };
        let request = blocks.request(&rq, 0);
        assert_eq!((&*request.op, request.sector, request.len_bytes), ("other", -1, 96));
        let rec = rec_bio { opf: PASSED_THROUGH, len_bytes: 96, ..rec_bio::default() };
        let told = classify(&rec, &mut blocks.layouts);
        let bio = blocks.bio(&rec, told, None, 0);
        assert_eq!((&*bio.op, bio.sector, bio.len_bytes), ("other", -1, 96));
    }
}
