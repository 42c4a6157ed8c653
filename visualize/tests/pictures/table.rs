//! P17: every number of the table against counting out.

use std::collections::BTreeMap;

use ioreel_traces::{
    Manifest, Reel,
    manifest::Ledger,
    rows::{Block, Op},
};
use ioreel_visualize::{Arrange, PlotOptions, plot};

use crate::common::{Lcg, MS, S, block, manifest, op, reel};

/// A number of the table: its value, and how much it may be off, itself and as a share.
type Naive = BTreeMap<&'static str, (f64, f64)>;

/// Percentiles are kept to three digits.
const PERCENTILE: f64 = 0.0011;

struct One {
    reel: Reel,
    want: Naive,
}

fn blocks(rng: &mut Lcg, n: i64) -> Vec<Block> {
    let mut end = 1 << 40;
    let mut rows: Vec<Block> = (0..n)
        .map(|i| {
            let class = ["read", "write", "write", "discard", "flush"][rng.below(5) as usize];
            // On from the one before, near it, or anywhere.
            let sector = match rng.below(3) {
                0 => end,
                1 => end + rng.below(256),
                _ => (1 << 40) + rng.below(1 << 30),
            };
            let mut b =
                block(class, i * 300_000 + rng.below(300_000), 1 + rng.below(3 * MS), sector, 1 + rng.below(2000));
            match class {
                "flush" => (b.sector, b.len_bytes) = (-1, 0),
                "discard" => {}
                _ => end = b.sector + b.len_bytes / 512,
            }
            b
        })
        .collect();
    rows.iter_mut().step_by(17).for_each(|b| b.error = 5);
    rows.iter_mut().step_by(23).for_each(|b| b.complete_ns = None);
    rows
}

fn calls(rng: &mut Lcg, n: i64) -> Vec<Op> {
    let names = ["read", "pwrite64", "fsync", "openat", "copy_file_range"];
    (0..n)
        .map(|i| {
            let ret = if rng.below(9) == 0 { -28 } else { rng.below(1 << 20) };
            op(names[i as usize % 5], rng.below(900 * MS), 1 + rng.below(20 * MS), Some(1), ret)
        })
        .collect()
}

fn percentile(mut all: Vec<i64>, q: f64) -> f64 {
    all.sort_unstable();
    all[((all.len() as f64 * q).ceil() as usize).max(1) - 1] as f64
}

fn naive(blocks: &[Block], calls: &[Op], settle_ns: i64, lost: i64) -> Naive {
    let data: Vec<&Block> = blocks.iter().filter(|b| ["read", "write"].contains(&&*b.op)).collect();
    let done = |b: &&Block| b.complete_ns.is_some() && b.error == 0;
    let bytes =
        |op: &str| data.iter().copied().filter(done).filter(|b| *b.op == *op).map(|b| b.len_bytes).sum::<i64>() as f64;
    let took = |b: &Block| Some(b.complete_ns? - b.issue_ns);
    let d2c: Vec<i64> = data.iter().filter_map(|b| took(b)).collect();
    let distances: Vec<i64> =
        data.windows(2).map(|w| (w[0].sector + w[0].len_bytes / 512).abs_diff(w[1].sector) as i64).collect();
    // In flight at each microsecond would be an estimate: intervals are joined instead.
    let mut flights: Vec<(i64, i64)> = blocks.iter().filter_map(|b| Some((b.issue_ns, b.complete_ns?))).collect();
    flights.sort_unstable();
    let (mut busy, mut until) = (0, 0);
    for (from, to) in &flights {
        busy += (to - from.max(&until)).max(0);
        until = until.max(*to);
    }
    let moved = |names: &[&str]| {
        let of = calls.iter().filter(|o| names.contains(&&*o.op)).map(|o| o.ret.unwrap().max(0));
        of.sum::<i64>() as f64
    };
    let durations: Vec<i64> = calls.iter().map(|o| o.dur_ns).collect();
    let size = (bytes("read") + bytes("write")) / data.iter().copied().filter(done).count() as f64;
    BTreeMap::from([
        ("elapsed", (S as f64, 0.0)),
        ("settling", (settle_ns as f64, 0.0)),
        ("read", (bytes("read"), 0.0)),
        ("written", (bytes("write"), 0.0)),
        ("requests", (blocks.len() as f64, 0.0)),
        ("mean size", (size, 0.0)),
        ("adjacent seeks", (distances.iter().filter(|d| **d != 0).count() as f64, 0.0)),
        ("far seeks", (distances.iter().filter(|d| **d > 128).count() as f64, 0.0)),
        ("D2C p50", (percentile(d2c.clone(), 0.5), PERCENTILE)),
        ("p99", (percentile(d2c.clone(), 0.99), PERCENTILE)),
        ("p99.9", (percentile(d2c.clone(), 0.999), PERCENTILE)),
        ("max", (percentile(d2c, 1.0), PERCENTILE)),
        ("qd_mean", (flights.iter().map(|(from, to)| to - from).sum::<i64>() as f64 / S as f64, 0.0)),
        ("util", (busy as f64 / S as f64, 0.0)),
        ("calls", (calls.len() as f64, 0.0)),
        ("failed", (calls.iter().filter(|o| o.ret < Some(0)).count() as f64, 0.0)),
        ("files read", (moved(&["read", "copy_file_range"]), 0.0)),
        ("files written", (moved(&["pwrite64", "copy_file_range"]), 0.0)),
        ("call p50", (percentile(durations.clone(), 0.5), PERCENTILE)),
        ("call p99", (percentile(durations, 0.99), PERCENTILE)),
        ("events lost", (lost as f64, 0.0)),
    ])
}

