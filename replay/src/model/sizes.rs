//! File sizes as the workload changes them: the size each file must have at the start, and the space that the workload
//! needs.

use std::collections::{HashMap, HashSet};

use ioreel_traces::rows;

use sharing::Family;

use crate::{
    model::{
        holes::Holes,
        names::{NO_NODE, NodeId},
    },
    reel::footprint::Scale,
};

mod sharing;

/// Allocation unit assumed for the target, bytes.
pub const BLOCK_BYTES: i64 = 4096;

#[derive(Clone, Debug, Default)]
struct FileSize {
    size: Option<i64>,
    /// Size on the target, bytes (`--scale-footprint`).
    scaled: i64,
    /// Bytes allocated on the target; of a file that shares data, bytes that it does not share.
    alloc: i64,
    /// Ranges without data on the target.
    holes: Holes,
    /// Group of files that share data: index in [`Sizes::families`].
    family: Option<u32>,
    /// Its data is no longer the initial data.
    modified: bool,
    pre: Option<NodeId>,
    unlinked: bool,
    /// The workload created it, so its inode needs space, too.
    made: bool,
    /// `size` follows from the size in the reel's `tree` and from all changes since.
    followed: bool,
    /// `size` is exact; otherwise it is the least size that results prove.
    exact: bool,
    /// Its data was only appended to since the start.
    grows: bool,
}

impl FileSize {
    fn modify(&mut self) {
        self.modified = true;
        self.grows = false;
    }
}

/// Bounds of a file's initial size, from the results of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lower bound, bytes.
    pub least: i64,
    /// Upper bound, bytes.
    pub most: i64,
}

impl Bounds {
    /// The size to prepare, given the size in the reel's `tree`.
    pub fn size(self, listed: Option<i64>) -> i64 {
        listed.unwrap_or(self.least).min(self.most).max(self.least)
    }
}

/// Sizes of all files.
#[derive(Debug, Default)]
pub struct Sizes {
    files: HashMap<i64, FileSize>,
    /// Bounds by initial name.
    pub bounds: HashMap<NodeId, Bounds>,
    /// Sizes in the reel's `tree`, by name.
    pub listed: HashMap<NodeId, i64>,
    /// Allocated bytes in the reel's `tree`, by name, of files with holes.
    pub sparse: HashMap<NodeId, i64>,
    families: Vec<Family>,
    /// The target can share data between files.
    shares_data: bool,
    /// Initial permission bits that results proved, by initial name.
    modes: HashMap<NodeId, i32>,
    /// Initial names that could be executed or searched.
    runnable: HashSet<NodeId>,
    room: i64,
    scale: Scale,
    /// Peak of the space that the workload adds, bytes.
    pub peak_bytes: i64,
}

fn blocks(bytes: i64) -> i64 {
    bytes.max(0).saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
}

impl Sizes {
    /// With this scale of file sizes. `shares_data`: the target can share data between files.
    pub fn new(scale: Scale, shares_data: bool) -> Self {
        Self { scale, shares_data, ..Self::default() }
    }

    fn file(&mut self, file: i64) -> &mut FileSize {
        self.files.entry(file).or_default()
    }

    fn take(&mut self, bytes: i64) {
        self.room = self.room.saturating_add(bytes);
        self.peak_bytes = self.peak_bytes.max(self.room);
    }

    /// A file was opened; its initial name is `pre` ([`NO_NODE`]: created since).
    pub fn opened(&mut self, file: i64, pre: NodeId, created: bool) {
        let listed = self.listed.get(&pre).copied();
        let sparse = self.sparse.get(&pre).copied();
        let fresh = !self.files.contains_key(&file);
        let scale = self.scale;
        let f = self.file(file);
        if created {
            *f = FileSize { size: Some(0), modified: true, made: true, exact: true, ..FileSize::default() };
            self.take(BLOCK_BYTES);
        } else if fresh && pre != NO_NODE {
            f.pre = Some(pre);
            f.size = listed;
            f.followed = listed.is_some();
            f.scaled = scale.size(listed.unwrap_or(0));
            f.alloc = blocks(sparse.map_or(f.scaled, |n| scale.size(n).min(f.scaled)));
        }
    }

    /// An unlinked file was open at the start.
    pub fn nameless(&mut self, file: i64, size: Option<i64>) {
        let scaled = self.scale.size(size.unwrap_or(0));
        let f = self.file(file);
        f.size = size;
        f.scaled = scaled;
        f.alloc = blocks(scaled);
        f.unlinked = true;
    }

    /// Sets the initial name of a file: what results prove about its initial size applies to that name from now on.
    pub fn rehome(&mut self, file: i64, place: NodeId) {
        let Some(f) = self.files.get_mut(&file) else { return };
        f.pre = Some(place);
        if let Some(size) = f.size {
            self.listed.insert(place, size);
        }
    }

