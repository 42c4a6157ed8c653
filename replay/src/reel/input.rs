//! The reel as a replay needs it: compact records, paths as the kernel's bytes, and no more of it in memory than is in use.

use std::collections::{BTreeMap, HashMap, HashSet};

use ioreel_traces::{
    Reel, Text,
    rows::{self, Op},
    text::to_bytes,
};

use crate::{
    Call, ReplayError, Skip,
    base::{file_kind::Kind, privileges::SET_ID_BITS},
    reel::{
        call::closes_on_exec,
        feed::{Feed, FileFeed, Waiting},
        recorder::Recorder,
        residence::Residence,
        submission::{Phase, Via, is_about_rings},
    },
};

pub use crate::reel::texts::{Paths, Texts};

/// No descriptor given.
pub const NO_FD: i32 = i32::MIN;
/// No path, slot or task given.
pub const NONE: u32 = u32::MAX;
/// No id, or no result.
pub const NO_ID: i64 = i64::MIN;

/// One recorded operation: the columns of `ops` that a call is made of.
#[derive(Clone, Debug)]
pub struct Rec {
    /// The call.
    pub call: Call,
    /// The recording stopped before it returned.
    pub in_flight: bool,
    /// Index of its thread in [`Input::tasks`].
    pub task: u32,
    /// Which row of the reel's `ops` it is, counted over all segments.
    pub row: u32,
    /// Entered, ns of the reel.
    pub start_ns: i64,
    /// Returned, ns of the reel.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
    /// Descriptor, or [`NO_FD`]; the same of the three below.
    pub fd: i32,
    /// Second descriptor.
    pub fd2: i32,
    /// Base of `path`.
    pub dirfd: i32,
    /// Base of `path2`.
    pub dirfd2: i32,
    /// `mode` column, 0 when null.
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
    /// `len_bytes` column, 0 when null; the same of the three below.
    pub len_bytes: i64,
    /// Flags.
    pub flags: i64,
    /// `aux` column.
    pub aux: i64,
    /// `aux2` column.
    pub aux2: i64,
    /// Attribute name: index in [`Paths`], or [`NONE`].
    pub name: u32,
    /// Its value: likewise.
    pub value: u32,
    /// Of a write: the beginning of the hash of what it wrote, or 0.
    pub content: u64,
    /// Of a write: what a compressor saved of it, in thousandths, or -1.
    pub saved_permille: i16,
    /// How it reached the kernel.
    pub via: Via,
    /// What of it this record is.
    pub phase: Phase,
    /// Of a request: its ring or context, or [`NO_ID`].
    pub ring: i64,
    /// Of a request to io_uring: bits of `sqe_flags`.
    pub sqe_flags: i32,
    /// A byte count it returns is one of a regular file or a link.
    pub regular: bool,
    /// Through a descriptor for direct I/O, which file systems refuse where it is not aligned as they want it.
    pub direct: bool,
    /// Of a byte count only whether it is 0 is compared: files are not as large as they were.
    pub loose: bool,
    /// Results do not tell whether it or another overlapping operation took effect first.
    pub raced: bool,
    /// Operations in flight when it was entered, itself included; 0 for what is in flight for other reasons than files.
    pub together: u32,
    /// A request that begins only when an earlier one has ended: what it asks for may come to be until then.
    pub follows: bool,
    /// Operations that had taken effect when it was entered.
    pub ended_before: u32,
    /// Its place among all when the recorded number is kept in flight; of a submission that is not planned yet, when it ended.
    pub turn_ns: i64,
}

impl Rec {
    /// Whether it is to take a directory away.
    pub(crate) fn removes_directory(&self) -> bool {
        self.call == Call::Rmdir || self.call == Call::Unlinkat && self.flags as i32 & libc::AT_REMOVEDIR != 0
    }

    /// Whether, as a write, it goes to the end of the file, through a descriptor that is `append_only` or not: its own flags
    /// (`RWF_APPEND`, `RWF_NOAPPEND`) have the last word.
    pub(crate) fn appends(&self, append_only: bool) -> bool {
        const RWF_NOAPPEND: i64 = 0x20;
        self.flags & RWF_NOAPPEND == 0 && (append_only || self.flags & i64::from(libc::RWF_APPEND) != 0)
    }

