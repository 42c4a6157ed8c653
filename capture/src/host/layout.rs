//! On-disk layouts: where file systems keep journal, tables and bitmaps on a device. Each device is read once, so that
//! a bio can be classified by its sector.

pub(crate) mod ext4;
mod f2fs;
pub(crate) mod superblock;
mod xfs;

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use crate::host;

/// What a sector contains. The words are those of the column `bio.class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Class.
    pub(crate) class: &'static str,
    /// Value of the column `bio.detail`.
    pub(crate) detail: &'static str,
}

/// Ranges of sectors, each with its kind.
#[derive(Debug, Default)]
struct Ranges {
    /// Start, end, kind; sorted, without overlaps.
    sorted: Vec<(i64, i64, Kind)>,
}

impl Ranges {
    /// Takes ranges in any order. Where two overlap, the one that starts first wins.
    fn new(mut all: Vec<(i64, i64, Kind)>) -> Self {
        all.retain(|(start, end, _)| start < end);
        all.sort_by_key(|(start, ..)| *start);
        let mut sorted: Vec<(i64, i64, Kind)> = Vec::with_capacity(all.len());
        for (start, end, kind) in all {
            let from = sorted.last().map_or(start, |(_, last, _)| start.max(*last));
            match sorted.last_mut() {
                Some((_, last, same)) if *last >= from && *same == kind => *last = end.max(*last),
                _ if from < end => sorted.push((from, end, kind)),
                _ => {}
            }
        }
        Self { sorted }
    }

    fn at(&self, sector: i64) -> Option<Kind> {
        let i = self.sorted.partition_point(|(start, ..)| *start <= sector).checked_sub(1)?;
        self.sorted.get(i).filter(|(_, end, _)| sector < *end).map(|(_, _, kind)| *kind)
    }
}

/// Sectors of the superblock of btrfs and its copies, at 64 KiB, 64 MiB and 256 GiB (fs/btrfs/disk-io.h,
/// `btrfs_sb_offset`).
const BTRFS_SUPERBLOCKS: [i64; 3] = [1 << 7, 1 << 17, 1 << 29];

/// Contents of a device.
#[derive(Debug)]
pub(crate) enum Layout {
    /// ext2, ext3 or ext4.
    Ext4(ext4::Layout),
    /// XFS.
    Xfs(xfs::Layout),
    /// F2FS.
    F2fs(f2fs::Layout),
    /// btrfs. Only superblocks are recognised by sector; other metadata is recognised by its inode in memory.
    Btrfs,
    /// External journal of another file system.
    Journal,
    /// Swap space.
    Swap,
    /// Unknown, or unreadable.
    Unknown,
}

impl Layout {
    /// What this sector contains.
    pub(crate) fn at(&self, sector: i64) -> Option<Kind> {
        match self {
            Self::Ext4(l) => l.at(sector),
            Self::Xfs(l) => l.at(sector),
            Self::F2fs(l) => l.at(sector),
            Self::Btrfs => {
                BTRFS_SUPERBLOCKS.contains(&sector).then_some(Kind { class: "superblock", detail: "superblock" })
            }
            Self::Journal => Some(Kind { class: "journal", detail: "external" }),
            Self::Swap | Self::Unknown => None,
        }
    }
}

/// Layouts of the devices seen so far.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    known: FxHashMap<i64, Known>,
    /// Whether swap files are in use, and when that was last checked.
    swap_files: Option<(bool, Instant)>,
    /// Devices (`dev_t`) that could not be read, with the reason.
    pub(crate) unreadable: Vec<(i64, io::Error)>,
}

#[derive(Debug)]
struct Known {
    layout: Layout,
    mounted: bool,
    read: Instant,
    /// The superblock area was written since the layout was read.
    stale: bool,
}

/// Minimum time between two reads of a stale layout: the workload itself may keep writing to the superblock area.
const FRESH: Duration = Duration::from_millis(20);

impl Known {
    fn now(layout: Layout, mounted: bool) -> Self {
        Self { layout, mounted, read: Instant::now(), stale: false }
    }
}

