//! Turns records into rows: assigns ids to files, open file descriptions and tasks, and passes rows to the writer of
//! the reel.
//!
//! In: records ordered by end time. In this order, reused addresses and thread ids are unambiguous. Out: rows, and
//! counts of rows for the ledger. May use `host`, `calls`, `decode` and `probes`.

mod aio;
mod bio;
pub(crate) mod block;
mod cache;
mod changed_fs;
pub(crate) mod classify;
mod commits;
pub mod contents;
pub(crate) mod context_filter;
pub(crate) mod fault;
mod files;
mod initial_fds;
mod known_file;
mod mappings;
mod names;
mod ofds;
mod op;
mod segments;
mod spill_map;
mod tasks;
pub(crate) mod uring;
pub(crate) mod vfs;
mod wait_reasons;
pub(crate) mod waits;

use std::collections::{BTreeSet, HashMap};

use ioreel_bpf::types::file_id;
use ioreel_traces::{
    ReelWriter, Result, Text,
    manifest::Mount,
    rows::{Exec, Task},
    text::Interner,
};

use ofds::Ofds;
use rustc_hash::FxHashMap;

use crate::{
    assemble::{
        aio::Aio, block::Blocks, changed_fs::Changed, contents::Contents, context_filter::Sieve, initial_fds::Start,
        mappings::Mappings, names::Names, spill_map::Met, uring::Uring, vfs::Below, waits::Waits,
    },
    calls::{self, Call, Raw},
    decode::wire::Record,
};

/// Number of path strings kept for sharing between rows.
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
    /// False for pipes, sockets and terminals, which have no position.
    pub(crate) seekable: bool,
    pub(crate) sb_dev: i64,
    /// The kind of the file as far as block requests and mappings tell, until it is described.
    guess: Guess,
    /// Disk of a bio that carried the file's data; 0: none seen.
    disk: i64,
    /// When the call that created it returned; 0: unknown. See [`Assembler::made`].
    made_ns: u64,
}

/// Kind of a file that only block requests and mappings have mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Guess {
    Other,
    Regular,
    Directory,
    Block,
}

#[derive(Clone, Debug)]
struct Life {
    row: Task,
    /// The adopted task whose descriptor table it uses; `None` after it got its own by a fork.
    table: Option<i64>,
    names: Names,
}

impl Life {
    /// The thread has this name from `at_ns` (monotonic) on.
    fn named(&mut self, comm: Text, at_ns: u64) {
        if comm != self.row.comm {
            let before = std::mem::replace(&mut self.row.comm, comm);
            // A thread whose start was lost had a name that nobody knows.
            if !before.is_empty() {
                self.names.replaced(before, at_ns);
            }
        }
    }
}

/// Number of rows per class, for the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Operation rows of source `syscall`.
    pub(crate) ops: i64,
    /// Request rows.
    pub(crate) block: i64,
    /// Bio rows.
    pub(crate) bio: i64,
    /// Requests and bios without an end.
    pub(crate) endless_requests: i64,
    pub(crate) endless_bios: i64,
    /// File records.
    pub(crate) files: i64,
    /// Fork, exec and exit records.
    pub(crate) tasks: i64,
    /// Results of Linux AIO requests.
    pub(crate) aio_results: i64,
    /// Waits, including those of fast operations.
    pub(crate) waits: i64,
    /// Page cache rows.
    pub(crate) cache: i64,
    /// Commits of journals and logs, and those of file systems that recorded tasks do not use.
    pub(crate) commits: i64,
    pub(crate) commits_elsewhere: i64,
    /// Paths, new rings and overflows of io_uring.
    pub(crate) uring_facts: i64,
    /// Records that could not be interpreted.
    pub(crate) strange: i64,
    /// Calls on memory that no known file is mapped to.
    pub(crate) unplaced: i64,
}

