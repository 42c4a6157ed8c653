//! Every statistic that `ioreel stats --json` prints, against counting out: the two documents must have the same members, and each
//! number must be the same. Percentiles and extremes of latencies are kept to three digits.
#![expect(clippy::unwrap_used, reason = "tests")]

mod kept;
mod naive;

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
    time::Duration,
};

use ioreel_analyze::{Scope, Stats, stats::compare::compare};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Device, Kind, Span},
    rotate::Keep,
    rows::{Bio, Block, Op, block_flags},
};
use naive::World;
use serde_json::Value;

const MS: i64 = 1_000_000;
const S: i64 = 1_000_000_000;
/// A disk with bios, one without, and one that works on bios alone.
const DEVICES: [(i64, &str, i64); 3] =
    [(8 << 20, "sda", 4096), (259 << 20 | 3, "nvme0n1p3", 512), (253 << 20, "dm-0", 512)];
/// Addresses that 32-bit floats and 32-bit sectors cannot hold.
const HIGH: i64 = (1 << 40) - (1 << 30);

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 24) as i64) % n
    }
}

/// Where a page of a file lies: in runs of eight, those of the files 1 and 2 in turn.
fn place(file: i64, page: i64) -> i64 {
    HIGH + (file / 3) * (1 << 24) + ((page / 8) * 24 + page % 8 + (file % 3) * 8) * 8
}

/// `n` requests of each kind of device, with their bios, and calls, over `step_ns * n`.
///
/// Long because one sequence of random numbers makes all tables: a part taken out would change the others.
fn world(seed: u64, n: i64, step_ns: i64) -> World {
    let mut rng = Lcg(seed);
    let mut w = World { span_ns: n * step_ns + 10 * step_ns + 200 * MS, ..World::default() };
    let (mut rq_id, mut bio_id) = (0, 0);
    for i in 0..n {
        let issue_ns = i * step_ns + rng.below(step_ns / 2);
        let took_ns = 1 + rng.below(if i % 50 == 0 { 90 * MS } else { 3 * step_ns });
        // One in 40 never ends, one in 60 fails, of one in 70 the clock jumped.
        let complete_ns = match rng.below(210) {
            0..5 => None,
            5..8 => Some(issue_ns - rng.below(step_ns)),
            _ => Some(issue_ns + took_ns),
        };
        let queue_ns = issue_ns - rng.below(2 * step_ns) - 1;
        let error = if rng.below(60) == 0 { 5 } else { 0 };
        let (dev, class) =
            (DEVICES[0].0, ["data", "data", "data", "journal", "tree", "directory"][rng.below(6) as usize]);
        let op = if class == "data" { ["read", "write"][rng.below(2) as usize] } else { "write" };
        let (file, page, pages) = (1 + rng.below(6), rng.below(40), 1 + rng.below(4));
        let sector = if class == "data" { place(file, page / 4 * 4) } else { (page + 7) * 8 };
        for k in 0..pages {
            w.bios.push(Bio {
                bio_id,
                rq_id: Some(rq_id),
                queue_ns: queue_ns + k,
                complete_ns: complete_ns.filter(|c| *c >= queue_ns + k),
                dev,
                sector: sector + k * 8,
                len_bytes: 4096,
                op: op.into(),
                flags: if op == "read" && file < 4 { block_flags::READAHEAD } else { 0 },
                task_id: Some(1 + rng.below(3)),
                file: (class == "data").then_some(file),
                file_offset_bytes: (class == "data").then_some((page / 4 * 4 + k) * 4096),
                class: class.into(),
                ..Bio::default()
            });
            bio_id += 1;
        }
        let row = Block {
            rq_id,
            queue_ns: Some(queue_ns),
            issue_ns,
            complete_ns,
            dev,
            sector,
            len_bytes: pages * 4096,
            op: op.into(),
            error,
            requeues: Some(i32::from(i % 9 == 0)),
            ..Block::default()
        };
        w.blocks.push(row.clone());
        rq_id += 1;
        // A disk of all kinds of requests, of odd sizes at odd places, and of which nobody knows the bios.
        let op = ["read", "write", "discard", "flush", "write_zeroes", "zone_append", "read", "secure_erase"]
            [rng.below(8) as usize];
        let flush = op == "flush";
        w.blocks.push(Block {
            rq_id,
            queue_ns: (i % 5 != 0).then_some(queue_ns),
            dev: DEVICES[1].0,
            sector: if flush { -1 } else { HIGH + rng.below(if i % 3 == 0 { 40 } else { 1 << 20 }) },
            len_bytes: if flush { 0 } else { 512 * (1 + rng.below(100)) + rng.below(2) * 100 },
            op: op.into(),
            ..row
        });
        rq_id += 1;
        let queue_ns = issue_ns + 7;
        w.bios.push(Bio {
            bio_id,
            rq_id: None,
            queue_ns,
            complete_ns: complete_ns.map(|c| c.max(queue_ns)),
            dev: DEVICES[2].0,
            sector: rng.below(2000) * 8,
            len_bytes: 4096 * (1 + rng.below(3)),
            op: ["read", "write"][rng.below(2) as usize].into(),
            class: "unknown".into(),
            task_id: Some(1),
            ..Bio::default()
        });
        bio_id += 1;
        w.ops.extend(call(&mut rng, i, i * step_ns, step_ns));
    }
    w
}

