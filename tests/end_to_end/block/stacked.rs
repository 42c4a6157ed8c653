//! Devices made of devices, and devices with zones: kernels with their modules alone, as in the guests of `make
//! test-kernels`. Truth is, as in `attribution`, what lies where the bios went.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::rows::Bio;

use crate::{
    block::attribution::{Recorded, number, recorded, stamps_are_found},
    calls::kernel::all_have_ended,
    harness::{
        device::Device,
        mount::{DEFAULT_SIZE_BYTES, Mounted},
        record, succeed, temp_dir, text,
    },
};

// Blocks as large as the stamps: a stripe ends at the end of one.
const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
const SECTORS: u64 = DEFAULT_SIZE_BYTES / 512;

fn load(module: &str) {
    succeed(Command::new("modprobe").arg(module));
}

/// A device of the device mapper, gone with its owner.
struct DeviceMapper(String);

impl DeviceMapper {
    fn new(name: &str, table: &str) -> Self {
        load("dm-mod");
        let options = ["--noudevrules", "--noudevsync", "--table", table];
        let made = Self(name.to_owned());
        succeed(Command::new("dmsetup").args(["create", name]).args(options));
        // Where no udev does.
        succeed(Command::new("dmsetup").args(["mknodes", name]));
        made
    }

    fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.0)
    }
}

impl Drop for DeviceMapper {
    fn drop(&mut self) {
        let _ = Command::new("dmsetup").args(["remove", "--noudevsync", "--retry", &self.0]).status();
    }
}

/// An array of devices, gone with its owner.
struct Array(PathBuf);

impl Array {
    fn new(level: &str, devices: &[&Device]) -> Self {
        let path = PathBuf::from("/dev/md7");
        load(level);
        let (level, count) = (format!("--level={level}"), format!("--raid-devices={}", devices.len()));
        let words = ["--create", text(&path), "--run", "--assume-clean", &level, &count];
        succeed(Command::new("mdadm").args(words).args(devices.iter().map(|d| d.path())));
        Self(path)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let _ = Command::new("mdadm").args(["--stop", text(&self.0)]).status();
    }
}

fn two() -> [Device; 2] {
    [Device::looped(DEFAULT_SIZE_BYTES), Device::looped(DEFAULT_SIZE_BYTES)]
}

fn on<'a>(r: &'a Recorded, device: &Path) -> Vec<&'a Bio> {
    let dev = number(device);
    r.bios.iter().filter(|b| b.dev == dev && b.len_bytes != 0).collect()
}

/// Rows of the mapped device have no request; those of the disks below are as many bytes, and lead to it.
pub(crate) fn a_mapped_device() {
    let disks = two();
    let [a, b] = disks.each_ref().map(|d| text(d.path()).to_owned());
    let end = 2 * SECTORS;
    for (kind, table) in [
        ("linear", format!("0 {SECTORS} linear {b} 0\n{SECTORS} {SECTORS} linear {a} 0")),
        ("striped", format!("0 {end} striped 2 128 {a} 0 {b} 0")),
    ] {
        let mapped = DeviceMapper::new(&format!("ioreel-{kind}"), &table);
        let mount = Mounted::over_paths(&[&mapped.path()], EXT4, "defaults");
        let devices = [mapped.path(), disks[0].path().into(), disks[1].path().into()];
        let written = stamps_are_found(kind, mount.path(), &devices.each_ref().map(PathBuf::as_path));
        let above = on(&written, &devices[0]);
        let below: Vec<&Bio> = devices[1..].iter().flat_map(|d| on(&written, d)).collect();
        assert!(above.iter().all(|b| b.rq_id.is_none()), "{kind}");
        assert!(below.iter().all(|b| b.rq_id.is_some() || b.complete_ns.is_none()), "{kind}");
        let bytes = |all: &[&Bio], class: &str| -> i64 {
            all.iter().filter(|b| b.op == "write" && b.class == class).map(|b| b.len_bytes).sum()
        };
        for class in ["data", "journal", "inode_table"] {
            assert!(bytes(&above, class) > 0, "{kind}: {class}");
            assert_eq!(bytes(&above, class), bytes(&below, class), "{kind}: {class}");
        }
        let dev = number(&devices[0]);
        assert!(below.iter().all(|b| b.orig_dev == Some(dev)), "{kind}");
        drop(mount);
    }
}

/// A disk whose bios end in interrupts may come while the ends of a disk in memory, which no interrupt brings, are told.
pub(crate) fn a_mapped_device_made_later() {
    let disks = std::env::var("IOREEL_TEST_DISKS").unwrap();
    let disk = disks.split_whitespace().next().unwrap();
    let memory = Device::zram(DEFAULT_SIZE_BYTES);
    load("dm-mod");
    let mapped = DeviceMapper("ioreel-later".to_owned());
    let name = &mapped.0;
    let fio = |filename: &str, seconds: u32| {
        format!(
            "fio --name=reads --filename={filename} --ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=64 \
             --norandommap --time_based --runtime={seconds} --size=256m"
        )
    };
    let (reads, mapped_reads) = (fio(text(memory.path()), 20), fio(&format!("/dev/mapper/{name}"), 15));
    let script = format!(
        "{reads} & sleep 1
         dmsetup create {name} --noudevrules --noudevsync --table '0 819200 linear {disk} 0' && dmsetup mknodes {name}
         sleep 2; {mapped_reads}; wait"
    );
    let out = temp_dir();
    let path = out.path().join("r.reel");
    let options = ["--no-snapshot", "--block-only", "--ring-mib", "64"];
    succeed(&mut record(&path, &options, &["sh", "-c", &script]));
    all_have_ended(&path, [memory.path(), &mapped.path()]);
}

