//! Attribution where more than one device, or another kind of device, lies below the file system. Truth is, as in
//! `attribution`, what lies where the bios went.

use std::{
    collections::{BTreeMap, HashSet},
    env, fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::rows::{Bio, Block, Task, block_flags};

use crate::{
    attribution::{Recorded, number, stamp, stamped, stamps_are_found},
    harness::{
        assert_valid,
        device::{Device, PARTITION_SECTOR},
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
        paths_of, record, succeed, temp_dir, text, wait_for,
    },
};

/// First word of the command line by which this program puts memory into swap space and takes it back.
pub(crate) const WORD: &str = "swap";
/// Smaller ones are refused by some mkfs.
const LOG_BYTES: u64 = 64 << 20;
const SWAPPED_BYTES: usize = 16 << 20;

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
const XFS: &[&str] = &["mkfs.xfs", "-q", "-f"];

fn of<'a>(r: &'a Recorded, device: &Device) -> impl Iterator<Item = &'a Bio> {
    let dev = number(device.whole());
    r.bios.iter().filter(move |b| b.dev == dev)
}

/// Each byte on the journal's device is the journal's, and none elsewhere.
fn journal_is(r: &Recorded, data: &Device, journal: &Device) {
    let mut bytes = 0;
    for b in of(r, journal).filter(|b| b.len_bytes != 0) {
        assert_eq!(b.class, "journal", "{b:?}");
        bytes += b.len_bytes;
    }
    assert!(bytes > 0, "nothing went to the journal");
    assert!(of(r, data).all(|b| b.class != "journal"));
}

pub(crate) fn an_ext4_journal_elsewhere() {
    let (data, journal) = (Device::looped(DEFAULT_SIZE_BYTES), Device::looped(LOG_BYTES));
    succeed(Command::new("mke2fs").args(["-q", "-F", "-O", "journal_dev"]).arg(journal.path()));
    let at = format!("device={}", text(journal.path()));
    let mount = Mounted::over(&[&data], &[EXT4, &["-J", &at]].concat(), "defaults");
    let written = stamps_are_found("ext4, journal elsewhere", mount.path(), &[data.whole(), journal.whole()]);
    journal_is(&written, &data, &journal);
}

pub(crate) fn an_xfs_log_elsewhere() {
    let (data, log) = (Device::looped(DEFAULT_SIZE_BYTES), Device::looped(LOG_BYTES));
    let at = format!("logdev={}", text(log.path()));
    let mount = Mounted::over(&[&data], &[XFS, &["-l", &at]].concat(), &at);
    let written = stamps_are_found("xfs, log elsewhere", mount.path(), &[data.whole(), log.whole()]);
    journal_is(&written, &data, &log);
}

/// Every copy is the file's.
pub(crate) fn a_btrfs_mirror() {
    let devices = [Device::looped(DEFAULT_SIZE_BYTES), Device::looped(DEFAULT_SIZE_BYTES)];
    let mkfs = ["mkfs.btrfs", "-q", "-f", "-d", "raid1", "-m", "raid1"];
    let mount = Mounted::over(&[&devices[0], &devices[1]], &mkfs, "defaults");
    let written = stamps_are_found("btrfs, raid1", mount.path(), &[devices[0].whole(), devices[1].whole()]);
    let data = |d: &Device| of(&written, d).filter(|b| b.class == "data").map(|b| b.len_bytes).sum::<i64>();
    assert_eq!(data(&devices[0]), data(&devices[1]));
}

pub(crate) fn a_partition() {
    let device = Device::partition(DEFAULT_SIZE_BYTES);
    let mount = Mounted::over(&[&device], EXT4, "defaults");
    let written = stamps_are_found("ext4 on a partition", mount.path(), &[device.whole()]);
    let dev = number(device.path());
    for b in written.bios.iter().filter(|b| b.len_bytes != 0) {
        assert_eq!((b.orig_dev, b.orig_sector), (Some(dev), Some(b.sector - PARTITION_SECTOR)), "{b:?}");
    }
}

