//! Finds which file pages were in the page cache when the recording started.
//!
//! A reel recorded with `--cache` has an event for each page that is read in (fill). A page that was read without a
//! fill was resident from the start. A page with a fill before its first read was not. Pages that were never accessed
//! do not matter.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use ioreel_traces::{Reel, rows};

use crate::{
    ReplayError,
    base::budget::Budget,
    reel::{
        feed::size_bytes,
        input::{NO_ID, NONE, Rec},
    },
};

/// Granularity of cache events.
pub(crate) const PAGE_BYTES: i64 = 4096;

/// Finds resident pages while operations arrive in the order of their return. Files are identified by the number of the
/// name at which they existed at the start.
#[derive(Debug, Default)]
pub struct Residence {
    /// When each page was first filled, ns, by (file, page).
    fills: HashMap<(i64, i64), i64>,
    /// Pages whose first access was seen, as (file, page).
    seen: HashSet<(i64, i64)>,
    /// Resident pages, by name.
    resident: HashMap<u32, Vec<Range<i64>>>,
    /// Pages visited so far.
    pub(crate) work: u64,
}

impl Residence {
    /// Reads the fills from `from_ns` on. `None` if the reel was recorded without `--cache`.
    pub(crate) fn read(reel: &Reel, from_ns: i64) -> Result<Option<Self>, ReplayError> {
        if !reel.manifest.ledger.contains_key("cache") {
            return Ok(None);
        }
        let mut out = Self::default();
        let mut budget = Budget::new(reel.path().into(), size_bytes(reel));
        for row in reel.rows::<rows::Cache>() {
            let row = row?;
            if *row.event != *"fill" || row.time_ns < from_ns {
                continue;
            }
            for page in pages(row.offset_bytes, row.len_bytes) {
                let first = out.fills.entry((row.file, page)).or_insert(row.time_ns);
                *first = (*first).min(row.time_ns);
                out.work += 1;
            }
            budget.row()?;
            budget.worked(&[("pages of files", out.work)])?;
        }
        Ok(Some(out))
    }

    /// Records an access to the file that had the name `pre` at the start ([`NONE`]: no name) by a call that returned
    /// at `end_ns`. If the first access to a page is a write, the page does not count as resident.
    pub(crate) fn touched(&mut self, r: &Rec, end_ns: i64, pre: u32) {
        let file = r.file;
        if pre == NONE || file == NO_ID || r.offset_bytes == NO_ID || r.ret < 0 {
            return;
        }
        let len = if r.call.touches() { r.len_bytes } else { r.ret };
        for page in pages(r.offset_bytes, len) {
            self.work += 1;
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

    /// The resident pages, by name.
    pub(crate) fn take(self) -> HashMap<u32, Vec<Range<i64>>> {
        self.resident
    }
}

fn pages(offset: i64, len: i64) -> Range<i64> {
    let from = offset.max(0);
    // A reel may claim any length.
    let to = from.saturating_add(len.clamp(0, 1 << 31));
    from / PAGE_BYTES..to.saturating_add(PAGE_BYTES - 1) / PAGE_BYTES
}
