//! Use of mapped files, and the page cache, held against a program that touches known pages.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, Permissions},
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::Path,
};

use ioreel_traces::{
    Reel,
    rows::{Cache, File, Op},
};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, succeed, temp_dir, text,
};
use crate::lossless;

/// The argument that makes the test program do the work instead.
pub(crate) const WORD: &str = "mapped-workload";

/// Name of a file that is stored to in memory of the program's own.
const OWN: &str = "own";

const PAGE: usize = 4096;
/// Length of the file.
const PAGES: usize = 256;
/// Pages that are loaded from only.
const LOADED: [usize; 3] = [0, 50, 150];
/// Pages that are stored to.
const STORED: [usize; 2] = [100, 220];
/// One that a call writes to, and one that a call puts its answer in.
const WRITTEN: usize = 30;
const ANSWERED: usize = 180;
/// One that a call answers in which is none of files, and is not recorded.
const ASKED: usize = 200;

/// Pages of its own that a program makes by storing to them: of each the kernel hears once, and of nothing after the last.
const COPIED: [usize; 5] = [3, 40, 80, 120, 200];

/// Stores to a mapping of its own and to nothing else.
fn copies(file: &fs::File) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; all that follows stays inside it.
    unsafe {
        let map =
            libc::mmap(std::ptr::null_mut(), PAGE * PAGES, prot, libc::MAP_PRIVATE, file.as_raw_fd(), 0).cast::<u8>();
        assert_ne!(map.cast(), libc::MAP_FAILED);
        for page in COPIED {
            map.add(page * PAGE).write_volatile(1);
        }
    }
}

/// The recorded program. The file is there and not cached.
pub(crate) fn work(file: &str) {
    let own = file.ends_with(OWN);
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    if own {
        return copies(&file);
    }
    let fd = file.as_raw_fd();
    let len = PAGE * PAGES;
    // SAFETY: a new mapping; all that follows stays inside it.
    unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let map = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0).cast::<u8>();
        assert_ne!(map.cast(), libc::MAP_FAILED);
        assert_eq!(libc::madvise(map.cast(), len, libc::MADV_RANDOM), 0);
        for page in LOADED {
            map.add(page * PAGE).read_volatile();
        }
        for page in STORED {
            map.add(page * PAGE).write_volatile(1);
            map.add(page * PAGE + 8).write_volatile(2);
        }
        // The cycle ends here, and with the next store another begins.
        assert_eq!(libc::msync(map.cast(), len, libc::MS_SYNC), 0);
        map.add(STORED[0] * PAGE).write_volatile(3);
        let byte = 7u8;
        assert_eq!(libc::pwrite(fd, (&raw const byte).cast(), 1, (WRITTEN * PAGE) as i64), 1);
        let other = fs::File::open("/proc/self/stat").unwrap();
        assert!(libc::read(other.as_raw_fd(), map.add(ANSWERED * PAGE).cast(), 10) > 0);
        assert_eq!(libc::getrandom(map.add(ASKED * PAGE).cast(), 10, 0), 10);
        libc::munmap(map.cast(), len);
    }
}

struct Recorded {
    reel: Reel,
    file: i64,
    _mounted: Mounted,
    _out: tempfile::TempDir,
}

