//! `--layout`: gives files the recorded on-disk layout: number and sizes of extents, holes, and unwritten space.
//!
//! No file system lets a program choose where data goes. But ext4 and XFS put space reserved at once into one extent,
//! and remove a range from the middle of a file without moving the rest (`FALLOC_FL_COLLAPSE_RANGE`). So extents are
//! reserved together with gaps between them, and the gaps are removed. On others (btrfs), extents are written and
//! synced one by one, with a block of another file between them.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use ioreel_traces::{
    Reel,
    fiemap::{NOWHERE, UNWRITTEN, extents},
    rows, text,
};
use rustix::{
    fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, fdatasync, fstatvfs, ftruncate, open, openat},
    io::Errno,
};
use serde::Serialize;

use crate::{
    ReplayError,
    contents::fill::Filler,
    prepare::tree::{Item, ItemKind, Preparation},
};

/// Maximum number of pieces of a file; the rest is one piece. Removing a gap takes longer the more pieces follow.
const MOST_PIECES: usize = 8192;
/// Maximum size of a gap, bytes.
const MOST_GAP_BYTES: i64 = 64 << 10;
/// Maximum number of extents read when a file is checked.
const MOST_ASKED: usize = 1 << 20;

/// An extent, or a part of a file without holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset_bytes: i64,
    len_bytes: i64,
    /// Holds data; otherwise reserved only.
    written: bool,
    /// Bytes on the disk between the previous piece and this one, which adjoin in the file; 0 if they adjoin on the
    /// disk, too.
    gap_bytes: i64,
}

/// The layout of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pieces: Vec<Piece>,
    /// Number of recorded extents. Adjacent ones count as one.
    recorded: i64,
}

/// How close the created layouts are to the recorded ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LayoutReport {
    /// Files whose layout the reel has.
    pub files: i64,
    /// Files among them with the recorded number of extents.
    pub alike: i64,
    /// Recorded extents of all of them. Adjacent ones count as one.
    pub recorded_extents: i64,
    /// Likewise as created.
    pub made_extents: i64,
    /// Files whose extents the file system does not report.
    pub untold: i64,
}

/// Layouts by path in the target.
pub(crate) type Layouts = HashMap<Vec<u8>, Arc<Layout>>;

/// Reads the layouts of a reel.
pub(crate) fn read(reel: &Reel) -> Result<Layouts, ReplayError> {
    let mut out: HashMap<Vec<u8>, Layout> = HashMap::new();
    let mut last: Option<rows::Extent> = None;
    for row in reel.rows::<rows::Extent>() {
        let row = row?;
        let before = last.as_ref().filter(|l| l.path == row.path);
        out.entry(text::to_bytes(&row.path)).or_default().add(before, &row);
        last = Some(row);
    }
    Ok(out.into_iter().map(|(path, layout)| (path, Arc::new(layout))).collect())
}

impl Preparation {
    /// Assigns layouts to the files to prepare, if the files are as they were when the layout was recorded.
    pub(crate) fn lay_out(&mut self, layouts: &Layouts) {
        for item in &mut self.items {
            if let (ItemKind::Regular { size_bytes, .. }, Some(_), Some(layout)) =
                (&item.what, item.mtime_ns, layouts.get(&item.path))
                && layout.fits(*size_bytes)
            {
                self.bytes = self.bytes.saturating_sub(item.bytes());
                item.layout = Some(layout.clone());
                self.bytes = self.bytes.saturating_add(item.bytes());
            }
        }
    }
}

