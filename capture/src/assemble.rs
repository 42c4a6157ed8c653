//! Records to rows: gives files, descriptions and tasks their ids, and hands rows to the reel's writer.
//! Records must come in order of their end times, which is what makes reused addresses and thread ids
//! unambiguous.

mod begin;
mod identity;
mod known;

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    path::Path,
};

use ioreel_bpf::types::{bio_flags, bio_how, call_kind, file_id, op_flags, rec_bio, rec_op, rec_passed, rec_rq};
use ioreel_traces::{
    Manifest, ReelWriter, Result, Text,
    manifest::Mount,
    rotate::Keep,
    rows::{Exec, File, Op, Task},
    text::Interner,
};

use rustc_hash::FxHashMap;

use crate::{
    aio::Aio,
    block::{self, Blocks},
    calls::{self, Call, Raw},
    changed::Changed,
    classify::classify,
    contents::Contents,
    fault,
    mappings::Mappings,
    sieve::Sieve,
    start::Start,
    uring::Uring,
    vfs::Below,
    waits::Waits,
    wire::{Record, Tail},
};

/// Paths shared: those that the calls of a moment name.
const INTERNED_PATHS: usize = 1 << 12;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FileKey {
    ino: u64,
    dev: u32,
    generation: u32,
}

impl From<file_id> for FileKey {
    fn from(id: file_id) -> Self {
        Self { ino: id.ino, dev: id.dev, generation: id.generation }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownFile {
    pub(crate) id: i64,
    described: bool,
    /// Pipes, sockets and terminals have no position.
    pub(crate) seekable: bool,
    pub(crate) sb_dev: i64,
    /// Known to be one, though nothing more is.
    regular: bool,
    /// The same of block devices.
    block: bool,
    /// Where a bio was seen that tells of it; 0: none was.
    disk: i64,
    /// When the call that made it ended; 0: unknown. See [`Assembler::made`].
    made_ns: u64,
}

/// An open file description.
#[derive(Clone, Debug)]
struct Description {
    file: FileKey,
    id: i64,
    /// See [`Moved`].
    moved: Vec<Range<i64>>,
}

/// Ranges remembered per description: more than there can be waiting calls that matter.
const REMEMBERED_RANGES: usize = 8;

impl Description {
    fn note(&mut self, op: &Op, pos: (i64, i64)) {
        match (&*op.op, op.offset_bytes, op.ret) {
            ("lseek", ..) => self.moved.clear(),
            (_, Some(at), Some(n)) if n > 0 && pos.0 != pos.1 => {
                if self.moved.len() == REMEMBERED_RANGES {
                    self.moved.remove(0);
                }
                self.moved.push(at..at + n);
            }
            _ => {}
        }
    }
}

#[derive(Clone, Debug)]
struct Life {
    row: Task,
    /// The adopted task whose descriptor table it uses; none once it has one from a fork.
    table: Option<i64>,
}

/// Rows made, by class, for the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Operation rows of source `syscall`.
    pub(crate) ops: i64,
    /// Request rows.
    pub(crate) block: i64,
    /// Bio rows.
    pub(crate) bio: i64,
    /// Of both, those whose end was not seen.
    pub(crate) endless_requests: i64,
    pub(crate) endless_bios: i64,
    /// File records.
    pub(crate) files: i64,
    /// Fork, exec and exit records.
    pub(crate) tasks: i64,
    /// Results of asynchronous I/O.
    pub(crate) aio_results: i64,
    /// Waits, those of fast operations too.
    pub(crate) waits: i64,
    /// Rows of the page cache.
    pub(crate) cache: i64,
    /// Names, rings and overflows that belong to requests to io_uring.
    pub(crate) uring_facts: i64,
    /// Records that could not be understood.
    pub(crate) strange: i64,
    /// Calls on memory that is no file's as far as is known.
    pub(crate) unplaced: i64,
}

/// What is known of a call's number.
#[derive(Clone)]
struct Known {
    call: &'static Call,
    name: Text,
    /// Makes 64-bit arguments of i386's.
    fix: fn(&mut Raw<'_>),
}

/// Turns records into rows of a reel.
pub(crate) struct Assembler {
    /// Where rows go.
    pub(crate) writer: ReelWriter,
    /// Monotonic time of the reel's start.
    pub(crate) t0_ns: i64,
    /// Rows so far.
    pub(crate) counts: Counts,
    /// File systems met: `sb_dev` of every described file.
    pub(crate) touched: BTreeSet<i64>,
    /// File systems changed.
    pub(crate) changed: Changed,
    /// Disks met in the block tables.
    pub(crate) disks: BTreeSet<i64>,
    /// The last of these.
    last_disk: i64,
    /// Rows of the recorder's own doing (source `tool`).
    pub(crate) tool_rows: i64,
    /// End of the last operation or task, ns since the reel's start.
    pub(crate) last_ns: i64,
    /// An operation on a file or a name that takes as long is told by `slow_seen`.
    pub(crate) slow_ns: i64,
    /// Such a one has been met.
    pub(crate) slow_seen: bool,
    /// Requests of Linux AIO.
    pub(crate) aio: Aio,
    /// Contents of writes, when they are wanted.
    pub(crate) contents: Option<Contents>,
    /// Leaves operations out, where any are.
    pub(crate) sieve: Option<Sieve>,
    /// By number: of the 64-bit entry, of the 32-bit one.
    calls: [Vec<Option<Known>>; 2],
    syscall: Text,
    pub(crate) complete: Text,
    pub(crate) in_flight: Text,
    midway: Text,
    paths: Interner,
    files: known::KnownFiles,
    next_file: i64,
    /// As they were at the start.
    mounts: Vec<Mount>,
    ofds: FxHashMap<u64, Description>,
    next_ofd: i64,
    tasks: FxHashMap<u32, Life>,
    /// Every task that has or had a row, a bit each.
    met: Vec<u64>,
    mappings: Mappings,
    start: Start,
    /// Set when waits are recorded.
    pub(crate) waits: Option<Waits>,
    /// Adopted leaders alive, by process id.
    leaders: HashMap<i32, u32>,
    /// First task met with each descriptor table, during a look.
    sharing: HashMap<u64, begin::Shares>,
    /// Rows of the block layer.
    pub(crate) blocks: Blocks,
    /// Requests to io_uring.
    pub(crate) uring: Uring,
    /// What was part of operations that have not ended.
    pub(crate) below: Below,
    /// Words of rows about mapped files.
    pub(crate) faults: fault::Words,
}

impl std::fmt::Debug for Assembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembler").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Assembler {
    /// An assembler for a recording that begins at monotonic time `t0_ns`. `mounts`: as they
    /// are now.
    pub(crate) fn new(writer: ReelWriter, t0_ns: i64, mounts: Vec<Mount>) -> Self {
        let mut calls = [vec![None; 512], vec![None; 512]];
        for (nr, call) in calls::numbered() {
            calls[0][nr] = Some(Known { call, name: Text::word(call.name), fix: |_| () });
        }
        for c in calls::compat() {
            calls[1][c.nr] = c.call.map(|call| Known { call, name: Text::word(call.name), fix: c.fix });
        }
        Self {
            writer,
            t0_ns,
            counts: Counts::default(),
            touched: BTreeSet::new(),
            changed: Changed::new(mounts.clone()),
            disks: BTreeSet::new(),
            last_disk: -1,
            tool_rows: 0,
            slow_ns: i64::MAX,
            slow_seen: false,
            last_ns: 0,
            aio: Aio::default(),
            contents: None,
            sieve: None,
            calls,
            syscall: Text::word("syscall"),
            complete: Text::word("complete"),
            in_flight: Text::word("in_flight_at_end"),
            midway: Text::word("in_flight_at_start"),
            paths: Interner::new(INTERNED_PATHS),
            files: known::KnownFiles::default(),
            next_file: 0,
            mounts,
            ofds: FxHashMap::default(),
            next_ofd: 0,
            tasks: FxHashMap::default(),
            met: Vec::new(),
            mappings: Mappings::default(),
            start: Start::default(),
            waits: None,
            leaders: HashMap::new(),
            sharing: HashMap::new(),
            blocks: Blocks::default(),
            uring: Uring::default(),
            below: Below::default(),
            faults: fault::Words::default(),
        }
    }