    /// Whether it wrote or copied nothing: a file does not grow for that, even where its end is before the place.
    pub(crate) fn moved_nothing(&self) -> bool {
        self.ret == 0 && (self.call.writes() || self.call.copies())
    }

    /// Whether ranges of two files were found equal, and share their data since.
    pub(crate) fn shares_equal(&self) -> bool {
        self.call.dedupes() && self.ret >= 0 && self.mode == 0 && self.aux2 > 0
    }

    /// Of a write to a file that took less than it was given, as much is issued as was taken: the rest was refused for what
    /// the target does not have (a limit, memory that was not there, a full disk). So with a copy whose source, of at least
    /// so many bytes, had more. Whether it was so.
    pub(crate) fn cut_short(&mut self, source_bytes: Option<i64>) -> bool {
        let left = self.offset_bytes.saturating_add(self.ret) < source_bytes.unwrap_or(0) && self.offset_bytes >= 0;
        let stopped = self.call.writes() || self.call.copies() && left;
        let cut = stopped && self.regular && self.ret > 0 && self.ret < self.len_bytes;
        if cut {
            self.len_bytes = self.ret;
        }
        cut
    }

    /// Takes the set-ID bits out of the mode of a file that is made or changed. The set-group-ID bit of a mode that is changed
    /// stays: a directory may have it, and the kind of the file is only certain when the call is issued. Whether a file lacks
    /// bits for it, where the file is a `directory` or not.
    pub(crate) fn leave_out_set_ids(&mut self, directory: bool) -> bool {
        let makes = self.call.opens() || matches!(self.call, Call::Mknod | Call::Mknodat);
        let bits = self.mode & SET_ID_BITS as i32;
        if bits == 0 || !makes && !self.call.chmods() {
            return false;
        }
        self.mode &= if makes { !(SET_ID_BITS as i32) } else { !(libc::S_ISUID as i32) };
        // Without O_CREAT the mode means nothing.
        self.ret >= 0 && !directory && (!self.call.opens() || self.aux & 1 != 0)
    }

    /// One with no column given.
    pub fn none() -> Self {
        Self {
            call: Call::Other,
            in_flight: false,
            raced: false,
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
            via: Via::Call,
            phase: Phase::Whole,
            ring: NO_ID,
            sqe_flags: 0,
        }
    }
}

/// The first 64 bits of a hash in hexadecimal.
fn content_key(hash: &str) -> u64 {
    hash.get(..16).and_then(|h| u64::from_str_radix(h, 16).ok()).unwrap_or(0)
}

/// Texts kept before those that are no longer needed are forgotten, bytes.
const TEXT_BYTES: usize = 48 << 20;

/// A reel as it is planned from.
#[derive(Debug)]
pub struct Input {
    /// Operations of other sources, which are not replayed, by source; ioreel's own are none of them.
    pub other_layers: BTreeMap<Skip, i64>,
    /// Calls that a replay does not know, by name.
    pub unknown: BTreeMap<String, i64>,
    /// Threads, by start; those that only operations tell of are added as they come.
    pub tasks: Vec<rows::Task>,
    /// Program starts, by time.
    pub execs: Vec<rows::Exec>,
    /// Descriptors at the start.
    pub fds: Vec<rows::Fd>,
    /// Mappings at the start.
    pub maps: Vec<rows::Map>,
    /// Files by id: those seen so far that are still there.
    pub files: HashMap<i64, FileInfo>,
    /// Name space before the workload.
    pub tree: Vec<rows::Tree>,
    /// Set when the pages resident at the start are to be found.
    pub residence: Option<Residence>,
    /// What recording cost the program.
    pub recorder: Recorder,
    /// How rings of io_uring were set up (`IORING_SETUP_*`), by number.
    pub ring_flags: HashMap<i64, i64>,
    /// The texts of the operations at hand.
    pub texts: Texts,
    /// Index in `tasks` by task id.
    pub task_index: HashMap<i64, u32>,
    /// Operations of source `syscall` that were read and have not taken effect, by number.
    pub(crate) recs: Vec<Option<Box<Rec>>>,
    free: Vec<u32>,
    waiting: Waiting,
    feed: Option<Feed>,
    file_feed: FileFeed,
}

