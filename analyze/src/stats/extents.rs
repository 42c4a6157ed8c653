//! File layout on disk, as far as data was read or written: `frag`, `dls`, `interleave`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

/// Maximum number of extents of all files. Beyond it, files with the fewest extents are dropped and counted.
const MOST_EXTENTS: usize = 1 << 21;
/// Number of files listed individually and compared in pairs.
const TOP_FILES: usize = 8;
const PAGE: i64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    len_bytes: i64,
    sector: i64,
    dev: i64,
}

/// Collects the extents of files. Later writes replace earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtentMeter {
    files: FxHashMap<i64, BTreeMap<i64, Extent>>,
    extents: usize,
    most: Option<usize>,
    /// Set when [`Self::make_room`] has failed. To try it again for each extent would cost much time.
    full: bool,
    dropped: u64,
}

/// One file's layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileLayout {
    /// Key into `files`.
    pub file: i64,
    /// Bytes with a known position.
    pub bytes: i64,
    /// Number of extents.
    pub extents: u64,
    /// `frag`: extents per MiB.
    pub frag: f64,
    /// `dls`: share of 4 KiB pages that directly follow the file's previous page on disk, among those where both
    /// positions are known. 1 if there are none.
    pub dls: f64,
}

/// Two files that are interleaved on disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interleave {
    /// The files, keys into `files`.
    pub files: (i64, i64),
    /// `interleave`: 0 if one file is entirely before the other, 1 if their extents alternate throughout.
    pub index: f64,
}

/// Layout statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayoutStats {
    /// Number of files with a known position.
    pub files: u64,
    /// `frag` over all of them.
    pub frag: f64,
    /// `dls` over all of them.
    pub dls: f64,
    /// Files with the most extents.
    pub worst: Vec<FileLayout>,
    /// Interleaved pairs of these, the most interleaved first.
    pub interleaved: Vec<Interleave>,
    /// Bios ignored because there were too many extents.
    pub left_out: u64,
}

impl ExtentMeter {
    /// Adds `len_bytes` of a file at `offset`, located at `sector`.
    pub(super) fn push(&mut self, file: i64, offset: i64, dev: i64, sector: i64, len_bytes: i64) {
        let ends = (offset.checked_add(len_bytes), sector.checked_add(len_bytes / 512));
        if offset < 0 || sector < 0 || len_bytes <= 0 || ends.0.is_none() || ends.1.is_none() {
            return;
        }
        if self.extents >= self.most.unwrap_or(MOST_EXTENTS) && (self.full || !self.make_room()) {
            self.full = true;
            self.dropped += 1;
            return;
        }
        let map = self.files.entry(file).or_default();
        let before = map.len();
        let (mut from, mut to) = (offset, offset + len_bytes);
        let mut place = Extent { len_bytes, sector, dev };
        // Removes what it replaces: the end of the extent that starts before it, and extents that start in it.
        if let Some((at, old)) = map.range(..from).next_back().map(|(a, e)| (*a, *e)) {
            let end = at + old.len_bytes;
            if end > from {
                map.insert(at, Extent { len_bytes: from - at, ..old });
                if end > to {
                    map.insert(to, Extent { len_bytes: end - to, sector: old.sector + (to - at) / 512, ..old });
                }
            }
        }
        while let Some((at, old)) = map.range(from..to).next().map(|(a, e)| (*a, *e)) {
            map.remove(&at);
            let end = at + old.len_bytes;
            if end > to {
                map.insert(to, Extent { len_bytes: end - to, sector: old.sector + (to - at) / 512, ..old });
            }
        }
        // Merges it with adjacent extents.
        if let Some((at, left)) = map.range(..from).next_back().map(|(a, e)| (*a, *e))
            && at + left.len_bytes == from
            && left.dev == dev
            && left.sector + left.len_bytes / 512 == sector
        {
            (from, place) = (at, Extent { len_bytes: left.len_bytes + len_bytes, ..left });
        }
        if let Some(right) = map.get(&to).copied()
            && right.dev == dev
            && place.sector + place.len_bytes / 512 == right.sector
        {
            map.remove(&to);
            place.len_bytes += right.len_bytes;
            to += right.len_bytes;
        }
        debug_assert_eq!(from + place.len_bytes, to);
        map.insert(from, place);
        self.extents = self.extents + map.len() - before;
    }

    /// Drops small files. In a reel with so many extents, the large files matter.
    fn make_room(&mut self) -> bool {
        let mut sizes: Vec<usize> = self.files.values().map(BTreeMap::len).collect();
        let middle = sizes.len() / 2;
        if middle == 0 {
            return false;
        }
        let median = *sizes.select_nth_unstable(middle).1;
        let before = self.extents;
        let mut freed = 0;
        self.files.retain(|_, map| {
            let keep = map.len() > median;
            freed += if keep { 0 } else { map.len() };
            keep
        });
        self.extents -= freed;
        self.dropped += freed as u64;
        // If this freed too little, the next bio would trigger it again.
        self.extents < before - before / 16
    }

