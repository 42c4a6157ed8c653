//! Bios replayed on another disk, seen by the recorder's own probes: the same places are read, written and discarded as often.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use ioreel_traces::rows::{Bio, block_flags};

use crate::harness::{
    assert_valid,
    device::Device,
    ioreel,
    mount::{Fs, Mounted},
    one_line, record, run, succeed, temp_dir, text,
};

const SIZE_BYTES: u64 = 400 << 20;

/// How often each 512-byte sector was touched, by kind; flushes and bios that force unit access by their number.
fn touched<'a>(bios: impl Iterator<Item = &'a Bio>) -> BTreeMap<(String, i64), i64> {
    let mut out = BTreeMap::new();
    // What would have to wait is refused to io_uring (EAGAIN) and asked again by a worker of its own. A bio whose end no
    // probe saw was asked for like the others, and is replayed.
    for b in bios.filter(|b| b.error.unwrap_or(0) == 0) {
        let sectors = (b.len_bytes + 511) / 512;
        if b.flags & block_flags::PREFLUSH != 0 || b.op == *"flush" {
            *out.entry(("flush".into(), 0)).or_default() += 1;
        }
        if b.flags & block_flags::FUA != 0 {
            *out.entry(("fua".into(), 0)).or_default() += sectors;
        }
        for sector in (0..sectors).map(|i| b.sector + i).filter(|s| *s >= 0) {
            *out.entry((b.op.to_string(), sector)).or_default() += 1;
        }
    }
    out
}

fn of_device(reel: &Path, device: &Device) -> Vec<Bio> {
    let dev = crate::block::attribution::number(device.whole());
    assert_valid(reel).read::<Bio>().unwrap().into_iter().filter(|b| b.dev == dev).collect()
}

/// Everything a file system does: data, journal, flushes, discards, direct I/O.
pub(crate) fn the_same_places(fs: Fs) {
    let (mount, disk, dir) = (Mounted::new(fs, SIZE_BYTES), Device::looped(SIZE_BYTES), temp_dir());
    let (original, seen) = (dir.path().join("original.reel"), dir.path().join("seen.reel"));
    let work = format!(
        "cd {}; mkdir d; for i in 1 2 3 4 5 6 7 8; do head -c 300000 /dev/urandom > d/$i; sync d/$i; done; \
         dd if=/dev/zero of=big bs=1M count=8 oflag=direct 2>&1; rm -r d; fstrim . || true; dd if=big of=/dev/null bs=64k iflag=direct 2>&1",
        text(mount.path())
    );
    succeed(&mut record(&original, &[], &["sh", "-c", &work]));
    let source = mount.device_below().file_name().unwrap().to_str().unwrap().to_owned();
    for pace in ["max", "original"] {
        let _ = fs::remove_dir_all(&seen);
        let program = ioreel(["replay"]).get_program().to_str().unwrap().to_owned();
        let words = [
            &[program.as_str(), "replay", text(&original), "--layer", "block", "--device", text(disk.path())][..],
            &["--source", &source, "--allow-writes", "--pace", pace, "--max-own-lateness", "1s"],
        ]
        .concat();
        succeed(&mut record(&seen, &["--block-only", "--device", text(disk.path())], &words));
        let asked = assert_valid(&original).read::<Bio>().unwrap();
        let dev = crate::block::attribution::number(mount.device_below());
        let want = touched(asked.iter().filter(|b| b.dev == dev));
        let got = touched(of_device(&seen, &disk).iter());
        assert!(want.keys().any(|(op, _)| op == "write") && want.keys().any(|(op, _)| op == "flush"), "{}", fs.name());
        let differ: Vec<_> =
            want.iter().filter(|(k, n)| got.get(*k) != Some(n)).map(|(k, n)| (k, n, got.get(k))).take(5).collect();
        let more: Vec<_> = got.iter().filter(|(k, _)| !want.contains_key(*k)).take(5).collect();
        assert!(differ.is_empty() && more.is_empty(), "{} {pace}: {differ:?} {more:?}", fs.name());
    }
}

/// What is mounted is never written to, and a device is only read unless leave was given.
pub(crate) fn what_is_in_use_is_left_alone() {
    let (mount, dir) = (Mounted::new(Fs::Ext4, SIZE_BYTES), temp_dir());
    let reel = dir.path().join("r.reel");
    succeed(&mut record(
        &reel,
        &[],
        &["sh", "-c", &format!("echo x > {0}/f; sync {0}/f; cat {0}/f", text(mount.path()))],
    ));
    let device = mount.device_below().to_owned();
    let words = |more: &[&str]| {
        let source = device.file_name().unwrap().to_str().unwrap();
        let mut c = ioreel(["replay", text(&reel), "--layer", "block", "--source", source, "--device", text(&device)]);
        c.args(more);
        c
    };
    let why = one_line(&mut words(&["--allow-writes"]), 1);
    assert!(why.contains("in use") && why.contains("unmount"), "{why}");
    // Another test may have emptied the page cache: then there are reads, and they alone are done.
    let out = run(&mut words(&[]));
    let told = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(matches!(out.status.code(), Some(0 | 1)) && told.contains("--allow-writes"), "{told}");
    let disk = Device::looped(SIZE_BYTES);
    let before = succeed(Command::new("sha256sum").arg(disk.path())).stdout;
    let out = run(&mut ioreel([
        "replay",
        text(&reel),
        "--layer",
        "block",
        "--dry-run",
        "--allow-writes",
        "--device",
        text(disk.path()),
    ]));
    assert!(out.status.code().is_some_and(|c| c != 2));
    assert_eq!(succeed(Command::new("sha256sum").arg(disk.path())).stdout, before);
}