/// What the plan asks of a file.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Its kind.
    pub kind: Kind,
    /// Absolute path when first seen, where it had been opened before the recording began.
    pub path: Option<Text>,
    /// Permission bits when first seen.
    pub mode: Option<i32>,
    /// Size when first seen.
    pub size_bytes: Option<i64>,
    /// Its path was its name no more when first seen.
    pub unlinked: bool,
    /// Device as stat(2) tells it.
    pub dev: i64,
    /// Inode number.
    pub ino: i64,
    /// That of the other end of a unix socket.
    pub peer_ino: Option<i64>,
}

impl FileInfo {
    fn of(row: rows::File) -> Self {
        Self {
            kind: Kind::from_name(&row.kind),
            unlinked: row.path_is_gone(),
            path: row.path,
            mode: row.mode,
            size_bytes: row.size_bytes,
            dev: row.dev,
            ino: row.ino,
            peer_ino: row.peer_ino,
        }
    }
}

impl Input {
    /// Opens everything a replay needs of `reel`.
    pub fn read(reel: &Reel) -> Result<Self, ReplayError> {
        let mut tasks = reel.read::<rows::Task>()?;
        // Of those there from the start, threads follow the task whose descriptors they share.
        tasks.sort_by_key(|t| (t.start_ns, t.parent.is_some(), t.task_id));
        let mut input = Self {
            other_layers: BTreeMap::new(),
            ring_flags: HashMap::new(),
            unknown: BTreeMap::new(),
            task_index: tasks.iter().enumerate().map(|(i, t)| (t.task_id, i as u32)).collect(),
            tasks,
            execs: reel.read::<rows::Exec>()?,
            fds: reel.read::<rows::Fd>()?,
            maps: reel.read::<rows::Map>()?,
            files: HashMap::new(),
            tree: reel.rows::<rows::Tree>().collect::<Result<_, _>>()?,
            residence: None,
            texts: Texts::default(),
            recorder: Recorder::of(&reel.manifest.cost),
            recs: Vec::new(),
            free: Vec::new(),
            waiting: Waiting::default(),
            feed: Some(Feed::new(reel)?),
            file_feed: FileFeed::new(reel)?,
        };
        input.first_files(reel)?;
        Ok(input)
    }

    /// Reads until the next operation to return is known, and all that were entered before it returned.
    fn fill(&mut self) -> Result<(), ReplayError> {
        loop {
            let Some(mut feed) = self.feed.take() else { return Ok(()) };
            let left_ns = feed.left_ns();
            let until_ns = self.waiting.by_end.peek().map_or(left_ns, |r| r.0.0.0);
            let more = until_ns >= left_ns && !feed.is_empty();
            let read = if more { feed.read(until_ns, |row, op| self.push(row, op)) } else { Ok(()) };
            self.feed = Some(feed);
            read?;
            if !more {
                return Ok(());
            }
        }
    }

