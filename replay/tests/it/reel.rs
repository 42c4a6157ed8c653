//! Builds reels by hand: each test lists the calls and their results.

use std::path::{Path, PathBuf};

use ioreel_replay::{
    Config, Report, Slice,
    contents::data::DataOptions,
    plan::edge::{Kinds, OrderMode},
    prepare::page_cache::CacheStart,
    reel::footprint::Scale,
    run::pace::{CatchUp, Clockwork, Pace},
    verdict::judgement::Limits,
};
use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::Kind,
    rows::{Exec, Extent, Fd, File, FinalName, Map, Op, Task, Tree},
};

/// `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_THREAD`, as in pthread_create.
pub(crate) const THREAD: i64 = 0x100 | 0x200 | 0x400 | 0x10000;

/// A reel under construction. By default, operations take 1 us each and start 10 us apart.
pub(crate) struct Draft {
    pub(crate) ops: Vec<Op>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) execs: Vec<Exec>,
    pub(crate) files: Vec<File>,
    pub(crate) fds: Vec<Fd>,
    pub(crate) maps: Vec<Map>,
    pub(crate) tree: Vec<Tree>,
    pub(crate) final_tree: Vec<FinalName>,
    pub(crate) extents: Vec<Extent>,
    /// Overhead of the recording per call.
    pub(crate) call_ns: Option<i64>,
    now_ns: i64,
}

impl Draft {
    /// One task, number 1, in /w.
    pub(crate) fn new() -> Self {
        let first = Task {
            task_id: 1,
            pid: 100,
            tid: 100,
            cwd: Some("/w".into()),
            root: Some("/".into()),
            umask: Some(0o022),
            uid: Some(0),
            gid: Some(0),
            exit_ns: Some(i64::MAX / 4),
            ..Task::default()
        };
        Self {
            ops: Vec::new(),
            tasks: vec![first],
            execs: Vec::new(),
            files: Vec::new(),
            fds: Vec::new(),
            maps: Vec::new(),
            tree: Vec::new(),
            final_tree: Vec::new(),
            extents: Vec::new(),
            call_ns: None,
            now_ns: 1000,
        }
    }

    /// Advances the time.
    pub(crate) fn pause(&mut self, ns: i64) {
        self.now_ns += ns;
    }

    /// Start of the next operation.
    pub(crate) fn now(&self) -> i64 {
        self.now_ns
    }

    /// A name that existed at the start.
    pub(crate) fn had(&mut self, path: &str, kind: &str, size: i64) -> &mut Tree {
        let order = self.tree.len() as i64;
        self.tree.push(Tree {
            order,
            path: path.into(),
            origin: "snapshot".into(),
            kind: kind.into(),
            size_bytes: Some(size),
            alloc_bytes: Some(size),
            mode: Some(if kind == "directory" { 0o755 } else { 0o644 }),
            ..Tree::default()
        });
        self.tree.last_mut().unwrap()
    }

    /// A task starts now.
    pub(crate) fn fork(&mut self, parent: i64, child: i64, flags: i64) {
        let start_ns = self.now_ns;
        self.now_ns += 10_000;
        let pid = if flags & 0x10000 != 0 { 100 } else { 100 + child as i32 };
        self.tasks.push(Task {
            task_id: child,
            pid,
            tid: 100 + child as i32,
            parent: Some(parent),
            start_ns,
            clone_flags: flags,
            ..Task::default()
        });
    }

    /// A task ends now.
    pub(crate) fn exit(&mut self, task: i64) {
        let at = self.now_ns;
        self.now_ns += 10_000;
        self.tasks.iter_mut().find(|t| t.task_id == task).unwrap().exit_ns = Some(at);
    }

    /// A task starts a program now.
    pub(crate) fn exec(&mut self, task_id: i64) {
        let exec_ns = self.now_ns;
        self.now_ns += 10_000;
        self.execs.push(Exec { exec_ns, task_id, path: "/bin/x".into(), comm: "x".into(), ..Exec::default() });
    }

    /// An operation of `task` now.
    pub(crate) fn op(&mut self, task: i64, op: &str, ret: i64) -> &mut Op {
        let start_ns = self.now_ns;
        self.now_ns += 10_000;
        self.ops.push(Op {
            op_id: -1,
            start_ns,
            dur_ns: 1000,
            task_id: task,
            op: op.into(),
            source: "syscall".into(),
            state: "complete".into(),
            ret: Some(ret),
            ..Op::default()
        });
        self.ops.last_mut().unwrap()
    }

    /// A call on a path.
    pub(crate) fn on(&mut self, task: i64, op: &str, path: &str, ret: i64) -> &mut Op {
        let o = self.op(task, op, ret);
        o.path = Some(path.into());
        o.dirfd = Some(-100);
        o
    }

    /// An open that creates the file.
    pub(crate) fn create(&mut self, task: i64, path: &str, file: i64, fd: i64) -> &mut Op {
        self.know(file, "regular");
        let o = self.on(task, "openat", path, fd);
        o.flags = Some(i64::from(libc::O_CREAT | libc::O_RDWR));
        o.mode = Some(0o666);
        o.aux = Some(1);
        o.file = Some(file);
        o.ofd = Some(file * 10);
        o
    }

