//! Every field against the brute-force rasteriser: what a panel counts is said here a second time, event by event.

use std::collections::BTreeMap;

use crate::{
    brute::{Mark, Want, attribute, bins, cell, frames, steps},
    common::{LOOP0, Lcg, MS, S, block, manifest, op, reel},
};
use ioreel_traces::{
    Reel,
    rows::{Block, Op},
};
use ioreel_visualize::{
    ColorBy, PlotOptions,
    canvas::{
        raster::Blend,
        theme::{DARK, Ink, LIGHT},
    },
    plot,
};

const T: i64 = 10 * MS;
/// The time axis has a margin of a 64th at its end.
const TIME: (i64, i64) = (0, T + T / 64);
const LOW: i64 = (1 << 40) - 3_000_000;
const HIGH: i64 = LOW + 1_000_000;
/// One contiguous range has one band, with a margin of 2 % each way.
const SECTORS: (i64, i64) = (LOW - 20_000, HIGH + 20_000);
/// Few events are drawn in cells of 3 pixels.
const OFFSET_ROWS: u32 = 402 / 3;

/// Requests of two devices, far out: all classes, requeued and unended ones, some that last from end to end.
fn requests() -> Vec<Block> {
    let mut rng = Lcg(5);
    let mut rows = vec![block("read", 0, MS, LOW, 8), block("write", 9 * MS, MS, HIGH - 8, 8)];
    for i in 0..1500 {
        let class = ["read", "write", "discard", "write"][rng.below(4) as usize];
        let len = 1 + rng.below(if i % 50 == 0 { 90_000 } else { 700 });
        rows.push(block(class, rng.below(9 * MS), 1 + rng.below(MS), LOW + rng.below(900_000), len));
    }
    rows.iter_mut().step_by(17).for_each(|r| r.complete_ns = None);
    rows.iter_mut().step_by(23).for_each(|r| r.requeues = Some(2));
    rows.iter_mut().step_by(29).for_each(|r| r.queue_ns = None);
    rows.iter_mut().step_by(31).for_each(|r| r.queue_ns = Some(r.issue_ns - rng.below(MS)));
    rows.push(Block { complete_ns: Some(T), ..block("read", 0, 0, LOW, 1_000_000) });
    for i in 0..10 {
        rows.push(block("flush", i * MS, MS / 3, -1, 0));
    }
    // Another device, whose requests must not show.
    rows.extend((0..5).map(|i| Block { dev: 99, ..block("write", i * MS, MS, LOW, 8) }));
    rows
}

fn calls() -> Vec<Op> {
    let mut rng = Lcg(6);
    let names = ["read", "write", "openat", "fsync", "lseek", "copy_file_range"];
    (0..900)
        .map(|i| {
            let name = names[rng.below(6) as usize];
            let start_ns = rng.below(9 * MS);
            let ret = if name == "read" || name == "write" { 1 + rng.below(50_000) } else { 0 };
            Op {
                offset_bytes: Some(rng.below(1 << 20)),
                task_id: 1,
                ..op(name, start_ns, 1 + rng.below(MS / 2), Some(i % 3), ret)
            }
        })
        .collect()
}

fn setup() -> (tempfile::TempDir, Reel, Vec<Block>, Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let (blocks, ops) = (requests(), calls());
    let r = reel(dir.path(), "r", manifest("ext4", T, 0), blocks.clone(), ops.clone());
    let ours = blocks.into_iter().filter(|b| b.dev == LOOP0).collect();
    (dir, r, ours, ops)
}

fn options(panel: &str) -> PlotOptions {
    let color_by = Some(ColorBy::Op);
    PlotOptions { panels: vec![panel.into()], width: Some(500), color_by, ..PlotOptions::default() }
}

/// Holds a panel against marks, in both themes.
fn check(name: &str, reel: &Reel, options: &PlotOptions, want: &Want, bare: bool) {
    for (dark, theme) in [(false, &LIGHT), (true, &DARK)] {
        let picture = plot(std::slice::from_ref(reel), &PlotOptions { dark, ..options.clone() }).unwrap();
        want.check(&format!("{name}, dark {dark}"), &picture, 0, theme, bare);
    }
}

