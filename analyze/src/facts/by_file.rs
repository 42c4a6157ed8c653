//! What operations do to each file.

use super::{
    operation::{Ended, Operation},
    own_io::CausedReads,
    tally::Tally,
    time::Parts,
};
use crate::events::calls::{Kind, Source};

/// A transfer shorter than this is tiny: a page holds several.
const TINY_BYTES: i64 = 4096;
/// Block size of file systems, for alignment.
const BLOCK_BYTES: i64 = 4096;
/// A sync of at most this much data is small: the device would take it in one or two requests.
const SMALL_SYNC_BYTES: u64 = 1 << 20;

/// Operations on one file.
#[derive(Clone, Debug, Default)]
pub struct FileUse {
    /// All operations.
    pub all: Tally,
    /// What their durations consist of.
    pub parts: Parts,
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// Calls that wait for the disk, with at most [`SMALL_SYNC_BYTES`] written since the previous one: syncs, and
    /// writes through a synchronous descriptor. Bytes: dirty ones.
    pub small_syncs: Tally,
    /// The other syncs.
    pub large_syncs: Tally,
    /// Reads and writes of few bytes that continue the previous one. Share: without waits for a device.
    pub tiny: Tally,
    /// Reads that continue the previous one and wait for the device. Share: the wait.
    pub sequential_waits: Tally,
    /// Other reads that wait for the device. Share: the wait.
    pub random_waits: Tally,
    /// Writes that wait for a read that they caused. Bytes: those read. Share: the wait.
    pub read_before_write: Tally,
    /// Among these, writes not aligned to blocks.
    pub unaligned: u64,
    /// Waits for locks. Share: the wait.
    pub lock_waits: Tally,
    /// Touches of mapped pages that wait for a read. Share: the whole.
    pub faults: Tally,
    /// Threads that wrote, at most two are told apart.
    pub writers: [Option<i64>; 2],
    dirty_bytes: u64,
    next_offset: Option<i64>,
}

impl FileUse {
    /// Handles an operation. `is_sync`: it waits for the disk.
    pub(super) fn push(&mut self, ended: &Ended<'_>, is_sync: bool, reads: CausedReads) {
        let op = ended.op;
        self.all.push(ended, op.moved_bytes(), ended.share_ns);
        self.parts.add(&ended.parts);
        if ended.parts.lock_ns > 0.0 {
            self.lock_waits.push(ended, 0, ended.share_of(ended.parts.lock_ns));
        }
        match (op.source, op.kind) {
            (Source::Fault, _) if ended.call.faults && op.dur_ns() > 0 => {
                self.faults.push(ended, op.len_bytes.unwrap_or(0).max(0).unsigned_abs(), ended.share_ns);
            }
            (_, Kind::Read) => self.read(ended),
            (_, Kind::Write) => self.wrote(ended, is_sync, reads),
            (_, Kind::Sync) => self.synced(ended),
            _ => {}
        }
    }

    fn read(&mut self, ended: &Ended<'_>) {
        let op = ended.op;
        self.reads.push(ended, op.moved_bytes(), ended.share_ns);
        let continues = self.continues(op);
        self.count_tiny(ended, continues);
        if ended.parts.device_ns > 0.0 {
            let waits = if continues { &mut self.sequential_waits } else { &mut self.random_waits };
            waits.push(ended, op.moved_bytes(), ended.share_of(ended.parts.device_ns));
        }
    }

    fn wrote(&mut self, ended: &Ended<'_>, is_sync: bool, reads: CausedReads) {
        let op = ended.op;
        self.writes.push(ended, op.moved_bytes(), ended.share_ns);
        let continues = self.continues(op);
        match self.writers {
            [None, _] => self.writers[0] = Some(op.task),
            [Some(first), None] if first != op.task => self.writers[1] = Some(op.task),
            _ => {}
        }
        if reads.reads > 0 {
            let aligned = |bytes: Option<i64>| bytes.is_none_or(|b| b % BLOCK_BYTES == 0);
            self.unaligned += u64::from(!aligned(op.offset_bytes) || !aligned(op.ret));
            self.read_before_write.push(ended, reads.read_bytes, ended.share_of(reads.read_wait_ns as f64));
        }
        if is_sync {
            self.small_or_large(ended, op.moved_bytes());
        } else {
            self.dirty_bytes = self.dirty_bytes.saturating_add(op.moved_bytes());
            self.count_tiny(ended, continues);
        }
    }

    fn synced(&mut self, ended: &Ended<'_>) {
        let dirty_bytes = std::mem::take(&mut self.dirty_bytes);
        self.small_or_large(ended, dirty_bytes);
    }

    fn small_or_large(&mut self, ended: &Ended<'_>, bytes: u64) {
        let to = if bytes <= SMALL_SYNC_BYTES { &mut self.small_syncs } else { &mut self.large_syncs };
        to.push(ended, bytes, ended.share_ns);
    }

    /// Whether it begins where the previous transfer ended.
    fn continues(&mut self, op: &Operation) -> bool {
        let continues = op.offset_bytes.is_some() && op.offset_bytes == self.next_offset;
        self.next_offset = op.offset_bytes.map(|at| at.saturating_add(op.ret.unwrap_or(0).max(0)));
        continues
    }

    fn count_tiny(&mut self, ended: &Ended<'_>, continues: bool) {
        let op = ended.op;
        if continues && op.source == Source::Call && op.ret.is_some_and(|r| r > 0 && r < TINY_BYTES) {
            let share_ns = (ended.share_ns - ended.device_share_ns()).max(0.0);
            self.tiny.push(ended, op.moved_bytes(), share_ns);
        }
    }
}
