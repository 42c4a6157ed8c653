//! A replay begins with the page cache as it was, or as wanted: the target's disk tells.

use std::{fs, path::Path};

use ioreel_traces::rows::Block;
use serde_json::Value;

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
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

pub(crate) fn as_it_was() {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir(&work).unwrap();
    for name in ["cold", "warm"] {
        fs::write(work.join(name), vec![b'x'; FILE_BYTES as usize]).unwrap();
    }
    origin.go_cold();
    let work = origin.path().join("work");
    fs::read(work.join("warm")).unwrap();
    let both = format!("cat {0}/cold {0}/warm {0}/cold >/dev/null", text(&work));
    let reel = out.path().join("cached.reel");
    succeed(&mut record(&reel, &["--cache"], &["sh", "-c", &both]));
    let (resident, read, warnings) = replay(&reel, &work, &["--cache", "recorded"]);
    assert!(warnings.is_empty(), "{warnings:?}");
    // The kernel may have let go of some: where DAMON reclaims what was not used for a while, 33 pages were seen to be gone.
    assert!((FILE_BYTES - FILE_BYTES / 8..=FILE_BYTES).contains(&resident), "{resident}");
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