    /// The next operation to return, and when.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, i64)>, ReplayError> {
        loop {
            self.fill()?;
            let Some(std::cmp::Reverse(((end_ns, ..), id))) = self.waiting.by_end.pop() else { return Ok(None) };
            // Taken already, before its return.
            if self.free_later(id) {
                continue;
            }
            let files = &mut self.files;
            // A file is first seen while a call on it is at work, or shortly after.
            self.file_feed.read(end_ns.saturating_add(1_000_000_000), |f| {
                // What was open at the start is known already, with its path.
                files.entry(f.file).or_insert_with(|| FileInfo { path: None, ..FileInfo::of(f) });
            })?;
            return Ok(Some((id, end_ns)));
        }
    }

    /// The next operation that was entered before `until_ns`: its number and row.
    pub(crate) fn entered(&mut self, until_ns: i64) -> Option<(u32, u32)> {
        while self.waiting.by_start.peek()?.0.0 < until_ns {
            let (_, row, id) = self.waiting.by_start.pop()?.0;
            if self.is_at_hand(id, row) {
                return Some((id, row));
            }
        }
        None
    }

    /// Whether the operation in this row has not taken effect; numbers are used again.
    pub(crate) fn is_at_hand(&self, id: u32, row: u32) -> bool {
        self.recs[id as usize].as_ref().is_some_and(|r| r.row == row)
    }

    /// Takes an operation out; its number stays its own until its return has passed.
    pub(crate) fn take(&mut self, id: u32) -> Option<Box<Rec>> {
        self.recs.get_mut(id as usize)?.take()
    }

    /// Whether the operation is gone; its number then is free again.
    fn free_later(&mut self, id: u32) -> bool {
        let gone = self.recs[id as usize].is_none();
        if gone {
            self.free.push(id);
        }
        gone
    }

    /// The number of an operation that was taken at its return is free again.
    pub(crate) fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Reads the files that tasks had open at their start.
    pub(crate) fn first_files(&mut self, reel: &Reel) -> Result<(), ReplayError> {
        let mut wanted: HashSet<i64> =
            self.fds.iter().filter_map(|f| f.file).chain(self.maps.iter().map(|m| m.file)).collect();
        let mut rows = reel.rows::<rows::File>();
        while !wanted.is_empty()
            && let Some(f) = rows.next().transpose()?
        {
            if wanted.remove(&f.file) {
                self.files.insert(f.file, FileInfo::of(f));
            }
        }
        Ok(())
    }

    /// Forgets texts that no operation at hand needs, when there are many; whether it did, and all indices changed.
    pub(crate) fn forget_texts(&mut self) -> bool {
        if self.texts.paths.size_bytes() < TEXT_BYTES {
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
        true
    }

    /// Adds an operation; one of an unknown thread brings its thread along.
    fn push(&mut self, row: u32, op: &Op) {
        let via = Via::of_source(&op.source);
        let about_rings = via == Via::Call && op.source == *"syscall" && is_about_rings(&op.op);
        let call = match &*op.source {
            "syscall" => Call::of(&op.op, op.flags.unwrap_or(0), op.name.as_deref()),
            "fault" => Call::of_touch(&op.op),
            "io_uring" | "aio" => via.request(&op.op, op.aux2 == Some(1)),
            _ => Call::Other,
        };
        if op.source == *"tool" {
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
        let rec = self.rec_of(row, op, call, task, via);
        let (first, last) = match (via, about_rings) {
            (Via::Call, false) => (None, Phase::Whole),
            (Via::Call, true) => (Some(Phase::Entered), Phase::Returned),
            _ => (Some(Phase::Submitted), Phase::Ended),
        };
        if let Some(phase) = first {
            // Before all else that happens at that time.
            let key = (rec.start_ns, i64::MIN, row);
            self.add(Rec { phase, end_ns: rec.start_ns, turn_ns: rec.end_ns, ..rec.clone() }, key);
        }
        let key = (rec.end_ns, rec.start_ns, row);
        self.add(Rec { phase: last, ..rec }, key);
    }

    /// The record of a row.
    fn rec_of(&mut self, row: u32, op: &Op, call: Call, task: u32, via: Via) -> Rec {
        let texts = &mut self.texts;
        // Older reels have an empty path where a call in flight at the start was not asked for its own.
        let midway = op.state == *"in_flight_at_start";
        let mut path =
            |p: &Option<Text>| p.as_ref().filter(|p| !(midway && p.is_empty())).map_or(NONE, |t| texts.intern(t));
        let (first, second, name) = (path(&op.path), path(&op.path2), path(&op.name));
        let value = op.value.as_ref().filter(|_| call.sets_attribute() || call.has_handle() || call.sets_user());
        Rec {
            call,
            name,
            value: value.map_or(NONE, |v| texts.paths.push(&to_bytes(v))),
            // What was in flight at the start has ended, with a result like any other.
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
            // Of an open it says whether that made the file; of one by handle, the handle's type.
            aux: match closes_on_exec(op.flags.unwrap_or(0)) {
                Some(closes) if call == Call::SetFd && op.op == *"ioctl" => i64::from(closes),
                _ => op.aux.filter(|_| call != Call::OpenByHandleAt).unwrap_or(0),
            },
            aux2: op.aux2.unwrap_or(0),
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
