//! The named statistics of reels whose truth is known in closed form.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{collections::HashSet, path::Path, time::Duration};

use ioreel_analyze::{
    Scope, Stats,
    events::scope::files_below,
    stats::{DeviceStats, MOST_DEVICES},
};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Device, Kind, Span},
    rows::{Bio, Block, File, Op, block_flags},
};

const MS: i64 = 1_000_000;
const S: i64 = 1_000_000_000;
const DEV: i64 = 8 << 20;
/// An address that 32-bit floats and 32-bit sectors cannot hold.
const HIGH: i64 = (1 << 40) - (1 << 30);

fn reel(dir: &Path, span_ns: i64, fill: impl FnOnce(&mut ReelWriter)) -> Reel {
    let device = Device { dev: DEV, name: "sda".into(), physical_block_bytes: 4096, ..Device::default() };
    let manifest = Manifest {
        span: Span { elapsed_ns: span_ns, ..Span::default() },
        devices: vec![device],
        ..Manifest::new(Kind::Synthetic, "test")
    };
    // Small segments: every statistic must hold across them.
    let options = WriterOptions { segment_rows: 777, segment_age: Duration::MAX };
    let mut w = ReelWriter::create(&dir.join("r.reel"), &manifest, options).unwrap();
    fill(&mut w);
    w.close(manifest).unwrap();
    Reel::open(dir.join("r.reel")).unwrap()
}

fn request(op: &str, queue_ns: i64, issue_ns: i64, complete_ns: i64, sector: i64, sectors: i64) -> Block {
    Block {
        rq_id: -1,
        queue_ns: Some(queue_ns),
        issue_ns,
        complete_ns: Some(complete_ns),
        dev: DEV,
        sector,
        len_bytes: sectors * 512,
        op: op.into(),
        ..Block::default()
    }
}

fn only_device(reel: &Reel) -> DeviceStats {
    Stats::of(reel, &Scope::default()).unwrap().devices.remove(0)
}

fn near(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= b / 500
}

#[test]
fn a_steady_stream_has_the_rates_depths_and_latencies_it_was_made_with() {
    let n = 10_000;
    let dir = tempfile::tempdir().unwrap();
    // One 8 KiB write each ms: queued 0.1 ms before its issue, done after 2 ms, so two are in flight.
    let r = reel(dir.path(), n * MS, |w| {
        for i in 0..n {
            let at = i * MS + MS;
            w.block.push(request("write", at - MS / 10, at, at + 2 * MS, HIGH + i * 16, 16)).unwrap();
        }
    });
    let d = only_device(&r);
    let span = (n + 2) * MS; // the last one ends after the stated span
    assert!((d.iops - n as f64 * 1e9 / span as f64).abs() < 1e-6);
    assert!((d.mbps - n as f64 * 8192.0 * 1e3 / span as f64).abs() < 1e-6);
    assert_eq!((d.read_mbps, d.qd_max), (0.0, 2));
    assert!((d.qd_mean - (2 * n * MS) as f64 / span as f64).abs() < 1e-9);
    assert!((d.util - ((n + 1) * MS) as f64 / span as f64).abs() < 1e-9);
    assert!((d.sync_qd1 - 2.0 / (n + 1) as f64).abs() < 1e-9, "only the first and the last millisecond");
    for (l, want) in [(&d.d2c, 2 * MS), (&d.q2c, 21 * MS / 10), (&d.q2d, MS / 10), (&d.q2q, MS)] {
        assert!(near(l.p50_ns, want as u64) && near(l.p999_ns, want as u64), "{l:?} for {want}");
    }
    assert_eq!((d.seeks.candidates, d.seeks.exact, d.seeks.btt, d.seeks.win16), (n as u64 - 1, 0, 0, 0));
    assert_eq!((d.seeks.seq_ratio, d.seeks.hdd_ms), (1.0, 0.0));
    assert_eq!(d.unmerged_adjacent, n as u64 - 1);
    assert_eq!(d.blocks.waf_window, [1.0; 3]);
    assert_eq!(d.sizes.top, [(8192, n as u64)]);
    assert_eq!((d.queued, d.merge_ratio), (None, None), "there are no bios");
    assert_eq!(d.period, None);
}

