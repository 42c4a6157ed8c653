//! Sizes of files while the workload runs: what must be there before it starts, and how much room it needs.

use std::collections::{HashMap, HashSet};

use ioreel_traces::rows;

use crate::{
    model::names::{NO_NODE, NodeId},
    reel::footprint::Scale,
};

/// What a file takes at least on the target: its data in whole blocks.
pub const BLOCK_BYTES: i64 = 4096;

#[derive(Clone, Debug, Default)]
struct FileSize {
    size: Option<i64>,
    /// Its size on the target, where files may be smaller.
    scaled: i64,
    /// Bytes that take room there.
    alloc: i64,
    /// Its data is no longer what it was at the start.
    modified: bool,
    pre: Option<NodeId>,
    unlinked: bool,
    /// The workload made it: its inode is extra.
    made: bool,
    /// `size` is what it is, rather than the least that results prove.
    exact: bool,
    /// It was appended to since the start, and nothing else was done to its data.
    grows: bool,
}

impl FileSize {
    fn modify(&mut self) {
        self.modified = true;
        self.grows = false;
    }
}

/// Least and greatest size of a file before the workload, from what reads returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// It has at least so many bytes.
    pub least: i64,
    /// And at most so many.
    pub most: i64,
}

impl Bounds {
    /// The size to prepare, given what the reel's `tree` says.
    pub fn size(self, listed: Option<i64>) -> i64 {
        listed.unwrap_or(self.least).min(self.most).max(self.least)
    }
}

/// All files.
#[derive(Debug, Default)]
pub struct Sizes {
    files: HashMap<i64, FileSize>,
    /// By place at the start.
    pub bounds: HashMap<NodeId, Bounds>,
    /// Sizes of the reel's `tree`, by place.
    pub listed: HashMap<NodeId, i64>,
    /// Permission bits at the start, as results told them, by place.
    modes: HashMap<NodeId, i32>,
    /// Places that could be executed or searched.
    runnable: HashSet<NodeId>,
    room: i64,
    scale: Scale,
    /// Most bytes the workload adds at any one time.
    pub peak_bytes: i64,
}

fn blocks(bytes: i64) -> i64 {
    bytes.max(0).saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
}

impl Sizes {
    /// With files this much smaller.
    pub fn new(scale: Scale) -> Self {
        Self { scale, ..Self::default() }
    }

    fn file(&mut self, file: i64) -> &mut FileSize {
        self.files.entry(file).or_default()
    }

    fn take(&mut self, bytes: i64) {
        self.room = self.room.saturating_add(bytes);
        self.peak_bytes = self.peak_bytes.max(self.room);
    }

    /// A file was opened by a name that stood at `pre` at the start ([`NO_NODE`]: made since).
    pub fn opened(&mut self, file: i64, pre: NodeId, created: bool) {
        let listed = self.listed.get(&pre).copied();
        let fresh = !self.files.contains_key(&file);
        let scale = self.scale;
        let f = self.file(file);
        if created {
            *f = FileSize { size: Some(0), modified: true, made: true, exact: true, ..FileSize::default() };
            self.take(BLOCK_BYTES);
        } else if fresh && pre != NO_NODE {
            f.pre = Some(pre);
            f.size = listed;
            f.scaled = scale.size(listed.unwrap_or(0));
            f.alloc = blocks(f.scaled);
        }
    }

    /// A file without a name was open at the start.
    pub fn nameless(&mut self, file: i64, size: Option<i64>) {
        let scaled = self.scale.size(size.unwrap_or(0));
        let f = self.file(file);
        f.size = size;
        f.scaled = scaled;
        f.alloc = blocks(scaled);
        f.unlinked = true;
    }

    /// From here on, what results tell of a file's size at the start is told of this place.
    pub fn rehome(&mut self, file: i64, place: NodeId) {
        let Some(f) = self.files.get_mut(&file) else { return };
        f.pre = Some(place);
        if let Some(size) = f.size {
            self.listed.insert(place, size);
        }
    }

