//! `ra_waste`: share of pages read ahead that no read requested afterwards.
//!
//! Accesses through a mapping are not visible, so mapped files are excluded and counted. So are files that no recorded
//! operation reads: the kernel maps programs by itself, and others read ahead for themselves. A page that was evicted
//! and read ahead again counts once, by its last time.

use std::collections::{BTreeMap, HashSet};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::meters::visits::Visits;

const PAGE: i64 = 4096;
/// Maximum number of pages. Further ones are ignored and counted.
const MOST_PAGES: usize = 1 << 22;

/// Collects pages read ahead, then reads.
#[derive(Clone, Debug)]
pub(super) struct Readahead {
    /// By file and page: time of readahead, or `USED` once requested.
    files: FxHashMap<i64, BTreeMap<i64, i64>>,
    pages: usize,
    left_out: u64,
    visits: Visits,
    /// Files that an operation read.
    read: HashSet<i64>,
}

const USED: i64 = i64::MIN;

/// Readahead statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReadaheadStats {
    /// Pages of 4 KiB read ahead.
    pub pages: u64,
    /// Pages of these that no read requested.
    pub unused: u64,
    /// `ra_waste`: their share. 0 without readahead.
    pub ra_waste: f64,
    /// Pages ignored: of mapped files, of files that no operation reads, or beyond the limit.
    pub left_out: u64,
}

/// Maximum number of pages examined one by one, read ahead or requested.
const MOST_VISITS: u64 = 1 << 28;

impl Default for Readahead {
    fn default() -> Self {
        Self {
            files: FxHashMap::default(),
            pages: 0,
            left_out: 0,
            visits: Visits::of(MOST_VISITS),
            read: HashSet::new(),
        }
    }
}

impl Readahead {
    pub(super) fn files(&self) -> HashSet<i64> {
        self.files.keys().copied().collect()
    }

    pub(super) fn read_ahead(&mut self, file: i64, offset: i64, len_bytes: i64, t_ns: i64) {
        let first = offset.div_euclid(PAGE);
        let last = offset.saturating_add(len_bytes.saturating_sub(1)).div_euclid(PAGE);
        let count = last.saturating_sub(first).saturating_add(1).max(0).unsigned_abs();
        let visited = self.visits.take(count);
        self.left_out = self.left_out.saturating_add(count - visited);
        let map = self.files.entry(file).or_default();
        for page in (first..).take(visited as usize) {
            if self.pages >= MOST_PAGES {
                self.left_out = self.left_out.saturating_add(1);
                continue;
            }
            let known = map.len();
            let last = map.entry(page).or_insert(t_ns);
            *last = (*last).max(t_ns);
            self.pages += map.len() - known;
        }
    }

    /// Adds a read of these bytes that ended at `end_ns`.
    pub(super) fn asked(&mut self, file: i64, offset: i64, bytes: i64, end_ns: i64) {
        if bytes > 0
            && let Some(map) = self.files.get_mut(&file)
        {
            self.read.insert(file);
            let last = offset.saturating_add(bytes - 1).div_euclid(PAGE);
            for (_, t_ns) in map.range_mut(offset.div_euclid(PAGE)..=last) {
                if self.visits.take(1) == 0 {
                    return;
                }
                if *t_ns <= end_ns {
                    *t_ns = USED;
                }
            }
        }
    }

    pub(super) fn stats(&self, mapped: &HashSet<i64>) -> ReadaheadStats {
        let mut s = ReadaheadStats { left_out: self.left_out, ..ReadaheadStats::default() };
        for (file, map) in &self.files {
            if mapped.contains(file) || !self.read.contains(file) {
                s.left_out += map.len() as u64;
                continue;
            }
            s.pages += map.len() as u64;
            s.unused += map.values().filter(|t| **t != USED).count() as u64;
        }
        s.ra_waste = if s.pages == 0 { 0.0 } else { s.unused as f64 / s.pages as f64 };
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_nobody_asked_for_are_waste() {
        let mut r = Readahead::default();
        r.read_ahead(1, 0, 32 * 4096, 100);
        r.read_ahead(2, 0, 4096, 100);
        r.read_ahead(3, 0, 8192, 100); // never read by an operation
        r.asked(1, 0, 8 * 4096, 150);
        r.asked(1, 8 * 4096, 10, 150); // a part of a page uses it
        r.asked(1, 16 * 4096, 4096, 50); // before it was read ahead: that was another copy
        let s = r.stats(&HashSet::from([2]));
        assert_eq!((s.pages, s.unused, s.left_out), (32, 23, 3));
        assert_eq!(s.ra_waste, 23.0 / 32.0);
    }
}
