//! Bios against what file systems say themselves of their blocks, when the recording is over: FIEMAP for data, xfs_db
//! and btrfs inspect-internal for metadata. (debugfs for ext4's: `attribution`.)

use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    fs::File,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::{Reel, rows::Bio};

use crate::{
    attribution,
    harness::{
        assert_valid,
        device::Device,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
        paths_of, record, succeed, temp_dir, text,
    },
};

const BLOCK: i64 = 4096;

/// A piece of a file as FIEMAP tells it, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) at: i64,
    pub(crate) physical: i64,
    pub(crate) len: i64,
    /// Stored otherwise than as it is: only its first block can be told.
    encoded: bool,
}

/// linux/fiemap.h.
pub(crate) fn extents(path: &Path) -> Vec<Extent> {
    const MOST: usize = 8192;
    const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;
    const UNKNOWN: u32 = 0x2;
    const ENCODED: u32 = 0x8;
    const NOT_ALIGNED: u32 = 0x100;
    const UNWRITTEN: u32 = 0x800;
    let file = File::open(path).unwrap();
    let mut map = vec![0_u64; 4 + 7 * MOST];
    (map[1], map[2], map[3]) = (u64::MAX, 1, MOST as u64);
    // SAFETY: the head and room for as many extents as it says.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, map.as_mut_ptr()) }, 0);
    let count = (map[2] >> 32) as usize;
    assert!(count < MOST, "{path:?} has more extents");
    let all = map[4..].chunks(7).take(count).map(|e| (e, e[5] as u32));
    all.filter(|(_, flags)| flags & (UNKNOWN | NOT_ALIGNED | UNWRITTEN) == 0)
        .map(|(e, flags)| Extent {
            at: e[0] as i64,
            physical: e[1] as i64,
            len: e[2] as i64,
            encoded: flags & ENCODED != 0,
        })
        .collect()
}

/// Where a btrfs of one device keeps its chunks: from, to (addresses of the file system), and where the first lies on
/// the device.
#[derive(Debug, Default)]
struct Chunks(Vec<(i64, i64, i64)>);

/// The number behind a word of the text.
fn after(line: &str, word: &str) -> Option<i64> {
    let mut words = line.split_whitespace();
    words.find(|w| *w == word)?;
    words.next()?.trim_end_matches(')').parse().ok()
}

impl Chunks {
    fn of(device: &Path) -> Self {
        let told = output(Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "chunk", text(device)]));
        let mut chunks = Self::default();
        for line in told.lines() {
            if let Some(from) = after(line, "CHUNK_ITEM") {
                chunks.0.push((from, 0, -1));
            } else if let Some((from, to, at)) = chunks.0.last_mut() {
                if let Some(len) = after(line, "length").filter(|_| *to == 0) {
                    *to = *from + len;
                } else if let Some(offset) = after(line, "offset").filter(|_| *at == -1) {
                    *at = offset;
                }
            }
        }
        assert!(!chunks.0.is_empty(), "no chunks in {told}");
        chunks
    }

    /// On the device.
    fn place(&self, address: i64) -> i64 {
        let (from, _, at) = self.0.iter().find(|(from, to, _)| (*from..*to).contains(&address)).unwrap();
        address - from + at
    }
}

fn output(command: &mut Command) -> String {
    String::from_utf8_lossy(&succeed(command).stdout).into_owned()
}

fn recorded(mount: &Mounted, script: &str, out: &Path) -> (Reel, Vec<Bio>) {
    let reel = out.join("truth.reel");
    succeed(&mut record(&reel, &[], &["sh", "-ec", script]));
    let reel = assert_valid(&reel);
    let device = mount.device_number().unwrap();
    let bios = reel.read::<Bio>().unwrap().into_iter().filter(|b| b.dev == device).collect();
    (reel, bios)
}

fn umount(mount: &Mounted) {
    succeed(Command::new("umount").arg(mount.path()));
}