    /// The statistics.
    pub(super) fn stats(&self) -> LayoutStats {
        let mut all: Vec<(FileLayout, i64, i64)> = self.files.iter().map(|(file, map)| layout(*file, map)).collect();
        all.sort_by_key(|(f, ..)| (std::cmp::Reverse(f.extents), f.file));
        let sum = all.iter().fold((0u64, 0i64, 0i64, 0i64), |s, (f, good, pairs)| {
            (s.0 + f.extents, s.1.saturating_add(f.bytes), s.2.saturating_add(*good), s.3.saturating_add(*pairs))
        });
        let worst: Vec<FileLayout> = all.iter().take(TOP_FILES).map(|(f, ..)| f.clone()).collect();
        let mut interleaved = Vec::new();
        for (i, a) in worst.iter().enumerate() {
            for b in &worst[i + 1..] {
                let index = self.interleave(a.file, b.file);
                if index > 0.0 {
                    interleaved.push(Interleave { files: (a.file, b.file), index });
                }
            }
        }
        interleaved.sort_by(|a, b| b.index.total_cmp(&a.index).then(a.files.cmp(&b.files)));
        LayoutStats {
            files: all.len() as u64,
            frag: per_mib(sum.0, sum.1),
            dls: if sum.3 == 0 { 1.0 } else { sum.2 as f64 / sum.3 as f64 },
            worst,
            interleaved,
            left_out: self.dropped,
        }
    }

    fn interleave(&self, a: i64, b: i64) -> f64 {
        let places = |file: i64, mark: bool| {
            self.files.get(&file).into_iter().flat_map(|m| m.values()).map(move |e| (e.dev, e.sector, mark))
        };
        let mut all: Vec<_> = places(a, false).chain(places(b, true)).collect();
        all.sort_unstable();
        let switches = all.windows(2).filter(|w| w[0].2 != w[1].2 && w[0].0 == w[1].0).count();
        // Consecutive extents of a file count as one turn.
        let turns = |mark: bool| {
            let starts = all.iter().enumerate().filter(|(i, e)| e.2 == mark && (*i == 0 || all[i - 1].2 != mark));
            starts.count()
        };
        let fewer = turns(false).min(turns(true));
        if fewer < 2 {
            return 0.0;
        }
        // Of the file with fewer extents: how many are alone between two extents of the other.
        let fewest = self.files.get(&a).map_or(0, BTreeMap::len).min(self.files.get(&b).map_or(0, BTreeMap::len));
        ((switches - 1) as f64 / (2 * fewest - 1) as f64).min(1.0)
    }
}

fn per_mib(extents: u64, bytes: i64) -> f64 {
    if bytes <= 0 { 0.0 } else { extents as f64 * f64::from(1 << 20) / bytes as f64 }
}

/// Layout of a file: how many of its pages directly follow the previous page, and of how many.
fn layout(file: i64, map: &BTreeMap<i64, Extent>) -> (FileLayout, i64, i64) {
    let (mut bytes, mut good, mut pairs) = (0i64, 0, 0);
    let mut end = None;
    for (at, e) in map {
        bytes = bytes.saturating_add(e.len_bytes);
        let within = (e.len_bytes - 1) / PAGE;
        good = i64::saturating_add(good, within);
        pairs = i64::saturating_add(pairs, within + i64::from(end == Some(*at)));
        end = Some(at + e.len_bytes);
    }
    let dls = if pairs == 0 { 1.0 } else { good as f64 / pairs as f64 };
    let extents = map.len() as u64;
    (FileLayout { file, bytes, extents, frag: per_mib(extents, bytes), dls }, good, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_continue_one_another_are_one_extent_in_any_order() {
        let mut m = ExtentMeter::default();
        for i in [0, 2, 1, 5, 4, 3] {
            m.push(7, i * 4096, 1, (1 << 40) + i * 8, 4096);
        }
        let s = m.stats();
        assert_eq!((s.files, s.worst[0].extents, s.worst[0].bytes, s.dls), (1, 1, 6 * 4096, 1.0));
        assert_eq!(s.frag, 1024.0 * 1024.0 / (6.0 * 4096.0));
    }

    #[test]
    fn what_is_written_last_stands() {
        let mut m = ExtentMeter::default();
        m.push(1, 0, 1, 0, 1 << 20);
        m.push(1, 4096, 1, 100_000, 4096); // copy on write in the middle
        let s = m.stats();
        assert_eq!(s.worst[0].extents, 3);
        assert_eq!(s.worst[0].bytes, 1 << 20);
        assert_eq!(s.dls, 253.0 / 255.0);
        m.push(1, 0, 1, 0, 1 << 20);
        assert_eq!(m.stats().worst[0].extents, 1);
        assert_eq!(m.extents, 1);
    }

    #[test]
    fn two_appenders_that_share_a_disk_take_turns() {
        let mut m = ExtentMeter::default();
        for i in 0..100 {
            m.push(1, i * 4096, 1, i * 16, 4096);
            m.push(2, i * 4096, 1, i * 16 + 8, 4096);
            m.push(3, i * 4096, 1, 1_000_000 + i * 8, 4096);
        }
        let s = m.stats();
        assert_eq!(s.interleaved.len(), 1);
        assert_eq!(s.interleaved[0].files, (1, 2));
        assert!(s.interleaved[0].index > 0.98);
        assert_eq!((s.worst[0].dls, s.worst[2].dls), (0.0, 1.0));
    }

    #[test]
    fn memory_is_bounded_and_what_is_left_out_is_told() {
        let mut m = ExtentMeter { most: Some(1000), ..ExtentMeter::default() };
        for i in 0..10_000 {
            m.push(i % 50, i * 8192, 1, i * 64, 4096);
        }
        assert!(m.extents <= 1000, "{}", m.extents);
        assert!(m.stats().left_out > 0);
    }
}
