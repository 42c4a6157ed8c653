//! File I/O by the kernel itself, as rows of `ops`: source `vfs`, or `lower` if it is part of a recorded operation.
//!
//! A part ends before the operation it belongs to, so it is held until that is written.

use ioreel_bpf::types::{rec_vfs, vfs_flags, vfs_fn};
use ioreel_traces::{Result, Text, causes::OpKey, rows::Op};
use rustc_hash::FxHashMap;

use crate::{assemble::Assembler, calls::KERNEL_IO};

/// Maximum number of held parts. Beyond it, parts are written without their operations, of which some must have been
/// lost.
const MAX_WAITING: usize = 64 * 1024;

/// Result of a request that will complete later (`EIOCBQUEUED`, include/linux/errno.h).
const QUEUED: i64 = -529;

/// Parts of operations that have not ended.
#[derive(Debug)]
pub(crate) struct Below {
    waiting: FxHashMap<OpKey, Vec<Op>>,
    count: usize,
    /// Parts left out together with their operations.
    pub(crate) left_out: i64,
    own: Text,
    lower: Text,
    unknown: Text,
    names: [Text; 4],
}

impl Default for Below {
    fn default() -> Self {
        Self {
            waiting: FxHashMap::default(),
            count: 0,
            left_out: 0,
            own: "vfs".into(),
            lower: "lower".into(),
            unknown: "unknown".into(),
            names: KERNEL_IO.map(Text::word),
        }
    }
}

impl Below {
    /// Takes the parts of this operation, and their parts in turn. Each comes with the index of what it is part of; the
    /// operation itself has index 0.
    pub(crate) fn of(&mut self, op: &Op) -> Option<Vec<(Op, usize)>> {
        if self.waiting.is_empty() {
            return None;
        }
        let parts = self.waiting.remove(&(op.task_id, op.start_ns))?;
        let mut all: Vec<(Op, usize)> = parts.into_iter().map(|part| (part, 0)).collect();
        let mut at = 0;
        while let Some((part, _)) = all.get(at) {
            at += 1;
            if let Some(parts) = self.waiting.remove(&(part.task_id, part.start_ns)) {
                all.extend(parts.into_iter().map(|part| (part, at)));
            }
        }
        self.count -= all.len();
        Some(all)
    }
}

/// Index in [`KERNEL_IO`] of the value of `op`, and the name of the kernel function.
fn word_of(function: vfs_fn) -> Option<(usize, &'static str)> {
    Some(match function {
        vfs_fn::VFS_ITER_READ => (0, "vfs_iter_read"),
        vfs_fn::VFS_IOCB_READ => (0, "vfs_iocb_iter_read"),
        vfs_fn::VFS_SPLICE => (0, "splice_direct_to_actor"),
        vfs_fn::VFS_SPLICE_READ => (0, "vfs_splice_read"),
        vfs_fn::VFS_KERNEL_READ => (0, "__kernel_read"),
        vfs_fn::VFS_LOOP_READ => (0, "lo_rw_aio"),
        vfs_fn::VFS_ITER_WRITE => (1, "vfs_iter_write"),
        vfs_fn::VFS_IOCB_WRITE => (1, "vfs_iocb_iter_write"),
        vfs_fn::VFS_KERNEL_WRITE => (1, "__kernel_write_iter"),
        vfs_fn::VFS_LOOP_WRITE => (1, "lo_rw_aio"),
        vfs_fn::VFS_FSYNC => (2, "vfs_fsync_range"),
        vfs_fn::VFS_FALLOCATE => (3, "vfs_fallocate"),
        _ => return None,
    })
}

