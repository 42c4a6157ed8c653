//! Files that lay in pieces lie in pieces again, on a fresh file system.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::FallocateFlags;

use ioreel_traces::{
    fiemap::{self, Extent, UNWRITTEN},
    rows,
};

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    one_line, record, run, succeed, temp_dir, text,
};

/// Pieces that a file is made of.
const PIECES: u64 = 300;
const PIECE_BYTES: u64 = 16 << 10;
/// A file with holes.
const ISLANDS: u64 = 40;
const ISLAND_BYTES: usize = 8 << 10;

fn synced(path: &Path) -> File {
    OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_SYNC).open(path).unwrap()
}

/// A file in pieces, in a file system that has no other room left than these.
fn many_of_the_room(dir: &Path) {
    drop(synced(&dir.join("ballast")));
    let open = || File::options().write(true).open(dir.join("ballast")).unwrap();
    let (mut at, mut before) = (0, u64::MAX);
    // All there is: the last steps are single blocks, and what comes free with the journal, or was kept for a file
    // while it was open, is taken too.
    while at != before {
        before = at;
        let ballast = open();
        let mut step = 16 << 20;
        while step >= 4096 {
            match rustix::fs::fallocate(&ballast, FallocateFlags::empty(), at, step) {
                Ok(()) => at += step,
                Err(_) => step /= 2,
            }
        }
        rustix::fs::syncfs(&ballast).unwrap();
    }
    let ballast = open();
    // A few more than are needed, for the file system's own; of different sizes, so that these can be compared.
    for i in 0..PIECES + 40 {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&ballast, flags, (1 + i) * (64 << 10), PIECE_BYTES + i % 3 * 4096).unwrap();
    }
    // What was freed can be had once the journal says so.
    rustix::fs::syncfs(&ballast).unwrap();
    let many = OpenOptions::new().write(true).create_new(true).open(dir.join("many")).unwrap();
    many.write_all_at(&vec![b'm'; (PIECES * PIECE_BYTES) as usize], 0).unwrap();
    many.sync_all().unwrap();
}

/// The same by two files that grow in turn, each write on the disk before the next.
fn many_in_turn(dir: &Path) {
    let (many, other) = (synced(&dir.join("many")), synced(&dir.join("other")));
    for i in 0..PIECES {
        // XFS would reserve more than is written, the longer the file the more.
        rustix::fs::fallocate(&many, FallocateFlags::empty(), i * PIECE_BYTES, PIECE_BYTES).unwrap();
        rustix::fs::fallocate(&other, FallocateFlags::empty(), i * 4096, 4096).unwrap();
        many.write_all_at(&vec![b'm'; PIECE_BYTES as usize], i * PIECE_BYTES).unwrap();
        other.write_all_at(&[b'o'; 4096], i * 4096).unwrap();
    }
}

/// Files of known layouts.
fn make(dir: &Path, fs: Fs) {
    let islands = synced(&dir.join("islands"));
    for i in 0..ISLANDS {
        islands.write_all_at(&vec![b'i'; ISLAND_BYTES], i * (64 << 10)).unwrap();
    }
    islands.set_len(ISLANDS * (64 << 10)).unwrap();
    let reserved = synced(&dir.join("reserved"));
    rustix::fs::fallocate(&reserved, FallocateFlags::empty(), 0, 4 << 20).unwrap();
    reserved.write_all_at(&vec![b'r'; 1 << 20], 0).unwrap();
    let whole = synced(&dir.join("whole"));
    whole.write_all_at(&vec![b'w'; 8 << 20], 0).unwrap();
    fs::write(dir.join("short"), "one line").unwrap();
    drop((islands, reserved, whole));
    match fs {
        Fs::Ext4 => many_of_the_room(dir),
        _ => many_in_turn(dir),
    }
}

fn extents(path: &Path) -> Vec<Extent> {
    fiemap::extents(File::open(path).unwrap(), true, usize::MAX).unwrap()
}

fn lengths(extents: &[Extent]) -> Vec<(i64, bool)> {
    extents.iter().map(|e| (e.len_bytes, e.flags & UNWRITTEN != 0)).collect()
}

