//! Block replay of hand-made bios on files: the content afterwards must be what the bios wrote.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use ioreel_replay::{
    ReplayError,
    block::{BlockReplay, Config, Fit, Report},
    plan::edge::OrderMode,
    run::pace::{CatchUp, Clockwork, Factor, Pace},
    verdict::judgement::Limits,
};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Device, Kind},
    rows::{Bio, Block, block_flags},
};

const DEV: i64 = 8 << 20;
const MIB: i64 = 1 << 20;

fn bio(op: &str, sector: i64, len_bytes: i64, queue_ns: i64) -> Bio {
    Bio {
        bio_id: -1,
        queue_ns,
        complete_ns: Some(queue_ns + 50_000),
        dev: DEV,
        sector,
        len_bytes,
        op: op.into(),
        ..Bio::default()
    }
}

struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    /// A reel with these bios in small segments, on a disk of this size.
    fn new(bios: impl IntoIterator<Item = Bio>, size_bytes: i64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = Device { dev: DEV, name: "sda".into(), size_bytes, ..Device::default() };
        let manifest = Manifest { devices: vec![device], ..Manifest::new(Kind::Synthetic, "test") };
        let options = WriterOptions { segment_rows: 100, ..WriterOptions::default() };
        let mut w = ReelWriter::create(&dir.path().join("r.reel"), &manifest, options).unwrap();
        bios.into_iter().for_each(|b| w.bio.push(b).unwrap());
        w.close(manifest).unwrap();
        Self { dir }
    }

    fn file(&self, name: &str, bytes: i64) -> PathBuf {
        let path = self.dir.path().join(name);
        File::create(&path).unwrap().set_len(bytes as u64).unwrap();
        path
    }

    fn config(&self, device: &Path) -> Config {
        Config {
            reel: self.dir.path().join("r.reel"),
            device: device.into(),
            source: None,
            allow_writes: true,
            fit: Fit::Exact,
            clockwork: Clockwork::default(),
            order: OrderMode::Resource,
            result: None,
            spin_ns: 50_000,
            limits: Limits::default(),
            dry_run: false,
        }
    }
}

fn run(config: Config) -> Report {
    BlockReplay::plan(config).unwrap().run().unwrap()
}

fn refusal(config: Config) -> String {
    let refused = BlockReplay::plan(config).unwrap_err();
    assert!(matches!(refused, ReplayError::Block { .. }), "{refused}");
    refused.to_string()
}

/// Numbers of the 4 KiB blocks that contain data.
fn written(path: &Path) -> Vec<i64> {
    let bytes = fs::read(path).unwrap();
    bytes.chunks(4096).enumerate().filter(|(_, b)| b.iter().any(|b| *b != 0)).map(|(i, _)| i as i64).collect()
}

fn random(seed: &mut u64, below: i64) -> i64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as i64 % below
}

/// Random writes and discards, many of the same blocks and in flight together. The last one queued decides the content.
#[test]
fn what_lies_there_is_what_was_asked_last() {
    let mut seed = 3;
    let mut want = vec![false; 1024];
    let bios: Vec<Bio> = (0..600)
        .map(|i| {
            let (first, n) = (random(&mut seed, 1000), 1 + random(&mut seed, 24));
            let write = random(&mut seed, 3) > 0;
            want[first as usize..(first + n) as usize].fill(write);
            let op = if write { "write" } else { "discard" };
            Bio { complete_ns: Some(i * 1000 + 900_000), ..bio(op, first * 8, n * 4096, i * 1000) }
        })
        .collect();
    let lab = Lab::new(bios, 1024 * 4096);
    let want: Vec<i64> = (0..1024).filter(|b| want[*b as usize]).collect();
    for order in [OrderMode::Resource, OrderMode::Thread, OrderMode::Global, OrderMode::None] {
        for pace in [Pace::Max, Pace::Load, Pace::Original, Pace::Scale(Factor::new(0.5).unwrap())] {
            let file = lab.file("disk", 1024 * 4096);
            let clockwork = Clockwork { pace, catch_up: CatchUp::Compress };
            let report = run(Config { order, clockwork, ..lab.config(&file) });
            assert_eq!((report.done, report.wrong, report.early), (600, 0, 0), "{order:?} {pace:?}");
            assert_eq!(written(&file), want, "{order:?} {pace:?}");
            assert!(report.edges.values().sum::<i64>() > 0);
            assert_eq!(fs::metadata(&file).unwrap().len(), 1024 * 4096, "it never grows");
        }
    }
}

