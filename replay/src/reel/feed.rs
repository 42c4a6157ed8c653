//! Streams the operations of a reel by return time, with bounded memory.
//!
//! A segment is sorted by entry and holds the operations that returned while it was open, so segments overlap in time.
//! Each one is read only as far as needed to know the next operation to return.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, VecDeque},
};

use ioreel_traces::{
    Reel, ReelError, Text,
    reader::Rows,
    rows::{self, Op},
    table::{Column, Row, column},
    text::to_bytes,
};

use crate::{
    Call, ReplayError,
    base::{budget::Budget, file_kind::Kind},
    reel::roots::Roots,
};

/// A segment that is not open yet.
#[derive(Clone, Copy, Debug)]
struct Closed {
    index: usize,
    first_row: u32,
    /// Earliest entry in it.
    start_ns: i64,
    end_ns: i64,
}

/// An open segment.
struct Open {
    rows: Rows<Op>,
    next_row: u32,
    /// Lower bound of the entries, and so of the returns, of the rows still to come.
    from_ns: i64,
}

/// This many segments are opened at the earliest entry in them, the others at the earliest return. If every segment
/// held one operation that took very long, opening all at their earliest entry would open all of them at once.
const AHEAD: usize = 2;
/// Rows read from a segment at a time.
const ROWS: usize = 512;

/// Reads the rows of `ops`, numbered over all segments.
pub(crate) struct Feed {
    reel: Reel,
    closed: VecDeque<Closed>,
    open: Vec<Open>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("closed", &self.closed).field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Feed {
    /// Starts at the beginning of the reel.
    pub(crate) fn new(reel: &Reel) -> Result<Self, ReplayError> {
        let mut closed = Vec::new();
        let mut first_row = 0;
        for index in 0..reel.segments::<Op>().len() {
            if let Some(span) = reel.segment_span::<Op>(index)? {
                closed.push(Closed { index, first_row, start_ns: span.first_ns, end_ns: span.first_end_ns });
                first_row += span.rows as u32;
            }
        }
        closed.sort_by_key(|c| c.end_ns);
        Ok(Self { reel: reel.clone(), closed: closed.into(), open: Vec::new() })
    }

    /// Reads at least all rows that returned by `until_ns`, and passes each row and its number to `take`.
    pub(crate) fn read(
        &mut self,
        until_ns: i64,
        mut take: impl FnMut(u32, &Op) -> Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < self.closed.len() {
            let c = self.closed[at];
            let from_ns = if at < AHEAD { c.start_ns } else { c.end_ns };
            if from_ns <= until_ns {
                self.closed.remove(at);
                let rows = self.reel.segment_rows::<Op>(c.index);
                self.open.push(Open { rows, next_row: c.first_row, from_ns: c.start_ns });
            } else if at >= AHEAD {
                break;
            } else {
                at += 1;
            }
        }
        for open in &mut self.open {
            while open.from_ns <= until_ns {
                let mut ended = true;
                for row in open.rows.by_ref().take(ROWS) {
                    let row = row?;
                    take(open.next_row, &row)?;
                    open.next_row += 1;
                    open.from_ns = row.start_ns;
                    ended = false;
                }
                if ended {
                    open.from_ns = i64::MAX;
                    break;
                }
            }
        }
        self.open.retain(|o| o.from_ns < i64::MAX);
        Ok(())
    }

    /// Whether all rows were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.is_empty()
    }

    /// Lower bound of the return times of the rows not read yet, ns.
    pub(crate) fn left_ns(&self) -> i64 {
        // The others are sorted.
        let first = self.closed.iter().take(AHEAD + 1).enumerate();
        let closed = first.map(|(i, c)| if i < AHEAD { c.start_ns } else { c.end_ns });
        self.open.iter().map(|o| o.from_ns).chain(closed).min().unwrap_or(i64::MAX)
    }
}

/// All rows of a table, in the order of the reel.
pub(super) fn all<R: Row>(reel: &Reel, budget: &mut Budget) -> Result<Vec<R>, ReplayError> {
    let mut all = Vec::new();
    for row in reel.rows::<R>() {
        all.push(row?);
        budget.row()?;
    }
    Ok(all)
}

/// All rows of a table in time order.
pub(super) fn sorted<R: Row>(reel: &Reel, budget: &mut Budget) -> Result<Vec<R>, ReplayError> {
    let mut all = all::<R>(reel, budget)?;
    all.sort_by_key(Row::time_ns);
    Ok(all)
}