fn one(dir: &std::path::Path, name: &str, seed: u64, n: i64) -> One {
    let mut rng = Lcg(seed);
    let (blocks, calls) = (blocks(&mut rng, n), calls(&mut rng, n / 2));
    let (settle_ns, lost) = (rng.below(90 * MS), rng.below(900_000));
    let ledger = Ledger { seen: n + lost, written: n, lost, filtered: 0 };
    let manifest = Manifest { ledger: [("block".to_owned(), ledger)].into(), ..manifest("ext4", S, settle_ns) };
    let want = naive(&blocks, &calls, settle_ns, lost);
    One { reel: reel(dir, name, manifest, blocks, calls), want }
}

/// What the picture says under each head of the table, row by row.
fn cells(svg: &str) -> BTreeMap<String, Vec<String>> {
    let text = |l: &str| {
        let y: f64 = l.split(" y=\"").nth(1)?.split('"').next()?.parse().ok()?;
        Some((y, l.split('>').nth(1)?.split('<').next()?.to_owned()))
    };
    let all: Vec<(f64, String)> = svg.lines().filter(|l| l.starts_with("<text")).filter_map(text).collect();
    let head = all.iter().find(|(_, t)| t == "reel").unwrap().0;
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut at = String::new();
    for (y, t) in all.into_iter().filter(|(y, _)| *y >= head) {
        if y == head {
            at.clone_from(&t);
            assert!(out.insert(t, Vec::new()).is_none(), "{at} is there twice");
        } else if !at.is_empty() {
            out.get_mut(&at).unwrap().push(t);
        }
    }
    out
}

/// A number as a person reads it, and half of its last digit.
fn read(cell: &str) -> (f64, f64) {
    let units = [
        ("ns", 1.0),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
        ("%", 0.01),
    ];
    let (digits, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let factor = units.iter().find(|(u, _)| *u == unit).map_or(1.0, |(_, f)| *f);
    let digits = digits.replace([',', '+'], "").replace('−', "-");
    let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len());
    (digits.parse::<f64>().unwrap() * factor, 0.5 * factor / 10f64.powi(decimals as i32))
}

/// Whole units are what is shown at most.
fn close(name: &str, cell: &str, want: f64, off: f64) {
    let (got, half) = read(cell);
    let whole = if ["qd_mean", "util"].contains(&name) { 0.0 } else { 0.5 };
    assert!((got - want).abs() <= half * 1.001 + whole + off, "{name}: {cell} for {want}");
}

fn options(arrange: Arrange) -> PlotOptions {
    let panels = ["latency-calls", "table"].map(String::from).to_vec();
    PlotOptions { panels, width: Some(4000), arrange, ..PlotOptions::default() }
}

#[test]
fn every_number_of_the_table_is_what_counting_gives() {
    let dir = tempfile::tempdir().unwrap();
    let two = [one(dir.path(), "first", 3, 3000), one(dir.path(), "second", 4, 2000)];
    for o in &two {
        let told = cells(&plot(std::slice::from_ref(&o.reel), &options(Arrange::SideBySide)).unwrap().svg());
        assert_eq!(told["file system"], ["ext4"]);
        let heads: Vec<&str> =
            told.keys().map(String::as_str).filter(|h| !["reel", "file system"].contains(h)).collect();
        assert_eq!(heads, o.want.keys().copied().collect::<Vec<_>>(), "no number is left unchecked");
        for (name, (want, share)) in &o.want {
            assert_eq!(told[*name].len(), 1);
            close(name, &told[*name][0], *want, want * share);
        }
    }
    // Both, and the second less the first.
    let reels = two.each_ref().map(|o| o.reel.clone());
    let told = cells(&plot(&reels, &options(Arrange::Difference)).unwrap().svg());
    assert_eq!(told["reel"], ["first", "second", "difference"]);
    for (name, (a, share)) in &two[0].want {
        let (b, _) = two[1].want[name];
        close(name, &told[*name][0], *a, a * share);
        close(name, &told[*name][1], b, b * share);
        close(name, &told[*name][2], b - a, (a + b) * share);
        assert_eq!(told[*name][2].starts_with(['+', '−']), told[*name][0] != told[*name][1] || b != *a, "{name}");
    }
}