/// Bios without a recorded end are issued all the same.
#[test]
fn without_an_end_they_are_replayed_in_order() {
    let endless = |i: i64| i % 3 == 0;
    let bios = (0..300).map(|i| {
        let all = bio(if i % 2 == 0 { "write" } else { "discard" }, i / 4 * 8, 4096, i * 1000);
        Bio { complete_ns: all.complete_ns.filter(|_| !endless(i)), ..all }
    });
    let lab = Lab::new(bios, 4 * MIB);
    let file = lab.file("disk", 4 * MIB);
    let report = run(lab.config(&file));
    assert_eq!((report.done, report.wrong, report.faithful), (300, 0, true));
    assert_eq!(written(&file), Vec::<i64>::new(), "the last of each place was a discard");
    let then: i64 = report.latencies.iter().map(|l| l.original_ns.count).sum();
    assert_eq!(then, 200, "only those that ended took a time");
}

#[test]
fn without_leave_nothing_changes() {
    let kinds = ["read", "write", "discard", "write_zeroes", "flush"];
    let lab = Lab::new((0..500).map(|i| bio(kinds[i as usize % 5], i * 8, 4096, i * 1000)), 4 * MIB);
    let file = lab.file("disk", 4 * MIB);
    File::options().write(true).open(&file).unwrap().write_all_at(&vec![7; 4 << 20], 0).unwrap();
    let report = run(Config { allow_writes: false, ..lab.config(&file) });
    assert_eq!((report.done, report.bytes, report.faithful), (100, 100 * 4096, true));
    assert_eq!(report.summary.survey.skipped.values().sum::<i64>(), 400);
    assert!(report.sentence.contains("80.0 % of bios skipped"), "{}", report.sentence);
    assert!(fs::read(&file).unwrap().iter().all(|b| *b == 7));
    let report = run(Config { dry_run: true, ..lab.config(&file) });
    assert_eq!(report.done, 500);
    assert!(fs::read(&file).unwrap().iter().all(|b| *b == 7), "nor does a dry run change anything");
}

#[test]
fn addresses_are_scaled_or_wrapped_into_a_smaller_file() {
    // One write of 4 KiB in each GiB of a terabyte, and one at its end.
    let tib = 1i64 << 40;
    let far = (0..1024).map(|i| bio("write", i << 21, 4096, i * 1000));
    let lab = Lab::new(far.chain([bio("write", (tib - 4096) / 512, 4096, 1 << 30)]), tib);
    let file = lab.file("disk", 64 * MIB);
    let why = refusal(lab.config(&file));
    assert!(why.contains("--fit scale") && why.contains("sda"), "{why}");
    let report = run(Config { fit: Fit::Wrap, ..lab.config(&file) });
    assert_eq!((report.done, report.wrong, report.adjusted), (1025, 0, 0));
    assert_eq!(written(&file), [0, 64 * MIB / 4096 - 1]);
    let file = lab.file("disk2", 256 * MIB);
    let report = run(Config { fit: Fit::Scale, ..lab.config(&file) });
    assert_eq!((report.done, report.wrong), (1025, 0));
    let there = written(&file);
    // Every piece of 16 MiB is written at its start, the last one also at its end.
    let starts: Vec<i64> = (0..16).map(|i| i * 16 * MIB / 4096).collect();
    assert!(starts.iter().all(|s| there.contains(s)) && there.len() == 17, "{there:?}");
}

#[test]
fn the_schedule_is_kept_and_late_is_told() {
    let lab = Lab::new((0..200).map(|i| bio("read", i * 8, 4096, i * 2_000_000)), MIB);
    let file = lab.file("disk", MIB);
    let clockwork = Clockwork { pace: Pace::Original, catch_up: CatchUp::Compress };
    let report = run(Config { clockwork, ..lab.config(&file) });
    assert_eq!((report.done, report.early), (200, 0));
    assert!((398_000_000..2_000_000_000).contains(&report.elapsed_ns), "{}", report.elapsed_ns);
    assert_eq!(report.concurrency.original_max, 1);
    let clockwork = Clockwork { pace: Pace::Scale(Factor::new(0.1).unwrap()), catch_up: CatchUp::Shift };
    let report = run(Config {
        clockwork,
        limits: Limits { own_lateness_ns: i64::MAX, ..Limits::default() },
        ..lab.config(&file)
    });
    assert!(report.elapsed_ns >= 39_800_000, "{}", report.elapsed_ns);
    let none = Clockwork { pace: Pace::Original, catch_up: CatchUp::None };
    assert!(refusal(Config { clockwork: none, ..lab.config(&file) }).contains("--catch-up"));
    let think = Clockwork { pace: Pace::Think, catch_up: CatchUp::Compress };
    assert!(refusal(Config { clockwork: think, ..lab.config(&file) }).contains("think"));
}

