//! ext2, ext3 and ext4: superblock, group descriptors and the journal's blocks. Little-endian. Structures:
//! ext4_super_block, ext4_group_desc and ext4_inode in fs/ext4/ext4.h; fs/ext4/ext4_extents.h.

use std::io;

use super::{Kind, Ranges, le16, le32};

type Read<'a> = dyn FnMut(u64, usize) -> io::Result<Vec<u8>> + 'a;

/// Sectors of tables, bitmaps and the journal.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    ranges: Ranges,
    /// Device of an external journal.
    pub(crate) journal_dev: Option<i64>,
    /// Inodes whose data is metadata of the file system: the quota files.
    pub(crate) own_inodes: Vec<i64>,
    /// Directory entries contain the file type.
    pub(crate) filetype: bool,
    /// Directories may be encrypted; their names are then arbitrary bytes.
    pub(crate) encrypt: bool,
    /// Bytes per block.
    pub(crate) block_bytes: i64,
    /// Number of blocks of the file system.
    pub(crate) blocks: i64,
}

/// What a device with ext4's magic number contains.
pub(super) enum Found {
    /// A file system.
    FileSystem(Layout),
    /// The external journal of another file system.
    Journal,
}

const COMPAT_SPARSE_SUPER2: i64 = 0x200;
const INCOMPAT_FILETYPE: i64 = 0x2;
const INCOMPAT_ENCRYPT: i64 = 0x10000;
const INCOMPAT_JOURNAL_DEV: i64 = 0x8;
const INCOMPAT_META_BG: i64 = 0x10;
const INCOMPAT_64BIT: i64 = 0x80;
const RO_COMPAT_SPARSE_SUPER: i64 = 0x1;
const EXTENTS_FL: i64 = 0x8_0000;
const EXTENT_MAGIC: i64 = 0xF30A;
const RESIZE_INODE: i64 = 7;
/// Longer block maps are cut off. A journal has some tens of extents.
const MAX_MAP: usize = 100_000;

const JOURNAL: Kind = Kind { class: "journal", detail: "jbd2" };
const JOURNAL_MAP: Kind = Kind { class: "extent_map", detail: "journal" };
const SUPER: Kind = Kind { class: "superblock", detail: "superblock" };
const DESCRIPTORS: Kind = Kind { class: "superblock", detail: "group_descriptors" };
const BLOCK_BITMAP: Kind = Kind { class: "bitmap", detail: "block_bitmap" };
const INODE_BITMAP: Kind = Kind { class: "bitmap", detail: "inode_bitmap" };
const INODE_TABLE: Kind = Kind { class: "inode_table", detail: "inode_table" };

impl Layout {
    /// What this sector contains.
    pub(super) fn at(&self, sector: i64) -> Option<Kind> {
        self.ranges.at(sector)
    }
}

fn superblock(read: &mut Read<'_>) -> io::Result<Option<Vec<u8>>> {
    let sb = read(1024, 1024)?;
    Ok((le16(&sb, 0x38) == 0xEF53).then_some(sb))
}

/// Device of an external journal, in the format of `new_encode_dev` (linux/kdev_t.h).
pub(super) fn external_journal(sb: &[u8]) -> Option<i64> {
    let dev = le32(sb, 0xE4);
    (le32(sb, 0xE0) == 0 && dev != 0).then_some((dev & 0xF_FF00) >> 8 << 20 | dev & 0xFF | dev >> 12 & 0xF_FF00)
}

/// Device of an external journal.
pub(super) fn journal_device(read: &mut Read<'_>) -> Option<i64> {
    external_journal(&superblock(read).ok().flatten()?)
}

/// Reads the layout. `read` takes an offset and a length in bytes. `None` without ext4's magic number.
pub(super) fn read(read: &mut Read<'_>) -> io::Result<Option<Found>> {
    let Some(sb) = superblock(read)? else { return Ok(None) };
    if le32(&sb, 0x60) & INCOMPAT_JOURNAL_DEV != 0 {
        return Ok(Some(Found::Journal));
    }
    match Geometry::of(&sb) {
        Some(geometry) => geometry.layout(&sb, read).map(|l| Some(Found::FileSystem(l))),
        None => Ok(None),
    }
}