/// Recorded on one kind of file system, prepared on the same or another.
pub(crate) fn pieces_and_holes(fs: Fs, to: Fs) {
    let (origin, target, out) =
        (Mounted::new(fs, DEFAULT_SIZE_BYTES), Mounted::new(to, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir(&work).unwrap();
    if fs == Fs::Ext4 {
        // What it keeps for its own distress is room that data written back may have, too.
        let device = text(origin.device().unwrap()).trim_start_matches("/dev/");
        fs::write(format!("/sys/fs/ext4/{device}/reserved_clusters"), "64").unwrap();
    }
    make(&work, fs);
    let names = ["many", "islands", "reserved", "whole", "short"];
    let before: Vec<Vec<Extent>> = names.iter().map(|n| extents(&work.join(n))).collect();
    assert!(before[0].len() as u64 > PIECES / 3, "{before:?}");

    // By a snapshot, and by what the workload reads: the same.
    let reel = out.path().join("read.reel");
    let files: Vec<String> = names.iter().map(|n| text(&work.join(n)).to_owned()).collect();
    let command: Vec<&str> = ["cat"].into_iter().chain(files.iter().map(String::as_str)).collect();
    for more in [&["--extents"][..], &["--extents", "--no-snapshot"]] {
        let _ = fs::remove_dir_all(&reel);
        succeed(record(&reel, &[more, &["--settle", "none"]].concat(), &command).current_dir(&work));
        let rows: Vec<rows::Extent> = assert_valid(&reel).read().unwrap();
        for (name, before) in names.iter().zip(&before) {
            let path = text(&work.join(name)).to_owned();
            let of: Vec<Extent> = rows
                .iter()
                .filter(|r| *r.path == *path)
                .map(|r| Extent {
                    offset_bytes: r.offset_bytes,
                    len_bytes: r.len_bytes,
                    physical_bytes: r.physical_bytes,
                    flags: r.flags,
                })
                .collect();
            assert_eq!(of, *before, "{name} {more:?}");
        }
    }

    let words = ["replay", text(&reel), "--target", text(target.path()), "--root", text(&work), "--layout", "--verify"];
    let output = run(ioreel(words).args(["--json", "--max-own-lateness", "1h"]));
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", describe(&output)));
    assert_eq!(report["verdict"]["faithful"], true, "{:#}", report["verdict"]);
    let made: Vec<Vec<Extent>> =
        names.iter().zip(&files).map(|(_, f)| extents(&target.path().join(f.trim_start_matches('/')))).collect();
    let sum = |all: &[Vec<Extent>]| all.iter().map(|e| e.len() as i64).sum::<i64>();
    let told = |what: &str| report["layout"][what].as_i64().unwrap();
    assert_eq!((told("recorded_extents"), told("made_extents")), (sum(&before), sum(&made)), "{:#}", report["layout"]);
    assert_eq!((told("files"), told("untold")), (names.len() as i64, 0));
    for ((name, before), made) in names.iter().zip(&before).zip(&made) {
        if fs == to && matches!(fs, Fs::Ext4 | Fs::Xfs) {
            // One more or less: where a free stretch of the disk ends, so does a piece.
            let more = lengths(made).len().abs_diff(before.len());
            assert!(more <= 1, "{name}: {} before, {} made", before.len(), made.len());
            if more == 0 {
                assert_eq!(lengths(made), lengths(before), "{name}");
            }
        } else {
            let near = before.len().div_ceil(5).max(1);
            assert!(made.len().abs_diff(before.len()) <= near, "{name}: {} before, {} made", before.len(), made.len());
        }
        let holes =
            |all: &[Extent]| all.windows(2).filter(|w| w[0].offset_bytes + w[0].len_bytes < w[1].offset_bytes).count();
        assert_eq!(holes(made), holes(before), "{name}");
    }

    // A reel that does not know says so.
    let other = out.path().join("other.reel");
    succeed(record(&other, &["--settle", "none"], &["true"]).current_dir(&work));
    let empty = temp_dir();
    let line = one_line(&mut ioreel(["replay", text(&other), "--target", text(empty.path()), "--layout"]), 1);
    assert!(line.contains("--extents"), "{line}");
}
