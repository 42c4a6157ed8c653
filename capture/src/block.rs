//! Records of the block layer to rows.

use ioreel_bpf::types::{bio_how, rec_bio, rec_rq};
use ioreel_traces::{
    Text,
    rows::{Bio, Block, block_flags},
};

/// The row of a request; `t0_ns` is the reel's start on the monotonic clock.
pub(crate) fn request(rec: &rec_rq, t0_ns: i64) -> Block {
    let (op, flags) = kind(rec.opf);
    let bare = rec.sector == u64::MAX || op == "flush";
    Block {
        rq_id: rec.rq_id as i64,
        queue_ns: (rec.queue_ns != 0).then(|| rec.queue_ns as i64 - t0_ns),
        issue_ns: rec.issue_ns as i64 - t0_ns,
        complete_ns: Some(rec.hdr.end_ns as i64 - t0_ns),
        dev: i64::from(rec.dev),
        sector: if bare { -1 } else { rec.sector as i64 },
        len_bytes: if bare { 0 } else { i64::from(rec.len_bytes) },
        op: op.into(),
        flags,
        cpu: rec.issue_cpu as i32,
        error: rec.error,
    }
}

/// The row of a bio, without its file.
pub(crate) fn bio(rec: &rec_bio, t0_ns: i64) -> Bio {
    let (op, flags) = kind(rec.opf);
    let end_ns = rec.hdr.end_ns as i64 - t0_ns;
    let (class, confidence) = match u32::from(rec.how) {
        _ if op == "flush" || rec.len_bytes == 0 => ("flush", 100),
        _ if flags & block_flags::META != 0 => ("metadata", 90),
        h if h == bio_how::BIO_DIRECT.0 => ("data", 100),
        h if h == bio_how::BIO_PAGE.0 => ("data", 95),
        _ => ("unknown", 0),
    };
    let has_sector = rec.len_bytes != 0 && rec.sector != u64::MAX;
    Bio {
        bio_id: -1,
        rq_id: (rec.rq_id != 0).then_some(rec.rq_id as i64),
        queue_ns: if rec.queue_ns != 0 { rec.queue_ns as i64 - t0_ns } else { end_ns },
        complete_ns: Some(end_ns),
        dev: i64::from(rec.dev),
        sector: if has_sector { rec.sector as i64 } else { -1 },
        len_bytes: i64::from(rec.len_bytes),
        op: op.into(),
        flags,
        task_id: (rec.task_id != 0).then_some(i64::from(rec.task_id)),
        comm: comm(&rec.comm),
        file: None,
        file_offset_bytes: None,
        class: class.into(),
        confidence,
        cause: None,
    }
}

/// Where in its file a bio begins; known where a page told.
pub(crate) fn file_offset(rec: &rec_bio) -> Option<i64> {
    (rec.file_offset_bytes >= 0 && u32::from(rec.how) == bio_how::BIO_PAGE.0).then_some(rec.file_offset_bytes)
}

/// A thread's name.
pub(crate) fn comm(bytes: &[impl Copy + Into<i64>; 16]) -> Text {
    let bytes: Vec<u8> = bytes.iter().map(|b| (*b).into() as u8).take_while(|b| *b != 0).collect();
    ioreel_traces::text::from_bytes(&bytes)
}

/// Operation word and flag bits of the kernel's `opf` (include/linux/blk_types.h, 6.1 to 7.x agree on these).
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
