//! Commands say the same of one reel: `diagnose` and `explain` of CPU time, locks and commits; `record` and `info` of totals.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeMap, path::Path, time::Duration};

use ioreel_analyze::{
    Summary,
    explain::{Actor, Choice, Moment, Story, What, explain},
    facts::Facts,
    findings::findings,
    summary::brief::Brief,
};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Kind, Span},
    rows::{Bio, Commit, File, Op, Task, Wait},
};

const MS: i64 = 1_000_000;
const S: i64 = 1000 * MS;
const FS: i64 = 8 << 20 | 1;
const O_DSYNC: i64 = 0o10000;

fn write(dir: &Path, fill: impl FnOnce(&mut ReelWriter)) -> Reel {
    let manifest = Manifest {
        span: Span { elapsed_ns: 10 * S, ..Span::default() },
        waits_min_ns: Some(0),
        ..Manifest::new(Kind::Synthetic, "test")
    };
    let path = dir.join("r.reel");
    // Small segments: a call may begin before the one that is written first.
    let options = WriterOptions { segment_rows: 4, segment_age: Duration::MAX };
    let mut w = ReelWriter::create(&path, &manifest, options).unwrap();
    fill(&mut w);
    w.close(manifest).unwrap();
    Reel::open(path).unwrap()
}

/// An operation of a thread from `from` to `to`, in ms.
fn op(task_id: i64, name: &str, (from, to): (i64, i64), off_cpu: i64) -> Op {
    Op {
        op_id: -1,
        task_id,
        op: name.into(),
        source: if name == "fault" { "fault".into() } else { "syscall".into() },
        state: "complete".into(),
        start_ns: from * MS,
        dur_ns: (to - from) * MS,
        off_cpu_ns: Some(off_cpu * MS),
        file: Some(1),
        ret: Some(0),
        ..Op::default()
    }
}

/// A wait in the operation of `of`, from `from` to `to`, in ms.
fn wait(of: &Op, reason: &str, (from, to): (i64, i64)) -> Wait {
    Wait {
        wait_id: -1,
        task_id: of.task_id,
        op: of.op.clone(),
        op_start_ns: of.start_ns,
        start_ns: from * MS,
        dur_ns: (to - from) * MS,
        reason: reason.into(),
        ..Wait::default()
    }
}

fn commit(kind: &str, start: Option<i64>, end_ns: i64) -> Commit {
    Commit {
        commit_id: -1,
        sb_dev: FS,
        kind: kind.into(),
        start_ns: start.map(|ms| ms * MS),
        end_ns,
        comm: Some("jbd2/vda1-8".into()),
        ..Commit::default()
    }
}

fn all(reel: &Reel) -> Vec<Story> {
    explain(reel, &Choice { slowest: 100, ..Choice::default() }).unwrap()
}

fn named(w: &mut ReelWriter) {
    for task_id in 0..3 {
        let comm = format!("t{task_id}").into();
        w.tasks
            .push(Task { task_id, pid: 10 + task_id as i32, tid: 10 + task_id as i32, comm, ..Task::default() })
            .unwrap();
    }
    for (file, sb_dev) in [(1, FS), (2, FS + 1), (3, FS)] {
        let path = Some(format!("/f{file}").into());
        w.files.push(File { file, sb_dev, kind: "regular".into(), path, ..File::default() }).unwrap();
    }
}

/// Each wait for a lock, and what its holder or its waker was doing.
fn blamed(stories: &[Story]) -> BTreeMap<(Option<String>, bool), u64> {
    let mut sums = BTreeMap::new();
    for Moment { what, .. } in stories.iter().flat_map(|s| &s.moments) {
        if let What::Wait { reason, waker, holder, .. } = what
            && matches!(reason.as_str(), "lock" | "inode_lock")
        {
            let of = |actor: &Option<Actor>| actor.as_ref().and_then(|a| a.op.clone());
            let (op, released) = if holder.is_some() { (of(holder), false) } else { (of(waker), true) };
            *sums.entry((op, released)).or_default() += 1;
        }
    }
    sums
}