#[test]
fn discards_zeroes_and_flushes_are_no_writes_and_no_seeks() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), S, |w| {
        for i in 0..100 {
            let at = i * MS;
            w.block.push(request("write", at, at, at + 10, HIGH + i * 8, 8)).unwrap();
            w.block.push(request("discard", at + 1, at + 1, at + 20, 5000 * i, 1 << 20)).unwrap();
            w.block.push(request("write_zeroes", at + 2, at + 2, at + 20, 7000 * i, 1 << 16)).unwrap();
            w.block.push(request("flush", at + 3, at + 3, at + 30, -1, 0)).unwrap();
        }
    });
    let d = only_device(&r);
    assert_eq!(d.seeks.exact, 0);
    assert_eq!((d.d2c.count, d.d2c_write.count, d.d2c_flush.count), (100, 100, 100));
    assert!((d.write_mbps - 100.0 * 4096.0 * 1e3 / S as f64).abs() < 1e-9);
    assert_eq!(d.blocks.written_blocks, 100);
    let bytes: Vec<(&str, u64)> = d.bytes.iter().map(|(c, n)| (c.name(), *n)).collect();
    assert_eq!(bytes, [("write", 100 * 4096), ("discard", 100 << 29), ("write_zeroes", 100 << 25)]);
}

#[test]
fn true_seeks_are_counted_by_every_rule() {
    let n = 9_999;
    let dir = tempfile::tempdir().unwrap();
    // To and fro over 2^39 sectors.
    let r = reel(dir.path(), 20 * S, |w| {
        for i in 0..=n {
            w.block.push(request("read", i * MS, i * MS, i * MS + 1, ((i % 2) << 39) + i * 8, 8)).unwrap();
        }
    });
    let s = only_device(&r).seeks;
    assert_eq!((s.candidates, s.exact, s.sw64k, s.btt), (n as u64, n as u64, n as u64, n as u64));
    // Each place goes on 8 sectors after its own last end.
    assert_eq!((s.win16, s.win32_128k), (n as u64, 1));
    // 5000 times 2^39 there, 4999 times 2^39 - 16 back.
    assert_eq!((s.btt_median_sectors, s.btt_mode_sectors), (1 << 39, 1 << 39));
    assert!((s.seq_ratio - 0.0).abs() < 1e-12);
}

#[test]
fn rewriting_is_told_by_window() {
    let dir = tempfile::tempdir().unwrap();
    // A 4 KiB block each second for a minute, beside fresh ones.
    let r = reel(dir.path(), 60 * S, |w| {
        for s in 0..60 {
            w.block.push(request("write", s * S, s * S, s * S + MS, HIGH, 8)).unwrap();
            w.block.push(request("write", s * S, s * S + 1, s * S + MS, 4096 + s * 8, 8)).unwrap();
        }
    });
    let b = only_device(&r).blocks;
    assert_eq!(b.waf_window, [120.0 / 72.0, 120.0 / 62.0, 120.0 / 61.0]);
    assert_eq!(b.rewrite_le, [59.0 / 120.0; 3]);
}

fn bio(queue_ns: i64, op: &str, file: i64, offset: i64, sector: i64, len_bytes: i64, rq_id: i64) -> Bio {
    Bio {
        bio_id: -1,
        rq_id: Some(rq_id),
        queue_ns,
        complete_ns: Some(queue_ns + MS),
        dev: DEV,
        sector,
        len_bytes,
        op: op.into(),
        file: Some(file),
        file_offset_bytes: Some(offset),
        class: "data".into(),
        ..Bio::default()
    }
}

#[test]
fn bios_tell_merges_layout_and_what_belongs_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    // File 1 lies in one piece, file 2 in the gaps of file 3. Four bios to a request of file 1.
    let r = reel(dir.path(), S, |w| {
        for i in 0..100 {
            w.bio.push(bio(i * MS, "write", 1, i * 4096, HIGH + i * 8, 4096, 1 + i / 4)).unwrap();
            w.bio.push(bio(i * MS + 1, "write", 2, i * 4096, i * 16, 4096, 100 + i)).unwrap();
            w.bio.push(bio(i * MS + 2, "write", 3, i * 4096, i * 16 + 8, 4096, 300 + i)).unwrap();
        }
        for i in 0..25 {
            let at = i * 4 * MS;
            w.block
                .push(Block { rq_id: 1 + i, ..request("write", at, at + MS, at + 2 * MS, HIGH + i * 32, 32) })
                .unwrap();
        }
        for i in 0..100 {
            let at = i * MS + 5;
            w.block.push(Block { rq_id: 100 + i, ..request("write", at, at, at + 9, i * 16, 8) }).unwrap();
            w.block.push(Block { rq_id: 300 + i, ..request("write", at, at, at + 9, i * 16 + 8, 8) }).unwrap();
        }
        for (file, path) in [(1, "/a/whole"), (2, "/b/x"), (3, "/b/y")] {
            w.files.push(File { file, path: Some(path.into()), kind: "regular".into(), ..File::default() }).unwrap();
        }
    });
    let all = Stats::of(&r, &Scope::default()).unwrap();
    assert_eq!((all.devices[0].queued, all.devices[0].merge_ratio), (Some(300), Some(300.0 / 225.0)));
    assert_eq!((all.layout.files, all.layout.worst[2].file, all.layout.worst[2].extents), (3, 1, 1));
    assert_eq!((all.layout.worst[0].dls, all.layout.worst[2].dls), (0.0, 1.0));
    assert_eq!(all.layout.interleaved[0].files, (2, 3));
    assert!(all.layout.interleaved[0].index > 0.98);

    let scope = Scope { files: Some(files_below(&r, "/a").unwrap()), ..Scope::default() };
    let one = Stats::of(&r, &scope).unwrap();
    assert_eq!(one.devices[0].merge_ratio, Some(4.0));
    assert_eq!((one.devices[0].seeks.candidates, one.devices[0].seeks.exact), (24, 0));

    let half = Stats::of(&r, &Scope { from_ns: Some(50 * MS), to_ns: Some(75 * MS), ..Scope::default() }).unwrap();
    assert_eq!((half.span_ns, half.devices[0].queued), (25 * MS, Some(75)));
    let none = Stats::of(&r, &Scope { device: Some(99), ..Scope::default() }).unwrap();
    assert!(none.devices.is_empty() && none.classes.is_empty());
}

