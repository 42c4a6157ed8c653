//! Builds reels by hand: each test says which calls there were and how they ended.

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
    rows::{Exec, Extent, Fd, File, Map, Op, Task, Tree},
};

/// `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_THREAD`, as pthread_create has it.
pub(crate) const THREAD: i64 = 0x100 | 0x200 | 0x400 | 0x10000;

/// A reel under construction. Operations take 1 us each and follow each other by 10 us, unless told.
pub(crate) struct Draft {
    pub(crate) ops: Vec<Op>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) execs: Vec<Exec>,
    pub(crate) files: Vec<File>,
    pub(crate) fds: Vec<Fd>,
    pub(crate) maps: Vec<Map>,
    pub(crate) tree: Vec<Tree>,
    pub(crate) extents: Vec<Extent>,
    /// By how much recording delayed each call.
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
            extents: Vec::new(),
            call_ns: None,
            now_ns: 1000,
        }
    }

    /// Time goes on.
    pub(crate) fn pause(&mut self, ns: i64) {
        self.now_ns += ns;
    }

    /// The next operation's start.
    pub(crate) fn now(&self) -> i64 {
        self.now_ns
    }

    /// Something that was there before.
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

    /// A task is born now.
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

    /// An open that made the file.
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

    /// An open of what was there.
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

    /// A call on a descriptor alone.
    pub(crate) fn fd(&mut self, task: i64, op: &str, fd: i32, ret: i64) -> &mut Op {
        let o = self.op(task, op, ret);
        o.fd = Some(fd);
        o
    }

    /// Writes it.
    pub(crate) fn write(self, dir: &Path) -> PathBuf {
        self.write_in(dir, WriterOptions::default())
    }

    /// The same, cut into segments as these options say.
    pub(crate) fn write_in(self, dir: &Path, options: WriterOptions) -> PathBuf {
        let path = dir.join("hand.reel");
        let mut manifest = Manifest::new(Kind::Synthetic, "by hand");
        manifest.cost.call_ns = self.call_ns;
        let mut w = ReelWriter::create(&path, &manifest, options).unwrap();
        self.ops.into_iter().for_each(|r| w.ops.push(r).unwrap());
        self.tasks.into_iter().for_each(|r| w.tasks.push(r).unwrap());
        self.execs.into_iter().for_each(|r| w.execs.push(r).unwrap());
        self.files.into_iter().for_each(|r| w.files.push(r).unwrap());
        self.maps.into_iter().for_each(|r| w.maps.push(r).unwrap());
        self.fds.into_iter().for_each(|r| w.fds.push(r).unwrap());
        self.tree.into_iter().for_each(|r| w.tree.push(r).unwrap());
        self.extents.into_iter().for_each(|r| w.extents.push(r).unwrap());
        w.close(manifest).unwrap();
        path
    }
}

/// How tests replay unless they say otherwise.
pub(crate) fn config(reel: PathBuf, target: &Path) -> Config {
    Config {
        reel,
        target: target.into(),
        clockwork: at(Pace::Max),
        order: OrderMode::Resource,
        without: Kinds::NONE,
        result: None,
        force: false,
        roots: Vec::new(),
        maps: Vec::new(),
        set_ids: false,
        skip_prepare: false,
        layout: false,
        memory: None,
        restored: false,
        slice: Slice::default(),
        data: DataOptions::default(),
        scale: Scale::NONE,
        max_bytes: None,
        cache: CacheStart::Prepared,
        memory_limit: None,
        spin_ns: 50_000,
        // These tests run beside others: how late is not what they ask.
        limits: Limits { own_lateness_ns: i64::MAX, ..Limits::default() },
        dry_run: false,
        memory_bytes: ioreel_replay::plan::store::DEFAULT_MEMORY_BYTES,
    }
}

/// This pace, whatever stalls there are.
pub(crate) fn at(pace: Pace) -> Clockwork {
    Clockwork { pace, catch_up: CatchUp::Compress }
}

/// Replays a draft into a fresh directory at full pace.
pub(crate) fn replay(draft: Draft) -> (tempfile::TempDir, Report) {
    replay_as(draft, |config| config)
}

/// The same with the configuration changed.
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

/// Likewise; no result may differ and nothing be left out.
pub(crate) fn replay_same(draft: Draft) -> tempfile::TempDir {
    let (dir, report) = replay(draft);
    assert!(report.verdict.results.differences.is_empty(), "{:#?}", report.verdict.results.differences);
    assert!(report.summary.skipped.is_empty(), "{:?}", report.summary.skipped);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert!(report.verdict.faithful, "{} {:#?}", report.verdict.sentence, report.verdict.tree);
    dir
}
