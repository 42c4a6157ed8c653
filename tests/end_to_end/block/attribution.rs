//! Bios name the right file and the right class. Truth is what lies on the device where a bio went, and what the
//! file systems' own tools say of it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env,
    fs::{self, File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use ioreel_traces::{
    Reel,
    rows::{Bio, Block, File as FileRow, Op, Task},
};

use crate::{
    harness::{
        assert_valid,
        device::Device,
        finish,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
        record, succeed, temp_dir, text, wait_for,
    },
    truth,
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

/// Whoever reads a disk beside a recording (a backup, a look for file systems) reads no metadata, whatever lies there.
pub(crate) fn reads_of_the_disk_by_others() {
    for fs in [Fs::Ext4, Fs::Btrfs] {
        let (out, mounted) = (temp_dir(), Mounted::new(fs, DEFAULT_SIZE_BYTES));
        let (reel, begun, done) = (out.path().join("x.reel"), out.path().join("begun"), out.path().join("done"));
        fs::write(mounted.path().join("file"), vec![7; 8 << 20]).unwrap();
        let device = mounted.device().unwrap();
        let script = format!(": > {}; until [ -e {} ]; do sleep 0.1; done", text(&begun), text(&done));
        let options = ["--no-snapshot", "--settle", "none", "--device", text(device)];
        let recorder = record(&reel, &options, &["sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the recording to begin", || begun.exists().then_some(()));
        let from = format!("if={}", text(device));
        succeed(Command::new("dd").args([&from, "of=/dev/null", "bs=1M", "count=64", "status=none"]));
        fs::write(&done, "").unwrap();
        assert!(finish(recorder).status.success());
        let bios: Vec<Bio> = assert_valid(&reel).read().unwrap();
        let read = |of: &dyn Fn(&Bio) -> bool| -> i64 {
            bios.iter().filter(|b| b.op == "read" && of(b)).map(|b| b.len_bytes).sum()
        };
        let (all, raw) = (read(&|_| true), read(&|b| b.class == "data" && b.detail.as_deref() == Some("device")));
        // What the file system may have read for itself meanwhile is little.
        assert!(all >= 60 << 20 && raw * 1000 >= all * 995, "{fs:?}: {raw} of {all} bytes");
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

/// The same on kinds of ext4 that write in ways of their own, with the journal held against debugfs: its blocks may
/// have stamps too.
pub(crate) fn kinds_of_ext4() {
    for (made, mounted) in [
        (&["-b", "1024"][..], "data=journal"),
        (&["-O", "fast_commit,bigalloc,inline_data"][..], "discard"),
        (&["-O", "^has_journal,^extent,^64bit,meta_bg,^resize_inode"][..], "defaults"),
    ] {
        let mount = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, made, mounted);
        let name = format!("ext4 {made:?} {mounted}");
        let written = stamps_are_found(&name, mount.path(), &[mount.device().unwrap()]);
        let journal = blocks_of(&mount, "<8>");
        if !journal.is_empty() {
            exactly(&written.bios, "journal", block_bytes(&mount), &journal);
        }
        assert!(written.bios.iter().all(|b| b.detail.as_deref() != Some("other")), "{made:?}");
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

fn output(command: &mut Command) -> String {
    String::from_utf8_lossy(&succeed(command).stdout).into_owned()
}

/// Every number in the text.
fn numbers(text: &str) -> Vec<i64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect()
}

/// Each bio that lies in one of `blocks` is of this class, and no other is.
fn exactly(bios: &[Bio], class: &str, block_bytes: i64, blocks: &HashSet<i64>) {
    let mut met = 0;
    for b in bios.iter().filter(|b| b.len_bytes != 0 && b.op != "discard") {
        let inside = blocks.contains(&(b.sector * 512 / block_bytes));
        assert_eq!(inside, b.class == class, "{class}: {b:?}");
        met += usize::from(inside);
    }
    assert!(met > 0, "no bio of class {class}");
}

/// The blocks of a file of an ext4, by its path or number.
fn blocks_of(mount: &Mounted, what: &str) -> HashSet<i64> {
    let mut debugfs = Command::new("debugfs");
    debugfs.args(["-R", &format!("blocks {what}"), text(mount.device().unwrap())]);
    numbers(&output(&mut debugfs)).into_iter().collect()
}

fn block_bytes(mount: &Mounted) -> i64 {
    rustix::fs::statvfs(mount.path()).unwrap().f_bsize as i64
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

pub(crate) fn ext4_metadata_is_what_debugfs_says() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let device = text(mount.device().unwrap()).to_owned();
    let r = written(&mount, out.path());
    go_cold_with(&FILES.map(|f| mount.path().join(f)));
    let blocks = |what: &str| blocks_of(&mount, what);
    let bytes = BLOCK as i64;
    exactly(&r.bios, "journal", bytes, &blocks("<8>"));
    exactly(&r.bios, "directory", bytes, &blocks("/many").union(&blocks("/")).copied().collect());
    let (mut bitmaps, mut tables) = (HashSet::new(), HashSet::new());
    for line in output(Command::new("dumpe2fs").arg(&device)).lines() {
        for part in line.split(", ") {
            let at = part.split(" at ").nth(1).map(numbers).unwrap_or_default();
            match at.as_slice() {
                [block, ..] if part.contains("bitmap at") => drop(bitmaps.insert(*block)),
                [from, to, ..] if part.contains("Inode table at") => tables.extend(*from..=*to),
                _ => {}
            }
        }
    }
    exactly(&r.bios, "bitmap", bytes, &bitmaps);
    exactly(&r.bios, "inode_table", bytes, &tables);
}

pub(crate) fn xfs_log_is_where_xfs_db_says() {
    let (mount, out) = (Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES), temp_dir());
    let r = written(&mount, out.path());
    let names = ["logstart", "logblocks", "blocksize", "agblocks", "agblklog"];
    let print = format!("print {}", names.join(" "));
    let told = output(Command::new("xfs_db").args(["-r", "-c", "sb 0", "-c", &print, text(mount.device().unwrap())]));
    let of = |name: &str| {
        let line = told.lines().find(|l| l.split(" = ").next() == Some(name)).unwrap();
        line.split(" = ").nth(1).unwrap().trim().parse::<i64>().unwrap()
    };
    let start = of("logstart");
    let first = (start >> of("agblklog")) * of("agblocks") + (start & ((1 << of("agblklog")) - 1));
    exactly(&r.bios, "journal", of("blocksize"), &(first..first + of("logblocks")).collect());
    assert!(r.bios.iter().all(|b| b.class != "unknown"), "{:?}", r.bios.iter().find(|b| b.class == "unknown"));
}

/// Data that goes by the journal is written where it belongs as metadata is, by whoever the journal is too full for.
pub(crate) fn journalled_data_goes_to_its_file() {
    const BYTES: i64 = 16 << 20;
    let looped = Device::looped(DEFAULT_SIZE_BYTES);
    let mount = Mounted::over(&[&looped], &["mkfs.ext4", "-q", "-F", "-J", "size=4"], "data=journal");
    let (out, file) = (temp_dir(), mount.path().join("f"));
    let reel = out.path().join("x.reel");
    let words = ["dd", "if=/dev/urandom", &format!("of={}", text(&file)), "bs=4k", "count=4096", "status=none"];
    succeed(&mut record(&reel, &["--no-snapshot"], &words));
    let reel = assert_valid(&reel);
    let files: HashMap<i64, FileRow> = reel.read::<FileRow>().unwrap().into_iter().map(|f| (f.file, f)).collect();
    let path_of = |b: &Bio| b.file.and_then(|f| files.get(&f)?.path.as_deref().map(str::to_owned));
    let mut bios: Vec<Bio> = reel.read().unwrap();
    bios.retain(|b| b.op == "write" && Some(b.dev) == mount.device_number());
    let written = bios.iter().filter(|b| b.class == "data");
    let its: i64 = written.filter(|b| path_of(b).as_deref() == Some(text(&file))).map(|b| b.len_bytes).sum();
    assert!(its >= BYTES, "{its} of {BYTES} bytes");
    let other: i64 = bios.iter().filter(|b| b.detail.as_deref() == Some("other")).map(|b| b.len_bytes).sum();
    assert!(other * 200 <= BYTES, "{other} bytes are of something else");
}

pub(crate) fn btrfs_trees_are_told_by_owner() {
    let (mount, out) = (Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES), temp_dir());
    let r = written(&mount, out.path());
    go_cold_with(&FILES.map(|f| mount.path().join(f)));
    let disk = File::open(mount.device().unwrap()).unwrap();
    let mut checked = 0;
    for b in r.bios.iter().filter(|b| b.class == "tree" && b.op == "write") {
        let mut header = [0; 96];
        disk.read_exact_at(&mut header, (b.sector * 512) as u64).unwrap();
        let owner = i64::from_le_bytes(header[88..96].try_into().unwrap());
        let names =
            [(1, "root"), (2, "extent"), (3, "chunk"), (4, "device"), (5, "fs"), (7, "checksum"), (10, "free_space")];
        if let Some((_, name)) = names.iter().find(|(id, _)| *id == owner)
            && b.detail.as_deref() != Some("node")
        {
            assert_eq!(b.detail.as_deref(), Some(*name), "{b:?}");
            checked += 1;
        }
    }
    assert!(checked > 0);
    assert!(r.bios.iter().any(|b| b.class == "superblock"));
}

/// The block table counts what the kernel counts: requests and bytes, by /sys/block/*/stat. No more than happened from
/// before the recording to after it, and no less than from its start to the command's end.
pub(crate) fn counts_are_the_kernels(fs: Fs) {
    let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let Some(device) = mount.device() else { return };
    rustix::fs::sync();
    let stat = Path::new("/sys/block").join(device.file_name().unwrap()).join("stat");
    let (first, last) = (out.path().join("first"), out.path().join("last"));
    let script = format!(
        "cat {stat} > {first}; {program} {WORD} write {dir} && sync -f {dir}; cat {stat} > {last}",
        stat = text(&stat),
        first = text(&first),
        last = text(&last),
        program = text(&env::current_exe().unwrap()),
        dir = text(mount.path()),
    );
    let path = out.path().join("counts.reel");
    let read = |from: &Path| numbers(&fs::read_to_string(from).unwrap());
    let before = read(&stat);
    succeed(&mut record(&path, &[], &["sh", "-c", &script]));
    let after = read(&stat);
    let (first, last) = (read(&first), read(&last));
    let reel = assert_valid(&path);
    let dev = mount.device_number().unwrap();
    let rows: Vec<Block> = reel.read::<Block>().unwrap().into_iter().filter(|b| b.dev == dev).collect();
    // The kernel counts a flush without data as a write; here it is a bio that no request carried.
    let bios = reel.read::<Bio>().unwrap();
    let empty = bios.iter().filter(|b| b.dev == dev && b.class == "flush" && b.rq_id.is_none()).count() as i64;
    for (op, requests, sectors) in [("read", 0, 2), ("write", 4, 6)] {
        let of: Vec<&Block> = rows.iter().filter(|b| b.op == op).collect();
        let (n, bytes) = (of.len() as i64, of.iter().map(|b| b.len_bytes).sum::<i64>());
        let delta = |from: &[i64], to: &[i64], field: usize| to[field] - from[field];
        let most = (delta(&before, &after, requests), delta(&before, &after, sectors) * 512);
        let told = format!("{op} on {}: {n} rows of {bytes} bytes", fs.name());
        assert!(n <= most.0 && bytes <= most.1, "{told}, the kernel at most {most:?}");
        // What the recorder reads itself, a superblock say, is left out.
        if op == "write" {
            let least = (delta(&first, &last, requests), delta(&first, &last, sectors) * 512);
            assert!(n + empty >= least.0 && bytes >= least.1, "{told}, the kernel at least {least:?}");
        }
        // Of those whose end no probe saw nobody knows.
        let bare = of.iter().find(|b| b.complete_ns.is_some() && b.bios < Some(1));
        assert!(bare.is_none(), "a request without bios: {bare:?}");
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