#[test]
fn a_device_without_requests_is_told_by_its_bios() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), S, |w| {
        (0..50)
            .for_each(|i| w.bio.push(Bio { rq_id: None, ..bio(i * MS, "read", 1, i * 4096, i * 8, 4096, 0) }).unwrap());
    });
    let d = only_device(&r);
    assert_eq!((d.d2c_read.count, d.seeks.exact, d.queued), (50, 0, Some(50)));
    assert!(near(d.d2c.p50_ns, MS as u64));
}

fn call(op: &str, start_ns: i64, dur_ns: i64, task_id: i64, file: i64, ret: i64) -> Op {
    Op {
        op_id: -1,
        start_ns,
        dur_ns,
        task_id,
        op: op.into(),
        source: "syscall".into(),
        state: "complete".into(),
        file: (file >= 0).then_some(file),
        ret: Some(ret),
        ..Op::default()
    }
}

#[test]
fn operations_tell_syncs_lookups_and_writers_in_each_others_way() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), 10 * S, |w| {
        for i in 0..100 {
            let at = i * 100 * MS;
            w.ops.push(call("write", at, MS, 1, 7, 3000)).unwrap();
            w.ops.push(call("fsync", at + 2 * MS, 5 * MS, 1, 7, 0)).unwrap();
            w.ops.push(Op { aux: Some(1), ..call("openat", at + 10 * MS, 10, 1, 8, 3) }).unwrap();
            w.ops.push(call("newfstatat", at + 11 * MS, 10, 1, -1, -2)).unwrap();
            w.ops.push(call("newfstatat", at + 12 * MS, 10, 1, -1, 0)).unwrap();
            // Two threads in one file, each in a call of 10 ms all of the time that the other is.
            w.ops.push(call("pwrite64", at + 20 * MS, 10 * MS, 2, 9, 10)).unwrap();
            w.ops.push(call("pwrite64", at + 20 * MS, 10 * MS, 3, 9, 10)).unwrap();
            // Two requests and a flush per sync, one request beside it.
            w.block.push(request("write", at, at + 3 * MS, at + 4 * MS, i * 100, 8)).unwrap();
            w.block.push(request("write", at, at + 3 * MS, at + 4 * MS, i * 100 + 50, 8)).unwrap();
            w.block.push(request("flush", at, at + 5 * MS, at + 6 * MS, -1, 0)).unwrap();
            w.block.push(request("write", at, at + 50 * MS, at + 51 * MS, i * 100 + 70, 8)).unwrap();
            w.bio
                .push(Bio { class: "tree".into(), file: None, ..bio(at, "write", 0, 0, i % 10 * 8, 4096, i) })
                .unwrap();
        }
    });
    let o = Stats::of(&r, &Scope::default()).unwrap().operations.unwrap();
    assert_eq!((o.ops, o.fsync.count, o.fsync.dirty_bytes), (700, 100, 3000.0));
    assert_eq!((o.fsync.requests, o.fsync.flushes), (Some(3.0), Some(1.0)));
    assert!(near(o.fsync.latency.p50_ns, 5 * MS as u64));
    assert_eq!((o.stat_per_open, o.lookup_neg), (Some(2.0), 1.0 / 3.0));
    assert_eq!((o.names_changed, o.index_churn), (100, Some(0.1)));
    assert_eq!(o.md_share, 3.0 / 7.0);
    assert_eq!((o.lock_serial.len(), o.lock_serial[0].file, o.lock_serial[0].threads), (1, 9, 2));
    assert!((o.lock_serial[0].serial - 0.5).abs() < 1e-12);
    // Of one thread alone.
    let scope = Scope { tasks: Some(HashSet::from([2])), ..Scope::default() };
    let alone = Stats::of(&r, &scope).unwrap().operations.unwrap();
    assert_eq!((alone.ops, alone.lock_serial.len()), (100, 0));
}

