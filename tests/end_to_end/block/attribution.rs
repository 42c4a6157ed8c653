//! Bios name the right file and place in it. Each block of the files carries a stamp, which is read from the device at the
//! bio's sectors. [`metadata`] checks classes and counts.

mod metadata;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env,
    fs::{self, File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use ioreel_traces::{
    Reel,
    rows::{Bio, File as FileRow, Op, Task},
};

pub(crate) use self::metadata::{
    btrfs_trees_are_told_by_owner, counts_are_the_kernels, ext4_metadata_is_what_debugfs_says,
    journalled_data_goes_to_its_file, kinds_of_ext4, reads_of_the_disk_by_others, xfs_log_is_where_xfs_db_says,
};
use crate::{
    block::truth,
    harness::{
        assert_valid,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
        record, succeed, temp_dir, text,
    },
};

/// First word of the command line by which this program is the recorded one.
pub(crate) const WORD: &str = "stamp";
const BLOCK: usize = 4096;
/// Not a multiple of what one bio or one vector takes.
const BLOCKS: usize = 771;
/// Written and read, each in the way its name says.
pub(crate) const FILES: [&str; 3] = ["buffered", "direct", "mapped"];
const MAGIC: &[u8; 8] = b"ioreel##";
/// Extents of the compressed file.
const FULL_EXTENTS: usize = 60;
/// Names that make directories of many blocks.
const MANY: usize = 1500;

/// A block that says which it is, and that nothing stores in less.
pub(crate) fn stamped(file: usize, block: usize) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    let mut state = (file * 1_000_003 + block + 1) as u64;
    for word in out.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&(file as u32).to_le_bytes());
    out[12..16].copy_from_slice(&(block as u32).to_le_bytes());
    out
}

/// File and block of a stamp.
pub(crate) fn stamp(bytes: &[u8]) -> Option<(usize, i64)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    (bytes.get(..8)? == MAGIC).then(|| Some((word(8)? as usize, i64::from(word(12)?))))?
}

/// Memory that direct I/O takes.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(len: usize) -> Self {
        let room = vec![0; len + BLOCK];
        let skip = room.as_ptr().align_offset(BLOCK);
        Self(room, skip)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.0.len() - BLOCK;
        &mut self.0[self.1..self.1 + len]
    }
}

/// What is recorded: `write` makes the files, each in its way, `read` reads them.
pub(crate) fn run(what: &str, dir: &Path) {
    let whole = |n: usize| (0..BLOCKS).flat_map(|b| stamped(n, b)).collect::<Vec<u8>>();
    for (n, name) in FILES.iter().enumerate() {
        let mut options = OpenOptions::new();
        options.read(true).write(what == "write").create(what == "write");
        if *name == "direct" {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(dir.join(name)).unwrap();
        let len = BLOCKS * BLOCK;
        match (*name, what) {
            ("mapped", _) => {
                if what == "write" {
                    file.set_len(len as u64).unwrap();
                }
                let prot = if what == "write" { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
                // SAFETY: maps a file of this length; it stays mapped for as long as the slices below live.
                let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
                assert_ne!(at, libc::MAP_FAILED);
                if what == "write" {
                    // SAFETY: as above, and nobody else maps it.
                    unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) }.copy_from_slice(&whole(n));
                    // SAFETY: as above.
                    unsafe { libc::msync(at, len, libc::MS_SYNC) };
                } else {
                    // SAFETY: as above.
                    assert_eq!(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }, whole(n));
                }
            }
            (_, "write") => {
                let mut room = Aligned::new(len);
                room.bytes().copy_from_slice(&whole(n));
                // Direct: more in one call than in one bio.
                for (i, piece) in room.bytes().chunks(300 * BLOCK).enumerate() {
                    file.write_all_at(piece, (i * 300 * BLOCK) as u64).unwrap();
                }
                file.sync_all().unwrap();
            }
            _ => {
                let mut room = Aligned::new(len);
                for (i, piece) in room.bytes().chunks_mut(300 * BLOCK).enumerate() {
                    file.read_exact_at(piece, (i * 300 * BLOCK) as u64).unwrap();
                }
                assert_eq!(room.bytes(), whole(n));
            }
        }
    }
    if what == "write" {
        fs::create_dir(dir.join("many")).unwrap();
        for i in 0..MANY {
            fs::write(dir.join(format!("many/a name that is long enough to fill blocks {i:06}")), b"x").unwrap();
        }
        // Where data goes through the journal, the second takes it to its place.
        let dir = File::open(dir).unwrap();
        for _ in 0..2 {
            rustix::fs::syncfs(&dir).unwrap();
        }
    }
}

