//! Commits of journals and logs, against the counters of the file systems themselves.

use std::{collections::BTreeMap, fs, path::PathBuf};

use ioreel_traces::rows::{Commit, Op, Wait};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

/// Records a shell script in a mounted file system; returns the commits, operations and waits.
fn commits_of(mounted: &Mounted, script: &str) -> (Vec<Commit>, Vec<Op>, Vec<Wait>) {
    let out = temp_dir();
    let path = out.path().join("commits.reel");
    let script = format!("cd {}; {script}", text(mounted.path()));
    succeed(&mut record(&path, &["--waits", "--waits-min", "0ns", "--no-snapshot"], &["sh", "-c", &script]));
    let reel = assert_valid(&path);
    let mount = reel.manifest.mounts.iter().find(|m| m.mountpoint == text(mounted.path())).unwrap();
    let mut commits = reel.read::<Commit>().unwrap();
    commits.retain(|c| c.sb_dev == mount.sb_dev);
    assert!(!commits.is_empty());
    (commits, reel.read::<Op>().unwrap(), reel.read::<Wait>().unwrap())
}

fn device_name(mounted: &Mounted) -> String {
    mounted.device().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

/// The number before a word in a text of the kernel.
fn before(told: &str, word: &str) -> i64 {
    let words: Vec<&str> = told.split_whitespace().collect();
    let at = words.iter().position(|w| *w == word).unwrap_or_else(|| panic!("no {word} in {told}"));
    words[at - 1].parse().unwrap()
}

const SYNCS: &str =
    "for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of=f$i bs=64k count=4 conv=fsync status=none; done";

/// jbd2: as many rows as transactions, with phases in order; each sync that waited for the journal overlaps one.
pub(crate) fn of_jbd2() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let info = format!("/proc/fs/jbd2/{}-8/info", device_name(&mounted));
    let transactions = || before(&fs::read_to_string(&info).unwrap(), "transactions");
    let first = transactions();
    let (commits, ops, waits) = commits_of(&mounted, SYNCS);
    let made = transactions() - first;
    let found: Vec<&Commit> = commits.iter().filter(|c| c.kind == *"commit").collect();
    // One may be in progress when the recording begins, and one may come after its end.
    assert!((made - 2..=made).contains(&(found.len() as i64)) && found.len() >= 10, "{made}: {found:?}");
    let mut last = None;
    for c in &found {
        assert!(last.is_none_or(|last| c.transaction == Some(last + 1)), "{found:?}");
        last = c.transaction;
        let phases = [c.start_ns, c.locking_ns, c.flushing_ns, c.logging_ns, Some(c.end_ns)];
        assert!(phases.iter().all(Option::is_some) && phases.is_sorted(), "{c:?}");
        assert!(c.len_bytes.is_some_and(|n| n > 0 && n % 4096 == 0) && c.handles > Some(0), "{c:?}");
        assert!(c.blocks.zip(c.len_bytes).is_some_and(|(blocks, bytes)| blocks * 4096 <= bytes), "{c:?}");
        assert!(c.comm.as_deref().is_some_and(|comm| comm.starts_with("jbd2/")) && c.task_id.is_none(), "{c:?}");
    }
    let waited = |op: &&Op| {
        waits.iter().any(|w| (w.task_id, w.op_start_ns) == (op.task_id, op.start_ns) && w.reason == *"journal")
    };
    let syncs: Vec<&Op> = ops.iter().filter(|o| o.op == *"fsync").filter(waited).collect();
    assert!(syncs.len() >= 5, "{}", syncs.len());
    for op in syncs {
        let on = |c: &&&Commit| c.end_ns >= op.start_ns && c.start_ns.unwrap() <= op.start_ns + op.dur_ns;
        assert!(found.iter().any(|c| on(&c)), "{op:?}: {found:?}");
    }
}

