//! Decodes a reel into compact records ([`Rec`]) with paths as bytes, and keeps only those in memory that have not
//! taken effect.

use std::collections::{BTreeMap, HashMap};

use ioreel_traces::{
    Reel, Text,
    rows::{self, Op},
    text::to_bytes,
};

use crate::{
    Call, ReplayError, Skip,
    base::{budget::Budget, privileges::SET_ID_BITS},
    reel::{
        call::closes_on_exec,
        equivalents,
        feed::{Feed, FileFeed, Waiting, all, files_of, receipts, size_bytes, sorted},
        recorder::Recorder,
        residence::Residence,
        roots::Roots,
        submission::{Phase, Via, is_about_rings},
        texts::content_key,
        user_ids::{self, IdsOf},
    },
};

pub use crate::reel::{
    feed::FileInfo,
    texts::{Paths, Texts},
};

/// No descriptor.
pub const NO_FD: i32 = i32::MIN;
/// No path, slot or task.
pub const NONE: u32 = u32::MAX;
/// In column `aux` of a mknod: the device was not recorded.
pub(crate) const UNKNOWN_DEVICE: i64 = -1;
/// No id or no result.
pub const NO_ID: i64 = i64::MIN;

/// One recorded operation: the columns of `ops` that a replay uses.
#[derive(Clone, Debug)]
pub struct Rec {
    /// The operation.
    pub call: Call,
    /// The recording stopped before it returned.
    pub in_flight: bool,
    /// Index of its thread in [`Input::tasks`].
    pub task: u32,
    /// Its row in `ops`, counted over all segments.
    pub row: u32,
    /// Entry, ns of the reel.
    pub start_ns: i64,
    /// Return, ns of the reel.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
    /// Descriptor, or [`NO_FD`]; likewise the three below.
    pub fd: i32,
    /// Second descriptor.
    pub fd2: i32,
    /// Directory that `path` starts from.
    pub dirfd: i32,
    /// Directory that `path2` starts from.
    pub dirfd2: i32,
    /// Column `mode`, 0 if null.
    pub mode: i32,
    /// Index in [`Paths`], or [`NONE`].
    pub path: u32,
    /// Likewise.
    pub path2: u32,
    /// Open file description, or [`NO_ID`].
    pub ofd: i64,
    /// File, or [`NO_ID`].
    pub file: i64,
    /// Second file.
    pub file2: i64,
    /// Position, or [`NO_ID`].
    pub offset_bytes: i64,
    /// Position in the second file.
    pub offset2_bytes: i64,
    /// Column `len_bytes`, 0 if null; likewise the three below.
    pub len_bytes: i64,
    /// Column `flags`.
    pub flags: i64,
    /// Column `aux`.
    pub aux: i64,
    /// Column `aux2`.
    pub aux2: i64,
    /// Whose ids a change of owner or user names.
    pub ids: IdsOf,
    /// Name of an extended attribute: index in [`Paths`], or [`NONE`].
    pub name: u32,
    /// Its value: likewise.
    pub value: u32,
    /// For a write: first 64 bits of the hash of the data, or 0.
    pub content: u64,
    /// For a write: how much smaller compression made the data, in thousandths, or -1.
    pub saved_permille: i16,
    /// How it reached the kernel.
    pub via: Via,
    /// The event of the operation that this record stands for.
    pub phase: Phase,
    /// For a request: its ring or AIO context, or [`NO_ID`].
    pub ring: i64,
    /// For an io_uring request: column `sqe_flags`.
    pub sqe_flags: i32,
    /// Its result is a byte count on a regular file or symbolic link, which the replay must reproduce.
    pub regular: bool,
    /// Uses a descriptor for direct I/O, which a file system refuses if its alignment is not met.
    pub direct: bool,
    /// A call that a replay does not know, and that changes replayed files or where paths lead.
    pub changes_unknown: bool,
    /// Compare only whether the byte count is 0, because files are scaled.
    pub loose: bool,
    /// Its results fit either order with an overlapping operation: a different result in the replay is not wrong.
    pub raced: bool,
    /// Operations in flight at its entry, itself included; 0 if it does not count as load (pipes, devices, …).
    pub together: u32,
    /// A request that starts only after an earlier one has ended. What it refers to may be created until then.
    pub follows: bool,
    /// Number of operations that had taken effect at its entry.
    pub ended_before: u32,
    /// Sort key of the issue order at `--pace load`. In a submission that is not planned yet: end of the request.
    pub turn_ns: i64,
}

impl Rec {
    /// Whether it removes, or tried to remove, a directory.
    pub(crate) fn removes_directory(&self) -> bool {
        self.call == Call::Rmdir || self.call == Call::Unlinkat && self.flags as i32 & libc::AT_REMOVEDIR != 0
    }