#[test]
fn on_cpu_time_and_holders() {
    let dir = tempfile::tempdir().unwrap();
    let reel = write(dir.path(), |w| {
        named(w);
        let waiter = op(1, "read", (5, 400), 300);
        let short = op(1, "pread64", (500, 520), 20);
        let rows = [
            op(0, "write", (0, 100), 0),
            // A touch of a mapping in the call.
            op(0, "fault", (20, 30), 0),
            op(0, "fsync", (150, 160), 0),
            waiter.clone(),
            short.clone(),
            op(2, "read", (600, 601), 0),
        ];
        rows.into_iter().for_each(|row| w.ops.push(row).unwrap());
        let mut waits = vec![
            // Held in the call, in the touch, at the call's end, and outside calls.
            wait(&waiter, "inode_lock", (10, 19)),
            wait(&waiter, "inode_lock", (25, 29)),
            wait(&waiter, "lock", (100, 110)),
            wait(&waiter, "lock", (120, 130)),
        ];
        waits.iter_mut().for_each(|w| w.owner_task_id = Some(0));
        // Released in the sync, 5 ms before the thread was back on a CPU; a wait that is longer than its call.
        let released = Wait { waker_task_id: Some(0), run_queue_ns: 5 * MS, ..wait(&waiter, "lock", (130, 160)) };
        waits.extend([released, wait(&short, "device", (500, 540))]);
        waits.into_iter().for_each(|row| w.waits.push(row).unwrap());
    });
    let (facts, stories) = (Facts::of(&reel).unwrap(), all(&reel));
    let cpu_ns = |s: &Story| s.waited_ns.iter().flatten().filter(|r| r.reason == "cpu").map(|r| r.ns).sum::<i64>();
    assert_eq!(stories.iter().map(cpu_ns).sum::<i64>() as f64, facts.calls.parts.cpu_ns);
    for story in &stories {
        let sum: i64 = story.waited_ns.iter().flatten().map(|r| r.ns).sum();
        assert_eq!(sum, story.dur_ns, "{story:?}");
    }
    let mut holders = BTreeMap::new();
    for (key, held) in &facts.calls.holders {
        let op = key.op.map(|op| facts.calls.call_names[op].to_string());
        *holders.entry((op, key.released)).or_default() += held.count;
    }
    let of = |op: Option<&str>, released, count| ((op.map(str::to_owned), released), count);
    let want =
        [of(None, false, 2), of(Some("fault"), false, 1), of(Some("fsync"), true, 1), of(Some("write"), false, 1)];
    assert_eq!((blamed(&stories), holders), (BTreeMap::from(want.clone()), BTreeMap::from(want)));
}

#[test]
fn on_the_commits_that_syncs_rode_on() {
    let dir = tempfile::tempdir().unwrap();
    let late = 50_000;
    let reel = write(dir.path(), |w| {
        named(w);
        let open = Op { flags: Some(O_DSYNC), file: Some(3), ..op(2, "openat", (0, 1), 0) };
        let journal = op(0, "fsync", (100, 200), 90);
        let only_device = op(0, "fsync", (300, 400), 90);
        let synchronous = Op { file: Some(3), ..op(2, "pwrite64", (700, 800), 90) };
        // Not opened so: it waits for room in the journal.
        let plain = op(2, "pwrite64", (810, 880), 60);
        for row in [
            open,
            journal.clone(),
            only_device.clone(),
            // Its waits were not kept; it did not leave its CPU.
            op(0, "fdatasync", (500, 600), 50),
            op(0, "fsync", (610, 650), 0),
            synchronous.clone(),
            plain.clone(),
            // On another file system.
            Op { file: Some(2), ..op(1, "fsync", (100, 200), 90) },
        ] {
            w.ops.push(row).unwrap();
        }
        for (of, reason) in
            [(&journal, "journal"), (&only_device, "device"), (&synchronous, "journal"), (&plain, "journal")]
        {
            let from = of.start_ns / MS;
            w.waits.push(wait(of, reason, (from + 5, from + 50))).unwrap();
        }
        for row in [
            commit("commit", Some(90), 150 * MS),
            // Its start is not known, and its probe came late.
            commit("log_write", None, 200 * MS + late),
            commit("commit", Some(200), 200 * MS + late + 1),
            commit("checkpoint", Some(150), 200 * MS + late + 2),
            commit("commit", Some(310), 390 * MS),
            commit("commit", Some(510), 590 * MS),
            commit("commit", Some(620), 640 * MS),
            commit("commit", Some(720), 790 * MS),
            commit("commit", Some(820), 870 * MS),
        ] {
            w.commits.push(row).unwrap();
        }
        // By the thread of this journal; by one of the same name on another; of another class.
        for (comm, class, file) in
            [("jbd2/vda1-8", "data", 1), ("jbd2/vdb1-8", "data", 2), ("jbd2/vda1-8", "journal", 1)]
        {
            let bio = Bio {
                bio_id: -1,
                queue_ns: 730 * MS,
                complete_ns: Some(731 * MS),
                op: "write".into(),
                class: class.into(),
                comm: comm.into(),
                file: Some(file),
                len_bytes: 4096,
                ..Bio::default()
            };
            w.bio.push(bio).unwrap();
        }
    });
    let (riding, stories) = (Facts::of(&reel).unwrap().calls.riding, all(&reel));
    let mut rode: Vec<(i64, i64)> =
        stories.iter().filter_map(|s| Some((s.start_ns / MS, s.commit.as_ref()?.end_ns + s.start_ns))).collect();
    rode.sort_unstable();
    assert_eq!(rode, [(100, 200 * MS + late), (500, 590 * MS), (700, 790 * MS)]);
    assert_eq!((riding.syncs.count, riding.commits), (3, 3));
    let data: Vec<(u64, &[String])> = stories
        .iter()
        .filter_map(|s| s.commit.as_ref())
        .filter(|c| c.data_bytes > 0)
        .map(|c| (c.data_bytes, &*c.data_files))
        .collect();
    assert_eq!(data, [(4096, &["/f1".to_owned()][..])]);
}