/// A journal that is too small for the changes is checkpointed.
pub(crate) fn of_a_small_journal() {
    let mounted = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, &["-J", "size=4", "-i", "4096"], "defaults");
    let script = "for d in $(seq 300); do mkdir d$d; (cd d$d && touch $(seq 60)); done";
    let (commits, ..) = commits_of(&mounted, script);
    let points: Vec<&Commit> = commits.iter().filter(|c| c.kind == *"checkpoint").collect();
    assert!(!points.is_empty(), "{commits:?}");
    for c in points {
        assert!(c.blocks > Some(0) && c.start_ns.is_some() && c.transaction.is_some(), "{c:?}");
    }
}

/// ext4's fast commits.
pub(crate) fn of_fast_commits() {
    let mounted = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, &["-O", "fast_commit"], "defaults");
    let info = format!("/proc/fs/ext4/{}/fc_info", device_name(&mounted));
    let Ok(told) = fs::read_to_string(&info) else {
        eprintln!("{info}: this kernel has no fast commits");
        return;
    };
    let first = before(&told, "commits");
    let script = "dd if=/dev/zero of=f bs=4k count=1 conv=fsync status=none; \
                  for i in $(seq 12); do dd if=/dev/zero of=f bs=4k count=1 seek=$i conv=notrunc,fsync status=none; done";
    let (commits, ..) = commits_of(&mounted, script);
    let made = before(&fs::read_to_string(&info).unwrap(), "commits") - first;
    let found: Vec<&Commit> = commits.iter().filter(|c| c.kind == *"fast_commit").collect();
    assert!(made > 0 && found.len() as i64 == made, "{made}: {commits:?}");
    assert!(found.iter().all(|c| c.start_ns.is_some() && c.blocks.is_some() && c.comm.is_some()), "{found:?}");
}

/// XFS: as many rows as the log was written, with as many bytes.
pub(crate) fn of_xfs() {
    let mounted = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
    let stats = format!("/sys/fs/xfs/{}/stats/stats", device_name(&mounted));
    // log: writes, blocks of 512 bytes, ...
    let log = || -> (i64, i64) {
        let told = fs::read_to_string(&stats).unwrap();
        let line = told.lines().find_map(|l| l.strip_prefix("log ")).unwrap();
        let numbers: Vec<i64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    };
    let first = log();
    let (commits, ..) = commits_of(&mounted, SYNCS);
    let last = log();
    assert!(commits.iter().all(|c| c.kind == *"log_write" && c.transaction > Some(0)), "{commits:?}");
    let made = last.0 - first.0;
    // The log's worker may write it once more before or after the recording.
    assert!((made - 2..=made).contains(&(commits.len() as i64)) && commits.len() >= 10, "{made}: {commits:?}");
    let blocks: i64 = commits.iter().map(|c| (c.len_bytes.unwrap() + 511) / 512).sum();
    let others = made - commits.len() as i64;
    let of_others = last.1 - first.1 - blocks;
    assert!(of_others >= 0 && (others > 0 || of_others == 0) && of_others <= others * 512, "{of_others}: {commits:?}");
}

/// btrfs: each transaction once.
pub(crate) fn of_btrfs() {
    let mounted = Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES);
    let stats: Vec<PathBuf> = fs::read_dir("/sys/fs/btrfs")
        .unwrap()
        .flatten()
        .map(|f| f.path())
        .filter(|f| f.join("devices").join(device_name(&mounted)).exists())
        .map(|f| f.join("commit_stats"))
        .collect();
    let [stats] = stats.as_slice() else { panic!("{stats:?}") };
    let made = || {
        let told = fs::read_to_string(stats).unwrap();
        told.lines().find_map(|l| l.strip_prefix("commits ")).unwrap().trim().parse::<i64>().unwrap()
    };
    let first = made();
    let (commits, ..) = commits_of(&mounted, "for i in 1 2 3 4 5 6; do echo $i > f$i; sync -f .; done");
    let made = made() - first;
    assert!((made - 2..=made).contains(&(commits.len() as i64)) && commits.len() >= 6, "{made}: {commits:?}");
    let by_number: BTreeMap<Option<i64>, &Commit> = commits.iter().map(|c| (c.transaction, c)).collect();
    assert_eq!(by_number.len(), commits.len(), "{commits:?}");
    assert!(commits.iter().any(|c| c.comm.as_deref() == Some("sync") && c.task_id.is_some()), "{commits:?}");
}