impl Layout {
    fn add(&mut self, before: Option<&rows::Extent>, row: &rows::Extent) {
        self.recorded += 1;
        let end = |e: &rows::Extent| e.offset_bytes.saturating_add(e.len_bytes);
        let gap_bytes = match before {
            Some(b) if end(b) == row.offset_bytes && (b.flags | row.flags) & NOWHERE == 0 => {
                row.physical_bytes.saturating_sub(b.physical_bytes.saturating_add(b.len_bytes)).saturating_abs()
            }
            _ => 0,
        };
        let piece = Piece {
            offset_bytes: row.offset_bytes.max(0),
            len_bytes: row.len_bytes.max(0),
            written: row.flags & UNWRITTEN == 0,
            gap_bytes: gap_bytes.min(MOST_GAP_BYTES),
        };
        match self.pieces.last_mut() {
            Some(last) if self.recorded > MOST_PIECES as i64 && last.written == piece.written => {
                last.len_bytes = end(row).saturating_sub(last.offset_bytes);
            }
            _ => self.pieces.push(piece),
        }
    }

    /// Whether the layout is possible for a file of this size. Extents in a crafted reel may be anywhere.
    fn fits(&self, size_bytes: i64) -> bool {
        let ends = |p: &Piece| p.offset_bytes.checked_add(p.len_bytes);
        let in_order = self.pieces.windows(2).all(|w| ends(&w[0]).is_some_and(|end| end <= w[1].offset_bytes));
        // The last block extends beyond the end of the file; reserved space may extend far beyond.
        let data = self.pieces.iter().filter(|p| p.written).filter_map(ends).max().unwrap_or(0);
        let room = self.pieces.last().and_then(ends);
        in_order
            && room.is_some_and(|room| room <= size_bytes.saturating_add(1 << 30))
            && data <= size_bytes + (1 << 20)
    }

    /// Space needed while the file is created, bytes.
    pub(crate) fn room_bytes(&self) -> i64 {
        self.pieces.iter().fold(0, |sum, p| sum.saturating_add(p.len_bytes).saturating_add(p.gap_bytes))
    }

    /// Length of the data at the start of the file, without a hole, bytes.
    pub(crate) fn data_bytes(&self) -> i64 {
        let mut end = 0;
        for p in self.pieces.iter().take_while(|p| p.written) {
            if p.offset_bytes > end {
                break;
            }
            end = p.offset_bytes + p.len_bytes;
        }
        end
    }

    /// The pieces in whole blocks, without overlap.
    fn in_blocks(&self, block: i64) -> Vec<Piece> {
        let mut out: Vec<Piece> = Vec::with_capacity(self.pieces.len());
        let mut end = 0;
        for p in &self.pieces {
            let from = (p.offset_bytes / block * block).max(end);
            let to = (p.offset_bytes + p.len_bytes + block - 1) / block * block;
            if to > from {
                let gap = if p.gap_bytes > 0 && from == end { (p.gap_bytes + block - 1) / block * block } else { 0 };
                out.push(Piece { offset_bytes: from, len_bytes: to - from, gap_bytes: gap, ..*p });
                end = to;
            }
        }
        out
    }

    /// Fills an empty file, whose name is `path`.
    pub(crate) fn fill(
        &self,
        fd: impl AsFd,
        path: &[u8],
        size_bytes: i64,
        filler: &Filler,
        key: (usize, u64),
    ) -> io::Result<()> {
        let fd = fd.as_fd();
        let block = fstatvfs(fd).map_or(4096, |s| s.f_bsize as i64).clamp(4096, 1 << 20);
        let pieces = self.in_blocks(block);
        let in_one = pieces.iter().all(|p| p.gap_bytes == 0);
        match reserve(fd, &pieces) {
            Ok(()) => write(fd, &pieces, size_bytes, filler, key)?,
            Err(Errno::OPNOTSUPP | Errno::INVAL) if in_one => write(fd, &pieces, size_bytes, filler, key)?,
            Err(Errno::OPNOTSUPP | Errno::INVAL) => {
                ftruncate(fd, 0)?;
                interleave(fd, path, &pieces, size_bytes, filler, key)?;
            }
            Err(e) => return Err(e.into()),
        }
        ftruncate(fd, size_bytes.max(0) as u64)?;
        // This also cut off the space reserved beyond the end.
        for p in pieces.iter().filter(|p| !p.written && p.offset_bytes + p.len_bytes > size_bytes) {
            // Where this is not possible, only the reserved space is missing.
            let _ = fallocate(fd, FallocateFlags::KEEP_SIZE, p.offset_bytes as u64, p.len_bytes as u64);
        }
        Ok(())
    }
}

