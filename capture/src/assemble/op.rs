//! Operations: makes the row of a call, and passes rows to the writer.

use std::ops::Range;

use ioreel_bpf::types::{call_kind, op_flags, rec_op, rec_passed};
use ioreel_traces::{Result, rows::Op};

use super::{Assembler, Known, ofds::Description};
use crate::{
    calls::{Call, Raw},
    decode::wire::Tail,
};

/// `WIRE_OFF_CPU_UNKNOWN` of the wire format.
const OFF_CPU_UNKNOWN: u64 = u64::MAX;

impl Assembler {
    /// Makes the row of a call.
    ///
    /// Long because the row is filled in sequence: later columns depend on earlier ones.
    pub(crate) fn op(&mut self, rec: &rec_op, tail: Option<&Tail<'_>>, in_flight: bool) -> Result<()> {
        let flags = u32::from(rec.flags);
        let has = |bit: op_flags| flags & bit.0 != 0;
        let table = &self.calls[usize::from(has(op_flags::OPF_COMPAT))];
        let Some(Known { call, name, fix }) = table.get(usize::from(rec.nr)).and_then(Clone::clone) else {
            self.counts.strange += 1;
            return Ok(());
        };
        let (pid, tid) = self.thread(rec.task_id);
        let busy = has(op_flags::OPF_MAP_BUSY);
        let entered_ns = rec.hdr.end_ns.saturating_sub(rec.dur_ns);
        let mapped =
            if busy { self.mappings.find(pid, rec.args[0] as i64, rec.args[1] as i64, entered_ns) } else { None };
        if busy && mapped.is_none() {
            self.counts.unplaced += 1;
            return Ok(());
        }
        let fixed = tail.map(|t| &t.fixed);
        let mut raw = Raw {
            args: rec.args.map(|a| a as i64),
            extra: fixed.map_or([0; 4], |f| f.extra.map(|e| e as i64)),
            ret: if in_flight { -1 } else { rec.ret },
            flags: if tail.is_some() || call.desc.user_kind == 0 {
                rec.flags
            } else {
                rec.flags | op_flags::OPF_USER_FAULT.0 as u16
            },
            pos: (rec.pos_before, rec.pos_after),
            pos2: fixed.map_or((0, 0), |f| (f.pos2_before, f.pos2_after)),
            moved: &[],
            moved2: &[],
            name: tail.map_or(&[], |t| t.name),
            input: tail.map_or(&[], |t| t.input),
            output: tail.map_or(&[], |t| t.output),
        };
        fix(&mut raw);
        let arg = |which: u8| (which != 0).then(|| raw.args[usize::from(which) - 1]);
        let start_ns = self.since(rec.hdr.end_ns) - rec.dur_ns as i64;
        let mut op = Op {
            op_id: -1,
            start_ns,
            dur_ns: rec.dur_ns as i64,
            cpu: i32::from(rec.hdr.cpu),
            task_id: i64::from(rec.task_id),
            pid,
            tid,
            op: name,
            source: self.syscall.clone(),
            state: match (in_flight, has(op_flags::OPF_MIDWAY)) {
                (true, _) => self.in_flight.clone(),
                (false, true) => self.midway.clone(),
                (false, false) => self.complete.clone(),
            },
            fd: arg(call.desc.fd).map(|a| a as i32),
            fd2: arg(call.desc.fd2).map(|a| a as i32),
            dirfd: arg(call.desc.dirfd).map(|a| a as i32),
            dirfd2: arg(call.desc.dirfd2).map(|a| a as i32),
            ret: (!in_flight).then_some(raw.ret),
            off_cpu_ns: (self.waits.is_some() && !in_flight && !has(op_flags::OPF_MIDWAY))
                .then(|| off_cpu_ns(rec))
                .flatten(),
            ..Op::default()
        };
        if let Some(t) = tail {
            // For a call that was in progress at the start, it may not have been read.
            let read = |bytes: &[u8]| !(has(op_flags::OPF_MIDWAY) && bytes.is_empty());
            let path = |this: &mut Self, which: u8, fault: op_flags, bytes: &[u8]| {
                (arg(which).is_some_and(|a| a != 0) && !has(fault) && read(bytes)).then(|| this.paths.get(bytes))
            };
            op.path = path(self, call.desc.path, op_flags::OPF_PATH_FAULT, t.path);
            op.path2 = path(self, call.desc.path2, op_flags::OPF_PATH2_FAULT, t.path2);
        }
        let moved = self.ofds.get(rec.ofd, rec.file, start_ns);
        let moved2 = fixed.and_then(|f| self.ofds.get(f.ofd2, f.file2, start_ns));
        fn since(d: Option<&Description>, entered_ns: i64) -> &[Range<i64>] {
            d.map_or(&[], |d| d.moved_since(entered_ns))
        }
        (call.fill)(&Raw { moved: since(moved, start_ns), moved2: since(moved2, start_ns), ..raw }, &mut op);

        let kind = u32::from(call.desc.kind);
        if kind == call_kind::CALL_URING.0 || kind == call_kind::CALL_URING_SETUP.0 {
            self.uring_call(&mut op, rec.task_id, rec.pos_before as u64, rec.hdr.end_ns);
        }

        let mut file_systems = [0; 2];
        let mut known = 0;
        if has(op_flags::OPF_FILE) || has(op_flags::OPF_DIR) || busy {
            let file = if has(op_flags::OPF_CREATED) {
                self.made(rec.file, rec.hdr.end_ns)?
            } else {
                self.file_of(mapped.unwrap_or(rec.file))
            };
            op.file = Some(file.id);
            if !file.seekable {
                op.offset_bytes = None;
            }
            if has(op_flags::OPF_FILE) && rec.ofd != 0 && call.desc.kind != call_kind::CALL_VMA.0 as u8 {
                let opened = opens(call) || kind == call_kind::CALL_URING_SETUP.0;
                let ofd_of = if opened { Self::new_ofd } else { Self::ofd_of };
                // The result of a call such as dup is looked up when the call returns.
                let at_ns = if kind == call_kind::CALL_FD.0 { self.since(rec.hdr.end_ns) } else { start_ns };
                op.ofd = Some(ofd_of(self, rec.ofd, rec.file, at_ns));
            }
            file_systems[known] = file.sb_dev;
            known += 1;
        }
        if let Some(f) = fixed.filter(|_| has(op_flags::OPF_FILE2) || has(op_flags::OPF_DIR2)) {
            let file = self.file_of(f.file2);
            op.file2 = Some(file.id);
            if !file.seekable {
                op.offset2_bytes = None;
            }
            if has(op_flags::OPF_FILE2) {
                op.ofd2 = Some(self.ofd_of(f.ofd2, f.file2, start_ns));
            }
            file_systems[known] = file.sb_dev;
            known += 1;
        }
        if raw.ret >= 0 && !in_flight {
            if kind == call_kind::CALL_MMAP.0 && has(op_flags::OPF_FILE) {
                self.mappings.map(pid, raw.ret, raw.args[1], rec.file, rec.hdr.end_ns);
            } else if kind == call_kind::CALL_VMA.0 && op.op == "munmap" {
                self.mappings.unmap(pid, raw.args[0], raw.args[1], (entered_ns, rec.hdr.end_ns));
            } else if kind == call_kind::CALL_VMA.0 && op.op == "mremap" {
                self.mappings.unmap(pid, raw.args[0], raw.args[1], (entered_ns, rec.hdr.end_ns));
                self.mappings.map(pid, raw.ret, raw.args[2], mapped.unwrap_or(rec.file), rec.hdr.end_ns);
            }
        }
        if raw.ret >= 0 && tail.is_some() && matches!(call.name, "mount" | "umount2" | "move_mount") {
            self.blocks.layouts.mounts_changed();
        }
        if raw.ret >= 0 {
            self.changed.note(&op, call.modifies, &file_systems[..known]);
        }
        if let Some(d) = op.ofd.and_then(|id| self.ofds.get_mut(rec.ofd, id)) {
            d.note(&op, raw.pos);
        }
        if !self.start.is_settled() {
            self.note_start(rec, &op, call, &raw, has(op_flags::OPF_MIDWAY))?;
        }
        // Waits for pipes, sockets and terminals are not caused by a file system.
        self.slow_seen |=
            op.dur_ns >= self.slow_ns && (op.path.is_some() || op.file.is_some() && self.file_of(rec.file).seekable);
        let waits = self.waits.as_mut().map_or_else(Vec::new, |w| w.ended(rec.task_id, &op, !in_flight));
        let other = has(op_flags::OPF_OTHER_THREAD);
        if call.name.starts_with("io_") && !call.name.starts_with("io_uring") {
            self.aio_call(&raw, &mut op, other)?;
        }
        if self.sieve.is_some() {
            let first = has(op_flags::OPF_DIR).then_some((rec.ofd, rec.file));
            let second = fixed.filter(|_| has(op_flags::OPF_DIR2)).map(|f| (f.ofd2, f.file2));
            let folders = [first, second].map(|f| f.filter(|f| f.0 != 0).map(|f| self.ofd_of(f.0, f.1, start_ns)));
            if let Some(sieve) = &mut self.sieve {
                sieve.goes_through(folders.into_iter().flatten());
            }
        }
        let content = has(op_flags::OPF_CONTENT).then(|| (rec.task_id, rec.hdr.end_ns - rec.dur_ns));
        let written = self.write_with_content(op, content, other, has(op_flags::OPF_IO))?;
        self.waits_of(waits, written)
    }

