//! Small reels for the tests of this crate.

use std::path::{Path, PathBuf};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{FILE_NAME, Kind, Ledger},
    rows::{Bio, Block, Exec, Fd, File, Op, Task, Tree},
};

/// Tests close segments at this many rows, so that a few rows make several.
pub(crate) fn small_segments() -> WriterOptions {
    WriterOptions { segment_rows: 100, ..WriterOptions::default() }
}

pub(crate) fn manifest() -> Manifest {
    Manifest::new(Kind::Recording, "test")
}

pub(crate) fn task(task_id: i64, parent: Option<i64>) -> Task {
    Task { task_id, parent, pid: 10, tid: 10, comm: "cat".into(), start_ns: task_id, ..Task::default() }
}

pub(crate) fn op(start_ns: i64) -> Op {
    Op {
        op_id: -1,
        start_ns,
        dur_ns: 7,
        task_id: 1,
        op: "read".into(),
        source: "syscall".into(),
        state: "complete".into(),
        fd: Some(3),
        file: Some(0),
        ret: Some(1),
        ..Op::default()
    }
}

pub(crate) fn request(rq_id: i64) -> Block {
    Block {
        rq_id,
        queue_ns: Some(rq_id * 10),
        issue_ns: rq_id * 10 + 1,
        complete_ns: Some(rq_id * 10 + 5),
        op: "write".into(),
        len_bytes: 4096,
        ..Block::default()
    }
}

pub(crate) fn bio(rq_id: i64) -> Bio {
    Bio {
        bio_id: -1,
        rq_id: Some(rq_id),
        queue_ns: rq_id * 10,
        complete_ns: Some(rq_id * 10 + 5),
        op: "write".into(),
        len_bytes: 4096,
        comm: "kworker".into(),
        class: "data".into(),
        file: Some(0),
        ..Bio::default()
    }
}

pub(crate) fn file(file: i64) -> File {
    File { file, kind: "regular".into(), ino: 11 + file, path: Some("/f".into()), ..File::default() }
}

/// The rows of a reel, before they are written: tests spoil them.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) ops: Vec<Op>,
    pub(crate) block: Vec<Block>,
    pub(crate) bio: Vec<Bio>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) execs: Vec<Exec>,
    pub(crate) files: Vec<File>,
    pub(crate) fds: Vec<Fd>,
    pub(crate) tree: Vec<Tree>,
    pub(crate) manifest: Manifest,
}

/// 250 operations of two tasks on one file, 20 requests with a bio each, a settling syncfs: valid.
pub(crate) fn good() -> Draft {
    let mut ops: Vec<Op> = (0..250).map(|i| Op { task_id: 1 + i % 2, ..op(i * 10) }).collect();
    ops.push(Op {
        source: "tool".into(),
        op: "syncfs".into(),
        path: Some("/".into()),
        task_id: -1,
        file: None,
        ..op(9000)
    });
    let mut manifest = manifest();
    for (class, seen, lost, filtered) in [("ops", 258, 5, 3), ("block", 20, 0, 0), ("bio", 20, 0, 0)] {
        manifest.ledger.insert(class.into(), Ledger { seen, written: seen - lost - filtered, lost, filtered });
    }
    manifest.left_out.insert("the recorder's own".into(), 3);
    Draft {
        ops,
        block: (0..20).map(request).collect(),
        bio: (0..20).map(bio).collect(),
        tasks: vec![task(1, None), task(2, Some(1))],
        execs: vec![Exec {
            exec_ns: 3,
            task_id: 1,
            path: "/bin/cat".into(),
            comm: "cat".into(),
            uid: Some(4),
            gid: Some(5),
            capabilities: None,
        }],
        files: vec![file(0)],
        fds: vec![Fd { task_id: 1, fd: 0, ofd: 1, file: Some(0), ..Fd::default() }],
        tree: vec![Tree {
            order: 0,
            path: "/f".into(),
            origin: "snapshot".into(),
            kind: "regular".into(),
            ..Tree::default()
        }],
        manifest,
    }
}

impl Draft {
    /// Pushes all rows without closing; what is counted is not known at the start.
    pub(crate) fn begin(self, path: &Path) -> (ReelWriter, Manifest) {
        let mut w = ReelWriter::create(path, &manifest(), small_segments()).unwrap();
        self.ops.into_iter().for_each(|r| w.ops.push(r).unwrap());
        self.block.into_iter().for_each(|r| w.block.push(r).unwrap());
        self.bio.into_iter().for_each(|r| w.bio.push(r).unwrap());
        self.tasks.into_iter().for_each(|r| w.tasks.push(r).unwrap());
        self.execs.into_iter().for_each(|r| w.execs.push(r).unwrap());
        self.files.into_iter().for_each(|r| w.files.push(r).unwrap());
        self.fds.into_iter().for_each(|r| w.fds.push(r).unwrap());
        self.tree.into_iter().for_each(|r| w.tree.push(r).unwrap());
        (w, self.manifest)
    }

    /// Writes the reel.
    pub(crate) fn write(self, path: &Path) -> Manifest {
        let (w, manifest) = self.begin(path);
        w.close(manifest).unwrap()
    }
}

/// A folder that goes away with the test, and a reel's path in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let reel = dir.path().join("x.reel");
    (dir, reel)
}

/// Changes the manifest's text.
pub(crate) fn edit_manifest(reel: &Path, edit: impl FnOnce(String) -> String) {
    let path = reel.join(FILE_NAME);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, edit(text)).unwrap();
}
