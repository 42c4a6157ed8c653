//! Classifies bios: data of a file, or a kind of metadata. Depends only on what the probes saw and on the layout of the
//! device. `docs/internals/attribution.md` gives the reasons with their kernel sources.

use ioreel_bpf::types::{bio_flags, bio_how, end_io, rec_bio, stripe_place};

use crate::host::layout::{Kind, Layout, Layouts, ext4};

/// The classification of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Value of the column `class`.
    pub(crate) class: &'static str,
    /// Value of the column `detail`.
    pub(crate) detail: Option<&'static str>,
    /// Value of the column `how`.
    pub(crate) how: Option<&'static str>,
    /// Confidence in percent.
    pub(crate) confidence: i32,
    /// Whether the bio carries data of the file in the record.
    pub(crate) of_file: bool,
}

const WRITE: u32 = 1;
const DISCARD: u32 = 3;
const SECURE_ERASE: u32 = 5;
const FLUSH: u32 = 2;
const WRITE_ZEROES: u32 = 9;
const META: u32 = 1 << 12;
const SWAP: u32 = 1 << 22;

fn told(class: &'static str, detail: &'static str, how: &'static str, confidence: i32) -> Told {
    Told { class, detail: Some(detail), how: Some(how), confidence, of_file: false }
}

fn data(how: &'static str, confidence: i32) -> Told {
    Told { class: "data", detail: None, how: Some(how), confidence, of_file: true }
}

const UNKNOWN: Told = Told { class: "unknown", detail: None, how: None, confidence: 0, of_file: false };

/// Device and sector where the bio was queued first, before any remapping. The file system uses these.
pub(crate) fn place(rec: &rec_bio) -> (i64, i64) {
    if rec.orig_dev != 0 {
        (i64::from(rec.orig_dev), rec.orig_sector as i64)
    } else {
        (i64::from(rec.dev), rec.sector as i64)
    }
}

/// Superblocks of file systems lie within this many sectors from the start of a device: 128 KiB.
const SUPERBLOCK_SECTORS: i64 = 256;

/// Classifies a bio. A write near the start of the device makes the known layout stale.
pub(crate) fn classify(rec: &rec_bio, layouts: &mut Layouts) -> Told {
    let (dev, sector) = place(rec);
    let told = decide(rec, layouts);
    if rec.opf & 1 != 0 && rec.len_bytes != 0 && (0..SUPERBLOCK_SECTORS).contains(&sector) {
        layouts.written(dev);
    }
    told
}

