//! On-disk layout of a file: the FIEMAP ioctl (include/uapi/linux/fiemap.h).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::ioctl::{Updater, ioctl, opcode};

/// `FIEMAP_FLAG_SYNC`: write dirty data first.
const SYNC: u32 = 1;
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 1;
/// `FIEMAP_EXTENT_UNWRITTEN`: allocated, but contains no data.
pub const UNWRITTEN: i64 = 0x800;
/// `FIEMAP_EXTENT_UNKNOWN`, `_DELALLOC`, `_DATA_INLINE`: no known position on disk.
pub const NOWHERE: i64 = 0x2 | 0x4 | 0x200;
/// Extents per call.
const ROOM: usize = 128;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Raw; ROOM],
}

/// A contiguous part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, bytes.
    pub offset_bytes: i64,
    /// Length, bytes.
    pub len_bytes: i64,
    /// Position on the device, or in the address space of btrfs, bytes.
    pub physical_bytes: i64,
    /// `FIEMAP_EXTENT_*`.
    pub flags: i64,
}

impl Extent {
    fn is_unwritten(&self) -> bool {
        self.flags & UNWRITTEN != 0
    }

    /// Whether `next` continues this extent in the file, on disk and with the same flags.
    fn goes_on_in(&self, next: &Self) -> bool {
        self.offset_bytes + self.len_bytes == next.offset_bytes
            && (self.physical_bytes + self.len_bytes == next.physical_bytes || next.flags & NOWHERE != 0)
            && self.is_unwritten() == next.is_unwritten()
    }
}

/// The extents of an open file in order, at most `most`. `sync` writes dirty data first. Adjacent extents are merged,
/// because file systems split contiguous parts at their own limits.
///
/// # Errors
/// `EOPNOTSUPP` if the file system does not support it.
pub fn extents(fd: impl AsFd, sync: bool, most: usize) -> io::Result<Vec<Extent>> {
    let mut out: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let (read, last) = some(fd.as_fd(), start, sync)?;
        let Some(end) = read.last().map(|e| e.offset_bytes.saturating_add(e.len_bytes)) else { return Ok(out) };
        for e in read {
            match out.last_mut() {
                Some(before) if before.goes_on_in(&e) => before.len_bytes += e.len_bytes,
                _ => out.push(e),
            }
        }
        if last || out.len() >= most || end <= start {
            out.truncate(most);
            return Ok(out);
        }
        start = end;
    }
}

/// The extents from `start`, as many as fit, and whether these are all.
fn some(fd: BorrowedFd<'_>, start: i64, sync: bool) -> io::Result<(Vec<Extent>, bool)> {
    const FIEMAP: rustix::ioctl::Opcode = opcode::read_write::<[u8; 32]>(b'f', 11);
    let mut map = Fiemap {
        start: start as u64,
        length: u64::MAX - start as u64,
        flags: if sync { SYNC } else { 0 },
        mapped: 0,
        room: ROOM as u32,
        reserved: 0,
        extents: [Raw::default(); ROOM],
    };
    // SAFETY: FIEMAP takes this structure and writes at most as many extents as it declares room for.
    unsafe { ioctl(fd, Updater::<FIEMAP, Fiemap>::new(&mut map)) }?;
    let got = &map.extents[..(map.mapped as usize).min(ROOM)];
    let last = got.last().is_none_or(|e| e.flags & LAST != 0);
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let of = |e: &Raw| Extent {
        offset_bytes: signed(e.logical),
        len_bytes: signed(e.length),
        physical_bytes: signed(e.physical),
        flags: i64::from(e.flags & !LAST),
    };
    Ok((got.iter().map(of).collect(), last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_go_on_are_one() {
        let at = |offset_bytes, physical_bytes, flags| Extent { offset_bytes, len_bytes: 100, physical_bytes, flags };
        assert!(at(0, 1000, 0).goes_on_in(&at(100, 1100, 0)));
        assert!(!at(0, 1000, 0).goes_on_in(&at(100, 1200, 0)), "apart on the disk");
        assert!(!at(0, 1000, 0).goes_on_in(&at(200, 1100, 0)), "a hole between them");
        assert!(!at(0, 1000, 0).goes_on_in(&at(100, 1100, UNWRITTEN)), "another kind");
    }
}