    /// An open of an existing file.
    pub(crate) fn open(&mut self, task: i64, path: &str, flags: i32, file: i64, fd: i64) -> &mut Op {
        self.know(file, "regular");
        let o = self.on(task, "openat", path, fd);
        o.flags = Some(flags.into());
        o.aux = Some(0);
        o.file = Some(file);
        o.ofd = Some(file * 10 + fd);
        o
    }

    /// A file of this kind.
    pub(crate) fn know(&mut self, file: i64, kind: &str) {
        if !self.files.iter().any(|f| f.file == file) {
            self.files.push(File { file, kind: kind.into(), ino: file, ..File::default() });
        }
    }

    /// A read or write at a position.
    pub(crate) fn io(&mut self, task: i64, op: &str, fd: i32, offset: i64, len: i64, ret: i64) -> &mut Op {
        let o = self.op(task, op, ret);
        o.fd = Some(fd);
        o.offset_bytes = Some(offset);
        o.len_bytes = Some(len);
        o
    }

    /// A call on a descriptor only.
    pub(crate) fn fd(&mut self, task: i64, op: &str, fd: i32, ret: i64) -> &mut Op {
        let o = self.op(task, op, ret);
        o.fd = Some(fd);
        o
    }

    /// Writes the reel.
    pub(crate) fn write(self, dir: &Path) -> PathBuf {
        self.write_in(dir, WriterOptions::default())
    }

    /// Likewise, with segments as in `options`.
    pub(crate) fn write_in(self, dir: &Path, options: WriterOptions) -> PathBuf {
        let path = dir.join("hand.reel");
        let mut manifest = Manifest::new(Kind::Synthetic, "by hand");
        manifest.cost.call_ns = self.call_ns;
        manifest.span.elapsed_ns = self.now_ns;
        let mut w = ReelWriter::create(&path, &manifest, options).unwrap();
        self.ops.into_iter().for_each(|r| w.ops.push(r).unwrap());
        self.tasks.into_iter().for_each(|r| w.tasks.push(r).unwrap());
        self.execs.into_iter().for_each(|r| w.execs.push(r).unwrap());
        self.files.into_iter().for_each(|r| w.files.push(r).unwrap());
        self.maps.into_iter().for_each(|r| w.maps.push(r).unwrap());
        self.fds.into_iter().for_each(|r| w.fds.push(r).unwrap());
        self.tree.into_iter().for_each(|r| w.tree.push(r).unwrap());
        self.final_tree.into_iter().for_each(|r| w.final_tree.push(r).unwrap());
        self.extents.into_iter().for_each(|r| w.extents.push(r).unwrap());
        w.close(manifest).unwrap();
        path
    }
}

/// Default configuration of these tests.
pub(crate) fn config(reel: PathBuf, target: &Path) -> Config {
    Config {
        reel,
        // Confined replays do the same: the tests pass with it, too.
        untrusted: std::env::var_os("IOREEL_TEST_UNTRUSTED").is_some(),
        // These tests share their process.
        control_group: false,
        target: target.into(),
        clockwork: at(Pace::Max),
        order: OrderMode::Resource,
        without: Kinds::NONE,
        result: None,
        force: false,
        roots: Vec::new(),
        maps: Vec::new(),
        set_ids: false,
        device_nodes: false,
        skip_prepare: false,
        layout: false,
        memory: None,
        restored: false,
        slice: Slice::default(),
        data: DataOptions::default(),
        scale: Scale::NONE,
        max_bytes: None,
        force_room: false,
        cache: CacheStart::Prepared,
        memory_limit: None,
        spin_ns: 50_000,
        // Lateness is not checked, because tests run in parallel.
        limits: Limits { own_lateness_ns: i64::MAX, ..Limits::default() },
        dry_run: false,
        memory_bytes: ioreel_replay::plan::store::DEFAULT_MEMORY_BYTES,
    }
}

/// This pace, with the schedule kept after stalls.
pub(crate) fn at(pace: Pace) -> Clockwork {
    Clockwork { pace, catch_up: CatchUp::Compress }
}

/// Replays a draft into a new directory at pace `max`.
pub(crate) fn replay(draft: Draft) -> (tempfile::TempDir, Report) {
    replay_as(draft, |config| config)
}

/// Likewise with a changed configuration.
pub(crate) fn replay_as(draft: Draft, change: impl FnOnce(Config) -> Config) -> (tempfile::TempDir, Report) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let reel = draft.write(dir.path());
    let report = ioreel_replay::Replay::plan(change(config(reel, &target)))
        .unwrap()
        .run(ioreel_replay::session::watch::Unwatched, |_| ())
        .unwrap();
    (dir, report)
}

/// Likewise. All results must be the same and nothing skipped.
pub(crate) fn replay_same(draft: Draft) -> tempfile::TempDir {
    let (dir, report) = replay(draft);
    assert!(report.verdict.results.differences.is_empty(), "{:#?}", report.verdict.results.differences);
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    dir
}