    /// The file as it is now is how it is at the start: at this place, if it has a name.
    pub fn begin_anew(&mut self, file: i64, place: Option<NodeId>) {
        let Some(f) = self.files.get_mut(&file) else { return };
        f.pre = place;
        f.modified = f.exact;
        f.grows = false;
    }

    /// What has been counted so far is there from the start.
    pub fn begin_counting(&mut self) {
        self.room = 0;
        self.peak_bytes = 0;
    }

    /// Where a file was at the start.
    pub fn place_of(&self, file: i64) -> Option<NodeId> {
        self.files.get(&file)?.pre
    }

    /// Ids of all files.
    pub fn files(&self) -> Vec<i64> {
        self.files.keys().copied().collect()
    }

    /// Whether a file's data is not what it was at the start.
    pub fn is_modified(&self, file: i64) -> bool {
        self.files.get(&file).is_some_and(|f| f.modified)
    }

    /// Bytes of a file that take room, as far as known.
    pub fn allocated(&self, file: i64) -> Option<i64> {
        self.files.get(&file).map(|f| f.alloc)
    }

    /// What results told of permission bits: places in one order become places in another.
    pub fn take_modes(&mut self) -> (HashMap<NodeId, i32>, HashSet<NodeId>) {
        (std::mem::take(&mut self.modes), std::mem::take(&mut self.runnable))
    }

    /// A directory or link was made.
    pub fn made(&mut self) {
        self.take(BLOCK_BYTES);
    }

    /// A directory or link that the workload made was removed.
    pub fn unmade(&mut self) {
        self.take(-BLOCK_BYTES);
    }

    /// A read at `offset` of `len` bytes returned `ret`.
    pub fn read(&mut self, file: i64, offset: i64, len: i64, ret: i64) {
        let Some(f) = self.files.get_mut(&file) else { return };
        if f.modified {
            return;
        }
        let Some(pre) = f.pre else { return };
        let end = offset.saturating_add(ret);
        let b = self.bounds.entry(pre).or_insert(Bounds { least: 0, most: i64::MAX });
        if ret > 0 {
            b.least = b.least.max(end);
        }
        if ret < len {
            // A short read of a regular file ends at its end.
            b.most = b.most.min(end);
            f.size = Some(f.size.map_or(end, |s| if ret > 0 { end } else { s.min(end) }));
        }
    }

    /// `fstat` and the like said `size` before the workload changed the file.
    pub fn size_seen(&mut self, pre: NodeId, file: Option<i64>, size: i64) {
        let modified = file.and_then(|f| self.files.get(&f)).is_some_and(|f| f.modified);
        if pre == NO_NODE || modified || self.listed.contains_key(&pre) {
            return;
        }
        let b = self.bounds.entry(pre).or_insert(Bounds { least: 0, most: i64::MAX });
        b.least = b.least.max(size).min(b.most);
    }

    /// The first word on what a place's permission bits were.
    pub fn mode_seen(&mut self, pre: NodeId, mode: i32) {
        if pre != NO_NODE {
            self.modes.entry(pre).or_insert(mode & 0o7777);
        }
    }

    /// The place could be executed.
    pub fn ran(&mut self, pre: NodeId) {
        self.runnable.insert(pre);
    }

    /// Permission bits to prepare where the reel's `tree` does not list any.
    pub fn mode(&self, pre: NodeId, default: i32) -> i32 {
        let run = if self.runnable.contains(&pre) { 0o111 } else { 0 };
        self.modes.get(&pre).map_or(default | run, |m| *m)
    }

    /// `n` bytes were written at `offset`.
    pub fn wrote(&mut self, file: i64, offset: i64, n: i64) {
        self.wrote_scaled(file, offset, n, self.scale.length(offset, n));
    }

