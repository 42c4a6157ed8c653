//! The axis of the file map: files ordered by path, each with a height proportional to the square root of its used
//! range, so that a large file does not hide a thousand small ones. Offsets within a file are to scale.

use rustc_hash::FxHashMap;

use ioreel_traces::{Reel, rows::File};

use crate::Result;

/// Maximum number of files with their own lane. The others share one.
pub(super) const MOST_LANES: usize = 20_000;
/// Maximum total length of paths in the page, bytes.
const MOST_NAME_BYTES: usize = 2 << 20;
/// Maximum length of a path, bytes. Longer ones are shortened in the middle.
const LONGEST_NAME: usize = 400;
/// Unit of heights: one part in this many of the whole.
pub(super) const HEIGHT: i64 = 1 << 30;

/// Used range of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// First byte.
    pub(super) from: i64,
    /// Byte after the last one.
    pub(super) to: i64,
    /// Bytes moved.
    pub(super) bytes: u64,
}

impl Default for Used {
    fn default() -> Self {
        Self { from: i64::MAX, to: 0, bytes: 0 }
    }
}

impl Used {
    /// Adds `[offset, offset + bytes)`.
    pub(super) fn add(&mut self, offset: i64, bytes: u64) {
        if offset < 0 {
            return;
        }
        self.from = self.from.min(offset);
        self.to = self.to.max(offset.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX)));
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Position of a file on the axis.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Key into `files`, or -1 for the shared lane.
    pub(super) file: i64,
    /// Path. `None` if unknown or omitted.
    pub(super) path: Option<String>,
    /// First byte.
    pub(super) from: i64,
    /// Byte after the last one.
    pub(super) to: i64,
    /// Bytes moved.
    pub(super) bytes: u64,
    /// Lower end, in units of [`HEIGHT`].
    pub(super) y: i64,
    /// Upper end.
    pub(super) top: i64,
}

/// The axis.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Lanes from low to high.
    pub(super) lanes: Vec<Lane>,
    /// Index into `lanes` by file.
    places: FxHashMap<i64, usize>,
    /// Number of files in the shared lane.
    pub(super) others: u64,
    /// Number of paths omitted for lack of space.
    pub(super) unnamed: u64,
}

impl Lanes {
    /// Computes the positions of the files.
    pub(super) fn new(reel: &Reel, used: &FxHashMap<i64, Used>) -> Result<Self> {
        let mut files: Vec<(i64, Used)> = used.iter().map(|(f, u)| (*f, *u)).filter(|(_, u)| u.to > u.from).collect();
        files.sort_unstable_by_key(|(file, u)| (std::cmp::Reverse(u.bytes), *file));
        let rest = files.split_off(files.len().min(MOST_LANES));
        let wanted: FxHashMap<i64, usize> = files.iter().enumerate().map(|(i, (f, _))| (*f, i)).collect();
        let mut paths: Vec<Option<String>> = vec![None; files.len()];
        if !wanted.is_empty() {
            for row in reel.rows::<File>() {
                let row = row?;
                if let Some(path) = wanted.get(&row.file).and_then(|i| paths.get_mut(*i)) {
                    *path = row.path.map(|p| shortened(&p, LONGEST_NAME));
                }
            }
        }
        let (mut room, mut unnamed) = (MOST_NAME_BYTES, 0);
        let mut lanes: Vec<Lane> = files
            .iter()
            .zip(paths)
            .map(|((file, u), path)| {
                let path = path.filter(|p| {
                    let fits = p.len() <= room;
                    room -= if fits { p.len() } else { 0 };
                    unnamed += u64::from(!fits);
                    fits
                });
                Lane { file: *file, path, from: u.from, to: u.to, bytes: u.bytes, y: 0, top: 0 }
            })
            .collect();
        lanes.sort_by(|a, b| (a.path.is_none(), &a.path, a.file).cmp(&(b.path.is_none(), &b.path, b.file)));
        if !rest.is_empty() {
            let mut all = Used::default();
            for (_, u) in &rest {
                all.from = all.from.min(u.from);
                all.to = all.to.max(u.to);
                all.bytes = all.bytes.saturating_add(u.bytes);
            }
            lanes.push(Lane { file: -1, path: None, from: all.from, to: all.to, bytes: all.bytes, y: 0, top: 0 });
        }
        let weight = |l: &Lane| ((l.to - l.from).max(1) as f64).sqrt();
        // Every file is visible if there are few. With very many, a lane is thinner than a pixel anyway.
        let sum: f64 = lanes.iter().map(weight).sum();
        let floor = sum / (lanes.len().max(1) as f64 * 6.0);
        let sum: f64 = lanes.iter().map(|l| weight(l).max(floor)).sum();
        let mut at = 0.0;
        for lane in &mut lanes {
            lane.y = (at / sum * HEIGHT as f64) as i64;
            at += weight(lane).max(floor);
            lane.top = ((at / sum * HEIGHT as f64) as i64).min(HEIGHT);
        }
        let places = lanes.iter().enumerate().filter(|(_, l)| l.file >= 0).map(|(i, l)| (l.file, i)).collect();
        Ok(Self { lanes, places, others: rest.len() as u64, unnamed })
    }

    /// The lane of a file, if there are lanes.
    pub(super) fn place(&self, file: i64) -> Option<usize> {
        self.places.get(&file).copied().or_else(|| (self.others > 0).then(|| self.lanes.len() - 1))
    }

    /// Lower and upper end of `[offset, offset + bytes)` in a lane, in units of [`HEIGHT`].
    pub(super) fn span(&self, place: usize, offset: i64, bytes: u64) -> Option<(i64, i64)> {
        let lane = self.lanes.get(place)?;
        let (span, height) = ((lane.to - lane.from).max(1) as f64, (lane.top - lane.y) as f64);
        let at = |o: i64| lane.y + ((o.saturating_sub(lane.from)) as f64 / span * height) as i64;
        let end = offset.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        Some((at(offset).clamp(lane.y, lane.top), at(end).clamp(lane.y, lane.top)))
    }
}

impl Lanes {
    /// Rows of `[offset, offset + bytes)` in a lane, on a map of `rows` rows counted from the top.
    pub(super) fn rows(&self, place: usize, offset: i64, bytes: u64, rows: u32) -> Option<(u32, u32)> {
        let (low, high) = self.span(place, offset, bytes)?;
        let row = |y: i64| ((y as u64 * u64::from(rows) / HEIGHT as u64) as u32).min(rows - 1);
        Some((rows - 1 - row((high - 1).max(low)), rows - 1 - row(low)))
    }
}

/// A text of at most `most` bytes, shortened in the middle if necessary.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let half = most.saturating_sub(3) / 2;
    let head = (0..=half).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let tail = (text.len() - half..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
    format!("{}…{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_lose_their_middle() {
        assert_eq!(shortened("short", 5), "short");
        let cut = shortened(&"äöü".repeat(1000), 100);
        assert!(cut.len() <= 100 && cut.contains('…') && cut.ends_with('ü'), "{cut}");
        assert_eq!(shortened("abcdef", 3), "…");
    }

    #[test]
    fn what_is_used_has_ends() {
        let mut u = Used::default();
        u.add(-1, 10);
        u.add(4096, 4096);
        u.add(i64::MAX - 1, 10);
        u.add(100, 0);
        assert_eq!((u.from, u.to, u.bytes), (100, i64::MAX, 4106));
    }
}