/// What was recorded of the stamps' writing or reading.
pub(crate) struct Recorded {
    pub(crate) reel: Reel,
    /// On the devices in question.
    pub(crate) bios: Vec<Bio>,
    /// Last components of the files' names.
    pub(crate) names: HashMap<i64, String>,
}

/// A device's number as reels write it.
pub(crate) fn number(device: &Path) -> i64 {
    let dev = fs::metadata(device).unwrap().rdev();
    i64::from(libc::major(dev)) << 20 | i64::from(libc::minor(dev))
}

/// Records `what` in the folder `at`, whose file system lies on these devices.
pub(crate) fn recorded(at: &Path, devices: &[&Path], out: &Path, what: &str) -> Recorded {
    let path = out.join(format!("{what}.reel"));
    let program = env::current_exe().unwrap();
    succeed(&mut record(&path, &[], &[text(&program), WORD, what, text(at)]));
    let reel = assert_valid(&path);
    let devices: Vec<i64> = devices.iter().map(|d| number(d)).collect();
    let bios = reel.read::<Bio>().unwrap().into_iter().filter(|b| devices.contains(&b.dev)).collect();
    let files = reel.read::<FileRow>().unwrap().into_iter();
    let names = files.filter_map(|f| Some((f.file, f.path?.rsplit('/').next()?.to_owned()))).collect();
    Recorded { reel, bios, names }
}

fn written(mount: &Mounted, out: &Path) -> Recorded {
    recorded(mount.path(), &[mount.device().unwrap()], out, "write")
}

/// Blocks between which there are holes may lie side by side on the disk, and go by one bio: whose bytes they are is told all the
/// same, and no place is that is not so.
pub(crate) fn beside_holes() {
    const INSERTED: usize = 32;
    // The last are smaller than a page, which has holes of its own then.
    for (fs, made, block_bytes, apart) in
        [(Fs::Ext4, &[][..], BLOCK, 9), (Fs::Xfs, &[], BLOCK, 9), (Fs::Xfs, &["-b", "size=1024"], BLOCK / 4, 2)]
    {
        // XFS gives places to what is written at once one after another; elsewhere they lie so, and holes are put between.
        let inserted = fs == Fs::Ext4 || block_bytes < BLOCK;
        let (out, mounted) = (temp_dir(), Mounted::with(fs, DEFAULT_SIZE_BYTES, made, "defaults"));
        let path = mounted.path().join("holes");
        let file = File::create(&path).unwrap();
        let count = if inserted { INSERTED } else { BLOCKS / apart };
        for b in 0..count {
            let at = if inserted { b } else { b * apart };
            file.write_all_at(&stamped(0, b * apart)[..block_bytes], (at * block_bytes) as u64).unwrap();
        }
        file.sync_all().unwrap();
        for b in (1..count).rev().filter(|_| inserted) {
            let (at, len) = ((b * block_bytes) as i64, ((apart - 1) * block_bytes) as i64);
            // SAFETY: changes a file of this test's.
            assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_INSERT_RANGE, at, len) }, 0);
        }
        let blocks: HashSet<i64> = (0..count).map(|b| (b * apart) as i64).collect();
        drop(file);
        go_cold_with(&[&path]);
        let device = mounted.device().unwrap();
        let reel = out.path().join("holes.reel");
        succeed(&mut record(&reel, &[], &["cat", text(&path)]));
        let reel = assert_valid(&reel);
        let files: Vec<FileRow> = reel.read().unwrap();
        let id = files.iter().find(|f| f.path.as_deref() == Some(text(&path))).unwrap().file;
        let disk = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(device).unwrap();
        let (mut found, mut merged) = (HashSet::new(), 0);
        for b in reel.read::<Bio>().unwrap().iter().filter(|b| b.dev == number(device) && b.len_bytes > 0) {
            merged += usize::from(b.file == Some(id) && b.file_offset_bytes.is_none());
            let mut room = Aligned::new(b.len_bytes as usize);
            disk.read_exact_at(room.bytes(), (b.sector * 512) as u64).unwrap();
            for (i, block) in room.bytes().chunks(block_bytes).enumerate() {
                let Some((0, block)) = stamp(block) else { continue };
                assert_eq!(b.file, Some(id), "{b:?}");
                let told = b.file_offset_bytes.map(|o| o / block_bytes as i64 + i as i64);
                assert!(told.is_none_or(|told| told == block), "{b:?}: {block}");
                found.insert(block);
            }
        }
        assert_eq!(found, blocks);
        assert!(merged > 0, "{fs:?}: no bio has blocks with holes between");
    }
}