    /// Whether it, as a write, appends. `append_only`: its descriptor is open for appending. Flags of the write count first.
    pub(crate) fn appends(&self, append_only: bool) -> bool {
        const RWF_NOAPPEND: i64 = 0x20;
        self.flags & RWF_NOAPPEND == 0 && (append_only || self.flags & i64::from(libc::RWF_APPEND) != 0)
    }

    /// Whether it wrote or copied nothing. Such a call does not extend the file, even at a position beyond its end.
    pub(crate) fn moved_nothing(&self) -> bool {
        self.ret == 0 && (self.call.writes() || self.call.copies())
    }

    /// Whether it found ranges of two files equal, which share their data since.
    pub(crate) fn shares_equal(&self) -> bool {
        self.call.dedupes() && self.ret >= 0 && self.mode == 0 && self.aux2 > 0
    }

    /// Shortens a short write to the bytes actually written: the rest failed for a cause that the target does not have
    /// (limit, memory, full disk). Likewise a copy whose source, of at least `source_bytes`, had more. Returns whether
    /// it did.
    pub(crate) fn cut_short(&mut self, source_bytes: Option<i64>) -> bool {
        let left = self.offset_bytes.saturating_add(self.ret) < source_bytes.unwrap_or(0) && self.offset_bytes >= 0;
        let stopped = self.call.writes() || self.call.copies() && left;
        let cut = stopped && self.regular && self.ret > 0 && self.ret < self.len_bytes;
        if cut {
            self.len_bytes = self.ret;
        }
        cut
    }

    /// Clears the set-ID bits in the mode of a created or changed file. The set-group-ID bit of a changed mode stays:
    /// directories keep it, and the kind of the file is certain only at run time. Returns whether a file loses bits,
    /// given whether it is a `directory`.
    pub(crate) fn leave_out_set_ids(&mut self, directory: bool) -> bool {
        let makes = self.call.opens() || matches!(self.call, Call::Mknod | Call::Mknodat);
        let bits = self.mode & SET_ID_BITS as i32;
        if bits == 0 || !makes && !self.call.chmods() {
            return false;
        }
        self.mode &= if makes { !(SET_ID_BITS as i32) } else { !(libc::S_ISUID as i32) };
        // Without O_CREAT, an open ignores the mode.
        self.ret >= 0 && !directory && (!self.call.opens() || self.aux & 1 != 0)
    }

    /// A record in which no column is set.
    pub fn none() -> Self {
        Self {
            call: Call::Other,
            in_flight: false,
            raced: false,
            changes_unknown: false,
            content: 0,
            saved_permille: -1,
            regular: false,
            direct: false,
            loose: false,
            task: 0,
            row: 0,
            start_ns: 0,
            end_ns: 0,
            together: 0,
            ended_before: 0,
            follows: false,
            turn_ns: 0,
            ret: 0,
            fd: NO_FD,
            fd2: NO_FD,
            dirfd: NO_FD,
            dirfd2: NO_FD,
            mode: 0,
            path: NONE,
            path2: NONE,
            name: NONE,
            value: NONE,
            ofd: NO_ID,
            file: NO_ID,
            file2: NO_ID,
            offset_bytes: NO_ID,
            offset2_bytes: NO_ID,
            len_bytes: 0,
            flags: 0,
            aux: 0,
            aux2: 0,
            ids: IdsOf::Thread,
            via: Via::Call,
            phase: Phase::Whole,
            ring: NO_ID,
            sqe_flags: 0,
        }
    }
}

/// Size at which unused texts are dropped, bytes.
const TEXT_BYTES: usize = 48 << 20;