    /// ns since the reel's start.
    pub(crate) fn since(&self, monotonic_ns: u64) -> i64 {
        monotonic_ns as i64 - self.t0_ns
    }

    /// Takes one record. `in_flight`: it comes from the end-of-recording snapshot of unfinished operations.
    pub(crate) fn take(&mut self, record: Record<'_>, in_flight: bool) -> Result<()> {
        match record {
            Record::Op(op, tail) => self.op(&op, tail.as_ref(), in_flight),
            Record::File(rec, path, fs_path) => {
                self.counts.files += 1;
                self.file(&rec, path, fs_path)
            }
            Record::Task(rec) => {
                self.counts.tasks += i64::from(rec.listed == 0);
                self.task_began(&rec);
                Ok(())
            }
            Record::Exec(rec, path) => {
                self.counts.tasks += 1;
                let comm = block::comm(&rec.comm);
                self.task_met(rec.task_id, rec.hdr.end_ns);
                if let Some(life) = self.tasks.get_mut(&rec.task_id) {
                    life.row.tid = rec.tid as i32;
                    life.row.comm = comm.clone();
                    self.mappings.forget(life.row.pid);
                    if let Some(waits) = &mut self.waits {
                        waits.forget(life.row.pid);
                    }
                }
                let exec_ns = self.since(rec.hdr.end_ns);
                self.writer.execs.push(Exec {
                    exec_ns,
                    task_id: i64::from(rec.task_id),
                    path: self.paths.get(path),
                    comm,
                    uid: Some(rec.uid as i32),
                    gid: Some(rec.gid as i32),
                })
            }
            Record::Exit(rec) => {
                self.counts.tasks += i64::from(rec.listed == 0);
                self.task_ended(&rec, false)
            }
            Record::Left(rec) => {
                self.counts.tasks += 1;
                self.task_ended(&rec, true)
            }
            Record::Passed(rec) => self.passed(&rec),
            Record::Aio(rec) => self.aio_request(&rec),
            Record::AioEnd(rec) => self.aio_result(&rec),
            Record::Bio(rec) => self.bio(&rec),
            Record::Rq(rec) => self.rq(&rec),
            Record::Fault(rec) => self.fault(&rec),
            Record::Cache(rec) => self.cache(&rec),
            Record::Vfs(rec) => self.vfs(&rec),
            Record::Content(rec, bytes) => {
                self.content(&rec, bytes);
                Ok(())
            }
            Record::Uring(rec) => self.uring_request(&rec, in_flight),
            Record::UringPaths(rec, path, path2) => {
                self.counts.uring_facts += 1;
                self.uring.names(&rec, path, path2, &mut self.paths);
                Ok(())
            }
            Record::UringRing(rec) => {
                self.counts.uring_facts += 1;
                self.uring_ring(&rec);
                Ok(())
            }
            Record::UringOverflow(rec) => {
                self.counts.uring_facts += 1;
                self.uring.overflowed(&rec);
                Ok(())
            }
            Record::Fd(rec, path, fs_path) => self.descriptor(&rec, path, fs_path),
            Record::Place(rec, cwd, root) => {
                self.place(&rec, cwd, root);
                Ok(())
            }
            Record::Map(rec, path, fs_path) => self.mapping(&rec, path, fs_path),
            Record::Wait(rec, kernel, user) => {
                self.wait(&rec, kernel, user);
                Ok(())
            }
            Record::Looked(hdr) => {
                self.looked(self.since(hdr.end_ns));
                Ok(())
            }
        }
    }

