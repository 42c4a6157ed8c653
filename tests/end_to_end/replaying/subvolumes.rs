//! Subvolumes and snapshots of btrfs: replayed on btrfs they are there again, elsewhere the verdict says what is not.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, run, same_tree, succeed, temp_dir, text,
};

/// Inode number of the root of a subvolume (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT_INODE: u64 = 256;
/// Wrong results, wrong tree, left-out work.
const SAYS_SO: i32 = 4 | 8 | 16;
const TIMING: i32 = 32;

/// Files in a subvolume before and after snapshots of it, changes in these, a nested subvolume, and removals.
const WORK: &str = "btrfs subvolume create a; mkdir a/d; echo one >a/f; echo two >a/d/g; ln a/f a/d/hard; ln -s f a/soft; chmod 640 a/f; chown 5:6 a/d; \
    python3 -c \"import os; os.setxattr('a/f','user.x',b'1'); os.setxattr('a/soft'[:1],'user.top',b'2')\"; truncate -s 100000 a/sparse; \
    btrfs subvolume create a/inner; echo in >a/inner/i; \
    btrfs subvolume snapshot a b; echo more >>a/f; rm a/d/g; mv a/d a/moved; echo new >a/new; \
    cat b/f b/d/g; echo own >>b/d/hard; chmod 700 b/d/g; mv b/soft b/d/; ln b/d/g b/h; \
    btrfs subvolume snapshot -r a ro; echo x >ro/f; echo late >a/late; rm a/f; \
    btrfs subvolume snapshot b c; echo c >c/c; btrfs subvolume create gone; mkdir -p gone/x/y; echo z >gone/x/y/z; \
    btrfs subvolume delete gone; btrfs subvolume snapshot c e; btrfs subvolume delete c; mkdir c; mv b renamed; mkdir renamed/z; \
    btrfs subvolume snapshot had from-before; echo h >had/later; rm from-before/old; ls -lR .";

/// A tree with a subvolume that the workload finds there.
fn prepared(origin: &Path) -> PathBuf {
    let work = origin.join("here/work");
    fs::create_dir_all(&work).unwrap();
    succeed(Command::new("btrfs").args(["subvolume", "create", text(&work.join("had"))]));
    fs::write(work.join("had/old"), "old").unwrap();
    fs::create_dir(work.join("had/dir")).unwrap();
    fs::write(work.join("had/dir/kept"), vec![b'k'; 5000]).unwrap();
    work
}

/// The subvolumes below a directory, and whether they are read-only.
fn subvolumes(top: &Path) -> BTreeMap<PathBuf, bool> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(|e| e.unwrap()).filter(|e| e.file_type().unwrap().is_dir()) {
            let path = entry.path();
            if fs::metadata(&path).unwrap().ino() == ROOT_INODE {
                let output = run(Command::new("btrfs").args(["property", "get", text(&path), "ro"]));
                let read_only = String::from_utf8_lossy(&output.stdout).contains("true");
                found.insert(path.strip_prefix(top).unwrap().to_owned(), read_only);
            }
            todo.push(path);
        }
    }
    found
}

/// Replays the reel; returns the exit status and the report.
fn replayed(reel: &Path, root: &Path, target: &Path, more: &[&str]) -> (i32, serde_json::Value) {
    let words = ["replay", text(reel), "--target", text(target), "--root", text(root), "--json"];
    let output = run(&mut ioreel(words.iter().chain(more)));
    let status = output.status.code().unwrap_or(-1);
    assert!(status >= 0 && status & 3 == 0, "{}", describe(&output));
    (status, serde_json::from_slice(&output.stdout).unwrap())
}

pub(crate) fn come_back_on_btrfs_and_are_named_elsewhere() {
    let (origin, out) = (Mounted::new(Fs::Btrfs, 512 << 20), temp_dir());
    let (work, reel) = (prepared(origin.path()), out.path().join("subvolumes.reel"));
    succeed(record(&reel, &["--settle", "none"], &["sh", "-c", WORK]).current_dir(&work));
    assert_valid(&reel);
    let expected = subvolumes(&work);
    assert_eq!(expected.values().filter(|ro| **ro).count(), 1, "{expected:?}");
    assert!(expected.len() >= 6, "{expected:?}");

    for more in [&[][..], &["--verify"]] {
        let target = Mounted::new(Fs::Btrfs, 512 << 20);
        let (status, report) = replayed(&reel, &work, target.path(), more);
        let verdict = &report["verdict"];
        let there = target.path().join(text(&work).trim_start_matches('/'));
        let differs = same_tree::differences(&work, &there, false);
        let said = format!("{}\n{:#}\n{:#}", verdict["sentence"], verdict["tree"], verdict["left_out"]);
        assert!(differs.is_empty(), "{}\n{said}", differs.join("\n"));
        assert_eq!(status & !TIMING, 0, "{said}");
        assert_eq!(subvolumes(&there), expected, "{said}");
    }
    for fs in [Fs::Ext4, Fs::Tmpfs] {
        let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
        let (status, report) = replayed(&reel, &work, target.path(), &[]);
        let there = target.path().join(text(&work).trim_start_matches('/'));
        let differs = same_tree::differences(&work, &there, false);
        let verdict = &report["verdict"];
        assert!(status & SAYS_SO != 0 && !differs.is_empty(), "{}: {}", fs.name(), verdict["sentence"]);
        assert!(verdict["left_out"].to_string().contains("snapshot"), "{:#}", verdict["left_out"]);
        assert!(report.to_string().contains("subvolumes are plain directories here"));
    }
}

/// Without snapshots, other file systems have the same tree, of plain directories.
pub(crate) fn are_directories_elsewhere() {
    let (origin, out) = (Mounted::new(Fs::Btrfs, 512 << 20), temp_dir());
    let (work, reel) = (prepared(origin.path()), out.path().join("plain.reel"));
    let script = "umask 027; btrfs subvolume create s; mkdir s/d; echo x >s/d/f; chmod 2755 s; btrfs subvolume create s/t; echo y >s/t/g; \
                  btrfs subvolume create gone; cp -a s/d gone/; ln -s ../s gone/l; btrfs subvolume delete gone; btrfs subvolume delete had; mv s moved";
    succeed(record(&reel, &["--settle", "none"], &["sh", "-c", script]).current_dir(&work));
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let target = Mounted::new(fs, 512 << 20);
        let (status, report) = replayed(&reel, &work, target.path(), &[]);
        let there = target.path().join(text(&work).trim_start_matches('/'));
        let differs = same_tree::differences(&work, &there, false);
        let verdict = &report["verdict"];
        assert!(differs.is_empty(), "{}: {}\n{}", fs.name(), differs.join("\n"), verdict["sentence"]);
        assert_eq!(status & !TIMING, 0, "{}: {} {:#}", fs.name(), verdict["sentence"], verdict["left_out"]);
    }
}