/// Files in whatever way they can be written; what the tests do beside writes is their own.
fn script(at: &Path) -> String {
    let fio = |name: &str, options: &str| {
        format!(
            "fio --name={name} --directory={} --rw=randwrite --bs=4k --size=6m --fallocate=none \
             --buffer_compress_percentage=60 --refill_buffers {options} >&2\n",
            text(at)
        )
    };
    format!(
        "{} stamp write {}\n{}{}{}{}{}sync -f {}",
        text(&env::current_exe().unwrap()),
        text(at),
        fio("buffered", "--fsync=100"),
        fio("direct", "--direct=1 --ioengine=libaio --iodepth=8"),
        fio("ring", "--direct=1 --ioengine=io_uring --iodepth=8"),
        fio("large", "--direct=1 --bs=192k"),
        fio("mapped", "--ioengine=mmap --fsync=200"),
        text(at),
    )
}

/// At least 995 of 1000 bytes of data are told as that file's, at that place: of files written through the cache,
/// directly, by io_uring, Linux AIO and mappings; compressed too.
pub(crate) fn data_is_where_fiemap_says(fs: Fs) {
    let kinds: &[&str] = match fs {
        Fs::Btrfs => &["defaults", "compress-force=zstd", "nodatacow"],
        Fs::Tmpfs => &[],
        _ => &["defaults"],
    };
    for options in kinds {
        let (mount, out) = (Mounted::with(fs, DEFAULT_SIZE_BYTES, &[], options), temp_dir());
        let (reel, bios) = recorded(&mount, &script(mount.path()), out.path());
        let paths = paths_of(&reel);
        let chunks = (fs == Fs::Btrfs).then(|| Chunks::of(mount.device().unwrap()));
        // Place on the device, in blocks, to file and block of it.
        let mut truth: HashMap<i64, (PathBuf, i64)> = HashMap::new();
        let files = fs::read_dir(mount.path()).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_file());
        for path in files {
            for e in extents(&path) {
                let place = chunks.as_ref().map_or(e.physical, |c| c.place(e.physical));
                let known = if e.encoded { 1 } else { e.len / BLOCK };
                truth.extend((0..known).map(|i| (place / BLOCK + i, (path.clone(), e.at / BLOCK + i))));
            }
        }
        let (mut all, mut right, mut wrong) = (0_i64, 0_i64, Vec::new());
        for b in bios.iter().filter(|b| b.op == "write" && b.class != "journal") {
            let told = b.file.and_then(|f| paths.get(&f));
            for i in 0..b.len_bytes / BLOCK {
                let Some((path, block)) = truth.get(&(b.sector * 512 / BLOCK + i)) else { continue };
                all += 1;
                let at = b.file_offset_bytes.map(|o| o / BLOCK + i);
                let is = b.class == "data" && told.map(String::as_str) == path.to_str() && at == Some(*block);
                right += i64::from(is);
                if !is {
                    wrong.push(format!("block {block} of {path:?}: {told:?} {b:?}"));
                }
            }
        }
        let name = format!("{} {options}", fs.name());
        let known = truth.len() as i64;
        assert!(known > if options.starts_with("compress") { 100 } else { 5000 }, "{name}: {known} blocks known");
        assert!(all >= known * 99 / 100, "{name}: {all} blocks seen of {known}");
        assert!(right * 1000 >= all * 995, "{name}: {right} of {all}: {:#?}", &wrong[..wrong.len().min(4)]);
    }
}

/// Directories, fragmented and large files, attributes and links: metadata of every kind.
fn metadata_script(at: &Path) -> String {
    format!(
        "cd {at}\nmkdir many\n\
         python3 -c \"import os\n\
for i in range(3000): open('many/a name that is long enough to fill blocks %06d' % i, 'w').close()\n\
for i in range(0, 3000, 3): os.unlink('many/a name that is long enough to fill blocks %06d' % i)\n\
f = os.open('pieces', os.O_RDWR | os.O_CREAT)\n\
for i in range(3000):\n  os.pwrite(f, b'x' * 4096, i * 8192)\n  if i % 50 == 0: os.fdatasync(f)\n\
for i in range(60): os.setxattr('many', 'user.%d' % i, b'v' * 900)\n\
for i in range(50): os.symlink('t' * 900, 'link%d' % i)\n\"\n\
         sync -f .\ncd /\nfsfreeze -f {at}\nfsfreeze -u {at}",
        at = text(at)
    )
}