    /// At the start of a slice: the current state of the file becomes its initial state, with the name `place` if it
    /// has one.
    pub fn begin_anew(&mut self, file: i64, place: Option<NodeId>) {
        let Some(f) = self.files.get_mut(&file) else { return };
        f.pre = place;
        // Prepared files share nothing.
        if f.family.take().is_some() {
            f.alloc = blocks(f.scaled);
        }
        f.holes = Holes::default();
        f.modified = f.exact;
        f.grows = false;
    }

    /// Resets the space counters: what was counted so far exists at the start.
    pub fn begin_counting(&mut self) {
        self.room = 0;
        self.peak_bytes = 0;
    }

    /// Initial name of a file.
    pub fn place_of(&self, file: i64) -> Option<NodeId> {
        self.files.get(&file)?.pre
    }

    /// Ids of all files.
    pub fn files(&self) -> Vec<i64> {
        self.files.keys().copied().collect()
    }

    /// Whether a file's data is no longer the initial data.
    pub fn is_modified(&self, file: i64) -> bool {
        self.files.get(&file).is_some_and(|f| f.modified)
    }

    /// Allocated bytes of a file, as far as known.
    pub fn allocated(&self, file: i64) -> Option<i64> {
        self.files.get(&file).map(|f| if f.family.is_some() { blocks(f.scaled) } else { f.alloc })
    }

    /// Takes out the permission bits and executable names that results proved, to be stored by other nodes.
    pub fn take_modes(&mut self) -> (HashMap<NodeId, i32>, HashSet<NodeId>) {
        (std::mem::take(&mut self.modes), std::mem::take(&mut self.runnable))
    }

    /// A directory or symbolic link was created.
    pub fn made(&mut self) {
        self.take(BLOCK_BYTES);
    }

    /// A directory or symbolic link created by the workload was removed.
    pub fn unmade(&mut self) {
        self.take(-BLOCK_BYTES);
    }