    /// `n` bytes were appended where it ended: there it ended at the start, too, unless something else was done to it before.
    pub fn appended(&mut self, file: i64, offset: i64, n: i64) {
        let scale = self.scale;
        let f = self.file(file);
        let (grew, begins) = (f.grows, !f.modified);
        if !(f.exact || grew) {
            f.size = Some(offset);
            f.scaled = scale.size(offset);
        }
        if begins {
            f.alloc = blocks(f.scaled);
        }
        if let Some(pre) = f.pre.filter(|_| grew || begins) {
            let found = self.bounds.get(&pre).filter(|_| grew);
            // Of appends at the same time the first one need not be the first that is told of.
            let end = found.map_or(offset, |b| b.most.min(offset));
            self.bounds.insert(pre, Bounds { least: end, most: end });
        }
        self.wrote(file, offset, n);
        let f = self.file(file);
        f.grows = grew || begins;
        f.exact |= scale.is_none();
    }

    /// They were copied there, from `from` on in another file: on the target as many as that has there.
    pub fn copied(&mut self, (source, from): (i64, i64), file: i64, offset: i64, n: i64) {
        let there = self.exact_scaled(source).filter(|_| !self.scale.is_none());
        let scaled = match there {
            Some(size) => self.scale.length(from, n).min(size - self.scale.position(from)).max(0),
            None => self.scale.length(offset, n),
        };
        self.wrote_scaled(file, offset, n, scaled);
        if there.is_none() && !self.scale.is_none() {
            self.written_somewhere(file);
        }
    }

    fn wrote_scaled(&mut self, file: i64, offset: i64, n: i64, scaled: i64) {
        let scale = self.scale;
        let f = self.file(file);
        f.modify();
        let end = offset.max(0).saturating_add(n);
        f.size = Some(f.size.unwrap_or(0).max(end));
        let n = scaled;
        f.scaled = f.scaled.max(scale.position(offset).max(0).saturating_add(n));
        let whole = blocks(f.scaled);
        // Whatever lies in a hole takes room for the first time; more than the size it never takes.
        let alloc = f.alloc.saturating_add(blocks(n)).min(whole).max(f.alloc.min(whole));
        let more = alloc - f.alloc;
        f.alloc = alloc;
        self.take(more);
    }

    /// The file's length was set.
    pub fn truncated(&mut self, file: i64, size: i64) {
        let scaled = self.scale.size(size);
        let f = self.file(file);
        f.modify();
        f.size = Some(size);
        f.scaled = scaled;
        f.exact = true;
        let alloc = f.alloc.min(blocks(scaled));
        let more = alloc - f.alloc;
        f.alloc = alloc;
        self.take(more);
    }

    /// Room was reserved.
    pub fn reserved(&mut self, file: i64, offset: i64, len: i64, keeps_size: bool) {
        let scale = self.scale;
        let f = self.file(file);
        f.modify();
        let end = offset.max(0).saturating_add(len);
        let len = scale.length(offset, len);
        if !keeps_size {
            f.size = Some(f.size.unwrap_or(0).max(end));
            f.scaled = f.scaled.max(scale.position(offset).max(0).saturating_add(len));
        }
        let end = scale.position(offset).max(0).saturating_add(len);
        let alloc = f.alloc.max(blocks(f.alloc.saturating_add(len).min(end)));
        let more = alloc - f.alloc;
        f.alloc = alloc;
        self.take(more);
    }

    /// Its last name went; `open` says whether descriptors still hold it.
    /// True when that was the end of the file.
    pub fn unlinked(&mut self, file: i64, open: bool) -> bool {
        if let Some(f) = self.files.get_mut(&file) {
            f.unlinked = true;
        }
        if !open {
            self.freed(file);
        }
        !open
    }

    /// Its last descriptor went. True when that was the end of the file.
    pub fn closed(&mut self, file: i64) -> bool {
        let unlinked = self.files.get(&file).is_some_and(|f| f.unlinked);
        if unlinked {
            self.freed(file);
        }
        unlinked
    }

    fn freed(&mut self, file: i64) {
        if let Some(f) = self.files.remove(&file) {
            self.take(-f.alloc.saturating_add(if f.made { BLOCK_BYTES } else { 0 }));
        }
    }

    /// It was written to at a place that is not known.
    pub fn written_somewhere(&mut self, file: i64) {
        let f = self.file(file);
        f.modify();
        f.exact = false;
    }