fn class(b: &Block) -> usize {
    match &*b.op {
        "read" => 1,
        "write" => 2,
        _ => 0,
    }
}

/// Rows of an extent on the offset axis, from the top.
fn extent(start: i64, end: i64) -> (u32, u32) {
    let at = |s: i64| OFFSET_ROWS - 1 - cell(s, SECTORS.0, SECTORS.1, OFFSET_ROWS);
    (at((end - 1).max(start)), at(start))
}

fn end(b: &Block) -> i64 {
    b.sector + b.len_bytes / 512
}

const OPS: [(Ink, bool); 3] = [(Ink::Other, false), (Ink::Read, false), (Ink::Write, false)];

#[test]
fn offsets() {
    let (_dir, r, blocks, _) = setup();
    let data = || blocks.iter().filter(|b| b.op != *"flush");
    let time = |b: &Block| (b.issue_ns, b.complete_ns.unwrap_or(b.issue_ns));
    let mark = |b: &Block, layer| Mark { layer, time: time(b), rows: extent(b.sector, end(b)) };
    let mut layers = OPS.to_vec();
    layers[0].1 = true;
    let marks = data().map(|b| mark(b, class(b))).collect();
    let want = Want { time: TIME, rows: OFFSET_ROWS, layers, blend: Blend::Overprint, marks };
    check("offsets", &r, &options("offsets"), &want, true);
    // The strip on top has the flushes.
    let flushes = blocks.iter().filter(|b| b.op == *"flush");
    let marks = flushes.map(|b| Mark { layer: 0, time: time(b), rows: (0, 0) }).collect();
    let strip = Want { time: TIME, rows: 1, layers: vec![(Ink::Flush, false)], blend: Blend::Overprint, marks };
    strip.check("strip", &plot(std::slice::from_ref(&r), &options("offsets")).unwrap(), 1, &LIGHT, false);
    // By latency the slowest is seen.
    let steps = |b: &Block| match b.complete_ns.map(|c| c - b.issue_ns) {
        Some(100_000..1_000_000) => 1,
        Some(1_000_000..10_000_000) => 2,
        Some(10_000_000..100_000_000) => 3,
        Some(100_000_000..) => 4,
        _ => 0,
    };
    let marks = data().map(|b| mark(b, steps(b))).collect();
    let layers = (0..5).map(|i| (Ink::Heat(i), false)).collect();
    let want = Want { time: TIME, rows: OFFSET_ROWS, layers, blend: Blend::Last, marks };
    check("by latency", &r, &PlotOptions { color_by: Some(ColorBy::Latency), ..options("offsets") }, &want, true);
}

#[test]
fn rewrites() {
    let (_dir, r, blocks, _) = setup();
    let mut writes: Vec<&Block> = blocks.iter().filter(|b| b.op == *"write").collect();
    writes.sort_by_key(|b| b.issue_ns);
    let mut last: BTreeMap<i64, i64> = BTreeMap::new();
    let mut marks = Vec::new();
    for b in writes {
        for block in b.sector / 8..=(end(b) - 1) / 8 {
            // All is within 5 s: first, or again.
            let layer = if last.insert(block, b.issue_ns).is_some() { 3 } else { 0 };
            let part = extent((block * 8).max(b.sector), (block * 8 + 8).min(end(b)));
            marks.push(Mark { layer, time: (b.issue_ns, b.complete_ns.unwrap_or(b.issue_ns)), rows: part });
        }
    }
    let layers = [Ink::Grey, Ink::Hue(4), Ink::Hue(5), Ink::Write].map(|ink| (ink, false)).to_vec();
    let want = Want { time: TIME, rows: OFFSET_ROWS, layers, blend: Blend::Last, marks };
    check("rewrites", &r, &options("rewrites"), &want, true);
}