/// A bio may end after the thread that queued it, and has its name all the same.
pub(crate) fn bios_that_outlive_their_thread() {
    let (out, mounted) = (temp_dir(), Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES));
    let file = mounted.path().join("file");
    fs::write(&file, vec![7; 64 << 20]).unwrap();
    let program = "import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
os._exit(0)";
    let outlived = (0..8).any(|round| {
        go_cold_with(&[&file]);
        let reel = out.path().join(format!("{round}.reel"));
        succeed(&mut record(&reel, &["--no-snapshot"], &["python3", "-c", program, text(&file)]));
        let reel = assert_valid(&reel);
        let ends: HashMap<i64, Option<i64>> =
            reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t.exit_ns)).collect();
        let bios: Vec<Bio> = reel.read().unwrap();
        let nameless = bios.iter().find(|b| b.task_id.is_some() && b.comm.is_empty());
        assert!(nameless.is_none(), "{nameless:?}");
        bios.iter().any(|b| b.task_id.is_some_and(|id| ends[&id] < b.complete_ns && ends[&id].is_some()))
    });
    assert!(outlived, "no bio ended after its thread");
}

/// At least 995 of 1000 bytes that carry a stamp are told as that file's, at that place, in every way of writing
/// and reading.
pub(crate) fn data_goes_to_its_file(fs: Fs) {
    let mount = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let Some(device) = mount.device() else { return };
    let written = stamps_are_found(fs.name(), mount.path(), &[device]);
    // What f2fs keeps in pages of its own is nobody's data.
    if fs == Fs::F2fs {
        let named = |b: &Bio| b.file.is_some_and(|f| written.names.contains_key(&f));
        let own = written.bios.iter().find(|b| b.class == "data" && !named(b));
        assert!(own.is_none(), "{own:?}");
        assert!(written.bios.iter().any(|b| b.class == "inode_table"), "nodes are told");
    }
}