fn call(rng: &mut Lcg, i: i64, at: i64, step_ns: i64) -> Option<Op> {
    let name =
        ["pread64", "pwrite64", "pwrite64", "fsync", "openat", "newfstatat", "unlink", "lseek"][rng.below(8) as usize];
    let file = 1 + rng.below(6);
    let named = ["openat", "newfstatat", "unlink"].contains(&name);
    let in_flight = i % 77 == 76;
    let ret = match name {
        "pread64" | "pwrite64" if rng.below(20) > 0 => rng.below(30_000),
        "pread64" | "pwrite64" => -5,
        "fsync" | "lseek" => 0,
        _ => [-2, 0, 3][rng.below(3) as usize],
    };
    Some(Op {
        op_id: i,
        start_ns: at + rng.below(step_ns / 2),
        dur_ns: if in_flight { 0 } else { 1 + rng.below(4 * step_ns) },
        task_id: 1 + rng.below(3),
        op: if i == 50 { "mmap" } else { name }.into(),
        source: if i % 101 == 100 { "tool" } else { "syscall" }.into(),
        state: if in_flight { "in_flight_at_end" } else { "complete" }.into(),
        file: (!named).then_some(if i == 50 { 3 } else { file }),
        offset_bytes: Some(rng.below(40) * 4096),
        aux: Some(rng.below(2)),
        ret: (!in_flight).then_some(ret),
        ..Op::default()
    })
}

/// The reel, its rows in the order in which a recorder learns of them: that of their ends.
fn reel(dir: &Path, w: &World) -> Reel {
    rotated(dir, w, Keep::default())
}

/// The same reel, of which rotation keeps only a part.
fn rotated(dir: &Path, w: &World, keep: Keep) -> Reel {
    let device = |(dev, name, phys): (i64, &str, i64)| Device {
        dev,
        name: name.into(),
        physical_block_bytes: phys,
        ..Device::default()
    };
    let manifest = Manifest {
        span: Span { elapsed_ns: w.span_ns, ..Span::default() },
        devices: DEVICES.map(device).to_vec(),
        ..Manifest::new(Kind::Synthetic, "test")
    };
    // Small segments, which overlap: every statistic must hold across them.
    let options = WriterOptions { segment_rows: 97, segment_age: Duration::MAX };
    let mut writer = ReelWriter::create(&dir.join("r.reel"), &manifest, options).unwrap();
    let (mut blocks, mut bios, mut ops) = (w.blocks.clone(), w.bios.clone(), w.ops.clone());
    blocks.sort_by_key(|b| b.complete_ns.unwrap_or(i64::MAX));
    bios.sort_by_key(|b| b.complete_ns.unwrap_or(i64::MAX));
    ops.sort_by_key(|o| o.start_ns + o.dur_ns);
    blocks.into_iter().for_each(|b| writer.block.push(b).unwrap());
    bios.into_iter().for_each(|b| writer.bio.push(b).unwrap());
    ops.into_iter().for_each(|o| writer.ops.push(o).unwrap());
    // Rotation drops whole segments.
    writer.flush().unwrap();
    writer.rotate(keep, w.span_ns, &[]).unwrap();
    writer.close(manifest).unwrap();
    Reel::open(dir.join("r.reel")).unwrap()
}

