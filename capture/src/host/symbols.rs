//! What the kernel functions in `bi_end_io` say about a bio.

use std::fs;

use ioreel_bpf::{
    ksyms,
    types::{btrfs_end, end_io, end_io_desc, work_desc, work_kind},
};

/// Functions that `bi_end_io` may point to, the most frequent first: the probes compare in this order. The names are
/// those of Linux 6.1 to 7.3; names that a kernel lacks are skipped. `docs/internals/attribution.md` lists the sources.
const END_IOS: &[(&str, end_io)] = &[
    ("iomap_dio_bio_end_io", end_io::END_DIRECT),
    ("blkdev_bio_end_io_async", end_io::END_BDEV_ASYNC),
    ("blkdev_bio_end_io", end_io::END_BDEV_DIRECT),
    ("ext4_end_bio", end_io::END_PAGE),
    ("mpage_end_io", end_io::END_PAGE),
    ("end_bio_bh_io_sync", end_io::END_BUFFER),
    ("btrfs_simple_end_io", end_io::END_BTRFS),
    ("ioend_writeback_end_bio", end_io::END_PAGE),
    ("xfs_end_bio", end_io::END_PAGE),
    ("iomap_read_end_io", end_io::END_PAGE),
    ("iomap_writepage_end_bio", end_io::END_PAGE),
    ("xfs_buf_bio_end_io", end_io::END_XFS_BUF),
    ("xlog_bio_end_io", end_io::END_XFS_LOG),
    ("bio_chain_endio", end_io::END_CHAIN),
    ("submit_bio_wait_endio", end_io::END_WAIT),
    ("clone_endio", end_io::END_DM),
    ("md_end_clone_io", end_io::END_MD),
    ("md_end_io_acct", end_io::END_MD),
    ("raid1_end_write_request", end_io::END_MD_MIRROR),
    ("raid1_end_read_request", end_io::END_MD_MIRROR),
    ("raid10_end_write_request", end_io::END_MD_MIRROR10),
    ("raid10_end_read_request", end_io::END_MD_MIRROR10),
    ("btrfs_orig_write_end_io", end_io::END_BTRFS),
    ("btrfs_clone_write_end_io", end_io::END_BTRFS_CLONE),
    ("btrfs_end_super_write", end_io::END_BTRFS_SUPER),
    ("raid_wait_write_end_io", end_io::END_BTRFS_RAID),
    ("raid_wait_read_end_io", end_io::END_BTRFS_RAID),
    ("raid_write_end_io", end_io::END_BTRFS_RAID),
    ("raid56_scrub_wait_endio", end_io::END_BTRFS_RAID),
    ("scrub_bio_end_io", end_io::END_BTRFS_SCRUB),
    ("scrub_wr_bio_end_io", end_io::END_BTRFS_SCRUB),
    ("scrub_parity_bio_endio", end_io::END_BTRFS_SCRUB),
    ("mpage_read_end_io", end_io::END_PAGE),
    ("mpage_write_end_io", end_io::END_PAGE),
    ("end_swap_bio_write", end_io::END_SWAP),
    ("end_swap_bio_read", end_io::END_SWAP),
    ("f2fs_read_end_io", end_io::END_PAGE),
    ("f2fs_write_end_io", end_io::END_PAGE),
    // Linux 7.3 or slightly older: separate functions for what one function did before, and for direct I/O of a single
    // bio.
    ("f2fs_write_end_bio", end_io::END_PAGE),
    ("f2fs_dio_end_bio", end_io::END_DIRECT_F2FS),
    ("iomap_dio_simple_end_io", end_io::END_DIRECT_SIMPLE),
    ("bio_wait_end_io", end_io::END_WAIT),
    ("blk_crypto_fallback_encrypt_endio", end_io::END_ENCRYPTED),
    ("blk_crypto_fallback_decrypt_endio", end_io::END_DECRYPTED),
    ("swap_bio_read_end_io", end_io::END_SWAP),
    ("bh_end_read", end_io::END_BUFFER),
    ("bh_end_write", end_io::END_BUFFER),
    ("bh_end_async_read", end_io::END_BUFFER),
    ("bh_end_async_write", end_io::END_BUFFER),
    ("ext4_end_bitmap_read", end_io::END_BUFFER),
    ("journal_end_buffer_io_sync", end_io::END_BUFFER),
];

/// End functions of a `btrfs_bio` whose pages are not what they seem to be.
const BTRFS_ENDS: &[(&str, btrfs_end)] = &[
    ("scrub_read_endio", btrfs_end::BTRFS_END_SCRUB),
    ("scrub_repair_read_endio", btrfs_end::BTRFS_END_SCRUB),
    ("scrub_write_endio", btrfs_end::BTRFS_END_SCRUB),
    ("btrfs_encoded_read_endio", btrfs_end::BTRFS_END_ENCODED),
    ("btrfs_dio_end_io", btrfs_end::BTRFS_END_DIRECT),
];