/// Writes the stamps, reads them cold, and looks for them on the devices, disks as a whole. Returns what was recorded of
/// the writing.
pub(crate) fn stamps_are_found(name: &str, at: &Path, devices: &[&Path]) -> Recorded {
    let out = temp_dir();
    let [written, _] = ["write", "read"].map(|what| {
        let r = recorded(at, devices, out.path(), what);
        let files = FILES.map(|f| at.join(f));
        go_cold_with(&files);
        let open = |d: &&Path| (number(d), OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(d).unwrap());
        let disks: HashMap<i64, File> = devices.iter().map(open).collect();
        let mut seen: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for b in r.bios.iter().filter(|b| {
            (b.op == what || what == "write" && b.op == "zone_append")
                && b.class != "journal"
                && b.detail.as_deref() != Some("parity")
                && (b.len_bytes as usize).is_multiple_of(BLOCK)
        }) {
            let mut room = Aligned::new(b.len_bytes as usize);
            disks[&b.dev].read_exact_at(room.bytes(), (b.sector * 512) as u64).unwrap();
            for (i, block) in room.bytes().chunks(BLOCK).enumerate() {
                let Some((file, number)) = stamp(block) else { continue };
                let told = b.file.and_then(|f| r.names.get(&f)).map(String::as_str) == Some(FILES[file])
                    && b.class == "data"
                    && b.file_offset_bytes.map(|o| o / BLOCK as i64 + i as i64) == Some(number);
                let sums = seen.entry(FILES[file]).or_default();
                sums.0 += i64::from(told);
                sums.1 += 1;
                if !told {
                    wrong.push(format!("block {number} of {}: {b:?}", FILES[file]));
                }
            }
        }
        for file in FILES {
            let (right, all) = seen.get(file).copied().unwrap_or_default();
            let its = |b: &&Bio| b.file.and_then(|f| r.names.get(&f)).is_some_and(|n| n == file);
            let told = r.bios.iter().filter(its).map(|b| b.len_bytes / BLOCK as i64).sum::<i64>();
            let enough = BLOCKS as i64 * 99 / 100;
            assert!(all >= enough, "{what} {file} on {name}: {all} of {BLOCKS} blocks seen, {told} told");
            assert!(right * 1000 >= all * 995, "{what} {file} on {name}: {right} of {all}: {:?}", wrong.first());
        }
        causes_are_the_calls(&r);
        // At most a hundredth of the time the device worked is nobody's.
        let time = |class: Option<&str>| -> i64 {
            let of = r.bios.iter().filter(|b| class.is_none_or(|c| b.class == c));
            of.filter_map(|b| Some(b.complete_ns? - b.queue_ns)).sum()
        };
        assert!(time(Some("unknown")) * 100 <= time(None), "{what} on {name}: too much is unknown");
        r
    });
    written
}

/// A cause is a call of the same thread during which the bio was queued; direct I/O always has one.
fn causes_are_the_calls(r: &Recorded) {
    let ops: HashMap<i64, Op> = r.reel.read::<Op>().unwrap().into_iter().map(|o| (o.op_id, o)).collect();
    let (mut caused, mut faults) = (0, 0);
    for b in &r.bios {
        if let Some(op) = b.cause.map(|id| &ops[&id]) {
            caused += 1;
            assert_eq!(Some(op.task_id), b.task_id);
            // The end of a fault is not always known.
            let end_ns = if op.source == "fault" && op.dur_ns == 0 { b.queue_ns } else { op.start_ns + op.dur_ns };
            assert!((op.start_ns..=end_ns).contains(&b.queue_ns), "{op:?} {b:?}");
            faults += usize::from(op.source == "fault" && op.file == b.file);
        }
        if b.how.as_deref() == Some("request") {
            assert!(b.cause.is_some(), "{b:?}");
        }
    }
    assert!(caused > 0);
    // What the program read of the mapped file, for want of a page.
    let mapped = r.bios.iter().any(|b| {
        b.op == "read"
            && b.task_id.is_some()
            && b.file.and_then(|f| r.names.get(&f)).map(String::as_str) == Some("mapped")
    });
    assert!(faults > 0 || !mapped, "no bio was caused by a fault");
}