/// Holds one document against the other and returns the numbers compared.
fn check(name: &str, want: &Value, got: &Value) -> usize {
    let (mut numbers, mut wrong) = (0, Vec::new());
    differ(name, want, got, &mut numbers, &mut wrong);
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    numbers
}

fn differ(path: &str, want: &Value, got: &Value, numbers: &mut usize, wrong: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = |o: &serde_json::Map<String, Value>| o.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(a), keys(b), "{path}: members");
            a.iter().for_each(|(k, v)| differ(&format!("{path}.{k}"), v, &b[k], numbers, wrong));
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| differ(&format!("{path}[{i}]"), a, b, numbers, wrong));
        }
        (Value::Number(a), Value::Number(b)) => {
            *numbers += 1;
            let (want, got) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            let digits = ["min_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns"];
            let rough = digits.iter().any(|d| path.ends_with(d));
            let slack = if rough { want.abs() * 1e-3 } else { want.abs() * 1e-9 };
            if (want - got).abs() > slack + 1e-12 {
                wrong.push(format!("{path}: {got}, but it is {want}"));
            }
        }
        _ if want == got => *numbers += 1,
        _ => wrong.push(format!("{path}: {got}, but it is {want}")),
    }
}

fn told(w: &World, scope: &Scope) -> Value {
    let dir = tempfile::tempdir().unwrap();
    serde_json::to_value(Stats::of(&reel(dir.path(), w), scope).unwrap()).unwrap()
}

#[test]
fn every_number_is_what_counting_out_gives() {
    for (seed, n, step_ns) in [(1, 700, MS), (2, 300, 100_000), (3, 400, 150 * MS), (4, 100, 2_000)] {
        let w = world(seed, n, step_ns);
        let numbers = check(&format!("seed {seed}"), &naive::stats(&w, &DEVICES), &told(&w, &Scope::default()));
        assert!(numbers > 300, "{numbers}");
    }
}

#[test]
fn parts_are_what_counting_them_out_gives() {
    let all = world(5, 500, MS);
    // A window.
    let (from, to) = (100 * MS, 350 * MS);
    let mut w = all.clone();
    (w.from_ns, w.span_ns) = (from, to - from);
    w.blocks.retain(|b| (from..to).contains(&b.issue_ns));
    w.bios.retain(|b| (from..to).contains(&b.queue_ns));
    w.ops.retain(|o| (from..to).contains(&o.start_ns));
    w.every = Some(Box::new(all.clone()));
    let scope = Scope { from_ns: Some(from), to_ns: Some(to), ..Scope::default() };
    check("window", &naive::stats(&w, &DEVICES), &told(&all, &scope));
    // A device.
    for (dev, ..) in DEVICES {
        let mut w = all.clone();
        w.blocks.retain(|b| b.dev == dev);
        w.bios.retain(|b| b.dev == dev);
        let scope = Scope { device: Some(dev), ..Scope::default() };
        check("device", &naive::stats(&w, &DEVICES), &told(&all, &scope));
    }
    // Two files; a thread.
    let carried = |w: &mut World| {
        let ids: HashSet<i64> = w.bios.iter().filter_map(|b| b.rq_id).collect();
        w.blocks.retain(|b| ids.contains(&b.rq_id));
        w.every = Some(Box::new(all.clone()));
    };
    let mut w = all.clone();
    let two = |file: Option<i64>| file == Some(2) || file == Some(4);
    w.ops.retain(|o| two(o.file));
    w.bios.retain(|b| two(b.file));
    carried(&mut w);
    let scope = Scope { files: Some(HashSet::from([2, 4])), ..Scope::default() };
    check("files", &naive::stats(&w, &DEVICES), &told(&all, &scope));
    let mut w = all.clone();
    w.ops.retain(|o| o.task_id == 1);
    w.bios.retain(|b| b.task_id == Some(1));
    carried(&mut w);
    let scope = Scope { tasks: Some(HashSet::from([1])), ..Scope::default() };
    check("thread", &naive::stats(&w, &DEVICES), &told(&all, &scope));
}

