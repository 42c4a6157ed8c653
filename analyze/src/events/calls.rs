//! Streams the operations of a reel, and classifies system calls.

use std::collections::HashMap;

use ioreel_traces::{
    Reel, Text,
    rows::Op,
    table::{Cell, Column, Row, column},
};
use serde::Serialize;

use crate::{Result, bad_column, events::order::settled_ns};

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
            | "io_cancel" | "io_getevents" | "io_pgetevents" | "poll" | "noop" => Self::Other,
            _ => Self::Metadata,
        }
    }
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
    /// Offset in the file.
    pub offset_bytes: Option<i64>,
    /// Further argument. For an open, bit 0 means that it created the file.
    pub aux: Option<i64>,
    /// Result or -errno.
    pub ret: Option<i64>,
}

impl Call<'_> {
    /// Bytes moved: the result of a read, write or copy.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write | Kind::Copy => self.ret.and_then(|r| u64::try_from(r).ok()).unwrap_or(0),
            Kind::Sync | Kind::Metadata | Kind::Other => 0,
        }
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

const COLUMNS: [&str; 12] =
    ["op_id", "start_ns", "dur_ns", "task_id", "op", "source", "state", "file", "file2", "offset_bytes", "aux", "ret"];

/// Calls `each` with every operation, segment by segment. Skips operations of source `lower`, which are part of other
/// operations on other files and were already counted there. Memory: one batch.
///
/// # Errors
/// When the reel cannot be read.
pub fn each_call(reel: &Reel, mut each: impl FnMut(&Call<'_>)) -> Result<()> {
    each_call_settled(reel, |call, _| each(call))
}

/// Like [`each_call`], and passes the time before which nothing in later segments starts.
pub(crate) fn each_call_settled(reel: &Reel, mut each: impl FnMut(&Call<'_>, i64)) -> Result<()> {
    let mut known: HashMap<Text, usize> = HashMap::new();
    let listed = reel.manifest.segments.get(Op::TABLE).map(Vec::as_slice).unwrap_or_default();
    let batches = settled_ns(listed)
        .into_iter()
        .enumerate()
        .flat_map(|(i, settled_ns)| reel.segment_batches::<Op>(i, &COLUMNS).map(move |batch| (settled_ns, batch)));
    for (settled_ns, batch) in batches {
        let batch = batch?;
        let bad = |why| bad_column(Op::TABLE)(why);
        let op_id = column::<i64>(&batch, "op_id").map_err(bad)?;
        let start_ns = column::<i64>(&batch, "start_ns").map_err(bad)?;
        let dur_ns = column::<i64>(&batch, "dur_ns").map_err(bad)?;
        let task_id = column::<i64>(&batch, "task_id").map_err(bad)?;
        let (file, file2) =
            (column::<Option<i64>>(&batch, "file").map_err(bad)?, column::<Option<i64>>(&batch, "file2").map_err(bad)?);
        let ret = column::<Option<i64>>(&batch, "ret").map_err(bad)?;
        let offset_bytes = column::<Option<i64>>(&batch, "offset_bytes").map_err(bad)?;
        let aux = column::<Option<i64>>(&batch, "aux").map_err(bad)?;
        let (op, source, state) = (
            column::<Text>(&batch, "op").map_err(bad)?,
            column::<Text>(&batch, "source").map_err(bad)?,
            column::<Text>(&batch, "state").map_err(bad)?,
        );
        let (Column::Text(op, names), Column::Text(source, sources), Column::Text(state, states)) =
            (&op, &source, &state)
        else {
            return Err(bad("op, source or state is no text".into()));
        };
        // Evaluated once per dictionary entry instead of once per row.
        let names: Vec<Option<(&Text, Kind, usize)>> = names
            .iter()
            .map(|n| {
                let n = n.as_ref()?;
                let next = known.len();
                Some((n, Kind::of(n), *known.entry(n.clone()).or_insert(next)))
            })
            .collect();
        let equals = |column: &[Option<Text>], text: &str| {
            column.iter().map(|t| t.as_ref().is_some_and(|t| *t == *text)).collect::<Vec<bool>>()
        };
        let (by_tool, complete) = (equals(sources, "tool"), equals(states, "complete"));
        let lower = equals(sources, "lower");
        let in_flight = equals(states, "in_flight_at_end");
        for i in 0..batch.num_rows() {
            let Some((op, kind, op_index)) = op.key(i).and_then(|k| names.get(k).copied().flatten()) else { continue };
            let is = |which: &[bool], key: Option<usize>| key.and_then(|k| which.get(k).copied()).unwrap_or(false);
            // Its bytes and time are already counted.
            if is(&lower, source.key(i)) {
                continue;
            }
            let call = Call {
                op_id: <i64 as Cell>::get(&op_id, i),
                op,
                kind,
                op_index,
                start_ns: <i64 as Cell>::get(&start_ns, i),
                dur_ns: is(&complete, state.key(i)).then(|| <i64 as Cell>::get(&dur_ns, i)),
                task_id: <i64 as Cell>::get(&task_id, i),
                in_flight: is(&in_flight, state.key(i)),
                by_tool: is(&by_tool, source.key(i)),
                file: <Option<i64> as Cell>::get(&file, i),
                file2: <Option<i64> as Cell>::get(&file2, i),
                offset_bytes: <Option<i64> as Cell>::get(&offset_bytes, i),
                aux: <Option<i64> as Cell>::get(&aux, i),
                ret: <Option<i64> as Cell>::get(&ret, i),
            };
            each(&call, settled_ns);
        }
    }
    Ok(())
}