/// The recorded call for a number.
#[derive(Clone)]
struct Known {
    call: &'static Call,
    name: Text,
    /// Converts i386's arguments to those of the 64-bit call.
    fix: fn(&mut Raw<'_>),
}

/// Tasks remembered after their end, indexed by their id modulo this number.
const ENDED: usize = 1024;

/// A recorded task that has or had a thread id.
#[derive(Clone, Copy)]
struct TidUse {
    task_id: u32,
    from_ns: u64,
    /// `u64::MAX` while it has it.
    to_ns: u64,
}

/// A task that has ended.
#[derive(Clone, Default)]
struct Ended {
    task_id: u32,
    pid: i32,
    tid: i32,
    comm: Text,
    names: Names,
}

/// Turns records into rows of a reel. See the module.
pub(crate) struct Assembler {
    /// Receives the rows.
    pub(crate) writer: ReelWriter,
    /// Start of the reel on the monotonic clock.
    pub(crate) t0_ns: i64,
    /// Rows so far, by class.
    pub(crate) counts: Counts,
    /// `sb_dev` of every described file.
    pub(crate) touched: BTreeSet<i64>,
    /// File systems that were modified.
    pub(crate) changed: Changed,
    /// Disks that have requests or bios.
    pub(crate) disks: BTreeSet<i64>,
    /// The disk of the last request or bio.
    last_disk: i64,
    /// Rows of the recorder's own operations (source `tool`).
    pub(crate) tool_rows: i64,
    /// End of the last operation or task, ns since the start of the reel.
    pub(crate) last_ns: i64,
    /// Operations are no longer recorded and the disks are settling. Tasks that start or end now do not belong to the
    /// reel.
    pub(crate) is_over: bool,
    /// Tasks created since then. They get a row only if a row of the disks refers to them.
    late: HashMap<u32, Task>,
    /// An operation on a file or path that takes at least this long sets `slow_seen`.
    pub(crate) slow_ns: i64,
    /// Such an operation has been seen.
    pub(crate) slow_seen: bool,
    /// Linux AIO requests.
    pub(crate) aio: Aio,
    /// Contents of writes, if recorded.
    pub(crate) contents: Option<Contents>,
    /// The filter, if operations are filtered.
    pub(crate) sieve: Option<Sieve>,
    /// By number: calls of the 64-bit entry and of the 32-bit entry.
    calls: [Vec<Option<Known>>; 2],
    syscall: Text,
    pub(crate) complete: Text,
    pub(crate) in_flight: Text,
    midway: Text,
    paths: Interner,
    files: Met<FileKey, KnownFile>,
    next_file: i64,
    /// Mounts at the start.
    mounts: Vec<Mount>,
    ofds: Ofds,
    tasks: FxHashMap<u32, Life>,
    /// Process and thread ids of some ended tasks, whose requests may end after them.
    ended: Vec<Ended>,
    /// Every task that has or had a row, one bit each.
    met: Vec<u64>,
    mappings: Mappings,
    start: Start,
    /// Present if waits are recorded.
    pub(crate) waits: Option<Waits>,
    /// The last recorded task by thread id. At most one entry per thread id.
    by_tid: FxHashMap<i32, TidUse>,
    /// Adopted thread group leaders that are alive, by process id.
    leaders: HashMap<i32, u32>,
    /// First task seen with each descriptor table during a snapshot.
    sharing: HashMap<u64, tasks::Shares>,
    /// Descriptor tables of adopted processes, by the kernel address of their `fs_struct`.
    standing: HashMap<u64, u64>,
    /// Adopted processes that shared their working directory with others but not their descriptor table.
    pub(crate) stood_together: i64,
    /// State for rows of the block layer.
    pub(crate) blocks: Blocks,
    /// State of io_uring requests.
    pub(crate) uring: Uring,
    /// Parts of operations that have not ended.
    pub(crate) below: Below,
    /// Words for rows about mapped files.
    pub(crate) faults: fault::Words,
}

impl std::fmt::Debug for Assembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembler").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Assembler {
    /// Creates the assembler of a recording that starts at monotonic time `t0_ns`, with the current mounts.
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
            is_over: false,
            late: HashMap::new(),
            aio: Aio::default(),
            contents: None,
            sieve: None,
            calls,
            syscall: Text::word("syscall"),
            complete: Text::word("complete"),
            in_flight: Text::word("in_flight_at_end"),
            midway: Text::word("in_flight_at_start"),
            paths: Interner::new(INTERNED_PATHS),
            files: Met::default(),
            next_file: 0,
            mounts,
            ofds: Ofds::default(),
            tasks: FxHashMap::default(),
            ended: vec![Ended::default(); ENDED],
            met: Vec::new(),
            mappings: Mappings::default(),
            start: Start::default(),
            waits: None,
            by_tid: FxHashMap::default(),
            leaders: HashMap::new(),
            sharing: HashMap::new(),
            standing: HashMap::new(),
            stood_together: 0,
            blocks: Blocks::default(),
            uring: Uring::default(),
            below: Below::default(),
            faults: fault::Words::default(),
        }
    }

    /// Converts a monotonic time to ns since the start of the reel.
    pub(crate) fn since(&self, monotonic_ns: u64) -> i64 {
        monotonic_ns as i64 - self.t0_ns
    }

    /// Processes one record. `in_flight`: it comes from the list of unfinished operations at the end.
    ///
    /// Long because it has an arm for each kind of record.
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
                if self.is_over {
                    return Ok(());
                }
                let comm = block::comm(&rec.comm);
                self.task_met(rec.task_id, rec.hdr.end_ns);
                if let Some(life) = self.tasks.get_mut(&rec.task_id) {
                    let old = std::mem::replace(&mut life.row.tid, rec.tid as i32);
                    if old != life.row.tid {
                        tasks::ends_use(&mut self.by_tid, old, rec.task_id, rec.hdr.end_ns);
                        let used = TidUse { task_id: rec.task_id, from_ns: rec.hdr.end_ns, to_ns: u64::MAX };
                        self.by_tid.insert(life.row.tid, used);
                    }
                    life.named(comm.clone(), rec.hdr.end_ns);
                    let pid = life.row.pid;
                    self.mappings.forget(pid);
                    if let Some(waits) = &mut self.waits {
                        waits.forget(pid);
                    }
                    self.aio_process_ended(pid)?;
                }
                let exec_ns = self.since(rec.hdr.end_ns);
                self.writer.execs.push(Exec {
                    exec_ns,
                    task_id: i64::from(rec.task_id),
                    path: self.paths.get(path),
                    comm,
                    uid: Some(rec.uid as i32),
                    gid: Some(rec.gid as i32),
                    capabilities: (rec.in_user_ns != 0).then_some(rec.capabilities as i64),
                })
            }
            Record::Named(rec) => {
                self.counts.tasks += 1;
                self.task_named(&rec);
                Ok(())
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
            Record::Fault(rec) => self.fault(&rec),
            Record::Cache(rec) => self.cache(&rec),
            Record::Vfs(rec) => self.vfs(&rec),
            Record::Commit(rec) => self.commit(&rec),
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

    /// Process id and thread id of a task; zeros if unknown.
    pub(crate) fn thread(&self, task_id: u32) -> (i32, i32) {
        let ended = &self.ended[task_id as usize % ENDED];
        let gone = if ended.task_id == task_id { (ended.pid, ended.tid) } else { (0, 0) };
        self.tasks.get(&task_id).map_or(gone, |life| (life.row.pid, life.row.tid))
    }

    /// Name of a recorded task at a monotonic time, also of one that has ended: its requests may end after it.
    pub(crate) fn comm_of(&self, task_id: u32, at_ns: u64) -> Option<Text> {
        let ended = &self.ended[task_id as usize % ENDED];
        let gone = (ended.task_id == task_id && task_id != 0).then_some((&ended.names, &ended.comm));
        let living = self.tasks.get(&task_id).map(|life| (&life.names, &life.row.comm));
        living.or(gone).map(|(names, last)| names.at(at_ns).unwrap_or(last).clone())
    }
}

/// Value of the column `kind` for a mode with its type bits.
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