/// Finds the class.
///
/// Long because it is a chain of cases, the most certain first; the first match decides.
fn decide(rec: &rec_bio, layouts: &mut Layouts) -> Told {
    let op = rec.opf & 0xff;
    if op == FLUSH || rec.len_bytes == 0 {
        return Told { class: "flush", detail: None, how: Some("operation"), confidence: 100, of_file: false };
    }
    let end = end_io(u32::from(rec.end_io));
    let (dev, sector) = place(rec);
    // Direct I/O on the device by an unknown caller, or swap-in: file systems keep no metadata in anonymous pages.
    let unowned = rec.how == 0;
    let anonymous = unowned && end == end_io::END_WAIT && op == 0 && has(rec, bio_flags::BIOF_SWAP_PAGE);
    let of_request = unowned && matches!(end, end_io::END_BDEV_ASYNC | end_io::END_BDEV_DIRECT);
    let swapped_in = anonymous && layouts.swap_files();
    let (layout, mounted) = layouts.of(dev);
    let mounted_kind = layout.at(sector).filter(|_| !matches!(op, DISCARD | SECURE_ERASE));
    match end {
        end_io::END_XFS_LOG => return told("journal", "log", "end_io", 100),
        end_io::END_BTRFS_SUPER => return told("superblock", "superblock", "end_io", 100),
        end_io::END_SWAP => return told("swap", "page", "end_io", 100),
        end_io::END_XFS_BUF => return xfs_buffer(rec, mounted_kind),
        _ => {}
    }
    if rec.opf & SWAP != 0 || matches!(layout, Layout::Swap) {
        return told("swap", "page", "device", if rec.opf & SWAP != 0 { 100 } else { 90 });
    }
    let how = bio_how(u32::from(rec.how));
    let file = matches!(how, bio_how::BIO_PAGE | bio_how::BIO_DIRECT | bio_how::BIO_FS | bio_how::BIO_CLONE);
    // I/O on the device node itself, whatever file system is on the device: `sb_dev` is then that of /dev.
    let raw = match end {
        end_io::END_BDEV_ASYNC | end_io::END_BDEV_DIRECT => file,
        // Here a file system waits for pages of its own cache.
        end_io::END_WAIT => file && how != bio_how::BIO_PAGE,
        end_io::END_PAGE | end_io::END_BUFFER => how == bio_how::BIO_DIRECT,
        _ => false,
    };
    if raw {
        return data("request", 100);
    }
    // File systems read their metadata through buffers. Whole pages are read for users of the device node
    // (block/fops.c, blkdev_readahead).
    let of_device = matches!(how, bio_how::BIO_BDEV | bio_how::BIO_BDEV_FS);
    if of_device && op == 0 && end == end_io::END_PAGE {
        return Told { class: "data", detail: Some("device"), how: Some("page"), confidence: 95, of_file: true };
    }
    if anonymous && mounted && swapped_in {
        return told("swap", "page", "page", 70);
    }
    if anonymous && mounted && matches!(layout, Layout::Btrfs) {
        // Perhaps a copy from which it repairs another.
        return Told { class: "data", detail: None, how: Some("page"), confidence: 70, of_file: false };
    }
    if anonymous || of_request {
        let how = Some(if anonymous { "page" } else { "end_io" });
        return Told { class: "data", detail: Some("device"), how, confidence: 80, of_file: false };
    }
    // A journal block is written from the page of the block that it copies, so the sector decides before the page.
    if let Some(Kind {
        class: class @ ("journal" | "inode_table" | "bitmap" | "superblock" | "metadata" | "extent_map"),
        detail,
    }) = mounted_kind
    {
        return told(class, detail, "layout", if mounted { 100 } else { 90 });
    }
    match how {
        bio_how::BIO_FS => btrfs(rec),
        bio_how::BIO_DIRECT => data("request", 100),
        // ext2 and f2fs keep directories in the page cache like regular files.
        bio_how::BIO_PAGE | bio_how::BIO_CLONE if has(rec, bio_flags::BIOF_DIRECTORY) => Told {
            class: "directory",
            detail: Some("block"),
            how: Some(if how == bio_how::BIO_PAGE { "page" } else { "clone" }),
            confidence: if how == bio_how::BIO_PAGE { 100 } else { 95 },
            of_file: true,
        },
        bio_how::BIO_CLONE => data("clone", 95),
        bio_how::BIO_PAGE => match layout {
            Layout::Ext4(l) if l.own_inodes.contains(&(rec.file.ino as i64)) => told("metadata", "quota", "page", 95),
            // An older btrfs, which did not put its tree inode into the bio.
            Layout::Btrfs if rec.file.ino == 1 && rec.file.dev == rec.sb_dev => told("tree", "node", "page", 95),
            Layout::F2fs(l) if rec.file.ino == l.node_ino => told("inode_table", "node", "page", 100),
            // Metadata, unless the file system is known to be ext4. There it is data of a file in data=journal mode:
            // write-back of such data has REQ_META set.
            _ if rec.opf & META != 0 && !matches!(layout, Layout::Ext4(_)) => told("metadata", "other", "flags", 60),
            _ => data("page", if end == end_io::END_OTHER { 90 } else { 100 }),
        },
        bio_how::BIO_BDEV | bio_how::BIO_BDEV_FS => device_page(rec, layout, how == bio_how::BIO_BDEV_FS),
        _ if matches!(op, DISCARD | SECURE_ERASE) => told("metadata", "discard", "operation", 80),
        _ if op == WRITE_ZEROES => told("metadata", "zeroing", "operation", 60),
        // A page of the stripe holds parity, or data to compute it from. Anonymous pages belong to direct I/O, or to
        // repair of a copy by btrfs.
        _ if has(rec, bio_flags::BIOF_SWAP_PAGE)
            && (end == end_io::END_BTRFS_RAID
                || end == end_io::END_WAIT && op == WRITE && matches!(layout, Layout::Btrfs)) =>
        {
            Told { class: "data", detail: None, how: Some("page"), confidence: 70, of_file: false }
        }
        _ if end == end_io::END_BTRFS_RAID => of_stripe(rec),
        // Without an inode: scrub and repair by btrfs (fs/btrfs/scrub.c).
        _ if matches!(end, end_io::END_BTRFS | end_io::END_BTRFS_SCRUB) => told("metadata", "scrub", "end_io", 70),
        // Of those that wait for metadata in private memory, all are device drivers except XFS reading its log at
        // mount. An external log has no superblock to recognise it by (fs/xfs/xfs_bio_io.c, xfs_rw_bdev).
        _ if rec.opf & META != 0 && end == end_io::END_WAIT && !mounted && matches!(layout, Layout::Unknown) => {
            told("journal", "log", "flags", 80)
        }
        _ if rec.opf & META != 0 => told("metadata", "other", "flags", 60),
        // The shared zero page: file systems send it repeatedly where a device has no command to write zeroes
        // (block/blk-lib.c, __blkdev_issue_zero_pages).
        _ if op == WRITE && end == end_io::END_WAIT && mounted && !has(rec, bio_flags::BIOF_SWAP_PAGE) => {
            told("metadata", "zeroing", "end_io", 60)
        }
        // Direct I/O on a device where nothing is mounted, by an unknown caller.
        _ if end == end_io::END_WAIT && !mounted => {
            Told { class: "data", detail: Some("device"), how: Some("end_io"), confidence: 80, of_file: false }
        }
        _ => UNKNOWN,
    }
}

