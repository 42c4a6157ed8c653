//! Tasks: their start and end, and what adopted tasks had at the start.

use ioreel_bpf::types::{rec_fd, rec_file, rec_map, rec_op, rec_place, rec_task, rec_wait};
use ioreel_traces::{
    Result,
    rows::{Fd, Map, Op, Task, Wait},
};

use rustc_hash::FxHashMap;

use super::{Assembler, ENDED, Ended, Life, TidUse};
use crate::{
    assemble::{block, initial_fds::Used, names::Names, waits::Of},
    calls::{Call, Raw, makes_descriptor},
};

/// Bits of `tasks.clone_flags`.
const CLONE_VM: i64 = 0x100;
const CLONE_FS: i64 = 0x200;
const CLONE_FILES: i64 = 0x400;
const CLONE_THREAD: i64 = 0x10000;
/// Parent of kernel threads (`WIRE_KERNEL_TASK`).
const KERNEL_TASK: u32 = u32::MAX;

/// Kernel addresses of what an adopted task may share with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    task_id: u32,
    pid: i32,
    fs: u64,
    mm: u64,
}

impl Assembler {
    pub(super) fn task_began(&mut self, rec: &rec_task) {
        let of_kernel = rec.parent == KERNEL_TASK;
        let adopted = rec.parent == 0;
        let mut row = Task {
            task_id: i64::from(rec.task_id),
            pid: rec.pid as i32,
            tid: rec.tid as i32,
            parent: (!adopted && !of_kernel).then_some(i64::from(rec.parent)),
            start_ns: if rec.listed != 0 { 0 } else { self.since(rec.hdr.end_ns).max(0) },
            clone_flags: rec.clone_flags as i64,
            comm: block::comm(&rec.comm),
            cgroup: (rec.cgroup != 0).then_some(rec.cgroup as i64),
            ..Task::default()
        };
        if self.is_over {
            self.late.insert(rec.task_id, row);
            return;
        }
        let mut table = None;
        if adopted {
            // The leader is adopted before its other threads.
            let leader = self.leaders.get(&row.pid).copied().filter(|_| row.tid != row.pid);
            match leader.filter(|_| row.clone_flags & CLONE_FILES != 0) {
                Some(leader) => row.parent = Some(i64::from(leader)),
                None => {
                    row.clone_flags = 0;
                    self.start.adopted(row.task_id);
                }
            }
            table = Some(row.parent.unwrap_or(row.task_id));
            if row.tid == row.pid {
                self.leaders.insert(row.pid, rec.task_id);
            }
        } else if let Some(parent) = self.tasks.get(&rec.parent) {
            self.mappings.fork(parent.row.pid, row.pid);
            table = parent.table.filter(|_| row.clone_flags & CLONE_FILES != 0);
        }
        if let Some(sieve) = &mut self.sieve {
            sieve.task_began(row.task_id, row.parent, row.clone_flags);
        }
        self.note_met(rec.task_id);
        let from_ns = if adopted { 0 } else { rec.hdr.end_ns };
        self.by_tid.insert(row.tid, TidUse { task_id: rec.task_id, from_ns, to_ns: u64::MAX });
        self.tasks.insert(rec.task_id, Life { row, table, names: Names::default() });
    }

    /// Marks the task as known; returns whether it was not.
    fn note_met(&mut self, task_id: u32) -> bool {
        let (word, bit) = (task_id as usize / 64, 1 << (task_id % 64));
        if word >= self.met.len() {
            self.met.resize(word + 1, 0);
        }
        let first = self.met[word] & bit == 0;
        self.met[word] |= bit;
        first
    }

    /// A record refers to this task. If its start was lost, it gets a row with what is known.
    pub(crate) fn task_met(&mut self, task_id: u32, at_ns: u64) {
        if task_id != 0 && self.note_met(task_id) {
            let start_ns = self.since(at_ns).max(0);
            let unknown = || Task { task_id: i64::from(task_id), start_ns, ..Task::default() };
            let row = self.late.remove(&task_id).unwrap_or_else(unknown);
            self.tasks.insert(task_id, Life { row, table: None, names: Names::default() });
        }
    }