    pub(crate) fn op(&mut self, rec: &rec_op, tail: Option<&Tail<'_>>, in_flight: bool) -> Result<()> {
        let flags = u32::from(rec.flags);
        let has = |bit: op_flags| flags & bit.0 != 0;
        let table = &self.calls[usize::from(has(op_flags::OPF_COMPAT))];
        let Some(Known { call, name, fix }) = table.get(usize::from(rec.nr)).and_then(Clone::clone) else {
            self.counts.strange += 1;
            return Ok(());
        };
        let (pid, tid) = self.tasks.get(&rec.task_id).map_or((0, 0), |life| (life.row.pid, life.row.tid));
        let busy = has(op_flags::OPF_MAP_BUSY);
        let mapped = if busy { self.mappings.find(pid, rec.args[0] as i64) } else { None };
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
            ..Op::default()
        };
        if let Some(t) = tail {
            let path = |this: &mut Self, which: u8, fault: op_flags, bytes: &[u8]| {
                (arg(which).is_some_and(|a| a != 0) && !has(fault)).then(|| this.paths.get(bytes))
            };
            op.path = path(self, call.desc.path, op_flags::OPF_PATH_FAULT, t.path);
            op.path2 = path(self, call.desc.path2, op_flags::OPF_PATH2_FAULT, t.path2);
        }
        let moved = self.ofds.get(&rec.ofd).filter(|d| d.file == rec.file.into());
        let moved2 = fixed.and_then(|f| self.ofds.get(&f.ofd2).filter(|d| d.file == f.file2.into()));
        fn ranges(d: Option<&Description>) -> &[Range<i64>] {
            d.map_or(&[], |d| &d.moved)
        }
        (call.fill)(&Raw { moved: ranges(moved), moved2: ranges(moved2), ..raw }, &mut op);

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
                op.ofd = Some(if opened { self.new_ofd(rec.ofd, rec.file) } else { self.ofd_of(rec.ofd, rec.file) });
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
                op.ofd2 = Some(self.ofd_of(f.ofd2, f.file2));
            }
            file_systems[known] = file.sb_dev;
            known += 1;
        }
        if raw.ret >= 0 && !in_flight {
            if kind == call_kind::CALL_MMAP.0 && has(op_flags::OPF_FILE) {
                self.mappings.map(pid, raw.ret, raw.args[1], rec.file);
            } else if kind == call_kind::CALL_VMA.0 && op.op == "munmap" {
                self.mappings.unmap(pid, raw.args[0], raw.args[1]);
            } else if kind == call_kind::CALL_VMA.0 && op.op == "mremap" {
                self.mappings.unmap(pid, raw.args[0], raw.args[1]);
                self.mappings.map(pid, raw.ret, raw.args[2], mapped.unwrap_or(rec.file));
            }
        }
        if raw.ret >= 0 {
            // An open changes something when it creates or truncates.
            let open = opens(call);
            let modifies = call.modifies
                && (!open || op.aux == Some(1) || op.flags.is_some_and(|f| f as i32 & libc::O_TRUNC != 0));
            self.changed.note(&op, modifies, &file_systems[..known]);
        }
        if op.ofd.is_some()
            && let Some(d) = self.ofds.get_mut(&rec.ofd)
        {
            d.note(&op, raw.pos);
        }
        if !self.start.is_settled() {
            self.note_start(rec, &op, call, &raw, has(op_flags::OPF_MIDWAY))?;
        }
        // What waits for a pipe, a socket or a terminal waits for somebody, not for a file system.
        self.slow_seen |=
            op.dur_ns >= self.slow_ns && (op.path.is_some() || op.file.is_some() && self.file_of(rec.file).seekable);
        self.waits_of(&op, rec.task_id, in_flight)?;
        if call.name.starts_with("io_") && !call.name.starts_with("io_uring") {
            self.aio_call(&raw, &mut op)?;
        }
        let other = has(op_flags::OPF_OTHER_THREAD);
        let content = has(op_flags::OPF_CONTENT).then(|| (rec.task_id, rec.hdr.end_ns - rec.dur_ns));
        self.write_with_content(op, content, other, has(op_flags::OPF_IO))
    }

    /// Writes an operation, unless it is left out; whether it was written. `other`: by a thread that was not asked for;
    /// `io`: bios were queued during it.
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
        // The operation itself is the last.
        let own = rows.pop();
        rows.into_iter().try_for_each(|row| self.writer.ops.push(row))?;
        match own {
            Some(op) if io => self.writer.push_op_with_io(op).map(|()| true),
            Some(op) => self.writer.ops.push(op).map(|()| true),
            None => Ok(false),
        }
    }

    /// A row of another source than the calls.
    pub(crate) fn push(&mut self, op: Op) -> Result<()> {
        self.write(op, false, false).map(drop)
    }

    /// A row with what all rows of a task have.
    pub(crate) fn row_of(&self, task_id: u32, cpu: u16, op: &str, source: &str) -> Op {
        let (pid, tid) = self.tasks.get(&task_id).map_or((0, 0), |life| (life.row.pid, life.row.tid));
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

    /// A descriptor that a message brought: like an open, but of a description that may be known.
    fn passed(&mut self, rec: &rec_passed) -> Result<()> {
        let mut op = self.row_of(rec.task_id, rec.hdr.cpu, "scm_rights", "scm");
        op.start_ns = self.since(rec.hdr.end_ns) - rec.dur_ns as i64;
        op.dur_ns = rec.dur_ns as i64;
        op.fd = Some(rec.socket);
        op.ret = Some(rec.fd.into());
        op.flags = Some(if rec.cloexec != 0 { libc::O_CLOEXEC.into() } else { 0 });
        if u32::from(rec.flags) & op_flags::OPF_FILE.0 != 0 {
            op.file = Some(self.file_of(rec.file).id);
            op.ofd = Some(self.ofd_of(rec.ofd, rec.file));
        }
        self.push(op)
    }

    /// The file, which is a regular one that may never be opened, on this file system.
    pub(crate) fn file_met(&mut self, id: file_id, sb_dev: u32) -> KnownFile {
        let mut known = self.file_of(id);
        if !known.described && !known.regular && sb_dev != 0 {
            (known.regular, known.sb_dev) = (true, i64::from(sb_dev));
            self.touched.insert(known.sb_dev);
            self.remember(id.into(), known);
        }
        known
    }

    pub(crate) fn new_ofd(&mut self, address: u64, file: file_id) -> i64 {
        self.next_ofd += 1;
        let gone = self.ofds.insert(address, Description { file: file.into(), id: self.next_ofd, moved: Vec::new() });
        if let (Some(sieve), Some(gone)) = (&mut self.sieve, gone) {
            sieve.forget(gone.id);
        }
        self.next_ofd
    }

    /// The description at this address; a new one when the address now belongs to another file.
    pub(crate) fn ofd_of(&mut self, address: u64, file: file_id) -> i64 {
        match self.ofds.get(&address) {
            Some(d) if d.file == file.into() => d.id,
            _ => self.new_ofd(address, file),
        }
    }

    /// Process and thread id of a task.
    pub(crate) fn thread(&self, task_id: u32) -> (i32, i32) {
        self.tasks.get(&task_id).map_or((0, 0), |life| (life.row.pid, life.row.tid))
    }

    fn disk_met(&mut self, dev: i64) {
        if self.last_disk != dev {
            self.disks.insert(dev);
            self.last_disk = dev;
        }
    }

    pub(crate) fn rq(&mut self, rec: &rec_rq) -> Result<()> {
        self.counts.block += 1;
        self.counts.endless_requests += i64::from(rec.no_end != 0);
        self.disk_met(i64::from(rec.dev));
        let row = self.blocks.request(rec, self.t0_ns);
        self.writer.block.push(row)
    }

    pub(crate) fn bio(&mut self, rec: &rec_bio) -> Result<()> {
        self.counts.bio += 1;
        self.counts.endless_bios += i64::from(u32::from(rec.flags) & bio_flags::BIOF_NO_END.0 != 0);
        self.disk_met(i64::from(rec.dev));
        self.task_met(rec.task_id, rec.queue_ns);
        let told = classify(rec, &mut self.blocks.layouts);
        let comm = self.tasks.get(&rec.task_id).map(|life| life.row.comm.clone());
        let mut row = self.blocks.bio(rec, told, comm, self.t0_ns);
        if told.of_file && rec.file.ino != 0 {
            let known = self.file_of(rec.file);
            if !known.described && known.disk == 0 {
                let block = u32::from(rec.how) == bio_how::BIO_BDEV.0;
                let sb_dev = if known.sb_dev == 0 { i64::from(rec.sb_dev) } else { known.sb_dev };
                self.remember(rec.file.into(), KnownFile { sb_dev, block, regular: !block, disk: row.dev, ..known });
            }
            row.file = Some(known.id);
            row.file_offset_bytes = (rec.file_offset_bytes >= 0).then_some(rec.file_offset_bytes);
        }
        let cause = (rec.cause_ns != 0).then(|| (i64::from(rec.task_id), self.since(rec.cause_ns)));
        self.writer.push_bio(row, cause)
    }

    /// Drops what a rotating reel does not keep.
    pub(crate) fn rotate(&mut self, keep: Keep) -> Result<()> {
        let living: Vec<Task> = self.tasks.values().map(|l| l.row.clone()).collect();
        let before = self.writer.contents.rotated();
        self.writer.rotate(keep, self.last_ns, &living)?;
        if let Some(contents) = self.contents.as_mut().filter(|_| self.writer.contents.rotated() != before) {
            contents.rotated();
        }
        Ok(())
    }

    /// Closes segments that have waited long enough.
    pub(crate) fn flush_if_old(&mut self) -> Result<()> {
        let tasks = &self.tasks;
        self.writer.flush_if_old(|| tasks.values().map(|l| l.row.clone()).collect())
    }

    /// Writes the rows that were waiting for an end: requests, living tasks, files never described.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if let Some(waits) = &mut self.waits {
            let rest = waits.rest();
            rest.into_iter().try_for_each(|row| self.writer.waits.push(row))?;
        }
        self.start.rest().into_iter().try_for_each(|row| self.writer.fds.push(row))?;
        for op in self.aio.take_unknown() {
            self.push(op)?;
        }
        self.rest_below()?;
        let mut lives: Vec<Life> = std::mem::take(&mut self.tasks).into_values().collect();
        lives.sort_by_key(|l| l.row.task_id);
        for life in lives {
            self.writer.tasks.push(life.row)?;
        }
        self.undescribed().into_iter().try_for_each(|file| self.writer.files.push(file))
    }

    /// Makes another reel of what the writer holds, with what rows refer to and the writer does not have yet.
    pub(crate) fn copy_to(&mut self, path: &Path, manifest: &Manifest) -> Result<()> {
        let mut living: Vec<Task> = self.tasks.values().map(|l| l.row.clone()).collect();
        living.sort_by_key(|t| t.task_id);
        let files = self.undescribed();
        self.writer.copy_to(path, manifest, living, files)
    }

    /// Rows of files that no record has described so far.
    fn undescribed(&self) -> Vec<File> {
        let unknown = self.files.undescribed();
        unknown.into_iter().map(|(key, known)| self.undescribed_file(key, known)).collect()
    }
}

/// Whether the result is a new open file description.
fn opens(call: &Call) -> bool {
    let kind = u32::from(call.desc.kind);
    kind == call_kind::CALL_OPEN.0 || kind == call_kind::CALL_HANDLE_OPEN.0
}

/// The word of the `kind` column for a mode with type bits.
pub(crate) fn kind_of(mode: u32) -> &'static str {
    match mode & libc::S_IFMT {
        libc::S_IFREG => "regular",
        libc::S_IFDIR => "directory",
        libc::S_IFLNK => "symlink",
        libc::S_IFIFO => "fifo",
        libc::S_IFSOCK => "socket",
        libc::S_IFCHR => "char",
        libc::S_IFBLK => "block",
        _ => "other",
    }
}
