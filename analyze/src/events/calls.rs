//! Streams the operations of a reel, and classifies system calls.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use ioreel_traces::{
    Reel, Text,
    rows::Op,
    table::{Cell, Column, Row, column},
};
use serde::Serialize;

use crate::{
    Result, bad_column,
    events::{
        order::settled_ns,
        targets::{Target, Targets},
    },
};

/// Kind of a call, for totals and pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Moves bytes out of a file.
    Read,
    /// Moves bytes into a file.
    Write,
    /// Moves bytes from one file to another.
    Copy,
    /// Waits until data is on stable storage.
    Sync,
    /// Changes or reads names, attributes and sizes; opens and closes files.
    Metadata,
    /// Concerns only descriptors, offsets, mappings or the process.
    Other,
}

impl Kind {
    /// The kind of a system call, by the kernel's name.
    pub fn of(op: &str) -> Self {
        match op {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "vfs_read" => Self::Read,
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "vfs_write" => Self::Write,
            "copy_file_range" | "sendfile" | "sendfile64" | "splice" => Self::Copy,
            "fsync" | "fdatasync" | "sync_file_range" | "msync" | "sync" | "syncfs" | "vfs_fsync" => Self::Sync,
            "lseek" | "dup" | "dup2" | "dup3" | "fcntl" | "flock" | "pidfd_getfd" | "scm_rights" | "sendmsg"
            | "recvmsg" | "sendmmsg" | "recvmmsg" | "setuid" | "setgid" | "setreuid" | "setregid" | "setresuid"
            | "setresgid" | "setfsuid" | "setfsgid" | "setgroups" | "umask" | "chroot" | "pivot_root" | "getcwd"
            | "mmap" | "munmap" | "mremap" | "madvise" | "mincore" | "remap_file_pages" | "readahead" | "fadvise64"
            | "cachestat" | "tee" | "vmsplice" | "chdir" | "fchdir" | "io_setup" | "io_destroy" | "io_submit"
            | "io_cancel" | "io_getevents" | "io_pgetevents" | "io_uring_setup" | "io_uring_enter"
            | "io_uring_register" | "poll" | "noop" | "fault" | "map_pages" | "dirty" => Self::Other,
            _ => Self::Metadata,
        }
    }
}

/// Whether a call's position counts bytes of a file.
fn has_offset(op: &str) -> bool {
    !matches!(op, "getdents" | "getdents64")
}

/// One operation; fields as in [`Op`].
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Its id.
    pub op_id: i64,
    /// The system call's name.
    pub op: &'a Text,
    /// Its kind.
    pub kind: Kind,
    /// A small number for the name, constant during a pass.
    pub op_index: usize,
    /// Time of entry.
    pub start_ns: i64,
    /// Duration. `None` if in flight at the end of the recording, or if the end is unknown.
    pub dur_ns: Option<i64>,
    /// The thread.
    pub task_id: i64,
    /// Whether it was in flight at the end of the recording.
    pub in_flight: bool,
    /// Whether ioreel made it, to sync file systems at the end.
    pub by_tool: bool,
    /// File it acts on (the source of a copy).
    pub file: Option<i64>,
    /// Destination file of a copy.
    pub file2: Option<i64>,
    /// What `file` is for bytes.
    pub target: Target,
    /// What `file2` is for bytes.
    pub target2: Target,
    /// Offset in the file. The position of a directory is none: on ext4 it is a hash, up to 2^63 - 1.
    pub offset_bytes: Option<i64>,
    /// Offset in the destination of a copy.
    pub offset2_bytes: Option<i64>,
    /// Further argument. For an open, bit 0 means that it created the file.
    pub aux: Option<i64>,
    /// Result or -errno.
    pub ret: Option<i64>,
    /// Only for [`each_detailed_call`].
    pub detail: Detail<'a>,
}

