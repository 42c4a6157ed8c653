//! What a replay writes is as compressible as wanted, or as recorded: a compressing file system tells.

use std::{fs, path::Path, process::Command};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

/// Bytes in use on the file system at `path`, all written out.
fn used(path: &Path) -> i64 {
    succeed(Command::new("sync").args(["-f", text(path)]));
    let space = rustix::fs::statvfs(path).unwrap();
    ((space.f_blocks - space.f_bfree) * space.f_frsize) as i64
}

/// Bytes that a replay's files take on btrfs with compression.
fn taken(reel: &Path, work: &Path, options: &[&str]) -> i64 {
    let target = Mounted::with(Fs::Btrfs, DEFAULT_SIZE_BYTES, &[], "compress-force=zstd");
    let before = used(target.path());
    let words =
        ["replay", text(reel), "--target", text(target.path()), "--root", text(work), "--max-own-lateness", "1h"];
    succeed(&mut ioreel(words.iter().chain(options)));
    used(target.path()) - before
}

pub(crate) fn compresses_as_it_did() {
    const LENGTH: i64 = 32 << 20;
    let out = temp_dir();
    let work = out.path().join("work");
    fs::create_dir(&work).unwrap();
    // Three quarters of it are zeros.
    let script = "import os
with open('data', 'wb') as f:
    for i in range(256): f.write(b''.join(os.urandom(1024) + bytes(3072) for _ in range(32)))";
    let reel = out.path().join("written.reel");
    succeed(record(&reel, &["--content", "hash"], &["python3", "-c", script]).current_dir(&work));
    assert_valid(&reel);
    let within = |what: &str, share: f64, bytes: i64| {
        let found = bytes as f64 / LENGTH as f64;
        assert!((found - share).abs() < 0.08, "{what}: {share} of its length wanted, {found} found");
    };
    within("as recorded", 0.25, taken(&reel, &work, &[]));
    within("half", 0.5, taken(&reel, &work, &["--compressibility", "0.5"]));
    within("not at all", 1.0, taken(&reel, &work, &["--compressibility", "0"]));
    within("checked", 0.4, taken(&reel, &work, &["--compressibility", "0.6", "--verify"]));
}
