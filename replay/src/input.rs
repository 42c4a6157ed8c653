//! The reel as a replay needs it: compact records in memory, paths as the kernel's bytes.

use std::{collections::HashMap, ffi::CStr};

use ioreel_traces::{
    Reel, Text,
    rows::{self, Op},
    text::to_bytes,
};

use crate::{Call, ReplayError};

/// No descriptor given.
pub const NO_FD: i32 = i32::MIN;
/// No path, slot or task given.
pub const NONE: u32 = u32::MAX;
/// No id, or no result.
pub const NO_ID: i64 = i64::MIN;

/// One recorded operation: the columns of `ops` that a call is made of. A reel of a million operations
/// takes some 150 MB of these.
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
    /// Its value: index in [`Input::values`], or [`NONE`] where it is not recorded.
    pub value: u32,
    /// Results do not tell whether it or another overlapping operation took effect first.
    pub raced: bool,
    /// Operations in flight when it was entered, itself included; 0 for what is in flight for other reasons than files.
    pub together: u32,
    /// Operations that had taken effect when it was entered.
    pub ended_before: u32,
    /// Its place among all when the recorded number is kept in flight.
    pub turn_ns: i64,
}

/// Distinct paths, kept as NUL-terminated bytes one after the other.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    bytes: Vec<u8>,
    starts: Vec<u32>,
    known: HashMap<Text, u32>,
}

impl Paths {
    /// The index of `text`; a path with a NUL inside, which no kernel takes, ends there.
    pub fn intern(&mut self, text: &Text) -> u32 {
        if let Some(i) = self.known.get(text) {
            return *i;
        }
        let i = self.starts.len() as u32;
        self.starts.push(self.bytes.len() as u32);
        let raw = to_bytes(text);
        self.bytes.extend(raw.iter().take_while(|b| **b != 0));
        self.bytes.push(0);
        self.known.insert(text.clone(), i);
        i
    }

    /// The path with this index, as a call takes it.
    pub fn c_str(&self, i: u32) -> &CStr {
        let from = self.starts.get(i as usize).map_or(self.bytes.len(), |s| *s as usize);
        CStr::from_bytes_until_nul(self.bytes.get(from..).unwrap_or_default()).unwrap_or(c"")
    }

    /// The same without the NUL.
    pub fn bytes(&self, i: u32) -> &[u8] {
        self.c_str(i).to_bytes()
    }

    /// Forgets what is only needed while interning.
    pub fn freeze(&mut self) {
        self.known = HashMap::new();
    }
}

/// A reel in memory.
#[derive(Debug, Default)]
pub struct Input {
    /// Operations of source `syscall`, in the order of their return.
    pub recs: Vec<Rec>,
    /// Operations of other sources, which are not replayed; ioreel's own are none of them.
    pub other_layers: i64,
    /// Threads, by start.
    pub tasks: Vec<rows::Task>,
    /// Program starts, by time.
    pub execs: Vec<rows::Exec>,
    /// Descriptors at the start.
    pub fds: Vec<rows::Fd>,
    /// Files by id.
    pub files: HashMap<i64, FileInfo>,
    /// Name space before the workload.
    pub tree: Vec<rows::Tree>,
    /// The paths of `recs`.
    pub paths: Paths,
    /// Values of extended attributes.
    pub values: Vec<Box<[u8]>>,
    /// Index in `tasks` by task id.
    pub task_index: HashMap<i64, u32>,
}

/// What the plan asks of a file.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// As in `files.kind`.
    pub kind: Text,
    /// Absolute path when first seen.
    pub path: Option<Text>,
    /// Permission bits when first seen.
    pub mode: Option<i32>,
    /// Size when first seen.
    pub size_bytes: Option<i64>,
}

impl Input {
    /// Reads everything a replay needs of `reel`.
    pub fn read(reel: &Reel) -> Result<Self, ReplayError> {
        let mut input = Self {
            tasks: reel.read::<rows::Task>()?,
            execs: reel.read::<rows::Exec>()?,
            fds: reel.read::<rows::Fd>()?,
            ..Self::default()
        };
        for t in reel.rows::<rows::Tree>() {
            input.tree.push(t?);
        }
        for f in reel.rows::<rows::File>() {
            let f = f?;
            input.files.insert(f.file, FileInfo { kind: f.kind, path: f.path, mode: f.mode, size_bytes: f.size_bytes });
        }
        // Of those there from the start, threads follow the task whose descriptors they share.
        input.tasks.sort_by_key(|t| (t.start_ns, t.parent.is_some(), t.task_id));
        input.task_index = input.tasks.iter().enumerate().map(|(i, t)| (t.task_id, i as u32)).collect();
        input.recs.reserve(usize::try_from(reel.count::<Op>()).unwrap_or(0));
        for (row, op) in reel.rows::<Op>().enumerate() {
            input.push(row as u32, &op?);
        }
        input.recs.sort_by_key(|r| (r.end_ns, r.start_ns, r.row));
        Ok(input)
    }

    /// Adds an operation; one of an unknown thread brings its thread along.
    pub fn push(&mut self, row: u32, op: &Op) {
        if op.source != *"syscall" {
            self.other_layers += i64::from(op.source != *"tool");
            return;
        }
        let next = self.tasks.len() as u32;
        let task = *self.task_index.entry(op.task_id).or_insert(next);
        if task == next {
            self.tasks.push(rows::Task { task_id: op.task_id, pid: op.pid, tid: op.tid, ..Default::default() });
        }
        let mut path = |p: &Option<Text>| p.as_ref().map_or(NONE, |t| self.paths.intern(t));
        let call = Call::of(&op.op, op.flags.unwrap_or(0), op.name.as_deref());
        let value = op.value.as_ref().filter(|_| call.sets_attribute());
        let rec = Rec {
            call,
            name: path(&op.name),
            value: value.map_or(NONE, |v| {
                self.values.push(to_bytes(v).into());
                self.values.len() as u32 - 1
            }),
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
            path: path(&op.path),
            path2: path(&op.path2),
            ofd: op.ofd.unwrap_or(NO_ID),
            file: op.file.unwrap_or(NO_ID),
            file2: op.file2.unwrap_or(NO_ID),
            offset_bytes: op.offset_bytes.unwrap_or(NO_ID),
            offset2_bytes: op.offset2_bytes.unwrap_or(NO_ID),
            len_bytes: op.len_bytes.unwrap_or(0),
            flags: op.flags.unwrap_or(0),
            aux: op.aux.unwrap_or(0),
            aux2: op.aux2.unwrap_or(0),
            raced: false,
            together: 0,
            ended_before: 0,
            turn_ns: 0,
        };
        self.recs.push(rec);
    }
}