/// The class of what xfs_db calls this; `None` where nothing can be said: free again, or told by places that hold several.
fn of_xfs(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "sb" => "superblock",
        "inode" => "inode_table",
        "dir" => "directory",
        "log" => "journal",
        "data" => "data",
        "btbno" | "btcnt" | "btino" | "btfino" | "btrmap" | "btrefcnt" => "tree",
        "attr" | "symlink" => "metadata",
        _ => return None,
    })
}

pub(crate) fn xfs_metadata_is_what_xfs_db_says() {
    let (looped, out) = (Device::looped(DEFAULT_SIZE_BYTES), temp_dir());
    let mount = Mounted::over(&[&looped], &["mkfs.xfs", "-q", "-f"], "defaults");
    let (_, bios) = recorded(&mount, &metadata_script(mount.path()), out.path());
    umount(&mount);
    let device = text(mount.device().unwrap()).to_owned();
    let facts = output(Command::new("xfs_db").args(["-r", "-c", "sb 0", "-c", "print agblocks agcount", &device]));
    let fact = |name: &str| -> i64 {
        let line = facts.lines().find(|l| l.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let (blocks, groups) = (fact("agblocks"), fact("agcount"));
    let mut db = Command::new("xfs_db");
    db.args(["-r", "-c", "blockget -n"]);
    for group in 0..groups {
        let left = DEFAULT_SIZE_BYTES as i64 / BLOCK - group * blocks;
        db.args(["-c", &format!("daddr {}", group * blocks * BLOCK / 512)]);
        db.args(["-c", &format!("blockuse -c {}", blocks.min(left))]);
    }
    let mut truth: HashMap<i64, &str> = HashMap::new();
    for line in output(db.arg(&device)).lines() {
        // block 16 (0/16) type inode
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["block", _, place, "type", kind, ..] = words.as_slice()
            && let Some((group, block)) = place.trim_matches(['(', ')']).split_once('/')
            && let Some(class) = of_xfs(kind)
        {
            truth.insert(group.parse::<i64>().unwrap() * blocks + block.parse::<i64>().unwrap(), class);
        }
    }
    agree("xfs", &bios, &truth, &["superblock", "inode_table", "directory", "journal", "data", "tree"]);
}

/// Each class must be met, and nearly all of what was written last to a place be what it is now: it may have been freed
/// after that, and taken for something that was not written yet.
fn agree(name: &str, bios: &[Bio], truth: &HashMap<i64, &str>, classes: &[&str]) {
    let (mut counts, mut wrong): (BTreeMap<&str, (i64, i64)>, Vec<_>) = (BTreeMap::new(), Vec::new());
    let writes = bios.iter().filter(|b| b.len_bytes != 0 && b.op == "write");
    let last: HashMap<i64, &Bio> = writes.map(|b| (b.sector * 512 / BLOCK, b)).collect();
    for b in last.into_values() {
        let Some(class) = truth.get(&(b.sector * 512 / BLOCK)) else { continue };
        let count = counts.entry(class).or_default();
        count.1 += 1;
        // xfs_db calls the nodes of a file's extent map what the file holds.
        let map = b.class == "extent_map" && matches!(*class, "data" | "directory" | "metadata");
        if b.class == *class || map {
            count.0 += 1;
        } else {
            wrong.push(format!("{class}: {b:?}"));
        }
    }
    println!("{name}: {counts:?}");
    for class in classes {
        let (right, all) = counts.get(class).copied().unwrap_or_default();
        assert!(all > 0, "{name}: no bio went to a {class}: {counts:?}");
        assert!(right * 100 >= all * 99, "{name}: {right} of {all} of {class}: {:#?}", &wrong[..wrong.len().min(4)]);
    }
}

/// The `detail` of a node of this tree.
fn of_btrfs(owner: &str) -> Option<&'static str> {
    Some(match owner {
        "ROOT_TREE" => "root",
        "EXTENT_TREE" => "extent",
        "CHUNK_TREE" => "chunk",
        "DEV_TREE" => "device",
        "FS_TREE" => "fs",
        "CSUM_TREE" => "checksum",
        "UUID_TREE" => "uuid",
        "FREE_SPACE_TREE" => "free_space",
        // A subvolume's own number.
        _ if owner.bytes().all(|b| b.is_ascii_digit()) => "fs",
        _ => return None,
    })
}

pub(crate) fn btrfs_nodes_are_of_the_trees_that_dump_tree_says() {
    let (looped, out) = (Device::looped(DEFAULT_SIZE_BYTES), temp_dir());
    // The recorder's look at the tree reads links, which would set their access times after the last recorded write.
    let mount = Mounted::over(&[&looped], &["mkfs.btrfs", "-q", "-f", "-m", "single"], "noatime");
    let at = text(mount.path()).to_owned();
    let script = format!(
        "btrfs subvolume create {at}/sub >&2\n{}\nbtrfs subvolume snapshot {at} {at}/snap >&2\nsync -f {at}",
        metadata_script(mount.path())
    );
    let (_, bios) = recorded(&mount, &script, out.path());
    umount(&mount);
    let device = mount.device().unwrap();
    let chunks = Chunks::of(device);
    let told = output(Command::new("btrfs").args(["inspect-internal", "dump-tree", "--hide-names", text(device)]));
    let mut truth: HashMap<i64, &str> = HashMap::new();
    for line in told.lines() {
        // leaf 30408704 items 11 free space 14005 generation 8 owner ROOT_TREE
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["leaf" | "node", address, ..] = words.as_slice()
            && let Ok(address) = address.parse::<i64>()
            && let Some(owner) = words.iter().position(|w| *w == "owner").and_then(|i| words.get(i + 1))
            && let Some(detail) = of_btrfs(owner)
        {
            truth.insert(chunks.place(address) / 512, detail);
        }
    }
    // The last write to a place is what is there now.
    let last: HashMap<i64, &Bio> = bios.iter().filter(|b| b.op == "write").map(|b| (b.sector, b)).collect();
    let mut met: BTreeMap<&str, i64> = BTreeMap::new();
    for (sector, detail) in &truth {
        let Some(b) = last.get(sector) else { continue };
        assert_eq!((&*b.class, b.detail.as_deref()), ("tree", Some(*detail)), "{b:?}");
        *met.entry(detail).or_default() += 1;
    }
    for detail in ["root", "extent", "fs", "checksum", "free_space"] {
        assert!(met.contains_key(detail), "no node of {detail}: {met:?}");
    }
}

/// Of the time that the device below works, at most a hundredth is nobody's; and what carries data is told as that.
pub(crate) fn little_device_time_is_nobodys(fs: Fs) {
    let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let device = mount.device_below();
    let script = format!(
        "{program} {word} write {at}; sync -f {at}; echo 3 >/proc/sys/vm/drop_caches; {program} {word} read {at}",
        program = text(&env::current_exe().unwrap()),
        word = attribution::WORD,
        at = text(mount.path()),
    );
    let reel = out.path().join("time.reel");
    succeed(&mut record(&reel, &["--device", text(device)], &["sh", "-ec", &script]));
    let number = attribution::number(device);
    let bios: Vec<Bio> = assert_valid(&reel).read::<Bio>().unwrap().into_iter().filter(|b| b.dev == number).collect();
    for op in ["read", "write"] {
        let of = |class: Option<&str>| -> (i64, i64) {
            let rows = bios.iter().filter(|b| b.op == op && class.is_none_or(|c| b.class == c));
            rows.fold((0, 0), |(t, n), b| (t + b.complete_ns.map_or(0, |c| c - b.queue_ns), n + b.len_bytes))
        };
        let (all, unknown, data) = (of(None), of(Some("unknown")), of(Some("data")));
        assert!(unknown.0 * 100 <= all.0, "{op} on {}: {unknown:?} of {all:?} is nobody's", fs.name());
        assert!(data.1 >= 9 << 20, "{op} on {}: {data:?} of {all:?} is data", fs.name());
    }
}
