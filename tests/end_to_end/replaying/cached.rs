//! A replay begins with the page cache as it was, or as wanted: the target's disk tells.

use std::{
    fs::{self, File},
    path::Path,
    ptr,
};

use ioreel_traces::rows::Block;
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use serde_json::Value;

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, run, succeed, temp_dir, text,
};

/// Length of each of two files.
const FILE_BYTES: i64 = 4 << 20;

/// What a replay with this start says was cached, what its disk read, and its warnings.
fn replay(reel: &Path, work: &Path, start: &[&str]) -> (i64, i64, Vec<Value>) {
    let (target, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let result = out.path().join("result.reel");
    let words = ["replay", text(reel), "--target", text(target.path()), "--root", text(work), "-o", text(&result)];
    let output = run(&mut ioreel(words.iter().chain(start).chain(&["--json", "--max-own-lateness", "1h"])));
    assert!(output.status.success(), "{}", describe(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let requests: Vec<Block> = assert_valid(&result).read().unwrap();
    let read: i64 = requests.iter().filter(|r| r.op == "read").map(|r| r.len_bytes).sum();
    (report["cache"]["resident_bytes"].as_i64().unwrap(), read, report["warnings"].as_array().unwrap().clone())
}

/// A file whose pages stay in the page cache, until dropped: where DAMON reclaims what nobody used for half a second, a
/// quarter of one was gone before the recorder looked.
struct Locked(*mut std::ffi::c_void);

impl Locked {
    fn new(path: &Path) -> Self {
        let (file, len) = (File::open(path).unwrap(), FILE_BYTES as usize);
        // SAFETY: a new mapping at an address of the kernel's choice, never read through.
        unsafe {
            let at = mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap();
            mlock(at, len).unwrap();
            Self(at)
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length, and nothing points into it.
        unsafe { munmap(self.0, FILE_BYTES as usize) }.unwrap();
    }
}

pub(crate) fn as_it_was() {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir(&work).unwrap();
    for name in ["cold", "warm"] {
        fs::write(work.join(name), vec![b'x'; FILE_BYTES as usize]).unwrap();
    }
    go_cold_with(&["cold", "warm"].map(|name| work.join(name)));
    let warm = Locked::new(&work.join("warm"));
    let both = format!("cat {0}/cold {0}/warm {0}/cold >/dev/null", text(&work));
    let reel = out.path().join("cached.reel");
    succeed(&mut record(&reel, &["--cache"], &["sh", "-c", &both]));
    drop(warm);
    let (resident, read, warnings) = replay(&reel, &work, &["--cache", "recorded"]);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(resident, FILE_BYTES);
    // One file, and a little of what the file system needs.
    assert!((FILE_BYTES..FILE_BYTES + FILE_BYTES / 4).contains(&read), "{read} bytes read");
    let (resident, read, _) = replay(&reel, &work, &["--cache", "cold"]);
    assert!(resident == 0 && read >= 2 * FILE_BYTES, "{resident} {read}");
    let (resident, read, _) = replay(&reel, &work, &["--cache", "warm"]);
    assert!(resident == 2 * FILE_BYTES && read < FILE_BYTES / 4, "{resident} {read}");

    let plain = out.path().join("plain.reel");
    succeed(&mut record(&plain, &[], &["sh", "-c", &both]));
    let (resident, read, warnings) = replay(&plain, &work, &["--cache", "recorded"]);
    assert!(resident == 0 && read >= 2 * FILE_BYTES, "{resident} {read}");
    assert!(warnings.iter().any(|w| w.as_str().unwrap().contains("record with --cache")), "{warnings:?}");
}