struct Geometry {
    block: i64,
    first: i64,
    blocks: i64,
    per_group: i64,
    inodes_per_group: i64,
    inode_bytes: i64,
    desc_bytes: i64,
    groups: i64,
    first_meta_bg: Option<i64>,
    reserved: i64,
    sparse: bool,
    backups: Option<[i64; 2]>,
}

impl Geometry {
    fn of(sb: &[u8]) -> Option<Self> {
        let (compat, incompat, ro) = (le32(sb, 0x5C), le32(sb, 0x60), le32(sb, 0x64));
        let (log_block, per_group, inodes_per_group) = (le32(sb, 0x18), le32(sb, 0x20), le32(sb, 0x28));
        if log_block > 6 || per_group == 0 || inodes_per_group == 0 {
            return None;
        }
        let wide = incompat & INCOMPAT_64BIT != 0;
        let first = le32(sb, 0x14);
        let blocks = le32(sb, 0x4) | if wide { le32(sb, 0x150) << 32 } else { 0 };
        let desc = if wide { le16(sb, 0xFE) } else { 32 };
        // Revision 0 of ext2 has no such field.
        let inode_bytes = if le32(sb, 0x4C) == 0 { 128 } else { le16(sb, 0x58) };
        let sane = (32..=1024).contains(&desc) && inode_bytes >= 128 && blocks > first && blocks < 1 << 48;
        sane.then(|| Self {
            block: 1024 << log_block,
            first,
            blocks,
            per_group,
            inodes_per_group,
            inode_bytes,
            desc_bytes: desc,
            groups: (blocks - first + per_group - 1) / per_group,
            first_meta_bg: (incompat & INCOMPAT_META_BG != 0).then(|| le32(sb, 0x104)),
            reserved: le16(sb, 0xCE),
            sparse: ro & RO_COMPAT_SPARSE_SUPER != 0,
            backups: (compat & COMPAT_SPARSE_SUPER2 != 0).then(|| [le32(sb, 0x24C), le32(sb, 0x250)]),
        })
    }

    fn start(&self, group: i64) -> i64 {
        self.first + group * self.per_group
    }

    /// Like `ext4_bg_has_super` of fs/ext4/balloc.c.
    fn has_super(&self, group: i64) -> bool {
        let power_of = |base: i64| {
            let mut n = base;
            while n < group {
                n *= base;
            }
            n == group
        };
        match self.backups {
            _ if group == 0 => true,
            Some(backups) => backups.contains(&group),
            None => !self.sparse || group == 1 || group % 2 != 0 && [3, 5, 7].into_iter().any(power_of),
        }
    }

    fn descs_per_block(&self) -> i64 {
        self.block / self.desc_bytes
    }

    /// Block of the `i`-th block of group descriptors, like `descriptor_loc` of fs/ext4/super.c.
    fn descriptor_block(&self, i: i64) -> i64 {
        match self.first_meta_bg {
            Some(first) if i >= first => {
                let group = i * self.descs_per_block();
                self.super_at(group) + i64::from(self.has_super(group))
            }
            _ => self.super_at(0) + 1 + i,
        }
    }

    /// Block of a group's superblock, if it has one. With bigalloc and blocks of 1 KiB, group 0 starts at the boot
    /// block, and its superblock is one block further.
    fn super_at(&self, group: i64) -> i64 {
        self.start(group) + i64::from(group == 0 && self.block == 1024 && self.first == 0)
    }

    fn layout(&self, sb: &[u8], read: &mut Read<'_>) -> io::Result<Layout> {
        let (mut all, first_table) = self.bitmaps_and_tables(read)?;
        all.extend((0..self.groups).flat_map(|group| self.superblock_and_descriptors(group)));
        all.extend(self.own_files(sb, first_table, read)?);
        let mmp = le32(sb, 0x168) | le32(sb, 0x16C) << 32;
        if mmp != 0 {
            all.push((mmp, mmp + 1, metadata("mmp")));
        }
        // With blocks of 1 KiB the superblock is block 1; the boot block before it belongs to nobody.
        let sectors = self.block / 512;
        let in_sectors = all.into_iter().map(|(from, to, kind)| (from * sectors, to * sectors, kind)).collect();
        Ok(Layout {
            ranges: Ranges::new(in_sectors),
            journal_dev: external_journal(sb),
            own_inodes: [0x240, 0x244, 0x26C].into_iter().map(|at| le32(sb, at)).filter(|n| *n != 0).collect(),
            filetype: le32(sb, 0x60) & INCOMPAT_FILETYPE != 0,
            encrypt: le32(sb, 0x60) & INCOMPAT_ENCRYPT != 0,
            block_bytes: self.block,
            blocks: self.blocks,
        })
    }