/// What is made new below a mapped device leads to what it was made from.
pub(crate) fn an_encrypted_device() {
    load("dm-crypt");
    let disk = Device::looped(DEFAULT_SIZE_BYTES);
    let key = "0123456789abcdef".repeat(4);
    let table = format!("0 {SECTORS} crypt aes-xts-plain64 {key} 0 {} 0", text(disk.path()));
    let mapped = DeviceMapper::new("ioreel-crypt", &table);
    let mount = Mounted::over_paths(&[&mapped.path()], EXT4, "defaults");
    stamps_are_found("encrypted", mount.path(), &[&mapped.path()]);
    let out = temp_dir();
    fs::remove_dir_all(mount.path().join("many")).unwrap();
    // What was handed to the mapper before is done: only what lies below it is recorded of that.
    rustix::fs::sync();
    let r = recorded(mount.path(), &[&mapped.path(), disk.path()], out.path(), "write");
    let (above, below) = (on(&r, &mapped.path()), on(&r, disk.path()));
    let dev = number(&mapped.path());
    let sectors: HashSet<i64> = above.iter().flat_map(|b| b.sector..b.sector + b.len_bytes / 512).collect();
    let led = |b: &Bio| b.orig_dev == Some(dev) && b.orig_sector.is_some_and(|s| sectors.contains(&s));
    let astray: Vec<&&Bio> = below.iter().filter(|b| !led(b)).collect();
    let tell = |name: &str| matches!(name, "bio_queue" | "bio_remap");
    let skipped: i64 = r.reel.manifest.probes.iter().filter(|p| tell(&p.name)).map(|p| p.missed).sum();
    let told = format!("{} of {} below lead to nothing above: {astray:#?}", astray.len(), below.len());
    assert!(astray.len() as i64 <= skipped, "{told}");
}

/// Arrays move the bio itself, or make copies of it.
pub(crate) fn an_array() {
    for level in ["raid0", "raid1", "raid10"] {
        let disks = two();
        let array = Array::new(level, &[&disks[0], &disks[1]]);
        let mount = Mounted::over_paths(&[&array.0], EXT4, "defaults");
        stamps_are_found(level, mount.path(), &[disks[0].path(), disks[1].path()]);
        drop(mount);
    }
}

/// A disk with zones, gone with its owner.
struct Zoned(PathBuf);

impl Zoned {
    const CONFIG: &str = "/sys/kernel/config/nullb/nullb9";

    fn new() -> Self {
        // Without disks of its own. Its configuration is another module's.
        succeed(Command::new("modprobe").args(["null_blk", "nr_devices=0"]));
        if !Path::new("/sys/kernel/config/nullb").exists() {
            succeed(Command::new("mount").args(["-t", "configfs", "configfs", "/sys/kernel/config"]));
        }
        let config = Path::new(Self::CONFIG);
        fs::create_dir(config).unwrap();
        // Sizes in MiB.
        let settings = [
            ("size", "2048"),
            ("blocksize", "4096"),
            ("memory_backed", "1"),
            ("zoned", "1"),
            ("zone_size", "64"),
            ("power", "1"),
        ];
        for (name, value) in settings {
            fs::write(config.join(name), value).unwrap();
        }
        // Named by its number before it was by its folder.
        let named = ["nullb9", "nullb1", "nullb0"].map(|n| Path::new("/dev").join(n));
        let zoned = |disk: &&PathBuf| {
            let name = disk.file_name().unwrap().to_str().unwrap();
            fs::read_to_string(format!("/sys/block/{name}/queue/zoned")).is_ok_and(|z| z.trim() == "host-managed")
        };
        Self(named.iter().find(zoned).unwrap().clone())
    }
}

impl Drop for Zoned {
    fn drop(&mut self) {
        let config = Path::new(Self::CONFIG);
        let _ = fs::write(config.join("power"), "0");
        let _ = fs::remove_dir(config);
    }
}

/// What is appended to a zone is told where the device put it.
pub(crate) fn zones() {
    let disk = Zoned::new();
    let mkfs = ["mkfs.btrfs", "-q", "-f", "-O", "zoned", "-d", "single", "-m", "single"];
    let mount = Mounted::over_paths(&[&disk.0], &mkfs, "defaults");
    let written = stamps_are_found("btrfs on zones", mount.path(), &[&disk.0]);
    let kinds: HashSet<&str> = written.bios.iter().map(|b| &*b.op).collect();
    assert!(kinds.contains("zone_append"), "{kinds:?}");
}
