//! F2FS: areas given by the superblock (include/linux/f2fs_fs.h, struct f2fs_super_block; little-endian).

use std::io;

use super::{Kind, Ranges, le32};

/// Sectors of checkpoints and tables. Other metadata lies among the data and is recognised by its inode.
#[derive(Debug)]
pub(crate) struct Layout {
    areas: Ranges,
    /// The node inode: its pages are inodes and the address blocks of large files, which lie among the data.
    pub(crate) node_ino: u64,
}

const MAGIC: i64 = 0xF2F5_2010;
/// Offset of the first of two copies.
const SUPERBLOCK_AT: usize = 1024;

impl Layout {
    /// What this sector contains.
    pub(super) fn at(&self, sector: i64) -> Option<Kind> {
        self.areas.at(sector)
    }
}

/// Reads the layout. `read` takes an offset and a length in bytes. `None` without the magic number of F2FS.
pub(super) fn read(read: &mut dyn FnMut(u64, usize) -> io::Result<Vec<u8>>) -> io::Result<Option<Layout>> {
    let block = read(0, 4096)?;
    let sb = block.get(SUPERBLOCK_AT..).unwrap_or_default();
    let shift = le32(sb, 16);
    if le32(sb, 0) != MAGIC || !(9..=16).contains(&shift) {
        return Ok(None);
    }
    let sector = |at: usize| le32(sb, at) << (shift - 9);
    let (checkpoints, segments, nodes, summaries, main) = (sector(76), sector(80), sector(84), sector(88), sector(92));
    Ok(Some(Layout {
        areas: Ranges::new(vec![
            (0, 2 << (shift - 9), Kind { class: "superblock", detail: "superblock" }),
            (checkpoints, segments, Kind { class: "journal", detail: "checkpoint" }),
            (segments, nodes, Kind { class: "bitmap", detail: "segments" }),
            (nodes, summaries, Kind { class: "inode_table", detail: "node_addresses" }),
            (summaries, main, Kind { class: "metadata", detail: "summary" }),
        ]),
        node_ino: le32(sb, 100) as u64,
    }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn areas_of_a_superblock() {
        let mut disk = vec![0u8; 4096];
        let mut put = |at: usize, v: u32| disk[SUPERBLOCK_AT + at..][..4].copy_from_slice(&v.to_le_bytes());
        put(0, 0xF2F5_2010);
        put(16, 12);
        for (i, block) in [512u32, 1536, 2560, 3584, 4096].into_iter().enumerate() {
            put(76 + i * 4, block);
        }
        put(100, 1);
        let whole = |disk: &[u8]| read(&mut |at, len| Ok(disk[at as usize..][..len].to_vec())).unwrap();
        let found = whole(&disk).unwrap();
        let class = |block: i64| found.at(block * 8).map(|k| k.class);
        assert_eq!(
            [0, 2, 512, 1535, 1536, 2560, 3584, 4095, 4096].map(class),
            [
                Some("superblock"),
                None,
                Some("journal"),
                Some("journal"),
                Some("bitmap"),
                Some("inode_table"),
                Some("metadata"),
                Some("metadata"),
                None
            ]
        );
        assert_eq!(found.node_ino, 1);
        disk[SUPERBLOCK_AT + 16] = 200;
        assert!(whole(&disk).is_none());
    }
}