    /// Blocks that hold all descriptors once.
    fn descriptor_blocks(&self) -> i64 {
        (self.groups + self.descs_per_block() - 1) / self.descs_per_block()
    }

    /// The bitmaps and inode tables of all groups, as their descriptors say, and the first block of the first table.
    fn bitmaps_and_tables(&self, read: &mut Read<'_>) -> io::Result<(Vec<Blocks>, Option<i64>)> {
        let per_block = self.descs_per_block();
        let tables = (self.inodes_per_group * self.inode_bytes + self.block - 1) / self.block;
        let mut all = Vec::new();
        let mut first_table = None;
        for i in 0..self.descriptor_blocks() {
            let descs = read((self.descriptor_block(i) * self.block) as u64, self.block as usize)?;
            for (n, group) in (i * per_block..self.groups.min((i + 1) * per_block)).enumerate() {
                let at = n * self.desc_bytes as usize;
                let number = |lo: usize, hi: usize| {
                    le32(&descs, at + lo) | if self.desc_bytes >= 64 { le32(&descs, at + hi) << 32 } else { 0 }
                };
                let table = number(8, 0x28);
                all.push(blocks(number(0, 0x20), 1, BLOCK_BITMAP));
                all.push(blocks(number(4, 0x24), 1, INODE_BITMAP));
                all.push(blocks(table, tables, INODE_TABLE));
                if group == 0 {
                    first_table = Some(table);
                }
            }
        }
        Ok((all, first_table))
    }

    /// A group's copies of the superblock and of descriptors.
    fn superblock_and_descriptors(&self, group: i64) -> impl Iterator<Item = Blocks> {
        let (start, has_super) = (self.super_at(group), self.has_super(group));
        let per_block = self.descs_per_block();
        let meta = self.first_meta_bg.filter(|first| group / per_block >= *first);
        let descriptors = match meta {
            None if has_super => {
                let all = self.descriptor_blocks();
                let descriptors = self.first_meta_bg.unwrap_or(all).min(all);
                Some(blocks(start + 1, descriptors + self.reserved, DESCRIPTORS))
            }
            Some(_) if matches!(group % per_block, 0 | 1) || group % per_block == per_block - 1 => {
                Some(blocks(start + i64::from(has_super), 1, DESCRIPTORS))
            }
            _ => None,
        };
        has_super.then(|| blocks(start, 1, SUPER)).into_iter().chain(descriptors)
    }

    /// The blocks of the files that are the file system's own: the journal, quota and so on. Their inodes are in the
    /// first table, which begins at block `first_table`.
    fn own_files(&self, sb: &[u8], first_table: Option<i64>, read: &mut Read<'_>) -> io::Result<Vec<Blocks>> {
        let mut inode = |number: i64| -> io::Result<Option<Vec<u8>>> {
            // The inodes that matter are the first of all, but for the orphan file's.
            let (group, index) = ((number - 1) / self.inodes_per_group, (number - 1) % self.inodes_per_group);
            let table = match first_table {
                Some(table) if group == 0 && number > 0 => table,
                _ => return Ok(None),
            };
            read((table * self.block + index * self.inode_bytes) as u64, 128).map(Some)
        };
        let mut owned = Vec::new();
        let journal = le32(sb, 0xE0);
        let own = [
            (journal, JOURNAL, JOURNAL_MAP),
            (RESIZE_INODE, DESCRIPTORS, Kind { class: "extent_map", detail: "resize_inode" }),
            (le32(sb, 0x280), metadata("orphan_file"), metadata("orphan_file")),
            (le32(sb, 0x240), metadata("quota"), metadata("quota")),
            (le32(sb, 0x244), metadata("quota"), metadata("quota")),
            (le32(sb, 0x26C), metadata("quota"), metadata("quota")),
        ];
        for (number, data, map) in own.into_iter().filter(|(number, ..)| *number != 0) {
            if let Some(inode) = inode(number)? {
                owned.push((inode, data, map));
            }
        }
        let mut all = Vec::new();
        for (inode, data, map) in owned {
            let mut its = InodeBlocks { geometry: self, read, data: Vec::new(), map: Vec::new() };
            its.of_inode(&inode)?;
            all.extend(its.data.into_iter().map(|(from, len)| blocks(from, len, data)));
            all.extend(its.map.into_iter().map(|at| blocks(at, 1, map)));
        }
        Ok(all)
    }
}