/// Part of a RAID 5 or 6 stripe that is not the data written or requested (fs/btrfs/raid56.c). To change a part of a
/// stripe, btrfs reads the rest of it to compute and verify the parity (`rmw_read_wait_recover`).
fn of_stripe(rec: &rec_bio) -> Told {
    let read = rec.opf & 0xff == 0;
    let place = has(rec, bio_flags::BIOF_PEEK).then(|| stripe_place(u32::from(rec.peek[0])));
    match (place, read) {
        (Some(stripe_place::STRIPE_MIXED), _) => {
            Told { class: "data", detail: None, how: Some("layout"), confidence: 90, of_file: false }
        }
        (Some(stripe_place::STRIPE_PARITY), _) => told("metadata", "parity", "layout", 100),
        (Some(stripe_place::STRIPE_DATA), true) => told("metadata", "parity_read", "layout", 95),
        // The write targets a data stripe but carries no written data: a repair.
        (Some(stripe_place::STRIPE_DATA), false) => told("metadata", "scrub", "layout", 70),
        // On this kernel the position in the stripe is unknown. Most of a stripe is data.
        (_, true) => told("metadata", "parity_read", "end_io", 70),
        (_, false) => told("metadata", "parity", "end_io", 80),
    }
}

fn has(rec: &rec_bio, flag: bio_flags) -> bool {
    u32::from(rec.flags) & flag.0 != 0
}

/// By the name of the buffer's verifier (`xfs_buf_ops.name`, fs/xfs/libxfs).
fn xfs_buffer(rec: &rec_bio, place: Option<Kind>) -> Told {
    const NAMES: &[(&str, &str, &str)] = &[
        ("xfs_sb", "superblock", "superblock"),
        ("xfs_sb_quiet", "superblock", "superblock"),
        ("xfs_agf", "superblock", "agf"),
        ("xfs_agi", "superblock", "agi"),
        ("xfs_agfl", "superblock", "agfl"),
        ("xfs_inode", "inode_table", "inodes"),
        ("xfs_inode_ra", "inode_table", "inodes"),
        ("xfs_dir3_block", "directory", "block"),
        ("xfs_dir3_data", "directory", "data"),
        ("xfs_dir3_data_reada", "directory", "data"),
        ("xfs_dir3_free", "directory", "free"),
        ("xfs_dir3_leaf1", "directory", "leaf"),
        ("xfs_dir3_leafn", "directory", "leaf"),
        // Large extended attributes use it too; the verifier can tell only after reading.
        ("xfs_da3_node", "directory", "node"),
        ("xfs_attr3_leaf", "metadata", "xattr"),
        ("xfs_attr3_rmt", "metadata", "xattr"),
        ("xfs_bmbt", "extent_map", "bmbt"),
        ("xfs_bnobt", "tree", "bnobt"),
        ("xfs_cntbt", "tree", "cntbt"),
        ("xfs_inobt", "tree", "inobt"),
        ("xfs_finobt", "tree", "finobt"),
        ("xfs_rmapbt", "tree", "rmapbt"),
        ("xfs_refcountbt", "tree", "refcountbt"),
        ("xfs_symlink", "metadata", "symlink"),
        ("xfs_dquot", "metadata", "quota"),
        ("xfs_dquot_ra", "metadata", "quota"),
        ("xfs_rtbuf", "bitmap", "realtime"),
        ("xfs_rtbitmap", "bitmap", "realtime"),
        ("xfs_rtsummary", "bitmap", "realtime"),
    ];
    let name = rec.peek.split(|b| *b == 0).next().filter(|_| has(rec, bio_flags::BIOF_PEEK)).unwrap_or_default();
    match (NAMES.iter().find(|(known, ..)| known.as_bytes() == name), place) {
        (Some((_, class, detail)), _) => told(class, detail, "buffer", if name == b"xfs_da3_node" { 90 } else { 100 }),
        (None, Some(Kind { class, detail })) => told(class, detail, "layout", 100),
        (None, None) => told("metadata", "buffer", "end_io", 80),
    }
}

