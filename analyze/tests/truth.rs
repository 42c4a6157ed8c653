//! Statistics of reels whose truth is known in closed form.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, time::Duration};

use ioreel_analyze::{
    Summary,
    events::requests::{Class, requests},
    meters::{
        bins::Bins,
        seeks::{Seek, SeekCounter},
    },
    summary::series::DeviceSeries,
};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Kind, Mount, Span},
    rows::{Block, Exec, File, Op, Task},
};

const MS: i64 = 1_000_000;
const S: i64 = 1_000_000_000;
const A: i64 = 8 << 20;
const B: i64 = 259 << 20 | 3;

fn write(dir: &Path, manifest: Manifest, fill: impl FnOnce(&mut ReelWriter)) -> Reel {
    // Small segments: every statistic must hold across them.
    let options = WriterOptions { segment_rows: 1000, segment_age: Duration::MAX };
    let path = dir.join("r.reel");
    let mut w = ReelWriter::create(&path, &manifest, options).unwrap();
    fill(&mut w);
    w.close(manifest).unwrap();
    Reel::open(path).unwrap()
}

fn spanning(elapsed_ns: i64, settle_ns: i64) -> Manifest {
    Manifest { span: Span { elapsed_ns, settle_ns, ..Span::default() }, ..Manifest::new(Kind::Synthetic, "test") }
}

fn request(dev: i64, op: &str, issue_ns: i64, dur_ns: i64, sector: i64, sectors: i64) -> Block {
    Block {
        rq_id: -1,
        queue_ns: Some(issue_ns - 500),
        issue_ns,
        complete_ns: Some(issue_ns + dur_ns),
        dev,
        sector,
        len_bytes: sectors * 512,
        op: op.into(),
        ..Block::default()
    }
}

/// Device A: sequential 4 KiB writes at the end of 2^40 sectors, one each ms, taking 0.5 ms, with a flush and a
/// discard between every two. Device B: 8 KiB reads that alternate between two places 2^39 apart.
fn two_devices(n: i64) -> Vec<Block> {
    let base = (1 << 40) - n * 8;
    (0..n)
        .flat_map(|i| {
            [
                request(A, "write", i * MS, MS / 2, base + i * 8, 8),
                request(A, "flush", i * MS + 1, 10, -1, 0),
                request(A, "discard", i * MS + 2, 10, i * 1_000_000, 1 << 20),
                request(A, "write_zeroes", i * MS + 3, 10, i * 1_000_000, 1 << 10),
                request(B, "read", i * MS + 4, 2 * MS, ((i % 2) << 39) + i * 16, 16),
            ]
        })
        .collect()
}

#[test]
fn devices_are_counted_apart_and_exactly() {
    let n = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let reel = write(dir.path(), spanning(n * MS, 0), |w| {
        two_devices(n).into_iter().for_each(|r| w.block.push(r).unwrap());
    });
    let s = Summary::of(&reel, 5).unwrap();
    assert_eq!(s.span.total_ns, (n - 1) * MS + 4 + 2 * MS);
    assert_eq!(s.devices.len(), 2);
    let (b, a) = (&s.devices[0], &s.devices[1]);
    assert_eq!((&*b.number, &*a.number), ("259:3", "8:0"));
    let n = n as u64;
    assert_eq!((a.read_bytes, a.write_bytes), (0, n * 4096), "neither discards nor zeroing are written bytes");
    assert_eq!((b.read_bytes, b.write_bytes), (n * 8192, 0));
    assert_eq!((a.seeks.candidates, a.seeks.exact, a.seeks.sw64k), (n - 1, 0, 0));
    assert_eq!((b.seeks.candidates, b.seeks.exact, b.seeks.sw64k), (n - 1, n - 1, n - 1));
    let of = |class: Class| a.classes.iter().find(|c| c.op == class).unwrap();
    for class in [Class::Write, Class::Flush, Class::Discard, Class::WriteZeroes] {
        assert_eq!(of(class).count, n, "{class:?}");
    }
    assert_eq!(of(Class::Discard).bytes, n * (512 << 20));
    assert_eq!((of(Class::Write).d2c.max_ns, of(Class::Write).d2c.total_ns), (500_223, n * 500_000));
    assert_eq!(of(Class::Write).q2c.total_ns, n * 500_500);
    // Each of B's reads overlaps its two neighbours' halves: two in flight, always, but at the ends.
    assert_eq!(b.qd_max, 2);
    assert!((b.qd_mean - 2.0).abs() < 1e-3 && (b.util - 1.0).abs() < 1e-3, "{} {}", b.qd_mean, b.util);
    assert!((a.util - 0.5).abs() < 1e-3, "{}", a.util);
}

