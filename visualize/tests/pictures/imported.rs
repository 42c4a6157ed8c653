//! The stages of imported block traces whose truth is known: made record by record, imported, told and drawn.

use std::{fs, path::Path};

use ioreel_analyze::{
    Scope, Stats,
    events::stages::{MOST_ACTIONS, Moments, too_many},
    meters::latency::LatencySummary,
    stats::DeviceStats,
};
use ioreel_traces::{
    Reel,
    blktrace::{Record, act, category},
    import,
    rows::{Bio, Block},
};
use ioreel_visualize::canvas::theme::Ink;

use crate::{
    common::{MS, S},
    lines::draw,
};

const W: u32 = category::WRITE;
const R: u32 = category::READ;
const US: i64 = 1000;
/// The clock of the machine at the first record.
const BASE: i64 = 77 * S;
/// Queueing to making, to the scheduler, to the driver, to the end.
const Q2G: i64 = 3 * US;
const G2I: i64 = 7 * US;
const I2D: i64 = 20 * US;
const D2C: i64 = 500 * US;

/// The files of a trace of one device by a machine of two CPUs.
struct Trace {
    dev: u32,
    records: Vec<(i64, Record, Vec<u8>)>,
}

impl Trace {
    fn add(&mut self, at_ns: i64, action: u32, sector: i64, sectors: i64) {
        let payload = Vec::new();
        self.add_with(at_ns, action, sector, sectors, payload);
    }

    fn add_with(&mut self, at_ns: i64, action: u32, sector: i64, sectors: i64, payload: Vec<u8>) {
        let record = Record {
            time_ns: (BASE + at_ns) as u64,
            sector: sector as u64,
            bytes: (sectors * 512) as u32,
            action,
            dev: self.dev,
            payload_bytes: payload.len() as u16,
            ..Record::default()
        };
        self.records.push((at_ns, record, payload));
    }

    /// From the queueing at `at` to the end, of a request nobody merges to.
    fn plain(&mut self, at: i64, kind: u32, sector: i64, sectors: i64) {
        let steps = [(0, act::QUEUE), (Q2G, act::GET_RQ), (G2I, act::INSERT), (I2D, act::ISSUE), (D2C, act::COMPLETE)];
        let mut t = at;
        for (after, action) in steps {
            t += after;
            self.add(t, action | kind, sector, sectors);
        }
    }

    /// Writes the files; of the second CPU's, records `lost` are missing.
    fn write(mut self, dir: &Path, name: &str, lost: std::ops::Range<u32>) {
        self.records.sort_by_key(|r| r.0);
        let mut files = [Vec::new(), Vec::new()];
        let mut numbers = [0u32; 2];
        for (i, (_, record, payload)) in self.records.into_iter().enumerate() {
            let cpu = usize::from(i % 3 == 0);
            numbers[cpu] += 1;
            if cpu == 1 && lost.contains(&numbers[1]) {
                continue;
            }
            let record = Record { sequence: numbers[cpu], cpu: cpu as u32, ..record };
            files[cpu].extend_from_slice(&record.to_bytes());
            files[cpu].extend_from_slice(&payload);
        }
        for (cpu, bytes) in files.into_iter().enumerate() {
            fs::write(dir.join(format!("{name}.blktrace.{cpu}")), bytes).unwrap();
        }
    }
}

fn imported(dir: &Path, names: &[&str]) -> Reel {
    let out = dir.join("r.reel");
    let inputs: Vec<_> = names.iter().map(|n| dir.join(n)).collect();
    import::blktrace::import(&inputs, &out).unwrap();
    Reel::open(out).unwrap()
}

fn devices(reel: &Reel) -> Vec<DeviceStats> {
    let mut all = Stats::of(reel, &Scope::default()).unwrap().devices;
    all.sort_by_key(|d| d.dev);
    all
}

