//! Reels with a known truth.

use std::path::Path;

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Clock, Command, Device, Host, Kind, Mount, Span},
    rows::{Block, File, Op, Task},
};

pub(crate) const LOOP0: i64 = 7 << 20;
pub(crate) const GIB: i64 = 1 << 21;
pub(crate) const MS: i64 = 1_000_000;
pub(crate) const S: i64 = 1_000_000_000;

/// A small deterministic generator of numbers.
pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn below(&mut self, n: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 24) as i64) % n
    }
}

pub(crate) fn manifest(fstype: &str, elapsed_ns: i64, settle_ns: i64) -> Manifest {
    Manifest {
        span: Span { elapsed_ns, settle_ns, ..Span::default() },
        command: Some(Command {
            argv: ["tar", "xf", "linux-6.18.tar.xz"].map(String::from).to_vec(),
            cwd: "/mnt/t".into(),
            exit_status: Some(0),
        }),
        host: Host {
            name: "bench1".into(),
            kernel: "6.18.44".into(),
            arch: "x86_64".into(),
            cpus: 2,
            ..Host::default()
        },
        clock: Clock { monotonic_ns: 1, realtime_ns: 1_795_000_000 * S },
        mounts: vec![Mount {
            sb_dev: LOOP0,
            fstype: fstype.into(),
            source: "/dev/loop0".into(),
            mountpoint: "/mnt/t".into(),
            ..Mount::default()
        }],
        devices: vec![Device { dev: LOOP0, name: "loop0".into(), size_bytes: 64 << 30, ..Device::default() }],
        ..Manifest::new(Kind::Synthetic, "synthetic")
    }
}

pub(crate) fn block(op: &str, issue_ns: i64, dur_ns: i64, sector: i64, sectors: i64) -> Block {
    Block {
        rq_id: -1,
        queue_ns: Some(issue_ns - 1000),
        issue_ns,
        complete_ns: Some(issue_ns + dur_ns),
        dev: LOOP0,
        sector,
        len_bytes: sectors * 512,
        op: op.into(),
        ..Block::default()
    }
}

pub(crate) fn op(name: &str, start_ns: i64, dur_ns: i64, file: Option<i64>, ret: i64) -> Op {
    Op {
        op_id: -1,
        start_ns,
        dur_ns,
        task_id: 1,
        pid: 100,
        tid: 100,
        op: name.into(),
        source: "syscall".into(),
        state: "complete".into(),
        file,
        ret: Some(ret),
        ..Op::default()
    }
}

/// Writes a reel and opens it.
pub(crate) fn reel(dir: &Path, name: &str, manifest: Manifest, blocks: Vec<Block>, ops: Vec<Op>) -> Reel {
    let path = dir.join(format!("{name}.reel"));
    let mut w = ReelWriter::create(&path, &manifest, WriterOptions::default()).unwrap();
    for b in blocks {
        w.block.push(b).unwrap();
    }
    let files: std::collections::BTreeSet<i64> = ops.iter().filter_map(|o| o.file).collect();
    for file in files {
        let path = Some(format!("/mnt/t/dir/file{file}").into());
        w.files.push(File { file, sb_dev: LOOP0, kind: "regular".into(), path, ..File::default() }).unwrap();
    }
    w.tasks
        .push(Task { task_id: 1, pid: 100, tid: 100, comm: "tar".into(), exit_ns: Some(1), ..Task::default() })
        .unwrap();
    for o in ops {
        w.ops.push(o).unwrap();
    }
    w.close(manifest).unwrap();
    Reel::open(path).unwrap()
}