/// 32 were in flight in the recording. No more may be in flight here.
#[test]
fn the_number_in_flight_is_kept() {
    let lab = Lab::new(
        (0..2000).map(|i| Bio { complete_ns: Some(i * 1000 + 31_500), ..bio("read", i % 1000 * 8, 4096, i * 1000) }),
        4 * MIB,
    );
    let file = lab.file("disk", 4 * MIB);
    let clockwork = Clockwork { pace: Pace::Load, catch_up: CatchUp::Compress };
    let report = run(Config { clockwork, order: OrderMode::None, ..lab.config(&file) });
    assert_eq!((report.done, report.concurrency.original_max), (2000, 32));
    assert!((1..=32).contains(&report.concurrency.replay_max), "{:?}", report.concurrency);
}

/// Waiting until fewer are in flight is due to the device. Lateness after that is the replayer's, and counts against
/// the limit.
#[test]
fn waiting_for_a_place_is_not_the_replayer_s_and_its_own_lateness_turns_the_verdict() {
    let lab = Lab::new(
        (0..2000).map(|i| Bio { complete_ns: Some(i * 1000 + 15_500), ..bio("read", i % 1000 * 8, 4096, i * 1000) }),
        4 * MIB,
    );
    let file = lab.file("disk", 4 * MIB);
    let clockwork = Clockwork { pace: Pace::Load, catch_up: CatchUp::Compress };
    for order in [OrderMode::None, OrderMode::Thread, OrderMode::Resource, OrderMode::Global] {
        let with = |own_lateness_ns| {
            let limits = Limits { own_lateness_ns, ..Limits::default() };
            run(Config { clockwork, order, limits, ..lab.config(&file) })
        };
        let report = with(i64::MAX);
        assert!(report.faithful, "{order:?}: {}", report.sentence);
        // A bio's turn comes when the previous one is issued, so the sum of latenesses is at most the elapsed time.
        let (sum_ns, elapsed_ns) = (report.own_ns.mean * report.own_ns.count, report.elapsed_ns);
        assert!((1..=elapsed_ns).contains(&sum_ns), "{order:?}: {sum_ns} ns of {elapsed_ns} ns");
        assert_eq!((report.own_ns.count, report.early), (2000, 0));
        let report = with(0);
        assert!(!report.faithful && report.sentence.contains("was late (mean"), "{order:?}: {}", report.sentence);
    }
}

#[test]
fn what_cannot_be_issued_is_counted_and_nothing_panics() {
    let odd = |b: Bio, f: fn(&mut Bio)| {
        let mut b = b;
        f(&mut b);
        b
    };
    let base = || bio("write", 8, 4096, 10);
    let bios = [
        base(),
        odd(base(), |b| b.sector = -1),
        odd(base(), |b| b.sector = i64::MIN),
        odd(base(), |b| b.sector = i64::MAX),
        odd(base(), |b| b.len_bytes = 0),
        odd(base(), |b| b.len_bytes = -4096),
        odd(base(), |b| b.len_bytes = i64::MAX),
        odd(base(), |b| b.len_bytes = 1 << 40),
        odd(base(), |b| b.complete_ns = None),
        odd(base(), |b| b.error = Some(5)),
        odd(base(), |b| b.op = "zone_append".into()),
        odd(base(), |b| b.op = "frobnicate".into()),
        odd(base(), |b| (b.queue_ns, b.complete_ns) = (i64::MIN, Some(i64::MAX))),
        odd(base(), |b| (b.queue_ns, b.complete_ns) = (100, Some(3))),
        odd(base(), |b| (b.op, b.sector, b.len_bytes) = ("flush".into(), -1, 0)),
        odd(base(), |b| (b.flags, b.sector, b.len_bytes) = (block_flags::PREFLUSH, -1, 0)),
        odd(base(), |b| b.flags = block_flags::PREFLUSH | block_flags::FUA),
        odd(base(), |b| b.dev = 99),
    ];
    let lab = Lab::new(bios, MIB);
    let file = lab.file("disk", MIB);
    let report = run(lab.config(&file));
    assert_eq!((report.done, report.summary.survey.ios, report.wrong), (6, 6, 0), "{:?}", report.summary.survey);
    assert_eq!(report.summary.survey.skipped.values().sum::<i64>(), 11);
    assert_eq!(written(&file), [1]);
}