fn recorded(fs: Fs, mode: u32, options: &[&str]) -> Recorded {
    let out = temp_dir();
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let path = mounted.path().join("mapped");
    fs::write(&path, vec![5; PAGE * PAGES]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    if fs != Fs::Tmpfs {
        go_cold_with(&[&path]);
    }
    let reel = out.path().join("mapped.reel");
    let own = env::current_exe().unwrap();
    succeed(&mut record(&reel, options, &[text(&own), WORD, text(&path)]));
    let reel = assert_valid(&reel);
    let file = id_of(&reel, &path);
    Recorded { reel, file, _mounted: mounted, _out: out }
}

fn id_of(reel: &Reel, path: &Path) -> i64 {
    let files = reel.read::<File>().unwrap();
    files.iter().find(|f| f.path.as_deref() == Some(text(path))).unwrap().file
}

/// First touches, fault-around and first stores, page by page.
pub(crate) fn touches_and_stores(fs: Fs) {
    let r = recorded(fs, 0o644, &[]);
    let ops: Vec<Op> = r.reel.read::<Op>().unwrap().into_iter().filter(|o| o.source == "fault").collect();
    let of = |op: &str| -> Vec<&Op> { ops.iter().filter(|o| o.op == op && o.file == Some(r.file)).collect() };
    let page = |o: &Op| o.offset_bytes.unwrap() as usize / PAGE;
    let covers = |o: &&Op, p: usize| (page(o)..page(o) + o.len_bytes.unwrap() as usize / PAGE).contains(&p);
    let (touched, around, dirty) = (of("fault"), of("map_pages"), of("dirty"));
    if fs == Fs::Tmpfs {
        assert!(dirty.is_empty(), "tmpfs writes nothing back");
    } else {
        for p in LOADED.iter().chain(&STORED) {
            assert!(touched.iter().chain(&around).any(|o| covers(o, *p)), "page {p} was touched: {ops:?}");
        }
        assert!(touched.iter().any(|o| o.dur_ns > 0), "cold pages take time: {touched:?}");
        let stored: Vec<usize> = STORED.into_iter().chain([STORED[0], ANSWERED, ASKED]).collect();
        assert_eq!(dirty.len(), stored.len(), "{dirty:?}");
        for (o, p) in dirty.iter().zip(&stored) {
            assert!(covers(o, *p), "{o:?} is not page {p}");
        }
        assert!(dirty.iter().all(|o| !covers(o, WRITTEN)), "a call wrote page {WRITTEN}");
    }
    assert!(r.reel.manifest.resolution.contains_key("fault"));
    assert!(ops.iter().all(|o| o.task_id > 0 && o.state == "complete"));
}

/// What is stored to is data, also in a file that may be executed: touches of such are taken for those of program code.
pub(crate) fn stores_to_what_may_be_executed() {
    let r = recorded(Fs::Ext4, 0o755, &[]);
    let ops = r.reel.read::<Op>().unwrap();
    let of = |op: &str| ops.iter().filter(|o| o.op == op && o.file == Some(r.file)).count();
    assert_eq!((of("dirty"), of("fault") + of("map_pages")), (STORED.len() + 3, 0), "{ops:?}");
}

/// A call on memory is one on the file that lies there, wherever in the range that is: behind memory of no file, or behind
/// a hole.
pub(crate) fn ranges_that_begin_elsewhere() {
    const PROGRAM: &str = "
import ctypes, os, sys
c = ctypes.CDLL(None)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDWR)
a = c.mmap(None, 1 << 17, 3, 0x22, -1, 0)
assert c.mmap(a + 65536, 65536, 3, 0x11, fd, 0) == a + 65536
at = lambda n: ctypes.c_void_p(a + n)
size = ctypes.c_size_t
assert c.msync(at(0), size(131072), 4) == 0
assert c.madvise(at(61440), size(8192), 4) == 0
assert c.munmap(at(61440), size(65536)) == 0
assert c.munmap(at(0), size(131072)) == 0
b = c.mmap(None, 1 << 17, 3, 0x22, -1, 0)
assert c.mprotect(ctypes.c_void_p(b), size(4096), 0) == 0
assert c.munmap(ctypes.c_void_p(b), size(131072)) == 0
";
    let (out, place) = (temp_dir(), temp_dir());
    let (reel, file) = (out.path().join("ranges.reel"), place.path().join("file"));
    fs::write(&file, vec![5; 65536]).unwrap();
    succeed(&mut record(&reel, &["--ops-only", "--settle", "none"], &["python3", "-S", "-c", PROGRAM, text(&file)]));
    let reel = assert_valid(&reel);
    let id = id_of(&reel, &file);
    let calls: Vec<_> = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.file == Some(id)).map(|o| o.op).collect();
    let unmaps: Vec<&str> = calls.iter().map(|c| &**c).filter(|c| ["msync", "madvise", "munmap"].contains(c)).collect();
    assert_eq!(unmaps, ["msync", "madvise", "munmap", "munmap"], "{calls:?}");
    let none = "unmappings of memory that is no recorded file's";
    assert_eq!(reel.manifest.left_out.get(none), None, "{:?}", reel.manifest.left_out);
}

/// What is read ahead because somebody asks for it is told also right after a read that reads ahead by itself.
pub(crate) fn readahead_asked_for(fs: Fs) {
    const PROGRAM: &str = "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
os.read(f, 4096); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED); os.posix_fadvise(f, 0, 1 << 20, os.POSIX_FADV_WILLNEED)
";
    let (out, mounted) = (temp_dir(), Mounted::new(fs, DEFAULT_SIZE_BYTES));
    let path = mounted.path().join("ahead");
    fs::write(&path, vec![5; PAGE * PAGES]).unwrap();
    if fs != Fs::Tmpfs {
        go_cold_with(&[&path]);
    }
    let reel = out.path().join("ahead.reel");
    succeed(&mut record(&reel, &["--cache"], &["python3", "-S", "-c", PROGRAM, text(&path)]));
    let reel = assert_valid(&reel);
    let file = id_of(&reel, &path);
    let of = |event: &str| {
        let events = reel.rows::<Cache>().map(|c| c.unwrap()).filter(|c| c.file == file && c.event == event);
        events.map(|c| c.len_bytes).sum::<i64>()
    };
    let told = reel.rows::<Cache>().map(|c| c.unwrap()).filter(|c| c.file == file).collect::<Vec<_>>();
    // That is no cache of anything.
    let expected = if fs == Fs::Tmpfs { 0 } else { PAGE * PAGES };
    assert!(of("readahead") >= expected as i64 && (expected > 0 || told.is_empty()), "{told:?}");
}