    /// A read of `len` bytes at `offset` returned `ret`.
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
            // The listed size is not the one at the start.
            f.followed &= f.size.is_none_or(|size| end <= size);
        }
        if ret < len {
            // A short read of a regular file ends at the end of the file.
            b.most = b.most.min(end);
            f.size = Some(f.size.map_or(end, |s| if ret > 0 { end } else { s.min(end) }));
        }
    }

    /// A stat returned `size` before the workload changed the file.
    pub fn size_seen(&mut self, pre: NodeId, file: Option<i64>, size: i64) {
        let modified = file.and_then(|f| self.files.get(&f)).is_some_and(|f| f.modified);
        if pre == NO_NODE || modified || self.listed.contains_key(&pre) {
            return;
        }
        let b = self.bounds.entry(pre).or_insert(Bounds { least: 0, most: i64::MAX });
        b.least = b.least.max(size).min(b.most);
    }

    /// A result showed permission bits. The first one is the initial state.
    pub fn mode_seen(&mut self, pre: NodeId, mode: i32) {
        if pre != NO_NODE {
            self.modes.entry(pre).or_insert(mode & 0o7777);
        }
    }

    /// Initial permission bits that results proved.
    pub fn mode_proven(&self, pre: NodeId) -> Option<i32> {
        self.modes.get(&pre).copied()
    }

    /// The file could be executed, or the directory searched.
    pub fn ran(&mut self, pre: NodeId) {
        self.runnable.insert(pre);
    }

    /// Permission bits to prepare if the reel's `tree` lists none.
    pub fn mode(&self, pre: NodeId, default: i32) -> i32 {
        let run = if self.runnable.contains(&pre) { 0o111 } else { 0 };
        self.modes.get(&pre).map_or(default | run, |m| *m)
    }

    /// `n` bytes were written at `offset`.
    pub fn wrote(&mut self, file: i64, offset: i64, n: i64) {
        self.wrote_scaled(file, offset, n, self.scale.length(offset, n));
    }

    /// `n` bytes were appended at `offset`. If the file was only appended to so far, this bounds its initial size.
    pub fn appended(&mut self, file: i64, offset: i64, n: i64) {
        let scale = self.scale;
        let f = self.file(file);
        let (grew, begins) = (f.grows, !f.modified);
        if !(f.exact || grew) {
            f.size = Some(offset);
            f.scaled = scale.size(offset);
        }
        if begins && f.family.is_none() {
            f.alloc = blocks(f.scaled);
        }
        if let Some(pre) = f.pre.filter(|_| grew || begins) {
            let found = self.bounds.get(&pre).filter(|_| grew);
            // Of concurrent appends, the first to return is not necessarily the first to append.
            let end = found.map_or(offset, |b| b.most.min(offset));
            self.bounds.insert(pre, Bounds { least: end, most: end });
        }
        self.wrote(file, offset, n);
        let f = self.file(file);
        f.grows = grew || begins;
        f.exact |= scale.is_none();
    }

    /// `n` bytes were copied from position `from` of file `source`. On the target, a scaled source may have fewer.
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
        self.lengthened(file, offset, n, scaled);
        let start = self.scale.position(offset).max(0);
        let f = self.file(file);
        f.holes.fill(start..start.saturating_add(scaled));
        // Data in a hole is allocated at the first write. Never more than the size is allocated.
        self.allocate(file, blocks(scaled));
    }

    /// A file has data up to `offset + n` at least. On the target, that range has the length `scaled`.
    fn lengthened(&mut self, file: i64, offset: i64, n: i64, scaled: i64) {
        let scale = self.scale;
        let f = self.file(file);
        f.modify();
        let end = offset.max(0).saturating_add(n);
        f.size = Some(f.size.unwrap_or(0).max(end));
        let before = f.scaled;
        f.scaled = f.scaled.max(scale.position(offset).max(0).saturating_add(scaled));
        let (grown, family) = (blocks(f.scaled) - blocks(before), f.family);
        self.family_grows(family, grown);
    }

    /// The file's length was set.
    pub fn truncated(&mut self, file: i64, size: i64) {
        let scaled = self.scale.size(size);
        let f = self.file(file);
        f.modify();
        f.size = Some(size);
        let grown = blocks(scaled) - blocks(f.scaled);
        f.scaled = scaled;
        f.exact = true;
        f.holes.cut(blocks(scaled));
        let family = f.family;
        self.family_grows(family, grown);
        if family.is_none() {
            let alloc = self.file(file).alloc.min(blocks(scaled));
            self.set_allocated(file, alloc);
        }
    }

    /// Space was reserved (fallocate).
    pub fn reserved(&mut self, file: i64, offset: i64, len: i64, keeps_size: bool) {
        let scale = self.scale;
        let f = self.file(file);
        f.modify();
        let end = offset.max(0).saturating_add(len);
        let len = scale.length(offset, len);
        let start = scale.position(offset).max(0);
        let before = f.scaled;
        if !keeps_size {
            f.size = Some(f.size.unwrap_or(0).max(end));
            f.scaled = f.scaled.max(start.saturating_add(len));
        }
        f.holes.fill(start..start.saturating_add(len));
        let (grown, family) = (blocks(f.scaled) - blocks(before), f.family);
        if family.is_some() {
            self.family_grows(family, grown);
            return self.allocate(file, blocks(len));
        }
        let f = self.file(file);
        let end = start.saturating_add(len);
        let alloc = f.alloc.max(blocks(f.alloc.saturating_add(len).min(end)));
        self.set_allocated(file, alloc);
    }

    /// The last name was removed; `open` says whether the file is still open. Returns true if the file is gone.
    pub fn unlinked(&mut self, file: i64, open: bool) -> bool {
        if let Some(f) = self.files.get_mut(&file) {
            f.unlinked = true;
        }
        if !open {
            self.freed(file);
        }
        !open
    }

    /// The last descriptor was closed. Returns true if the file is gone.
    pub fn closed(&mut self, file: i64) -> bool {
        let unlinked = self.files.get(&file).is_some_and(|f| f.unlinked);
        if unlinked {
            self.freed(file);
        }
        unlinked
    }

    fn freed(&mut self, file: i64) {
        if let Some(f) = self.files.remove(&file) {
            let own = if f.family.is_none() { f.alloc } else { 0 };
            self.family_grows(f.family, -blocks(f.scaled));
            self.take(-own.saturating_add(if f.made { BLOCK_BYTES } else { 0 }));
        }
    }

    /// A write at an unknown position.
    pub fn written_somewhere(&mut self, file: i64) {
        let f = self.file(file);
        f.modify();
        f.exact = false;
        f.followed = false;
    }

    /// The file's size, if exactly known.
    pub fn exact(&self, file: i64) -> Option<i64> {
        self.files.get(&file).filter(|f| f.exact).and_then(|f| f.size)
    }

    /// The file's size on the target, if exactly known.
    pub fn exact_scaled(&self, file: i64) -> Option<i64> {
        self.files.get(&file).filter(|f| f.exact).map(|f| f.scaled)
    }

    /// The file's size on the target at the end, if the recording determines it.
    pub fn end_size(&self, file: i64) -> Option<i64> {
        let f = self.files.get(&file)?;
        let followed = f.followed && self.scale.is_none();
        if f.exact { Some(f.scaled) } else { f.size.filter(|_| followed) }
    }

    /// The scale of file sizes.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The file's size, if known.
    pub fn size(&self, file: i64) -> Option<i64> {
        self.files.get(&file).and_then(|f| f.size)
    }
}

impl Sizes {
    /// Length to prepare for a file, and how much of it is data, bytes.
    pub(crate) fn prepared_lengths(&self, node: NodeId, row: Option<&rows::Tree>) -> (i64, i64) {
        let listed = row.and_then(|r| r.size_bytes);
        let size_bytes = self.bounds.get(&node).map_or(listed.unwrap_or(0), |b| b.size(listed)).max(0);
        // Small files inside their inode and compressed files also use less than their length, so only whole missing
        // blocks make a file sparse. Bytes that results prove beyond the listed length are data.
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