/// Further columns of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detail<'a> {
    /// Where the row comes from.
    pub source: Source,
    /// First path argument.
    pub path: Option<&'a Text>,
    /// Bytes requested.
    pub len_bytes: Option<i64>,
    /// Flags argument.
    pub flags: Option<i64>,
    /// Flags of a request to io_uring.
    pub sqe_flags: Option<i32>,
    /// Time off the CPU, ns.
    pub off_cpu_ns: Option<i64>,
}

/// Origin of an operation, by `ops.source`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A system call of the thread.
    #[default]
    Call,
    /// A request that the thread submitted and need not wait for: io_uring or Linux AIO.
    Request,
    /// A touch of a mapped file.
    Fault,
    /// By ioreel, to sync file systems at the end.
    Tool,
    /// Part of another operation, on another file.
    Lower,
    /// Anything else, such as file I/O of kernel threads.
    Other,
}

impl Source {
    /// The origin for a word of `ops.source`.
    pub fn of(word: &str) -> Self {
        match word {
            "syscall" | "replay" => Self::Call,
            "io_uring" | "aio" => Self::Request,
            "fault" => Self::Fault,
            "tool" => Self::Tool,
            "lower" => Self::Lower,
            _ => Self::Other,
        }
    }
}

impl<'a> Call<'a> {
    /// Bytes moved: the result of a read, write or copy.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write | Kind::Copy => self.ret.and_then(|r| u64::try_from(r).ok()).unwrap_or(0),
            Kind::Sync | Kind::Metadata | Kind::Other => 0,
        }
    }

    /// Bytes read, with where they come from, and bytes written, with where they go to.
    pub fn moved(&self) -> ((Target, u64), (Target, u64)) {
        let bytes = self.bytes();
        match self.kind {
            Kind::Read => ((self.target, bytes), (Target::Files, 0)),
            Kind::Write => ((Target::Files, 0), (self.target, bytes)),
            Kind::Copy => ((self.target, bytes), (self.target2, bytes)),
            Kind::Sync | Kind::Metadata | Kind::Other => ((Target::Files, 0), (Target::Files, 0)),
        }
    }

    /// The call as reads and writes of single files: a copy is a read of its source and a write of its destination.
    pub fn parts(&self) -> impl Iterator<Item = Self> {
        let (first, second) = match self.kind {
            Kind::Copy => {
                let (file, target, offset_bytes) = (self.file2, self.target2, self.offset2_bytes);
                let none = Self { file2: None, target2: Target::Files, offset2_bytes: None, ..*self };
                (
                    Self { kind: Kind::Read, ..none },
                    Some(Self { kind: Kind::Write, file, target, offset_bytes, ..none }),
                )
            }
            _ => (*self, None),
        };
        [Some(first), second].into_iter().flatten()
    }

    /// The errno of a failed call, positive. A negative address of a mapping is not an error.
    pub fn errno(&self) -> Option<i32> {
        self.ret.filter(|r| (-4095..0).contains(r)).map(|r| -r as i32)
    }

    /// Time of return; if in flight, of entry.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.dur_ns.unwrap_or(0))
    }
}

/// The columns of [`Call`], then those of [`Detail`].
const COLUMNS: [&str; 18] = [
    "op_id",
    "start_ns",
    "dur_ns",
    "task_id",
    "op",
    "source",
    "state",
    "file",
    "file2",
    "offset_bytes",
    "offset2_bytes",
    "aux",
    "ret",
    "path",
    "len_bytes",
    "flags",
    "sqe_flags",
    "off_cpu_ns",
];
/// Number of columns without details.
const PLAIN: usize = 13;