/// Of a thread's last touch it is not known how long it took: it is told as the thread ends.
pub(crate) fn the_last_touch() {
    let (out, mounted) = (temp_dir(), Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES));
    let path = mounted.path().join(OWN);
    fs::write(&path, vec![5; PAGE * PAGES]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let reel = out.path().join("own.reel");
    succeed(&mut record(&reel, &[], &[text(&env::current_exe().unwrap()), WORD, text(&path)]));
    let reel = assert_valid(&reel);
    let file = id_of(&reel, &path);
    let ops = reel.read::<Op>().unwrap();
    let of = ops.iter().filter(|o| o.source == "fault" && o.file == Some(file));
    let touched: Vec<usize> = of.map(|o| o.offset_bytes.unwrap() as usize / PAGE).collect();
    assert_eq!(touched, COPIED);
}

/// Fills, dirtying and write-back cover the pages that were used and no more than the file.
pub(crate) fn the_page_cache(fs: Fs) {
    let r = recorded(fs, 0o644, &["--cache"]);
    let cache: Vec<Cache> = r.reel.read::<Cache>().unwrap().into_iter().filter(|c| c.file == r.file).collect();
    if fs == Fs::Tmpfs {
        assert!(cache.is_empty());
        return;
    }
    let pages = |event: &str| -> BTreeSet<usize> {
        let of = cache.iter().filter(|c| c.event == event);
        of.flat_map(|c| {
            let first = c.offset_bytes as usize / PAGE;
            first..first + (c.len_bytes as usize).div_ceil(PAGE)
        })
        .collect()
    };
    let (fills, dirty, written) = (pages("fill"), pages("dirty"), pages("writeback"));
    let used: BTreeSet<usize> = LOADED.iter().chain(&STORED).copied().chain([WRITTEN, ANSWERED]).collect();
    assert!(used.is_subset(&fills), "{used:?} in {fills:?}");
    assert!(fills.iter().all(|p| *p < PAGES));
    let changed: BTreeSet<usize> = STORED.into_iter().chain([WRITTEN, ANSWERED]).collect();
    assert!(changed.is_subset(&dirty), "{changed:?} in {dirty:?}");
    assert!(LOADED.iter().all(|p| !dirty.contains(p) || fs == Fs::Btrfs), "{dirty:?}");
    // Which of btrfs's bios come from the cache is not told apart.
    assert!(fs == Fs::Btrfs || changed.is_subset(&written), "{changed:?} in {written:?}");
    let ledger = r.reel.manifest.ledger["cache"];
    assert_eq!(ledger.seen, ledger.written + ledger.filtered);
}

/// More processes than CPUs, which are taken from them in the midst of anything, the probes included.
pub(crate) fn by_many_at_once() {
    const PROCESSES: usize = 4;
    let (out, place) = (temp_dir(), temp_dir());
    let own = env::current_exe().unwrap();
    let files: Vec<String> = (0..PROCESSES).map(|i| format!("{}/file{i}", text(place.path()))).collect();
    let mut script = String::new();
    for file in &files {
        // One hole, of which no page is cached.
        fs::File::create(file).unwrap().set_len(lossless::STORED_BYTES as u64).unwrap();
        fs::write(format!("{file}.go"), "").unwrap();
        script += &format!("{} {} stores {file} & ", text(&own), lossless::WORD);
    }
    let reel = out.path().join("x.reel");
    succeed(&mut record(
        &reel,
        &["--ring-mib", "64"],
        &["taskset", "-c", "0,1", "sh", "-c", &format!("{script} wait")],
    ));
    let reel = assert_valid(&reel);
    let m = &reel.manifest;
    let missed: i64 = m.probes.iter().filter(|p| p.name.starts_with("fault_")).map(|p| p.missed).sum();
    let ops = reel.read::<Op>().unwrap();
    let mut missing = 0;
    for file in &files {
        let id = id_of(&reel, Path::new(file));
        let of = |op: &str| -> BTreeSet<i64> {
            ops.iter().filter(|o| o.op == op && o.file == Some(id)).filter_map(|o| o.offset_bytes).collect()
        };
        let pages = lossless::STORED_BYTES / PAGE;
        missing += 2 * pages - of("fault").len() - of("dirty").len();
    }
    assert_eq!(m.ledger["ops"].lost, 0, "{:?}", m.ledger);
    assert!(missing as i64 <= missed, "{missing} are missing, {missed} were told: {:?}", m.probes);
    assert!(missing < 10 && missed < 10, "{missing} are missing: {:?}", m.probes);
}