#[test]
fn what_was_read_ahead_for_nothing_is_waste() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), S, |w| {
        for i in 0..100 {
            let flags = block_flags::READAHEAD;
            w.bio.push(Bio { flags, ..bio(i * MS, "read", 1, i * 16384, i * 32, 16384, i) }).unwrap();
            let read = call("pread64", i * MS, 2 * MS, 1, 1, 4096);
            w.ops.push(Op { offset_bytes: Some(i * 16384), ..read }).unwrap();
        }
    });
    let s = Stats::of(&r, &Scope::default()).unwrap().readahead;
    assert_eq!((s.pages, s.unused, s.ra_waste), (400, 300, 0.75));
}

#[test]
fn reels_of_nothing_and_of_one_event_have_statistics() {
    let dir = tempfile::tempdir().unwrap();
    let empty = reel(dir.path(), 0, |_| {});
    let s = Stats::of(&empty, &Scope::default()).unwrap();
    assert!(s.devices.is_empty() && s.operations.is_none() && !s.values().is_empty());
    let dir = tempfile::tempdir().unwrap();
    let one = reel(dir.path(), 0, |w| w.block.push(request("write", 0, 0, 500, HIGH, 8)).unwrap());
    let d = only_device(&one);
    assert_eq!((d.seeks.candidates, d.seeks.seq_ratio, d.qd_max), (0, 1.0, 1));
    assert!((d.iops - 2e6).abs() < 1.0 && (d.util - 1.0).abs() < 1e-12);
    assert!(d.seeks.hdd_ms == 0.0);
}

#[test]
fn a_reel_of_more_devices_than_there_are_is_told_in_part_and_says_of_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let reel = reel(dir.path(), S, |w| {
        for i in 0..10_000 {
            // The first 96 do two requests each.
            let dev = 1 + i % 9904;
            w.block.push(Block { dev, ..request("write", i, i * 10, i * 10 + 5, i * 8, 8) }).unwrap();
        }
    });
    let stats = Stats::of(&reel, &Scope::default()).unwrap();
    assert_eq!(stats.devices.len(), MOST_DEVICES);
    let told: u64 = stats.devices.iter().flat_map(|d| &d.dispatched).map(|(_, n)| n).sum();
    assert_eq!((told, stats.requests_not_told), (MOST_DEVICES as u64 + 96, 10_000 - MOST_DEVICES as u64 - 96));
}

/// What the kernel does by itself counts; what is part of a call on another file has been counted with the call.
#[test]
fn bytes_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), S, |w| {
        for i in 0..10 {
            let row = |op: &str, source: &str, at: i64, file: i64| Op {
                op_id: -1,
                start_ns: i * 10 * MS + at,
                dur_ns: MS,
                op: op.into(),
                source: source.into(),
                state: "complete".into(),
                file: Some(file),
                ret: Some(4096),
                ..Op::default()
            };
            let parts = vec![(row("write", "syscall", 0, 1), None), (row("vfs_write", "lower", 1, 2), Some(0))];
            w.push_op_tree(parts, false).unwrap();
            w.ops.push(row("vfs_write", "lower", 2 * MS, 3)).unwrap();
            w.ops.push(row("vfs_write", "vfs", 4 * MS, 4)).unwrap();
            w.ops.push(row("vfs_read", "vfs", 6 * MS, 4)).unwrap();
        }
        for file in 1..=4 {
            w.files.push(File { file, kind: "regular".into(), ..File::default() }).unwrap();
        }
    });
    let summary = ioreel_analyze::Summary::of(&r, 10).unwrap();
    let found: Vec<_> = summary.operations.iter().map(|o| (o.op.as_str(), o.count, o.bytes)).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    for op in ["write", "vfs_write", "vfs_read"] {
        assert!(found.contains(&(op, 10, 40960)), "{found:?}");
    }
    let files: HashSet<i64> = summary.files_by_bytes.iter().map(|f| f.file).collect();
    assert_eq!(files, HashSet::from([1, 4]));
    assert_eq!((summary.total.totals.read_bytes, summary.total.totals.write_bytes), (40960, 2 * 40960));
    assert_eq!(Stats::of(&r, &Scope::default()).unwrap().operations.unwrap().ops, 30);
}