impl Layouts {
    /// Layout of a device, partition or mapped device; it is read at the first use. Also whether a file system on it
    /// was mounted then, as far as this process's mount namespace shows.
    pub(crate) fn of(&mut self, dev: i64) -> (&Layout, bool) {
        if self.known.get(&dev).is_none_or(|k| k.stale && k.read.elapsed() >= FRESH) {
            let known = self.read(dev);
            self.known.insert(dev, known);
        }
        // Always present: inserted above.
        self.known.get(&dev).map_or((&Layout::Unknown, false), |k| (&k.layout, k.mounted))
    }

    /// The superblock area was written. If no file system is mounted, a new one may have been made, so the layout is
    /// stale.
    pub(crate) fn written(&mut self, dev: i64) {
        if let Some(known) = self.known.get_mut(&dev) {
            known.stale |= !known.mounted;
        }
    }

    /// Whether a swap file is in use.
    pub(crate) fn swap_files(&mut self) -> bool {
        match self.swap_files {
            Some((any, looked)) if looked.elapsed() < FRESH => any,
            _ => self.swap_files.insert((host::swap_files(), Instant::now())).0,
        }
    }

    /// A file system was mounted or unmounted.
    pub(crate) fn mounts_changed(&mut self) {
        self.known.values_mut().for_each(|known| known.stale = true);
    }

    /// Sets the layout of a device, for tests.
    #[cfg(test)]
    pub(crate) fn put(&mut self, dev: i64, layout: Layout, mounted: bool) {
        self.known.insert(dev, Known::now(layout, mounted));
    }

    /// Sets whether swap files are in use, for tests.
    #[cfg(test)]
    pub(crate) fn put_swap_files(&mut self, any: bool) {
        self.swap_files = Some((any, Instant::now() + Duration::from_secs(3600)));
    }

    fn read(&mut self, dev: i64) -> Known {
        let mounts = host::mounts();
        let mount = mounts.iter().find(|m| m.sb_dev == dev);
        // A btrfs is mounted under an anonymous device number.
        let mounted = mount.is_some() || host::btrfs_devices().any(|members| members.contains(&dev));
        if host::swap_devices().contains(&dev) {
            return Known::now(Layout::Swap, mounted);
        }
        let ext = mount.is_some_and(|m| m.fstype.starts_with("ext"));
        let (layout, journal) = match (in_time(move || sniff(dev, ext)), self.known.remove(&dev)) {
            (Ok(found), _) => found,
            // The device may be gone. The layout read before still describes the I/O that happened.
            (Err(_), Some(before)) => (before.layout, None),
            (Err(e), None) => {
                self.unreadable.push((dev, e));
                (Layout::Unknown, None)
            }
        };
        if let Some(journal) = journal {
            self.known.insert(journal, Known::now(Layout::Journal, false));
        }
        Known::now(layout, mounted)
    }
}

/// Time a device gets to answer: a hung disk must not stall the recorder.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `read` in a thread and returns its result, or an error after the deadline. A blocked thread is abandoned.
fn in_time<T: Send + 'static>(read: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (tell, told) = mpsc::sync_channel(1);
    thread::Builder::new().name("ioreel-layout".into()).spawn(move || {
        // Fails when the deadline has passed; then nobody needs the result.
        let _ = tell.send(read());
    })?;
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let why = format!("it did not answer within {} s", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// Layout of a device, and the device of its journal if that is external. `ext`: the device is known to hold ext2, ext3
/// or ext4, whose metadata is in the device's page cache anyway.
fn sniff(dev: i64, ext: bool) -> io::Result<(Layout, Option<i64>)> {
    let path = host::device_node(dev).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    if !ext && let Ok(Some(layout)) = xfs::read(&mut |at, len| read_direct(&path, at, len)) {
        return Ok((Layout::Xfs(layout), None));
    }
    let file = File::open(&path)?;
    let mut read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).map(|()| bytes)
    };
    if let Some(found) = ext4::read(&mut read)? {
        return Ok(match found {
            ext4::Found::FileSystem(layout) => {
                let journal = layout.journal_dev;
                (Layout::Ext4(layout), journal)
            }
            ext4::Found::Journal => (Layout::Journal, None),
        });
    }
    if let Some(layout) = f2fs::read(&mut read)? {
        return Ok((Layout::F2fs(layout), None));
    }
    const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";
    let btrfs = read(0x1_0040, BTRFS_MAGIC.len()).is_ok_and(|bytes| bytes == BTRFS_MAGIC);
    Ok((if btrfs { Layout::Btrfs } else { Layout::Unknown }, None))
}