    /// Working directory and root of an adopted task.
    pub(super) fn place(&mut self, rec: &rec_place, cwd: &[u8], root: &[u8]) {
        let (cwd, root) = (self.paths.get(cwd), self.paths.get(root));
        self.changed.stands(&cwd);
        if let Some(sieve) = &mut self.sieve {
            sieve.stands(i64::from(rec.task_id), &cwd, &root);
        }
        let Some(life) = self.tasks.get_mut(&rec.task_id) else { return };
        let row = &mut life.row;
        row.cwd = Some(cwd).filter(|p| !p.is_empty());
        row.root = Some(root).filter(|p| !p.is_empty());
        (row.umask, row.uid, row.gid) = (Some(rec.umask as i32), Some(rec.uid as i32), Some(rec.gid as i32));
        row.capabilities = (rec.in_user_ns != 0).then_some(rec.capabilities as i64);
        let mine = Shares { task_id: rec.task_id, pid: row.pid, fs: rec.fs, mm: rec.mm };
        let first = *self.sharing.entry(rec.files).or_insert(mine);
        // Another process uses the same descriptor table.
        if row.parent.is_none() && first.task_id != rec.task_id && first.pid != row.pid {
            row.parent = Some(i64::from(first.task_id));
            row.clone_flags = CLONE_FILES
                | if first.fs == rec.fs { CLONE_FS } else { 0 }
                | if first.mm == rec.mm && rec.mm != 0 { CLONE_VM } else { 0 };
        }
        // Kernel threads share theirs with init.
        if rec.mm != 0 && *self.standing.entry(rec.fs).or_insert(rec.files) != rec.files {
            self.stood_together += 1;
        }
        self.start.met(i64::from(rec.task_id));
    }

    pub(super) fn descriptor(&mut self, rec: &rec_fd, path: &[u8], fs_path: &[u8]) -> Result<()> {
        let described = rec_file {
            hdr: rec.hdr,
            file: rec.file,
            sb_dev: rec.sb_dev,
            mode: rec.mode,
            size_bytes: rec.size_bytes,
            path_bytes: rec.path_bytes,
            path_cut: rec.path_cut,
            more: rec.more,
        };
        self.file(&described, path, fs_path)?;
        let file = self.file_of(rec.file);
        let ofd = self.ofd_of(rec.ofd, rec.file, self.since(rec.hdr.end_ns));
        let row = Fd {
            task_id: i64::from(rec.task_id),
            fd: rec.fd,
            ofd,
            file: Some(file.id),
            offset_bytes: rec.offset_bytes,
            flags: i64::from(rec.open_flags),
            cloexec: rec.cloexec as i32,
        };
        match self.start.found(row, self.since(rec.hdr.end_ns)) {
            Some(row) => self.writer.fds.push(row),
            None => Ok(()),
        }
    }

    pub(super) fn mapping(&mut self, rec: &rec_map, path: &[u8], fs_path: &[u8]) -> Result<()> {
        let described = rec_file {
            hdr: rec.hdr,
            file: rec.file,
            sb_dev: rec.sb_dev,
            mode: rec.mode,
            size_bytes: rec.size_bytes,
            path_bytes: rec.path_bytes,
            path_cut: 0,
            more: rec.more,
        };
        self.file(&described, path, fs_path)?;
        let file = self.file_of(rec.file);
        if let Some(life) = self.tasks.get(&rec.task_id) {
            self.mappings.map(life.row.pid, rec.start as i64, rec.len_bytes as i64, rec.file, 0);
        }
        const VM_SHARED: u64 = 8;
        self.writer.maps.push(Map {
            task_id: i64::from(rec.task_id),
            address: rec.start as i64,
            len_bytes: rec.len_bytes as i64,
            file: file.id,
            offset_bytes: rec.offset_bytes as i64,
            // VM_READ, VM_WRITE and VM_EXEC have the same values as PROT_READ, PROT_WRITE and PROT_EXEC.
            prot: (rec.vm_flags & 7) as i32,
            flags: if rec.vm_flags & VM_SHARED != 0 { libc::MAP_SHARED } else { libc::MAP_PRIVATE },
        })
    }

    /// The snapshot of the tasks found so far is complete.
    pub(super) fn looked(&mut self, at_ns: i64) {
        self.start.looked(at_ns);
        self.sharing.clear();
        self.standing.clear();
    }