/// Compressed extents: the bios of a file begin where its extents do, and carry what is stored of them.
pub(crate) fn compressed_data_goes_to_its_file() {
    const EXTENT_BYTES: usize = 128 << 10;
    let mount = Mounted::with(Fs::Btrfs, DEFAULT_SIZE_BYTES, &[], "compress-force=zstd");
    let out = temp_dir();
    let source = out.path().join("source");
    let half = (0..FULL_EXTENTS).flat_map(|n| {
        let mut extent = stamped(0, n).repeat(EXTENT_BYTES / BLOCK);
        extent[EXTENT_BYTES / 2..].fill(b'a');
        extent
    });
    fs::write(&source, half.collect::<Vec<u8>>()).unwrap();
    let copy = mount.path().join("copy");
    let dev = mount.device_number().unwrap();
    for (op, from, to) in [("write", &source, &copy), ("read", &copy, &out.path().join("again"))] {
        let path = out.path().join(format!("{op}.reel"));
        succeed(&mut record(&path, &[], &["cp", "--reflink=never", text(from), text(to)]));
        let reel = assert_valid(&path);
        go_cold_with(&[&copy]);
        let files = reel.read::<FileRow>().unwrap();
        let file = files.iter().find(|f| f.path.as_deref() == Some(text(&copy))).unwrap().file;
        let bios = reel.read::<Bio>().unwrap();
        let data: Vec<&Bio> = bios.iter().filter(|b| b.dev == dev && b.op == op && b.class == "data").collect();
        assert!(data.iter().all(|b| b.file == Some(file)), "{op}: {data:?}");
        let at: BTreeMap<i64, i64> = data.iter().map(|b| (b.file_offset_bytes.unwrap(), b.len_bytes)).collect();
        // Where write-back began while the file was copied, one extent became two.
        let extents = truth::extents(&copy);
        assert_eq!(extents.iter().map(|e| e.len).sum::<i64>(), (FULL_EXTENTS * EXTENT_BYTES) as i64);
        assert_eq!(at.keys().copied().collect::<Vec<_>>(), extents.iter().map(|e| e.at).collect::<Vec<_>>(), "{op}");
        assert!(data.iter().all(|b| b.len_bytes < EXTENT_BYTES as i64), "{op}: nothing was compressed");
        assert!(bios.iter().all(|b| b.dev != dev || b.class != "unknown"));
    }
}

/// Bios that were on their way when the recording began: who queued them is not known, whose they are is told all the same.
pub(crate) fn what_was_on_its_way() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let device = mount.device().unwrap();
    let path = mount.path().join("stream");
    let file = File::create(&path).unwrap();
    // More requests than the device takes at once: the scheduler holds the others.
    let queue = Path::new("/sys/block").join(device.file_name().unwrap()).join("queue");
    fs::write(queue.join("scheduler"), "mq-deadline").unwrap();
    let apart = (0..2048).map(|i| i * 2 * BLOCK as u64);
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    // Where a recording begins right after a sync, nothing is on its way.
    let found = thread::scope(|s| {
        s.spawn(|| {
            // Not for ever, should what follows fail.
            while !stop.load(Relaxed) && began.elapsed() < Duration::from_secs(60) {
                apart.clone().for_each(|at| file.write_all_at(&[7; BLOCK], at).unwrap());
                file.sync_data().unwrap();
            }
        });
        let found = (0..10).find_map(|i| {
            let reel = out.path().join(format!("{i}.reel"));
            succeed(&mut record(&reel, &["--device", text(device)], &["sleep", "0.2"]));
            let reel = assert_valid(&reel);
            let bios: Vec<Bio> = reel.read().unwrap();
            let before: Vec<Bio> = bios.into_iter().filter(|b| b.comm.is_empty() && b.task_id.is_none()).collect();
            (!before.is_empty()).then_some((reel, before))
        });
        stop.store(true, Relaxed);
        found
    });
    let (reel, before) = found.expect("ten recordings began with nothing on its way");
    let files: Vec<FileRow> = reel.read().unwrap();
    let ino = fs::metadata(&path).unwrap().ino() as i64;
    for b in &before {
        assert_eq!(Some(b.queue_ns), b.complete_ns, "{b:?}");
        let file = files.iter().find(|f| Some(f.file) == b.file);
        assert!(b.class != "data" || file.is_some_and(|f| f.ino == ino), "{b:?} {file:?}");
        let at = b.file_offset_bytes.unwrap_or(-1);
        assert!(b.class != "data" || apart.clone().any(|page| page as i64 == at), "{b:?}");
    }
    assert!(before.iter().any(|b| b.class == "data"), "{before:#?}");
}