/// A reel as the planner reads it.
#[derive(Debug)]
pub struct Input {
    /// Number of operations that are not replayed because of their source, and of names of `tree` that are not prepared,
    /// by reason. Operations of ioreel itself (`tool`) are not counted.
    pub other_layers: BTreeMap<Skip, i64>,
    /// Number of calls that a replay does not know, by name.
    pub unknown: BTreeMap<String, i64>,
    /// Threads by start. Threads that appear only in operations are appended as they appear.
    pub tasks: Vec<rows::Task>,
    /// Program starts (exec) by time.
    pub execs: Vec<rows::Exec>,
    /// Descriptors open at the start, by task.
    pub fds: Vec<rows::Fd>,
    /// Mappings at the start, by task.
    pub maps: Vec<rows::Map>,
    /// Files by id: those seen so far that later operations can refer to.
    pub files: HashMap<i64, FileInfo>,
    /// The name space before the workload.
    pub tree: Vec<rows::Tree>,
    /// Set if the pages cached at the start are to be found.
    pub residence: Option<Residence>,
    /// Overhead of the recording.
    pub recorder: Recorder,
    /// Types and sources of the file systems that were mounted.
    pub(crate) mounted: Vec<(String, String)>,
    /// Setup flags (`IORING_SETUP_*`) of io_uring rings, by ring.
    pub ring_flags: HashMap<i64, i64>,
    /// Texts of the operations in memory.
    pub texts: Texts,
    /// Where replayed files are.
    pub(crate) roots: Roots,
    /// Index in `tasks` by task id.
    pub task_index: HashMap<i64, u32>,
    /// Operations that were read and have not taken effect, by id. Ids are reused.
    pub(crate) recs: Vec<Option<Box<Rec>>>,
    free: Vec<u32>,
    waiting: Waiting,
    feed: Option<Feed>,
    file_feed: FileFeed,
    /// How often a message or `pidfd_getfd` brings a descriptor of an open file description, by its id.
    pub(crate) receipts: HashMap<i64, u32>,
    /// What planning may cost.
    pub(crate) budget: Budget,
    /// Unused texts are dropped at this size.
    text_bytes: usize,
}

impl Input {
    /// Opens the tables that a replay needs.
    pub fn read(reel: &Reel) -> Result<Self, ReplayError> {
        let mut budget = Budget::new(reel.path().into(), size_bytes(reel));
        let mut tasks = sorted::<rows::Task>(reel, &mut budget)?;
        // Threads that existed at the start follow the task whose descriptor table they share.
        tasks.sort_by_key(|t| (t.start_ns, t.parent.is_some(), t.task_id));
        // Rows of one task follow each other, in their order.
        let mut fds = sorted::<rows::Fd>(reel, &mut budget)?;
        fds.sort_by_key(|f| f.task_id);
        let mut maps = sorted::<rows::Map>(reel, &mut budget)?;
        maps.sort_by_key(|m| m.task_id);
        let mut input = Self {
            other_layers: BTreeMap::new(),
            ring_flags: HashMap::new(),
            unknown: BTreeMap::new(),
            task_index: tasks.iter().enumerate().map(|(i, t)| (t.task_id, i as u32)).collect(),
            tasks,
            execs: sorted::<rows::Exec>(reel, &mut budget)?,
            fds,
            maps,
            files: HashMap::new(),
            tree: all::<rows::Tree>(reel, &mut budget)?,
            residence: None,
            texts: Texts::default(),
            roots: Roots::default(),
            recorder: Recorder::of(&reel.manifest.cost),
            mounted: reel.manifest.mounts.iter().map(|m| (m.fstype.clone(), m.source.clone())).collect(),
            recs: Vec::new(),
            free: Vec::new(),
            waiting: Waiting::default(),
            feed: Some(Feed::new(reel)?),
            file_feed: FileFeed::new(reel)?,
            receipts: receipts(reel, &mut budget)?,
            budget,
            text_bytes: TEXT_BYTES,
        };
        let first = input.fds.iter().filter_map(|f| f.file).chain(input.maps.iter().map(|m| m.file)).collect();
        input.files = files_of(reel, first, &input.roots)?;
        Ok(input)
    }

    /// Descriptors that a task has at the start.
    pub(crate) fn fds_of(&self, task_id: i64) -> Vec<rows::Fd> {
        let from = self.fds.partition_point(|f| f.task_id < task_id);
        self.fds[from..].iter().take_while(|f| f.task_id == task_id).cloned().collect()
    }

    /// Mappings that a task has at the start.
    pub(crate) fn maps_of(&self, task_id: i64) -> Vec<rows::Map> {
        let from = self.maps.partition_point(|m| m.task_id < task_id);
        self.maps[from..].iter().take_while(|m| m.task_id == task_id).cloned().collect()
    }

    /// Reads until the next operation to return is known, together with all that were entered before its return.
    fn fill(&mut self) -> Result<(), ReplayError> {
        loop {
            let Some(mut feed) = self.feed.take() else { return Ok(()) };
            let left_ns = feed.left_ns();
            let until_ns = self.waiting.by_end.peek().map_or(left_ns, |r| r.0.0.0);
            let more = until_ns >= left_ns && !feed.is_empty();
            let take = |row, op: &Op| {
                self.push(row, op);
                self.budget.row()
            };
            let read = if more { feed.read(until_ns, take) } else { Ok(()) };
            self.feed = Some(feed);
            read?;
            if !more {
                return Ok(());
            }
        }
    }