#[test]
fn of_nothing_one_event_and_a_nanosecond() {
    check("nothing", &naive::stats(&World::default(), &DEVICES), &told(&World::default(), &Scope::default()));
    let some = world(6, 60, MS);
    for i in 0..4 {
        let mut w = World { span_ns: 1, ..World::default() };
        match i {
            0 => w.ops = some.ops[..1].to_vec(),
            1 => w.bios = some.bios.iter().filter(|b| b.dev == DEVICES[2].0).take(1).cloned().collect(),
            _ => w.blocks = some.blocks[i..=i].to_vec(),
        }
        let last = w.blocks.iter().map(|b| b.complete_ns.unwrap_or(b.issue_ns));
        let last = last.chain(w.bios.iter().map(|b| b.complete_ns.unwrap_or(b.queue_ns)));
        w.span_ns = last.chain(w.ops.iter().map(|o| o.start_ns + o.dur_ns)).max().unwrap();
        check("one", &naive::stats(&w, &DEVICES), &told(&World { span_ns: 0, ..w }, &Scope::default()));
    }
    // All within a nanosecond.
    let mut w = world(7, 50, 2_000);
    (w.bios, w.ops, w.span_ns) = (Vec::new(), Vec::new(), 1);
    w.blocks.retain(|b| b.dev == DEVICES[1].0);
    w.blocks.truncate(1);
    w.blocks.iter_mut().for_each(|b| (b.queue_ns, b.issue_ns, b.complete_ns) = (Some(0), 0, Some(1)));
    check("a nanosecond", &naive::stats(&w, &DEVICES), &told(&w, &Scope::default()));
}

/// Damage may tell of any number of devices.
#[test]
fn thousands_of_devices_are_told_apart() {
    let mut w = World { span_ns: 1, ..World::default() };
    for i in 0..2_000 {
        let (op, complete_ns) = ("write".into(), Some(2 * i + 1));
        w.blocks.push(Block {
            rq_id: i,
            issue_ns: i,
            complete_ns,
            dev: i,
            sector: i,
            len_bytes: 512,
            op,
            ..Block::default()
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let stats = Stats::of(&reel(dir.path(), &w), &Scope::default()).unwrap();
    assert_eq!(stats.devices.len(), 2_000);
    assert!(stats.devices.iter().all(|d| d.d2c.count == 1 && d.d2c.total_ns == d.dev as u64 + 1));
    let rows = compare(&[vec![stats.values()]]);
    assert_eq!(rows.iter().filter(|r| r.name == "iops").count(), 2_000);
}

/// 600 writes a second for 60 s, four times as large in the first tenth of every fifth second.
#[test]
fn a_rhythm_is_told_with_its_period() {
    let mut w = World { span_ns: 60 * S, ..World::default() };
    for i in 0..36_000i64 {
        let issue_ns = i * S / 600;
        let burst = issue_ns % (5 * S) < S / 10;
        let (dev, sector) = (DEVICES[0].0, HIGH + i * 2048);
        let (took, len_bytes) = if burst { (20 * MS, 1 << 20) } else { (MS, 4096) };
        let complete_ns = Some(issue_ns + took);
        let op = "write".into();
        w.blocks.push(Block { rq_id: i, issue_ns, complete_ns, dev, sector, len_bytes, op, ..Block::default() });
    }
    let period = &told(&w, &Scope::default())["devices"][0]["period"];
    assert!((period["period_ns"].as_i64().unwrap() - 5 * S).abs() <= 60 * S / 4096 + 1, "{period}");
    assert!(period["strength"].as_f64().unwrap() > 0.9, "{period}");
    // The slow ones are the large ones, all of them; only what is slower than the 99th percentile counts, which is none.
    assert_eq!(period["stall_overlap"].as_f64(), Some(0.0), "{period}");
}