/// What goes to a partition that is not recorded leaves no trace on what is.
pub(crate) fn anothers_partition() {
    let (other, device, out) = (Device::partition(DEFAULT_SIZE_BYTES), Device::looped(LOG_BYTES), temp_dir());
    let reel = out.path().join("plain.reel");
    let at = format!("of={}", text(other.path()));
    let busy = Command::new("dd").args(["if=/dev/zero", &at, "bs=4k", "oflag=direct", "status=none"]).spawn().unwrap();
    let at = format!("of={}", text(device.path()));
    let own = ["dd", "if=/dev/zero", &at, "bs=4k", "count=4096", "oflag=direct", "status=none"];
    succeed(&mut record(&reel, &["--device", text(device.path()), "--settle", "none"], &own));
    let (mut busy, dev) = (busy, number(device.whole()));
    // It may have come to the end of its disk by itself.
    let _ = busy.kill();
    busy.wait().unwrap();
    let bios: Vec<Bio> = assert_valid(&reel).read().unwrap();
    assert!(bios.iter().filter(|b| b.dev == dev && b.op == "write").count() >= 4096);
    assert!(
        bios.iter().all(|b| b.dev == dev && b.orig_dev.is_none()),
        "{:?}",
        bios.iter().find(|b| b.orig_dev.is_some())
    );
}

/// A device without requests.
pub(crate) fn compressed_memory() {
    let device = Device::zram(DEFAULT_SIZE_BYTES);
    let mount = Mounted::over(&[&device], XFS, "defaults");
    let written = stamps_are_found("xfs on zram", mount.path(), &[device.whole()]);
    assert!(written.bios.iter().all(|b| b.rq_id.is_none()));
}

/// What the kernel's worker threads do for a ring is the process's, also where no calls are recorded: such a device takes
/// no request to io_uring from the thread that submits it.
pub(crate) fn requests_in_workers_without_calls() {
    const READS: usize = 2000;
    let device = Device::zram(DEFAULT_SIZE_BYTES);
    let (file, count) = (format!("--filename={}", text(device.path())), format!("--number_ios={READS}"));
    let mut fio = vec!["fio", "--name=reads", "--ioengine=io_uring", "--direct=1", "--rw=randread", "--bs=4k"];
    fio.extend(["--iodepth=16", "--size=64m", &file, &count]);
    let out = temp_dir();
    let reel = out.path().join("r.reel");
    succeed(&mut record(&reel, &["--block-only", "--no-snapshot"], &fio));
    let reel = assert_valid(&reel);
    let bios: Vec<Bio> = reel.read().unwrap();
    let reads: Vec<&Bio> = bios.iter().filter(|b| b.dev == number(device.whole()) && b.len_bytes == 4096).collect();
    assert_eq!(reads.iter().filter(|b| b.complete_ns.is_some()).count(), READS);
    let tasks: Vec<Task> = reel.read().unwrap();
    let fio: Vec<i64> = tasks.iter().filter(|t| &*t.comm == "fio").map(|t| t.task_id).collect();
    assert!(reads.iter().all(|b| b.task_id.is_some_and(|id| fio.contains(&id))), "{:?}", reads[0]);
}

/// What is recorded: memory goes out and comes back.
pub(crate) fn swap_out_and_in() {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), SWAPPED_BYTES, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the memory just made, which nobody else has.
    let memory = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), SWAPPED_BYTES) };
    let mut state = 1u64;
    for word in memory.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.copy_from_slice(&state.to_le_bytes());
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::madvise(at, SWAPPED_BYTES, libc::MADV_PAGEOUT) }, 0);
    let mut state = 1u64;
    for word in memory.chunks_exact(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        assert_eq!(word, state.to_le_bytes());
    }
}

struct Swapping<'a>(&'a Device);

impl Drop for Swapping<'_> {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.0.path()).status();
    }
}

/// A control group that may use so much memory, gone when its owner is.
struct LittleMemory(PathBuf);