/// Calls `each` with every operation, segment by segment. Skips operations of source `lower`, which are part of other
/// operations on other files and were already counted there. Memory: one batch.
///
/// # Errors
/// When the reel cannot be read.
pub fn each_call(reel: &Reel, mut each: impl FnMut(&Call<'_>)) -> Result<()> {
    each_call_settled(reel, |call, _| each(call))
}

/// Like [`each_call`], and passes the time before which nothing in later segments starts.
pub(crate) fn each_call_settled(reel: &Reel, each: impl FnMut(&Call<'_>, i64)) -> Result<()> {
    each_of(reel, &COLUMNS[..PLAIN], each)
}

/// Like [`each_call_settled`], with details.
pub(crate) fn each_detailed_call(reel: &Reel, each: impl FnMut(&Call<'_>, i64)) -> Result<()> {
    each_of(reel, &COLUMNS, each)
}

fn each_of(reel: &Reel, columns: &'static [&'static str], mut each: impl FnMut(&Call<'_>, i64)) -> Result<()> {
    let mut known: HashMap<Text, usize> = HashMap::new();
    let targets = Targets::of(reel)?;
    let listed = reel.manifest.segments.get(Op::TABLE).map(Vec::as_slice).unwrap_or_default();
    let batches = settled_ns(listed)
        .into_iter()
        .enumerate()
        .flat_map(|(i, settled_ns)| reel.segment_batches::<Op>(i, columns).map(move |batch| (settled_ns, batch)));
    for (settled_ns, batch) in batches {
        let batch = batch?;
        let words = Words::of(&batch, &mut known).map_err(bad_column(Op::TABLE))?;
        let columns = Columns::of(&batch, &words).map_err(bad_column(Op::TABLE))?;
        for i in 0..batch.num_rows() {
            if let Some(call) = columns.get(i, &targets) {
                each(&call, settled_ns);
            }
        }
    }
    Ok(())
}

/// The columns of text of one batch.
struct Words<'a> {
    op: Column<'a>,
    source: Column<'a>,
    state: Column<'a>,
    path: Column<'a>,
    /// For each entry of the dictionary of `op`: its kind, its number in this pass, and whether its position is an offset.
    ops: Vec<Option<(Kind, usize, bool)>>,
}

impl<'a> Words<'a> {
    fn of(batch: &'a RecordBatch, known: &mut HashMap<Text, usize>) -> Result<Self, String> {
        let text = |name| column::<Text>(batch, name);
        let (op, source, state) = (text("op")?, text("source")?, text("state")?);
        let path = column::<Option<Text>>(batch, "path")?;
        let (Column::Text(_, names), Column::Text(..), Column::Text(..)) = (&op, &source, &state) else {
            return Err("op, source or state is no text".into());
        };
        // Evaluated once per dictionary entry instead of once per row.
        let ops = names
            .iter()
            .map(|n| {
                let n = n.as_ref()?;
                let next = known.len();
                Some((Kind::of(n), *known.entry(n.clone()).or_insert(next), has_offset(n)))
            })
            .collect();
        Ok(Self { op, source, state, path, ops })
    }
}

/// What a row says of its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    InFlight,
    Unknown,
}

/// All columns of one batch.
struct Columns<'a> {
    numbers: [Column<'a>; 4],
    file: Column<'a>,
    file2: Column<'a>,
    offset_bytes: Column<'a>,
    offset2_bytes: Column<'a>,
    aux: Column<'a>,
    ret: Column<'a>,
    len_bytes: Column<'a>,
    flags: Column<'a>,
    sqe_flags: Column<'a>,
    off_cpu_ns: Column<'a>,
    words: &'a Words<'a>,
    /// For each entry of the dictionaries of `source` and `state`.
    sources: Vec<Source>,
    ends: Vec<End>,
}

fn entry<'a>(column: &'a Column<'a>, i: usize) -> Option<(usize, Option<&'a Text>)> {
    let Column::Text(keys, words) = column else { return None };
    let key = keys.key(i)?;
    Some((key, words.get(key)?.as_ref()))
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch, words: &'a Words<'a>) -> Result<Self, String> {
        let number = |name| column::<i64>(batch, name);
        let maybe = |name| column::<Option<i64>>(batch, name);
        let list = |column: &'a Column<'a>| -> Vec<&'a str> {
            let Column::Text(_, words) = column else { return Vec::new() };
            words.iter().map(|w| w.as_ref().map_or("", |w| &**w)).collect()
        };
        let end = |state: &str| match state {
            "complete" => End::Complete,
            "in_flight_at_end" => End::InFlight,
            _ => End::Unknown,
        };
        Ok(Self {
            numbers: [number("op_id")?, number("start_ns")?, number("dur_ns")?, number("task_id")?],
            file: maybe("file")?,
            file2: maybe("file2")?,
            offset_bytes: maybe("offset_bytes")?,
            offset2_bytes: maybe("offset2_bytes")?,
            aux: maybe("aux")?,
            ret: maybe("ret")?,
            len_bytes: maybe("len_bytes")?,
            flags: maybe("flags")?,
            sqe_flags: column::<Option<i32>>(batch, "sqe_flags")?,
            off_cpu_ns: maybe("off_cpu_ns")?,
            words,
            sources: list(&words.source).into_iter().map(Source::of).collect(),
            ends: list(&words.state).into_iter().map(end).collect(),
        })
    }

    /// Row `i`; nothing if it has no name, or if its bytes and time are part of another row.
    fn get(&self, i: usize, targets: &Targets) -> Option<Call<'_>> {
        let (key, op) = entry(&self.words.op, i)?;
        let (kind, op_index, has_offset) = self.words.ops.get(key).copied().flatten()?;
        let source = entry(&self.words.source, i).and_then(|(key, _)| self.sources.get(key)).copied();
        let source = source.unwrap_or(Source::Other);
        if source == Source::Lower {
            return None;
        }
        let end = entry(&self.words.state, i).and_then(|(key, _)| self.ends.get(key)).copied().unwrap_or(End::Unknown);
        let [op_id, start_ns, dur_ns, task_id] = self.numbers.each_ref().map(|c| <i64 as Cell>::get(c, i));
        let maybe = |column| <Option<i64> as Cell>::get(column, i);
        let op = op?;
        let (file, file2) = (maybe(&self.file), maybe(&self.file2));
        Some(Call {
            op_id,
            op,
            kind,
            op_index,
            start_ns,
            dur_ns: (end == End::Complete).then_some(dur_ns),
            task_id,
            in_flight: end == End::InFlight,
            by_tool: source == Source::Tool,
            file,
            file2,
            target: targets.of_file(file),
            target2: targets.of_file(file2),
            offset_bytes: maybe(&self.offset_bytes).filter(|_| has_offset),
            offset2_bytes: maybe(&self.offset2_bytes),
            aux: maybe(&self.aux),
            ret: maybe(&self.ret),
            detail: Detail {
                source,
                path: entry(&self.words.path, i).and_then(|(_, path)| path),
                len_bytes: maybe(&self.len_bytes),
                flags: maybe(&self.flags),
                sqe_flags: <Option<i32> as Cell>::get(&self.sqe_flags, i),
                off_cpu_ns: maybe(&self.off_cpu_ns),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_a_read_of_one_file_and_a_write_of_the_other() {
        let (op, read) = (Text::from("copy_file_range"), Text::from("read"));
        let copy = Call {
            op_id: 1,
            op: &op,
            kind: Kind::Copy,
            op_index: 0,
            start_ns: 5,
            dur_ns: Some(2),
            task_id: 1,
            in_flight: false,
            by_tool: false,
            file: Some(3),
            file2: Some(4),
            target: Target::Files,
            target2: Target::Files,
            offset_bytes: Some(100),
            offset2_bytes: Some(7),
            aux: None,
            ret: Some(50),
            detail: Detail::default(),
        };
        let told: Vec<_> = copy.parts().map(|c| (c.kind, c.file, c.offset_bytes, c.bytes(), c.end_ns())).collect();
        assert_eq!(told, [(Kind::Read, Some(3), Some(100), 50, 7), (Kind::Write, Some(4), Some(7), 50, 7)]);
        let single = Call { op: &read, kind: Kind::Read, ..copy };
        assert_eq!(single.parts().map(|c| (c.kind, c.file)).collect::<Vec<_>>(), [(Kind::Read, Some(3))]);
    }
}