/// By the inode of the `btrfs_bio`. For the inode that caches tree nodes, by the owner of the node
/// (include/uapi/linux/btrfs_tree.h).
fn btrfs(rec: &rec_bio) -> Told {
    let node = rec.file.ino == 1 && rec.file.dev == rec.sb_dev;
    if !node {
        // The old free space cache and data under relocation are internal files.
        return if rec.file.dev == rec.sb_dev { told("metadata", "internal", "inode", 70) } else { data("inode", 100) };
    }
    if !has(rec, bio_flags::BIOF_PEEK) {
        return told("tree", "node", "inode", 100);
    }
    let mut owner = [0; 8];
    owner.copy_from_slice(&rec.peek[..8]);
    let detail = match i64::from_ne_bytes(owner) {
        1 => "root",
        2 => "extent",
        3 => "chunk",
        4 => "device",
        5 | 256.. => "fs",
        7 => "checksum",
        8 => "quota",
        9 => "uuid",
        10 => "free_space",
        11 => "block_group",
        12 => "raid_stripe",
        -6 | -7 => "log",
        -8 => "relocation",
        -9 => "data_relocation",
        _ => "node",
    };
    told("tree", detail, "inode", 100)
}

/// A page of the device's own page cache: metadata of the file system that was `mounted` when it was queued, or I/O on
/// the device node.
fn device_page(rec: &rec_bio, layout: &Layout, mounted: bool) -> Told {
    match layout {
        Layout::Ext4(l) if mounted => {
            let content = has(rec, bio_flags::BIOF_PEEK).then(|| ext4_block(&rec.peek, l));
            content.flatten().unwrap_or(told("metadata", "other", "page", 60))
        }
        // btrfs keeps only superblocks there.
        _ if mounted && !matches!(layout, Layout::Btrfs) => told("metadata", "other", "page", 60),
        // Buffered I/O on the device node; the file is the device node.
        _ => Told { class: "data", detail: Some("device"), how: Some("page"), confidence: 90, of_file: true },
    }
}

/// By the first bytes of a block that is in no table: fs/ext4/ext4_extents.h, xattr.h, ext4.h (ext4_dir_entry_2).
fn ext4_block(head: &[u8; 32], of: &ext4::Layout) -> Option<Told> {
    let &ext4::Layout { filetype, encrypt, block_bytes, blocks, .. } = of;
    let word = |at: usize| i64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let long = |at: usize| word(at) | word(at + 2) << 16;
    let (magic, entries, max, depth) = (word(0), word(2), word(4), word(6));
    let extents = magic == 0xF30A && entries <= max && max * 12 + 12 <= block_bytes && depth <= 5;
    let entry = |at: usize| {
        let (len, name, kind) = (word(at + 4), i64::from(head[at + 6]), i64::from(head[at + 7]));
        let fits = len >= 12 && len % 4 == 0 && len <= block_bytes && name + 8 <= len;
        let kind_fits = if filetype { kind <= 7 && (kind != 0 || long(at) == 0) } else { kind == 0 };
        // An unused entry may still have its name; a used one must have a name without NUL or slash.
        let named = name != 0 || long(at) == 0;
        let shown = &head[at + 8..(at + 8 + name as usize).min(head.len())];
        fits && kind_fits && named && (encrypt || !shown.iter().any(|b| matches!(b, 0 | b'/')))
    };
    // A directory entry that looks like an extent header would have its type in the upper byte of the depth, so the
    // depth would be at least 256.
    if extents && (depth < 256) {
        return Some(told("extent_map", "extents", "content", 100));
    }
    if long(0) == 0xEA02_0000 {
        return Some(told("metadata", "xattr", "content", 100));
    }
    if long(0) == 0x0B10_CA04 {
        return Some(told("metadata", "orphan_file", "content", 80));
    }
    if entry(0) {
        let len = word(4);
        // The entry consists of a length only, which could also be a block map with one number. It may be an empty
        // directory block, or one whose first entry was wiped (since 5.13) and is followed by another.
        let bare = long(0) == 0 && head[6] == 0 && len < block_bytes - 12;
        if !bare || len > 24 || entry(len as usize) {
            return Some(told("directory", "block", "content", if bare && len > 24 { 60 } else { 95 }));
        }
    }
    // A block of an indirect block map: block numbers, of which two are consecutive unless there is only one.
    let mapped: Vec<i64> = (0..8).map(|i| long(i * 4)).collect();
    let numbers = mapped.iter().all(|b| *b < blocks) && mapped.iter().any(|b| *b != 0);
    let alone = mapped.iter().filter(|b| **b != 0).count() == 1;
    if numbers && (alone || mapped.windows(2).any(|w| w[0] != 0 && w[0] + 1 == w[1])) {
        return Some(told("extent_map", "block_map", "content", 70));
    }
    // The target of a symbolic link.
    let text = head.iter().take_while(|b| **b != 0);
    if text.clone().count() >= 8 && text.clone().all(|b| *b >= b' ') {
        return Some(told("metadata", "symlink", "content", 60));
    }
    None
}