/// So many, all of this length.
fn all(l: &LatencySummary, n: i64, ns: i64, what: &str) {
    assert_eq!((l.count as i64, l.total_ns as i64), (n, n * ns), "{what}");
}

/// Long because it is one trace of two disks, event by event, and what must be said of it.
#[test]
fn stages_of_merged_requests() {
    let dir = tempfile::tempdir().unwrap();
    let n = 900;
    let far = (1 << 40) - (1 << 24);
    // One a millisecond, at the end of 2^40 sectors; a bio each is merged to its end and to its front before it is issued.
    let mut sda = Trace { dev: 8 << 20, records: Vec::new() };
    for i in 0..n {
        let (at, sector) = (i * MS, far + i * 24);
        sda.add(at, act::QUEUE | W, sector + 8, 8);
        sda.add(at + Q2G, act::GET_RQ | W, sector + 8, 8);
        sda.add(at + 4 * US, act::QUEUE | W, sector + 16, 8);
        sda.add(at + 4 * US, act::BACK_MERGE | W, sector + 16, 8);
        sda.add(at + 5 * US, act::QUEUE | W, sector, 8);
        sda.add(at + 5 * US, act::FRONT_MERGE | W, sector, 8);
        sda.add(at + Q2G + G2I, act::INSERT | W, sector, 24);
        sda.add(at + Q2G + G2I + I2D, act::ISSUE | W, sector, 24);
        sda.add(at + Q2G + G2I + I2D + D2C, act::COMPLETE | W, sector, 24);
    }
    // The other device: reads of one place over and over, discards and flushes; every tenth read is taken back once.
    let mut sdb = Trace { dev: 8 << 20 | 16, records: Vec::new() };
    for i in 0..n {
        let at = i * MS + 100 * US;
        if i % 10 == 0 {
            let issue = at + Q2G + G2I + I2D;
            for (t, action) in [
                (at, act::QUEUE),
                (at + Q2G, act::GET_RQ),
                (at + Q2G + G2I, act::INSERT),
                (issue, act::ISSUE),
                (issue + 10 * US, act::REQUEUE),
                (issue + 50 * US, act::INSERT),
                (issue + 60 * US, act::ISSUE),
                (issue + 60 * US + D2C, act::COMPLETE),
            ] {
                sdb.add(t, action | R, 4096, 8);
            }
        } else {
            sdb.plain(at, R, 4096, 8);
        }
    }
    for i in 0..20 {
        sdb.plain(i * 40 * MS + 700 * US, W | category::DISCARD, 1 << 30, 1 << 20);
        let at = i * 40 * MS + 800 * US;
        sdb.add(at, act::ISSUE | category::FLUSH, 0, 0);
        sdb.add(at + D2C, act::COMPLETE | category::FLUSH, 0, 0);
    }
    // The last end is at one second.
    sda.plain(S - Q2G - G2I - I2D - D2C, W, 0, 8);
    sda.write(dir.path(), "sda", 0..0);
    sdb.write(dir.path(), "sdb", 0..0);
    let reel = imported(dir.path(), &["sda", "sdb"]);
    assert_eq!((reel.manifest.lost(), reel.manifest.warnings.len()), (0, 0), "{:?}", reel.manifest.warnings);
    let d = devices(&reel);
    assert_eq!((&*d[0].name, &*d[1].name, d.len()), ("sda", "sdb", 2));
    let a = &d[0];
    all(&a.q2g, n + 1, Q2G, "Q2G of sda");
    all(&a.g2i, n + 1, G2I, "G2I of sda");
    all(&a.i2d, n + 1, I2D, "I2D of sda");
    all(&a.q2d, n + 1, Q2G + G2I + I2D, "Q2D of sda");
    all(&a.d2c, n + 1, D2C, "D2C of sda");
    all(&a.q2c, n + 1, Q2G + G2I + I2D + D2C, "Q2C of sda");
    assert_eq!((a.queued, a.merge_ratio), (Some(3 * n as u64 + 1), Some((3 * n + 1) as f64 / (n + 1) as f64)));
    // Q2Q: 4 us, 1 us, and what is left of the millisecond, but for the last.
    assert_eq!(a.q2q.total_ns as i64, S - Q2G - G2I - I2D - D2C);
    assert_eq!((a.seeks.exact, a.seeks.candidates), (1, n as u64), "each goes on where the one before ended");
    let b = &d[1];
    let taken_back = 60 * US * n / 10;
    all(&b.q2g, n + 20, Q2G, "Q2G of sdb");
    all(&b.g2i, n + 20, G2I, "G2I of sdb");
    assert_eq!(b.i2d.total_ns as i64, (n + 20) * I2D + taken_back);
    assert_eq!(b.q2d.total_ns as i64, (n + 20) * (Q2G + G2I + I2D) + taken_back);
    all(&b.d2c_read, n, D2C, "D2C of sdb");
    all(&b.d2c_flush, 20, D2C, "D2C of flushes");
    let count = |d: &DeviceStats, name: &str| d.dispatched.iter().find(|(c, _)| c.name() == name).map(|(_, n)| *n);
    assert_eq!((count(b, "read"), count(b, "discard"), count(b, "flush")), (Some(n as u64), Some(20), Some(20)));
    assert_eq!((b.write_mbps, count(b, "write")), (0.0, None), "a discard is no write");
    let rows = reel.read::<Block>().unwrap();
    assert_eq!(rows.iter().filter(|r| r.requeues == Some(1)).count() as i64, n / 10);
    // The picture: each stage's share of the time of those that ended in a bin.
    let drawn = draw(&reel, "stages");
    let known: Vec<(i64, [i64; 4])> =
        rows.iter().filter(|r| r.dev == 8 << 20).map(|r| (r.complete_ns.unwrap(), [Q2G, G2I, I2D, D2C])).collect();
    for (stage, ink) in [Ink::Hue(5), Ink::Hue(4), Ink::Other, Ink::Read].into_iter().enumerate() {
        drawn.edge_of(ink).check(&format!("stage {stage}"), ink, &|from, to| {
            let done: Vec<&[i64; 4]> =
                known.iter().filter(|(t, _)| (from..to).contains(t)).map(|(_, stages)| stages).collect();
            let all: i64 = done.iter().flat_map(|s| s.iter()).sum();
            let until: i64 = done.iter().flat_map(|s| &s[..=stage]).sum();
            if all == 0 { 0.0 } else { until as f64 * 100.0 / all as f64 }
        });
    }
}

