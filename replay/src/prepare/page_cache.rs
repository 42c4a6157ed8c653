//! Brings the page cache into its initial state.

use std::ops::Range;

use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use serde::Serialize;

use crate::{
    contents::buffers::Sink,
    plan::program::Plan,
    prepare::tree::{Item, ItemKind},
    reel::{footprint::Scale, residence::PAGE_BYTES},
};

/// Size of a read.
const READ_BYTES: usize = 1 << 20;

/// `--cache`: contents of the page cache at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheStart {
    /// As the preparation left it.
    #[default]
    Prepared,
    /// Empty.
    Cold,
    /// All data of all files.
    Warm,
    /// As known from the recording.
    Recorded,
}

/// What was read into the page cache before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// The state asked for.
    pub start: CacheStart,
    /// Bytes read.
    pub resident_bytes: i64,
}

/// Ranges of files to read.
#[derive(Clone, Debug, Default)]
pub struct Warm(Vec<(Vec<u8>, Vec<Range<i64>>)>);

impl Warm {
    /// The byte ranges to read, by path.
    pub(crate) fn of(start: CacheStart, plan: &Plan, items: &[Item], scale: Scale) -> Self {
        match start {
            CacheStart::Prepared | CacheStart::Cold => Self::default(),
            CacheStart::Warm => {
                let files = items.iter().filter_map(|i| match i.what {
                    ItemKind::Regular { size_bytes, .. } => {
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

    /// Reads the ranges. Must be called inside the target. Returns the bytes read.
    pub(crate) fn read(&self) -> i64 {
        let mut sink = Sink::default();
        let mut done = 0;
        for (path, ranges) in &self.0 {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(fd) = open(path.as_slice(), flags, Mode::empty()) else { continue };
            // No readahead.
            let _ = fadvise(&fd, 0, None, Advice::Random);
            for range in ranges {
                let mut at = range.start;
                while at < range.end {
                    let len = (READ_BYTES as i64).min(range.end - at) as usize;
                    let to = sink.at(len);
                    if to.is_null() {
                        break;
                    }
                    // SAFETY: the mapping belongs to this thread and has at least this length.
                    let buffer = unsafe { std::slice::from_raw_parts_mut(to, len) };
                    match rustix::io::pread(&fd, buffer, at as u64) {
                        Ok(n) if n > 0 => {
                            at += n as i64;
                            done += n as i64;
                        }
                        // End of the file, or unreadable.
                        _ => break,
                    }
                }
            }
        }
        done
    }
}

/// Drops the cached pages of these files, which are clean. Must be called inside the target.
pub(crate) fn forget(items: &[Item]) {
    for item in items.iter().filter(|i| matches!(i.what, ItemKind::Regular { .. })) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(fd) = open(item.path.as_slice(), flags, Mode::empty()) {
            // Pages in use stay.
            let _ = fadvise(&fd, 0, None, Advice::DontNeed);
        }
    }
}