/// How often a descriptor of each open file description was received by message or taken out of another process, by
/// the id of the description. Must be known when the file is opened, because the sender may close it before the receipt.
pub(super) fn receipts(reel: &Reel, budget: &mut Budget) -> Result<HashMap<i64, u32>, ReplayError> {
    let is_receipt = |op: &Option<Text>| op.as_deref().is_some_and(|op| Call::from_name(op).receives());
    let mut found = HashMap::new();
    for (index, path) in reel.segments::<Op>().into_iter().enumerate() {
        let bad = |why| ReelError::BadSegment { path: path.clone(), why };
        let mut has_some = false;
        // Texts are compared once for each batch, so that a reel without receipts takes little time.
        for batch in reel.segment_batches::<Op>(index, &["op"]) {
            if let Column::Text(_, texts) = column::<Text>(&batch?, "op").map_err(bad)? {
                has_some |= texts.iter().any(is_receipt);
            }
        }
        let rows = if has_some { Some(reel.segment_rows::<Op>(index)) } else { None };
        for row in rows.into_iter().flatten() {
            let row = row?;
            if let (true, Some(ofd)) = (Call::from_name(&row.op).receives(), row.ofd) {
                *found.entry(ofd).or_default() += 1;
                budget.row()?;
            }
        }
    }
    Ok(found)
}

/// The files with these ids.
pub(super) fn files_of(
    reel: &Reel,
    mut wanted: HashSet<i64>,
    roots: &Roots,
) -> Result<HashMap<i64, FileInfo>, ReplayError> {
    let mut found = HashMap::new();
    let mut rows = reel.rows::<rows::File>();
    while !wanted.is_empty()
        && let Some(f) = rows.next().transpose()?
    {
        if wanted.remove(&f.file) {
            found.insert(f.file, FileInfo::of(f, roots));
        }
    }
    Ok(found)
}

/// Size of the reel's files.
pub(super) fn size_bytes(reel: &Reel) -> u64 {
    let files: HashSet<&str> = reel.manifest.segments.values().flatten().map(|s| s.file.as_str()).collect();
    files.iter().filter_map(|f| reel.path().join(f).metadata().ok()).map(|m| m.len()).sum()
}

/// Key (return, entry, row) and id of an operation.
pub(crate) type Returned = ((i64, i64, u32), u32);

/// Ids of the operations that were read and have not taken effect.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By return, earliest first.
    pub(crate) by_end: BinaryHeap<Reverse<Returned>>,
    /// By entry, earliest first: (entry, row, id).
    pub(crate) by_start: BinaryHeap<Reverse<(i64, u32, u32)>>,
}

/// Reads the table `files` in the order in which files were first seen.
#[derive(Debug)]
pub(crate) struct FileFeed {
    reel: Reel,
    /// Earliest time in each segment, ns, and index of the segment.
    closed: VecDeque<(i64, usize)>,
}

impl FileFeed {
    pub(crate) fn new(reel: &Reel) -> Result<Self, ReplayError> {
        let mut closed = Vec::new();
        for index in 0..reel.segments::<rows::File>().len() {
            if let Some(first) = reel.segment_rows::<rows::File>(index).next() {
                closed.push((first?.first_ns, index));
            }
        }
        closed.sort_unstable();
        Ok(Self { reel: reel.clone(), closed: closed.into() })
    }

    /// Passes all files first seen by `until_ns` to `take`. Reads whole segments, so some later files may be among
    /// them.
    pub(crate) fn read(
        &mut self,
        until_ns: i64,
        mut take: impl FnMut(rows::File) -> Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        while self.closed.front().is_some_and(|c| c.0 <= until_ns) {
            if let Some((_, index)) = self.closed.pop_front() {
                for file in self.reel.segment_rows::<rows::File>(index) {
                    take(file?)?;
                }
            }
        }
        Ok(())
    }
}

/// What the planner needs to know about a file.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Its kind.
    pub kind: Kind,
    /// Absolute path when first seen, if it was open before the recording started.
    pub path: Option<Text>,
    /// Permission bits when first seen.
    pub mode: Option<i32>,
    /// Size when first seen.
    pub size_bytes: Option<i64>,
    /// When first seen, ns of the reel.
    pub first_ns: i64,
    /// It had a name inside the roots of the replay when first seen.
    pub within: bool,
    /// Already unlinked when first seen; `path` is its former name.
    pub unlinked: bool,
    /// Device as stat(2) returns it.
    pub dev: i64,
    /// Inode number.
    pub ino: i64,
    /// Inode number of the peer of a unix socket.
    pub peer_ino: Option<i64>,
}

impl FileInfo {
    pub(super) fn of(row: rows::File, roots: &Roots) -> Self {
        Self {
            first_ns: row.first_ns,
            within: !row.path_is_gone() && row.path.as_ref().is_some_and(|p| roots.contain(&to_bytes(p))),
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