#[test]
fn splits_lost_records_and_next_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // 64 sectors are cut into two requests of 24 and 40, made one after the other.
    let mut sda = Trace { dev: 8 << 20, records: Vec::new() };
    let n = 200;
    for i in 0..n {
        let (at, sector) = (i * MS, (1 << 39) + i * 64);
        sda.add(at, act::QUEUE | R, sector, 64);
        sda.add_with(at + US, act::SPLIT | R, sector, 64, (sector + 24).to_be_bytes().to_vec());
        for (k, (from, len)) in [(0, 24), (24, 40)].into_iter().enumerate() {
            let at = at + 10 * US * k as i64;
            sda.add(at + Q2G, act::GET_RQ | R, sector + from, len);
            sda.add(at + Q2G + G2I, act::INSERT | R, sector + from, len);
            sda.add(at + Q2G + G2I + I2D, act::ISSUE | R, sector + from, len);
            sda.add(at + Q2G + G2I + I2D + D2C, act::COMPLETE | R, sector + from, len);
        }
    }
    sda.write(dir.path(), "sda", 0..0);
    let reel = imported(dir.path(), &["sda"]);
    let d = devices(&reel).remove(0);
    assert_eq!((d.q2g.count as i64, d.q2g.total_ns as i64), (2 * n, n * (2 * Q2G + 10 * US)));
    all(&d.g2i, 2 * n, G2I, "G2I of pieces");
    all(&d.i2d, 2 * n, I2D, "I2D of pieces");
    assert_eq!((d.queued, d.merge_ratio), (Some(2 * n as u64), Some(1.0)));
    assert_eq!(reel.read::<Bio>().unwrap().iter().map(|b| b.len_bytes).sum::<i64>(), n * 64 * 512);

    // Lost: the numbers of the second CPU from 50 to 59 are missing, where and how many is told.
    let lossy = tempfile::tempdir().unwrap();
    let mut sda = Trace { dev: 8 << 20, records: Vec::new() };
    (0..100).for_each(|i| sda.plain(i * MS, W, i * 8, 8));
    sda.write(lossy.path(), "sda", 50..60);
    let reel = imported(lossy.path(), &["sda"]);
    let m = &reel.manifest;
    assert_eq!((m.lost(), m.losses.len(), m.losses[0].events, m.losses[0].cpu), (10, 1, 10, 1));
    // Every third of five records a millisecond is the second CPU's: the 49th is number 144 of all, the 60th number 177.
    let at = |record: i64| {
        record / 5 * MS + [0, Q2G, Q2G + G2I, Q2G + G2I + I2D, Q2G + G2I + I2D + D2C][record as usize % 5]
    };
    assert_eq!((m.losses[0].from_ns, m.losses[0].to_ns), (at(144), at(177)));

    // One event, and one that is not the beginning of anything.
    for (action, sectors) in [(act::QUEUE | R, 8), (act::ISSUE | W, 8), (act::COMPLETE | R, 8), (act::PLUG, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let mut sda = Trace { dev: 8 << 20, records: Vec::new() };
        sda.add(0, action, 1 << 40, sectors);
        sda.write(dir.path(), "sda", 0..0);
        let reel = imported(dir.path(), &["sda"]);
        let told = devices(&reel);
        let (bios, requests) = (action & 0xffff == act::QUEUE, action & 0xffff == act::ISSUE);
        assert_eq!(told.len(), usize::from(bios || requests), "{action:x}");
        assert!(told.iter().all(|d| d.incomplete == 1 && d.q2g.count == 0 && d.d2c.count == 0), "{action:x}");
        draw(&reel, "stages");
    }
}