/// Reserves space for all pieces and the gaps between them, then removes the gaps.
fn reserve(fd: BorrowedFd<'_>, pieces: &[Piece]) -> Result<(), Errno> {
    let mut shift = 0;
    let mut gaps: Vec<(i64, i64)> = Vec::new();
    let mut run: Option<(i64, i64)> = None;
    for p in pieces {
        let at = p.offset_bytes + shift;
        run = match run {
            Some((from, to)) if to == at => {
                if p.gap_bytes > 0 {
                    gaps.push((at, p.gap_bytes));
                    shift += p.gap_bytes;
                }
                Some((from, at + p.gap_bytes + p.len_bytes))
            }
            other => {
                other.map_or(Ok(()), |run| reserve_run(fd, run))?;
                Some((at, at + p.len_bytes))
            }
        };
    }
    run.map_or(Ok(()), |run| reserve_run(fd, run))?;
    // From the end backwards, so that the remaining gaps keep their positions.
    gaps.iter().rev().try_for_each(|(at, len)| fallocate(fd, FallocateFlags::COLLAPSE_RANGE, *at as u64, *len as u64))
}

fn reserve_run(fd: BorrowedFd<'_>, (from, to): (i64, i64)) -> Result<(), Errno> {
    fallocate(fd, FallocateFlags::empty(), from as u64, (to - from) as u64)
}

/// Writes the data of all pieces.
fn write(fd: BorrowedFd<'_>, pieces: &[Piece], size_bytes: i64, filler: &Filler, key: (usize, u64)) -> io::Result<()> {
    for p in pieces.iter().filter(|p| p.written) {
        filler.fill_part(fd, p.offset_bytes, p.len_bytes.min(size_bytes - p.offset_bytes), key)?;
    }
    Ok(())
}

/// Writes and syncs piece by piece, with a block of another file between pieces that were apart.
fn interleave(
    fd: BorrowedFd<'_>,
    path: &[u8],
    pieces: &[Piece],
    size_bytes: i64,
    filler: &Filler,
    key: (usize, u64),
) -> io::Result<()> {
    let folder = path.iter().rposition(|b| *b == b'/').map_or(&b"/"[..], |at| &path[..at.max(1)]);
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let between = openat(CWD, folder, flags, Mode::from_raw_mode(0o600))?;
    let mut used = 0;
    for p in pieces {
        if p.gap_bytes > 0 {
            filler.fill_part(&between, used, p.gap_bytes, key)?;
            used += p.gap_bytes;
            fdatasync(&between)?;
        }
        if p.written {
            filler.fill_part(fd, p.offset_bytes, p.len_bytes.min(size_bytes - p.offset_bytes), key)?;
            fdatasync(fd)?;
        } else {
            // Without support for reservation, a hole remains.
            let _ = fallocate(fd, FallocateFlags::KEEP_SIZE, p.offset_bytes as u64, p.len_bytes as u64);
        }
    }
    Ok(())
}

/// Compares created layouts with recorded ones. Delayed data is written out first. Must be called inside the target.
pub(crate) fn look(items: &[Item]) -> LayoutReport {
    let mut out = LayoutReport::default();
    for (item, layout) in items.iter().filter_map(|i| Some((i, i.layout.as_ref()?))) {
        out.files += 1;
        out.recorded_extents += layout.recorded;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = open(item.path.as_slice(), flags, Mode::empty());
        let made = opened.map_err(io::Error::from).and_then(|fd| extents(fd, true, MOST_ASKED));
        match made {
            Ok(made) => {
                out.made_extents += made.len() as i64;
                out.alike += i64::from(made.len() as i64 == layout.recorded);
            }
            Err(_) => out.untold += 1,
        }
    }
    out
}