#[cfg(test)]
mod tests {
    use ioreel_bpf::types::file_id;

    use super::*;

    fn head(bytes: &[u8]) -> [u8; 32] {
        let mut all = [0; 32];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    }

    #[test]
    fn ext4_blocks_by_their_first_bytes() {
        let mut layout = ext4::Layout::default();
        (layout.filetype, layout.block_bytes, layout.blocks) = (true, 4096, 131_072);
        let class = |bytes: &[u8]| ext4_block(&head(bytes), &layout).map(|t| t.class);
        assert_eq!(class(b"\x0a\xf3\x05\x00\x54\x01\x00\x00"), Some("extent_map"));
        // Inode 62218: its low half equals the extent magic, and its entry length would pass as a maximum.
        assert_eq!(class(b"\x0a\xf3\x00\x00\x10\x00\x01\x01a"), Some("directory"));
        assert_eq!(class(b"\x02\x00\x00\x00\x0c\x00\x01\x02.\x00\x00\x00"), Some("directory"));
        // An inner node of a hashed directory: one unused entry that covers the block.
        assert_eq!(class(b"\x00\x00\x00\x00\x00\x10\x00\x00"), Some("directory"));
        assert_eq!(class(b"\x00\x00\x02\xea"), Some("metadata"));
        // A block map: consecutive numbers, or a single one; all of them existing blocks.
        let map = b"\x00\x20\x00\x00\x01\x20\x00\x00\x02\x20\x00\x00\x03\x20\x00\x00";
        assert_eq!(class(map), Some("extent_map"));
        assert_eq!(class(&map[..4]), Some("extent_map"));
        // Of a sparse file: its only number would pass as the length of an unused entry.
        assert_eq!(class(b"\x00\x00\x00\x00\x14\x00\x00\x00"), Some("extent_map"));
        assert_eq!(class(b"\x00\x00\x00\x00\x00\x00\x00\x00\x14\x02\x00\x00"), Some("extent_map"));
        // A new block of a directory with checksums, then one whose first entry was removed.
        assert_eq!(class(b"\x00\x00\x00\x00\xf4\x0f\x00\x00"), Some("directory"));
        assert_eq!(class(b"\x00\x00\x00\x00\x10\x00\x01\x01a"), Some("directory"));
        let wiped = b"\x00\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x00\x10\x00\x01\x01b";
        assert_eq!(class(wiped), Some("directory"));
        assert_eq!(class(b"\x00\x20\x00\x00\x01\x20\x00\x00\x02\x20\x00\x00\x03\x20\x00\x09"), None);
        assert_eq!(class(b""), None);
    }

    #[test]
    fn a_log_of_its_own_is_read_at_mount() {
        let mut layouts = Layouts::default();
        // A device that does not exist.
        let rec = rec_bio {
            len_bytes: 512,
            dev: 0xFFF << 20 | 0xF_FFFF,
            opf: META,
            end_io: end_io::END_WAIT.0 as u8,
            ..rec_bio::default()
        };
        assert_eq!(classify(&rec, &mut layouts).class, "journal");
        assert_eq!(classify(&rec_bio { opf: 0, ..rec }, &mut layouts).class, "data");
    }