#[test]
fn rates_are_by_completion_and_the_end_is_no_spike() {
    let dir = tempfile::tempdir().unwrap();
    // 1 MiB each ms for 1037 ms; every completion 0.25 ms after its issue.
    let reel = write(dir.path(), spanning(1037 * MS, 0), |w| {
        (0..1037).for_each(|i| w.block.push(request(A, "write", i * MS, MS / 4, i * 2048, 2048)).unwrap());
    });
    let mut series = DeviceSeries::new(Bins::new(0, 1037 * MS, 10 * MS));
    let mut seeks = SeekCounter::default();
    for r in requests(&reel) {
        let r = r.unwrap();
        let seek = if r.class.is_data() { seeks.push(r.sector, r.end_sector()) } else { Seek::default() };
        series.push(&r, seek);
    }
    assert_eq!(series.write_bytes.iter().sum::<u64>(), 1037 << 20);
    for (i, bytes) in series.write_bytes.iter().enumerate() {
        assert_eq!(series.bins.rate(i, *bytes), 1000.0 * f64::from(1 << 20), "bin {i}");
    }
    for mean in series.in_flight.means() {
        assert!((mean - 0.25).abs() < 1e-9);
    }
    assert_eq!(series.seeks_exact.iter().sum::<u64>(), 0);
}

#[test]
fn errors_and_requests_without_end_move_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let reel = write(dir.path(), spanning(S, 0), |w| {
        w.block.push(Block { error: 5, ..request(A, "write", 0, MS, 0, 8) }).unwrap();
        w.block.push(Block { complete_ns: None, ..request(A, "write", MS, 0, 8, 8) }).unwrap();
        w.block.push(request(A, "write", 2 * MS, MS, 16, 8)).unwrap();
    });
    let device = &Summary::of(&reel, 1).unwrap().devices[0];
    let c = &device.classes[0];
    assert_eq!((c.count, c.errors, c.incomplete, c.bytes, c.d2c.count), (3, 1, 1, 4096, 2));
    assert_eq!(device.qd_max, 1);
}

fn op(task_id: i64, name: &str, start_ns: i64, dur_ns: i64, file: Option<i64>, ret: i64) -> Op {
    Op {
        op_id: -1,
        task_id,
        op: name.into(),
        source: "syscall".into(),
        state: "complete".into(),
        start_ns,
        dur_ns,
        file,
        ret: Some(ret),
        ..Op::default()
    }
}