/// One of each group must exist. If a kernel has all of a group under other names, the bios it ends have class unknown.
const NEEDED: &[&[&str]] = &[
    &["iomap_dio_bio_end_io"],
    &["end_bio_bh_io_sync", "bh_end_write"],
    &["submit_bio_wait_endio", "bio_wait_end_io"],
];

/// Work functions that kernel threads run on behalf of others (`drivers/block/loop.c`, `fs/aio.c`).
const WORKS: &[(&str, work_kind)] = &[
    ("loop_workfn", work_kind::WORK_LOOP),
    ("loop_rootcg_workfn", work_kind::WORK_LOOP),
    ("aio_fsync_work", work_kind::WORK_TOLD),
];

/// The known functions with their addresses, in the form the probes take.
#[derive(Debug)]
pub(crate) struct EndIos {
    /// `bi_end_io` functions, the most frequent first; at most as many as the probes' table holds.
    pub(crate) known: Vec<end_io_desc>,
    /// End functions of a `btrfs_bio`.
    pub(crate) btrfs: Vec<end_io_desc>,
    /// Work functions.
    pub(crate) works: Vec<work_desc>,
    /// Why some bios cannot be classified, if so.
    pub(crate) warning: Option<String>,
    /// Process id of the recorder in the initial pid namespace.
    pub(crate) own_tgid: u32,
    /// Id of the thread that asked, likewise.
    pub(crate) own_tid: u32,
}

/// Looks the functions up with the kernel's symbol iterator, or in /proc/kallsyms if the iterator is refused.
pub(crate) fn end_ios() -> EndIos {
    let works = WORKS.iter().map(|(name, _)| *name);
    let btrfs = BTRFS_ENDS.iter().map(|(name, _)| *name);
    let names: Vec<&str> = END_IOS.iter().map(|(name, _)| *name).chain(works).chain(btrfs).collect();
    let own = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    let (found, (own_tgid, own_tid)) = match ksyms::ask(&names) {
        Ok(told) => (told.addresses, if told.own_tgid == 0 { own } else { (told.own_tgid, told.own_tid) }),
        Err(e) => {
            log::debug!("iter/ksym: {e}");
            (from_proc(&names), own)
        }
    };
    let known = |name: &&str| found.iter().any(|(known, _)| known == name);
    let missing: Vec<&str> = NEEDED.iter().filter(|names| !names.iter().any(known)).map(|names| names[0]).collect();
    let warning = (!missing.is_empty()).then(|| {
        format!(
            "cannot read the kernel addresses of {}, so direct and metadata I/O is classified by on-disk layout alone; run as root or lower kernel.kptr_restrict",
            missing.join(", ")
        )
    });
    let described = |(name, kind): (&'static str, u32)| {
        let same = found.iter().filter(move |(known, _)| known == name);
        same.map(move |(_, address)| end_io_desc { address: *address, kind: u64::from(kind) })
    };
    let known = END_IOS.iter().map(|(name, kind)| (*name, kind.0)).flat_map(described).collect();
    let btrfs = BTRFS_ENDS.iter().map(|(name, kind)| (*name, kind.0)).flat_map(described).collect();
    let works = WORKS.iter().map(|(name, kind)| (*name, kind.0)).flat_map(described);
    let works = works.map(|d| work_desc { address: d.address, kind: d.kind }).collect();
    EndIos { btrfs, works, known, warning, own_tgid, own_tid }
}

/// Addresses by which the probes of waits tell interrupts: of the count of interrupts in the memory of each CPU, and of the
/// offsets of these memories. 0 where the kernel does not list its variables (`CONFIG_KALLSYMS_ALL`), or not to this user.
pub(crate) fn interrupt_counts() -> (u64, u64) {
    const NAMES: [&str; 3] = ["__preempt_count", "pcpu_hot", "__per_cpu_offset"];
    let found = ksyms::ask(&NAMES).map_or_else(|_| from_proc(&NAMES), |told| told.addresses);
    let of = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, address)| *address);
    let count = of(NAMES[0]).or_else(|| of(NAMES[1]));
    count.zip(of(NAMES[2])).unwrap_or((0, 0))
}

fn from_proc(names: &[&str]) -> Vec<(String, u64)> {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (address, _, name) = (words.next()?, words.next()?, words.next()?);
            let address = u64::from_str_radix(address, 16).ok().filter(|a| *a != 0)?;
            names.contains(&name).then(|| (name.to_owned(), address))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_once_and_fit_the_probes_table() {
        let mut names: Vec<_> = END_IOS.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), END_IOS.len());
        // Some names belong to several static functions, so the table has spare room.
        assert!(END_IOS.len() + 8 < 64);
        assert!(NEEDED.iter().flat_map(|n| n.iter()).all(|n| END_IOS.iter().any(|(name, _)| name == n)));
    }
}