    #[test]
    fn btrfs_mends_its_trees_by_pages_that_it_waits_for() {
        let mut layouts = Layouts::default();
        layouts.put(7, Layout::Btrfs, true);
        let file = |ino, dev| file_id { ino, dev, generation: 0 };
        let rec = rec_bio {
            len_bytes: 4096,
            sector: 4096,
            dev: 7,
            opf: WRITE,
            end_io: end_io::END_WAIT.0 as u8,
            how: bio_how::BIO_PAGE.0 as u8,
            file: file(1, 7),
            sb_dev: 7,
            ..rec_bio::default()
        };
        assert_eq!(classify(&rec, &mut layouts).class, "tree");
        assert!(classify(&rec_bio { file: file(257, 8), ..rec }, &mut layouts).of_file);
        let zeroes = rec_bio { how: 0, file: file(0, 0), ..rec };
        assert_eq!(classify(&zeroes, &mut layouts).detail, Some("zeroing"));
        let of_direct_io = rec_bio { flags: zeroes.flags | bio_flags::BIOF_SWAP_PAGE.0 as u8, ..zeroes };
        let told = classify(&of_direct_io, &mut layouts);
        assert_eq!((told.class, told.of_file), ("data", false));
    }

    #[test]
    fn anonymous_pages_are_read_from_swap_files_or_from_the_device() {
        let mut layouts = Layouts::default();
        layouts.put(7, Layout::Unknown, true);
        let rec = rec_bio {
            len_bytes: 4096,
            sector: 4096,
            dev: 7,
            end_io: end_io::END_WAIT.0 as u8,
            flags: bio_flags::BIOF_SWAP_PAGE.0 as u8,
            ..rec_bio::default()
        };
        layouts.put_swap_files(true);
        assert_eq!(classify(&rec, &mut layouts).class, "swap");
        layouts.put_swap_files(false);
        let told = classify(&rec, &mut layouts);
        assert_eq!((told.class, told.detail, told.of_file), ("data", Some("device"), false));
        // Whatever its first sector contains.
        layouts.put(7, Layout::Journal, true);
        assert_eq!(classify(&rec, &mut layouts).class, "data");
    }

    #[test]
    fn what_btrfs_does_by_itself() {
        let mut layouts = Layouts::default();
        let mut told = |end: end_io, flags: bio_flags| {
            let rec = rec_bio {
                len_bytes: 65536,
                dev: 0xFFF << 20 | 0xF_FFFF,
                opf: 1,
                end_io: end.0 as u8,
                flags: flags.0 as u8,
                ..rec_bio::default()
            };
            classify(&rec, &mut layouts)
        };
        assert_eq!(told(end_io::END_BTRFS_RAID, bio_flags(0)).detail, Some("parity"));
        assert_eq!(told(end_io::END_BTRFS_RAID, bio_flags::BIOF_SWAP_PAGE).class, "data");
        assert_eq!(told(end_io::END_BTRFS, bio_flags(0)).detail, Some("scrub"));
    }

    #[test]
    fn what_is_read_for_parity_is_told_by_its_place() {
        let of = |place: Option<stripe_place>, opf| {
            let mut rec =
                rec_bio { len_bytes: 4096, opf, end_io: end_io::END_BTRFS_RAID.0 as u8, ..rec_bio::default() };
            if let Some(place) = place {
                rec.flags = bio_flags::BIOF_PEEK.0 as u8;
                rec.peek[0] = place.0 as u8;
            }
            let told = of_stripe(&rec);
            (told.detail.unwrap_or_default(), told.confidence)
        };
        let (data, parity) = (Some(stripe_place::STRIPE_DATA), Some(stripe_place::STRIPE_PARITY));
        assert_eq!(
            [of(data, 0), of(parity, 0), of(None, 0)],
            [("parity_read", 95), ("parity", 100), ("parity_read", 70)]
        );
        assert_eq!([of(data, 1), of(parity, 1), of(None, 1)], [("scrub", 70), ("parity", 100), ("parity", 80)]);
    }

    #[test]
    fn btrfs_nodes_by_owner() {
        let mut rec = rec_bio { len_bytes: 16384, how: bio_how::BIO_FS.0 as u8, ..rec_bio::default() };
        rec.file.ino = 1;
        (rec.file.dev, rec.sb_dev) = (45, 45);
        rec.flags = bio_flags::BIOF_PEEK.0 as u8;
        rec.peek[..8].copy_from_slice(&(-6i64).to_ne_bytes());
        assert_eq!((btrfs(&rec).class, btrfs(&rec).detail), ("tree", Some("log")));
        rec.file.ino = 300;
        rec.file.dev = 46;
        assert_eq!(btrfs(&rec).class, "data");
    }
}