    /// Processes an operation that may show what the snapshot missed.
    pub(super) fn note_start(&mut self, rec: &rec_op, op: &Op, call: &Call, raw: &Raw<'_>, midway: bool) -> Result<()> {
        if let Some(owner) = self.tasks.get(&rec.task_id).and_then(|life| life.table) {
            let appends = u32::from(raw.flags) & ioreel_bpf::types::op_flags::OPF_APPEND.0 != 0;
            // The open flags are unknown, except that it was opened for writing.
            let writes =
                matches!(&*op.op, "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "ftruncate" | "fallocate");
            let flags = if appends { libc::O_APPEND } else { 0 } | if writes { libc::O_RDWR } else { 0 };
            let flags = i64::from(flags);
            let makes = makes_descriptor(call, op);
            // The file of an open is the one that it opened.
            let opened = makes && op.fd.is_none();
            let before = if midway { op.offset_bytes.unwrap_or(raw.pos.0) } else { raw.pos.0 };
            let pairs = [(op.fd, op.ofd, op.file, before), (op.fd2, op.ofd2, op.file2, raw.pos2.0)];
            let used: Vec<Used> = pairs
                .into_iter()
                .filter(|_| !opened)
                .filter_map(|(fd, ofd, file, offset_bytes)| {
                    Some(Used { fd: fd.unwrap_or(-1), ofd: ofd?, file: file?, offset_bytes, flags })
                })
                .collect();
            self.start.note(owner, op, &used, makes);
        }
        let now_ns = op.start_ns + op.dur_ns;
        self.start.settled(now_ns).into_iter().try_for_each(|row| self.writer.fds.push(row))
    }

    /// A thread has another name.
    pub(super) fn task_named(&mut self, rec: &rec_task) {
        if self.is_over {
            return;
        }
        self.task_met(rec.task_id, rec.hdr.end_ns);
        if let Some(life) = self.tasks.get_mut(&rec.task_id) {
            life.named(block::comm(&rec.comm), rec.hdr.end_ns);
        }
    }

    /// A thread ended, or (`left`) is no longer recorded.
    pub(super) fn task_ended(&mut self, rec: &rec_task, left: bool) -> Result<()> {
        if self.is_over {
            // It ended after the recording of operations.
            return Ok(());
        }
        let at_ns = self.since(rec.hdr.end_ns);
        if let Some(sieve) = &mut self.sieve {
            sieve.task_ended(i64::from(rec.task_id));
        }
        self.task_met(rec.task_id, rec.hdr.end_ns);
        let Some(mut life) = self.tasks.remove(&rec.task_id) else { return Ok(()) };
        if let Some(contents) = &mut self.contents {
            contents.ended(rec.task_id);
        }
        if life.row.pid == 0 {
            // Its start was lost.
            (life.row.pid, life.row.tid) = (rec.pid as i32, rec.tid as i32);
        }
        life.named(block::comm(&rec.comm), rec.hdr.end_ns);
        let (pid, tid, comm) = (life.row.pid, life.row.tid, life.row.comm.clone());
        let names = std::mem::take(&mut life.names);
        self.ended[rec.task_id as usize % ENDED] = Ended { task_id: rec.task_id, pid, tid, comm, names };
        // A wait for a lock that it held may end after it.
        ends_use(&mut self.by_tid, life.row.tid, rec.task_id, rec.hdr.end_ns);
        if life.row.tid == life.row.pid {
            self.mappings.forget(life.row.pid);
            self.leaders.remove(&life.row.pid);
        }
        self.aio.submitter_ended(rec.task_id);
        let pid = life.row.pid;
        if self.aio.has(pid) && self.tasks.values().all(|l| l.row.pid != pid) {
            self.aio_process_ended(pid)?;
        }
        // Even if other threads continue to use the table, its initial content is now known well enough.
        self.start.take(life.row.task_id).into_iter().try_for_each(|row| self.writer.fds.push(row))?;
        if left {
            life.row.left_ns = Some(at_ns);
        } else {
            life.row.exit_ns = Some(at_ns);
            life.row.exit_code = Some(rec.exit_code);
        }
        self.last_ns = self.last_ns.max(at_ns);
        self.writer.tasks.push(life.row)
    }
}

/// A task no longer has a thread id.
pub(super) fn ends_use(by_tid: &mut FxHashMap<i32, TidUse>, tid: i32, task_id: u32, at_ns: u64) {
    if let Some(used) = by_tid.get_mut(&tid).filter(|used| used.task_id == task_id) {
        used.to_ns = at_ns;
    }
}

impl Assembler {
    pub(super) fn wait(&mut self, rec: &rec_wait, kernel: &[u8], user: &[u8]) {
        self.task_met(rec.task_id, rec.op_start_ns);
        self.task_met(rec.waker_task_id, rec.wake_ns);
        let Some(waits) = &mut self.waits else { return };
        let addresses = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).filter_map(|b| Some(u64::from_ne_bytes(b.try_into().ok()?))).collect()
        };
        // The number may be one of the 32-bit entry. The operation itself gives the right name when it ends.
        let known = self.calls[0].get(usize::from(rec.nr)).cloned().flatten();
        let op = known.map_or("".into(), |k| k.name);
        let pid = self.tasks.get(&rec.task_id).map_or(0, |life| life.row.pid);
        self.counts.waits += 1;
        let owner = self.by_tid.get(&(rec.owner_tid as i32));
        let owner = owner.filter(|used| (used.from_ns..=used.to_ns).contains(&rec.off_ns)).map(|used| used.task_id);
        waits.take(rec, &addresses(kernel), &addresses(user), Of { op, pid, owner }, self.t0_ns);
    }

    /// Writes the waits of an operation that was written, or drops those of one that was filtered out.
    pub(super) fn waits_of(&mut self, waits: Vec<Wait>, written: bool) -> Result<()> {
        match &mut self.waits {
            Some(all) if !written => all.dropped += waits.len() as i64,
            _ => waits.into_iter().try_for_each(|row| self.writer.waits.push(row))?,
        }
        Ok(())
    }
}

const _: () = assert!(CLONE_THREAD == libc::CLONE_THREAD as i64);