/// Blocks from the first up to the second, and what they are.
type Blocks = (i64, i64, Kind);

fn blocks(from: i64, len: i64, kind: Kind) -> Blocks {
    (from, from + len, kind)
}

fn metadata(detail: &'static str) -> Kind {
    Kind { class: "metadata", detail }
}

/// Collects the blocks of an inode.
struct InodeBlocks<'a, 'b> {
    geometry: &'a Geometry,
    read: &'a mut Read<'b>,
    data: Vec<(i64, i64)>,
    map: Vec<i64>,
}

impl InodeBlocks<'_, '_> {
    fn of_inode(&mut self, inode: &[u8]) -> io::Result<()> {
        let Some(root) = inode.get(0x28..0x28 + 60) else { return Ok(()) };
        if le32(inode, 0x20) & EXTENTS_FL != 0 {
            return self.extents(root, 5);
        }
        for i in 0..12 {
            self.block(le32(root, i * 4));
        }
        for depth in 0..3 {
            self.indirect(le32(root, (12 + depth) * 4), depth)?;
        }
        Ok(())
    }

    fn inside(&self, block: i64) -> bool {
        block > 0 && block < self.geometry.blocks && self.data.len() + self.map.len() < MAX_MAP
    }

    fn block(&mut self, block: i64) {
        if !self.inside(block) {
            return;
        }
        match self.data.last_mut() {
            Some((from, len)) if *from + *len == block => *len += 1,
            _ => self.data.push((block, 1)),
        }
    }

    fn fetch(&mut self, block: i64) -> io::Result<Vec<u8>> {
        (self.read)((block * self.geometry.block) as u64, self.geometry.block as usize)
    }

    fn extents(&mut self, node: &[u8], left: i64) -> io::Result<()> {
        let (magic, entries, depth) = (le16(node, 0), le16(node, 2), le16(node, 6));
        if magic != EXTENT_MAGIC || depth > left {
            return Ok(());
        }
        for i in 1..=entries as usize {
            let Some(entry) = node.get(i * 12..i * 12 + 12) else { break };
            if depth == 0 {
                let len = le16(entry, 4);
                let start = le16(entry, 6) << 32 | le32(entry, 8);
                // A length above 32768 marks an unwritten extent.
                let len = if len > 32768 { len - 32768 } else { len };
                if self.inside(start) {
                    self.data.push((start, len));
                }
            } else {
                let child = le32(entry, 4) | le16(entry, 8) << 32;
                if self.inside(child) {
                    self.map.push(child);
                    let child = self.fetch(child)?;
                    self.extents(&child, depth - 1)?;
                }
            }
        }
        Ok(())
    }

    fn indirect(&mut self, block: i64, depth: usize) -> io::Result<()> {
        if !self.inside(block) {
            return Ok(());
        }
        self.map.push(block);
        let bytes = self.fetch(block)?;
        for i in 0..bytes.len() / 4 {
            let child = le32(&bytes, i * 4);
            if depth == 0 {
                self.block(child);
            } else {
                self.indirect(child, depth - 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_in_the_superblock() {
        let mut sb = vec![0u8; 1024];
        // 259:300: minor numbers above 255 are split into two fields.
        sb[0xE4..0xE8].copy_from_slice(&((300u32 & 0xFF) | 259 << 8 | (300 & !0xFF) << 12).to_le_bytes());
        assert_eq!(external_journal(&sb), Some(259 << 20 | 300));
        sb[0xE0] = 8;
        assert_eq!(external_journal(&sb), None);
    }

    #[test]
    fn what_is_no_ext4_or_damaged_is_refused() {
        assert!(read(&mut |_, len| Ok(vec![0; len])).is_ok_and(|f| f.is_none()));
        assert!(read(&mut |_, len| Ok(vec![0xFF; len])).is_ok_and(|f| f.is_none()));
        let damaged = |_: u64, len: usize| {
            let mut b = vec![0u8; len];
            if len > 0x3A {
                (b[0x38], b[0x39]) = (0x53, 0xEF);
            }
            Ok(b)
        };
        assert!(read(&mut { damaged }).is_ok_and(|f| f.is_none()));
    }
}
