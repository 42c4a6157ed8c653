//! XFS: geometry from the superblock (fs/xfs/libxfs/xfs_format.h, struct xfs_dsb; big-endian).

use std::io;

use super::{Kind, Ranges};

/// Sectors of the log and of the allocation group headers.
#[derive(Debug)]
pub(crate) struct Layout {
    log: Ranges,
    group_sectors: i64,
    groups: i64,
    header_sectors: i64,
}

const LOG: Kind = Kind { class: "journal", detail: "log" };
const HEADER: Kind = Kind { class: "superblock", detail: "ag_header" };
/// Superblock, AGF, AGI and AGFL: one sector each at the start of every group.
const HEADERS: i64 = 4;

impl Layout {
    /// What this sector contains.
    pub(super) fn at(&self, sector: i64) -> Option<Kind> {
        if let Some(kind) = self.log.at(sector) {
            return Some(kind);
        }
        let inside = sector / self.group_sectors < self.groups && sector % self.group_sectors < self.header_sectors;
        (sector >= 0 && inside).then_some(HEADER)
    }
}

/// Reads the layout. `read` takes an offset and a length in bytes. `None` without the magic number of XFS.
pub(super) fn read(read: &mut dyn FnMut(u64, usize) -> io::Result<Vec<u8>>) -> io::Result<Option<Layout>> {
    let sb = read(0, 4096)?;
    if sb.get(..4) != Some(b"XFSB") {
        return Ok(None);
    }
    let u16 = |at: usize| i64::from(u16::from_be_bytes([sb[at], sb[at + 1]]));
    let u32 = |at: usize| i64::from(u32::from_be_bytes([sb[at], sb[at + 1], sb[at + 2], sb[at + 3]]));
    let u64 = |at: usize| u32(at) << 32 | u32(at + 4);
    let (block, group_blocks, groups, sector, shift) = (u32(4), u32(84), u32(88), u16(102), i64::from(sb[124]));
    if block < 512 || group_blocks == 0 || sector < 512 || shift > 40 {
        return Ok(None);
    }
    let per_block = block / 512;
    let (start, len) = (u64(48), u32(96));
    // 0: the log is on a separate device.
    let at = ((start >> shift) * group_blocks + (start & ((1 << shift) - 1))) * per_block;
    let log = if start == 0 { Vec::new() } else { vec![(at, at + len * per_block, LOG)] };
    Ok(Some(Layout {
        log: Ranges::new(log),
        group_sectors: group_blocks * per_block,
        groups,
        header_sectors: HEADERS * sector / 512,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_and_headers_by_geometry() {
        let mut sb = vec![0u8; 4096];
        sb[..4].copy_from_slice(b"XFSB");
        sb[4..8].copy_from_slice(&4096u32.to_be_bytes());
        // Block 6 of group 2; groups have 1000 blocks, and a block number inside a group takes 10 bits.
        sb[48..56].copy_from_slice(&(2u64 << 10 | 6).to_be_bytes());
        sb[84..88].copy_from_slice(&1000u32.to_be_bytes());
        sb[88..92].copy_from_slice(&4u32.to_be_bytes());
        sb[96..100].copy_from_slice(&100u32.to_be_bytes());
        sb[102..104].copy_from_slice(&512u16.to_be_bytes());
        sb[124] = 10;
        let layout = read(&mut |_, _| Ok(sb.clone())).ok().flatten().expect("an XFS");
        assert_eq!(layout.at(2006 * 8), Some(LOG));
        assert_eq!(layout.at(2106 * 8 - 1), Some(LOG));
        assert_eq!(layout.at(2106 * 8), None);
        assert_eq!(layout.at(3000 * 8 + 3), Some(HEADER));
        assert_eq!(layout.at(3000 * 8 + 4), None);
        assert_eq!(layout.at(4000 * 8), None);
        assert!(read(&mut |_, _| Ok(vec![0; 4096])).is_ok_and(|l| l.is_none()));
        sb[84..88].fill(0);
        assert!(read(&mut |_, _| Ok(sb.clone())).is_ok_and(|l| l.is_none()), "damaged");
    }
}