#[test]
fn of_too_many_records_it_is_said_that_stages_are_not_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut sda = Trace { dev: 8 << 20, records: Vec::new() };
    let n = 50;
    (0..n).for_each(|i| sda.plain(i * MS, W, i * 8, 8));
    sda.write(dir.path(), "sda", 0..0);
    let mut reel = imported(dir.path(), &["sda"]);
    // Five records of each: as many as are looked at, and one more.
    assert!(Moments::of(&reel, 5 * n).unwrap().is_some() && too_many(&reel, 5 * n).is_none());
    assert!(Moments::of(&reel, 5 * n - 1).unwrap().is_none() && too_many(&reel, 5 * n - 1) == Some(5 * n));
    let stats = Stats::of(&reel, &Scope::default()).unwrap();
    assert_eq!((stats.devices[0].q2g.count as i64, stats.stages_not_told), (n, None));
    assert!(!draw(&reel, "stages").svg.contains("no Q2G"));
    // A reel of so many is told by its manifest, before any record is read.
    reel.manifest.segments.get_mut("actions").unwrap()[0].rows = MOST_ACTIONS + 1;
    let stats = Stats::of(&reel, &Scope::default()).unwrap();
    let d = &stats.devices[0];
    assert_eq!((d.q2g.count, d.g2i.count, d.i2d.count), (0, 0, 0));
    assert_eq!((d.q2d.count as i64, stats.stages_not_told), (n, Some(8_000_001)));
    let svg = draw(&reel, "stages").svg;
    assert!(svg.contains("no Q2G, G2I: 8,000,001 records, the limit is 8,000,000"), "{svg}");
}