    /// Writes an operation unless it is filtered out; returns whether it was written. `other`: by a thread that the
    /// filter excludes; `io`: bios were queued during it.
    pub(crate) fn write(&mut self, op: Op, other: bool, io: bool) -> Result<bool> {
        self.task_met(op.task_id as u32, (op.start_ns + self.t0_ns) as u64);
        self.last_ns = self.last_ns.max(op.start_ns + op.dur_ns);
        if let Some(below) = self.below.of(&op) {
            return self.write_tree(op, below, other, io);
        }
        let Some(sieve) = &mut self.sieve else {
            self.counts.ops += 1;
            self.without_content(&op);
            return if io { self.writer.push_op_with_io(op) } else { self.writer.ops.push(op) }.map(|()| true);
        };
        let mut rows = sieve.take(op, other);
        self.counts.ops += rows.len() as i64;
        rows.iter().for_each(|row| self.without_content(row));
        // The operation itself is the last row.
        let own = rows.pop();
        rows.into_iter().try_for_each(|row| self.writer.ops.push(row))?;
        match own {
            Some(op) if io => self.writer.push_op_with_io(op).map(|()| true),
            Some(op) => self.writer.ops.push(op).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes a row that is not from a system call.
    pub(crate) fn push(&mut self, op: Op) -> Result<()> {
        self.write(op, false, false).map(drop)
    }

    /// A row with the columns that depend only on the task.
    pub(crate) fn row_of(&self, task_id: u32, cpu: u16, op: &str, source: &str) -> Op {
        let (pid, tid) = self.thread(task_id);
        Op {
            op_id: -1,
            cpu: i32::from(cpu),
            task_id: i64::from(task_id),
            pid,
            tid,
            op: op.into(),
            source: source.into(),
            state: self.complete.clone(),
            ..Op::default()
        }
    }

    /// A descriptor received with SCM_RIGHTS. It may refer to a known description.
    pub(super) fn passed(&mut self, rec: &rec_passed) -> Result<()> {
        let mut op = self.row_of(rec.task_id, rec.hdr.cpu, "scm_rights", "scm");
        op.start_ns = self.since(rec.hdr.end_ns) - rec.dur_ns as i64;
        op.dur_ns = rec.dur_ns as i64;
        op.fd = Some(rec.socket);
        op.ret = Some(rec.fd.into());
        op.flags = Some(if rec.cloexec != 0 { libc::O_CLOEXEC.into() } else { 0 });
        if u32::from(rec.flags) & op_flags::OPF_FILE.0 != 0 {
            op.file = Some(self.file_of(rec.file).id);
            // The receiver may have waited since before the file was opened.
            op.ofd = Some(self.ofd_of(rec.ofd, rec.file, self.since(rec.hdr.end_ns)));
        }
        self.push(op)
    }
}

/// Time off the CPU inside the call; `None` if the thread left its CPU unseen.
fn off_cpu_ns(rec: &rec_op) -> Option<i64> {
    // The end of a call whose content is recorded is taken before the last program of its return.
    (rec.off_cpu_ns != OFF_CPU_UNKNOWN).then(|| rec.off_cpu_ns.min(rec.dur_ns) as i64)
}

/// Whether the call opens a new open file description.
fn opens(call: &Call) -> bool {
    let kind = u32::from(call.desc.kind);
    kind == call_kind::CALL_OPEN.0 || kind == call_kind::CALL_HANDLE_OPEN.0
}
