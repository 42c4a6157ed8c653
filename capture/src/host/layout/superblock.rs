//! Facts of a file system from its superblock: journal or log, stripe, features.
//!
//! Structures: ext4_super_block in fs/ext4/ext4.h; xfs_dsb in fs/xfs/libxfs/xfs_format.h; btrfs_super_block in
//! include/uapi/linux/btrfs_tree.h.

use std::io;

use super::{le16, le32};

/// What remedies name. `None`: not known, or the file system has no such thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Size of a block.
    pub(crate) block_bytes: Option<i64>,
    /// Size of the journal or log.
    pub(crate) journal_bytes: Option<i64>,
    /// Device of an external journal (ext4).
    pub(crate) journal_dev: Option<i64>,
    /// What lies on one disk of a stripe.
    pub(crate) stripe_unit_bytes: Option<i64>,
    /// A whole stripe without parity.
    pub(crate) stripe_width_bytes: Option<i64>,
    /// Names of features, as the file system's own tools print them.
    pub(crate) features: Vec<String>,
}

/// Bits of a field of features, with their names.
type Bits = &'static [(i64, &'static str)];

/// e2fsprogs, lib/e2p/feature.c
const EXT_COMPAT: Bits = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];
const EXT_INCOMPAT: Bits = &[
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];
const EXT_RO: Bits = &[
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];
/// fs/xfs/libxfs/xfs_format.h
const XFS_RO: Bits = &[(0x1, "finobt"), (0x2, "rmapbt"), (0x4, "reflink"), (0x8, "inobtcount")];
const XFS_INCOMPAT: Bits = &[
    (0x1, "ftype"),
    (0x2, "sparse"),
    (0x4, "meta_uuid"),
    (0x8, "bigtime"),
    (0x10, "needsrepair"),
    (0x20, "nrext64"),
    (0x40, "exchange"),
    (0x80, "parent"),
    (0x100, "metadir"),
];
/// fs/btrfs/sysfs.c
const BTRFS_RO: Bits =
    &[(0x1, "free_space_tree"), (0x2, "free_space_tree_valid"), (0x4, "verity"), (0x8, "block_group_tree")];
const BTRFS_INCOMPAT: Bits = &[
    (0x1, "mixed_backref"),
    (0x2, "default_subvol"),
    (0x4, "mixed_groups"),
    (0x8, "compress_lzo"),
    (0x10, "compress_zstd"),
    (0x20, "big_metadata"),
    (0x40, "extended_iref"),
    (0x80, "raid56"),
    (0x100, "skinny_metadata"),
    (0x200, "no_holes"),
    (0x400, "metadata_uuid"),
    (0x800, "raid1c34"),
    (0x1000, "zoned"),
    (0x2000, "extent_tree_v2"),
    (0x4000, "raid_stripe_tree"),
    (0x1_0000, "simple_quota"),
];

/// The names of the bits that are set; `field` and the bit itself for one without a name.
fn names(value: i64, bits: Bits, field: &str) -> Vec<String> {
    let known = bits.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| (*name).to_owned());
    let rest = bits.iter().fold(value, |rest, (bit, _)| rest & !bit);
    let unknown = (0..63).filter(|i| rest >> i & 1 != 0).map(|i| format!("{field}_{:#x}", 1i64 << i));
    known.chain(unknown).collect()
}

fn some(n: i64) -> Option<i64> {
    (n > 0).then_some(n)
}

/// ext2, ext3, ext4: from the 1024 bytes at offset 1024.
pub(super) fn of_ext(sb: &[u8]) -> Option<Facts> {
    let shift = le32(sb, 0x18);
    if le16(sb, 0x38) != 0xEF53 || shift > 6 {
        return None;
    }
    let block = 1024 << shift;
    let (compat, incompat, ro) = (le32(sb, 0x5C), le32(sb, 0x60), le32(sb, 0x64));
    // The copy of the journal's inode: 15 words of its block map, then the two halves of its size.
    let has_copy = sb.get(0xFD) == Some(&1) && le32(sb, 0xE0) != 0;
    let copied = le32(sb, 0x148) << 32 | le32(sb, 0x14C);
    Some(Facts {
        block_bytes: Some(block),
        journal_bytes: has_copy.then_some(copied).and_then(some),
        journal_dev: super::ext4::external_journal(sb),
        stripe_unit_bytes: some(le16(sb, 0x164) * block),
        stripe_width_bytes: some(le32(sb, 0x170) * block),
        features: [
            names(compat, EXT_COMPAT, "compat"),
            names(incompat, EXT_INCOMPAT, "incompat"),
            names(ro, EXT_RO, "ro_compat"),
        ]
        .concat(),
    })
}