/// Edges of the rows of durations: each octave from 8 on in eight.
fn edges() -> Vec<i64> {
    let octaves = (3..40).flat_map(|log| (8..16).map(move |part| part << (log - 3)));
    (0..8).chain(octaves).collect()
}

fn durations(name: &str, reel: &Reel, events: Vec<(usize, i64, i64)>) {
    let edges = edges();
    let step = |ns: i64| edges.iter().rposition(|e| *e <= ns).unwrap();
    let used = || events.iter().filter(|(_, t, _)| (TIME.0..=TIME.1).contains(t)).map(|(.., ns)| step(*ns));
    let low = used().min().unwrap() / 8 * 8;
    let high = ((used().max().unwrap() / 8 + 1) * 8).max(low + 32);
    let mark = |(layer, t, ns): &(usize, i64, i64)| {
        let row = (high - 1 - step(*ns)) as u32;
        Mark { layer: *layer, time: (*t, *t), rows: (row, row) }
    };
    let inside = events.iter().filter(|(_, t, _)| (TIME.0..=TIME.1).contains(t));
    let marks = inside.map(mark).collect();
    let want = Want { time: TIME, rows: (high - low) as u32, layers: OPS.to_vec(), blend: Blend::Overprint, marks };
    check(name, reel, &options(name), &want, false);
}

#[test]
fn latencies() {
    let (_dir, r, blocks, ops) = setup();
    let d2c = blocks.iter().filter_map(|b| Some((class(b), b.complete_ns?, b.complete_ns? - b.issue_ns)));
    durations("latency", &r, d2c.collect());
    let q2c = blocks.iter().filter_map(|b| Some((class(b), b.complete_ns?, b.complete_ns? - b.queue_ns?)));
    durations("latency-q2c", &r, q2c.collect());
    let q2d = blocks.iter().filter_map(|b| Some((class(b), b.issue_ns, b.issue_ns - b.queue_ns?)));
    durations("latency-q2d", &r, q2d.collect());
    let kind = |o: &Op| match &*o.op {
        "read" => 1,
        "write" | "copy_file_range" => 2,
        _ => 0,
    };
    durations("latency-calls", &r, ops.iter().map(|o| (kind(o), o.start_ns + o.dur_ns, o.dur_ns)).collect());
}

/// The curves of a map of durations: each event counts in the bin of its moment, four times as wide as a bin of rates. A percentile
/// is the least duration that so many do not exceed, told to the end of its eighth of an octave, the maximum exactly.
fn percentiles(name: &str, reel: &Reel, events: &[(i64, i64)]) {
    let svg = plot(std::slice::from_ref(reel), &options(name)).unwrap().svg();
    let frame = frames(&svg, &LIGHT)[0];
    let edges = edges();
    let step = |ns: i64| edges.iter().rposition(|e| *e <= ns).unwrap();
    let used: Vec<usize> = events.iter().map(|(_, ns)| step(*ns)).collect();
    let low = used.iter().min().unwrap() / 8 * 8;
    let high = ((used.iter().max().unwrap() / 8 + 1) * 8).max(low + 32);
    let place = |ns: i64| {
        let i = step(ns);
        i as f64 + (ns - edges[i]) as f64 / (edges[i + 1] - edges[i]) as f64 - low as f64
    };
    let cells = (500 - 78 - 28) / 3;
    let mut checked = 0;
    for (share, ink, width, dash) in [
        (0.5, Ink::Text, "1.8", ""),
        (0.95, Ink::Text, "1", "5 2"),
        (0.99, Ink::Flush, "1.4", "6 3"),
        (0.999, Ink::Flush, "1.2", "2 2"),
        (1.0, Ink::Grey, "1.2", "1 2"),
    ] {
        let ours = |l: &&str| {
            let dashed =
                if dash.is_empty() { !l.contains("dasharray") } else { l.contains(&format!("dasharray=\"{dash}\"")) };
            l.starts_with("<path") && l.contains(&format!(" stroke-width=\"{width}\"")) && dashed
        };
        let curve: String = svg.lines().filter(ours).map(|l| format!("{l}\n")).collect();
        let drawn = steps(&curve, LIGHT.color(ink), frame, (high - low) as f64);
        assert!(!drawn.is_empty(), "{name}: p{share}");
        for (from, to) in bins(T, cells * 3, 4) {
            let mut inside: Vec<i64> =
                events.iter().filter(|(t, _)| (from..to).contains(t)).map(|(_, ns)| *ns).collect();
            inside.sort_unstable();
            let x = |t: i64| frame.x + frame.w * t as f64 / TIME.1 as f64;
            let middle = x(from) + (x(to) - x(from)) / 2.0;
            let got = drawn.iter().find(|l| l[0].0 <= middle && middle < l[l.len() - 1].0.max(ends(&curve, l[0].0)));
            let Some(last) = inside.last() else {
                assert!(got.is_none(), "{name}: p{share} at {from}, where nothing is");
                continue;
            };
            let at = inside[((share * inside.len() as f64).ceil() as usize).max(1) - 1];
            let want = if share < 1.0 { place((edges[step(at) + 1] - 1).min(*last)) } else { place(*last) };
            let got = got.unwrap().iter().rfind(|(left, _)| *left <= middle).unwrap().1;
            let precision = (high - low) as f64 / frame.h * 0.006;
            assert!((got - want).abs() <= precision, "{name}: p{share} at {from}: {got} for {want}");
            checked += 1;
        }
    }
    assert!(checked > 50, "{name}: {checked}");
}