    /// The file's size, when it is known for certain.
    pub fn exact(&self, file: i64) -> Option<i64> {
        self.files.get(&file).filter(|f| f.exact).and_then(|f| f.size)
    }

    /// The same on the target.
    pub fn exact_scaled(&self, file: i64) -> Option<i64> {
        self.files.get(&file).filter(|f| f.exact).map(|f| f.scaled)
    }

    /// How much smaller files are.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The file's size, when known.
    pub fn size(&self, file: i64) -> Option<i64> {
        self.files.get(&file).and_then(|f| f.size)
    }
}

impl Sizes {
    /// How long a file is made, and how much of that is data.
    pub(crate) fn prepared_lengths(&self, node: NodeId, row: Option<&rows::Tree>) -> (i64, i64) {
        let listed = row.and_then(|r| r.size_bytes);
        let size_bytes = self.bounds.get(&node).map_or(listed.unwrap_or(0), |b| b.size(listed)).max(0);
        // Small files inside their inode, and compressed ones, also take less than their length: only whole
        // missing blocks make a file sparse. What results prove beyond the listed length has data.
        let known_bytes = listed.unwrap_or(size_bytes);
        let data_bytes = match row.and_then(|r| r.alloc_bytes) {
            Some(alloc) if known_bytes >= BLOCK_BYTES && alloc <= known_bytes - BLOCK_BYTES => {
                (alloc.max(0) + (size_bytes - known_bytes).max(0)).min(size_bytes)
            }
            _ => size_bytes,
        };
        let scale = self.scale();
        let size = scale.size(size_bytes);
        (size, scale.size(data_bytes).min(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_the_peak_not_the_sum() {
        let mut s = Sizes::default();
        for file in 0..10 {
            s.opened(file, NO_NODE, true);
            s.wrote(file, 0, 1 << 20);
            s.unlinked(file, true);
            s.closed(file);
        }
        assert_eq!(s.peak_bytes, (1 << 20) + BLOCK_BYTES);
    }

    #[test]
    fn overwriting_takes_no_room_and_holes_do() {
        let mut s = Sizes::default();
        s.opened(1, NO_NODE, true);
        s.wrote(1, 0, 8192);
        s.wrote(1, 0, 8192);
        assert_eq!(s.peak_bytes, BLOCK_BYTES + 8192);
        s.truncated(1, 1 << 40);
        assert_eq!(s.peak_bytes, BLOCK_BYTES + 8192);
        s.reserved(1, 0, 1 << 40, false);
        assert!(s.peak_bytes >= 1 << 40);
    }

    #[test]
    fn appends_tell_the_size() {
        let mut s = Sizes::default();
        s.listed.insert(7, 900);
        s.opened(1, 7, false);
        s.read(1, 0, 500, 500);
        s.appended(1, 1100, 100);
        s.appended(1, 1000, 100);
        assert_eq!((s.bounds[&7], s.exact(1)), (Bounds { least: 1000, most: 1000 }, Some(1200)));
        s.wrote(1, 0, 10);
        s.appended(1, 1200, 1);
        assert_eq!((s.bounds[&7], s.exact(1)), (Bounds { least: 1000, most: 1000 }, Some(1201)));
    }

    #[test]
    fn of_what_was_written_to_an_append_tells_what_it_is_and_not_what_it_was() {
        let mut s = Sizes::default();
        s.listed.insert(7, 9000);
        s.opened(1, 7, false);
        s.wrote(1, 0, 5000);
        s.appended(1, 6000, 10);
        assert_eq!((s.bounds.get(&7), s.exact(1)), (None, Some(6010)));
    }

    #[test]
    fn reads_tell_the_size() {
        let mut s = Sizes::default();
        s.opened(1, 7, false);
        s.read(1, 0, 4096, 4096);
        s.read(1, 4096, 4096, 100);
        s.read(1, 4196, 4096, 0);
        assert_eq!(s.bounds[&7], Bounds { least: 4196, most: 4196 });
        assert_eq!(s.bounds[&7].size(Some(9000)), 4196);
    }
}