impl Assembler {
    /// Makes the row of file I/O by the kernel.
    pub(crate) fn vfs(&mut self, rec: &rec_vfs) -> Result<()> {
        let has = |bit: vfs_flags| rec.flags & bit.0 != 0;
        let Some((word, function)) = word_of(vfs_fn(rec.function)) else {
            self.counts.strange += 1;
            return Ok(());
        };
        let file = self.file_met(rec.file, rec.sb_dev);
        if word != 0 && rec.ret >= 0 {
            self.changed.file_systems.insert(file.sb_dev);
        }
        let (pid, tid) = self.thread(rec.task_id);
        let start_ns = self.since(rec.start_ns);
        let queued = rec.ret == QUEUED;
        let part = has(vfs_flags::VFSF_BELOW);
        let lower = part || has(vfs_flags::VFSF_LOOP);
        // An appending write goes to the end of the file, whatever offset it was given.
        let wrote_before_end = word == 1 && rec.ret > 0 && !queued;
        let whole = word == 2 && rec.len_bytes == i64::MAX;
        let iter = matches!(vfs_fn(rec.function), vfs_fn::VFS_ITER_READ | vfs_fn::VFS_ITER_WRITE);
        let op = Op {
            op_id: -1,
            start_ns,
            dur_ns: if queued { 0 } else { self.since(rec.hdr.end_ns) - start_ns },
            cpu: i32::from(rec.hdr.cpu),
            task_id: i64::from(rec.task_id),
            pid,
            tid,
            op: self.below.names[word].clone(),
            source: if lower { self.below.lower.clone() } else { self.below.own.clone() },
            state: if queued { self.below.unknown.clone() } else { self.complete.clone() },
            ofd: Some(self.ofd_of(rec.ofd, rec.file, start_ns)),
            file: Some(file.id),
            offset_bytes: (!whole).then_some(if wrote_before_end { rec.pos_after - rec.ret } else { rec.pos_before }),
            // The range of an fsync is given by its last byte.
            len_bytes: (!whole).then_some(if word == 2 { rec.len_bytes.saturating_add(1) } else { rec.len_bytes }),
            ret: (!queued).then_some(rec.ret),
            flags: (iter || word >= 2).then_some(i64::from(rec.arg)),
            name: Some(Text::word(function)),
            ..Op::default()
        };
        if !part || rec.parent_ns == 0 {
            return self.write(op, has(vfs_flags::VFSF_OTHER_THREAD), has(vfs_flags::VFSF_IO)).map(drop);
        }
        if self.below.count >= MAX_WAITING {
            self.rest_below()?;
        }
        let whole = (i64::from(rec.parent), self.since(rec.parent_ns));
        self.below.waiting.entry(whole).or_default().push(op);
        self.below.count += 1;
        Ok(())
    }

    /// Writes an operation with its parts. If a filter leaves it out, its parts are left out too.
    pub(crate) fn write_tree(&mut self, op: Op, parts: Vec<(Op, usize)>, other: bool, io: bool) -> Result<bool> {
        let mut before = match &mut self.sieve {
            Some(sieve) => sieve.take(op, other),
            None => vec![op],
        };
        self.counts.ops += before.len() as i64;
        // The operation itself is the last row.
        let Some(own) = before.pop() else {
            self.below.left_out += parts.len() as i64;
            return Ok(false);
        };
        before.into_iter().try_for_each(|row| self.writer.ops.push(row))?;
        self.counts.ops += parts.len() as i64;
        for (part, _) in &parts {
            self.task_met(part.task_id as u32, (part.start_ns + self.t0_ns) as u64);
        }
        let parts = parts.into_iter().map(|(part, above)| (part, Some(above)));
        self.writer.push_op_tree([(own, None)].into_iter().chain(parts).collect(), io).map(|()| true)
    }

    /// Writes the parts whose operations never arrived.
    pub(crate) fn rest_below(&mut self) -> Result<()> {
        let mut rest: Vec<Op> = std::mem::take(&mut self.below.waiting).into_values().flatten().collect();
        self.below.count = 0;
        rest.sort_by_key(|op| op.start_ns);
        rest.into_iter().try_for_each(|op| self.push(op))
    }
}
