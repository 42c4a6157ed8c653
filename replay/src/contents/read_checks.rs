//! What is read, held against what was written: `--verify`.
//!
//! Data depends on file and position, so a read can be checked without knowing which write it came from. Zeros are
//! holes, unless the unit they are in was written as a whole. A write that was lost where the same data had been before is not found.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use serde::Serialize;

use crate::{
    Call,
    contents::{
        buffers::WINDOW_BYTES,
        data::{Data, UNIT_BYTES, file_of},
        slice_contents::InitialData,
    },
    reel::input::{NO_ID, Rec},
};

/// Examples kept of reads that got something else.
const EXAMPLES: usize = 10;
/// Files are spread over so many locks.
const SHARDS: usize = 64;

/// What checking found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DataCheck {
    /// Bytes of reads that were what had been written.
    pub good_bytes: i64,
    /// Of these, zeros of holes.
    pub hole_bytes: i64,
    /// Bytes of reads from files whose content came by copying, or moved: not checked.
    pub unchecked_bytes: i64,
    /// Bytes that are something else.
    pub bad_bytes: i64,
    /// Reads that got such.
    pub bad_reads: i64,
    /// The first of them.
    pub examples: Vec<BadRead>,
}

/// A read that got something else than was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadRead {
    /// The file: key into the reel's `files`.
    pub file: i64,
    /// Its path, where the reel tells it.
    pub path: Option<String>,
    /// Position of the first wrong byte, in the target's file.
    pub offset_bytes: i64,
    /// Wrong bytes of this read.
    pub bytes: i64,
}

#[derive(Debug, Default)]
struct Known {
    /// Units that were written as a whole, by this operation or before.
    units: HashSet<i64>,
    /// Units before this one were, before the start.
    prepared: i64,
    /// Content came from elsewhere.
    foreign: bool,
}

/// What becomes of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These bytes were written.
    Wrote { from: i64, to: i64 },
    /// Its length was set: what lies behind is gone.
    Cut { len: i64 },
    /// It got room, and may be longer: of no data.
    Reserved,
    /// Content came from elsewhere, or moved.
    Foreign,
}

/// Which file's data an operation that returned `ret` changed, and how.
pub(crate) fn change(r: &Rec, ret: i64) -> Option<(i64, Change)> {
    if ret < 0 {
        return None;
    }
    let known = |file: i64| Some(file).filter(|f| *f != NO_ID);
    let cut = |len: i64| Change::Cut { len: len.max(0) };
    match r.call {
        // Its data is not generated.
        c if c.writes() && r.len_bytes > WINDOW_BYTES as i64 => file_of(r).map(|file| (file, Change::Foreign)),
        c if c.writes() => {
            let from = r.offset_bytes.max(0);
            file_of(r).map(|file| (file, Change::Wrote { from, to: from.saturating_add(ret) }))
        }
        Call::Ftruncate => known(r.file).map(|file| (file, cut(r.len_bytes))),
        Call::Fallocate => {
            let moves = r.mode & !libc::FALLOC_FL_KEEP_SIZE != 0;
            known(r.file).map(|file| (file, if moves { Change::Foreign } else { Change::Reserved }))
        }
        c if c.opens() && (r.flags as i32 & libc::O_TRUNC != 0 || c == Call::Creat) => {
            known(r.file).map(|file| (file, cut(0)))
        }
        c if c.copies() || c.clones() || c.dedupes() => known(r.file2).map(|file| (file, Change::Foreign)),
        Call::Truncate => known(r.file2).map(|file| (file, cut(r.len_bytes))),
        _ => None,
    }
}

/// The state of checking.
#[derive(Debug)]
pub(crate) struct Checks {
    files: Vec<Mutex<HashMap<i64, Known>>>,
    good: AtomicI64,
    holes: AtomicI64,
    unchecked: AtomicI64,
    bad: AtomicI64,
    bad_reads: AtomicI64,
    examples: Mutex<Vec<BadRead>>,
}

impl Checks {
    /// `there`: what files hold before the start.
    pub(crate) fn new(there: impl IntoIterator<Item = (i64, InitialData)>) -> Self {
        let checks = Self {
            files: (0..SHARDS).map(|_| Mutex::default()).collect(),
            good: AtomicI64::new(0),
            holes: AtomicI64::new(0),
            unchecked: AtomicI64::new(0),
            bad: AtomicI64::new(0),
            bad_reads: AtomicI64::new(0),
            examples: Mutex::default(),
        };
        for (file, left) in there {
            checks.of(file, |k| (k.prepared, k.foreign) = (left.data_bytes / UNIT_BYTES, left.foreign));
        }
        checks
    }

    fn of<T>(&self, file: i64, with: impl FnOnce(&mut Known) -> T) -> T {
        let shard = &self.files[file as usize % SHARDS];
        with(shard.lock().unwrap_or_else(PoisonError::into_inner).entry(file).or_default())
    }

    /// An operation that changes a file ended.
    pub(crate) fn changed(&self, r: &Rec, ret: i64) {
        let Some((file, change)) = change(r, ret) else { return };
        match change {
            Change::Wrote { from, to } => {
                let units = from.saturating_add(UNIT_BYTES - 1) / UNIT_BYTES..to / UNIT_BYTES;
                if !units.is_empty() {
                    self.of(file, |k| k.units.extend(units));
                }
            }
            Change::Cut { len } => self.of(file, |k| {
                let whole = len / UNIT_BYTES;
                k.prepared = k.prepared.min(whole);
                k.units.retain(|u| *u < whole);
                k.foreign &= len > 0;
            }),
            Change::Reserved => {}
            Change::Foreign => self.of(file, |k| k.foreign = true),
        }
    }

    /// A read at the operation's position returned `ret` and got `got`, if that could be kept.
    pub(crate) fn read(&self, data: &Data, (r, ret): (&Rec, i64), got: Option<&[u8]>) {
        let Some(file) = file_of(r) else { return };
        let Some(got) = got else {
            self.unchecked.fetch_add(ret, Relaxed);
            return;
        };
        let mut expected = vec![0; got.len()];
        data.make(r, file, r.offset_bytes, &mut expected);
        let (mut good, mut holes, mut bad, mut first) = (0, 0, 0, None);
        self.of(file, |k| {
            if k.foreign {
                self.unchecked.fetch_add(got.len() as i64, Relaxed);
                return;
            }
            if *got == *expected {
                good = got.len() as i64;
                return;
            }
            for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
                let at = r.offset_bytes.saturating_add(i as i64);
                let unit = at / UNIT_BYTES;
                if g == e {
                    good += 1;
                } else if *g == 0 && unit >= k.prepared && !k.units.contains(&unit) {
                    (good, holes) = (good + 1, holes + 1);
                } else {
                    bad += 1;
                    first.get_or_insert(at);
                }
            }
        });
        self.good.fetch_add(good, Relaxed);
        self.holes.fetch_add(holes, Relaxed);
        if let Some(offset_bytes) = first {
            self.bad.fetch_add(bad, Relaxed);
            self.bad_reads.fetch_add(1, Relaxed);
            let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
            if examples.len() < EXAMPLES {
                examples.push(BadRead { file, path: None, offset_bytes, bytes: bad });
            }
        }
    }

    /// What was found so far.
    pub(crate) fn found(&self) -> DataCheck {
        DataCheck {
            good_bytes: self.good.load(Relaxed),
            hole_bytes: self.holes.load(Relaxed),
            unchecked_bytes: self.unchecked.load(Relaxed),
            bad_bytes: self.bad.load(Relaxed),
            bad_reads: self.bad_reads.load(Relaxed),
            examples: self.examples.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