#[test]
fn calls_are_summed_by_name_file_process_and_mount() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |sb_dev, fstype: &str| Mount { sb_dev, fstype: fstype.into(), ..Mount::default() };
    let manifest = Manifest { mounts: vec![mount(A, "ext4"), mount(B, "tmpfs")], ..spanning(S, S / 2) };
    let reel = write(dir.path(), manifest, |w| {
        let task = |task_id, parent, clone_flags, comm: &str| Task {
            task_id,
            pid: 10 * task_id as i32,
            parent,
            clone_flags,
            comm: comm.into(),
            ..Task::default()
        };
        // Task 2 is a thread of 1, 3 a process of its own that runs a program.
        for t in [task(1, None, 0, "sh"), task(2, Some(1), 0x1_0000, "sh"), task(3, Some(1), 0, "cp")] {
            w.tasks.push(t).unwrap();
        }
        w.execs.push(Exec { task_id: 3, path: "/bin/cp".into(), ..Exec::default() }).unwrap();
        for (file, sb_dev, path) in [(1, A, Some("/mnt/a")), (2, B, None), (9, B, Some("/tmp/untouched"))] {
            w.files
                .push(File { file, sb_dev, path: path.map(Into::into), kind: "regular".into(), ..File::default() })
                .unwrap();
        }
        for i in 0..1500 {
            w.ops.push(op(1, "write", i * 1000, 100, Some(1), 512)).unwrap();
            w.ops.push(op(2, "read", i * 1000, 50, Some(2), 256)).unwrap();
        }
        w.ops.push(op(3, "openat", 5, 10, None, -2)).unwrap();
        let copy = op(3, "copy_file_range", 10, 1000, Some(1), 4096);
        w.ops.push(Op { file2: Some(2), ..copy }).unwrap();
        // A mapping high in the address space is no error; neither is a call that never returned.
        w.ops.push(op(3, "mmap", 20, 10, Some(1), -0x7000_0000_0000)).unwrap();
        w.ops.push(Op { state: "in_flight_at_end".into(), ret: None, ..op(3, "read", 30, 0, Some(2), 0) }).unwrap();
        w.ops.push(Op { source: "tool".into(), ..op(1, "syncfs", S, S / 2, None, 0) }).unwrap();
    });
    let s = Summary::of(&reel, 10).unwrap();
    assert_eq!((s.span.elapsed_ns, s.span.settle_ns, s.span.total_ns), (S, S / 2, S + S / 2));
    let t = s.total.totals;
    assert_eq!((t.calls, t.errors), (3004, 1), "the tool's own call is apart");
    assert_eq!((t.read_bytes, t.write_bytes), (1500 * 256 + 4096, 1500 * 512 + 4096));
    assert_eq!(t.time_ns, 1500 * 150 + 10 + 1000 + 10);
    assert_eq!((s.settling.len(), &*s.settling[0].op), (1, "syncfs"));
    let named = |name: &str| s.operations.iter().find(|o| o.op == name).unwrap();
    assert_eq!((named("write").count, named("write").bytes, named("write").latency.p50_ns), (1500, 1500 * 512, 100));
    assert_eq!((named("read").count, named("read").in_flight, named("read").latency.count), (1501, 1, 1500));
    assert_eq!((named("openat").errors, named("openat").errnos[&2]), (1, 1));
    assert_eq!((named("mmap").errors, named("mmap").bytes), (0, 0));
    let paths: Vec<Option<&str>> = s.files_by_bytes.iter().map(|f| f.path.as_deref()).collect();
    assert_eq!(paths, [Some("/mnt/a"), None]);
    let f = s.files_by_bytes[0].totals;
    assert_eq!((f.read_bytes, f.write_bytes), (4096, 1500 * 512), "the source of a copy is read");
    let f = s.files_by_bytes[1].totals;
    assert_eq!((f.read_bytes, f.write_bytes), (1500 * 256, 4096), "its destination is written");
    assert_eq!(s.processes, 2);
    let p: Vec<_> =
        s.processes_by_time.iter().map(|p| (p.pid, p.threads, p.totals.calls, p.program.as_deref())).collect();
    assert_eq!(p, [(10, 2, 3000, None), (30, 1, 4, Some("/bin/cp"))]);
    let m: Vec<_> = s.mounts.iter().map(|m| (&*m.fstype, m.files, m.totals.write_bytes)).collect();
    assert_eq!(m, [("ext4", 1, 1500 * 512), ("tmpfs", 1, 4096)]);
}

#[test]
fn an_empty_reel_has_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let s = Summary::of(&write(dir.path(), spanning(0, 0), |_| {}), 3).unwrap();
    assert_eq!((s.span.total_ns, s.total.totals.calls, s.devices.len()), (0, 0, 0));
    assert_eq!(s.bytes_per_event(), None);
    assert!(s.total.ops_per_s.is_finite());
}