/// Right end of the piece of a curve that begins at `x`.
fn ends(curve: &str, x: f64) -> f64 {
    let pieces = curve.lines().map(|l| attribute(l, "d"));
    let begins = |d: &String| (d[1..].split(' ').next().unwrap().parse::<f64>().unwrap() - x).abs() < 0.001;
    let d = pieces.into_iter().find(begins).unwrap();
    d.rsplit('H').next().unwrap().parse().unwrap()
}

#[test]
fn percentiles_of_latencies() {
    let (_dir, r, blocks, ops) = setup();
    let d2c = blocks.iter().filter_map(|b| Some((b.complete_ns?, b.complete_ns? - b.issue_ns)));
    percentiles("latency", &r, &d2c.collect::<Vec<_>>());
    let q2c = blocks.iter().filter_map(|b| Some((b.complete_ns?, b.complete_ns? - b.queue_ns?)));
    percentiles("latency-q2c", &r, &q2c.collect::<Vec<_>>());
    let q2d = blocks.iter().filter_map(|b| Some((b.issue_ns, b.issue_ns - b.queue_ns?)));
    percentiles("latency-q2d", &r, &q2d.collect::<Vec<_>>());
    percentiles("latency-calls", &r, &ops.iter().map(|o| (o.start_ns + o.dur_ns, o.dur_ns)).collect::<Vec<_>>());
}

/// Less than some seconds has a period of its own, of which there are several: 300 ms and its margin in parts of 20 ms.
/// Each request lies in the column of its period, at its time within it.
fn check_phase(r: &Reel, rows: &[Block], end_ns: i64, period_ns: i64) {
    let mark = |b: &Block| {
        let (part, within) = (b.issue_ns / period_ns, b.issue_ns % period_ns);
        let row = 67 - cell(within, 0, period_ns, 68);
        Mark { layer: class(b), time: (part * period_ns, (part + 1) * period_ns - 1), rows: (row, row) }
    };
    let want = Want {
        time: (0, end_ns + end_ns / 64),
        rows: 68,
        layers: OPS.to_vec(),
        blend: Blend::Overprint,
        marks: rows.iter().map(mark).collect(),
    };
    check("phase", r, &options("phase"), &want, true);
}

