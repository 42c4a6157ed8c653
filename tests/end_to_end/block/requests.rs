//! How requests end: sorted and merged by a scheduler, refused by the disk, before the flush that their bios wait for. Where
//! kernels differ in that: in the guests of `make test-kernels`, whose disks nobody else uses.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::rows::{Bio, Block, block_flags};

use crate::{
    attribution::number,
    harness::{
        assert_valid,
        device::Device,
        mount::{DEFAULT_SIZE_BYTES, Mounted},
        record, succeed, temp_dir, text, wait_for,
    },
};

struct Recorded {
    requests: HashMap<i64, Block>,
    bios: Vec<Bio>,
}

impl Recorded {
    /// What a shell's script made this disk do.
    fn new(disk: &Path, script: &str) -> Self {
        let out = temp_dir();
        let path = out.path().join("r.reel");
        succeed(&mut record(&path, &["--no-snapshot", "--device", text(disk)], &["sh", "-c", script]));
        let reel = assert_valid(&path);
        let requests: Vec<Block> = reel.read().unwrap();
        let mut bios: Vec<Bio> = reel.read().unwrap();
        bios.retain(|b| b.dev == number(disk));
        Self { requests: requests.into_iter().map(|r| (r.rq_id, r)).collect(), bios }
    }

    /// The request that carried a bio.
    fn of(&self, bio: &Bio) -> &Block {
        bio.rq_id.and_then(|id| self.requests.get(&id)).unwrap_or_else(|| panic!("no request: {bio:?}"))
    }
}

fn sorted_by(disk: &Path, scheduler: &str) {
    // Whether it is a module is the kernel's choice.
    let _ = Command::new("modprobe").args(["-q", scheduler]).status();
    let name = disk.file_name().unwrap().to_str().unwrap();
    fs::write(format!("/sys/block/{name}/queue/scheduler"), scheduler).unwrap();
}

/// With a scheduler as without, all bios end, with their requests; a merged request was queued when its first bio was.
pub(crate) fn sorted_and_merged() {
    const BLOCKS: usize = 2000;
    let disks = std::env::var("IOREEL_TEST_DISKS").unwrap();
    let disk = Path::new(disks.split_whitespace().next().unwrap());
    let (name, written) = (text(disk), BLOCKS * 4096);
    for scheduler in ["none", "mq-deadline"] {
        sorted_by(disk, scheduler);
        let r = Recorded::new(
            disk,
            &format!(
                "dd if=/dev/zero of={name} bs=4k count={BLOCKS} conv=fsync status=none
                 dd if={name} of=/dev/null bs=64k count=100 iflag=direct status=none"
            ),
        );
        let mut earliest: HashMap<i64, i64> = HashMap::new();
        for b in r.bios.iter().filter(|b| b.len_bytes != 0) {
            let request = r.of(b);
            assert_eq!(b.complete_ns, request.complete_ns, "{scheduler}: {b:?} {request:?}");
            assert!(b.complete_ns.is_some(), "{scheduler}: {b:?}");
            let queue_ns = earliest.entry(request.rq_id).or_insert(b.queue_ns);
            *queue_ns = b.queue_ns.min(*queue_ns);
        }
        let bytes = |op: &str| r.bios.iter().filter(|b| b.op == op).map(|b| b.len_bytes as usize).sum::<usize>();
        assert_eq!(bytes("write"), written, "{scheduler}");
        assert!(bytes("read") >= 100 << 16, "{scheduler}");
        assert!(r.requests.values().any(|r| r.bios > Some(16)), "{scheduler}: nothing was merged");
        for (id, queue_ns) in earliest {
            let request = &r.requests[&id];
            assert_eq!(request.queue_ns, Some(queue_ns), "{scheduler}: {request:?}");
        }
    }
}

/// A disk of SCSI's, which the driver asks in vain and then again, or gives up; gone with its owner.
struct Failing(PathBuf);

impl Failing {
    /// Reads of ten sectors from here fail.
    const FROM_SECTOR: i64 = 0x1234;

    fn new() -> Self {
        // No udev loads what makes a disk of it.
        succeed(Command::new("modprobe").arg("sd_mod"));
        succeed(Command::new("modprobe").args(["scsi_debug", "dev_size_mb=64", "opts=2"]));
        let disks = || fs::read_dir("/sys/block").unwrap().map(|e| e.unwrap().path());
        let is_it =
            |disk: &Path| fs::read_to_string(disk.join("device/model")).is_ok_and(|m| m.starts_with("scsi_debug"));
        let found = wait_for("scsi_debug's disk", || disks().find(|d| is_it(d)));
        let path = Path::new("/dev").join(found.file_name().unwrap());
        wait_for("its node", || path.exists().then_some(()));
        Self(path)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = Command::new("rmmod").arg("scsi_debug").status();
    }
}

/// One that the disk refuses is one row with its error, and its bio's. That nothing of it was done is told before: no end.
pub(crate) fn refused() {
    let disk = Failing::new();
    let name = text(&disk.0);
    for scheduler in ["none", "mq-deadline"] {
        sorted_by(&disk.0, scheduler);
        // The fourth is the one that fails.
        let script = format!(
            "for at in 10 20 30 36 40; do dd if={name} of=/dev/null bs=64k iflag=direct skip=$at count=1 status=none; done; true"
        );
        let r = Recorded::new(&disk.0, &script);
        let reads: Vec<&Bio> = r.bios.iter().filter(|b| b.op == "read" && b.len_bytes == 1 << 16).collect();
        assert_eq!(reads.len(), 5, "{scheduler}: {reads:#?}");
        for b in reads {
            let request = r.of(b);
            let failed = (b.sector..b.sector + b.len_bytes / 512).contains(&Failing::FROM_SECTOR);
            assert_eq!(
                (b.error, request.error),
                (Some(expected(failed)), expected(failed)),
                "{scheduler}: {request:?}"
            );
            assert_eq!((request.len_bytes, request.bios), (b.len_bytes, Some(1)), "{scheduler}");
            assert!(b.complete_ns.is_some() && b.complete_ns == request.complete_ns, "{scheduler}: {b:?} {request:?}");
        }
        let whole = |r: &&Block| r.op == "read" && r.len_bytes == 1 << 16;
        assert_eq!(r.requests.values().filter(whole).count(), 5, "{scheduler}");
    }
}

/// What the kernel makes of a medium error.
fn expected(failed: bool) -> i32 {
    if failed { libc::ENODATA } else { 0 }
}

/// A disk without forced unit access (FUA) writes, and is flushed then: that is when such a bio has ended.
pub(crate) fn before_a_flush() {
    let device = Device::looped(DEFAULT_SIZE_BYTES);
    let mkfs = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let mount = Mounted::over(&[&device], &mkfs, "defaults");
    let file = mount.path().join("f");
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of={} bs=4k count=1 seek=$i conv=notrunc,fsync status=none; done",
        text(&file)
    );
    let r = Recorded::new(device.whole(), &script);
    let forced = |b: &&Bio| b.flags & block_flags::FUA != 0 && b.op == "write" && b.len_bytes != 0;
    let commits: Vec<&Bio> = r.bios.iter().filter(forced).collect();
    assert!(commits.len() >= 10, "{} commits of the journal", commits.len());
    let early: Vec<&&Bio> = commits.iter().filter(|b| b.complete_ns <= r.of(b).complete_ns).collect();
    assert!(early.is_empty(), "{} of {} ended with their requests: {early:#?}", early.len(), commits.len());
}