/// Size of the external journal of an ext4 file system, from the 1024 bytes at offset 1024 of its device.
pub(super) fn journal_bytes(sb: &[u8]) -> Option<i64> {
    let facts = of_ext(sb)?;
    facts.features.iter().any(|f| f == "journal_dev").then(|| facts.block_bytes.map(|b| b * le32(sb, 4)))?
}

/// XFS: from the first sector.
pub(super) fn of_xfs(sb: &[u8]) -> Option<Facts> {
    if sb.get(..4) != Some(b"XFSB") || sb.len() < 512 {
        return None;
    }
    let be16 = |at: usize| i64::from(u16::from_be_bytes([sb[at], sb[at + 1]]));
    let be32 = |at: usize| i64::from(u32::from_be_bytes([sb[at], sb[at + 1], sb[at + 2], sb[at + 3]]));
    let block = be32(4);
    let mut features = Vec::new();
    // Version 5 is the one with checksums; only it has the fields of features.
    if be16(100) & 0xF == 5 {
        features.push("crc".to_owned());
        features.extend(names(be32(212), XFS_RO, "ro_compat"));
        features.extend(names(be32(216), XFS_INCOMPAT, "incompat"));
    }
    Some(Facts {
        block_bytes: some(block),
        journal_bytes: some(be32(96) * block),
        journal_dev: None,
        stripe_unit_bytes: some(be32(184) * block),
        stripe_width_bytes: some(be32(188) * block),
        features,
    })
}

/// btrfs: from the 4096 bytes at offset 64 KiB.
pub(super) fn of_btrfs(sb: &[u8]) -> Option<Facts> {
    if sb.get(64..72) != Some(b"_BHRfS_M") {
        return None;
    }
    let le64 = |at: usize| le32(sb, at + 4) << 32 | le32(sb, at);
    Some(Facts {
        block_bytes: some(le32(sb, 144)),
        features: [names(le64(188), BTRFS_INCOMPAT, "incompat"), names(le64(180), BTRFS_RO, "compat_ro")].concat(),
        ..Facts::default()
    })
}

/// Reads the facts of the file system of this type. `read` takes an offset and a length in bytes; `None`: none that is
/// known here.
pub(super) fn read(fstype: &str, read: &mut dyn FnMut(u64, usize) -> io::Result<Vec<u8>>) -> io::Result<Option<Facts>> {
    Ok(match fstype {
        "ext2" | "ext3" | "ext4" => of_ext(&read(1024, 1024)?),
        "xfs" => of_xfs(&read(0, 4096)?),
        "btrfs" => of_btrfs(&read(0x1_0000, 4096)?),
        _ => None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_named_by_their_number_and_damage_is_refused() {
        assert_eq!(names(0x8 | 0x1 | 1 << 40, XFS_RO, "ro"), ["finobt", "inobtcount", "ro_0x10000000000"]);
        for bytes in [0, 0xFF] {
            let sb = vec![bytes; 4096];
            assert_eq!((of_ext(&sb), of_xfs(&sb), of_btrfs(&sb)), (None, None, None));
        }
        assert_eq!((of_ext(&[]), of_xfs(b"XFSB"), of_btrfs(&[])), (None, None, None));
    }

    #[test]
    fn sizes_of_a_journal() {
        let mut sb = vec![0u8; 1024];
        (sb[0x38], sb[0x39], sb[0x18], sb[0xFD], sb[0xE0]) = (0x53, 0xEF, 2, 1, 8);
        sb[0x14C..0x150].copy_from_slice(&(64u32 << 20).to_le_bytes());
        sb[0x164] = 16;
        sb[0x170] = 48;
        let facts = of_ext(&sb).unwrap();
        assert_eq!((facts.block_bytes, facts.journal_bytes), (Some(4096), Some(64 << 20)));
        assert_eq!((facts.stripe_unit_bytes, facts.stripe_width_bytes), (Some(65536), Some(3 * 65536)));
        assert_eq!(journal_bytes(&sb), None, "a file system, not a journal");
        sb[0x60] = 8;
        sb[4..8].copy_from_slice(&1000u32.to_le_bytes());
        assert_eq!(journal_bytes(&sb), Some(4_096_000));
    }
}
