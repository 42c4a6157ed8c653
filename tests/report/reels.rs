//! Reels for pages, with everything in them that a page shows.

use std::path::{Path, PathBuf};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{Clock, ClockJump, Command, Device, Host, Kind, Ledger, Loss, Mark, Mount, Span, State},
    rows::{Bio, Block, File, Op, Task},
};

/// What tries to become markup, or to look like something else.
pub(crate) const HOSTILE: &str =
    "</script><img src=x onerror=\"document.documentElement.dataset.pwned='yes'\">\n<b>&amp;\u{202e}\u{F7FF}";

pub(crate) fn manifest(name: &str) -> Manifest {
    let device = |dev: i64, name: &str| Device { dev, name: name.into(), size_bytes: 1 << 40, ..Device::default() };
    Manifest {
        state: State::Complete,
        host: Host { name: name.into(), kernel: "6.18".into(), cpus: 2, mem_bytes: 1 << 33, ..Host::default() },
        clock: Clock { monotonic_ns: 1, realtime_ns: 1_700_000_000_000_000_000 },
        command: Some(Command { argv: vec![name.into(), "x".into()], ..Command::default() }),
        span: Span { elapsed_ns: 1_000_000_000, settle_ns: 200_000_000, ..Span::default() },
        mounts: vec![Mount {
            sb_dev: 8 << 20,
            fstype: "ext4".into(),
            mountpoint: format!("/{name}"),
            ..Mount::default()
        }],
        devices: vec![device(8 << 20, "sda"), device(9 << 20, name)],
        marks: vec![Mark { ns: 500_000_000, name: name.into() }],
        warnings: vec![format!("warning of {name}")],
        ledger: [("ops".to_owned(), Ledger { seen: 1007, written: 1000, lost: 7, filtered: 0 })].into(),
        losses: vec![Loss { cpu: 0, from_ns: 300_000_000, to_ns: 310_000_000, events: 7 }],
        ..Manifest::new(Kind::Recording, "test")
    }
}

/// Two devices, two processes, some files; every number of it can be told by counting.
pub(crate) fn full(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join("full.reel");
    let m = manifest(name);
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    for i in 0..2i64 {
        let comm = if i == 0 { name } else { "writer" };
        let task =
            Task { task_id: i + 1, pid: 100 + i as i32, tid: 100 + i as i32, comm: comm.into(), ..Task::default() };
        w.tasks.push(task).unwrap();
    }
    for file in 0..5i64 {
        let path = if file == 0 { format!("/{name}/{name}") } else { format!("/data/file-{file}") };
        let row = File {
            file,
            dev: 8 << 20,
            sb_dev: 8 << 20,
            ino: file,
            kind: "regular".into(),
            path: Some(path.into()),
            ..File::default()
        };
        w.files.push(row).unwrap();
    }
    for i in 0..1000i64 {
        let write = i % 4 != 0;
        w.ops
            .push(Op {
                op_id: -1,
                start_ns: i * 1_000_000,
                dur_ns: 20_000 + i * 10,
                task_id: 1 + i % 2,
                op: if write { "pwrite64" } else { "pread64" }.into(),
                source: "syscall".into(),
                state: "complete".into(),
                file: Some(i % 5),
                offset_bytes: Some(i / 5 * 4096),
                len_bytes: Some(4096),
                ret: Some(if i == 999 { -5 } else { 4096 }),
                ..Op::default()
            })
            .unwrap();
    }
    for i in 0..1000i64 {
        let issue_ns = 200_000_000 + i * 1_000_000;
        let (dev, flush) = (if i % 10 == 0 { 9 << 20 } else { 8 << 20 }, i % 100 == 99);
        let op = if flush { "flush" } else { ["read", "write", "write"][i as usize % 3] };
        let row = Block {
            rq_id: i,
            queue_ns: Some(issue_ns - 5_000),
            issue_ns,
            complete_ns: (i != 500).then_some(issue_ns + 300_000 + i * 100),
            dev,
            sector: if flush { -1 } else { 1_000_000 + i * 16 },
            len_bytes: if flush { 0 } else { 8192 },
            op: op.into(),
            error: if i == 700 { 5 } else { 0 },
            ..Block::default()
        };
        let carrier = Bio {
            task_id: (i % 2 == 0).then_some(1),
            comm: if i % 2 == 0 { name } else { "kworker/u8:0" }.into(),
            file: (i % 3 != 0).then_some(i % 5),
            class: "data".into(),
            ..bio_of(&row)
        };
        w.block.push(row).unwrap();
        w.bio.push(carrier).unwrap();
    }
    w.close(m).unwrap();
    path
}