#[test]
fn devices_that_will_not_do_are_refused() {
    let lab = Lab::new([bio("write", 8, 4096, 10)], MIB);
    for (path, what) in [("/dev/null", "neither"), ("/proc", "neither"), ("/nowhere/x", "cannot")] {
        let why = refusal(lab.config(Path::new(path)));
        assert!(why.contains(what) && why.lines().count() == 1, "{why}");
    }
    let empty = lab.file("empty", 0);
    assert!(refusal(lab.config(&empty)).contains("the file is empty"));
    let disk = lab.file("disk", MIB);
    assert!(refusal(Config { source: Some("sdz".into()), ..lab.config(&disk) }).contains("sda"));
    assert!(refusal(Config { allow_writes: false, ..lab.config(&disk) }).contains("--allow-writes"));
}

/// An imported reel has requests but no bios.
#[test]
fn requests_do_where_there_are_no_bios_and_the_result_is_a_reel() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = Manifest::new(Kind::Import, "test");
    let mut w = ReelWriter::create(&dir.path().join("r.reel"), &manifest, WriterOptions::default()).unwrap();
    for i in 0..100 {
        let (issue_ns, complete_ns) = (i * 1000, Some(i * 1000 + 500));
        let op = "write".into();
        w.block
            .push(Block {
                rq_id: -1,
                issue_ns,
                complete_ns,
                dev: DEV,
                sector: i * 16,
                len_bytes: 4096,
                op,
                ..Block::default()
            })
            .unwrap();
    }
    w.close(manifest).unwrap();
    let lab = Lab { dir };
    let file = lab.file("disk", MIB);
    let result = lab.dir.path().join("result.reel");
    let report = run(Config { result: Some(result.clone()), ..lab.config(&file) });
    assert_eq!((report.done, report.summary.table), (100, "block"));
    assert_eq!(written(&file), (0..100).map(|i| i * 2).collect::<Vec<_>>());
    let reel = Reel::open(&result).unwrap();
    let rows = reel.read::<Bio>().unwrap();
    assert_eq!((rows.len(), reel.manifest.kind), (100, Kind::Replay));
    let mut places: Vec<i64> = rows.iter().map(|b| b.sector).collect();
    places.sort_unstable();
    assert_eq!(places, (0..100).map(|i| i * 16).collect::<Vec<_>>());
    assert!(rows.iter().all(|b| b.complete_ns.is_some_and(|c| c >= b.queue_ns) && b.error == Some(0)));
    assert!(reel.manifest.replay.as_ref().is_some_and(|r| r.done == 100 && r.faithful == Some(true)));
}

/// The replayed reel cannot be the device to write, and nothing is written into it.
#[test]
fn the_reel_that_is_replayed_is_no_device_and_no_place_for_a_result() {
    let lab = Lab::new((0..500).map(|i| bio("write", i * 8, 4096, i * 1000)), MIB);
    let reel = lab.dir.path().join("r.reel");
    let segment = Reel::open(&reel).unwrap().segments::<Bio>().remove(0);
    let before = fs::read(&segment).unwrap();
    let (link, twin) = (lab.dir.path().join("link"), lab.dir.path().join("twin"));
    std::os::unix::fs::symlink(&segment, &link).unwrap();
    fs::hard_link(&segment, &twin).unwrap();
    for device in [&segment, &link, &twin, &reel.join("manifest.json")] {
        let refused = BlockReplay::plan(Config { fit: Fit::Wrap, ..lab.config(device) }).unwrap_err();
        let told = refused.to_string();
        assert!(matches!(refused, ReplayError::InReel { what: "--device", .. }), "{told}");
        assert!(told.contains("name a place outside it") && told.lines().count() == 1, "{told}");
    }
    let disk = lab.file("disk", 4 * MIB);
    for result in [reel.join("out.reel"), reel.join("bio/out.reel"), reel.join("../r.reel/out.reel"), reel.clone()] {
        let refused = BlockReplay::plan(Config { result: Some(result), ..lab.config(&disk) }).unwrap_err();
        assert!(matches!(refused, ReplayError::InReel { what: "-o", .. }), "{refused}");
    }
    assert_eq!(written(&disk), Vec::<i64>::new());
    assert_eq!(fs::read(&segment).unwrap(), before);
    let result = lab.dir.path().join("r.reel.out");
    assert!(run(Config { result: Some(result), ..lab.config(&disk) }).faithful, "beside it is not in it");
}