/// The thread that made a commit itself also writes elsewhere.
#[test]
fn data_is_laid_to_a_commit_by_thread_and_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let reel = write(dir.path(), |w| {
        named(w);
        let sync = op(0, "fsync", (100, 200), 90);
        w.ops.push(sync.clone()).unwrap();
        w.waits.push(wait(&sync, "journal", (110, 190))).unwrap();
        let own = Commit { task_id: Some(0), comm: Some("t0".into()), ..commit("log_write", Some(110), 180 * MS) };
        w.commits.push(own).unwrap();
        for (task_id, file, len_bytes) in [(Some(0), 1, 512), (Some(0), 2, 1024), (Some(1), 1, 2048), (None, 1, 4096)] {
            let bio = Bio {
                bio_id: -1,
                queue_ns: 120 * MS,
                complete_ns: Some(121 * MS),
                op: "write".into(),
                class: "data".into(),
                comm: "t0".into(),
                task_id,
                file: Some(file),
                len_bytes,
                ..Bio::default()
            };
            w.bio.push(bio).unwrap();
        }
    });
    assert_eq!(all(&reel)[0].commit.as_ref().map(|c| c.data_bytes), Some(512));
}

/// An id names one operation, however many rows have it.
#[test]
fn an_id_is_explained_once() {
    let dir = tempfile::tempdir().unwrap();
    let reel = write(dir.path(), |w| {
        named(w);
        (0..9).for_each(|i| w.ops.push(op(0, "read", (i, i + 1), 0)).unwrap());
    });
    let ids = vec![3, 3, 5];
    let stories = explain(&reel, &Choice { ids, ..Choice::default() }).unwrap();
    assert_eq!(stories.iter().map(|s| s.op_id).collect::<Vec<_>>(), [3, 5]);
}

/// Commits are recorded, but those of another file system: the finding does not speak of them.
#[test]
fn a_finding_speaks_of_commits_only_if_a_sync_rode_on_one() {
    let dir = tempfile::tempdir().unwrap();
    let reel = write(dir.path(), |w| {
        named(w);
        w.commits.push(Commit { sb_dev: FS + 7, ..commit("commit", Some(90), 150 * MS) }).unwrap();
        for i in 0..8 {
            let from = 100 + i * 1000;
            let sync = Op { op_id: i, ..op(0, "fsync", (from, from + 900), 890) };
            w.waits.push(wait(&sync, "device", (from + 5, from + 890))).unwrap();
            w.ops.push(sync).unwrap();
            for (comm, task_id, file, cause) in [("t0", Some(0), 1, Some(i)), ("jbd2/vda1-8", None, 3, None)] {
                let bio = Bio {
                    bio_id: -1,
                    queue_ns: (from + 5) * MS,
                    complete_ns: Some((from + 890) * MS),
                    dev: 8 << 20,
                    op: "write".into(),
                    class: "data".into(),
                    comm: comm.into(),
                    task_id,
                    file: Some(file),
                    cause,
                    len_bytes: 1 << 20,
                    ..Bio::default()
                };
                w.bio.push(bio).unwrap();
            }
        }
    });
    let facts = Facts::of(&reel).unwrap();
    assert_eq!(facts.calls.riding.syncs.count, 0);
    let all = findings(&facts);
    let found = all.iter().find(|f| f.id == "entangled-sync").unwrap();
    assert!(found.summary.starts_with("The journal's thread writes 1.0 MiB of file data for each sync"), "{found:?}");
}

/// `record` ends with the totals that `info` prints for the same reel, to the byte.
#[test]
fn brief_totals_are_those_of_the_summary() {
    for name in ["untar", "mail", "compile", "postmark"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/samples").join(format!("{name}.reel"));
        let reel = Reel::open(path).unwrap();
        let (brief, summary) = (Brief::of(&reel).unwrap(), Summary::of(&reel, 1).unwrap());
        assert_eq!((brief.calls, brief.moved), (summary.total.totals.calls, summary.total.moved), "{name}");
        let devices = summary.devices.iter().map(|d| (d.dev, d.read_bytes, d.write_bytes));
        let devices: Vec<_> = devices.filter(|d| d.1 + d.2 > 0).collect();
        let of_brief: Vec<_> = brief.devices.iter().map(|(dev, b)| (*dev, b.read_bytes, b.write_bytes)).collect();
        assert_eq!(of_brief, devices, "{name}");
        assert!(brief.calls > 0 && !devices.is_empty(), "{name}");
    }
}