/// Device of the external journal of the ext4 file system on this device, if it has one.
pub(crate) fn journal_device(dev: i64) -> Option<i64> {
    let file = File::open(host::device_node(dev)?).ok()?;
    ext4::journal_device(&mut |at, len| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).map(|()| bytes)
    })
}

/// Facts of the file system of this type on a device; `None` if its superblock cannot be read, or is of no known kind.
pub(crate) fn facts(dev: i64, fstype: &str) -> Option<superblock::Facts> {
    let fstype = fstype.to_owned();
    in_time(move || {
        let node = |dev| host::device_node(dev).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        let path = node(dev)?;
        if fstype == "xfs" {
            return superblock::read(&fstype, &mut |at, len| read_direct(&path, at, len));
        }
        let buffered = |path: &std::path::Path, at: u64, len: usize| {
            let mut bytes = vec![0; len];
            File::open(path)?.read_exact_at(&mut bytes, at).map(|()| bytes)
        };
        let facts = superblock::read(&fstype, &mut |at, len| buffered(&path, at, len))?;
        Ok(facts.map(|mut facts| {
            if let Some(Ok(journal)) = facts.journal_dev.map(node) {
                facts.journal_bytes = buffered(&journal, 1024, 1024).ok().and_then(|sb| superblock::journal_bytes(&sb));
            }
            facts
        }))
    })
    .ok()
    .flatten()
}

/// Reads with O_DIRECT. XFS does not keep its metadata in the device's page cache: pages left there by this read would
/// show tools outdated contents later. `at` and `len` are multiples of 4096.
fn read_direct(path: &std::path::Path, at: u64, len: usize) -> io::Result<Vec<u8>> {
    const ALIGN: usize = 4096;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut room = vec![0u8; len + ALIGN];
    let skip = room.as_ptr().align_offset(ALIGN);
    let bytes = room.get_mut(skip..skip + len).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    file.read_exact_at(bytes, at)?;
    Ok(bytes.to_vec())
}

fn le16(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, |b| i64::from(u16::from_le_bytes(b)))
}

fn le32(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, |b| i64::from(u32::from_le_bytes(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_changed_is_read_anew_and_what_is_gone_stays_known() {
        // A device that does not exist.
        let dev = 0xFFF << 20 | 0xF_FFFF;
        let mut layouts = Layouts::default();
        let long_ago = Instant::now() - FRESH;
        let known = |mounted| Known { read: long_ago, ..Known::now(Layout::Journal, mounted) };
        layouts.known.insert(dev, known(true));
        layouts.written(dev);
        assert!(layouts.of(dev).1, "a mounted file system writes its own superblock");
        layouts.mounts_changed();
        layouts.written(dev);
        let (layout, mounted) = layouts.of(dev);
        assert!(matches!(layout, Layout::Journal) && !mounted, "{layout:?}");
        assert!(layouts.unreadable.is_empty());
        layouts.known.insert(dev, known(false));
        layouts.written(dev);
        assert!(layouts.known[&dev].stale);
    }

    #[test]
    fn ranges_are_joined_and_the_first_of_two_wins() {
        let (a, b) = (Kind { class: "journal", detail: "a" }, Kind { class: "bitmap", detail: "b" });
        let r = Ranges::new(vec![(30, 40, b), (0, 10, a), (10, 20, a), (5, 32, a), (50, 50, b)]);
        assert_eq!(r.sorted, [(0, 32, a), (32, 40, b)]);
        assert_eq!(r.at(31), Some(a));
        assert_eq!(r.at(32), Some(b));
        assert_eq!((r.at(40), r.at(-1)), (None, None));
    }
}
