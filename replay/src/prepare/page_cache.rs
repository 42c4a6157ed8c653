//! What the page cache holds when the replay begins.
//!
//! A recording with `--cache` tells of each page that is read in. So what was read without having been filled was there from the
//! start; what was filled was not; what nobody touched does not matter.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use ioreel_traces::{Reel, rows};
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use serde::Serialize;

use crate::{
    ReplayError,
    contents::buffers::Sink,
    model::names::{NO_NODE, NodeId},
    plan::program::Plan,
    prepare::tree::{Item, What},
    reel::{
        footprint::Scale,
        input::{NO_ID, Rec},
    },
};

/// The cache is told of in pages of this size.
const PAGE_BYTES: i64 = 4096;
/// Read at a time.
const READ_BYTES: usize = 1 << 20;

/// What the page cache is to hold at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheStart {
    /// Whatever making the tree left there.
    #[default]
    Prepared,
    /// Nothing.
    Cold,
    /// All that files hold.
    Warm,
    /// What it held in the original.
    Recorded,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// What was wanted.
    pub start: CacheStart,
    /// Bytes read in before the start.
    pub resident_bytes: i64,
}

/// Finds out what was resident, while a plan is made.
#[derive(Debug, Default)]
pub struct Residence {
    /// When a page of a file was first read in.
    fills: HashMap<(i64, i64), i64>,
    /// Pages of which it is decided.
    seen: HashSet<(i64, i64)>,
    /// Pages that were there, by place of the file at the start.
    resident: HashMap<NodeId, Vec<Range<i64>>>,
}

impl Residence {
    /// From the reel's table; `None` when it has none.
    pub(crate) fn read(reel: &Reel, from_ns: i64) -> Result<Option<Self>, ReplayError> {
        if !reel.manifest.ledger.contains_key("cache") {
            return Ok(None);
        }
        let mut out = Self::default();
        for row in reel.rows::<rows::Cache>() {
            let row = row?;
            if *row.event != *"fill" || row.time_ns < from_ns {
                continue;
            }
            for page in pages(row.offset_bytes, row.len_bytes) {
                let first = out.fills.entry((row.file, page)).or_insert(row.time_ns);
                *first = (*first).min(row.time_ns);
            }
        }
        Ok(Some(out))
    }

    /// A call that returned at `end_ns` of the reel read a file that stood at `pre`; or wrote to it, and so decided what nobody read.
    pub(crate) fn touched(&mut self, r: &Rec, end_ns: i64, pre: NodeId) {
        let file = r.file;
        if pre == NO_NODE || file == NO_ID || r.offset_bytes == NO_ID || r.ret < 0 {
            return;
        }
        let len = if r.call.touches() { r.len_bytes } else { r.ret };
        for page in pages(r.offset_bytes, len) {
            if !self.seen.insert((file, page)) || r.call.writes() {
                continue;
            }
            if self.fills.get(&(file, page)).is_some_and(|at| *at <= end_ns) {
                continue;
            }
            let ranges = self.resident.entry(pre).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => ranges.push(page..page + 1),
            }
        }
    }

    /// Pages that were resident, by place.
    pub(crate) fn take(self) -> HashMap<NodeId, Vec<Range<i64>>> {
        self.resident
    }
}

fn pages(offset: i64, len: i64) -> Range<i64> {
    let from = offset.max(0);
    // A reel may claim any length.
    let to = from.saturating_add(len.clamp(0, 1 << 31));
    from / PAGE_BYTES..to.saturating_add(PAGE_BYTES - 1) / PAGE_BYTES
}

/// Parts of files to be read in.
#[derive(Clone, Debug, Default)]
pub struct Warm(Vec<(Vec<u8>, Vec<Range<i64>>)>);

impl Warm {
    /// What is to be read for this start: byte ranges by path.
    pub(crate) fn of(start: CacheStart, plan: &Plan, items: &[Item], scale: Scale) -> Self {
        match start {
            CacheStart::Prepared | CacheStart::Cold => Self::default(),
            CacheStart::Warm => {
                let files = items.iter().filter_map(|i| match i.what {
                    What::Regular { size_bytes, .. } => {
                        Some((i.path.clone(), std::iter::once(0..size_bytes).collect()))
                    }
                    _ => None,
                });
                Self(files.collect())
            }
            CacheStart::Recorded => {
                let bytes = |r: &Range<i64>| {
                    let from = scale.position(r.start.saturating_mul(PAGE_BYTES));
                    from..from + scale.length(from, (r.end - r.start).saturating_mul(PAGE_BYTES))
                };
                let files = plan
                    .resident
                    .iter()
                    .map(|(node, ranges)| (plan.names.path(*node), ranges.iter().map(bytes).collect()));
                let mut files: Vec<_> = files.collect();
                files.sort_unstable_by(|a: &(Vec<u8>, Vec<Range<i64>>), b| a.0.cmp(&b.0));
                Self(files)
            }
        }
    }

    /// Reads them; the calling thread is inside the target. Bytes read.
    pub(crate) fn read(&self) -> i64 {
        let mut sink = Sink::default();
        let mut done = 0;
        for (path, ranges) in &self.0 {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(fd) = open(path.as_slice(), flags, Mode::empty()) else { continue };
            // Only what is asked for.
            let _ = fadvise(&fd, 0, None, Advice::Random);
            for range in ranges {
                let mut at = range.start;
                while at < range.end {
                    let len = (READ_BYTES as i64).min(range.end - at) as usize;
                    let to = sink.at(len);
                    if to.is_null() {
                        break;
                    }
                    // SAFETY: the mapping is this thread's own and at least so long.
                    let buffer = unsafe { std::slice::from_raw_parts_mut(to, len) };
                    match rustix::io::pread(&fd, buffer, at as u64) {
                        Ok(n) if n > 0 => {
                            at += n as i64;
                            done += n as i64;
                        }
                        // Its end, or not to be read.
                        _ => break,
                    }
                }
            }
        }
        done
    }
}

/// Forgets what is cached of these files, which are written out; the calling thread is inside the target.
pub(crate) fn forget(items: &[Item]) {
    for item in items.iter().filter(|i| matches!(i.what, What::Regular { .. })) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(fd) = open(item.path.as_slice(), flags, Mode::empty()) {
            // What is in use stays.
            let _ = fadvise(&fd, 0, None, Advice::DontNeed);
        }
    }
}