#[test]
fn phases_of_less_than_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Lcg(9);
    let end_ns = 300 * MS;
    // Once every 20 ms, at their seventh, and anywhere.
    let mut rows: Vec<Block> = (0..15).map(|i| block("write", i * 20 * MS + 7 * MS, MS, i * 8, 8)).collect();
    rows.extend((0..40).map(|_| block("read", rng.below(299 * MS), MS, rng.below(1 << 20), 8)));
    let r = reel(dir.path(), "r", manifest("ext4", end_ns, 0), rows.clone(), Vec::new());
    check_phase(&r, &rows, end_ns, 20 * MS);
    let svg = plot(std::slice::from_ref(&r), &options("phase")).unwrap().svg();
    assert!(svg.contains("each 20.0 ms"), "the period is named");
    // Beside a reel of a minute, each names its own.
    let long = reel(dir.path(), "long", manifest("ext4", 60 * S, 0), vec![block("read", 0, 59 * S, 0, 8)], Vec::new());
    let svg = plot(&[r, long], &PlotOptions { width: None, ..options("phase") }).unwrap().svg();
    assert!(svg.contains("each 20.0 ms<") && svg.contains("each 5.00 s<"), "a minute and its margin are over a minute");
}

#[test]
fn phases() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Lcg(8);
    let end_ns = 7 * S + 300 * MS;
    let mut rows: Vec<Block> = (0..900)
        .map(|_| block(["read", "write", "flush"][rng.below(3) as usize], rng.below(7 * S), MS, rng.below(1 << 20), 8))
        .collect();
    rows.iter_mut().filter(|b| b.op == *"flush").for_each(|b| (b.sector, b.len_bytes) = (-1, 0));
    let r = reel(dir.path(), "r", manifest("ext4", end_ns, 0), rows.clone(), Vec::new());
    check_phase(&r, &rows, end_ns, S);
}

#[test]
fn files() {
    let (_dir, r, _, ops) = setup();
    let moved = || ops.iter().filter(|o| ["read", "write"].contains(&&*o.op));
    let range = |o: &Op| (o.offset_bytes.unwrap(), o.offset_bytes.unwrap() + o.ret.unwrap());
    let mut uses: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
    for o in moved() {
        let (from, to) = range(o);
        let u = uses.entry(o.file.unwrap()).or_insert((0, from, to));
        *u = (u.0 + to - from, u.1.min(from), u.2.max(to));
    }
    let mut ranked: Vec<(i64, (i64, i64, i64))> = uses.into_iter().collect();
    ranked.sort_by_key(|(_, u)| -u.0);
    // Lanes of 28 pixels with 4 between, in cells of 3.
    let (rows, gap) = (9, 2);
    let mark = |o: &Op| {
        let place = ranked.iter().position(|(f, _)| Some(*f) == o.file).unwrap();
        let (_, (_, low, high)) = ranked[place];
        let at = |byte: i64| place as u32 * (rows + gap) + rows - 1 - cell(byte, low, high, rows);
        let (from, to) = range(o);
        let layer = if o.op == *"read" { 1 } else { 2 };
        Mark { layer, time: (o.start_ns, o.start_ns + o.dur_ns), rows: (at(to - 1), at(from)) }
    };
    let want = Want {
        time: TIME,
        rows: 3 * (rows + gap) - gap,
        layers: OPS.to_vec(),
        blend: Blend::Overprint,
        marks: moved().map(mark).collect(),
    };
    check("files", &r, &options("files"), &want, false);
}

#[test]
fn gantt() {
    let (_dir, r, _, ops) = setup();
    let kind = |o: &Op| match &*o.op {
        "read" => 0,
        "write" | "copy_file_range" => 1,
        "fsync" => 2,
        "openat" => 3,
        _ => 4,
    };
    // One lane of 16 pixels for the only thread, 3 between it and that of the bios, of which there are none.
    let (rows, gap) = (6, 1);
    let mark = |o: &Op| Mark { layer: kind(o), time: (o.start_ns, o.start_ns + o.dur_ns), rows: (0, rows - 1) };
    let layers = [Ink::Read, Ink::Write, Ink::Flush, Ink::Other, Ink::Grey].map(|ink| (ink, false)).to_vec();
    let marks = ops.iter().map(mark).collect();
    let want = Want { time: TIME, rows: 2 * rows + gap, layers, blend: Blend::Most, marks };
    check("gantt", &r, &options("gantt"), &want, false);
}