impl LittleMemory {
    fn new(bytes: usize) -> Self {
        let name = format!("ioreel-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        // The first version of control groups where that has memory, else the second.
        let (root, limit) =
            if first.exists() { (first, "memory.limit_in_bytes") } else { (Path::new("/sys/fs/cgroup"), "memory.max") };
        let group = root.join(name);
        fs::create_dir(&group).unwrap();
        fs::write(group.join(limit), bytes.to_string()).unwrap();
        Self(group)
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

pub(crate) fn swap() {
    let (device, out) = (Device::looped(8 * SWAPPED_BYTES as u64), temp_dir());
    succeed(Command::new("mkswap").arg("-q").arg(device.path()));
    succeed(Command::new("swapon").args(["--priority", "32767"]).arg(device.path()));
    let _swapping = Swapping(&device);
    let reel = out.path().join("swap.reel");
    let own = env::current_exe().unwrap();
    // With half the memory that it uses, most of what it takes back is no longer there.
    let little = LittleMemory::new(SWAPPED_BYTES / 2);
    let script = format!("echo $$ >{}; exec {} {WORD}", text(&little.0.join("cgroup.procs")), text(&own));
    succeed(&mut record(&reel, &["--device", text(device.path())], &["sh", "-ec", &script]));
    let (mut written, mut read) = (0, 0);
    for b in assert_valid(&reel).read::<Bio>().unwrap().iter().filter(|b| b.dev == number(device.path())) {
        assert_eq!(b.class, "swap", "{b:?}");
        written += if b.op == "write" { b.len_bytes } else { 0 };
        read += if b.op == "read" { b.len_bytes } else { 0 };
    }
    assert!(written >= SWAPPED_BYTES as i64 / 2, "{written} bytes");
    assert!(read >= SWAPPED_BYTES as i64 / 4, "{read} bytes");
}

/// What a file system gives back is told as that, whatever lay there.
pub(crate) fn discards() {
    let device = Device::looped(DEFAULT_SIZE_BYTES);
    let mount = Mounted::over(&[&device], EXT4, "discard");
    let (out, at) = (temp_dir(), text(mount.path()));
    let reel = out.path().join("discard.reel");
    let script = format!("head -c 8M /dev/urandom >{at}/f; sync {at}/f; rm {at}/f; sync -f {at}; fstrim {at}");
    succeed(&mut record(&reel, &[], &["sh", "-c", &script]));
    let mut discarded = 0;
    for b in assert_valid(&reel).read::<Bio>().unwrap().iter().filter(|b| b.dev == number(device.path())) {
        if b.op == "discard" {
            discarded += b.len_bytes;
            assert_eq!((&*b.class, b.detail.as_deref(), b.file), ("metadata", Some("discard"), None), "{b:?}");
        }
        assert_ne!(b.class, "unknown", "{b:?}");
    }
    assert!(discarded >= 8 << 20, "{discarded} bytes");
}

/// Stripes with parity: data is the file's, written directly too, although it is copied into the stripe; parity is told
/// as that.
pub(crate) fn btrfs_with_parity() {
    for profile in ["raid5", "raid6"] {
        let devices = [0; 4].map(|_| Device::looped(DEFAULT_SIZE_BYTES));
        let mkfs = ["mkfs.btrfs", "-q", "-f", "-d", profile, "-m", "raid1"];
        let mount = Mounted::over(&devices.each_ref(), &mkfs, "defaults");
        let whole: Vec<_> = devices.iter().map(Device::whole).collect();
        let r = stamps_are_found(profile, mount.path(), &whole);
        let bytes = |of: &dyn Fn(&&Bio) -> bool| r.bios.iter().filter(of).map(|b| b.len_bytes).sum::<i64>();
        let parity = bytes(&|b| b.detail.as_deref() == Some("parity"));
        let data = bytes(&|b| b.class == "data");
        let nobodys = bytes(&|b| b.class == "data" && b.file.is_none());
        assert!(parity > 0 && data > parity / 2, "{profile}: {data} bytes of data, {parity} of parity");
        assert!(nobodys * 200 <= data, "{profile}: {nobodys} of {data} bytes of data are nobody's");
        drop(mount);
        reads_for_parity(profile);
        small_files_beside_each_other(profile);
    }
}

/// What several files have in a bio is told file by file, each with its place in the file.
fn small_files_beside_each_other(profile: &str) {
    // Those of one block fill whole bios.
    let blocks_of = |n: usize| if n < 400 { 1 + n % 3 } else { 1 };
    let recorded = || {
        let devices = [0; 4].map(|_| Device::looped(DEFAULT_SIZE_BYTES));
        let mkfs = ["mkfs.btrfs", "-q", "-f", "-d", profile, "-m", "raid1"];
        let mount = Mounted::over(&devices.each_ref(), &mkfs, "defaults");
        let (from, out) = (temp_dir(), temp_dir());
        for n in 0..600 {
            let blocks: Vec<u8> = (0..blocks_of(n)).flat_map(|b| stamped(n, b)).collect();
            fs::write(from.path().join(n.to_string()), blocks).unwrap();
        }
        let to = mount.path().join("small");
        let path = out.path().join("small.reel");
        let script = format!("cp -r {} {to}; sync -f {to}", text(from.path()), to = text(&to));
        succeed(&mut record(&path, &["--no-snapshot"], &["sh", "-c", &script]));
        let reel = assert_valid(&path);
        let bios: Vec<Bio> = reel.read().unwrap();
        let ours = |b: &Bio| devices.iter().any(|d| number(d.whole()) == b.dev);
        let bios: Vec<Bio> = bios.into_iter().filter(ours).collect();
        (devices, out, reel, bios)
    };
    // A kernel may, in bursts, call no probe at all. When such a bio has ended is not known, and the stripe that told of
    // its files may be gone: such a recording says nothing on those that end.
    let attempt = (0..3).map(|_| recorded()).find(|(.., bios)| bios.iter().all(|b| b.complete_ns.is_some()));
    let (devices, _out, reel, bios) = attempt.unwrap_or_else(|| panic!("{profile}: three times bios without an end"));
    let files = paths_of(&reel);
    let mut told = HashSet::new();
    let mut several = 0;
    for b in bios.iter().filter(|b| b.class == "data") {
        let device = devices.iter().find(|d| number(d.whole()) == b.dev).unwrap();
        assert_eq!(b.op, "write", "{profile}: nobody reads: {b:?}");
        let name = &files[&b.file.unwrap_or_else(|| panic!("{profile}: nobody's: {b:?}"))];
        let mut bytes = vec![0; b.len_bytes as usize];
        fs::File::open(device.whole()).unwrap().read_exact_at(&mut bytes, b.sector as u64 * 512).unwrap();
        several += usize::from(b.flags & block_flags::SPLIT != 0);
        for (i, (n, block)) in bytes.chunks(4096).map(stamp).enumerate().filter_map(|(i, s)| Some((i, s?))) {
            assert!(name.ends_with(&format!("/{n}")), "{profile}: {name}, but {n}: {b:?}");
            assert_eq!(b.file_offset_bytes.unwrap() + i as i64 * 4096, block * 4096, "{profile}: {name}: {b:?}");
            told.insert((n, block));
        }
    }
    assert!(several > 20, "{profile}: {several} pieces of bios");
    let all: usize = (0..600).map(blocks_of).sum();
    let mut kinds = BTreeMap::<_, i64>::new();
    for b in &bios {
        *kinds.entry((&*b.op, &*b.class, b.detail.as_deref(), b.file.is_some())).or_default() += b.len_bytes;
    }
    assert!(
        told.len() * 1000 >= all * 995,
        "{profile}: {} of {all} blocks; bytes by operation, class, detail, whether of a file: {kinds:?}",
        told.len()
    );
    let ours = |r: &&Block| devices.iter().any(|d| number(d.whole()) == r.dev);
    for request in reel.read::<Block>().unwrap().iter().filter(ours) {
        let carried: i64 = bios.iter().filter(|b| b.rq_id == Some(request.rq_id)).map(|b| b.len_bytes).sum();
        assert_eq!(carried, request.len_bytes, "{profile}: {request:?}");
    }
}

/// A file system that has the number of one that is gone is told apart from it: its files are others, and its disks are
/// recorded from the first of them on, also what nobody of the recording makes them do.
pub(crate) fn a_mount_in_the_place_of_another() {
    let devices = [0; 3].map(|_| Device::looped(DEFAULT_SIZE_BYTES));
    let [one, two @ ..] = &devices;
    let make = ["mkfs.btrfs", "-q", "-f", "-m", "raid1", "-d", "raid0"];
    let first = Mounted::over(&[one], &["mkfs.btrfs", "-q", "-f"], "defaults");
    let out = temp_dir();
    let at = |name: &str| out.path().join(name);
    let there = |name: &str| wait_for(name, || at(name).exists().then_some(()));
    let script = format!(
        "cd {}; until [ -s first ]; do sleep 0.02; done; echo 1 > $(cat first)/f; : > written; \
         until [ -s second ]; do sleep 0.02; done; head -c 8M /dev/urandom > $(cat second)/f; : > done; \
         until [ -e end ]; do sleep 0.02; done",
        text(out.path())
    );
    let path = at("r.reel");
    let mut recording = record(&path, &["--no-snapshot"], &["sh", "-c", &script]).spawn().unwrap();
    let tell = |name: &str, what: &str| {
        fs::write(at("new"), what).unwrap();
        fs::rename(at("new"), at(name)).unwrap();
    };
    tell("first", text(first.path()));
    there("written");
    let number_of = |m: &Mounted| fs::metadata(m.path()).unwrap().dev();
    let before = number_of(&first);
    let old = first.path().to_owned();
    drop(first);
    let second = Mounted::over(&two.each_ref(), &make, "defaults");
    assert_eq!(number_of(&second), before, "another took the number");
    tell("second", text(second.path()));
    there("done");
    succeed(Command::new("sync").args(["-f", text(second.path())]));
    tell("end", "");
    assert!(recording.wait().unwrap().success());
    let reel = assert_valid(&path);
    let files = paths_of(&reel);
    for mount in [text(&old), text(second.path())] {
        assert!(files.values().any(|path| *path == format!("{mount}/f")), "{mount}: {files:?}");
    }
    let bios: Vec<Bio> = reel.read().unwrap();
    for device in two {
        let written = |b: &&Bio| b.dev == number(device.whole()) && b.class == "data" && b.op == "write";
        let bytes: i64 = bios.iter().filter(written).map(|b| b.len_bytes).sum();
        assert_eq!(bytes, 4 << 20, "{}", text(device.whole()));
    }
}

/// What is copied to a device that takes another's place is data of no file rather than of a wrong one, also while files
/// are written.
pub(crate) fn btrfs_that_replaces_a_device() {
    let devices = [0; 5].map(|_| Device::looped(DEFAULT_SIZE_BYTES));
    let [members @ .., spare] = &devices;
    let mkfs = ["mkfs.btrfs", "-q", "-f", "-d", "raid5", "-m", "raid1"];
    let mount = Mounted::over(&members.each_ref(), &mkfs, "defaults");
    let (from, out) = (temp_dir(), temp_dir());
    let write = |at: &Path, files: std::ops::Range<usize>| {
        fs::create_dir(at).unwrap();
        files.for_each(|n| fs::write(at.join(n.to_string()), stamped(n, 0)).unwrap());
    };
    write(&mount.path().join("before"), 0..3000);
    write(&from.path().join("meanwhile"), 3000..4000);
    let at = text(mount.path());
    succeed(Command::new("sync").args(["-f", at]));
    let path = out.path().join("replace.reel");
    let script = format!(
        "btrfs replace start -B -f 2 {} {at} & cp -r {}/meanwhile {at}; sync -f {at}; wait $!",
        text(spare.whole()),
        text(from.path())
    );
    succeed(&mut record(&path, &["--no-snapshot"], &["sh", "-c", &script]));
    let reel = assert_valid(&path);
    drop(mount);
    let files = paths_of(&reel);
    let (mut copied, mut told) = (0, 0);
    for b in reel.read::<Bio>().unwrap().iter().filter(|b| b.op == "write" && b.complete_ns.is_some()) {
        let Some(device) = devices.iter().find(|d| number(d.whole()) == b.dev) else { continue };
        if b.class == "data" && b.file.is_none() && device.whole() == spare.whole() {
            copied += b.len_bytes;
        }
        // The device itself is a file too, before it is a member.
        let of_a_file = b.class == "data" && b.detail.as_deref() != Some("device");
        let Some(name) = b.file.and_then(|file| files.get(&file)).filter(|_| of_a_file) else { continue };
        let mut bytes = vec![0; b.len_bytes as usize];
        fs::File::open(device.whole()).unwrap().read_exact_at(&mut bytes, b.sector as u64 * 512).unwrap();
        for (n, _) in bytes.chunks(4096).filter_map(stamp) {
            assert!(name.ends_with(&format!("/{n}")), "{name}, but {n}: {b:?}");
            told += 1;
        }
    }
    assert!(copied > 1 << 20 && told > 900, "{copied} bytes copied, {told} blocks of files");
}

/// Changes some blocks of a cold file in place: the rest of each stripe's data is read to make parity of, and told as that.
fn reads_for_parity(profile: &str) {
    const BLOCK: usize = 4096;
    const FILE_BYTES: usize = 16 << 20;
    let devices = [0; 4].map(|_| Device::looped(DEFAULT_SIZE_BYTES));
    let mkfs = ["mkfs.btrfs", "-q", "-f", "-d", profile, "-m", "raid1"];
    let mount = Mounted::over(&devices.each_ref(), &mkfs, "nodatacow");
    let file = mount.path().join("file");
    // Every block is like no other.
    let block = |i: usize| blake3::Hasher::new().update(&i.to_le_bytes()).finalize_xof();
    let mut content = vec![0; FILE_BYTES];
    content.chunks_mut(BLOCK).enumerate().for_each(|(i, chunk)| block(i).fill(chunk));
    fs::write(&file, &content).unwrap();
    succeed(Command::new("sync").args(["-f", text(&file)]));
    go_cold_with(&[&file]);
    let script = format!(
        "for at in 5 700 1501 2222 3333; do dd if=/dev/urandom of={} bs=4k count=1 seek=$at conv=notrunc,fsync status=none; done",
        text(&file)
    );
    let out = temp_dir();
    let path = out.path().join("parity.reel");
    succeed(&mut record(&path, &["--no-snapshot"], &["sh", "-c", &script]));
    let bios: Vec<Bio> = assert_valid(&path).read().unwrap();
    let changed = fs::read(&file).unwrap();
    drop(mount);
    let blocks: HashSet<&[u8]> = content.chunks(BLOCK).chain(changed.chunks(BLOCK)).collect();
    let (mut read, mut parity) = (0, 0);
    for device in &devices {
        let dev = number(device.whole());
        let whole = fs::File::open(device.whole()).unwrap();
        for b in bios.iter().filter(|b| b.dev == dev) {
            match (b.detail.as_deref(), &*b.op) {
                (Some("parity_read"), "read") => {
                    assert!((b.class == "metadata", b.file, b.confidence) == (true, None, 95), "{b:?}");
                    let mut bytes = vec![0; b.len_bytes as usize];
                    whole.read_exact_at(&mut bytes, b.sector as u64 * 512).unwrap();
                    let known = bytes.chunks(BLOCK).filter(|c| blocks.contains(c)).count();
                    assert_eq!(known, bytes.len() / BLOCK, "not what the file holds: {b:?}");
                    read += b.len_bytes;
                }
                (Some("parity"), "write") => parity += b.len_bytes,
                // Newer kernels read the old parity too, to check and mend the stripe by.
                (Some("parity"), _) => assert_eq!((&*b.class, b.file), ("metadata", None), "{b:?}"),
                (Some("parity_read"), _) => panic!("{profile}: {b:?}"),
                _ => {}
            }
        }
    }
    // At least one data block of each stripe, and its parity.
    assert!(read >= 5 * BLOCK as i64 && parity >= 5 * BLOCK as i64, "{profile}: {read} bytes read, {parity} of parity");
}

/// Zeroes that a call has a device filled with carry no page of any file: they are the device's, where they go.
pub(crate) fn zeroes() {
    const LEN: i64 = 16 << 20;
    let (out, device) = (temp_dir(), Device::looped(DEFAULT_SIZE_BYTES));
    for (name, words) in [("ioctl", ["blkdiscard", "-f", "-z", "-l"]), ("fallocate", ["fallocate", "-z", "-o0", "-l"])]
    {
        let reel = out.path().join(format!("{name}.reel"));
        let len = LEN.to_string();
        succeed(&mut record(&reel, &[], &[&words[..], &[&len, text(device.path())]].concat()));
        let reel = assert_valid(&reel);
        let mut end = 0;
        for b in reel.read::<Bio>().unwrap().iter().filter(|b| b.dev == number(device.path()) && b.len_bytes > 0) {
            assert_eq!((&*b.class, b.file_offset_bytes), ("data", Some(b.sector * 512)), "{b:?}");
            end = end.max(b.sector * 512 + b.len_bytes);
        }
        assert_eq!(end, LEN);
    }
}

/// What a device holds may become something else meanwhile.
pub(crate) fn a_file_system_made_meanwhile() {
    let (out, at, device) = (temp_dir(), temp_dir(), Device::looped(DEFAULT_SIZE_BYTES));
    let script = format!(
        "set -e; {} {dev}; mount {dev} {at}; cd {at}; for i in $(seq 50); do echo $i >f$i; done; sync; cd /; umount {at}",
        EXT4.join(" "),
        dev = text(device.path()),
        at = text(at.path())
    );
    let reel = out.path().join("made.reel");
    succeed(&mut record(&reel, &[], &["sh", "-c", &script]));
    let bios: Vec<Bio> = assert_valid(&reel).read().unwrap();
    let of = |class: &str| bios.iter().filter(|b| b.dev == number(device.path()) && b.class == class).count();
    let journal = |b: &&Bio| b.comm.starts_with("jbd2/") && b.len_bytes > 0;
    for b in bios.iter().filter(journal) {
        assert_eq!(b.class, "journal", "{b:?}");
    }
    assert!(of("journal") > 0 && of("inode_table") > 0 && of("bitmap") > 0);
}

/// What btrfs looks over by itself is no tree, whatever inode it takes for it.
pub(crate) fn a_scrub() {
    const LEN: usize = 4 << 20;
    let (out, mounted) = (temp_dir(), Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES));
    fs::write(mounted.path().join("file"), vec![7; LEN]).unwrap();
    rustix::fs::sync();
    let reel = out.path().join("scrub.reel");
    succeed(&mut record(&reel, &[], &["btrfs", "scrub", "start", "-B", text(mounted.path())]));
    let bios: Vec<Bio> = assert_valid(&reel).read().unwrap();
    let read = |detail: &str| -> i64 {
        let of = bios.iter().filter(|b| b.op == "read" && b.detail.as_deref() == Some(detail));
        of.map(|b| b.len_bytes).sum()
    };
    assert!(read("scrub") >= LEN as i64, "{} bytes were scrubbed", read("scrub"));
    // It looks at every copy of the superblock, in memory of its own.
    const COPIES: [i64; 2] = [1 << 7, 1 << 17];
    let looked_at = bios.iter().filter(|b| b.op == "read" && COPIES.contains(&b.sector));
    let told: Vec<_> = looked_at.map(|b| (b.sector, &*b.class)).collect();
    assert_eq!(told, COPIES.map(|sector| (sector, "superblock")));
}