/// The only bio of a request.
fn bio_of(b: &Block) -> Bio {
    Bio {
        bio_id: -1,
        rq_id: Some(b.rq_id),
        queue_ns: b.queue_ns.unwrap(),
        complete_ns: b.complete_ns,
        dev: b.dev,
        sector: b.sector,
        len_bytes: b.len_bytes,
        op: b.op.clone(),
        ..Bio::default()
    }
}

/// `n` requests without any operation: two classes, two threads, and a file of 64 KiB pieces for every third.
pub(crate) fn block_only(dir: &Path, name: &str, n: i64) -> PathBuf {
    let path = dir.join("block.reel");
    let m = Manifest { clock_jumps: vec![ClockJump { at_ns: 400_000_000, back_ns: 5 }], ..manifest(name) };
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    for file in 1..4i64 {
        let path = Some(format!("/{name}/{file}").into());
        w.files.push(File { file, path, kind: "regular".into(), ..File::default() }).unwrap();
    }
    for i in 0..n {
        let issue_ns = i * 1_000_000_000 / n;
        let row = Block {
            rq_id: i,
            queue_ns: Some(issue_ns),
            issue_ns,
            complete_ns: Some(issue_ns + 1000 + i % 7 * 500_000),
            dev: 8 << 20,
            sector: i % 1000 * 128,
            len_bytes: 65_536,
            op: if i % 2 == 0 { "read" } else { "write" }.into(),
            ..Block::default()
        };
        let carrier = Bio {
            comm: if i % 4 == 0 { name } else { "writer" }.into(),
            class: if i % 5 == 0 { "journal" } else { "data" }.into(),
            file: (i % 5 != 0).then_some(1 + i % 3),
            file_offset_bytes: (i % 5 != 0).then_some(i % 50 * 65_536),
            ..bio_of(&row)
        };
        w.block.push(row).unwrap();
        w.bio.push(carrier).unwrap();
    }
    w.close(m).unwrap();
    path
}

/// A reel of these requests alone.
pub(crate) fn requests(dir: &Path, name: &str, rows: impl Iterator<Item = Block>) -> PathBuf {
    let path = dir.join(format!("{name}.reel"));
    let m = Manifest {
        state: State::Complete,
        devices: vec![Device { dev: 8 << 20, name: "sda".into(), ..Device::default() }],
        ..Manifest::new(Kind::Synthetic, "test")
    };
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    rows.for_each(|row| w.block.push(row).unwrap());
    w.close(m).unwrap();
    path
}

/// 600,000 random requests, 10 us apart: more than a page holds singly. The 345,678th takes 50 ms.
pub(crate) fn many(dir: &Path) -> PathBuf {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 20) % below) as i64
    };
    // Random everywhere: nothing that deflating could use.
    let rows = (0..600_000i64).map(|i| Block {
        rq_id: -1,
        queue_ns: Some(i * 10_000 - next(5_000)),
        issue_ns: i * 10_000,
        complete_ns: Some(i * 10_000 + if i == 345_678 { 50_000_000 } else { next(900_000) }),
        dev: 8 << 20,
        sector: next(1 << 40),
        len_bytes: 512 * (1 + next(2048)),
        op: if i % 2 == 0 { "read" } else { "write" }.into(),
        ..Block::default()
    });
    requests(dir, "random", rows)
}