    /// The id of the next operation to return, and its return time.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, i64)>, ReplayError> {
        loop {
            self.fill()?;
            let Some(std::cmp::Reverse(((end_ns, ..), id))) = self.waiting.by_end.pop() else { return Ok(None) };
            // Already taken, before its return.
            if self.free_later(id) {
                continue;
            }
            let (files, budget, roots) = (&mut self.files, &mut self.budget, &self.roots);
            // A file is first seen during a call on it or shortly after.
            self.file_feed.read(end_ns.saturating_add(1_000_000_000), |f| {
                // Files open at the start are known already, with their path.
                files.entry(f.file).or_insert_with(|| FileInfo { path: None, ..FileInfo::of(f, roots) });
                budget.row()
            })?;
            return Ok(Some((id, end_ns)));
        }
    }

    /// The id and row of the next operation that was entered before `until_ns`.
    pub(crate) fn entered(&mut self, until_ns: i64) -> Option<(u32, u32)> {
        while self.waiting.by_start.peek()?.0.0 < until_ns {
            let (_, row, id) = self.waiting.by_start.pop()?.0;
            if self.is_at_hand(id, row) {
                return Some((id, row));
            }
        }
        None
    }

    /// Whether the operation in this row has not taken effect. The row is needed because ids are reused.
    pub(crate) fn is_at_hand(&self, id: u32, row: u32) -> bool {
        self.recs[id as usize].as_ref().is_some_and(|r| r.row == row)
    }

    /// Takes an operation out. Its id is not reused before its return has passed.
    pub(crate) fn take(&mut self, id: u32) -> Option<Box<Rec>> {
        self.recs.get_mut(id as usize)?.take()
    }

    /// Frees the id if the operation was taken already; returns whether it was.
    fn free_later(&mut self, id: u32) -> bool {
        let gone = self.recs[id as usize].is_none();
        if gone {
            self.free.push(id);
        }
        gone
    }

    /// Frees the id of an operation that was taken at its return.
    pub(crate) fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Drops texts that no operation in memory uses, once they exceed [`TEXT_BYTES`]. Returns whether it did, which
    /// changes all indices.
    pub(crate) fn forget_texts(&mut self) -> bool {
        if self.texts.paths.size_bytes() < self.text_bytes {
            return false;
        }
        let old = std::mem::take(&mut self.texts);
        let words: HashMap<u32, Text> = old.known.into_iter().map(|(text, i)| (i, text)).collect();
        for r in self.recs.iter_mut().flatten() {
            for index in [&mut r.path, &mut r.path2, &mut r.name] {
                if let Some(text) = words.get(index) {
                    *index = self.texts.intern(text);
                }
            }
            if r.value != NONE {
                r.value = self.texts.paths.push(old.paths.bytes(r.value));
            }
        }
        // Texts in use are copied again only after as many new ones.
        self.text_bytes = TEXT_BYTES.max(2 * self.texts.paths.size_bytes());
        true
    }

    /// Adds an operation, and its thread if it is unknown.
    fn push(&mut self, row: u32, op: &Op) {
        let via = Via::of_source(&op.source);
        let about_rings = via == Via::Call && op.source == *"syscall" && is_about_rings(&op.op);
        let call = match &*op.source {
            "syscall" => Call::of(&op.op, op.flags.unwrap_or(0), op.name.as_deref()),
            "fault" => Call::of_touch(&op.op),
            "scm" => Some(Call::from_name(&op.op)).filter(|c| c.receives()).unwrap_or(Call::Other),
            "io_uring" | "aio" => via.request(&op.op, op.aux2 == Some(1)),
            _ => Call::Other,
        };
        if op.source == *"tool" {
            return;
        }
        // The descriptors that messages bring have rows of their own.
        if op.source == *"syscall" && matches!(&*op.op, "sendmsg" | "recvmsg" | "sendmmsg" | "recvmmsg") {
            *self.other_layers.entry(Skip::Socket).or_default() += 1;
            return;
        }
        if call == Call::Other && op.source != *"syscall" && op.source != *"fault" {
            *self.other_layers.entry(Skip::of_source(&op.source)).or_default() += 1;
            return;
        }
        if about_rings
            && op.op == *"io_uring_setup"
            && let (Some(ring), Some(flags)) = (op.ring, op.flags)
        {
            self.ring_flags.insert(ring, flags);
        }
        let next = self.tasks.len() as u32;
        let task = *self.task_index.entry(op.task_id).or_insert(next);
        if task == next {
            self.tasks.push(rows::Task { task_id: op.task_id, pid: op.pid, tid: op.tid, ..Default::default() });
        }
        if call == Call::Other && !about_rings {
            let name = op.name.as_ref().filter(|_| op.op == *"ioctl").unwrap_or(&op.op).to_string();
            *self.unknown.entry(name).or_default() += 1;
        }
        let mut rec = self.rec_of(row, op, call, task, via);
        equivalents::rewrite(&mut rec, &op.op);
        let (first, last) = match (via, about_rings) {
            (Via::Call, false) => (None, Phase::Whole),
            (Via::Call, true) => (Some(Phase::Entered), Phase::Returned),
            _ => (Some(Phase::Submitted), Phase::Ended),
        };
        if let Some(phase) = first {
            // At equal times, entries and submissions come first.
            let key = (rec.start_ns, i64::MIN, row);
            self.add(Rec { phase, end_ns: rec.start_ns, turn_ns: rec.end_ns, ..rec.clone() }, key);
        }
        let key = (rec.end_ns, rec.start_ns, row);
        self.add(Rec { phase: last, ..rec }, key);
    }

    /// The record of a row.
    fn rec_of(&mut self, row: u32, op: &Op, call: Call, task: u32, via: Via) -> Rec {
        let texts = &mut self.texts;
        // In older reels, a call in flight at the start has an empty path instead of none.
        let midway = op.state == *"in_flight_at_start";
        let mut path =
            |p: &Option<Text>| p.as_ref().filter(|p| !(midway && p.is_empty())).map_or(NONE, |t| texts.intern(t));
        let (first, second, name) = (path(&op.path), path(&op.path2), path(&op.name));
        let value = op.value.as_ref().filter(|_| call.sets_attribute() || call.has_handle() || call.sets_user());
        let (ids, owners) = user_ids::of_row(call, op);
        Rec {
            ids,
            call,
            name,
            value: value.map_or(NONE, |v| texts.paths.push(&to_bytes(v))),
            // A call in flight at the start has returned, with a result like any other.
            in_flight: op.state == *"in_flight_at_end" || op.ret.is_none(),
            task,
            row,
            start_ns: op.start_ns,
            end_ns: op.start_ns.saturating_add(op.dur_ns.max(0)),
            ret: op.ret.unwrap_or(0),
            fd: op.fd.unwrap_or(NO_FD),
            fd2: op.fd2.unwrap_or(NO_FD),
            dirfd: op.dirfd.unwrap_or(NO_FD),
            dirfd2: op.dirfd2.unwrap_or(NO_FD),
            mode: op.mode.unwrap_or(0),
            path: first,
            path2: second,
            ofd: op.ofd.unwrap_or(NO_ID),
            file: op.file.unwrap_or(NO_ID),
            file2: op.file2.unwrap_or(NO_ID),
            offset_bytes: op.offset_bytes.unwrap_or(NO_ID),
            offset2_bytes: op.offset2_bytes.unwrap_or(NO_ID),
            len_bytes: op.len_bytes.unwrap_or(0),
            flags: op.flags.unwrap_or(0),
            // For an open: whether it created the file. For an open by handle: the type of the handle, not needed here.
            aux: match closes_on_exec(op.flags.unwrap_or(0)) {
                Some(closes) if call == Call::SetFd && op.op == *"ioctl" => i64::from(closes),
                _ if matches!(call, Call::Mknod | Call::Mknodat) => op.aux.unwrap_or(UNKNOWN_DEVICE),
                _ => owners.map(|o| o.0).or(op.aux).filter(|_| call != Call::OpenByHandleAt).unwrap_or(0),
            },
            aux2: owners.map(|o| o.1).or(op.aux2).unwrap_or(0),
            changes_unknown: call == Call::Other && Roots::changed_by(op),
            content: op.content_hash.as_deref().map_or(0, content_key),
            saved_permille: op.compressibility_permille.map_or(-1, |p| p.clamp(0, 1000) as i16),
            via,
            ring: op.ring.unwrap_or(NO_ID),
            sqe_flags: op.sqe_flags.unwrap_or(0),
            ..Rec::none()
        }
    }

    /// Adds a record, to be taken in the order of keys.
    fn add(&mut self, rec: Rec, key: (i64, i64, u32)) {
        let (start_ns, row) = (rec.start_ns, rec.row);
        let whole = matches!(rec.phase, Phase::Whole | Phase::Ended);
        let id = self.free.pop().unwrap_or(self.recs.len() as u32);
        if id as usize == self.recs.len() {
            self.recs.push(None);
        }
        self.recs[id as usize] = Some(Box::new(rec));
        self.waiting.by_end.push(std::cmp::Reverse((key, id)));
        if whole {
            self.waiting.by_start.push(std::cmp::Reverse((start_ns, row, id)));
        }
    }
}
