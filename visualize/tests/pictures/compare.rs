//! Several reels in one picture, and requests in the colours of what their bios tell, against the brute-force rasteriser.

use std::{collections::BTreeMap, path::Path};

use ioreel_traces::{
    Reel, ReelWriter, WriterOptions,
    rows::{Bio, Block, File, Op, Task},
};
use ioreel_visualize::{
    Arrange, ColorBy, PlotOptions,
    canvas::{
        raster::Blend,
        theme::{DARK, Ink, LIGHT},
    },
    plot,
};

use crate::{
    brute::{Mark, Want, bins, cell, frames, images, steps},
    common::{LOOP0, Lcg, MS, block, manifest, op, reel},
};

const T: i64 = 10 * MS;
const TIME: (i64, i64) = (0, T + T / 64);
const LOW: i64 = 1 << 39;
const HIGH: i64 = LOW + 1_000_000;
const SECTORS: (i64, i64) = (LOW - 20_000, HIGH + 20_000);
const ROWS: u32 = 402 / 3;

fn blocks(seed: u64, most: i64) -> Vec<Block> {
    let mut rng = Lcg(seed);
    let mut rows = vec![block("read", 0, T, LOW, 8), block("write", 0, MS, HIGH - 8, 8)];
    for i in 1..900 {
        let class = ["read", "write"][rng.below(2) as usize];
        let sectors = if i % 2 == 0 { 8 } else { 1 + rng.below(most) };
        rows.push(block(class, i * 10_000, 1 + rng.below(MS), LOW + rng.below(40) * 20_000 + rng.below(300), sectors));
    }
    // The same in both reels.
    rows.extend((0..100).map(|i| block("write", i * 90_000 + 5, 50_000, LOW + i * 10_000, 64)));
    rows
}

fn calls(seed: u64) -> Vec<Op> {
    let mut rng = Lcg(seed);
    let call = |i: i64, rng: &mut Lcg| Op {
        offset_bytes: Some(rng.below(1 << 20)),
        ..op(
            ["read", "write"][rng.below(2) as usize],
            rng.below(9 * MS),
            1 + rng.below(MS / 2),
            Some(i % 3),
            1 + rng.below(50_000),
        )
    };
    (0..300).map(|i| call(i, &mut rng)).collect()
}

struct Two {
    _dir: tempfile::TempDir,
    reels: [Reel; 2],
    blocks: [Vec<Block>; 2],
    calls: [Vec<Op>; 2],
}

fn two() -> Two {
    let dir = tempfile::tempdir().unwrap();
    let blocks = [blocks(31, 60), blocks(32, 3000)];
    let calls = [calls(33), calls(34)];
    let make = |i: usize, name| reel(dir.path(), name, manifest("ext4", T, 0), blocks[i].clone(), calls[i].clone());
    let reels = [make(0, "first"), make(1, "second")];
    Two { reels, blocks, calls, _dir: dir }
}

fn options(panel: &str, arrange: Arrange) -> PlotOptions {
    PlotOptions { panels: vec![panel.into()], width: Some(500), arrange, ..PlotOptions::default() }
}

fn marks(blocks: &[Vec<Block>; 2]) -> Vec<Mark> {
    let at = |s: i64| ROWS - 1 - cell(s, SECTORS.0, SECTORS.1, ROWS);
    let mark = |layer: usize, b: &Block| Mark {
        layer,
        time: (b.issue_ns, b.complete_ns.unwrap()),
        rows: (at(b.sector + b.len_bytes / 512 - 1), at(b.sector)),
    };
    (0..2).flat_map(|i| blocks[i].iter().map(move |b| mark(i, b))).collect()
}

#[test]
fn reels_over_each_other_have_a_colour_each() {
    let t = two();
    for (dark, theme) in [(false, &LIGHT), (true, &DARK)] {
        let picture = plot(&t.reels, &PlotOptions { dark, ..options("offsets", Arrange::Overlay) }).unwrap();
        let layers = vec![(Ink::Hue(0), false), (Ink::Hue(1), false)];
        let want = Want { time: TIME, rows: ROWS, layers, blend: Blend::Overprint, marks: marks(&t.blocks) };
        want.check("overlay", &picture, 0, theme, true);
    }
}

#[test]
fn a_difference_says_which_has_more() {
    let t = two();
    let picture = plot(&t.reels, &options("offsets", Arrange::Difference)).unwrap();
    let layers = vec![(Ink::Grey, true), (Ink::Hue(0), false), (Ink::Hue(1), false)];
    let want = Want { time: TIME, rows: ROWS, layers, blend: Blend::Overprint, marks: marks(&t.blocks) };
    let derived = |counts: Vec<Vec<u32>>| {
        let of = |f: fn(u32, u32) -> u32| counts[0].iter().zip(&counts[1]).map(|(a, b)| f(*a, *b)).collect();
        vec![of(|a, b| if a == b { a } else { 0 }), of(u32::saturating_sub), of(|a, b| b.saturating_sub(a))]
    };
    want.check_derived("difference", &picture, (0, &LIGHT, true), &derived);
    // Of rates: the second less the first, on an axis that goes below 0.
    let svg = plot(&t.reels, &options("iops", Arrange::Difference)).unwrap().svg();
    let frame = frames(&svg, &LIGHT)[0];
    let label = |l: &str| {
        let text = l.split('>').nth(1)?.split('<').next()?;
        text.strip_suffix('k').map_or_else(|| text.parse().ok(), |t| t.parse::<f64>().ok().map(|v| v * 1e3))
    };
    let top = svg.lines().filter(|l| l.contains("text-anchor=\"end\"")).filter_map(label).fold(0.0, f64::max);
    for (name, ink) in [("read", Ink::Read), ("write", Ink::Write)] {
        let line = &steps(&svg, LIGHT.color(ink), frame, 2.0 * top)[0];
        for (from, to) in bins(T, (500 - 78 - 28) / 3 * 3, 1) {
            let done = |b: &&Block| b.op == *name && (from..to).contains(&b.complete_ns.unwrap());
            let n = |i: usize| t.blocks[i].iter().filter(done).count() as f64;
            let want = (n(1) - n(0)) * 1e9 / (to.min(T) - from) as f64;
            let x = frame.x + frame.w * (from + to) as f64 / 2.0 / TIME.1 as f64;
            let got = line.iter().rfind(|(left, _)| *left <= x).unwrap().1 - top;
            assert!((got - want).abs() <= 2.0 * top / frame.h * 0.006 + 1e-6, "{name} at {from}: {got} for {want}");
        }
    }
}

/// Bytes, first and last byte of each file that the calls touched, most bytes first.
fn ranked(calls: &[Op]) -> Vec<(i64, i64, i64)> {
    let mut uses: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
    for o in calls {
        let (from, to) = (o.offset_bytes.unwrap(), o.offset_bytes.unwrap() + o.ret.unwrap());
        let u = uses.entry(o.file.unwrap()).or_insert((0, from, to));
        *u = (u.0 + to - from, u.1.min(from), u.2.max(to));
    }
    let mut ranked: Vec<(i64, (i64, i64, i64))> = uses.into_iter().collect();
    ranked.sort_by_key(|(_, u)| -u.0);
    ranked.into_iter().map(|(file, (_, from, to))| (file, from, to)).collect()
}

#[test]
fn lanes_of_all_reels_are_shown() {
    let t = two();
    let (rows, gap) = (9, 2);
    let of = [ranked(&t.calls[0]), ranked(&t.calls[1])];
    // By file, in the order of the first reel; each reel has a lane of its own.
    let lane = |reel: usize, file: i64| {
        let place = of[0].iter().position(|(f, ..)| *f == file).unwrap();
        (2 * place + reel) as u32 * (rows + gap)
    };
    let mut marks = Vec::new();
    for (reel, calls) in t.calls.iter().enumerate() {
        for o in calls {
            let (file, low, high) = *of[reel].iter().find(|(f, ..)| Some(*f) == o.file).unwrap();
            let at = |byte: i64| lane(reel, file) + rows - 1 - cell(byte, low, high, rows);
            let (from, to) = (o.offset_bytes.unwrap(), o.offset_bytes.unwrap() + o.ret.unwrap());
            marks.push(Mark { layer: reel, time: (o.start_ns, o.start_ns + o.dur_ns), rows: (at(to - 1), at(from)) });
        }
    }
    let layers = vec![(Ink::Hue(0), false), (Ink::Hue(1), false)];
    let want = Want { time: TIME, rows: 6 * (rows + gap) - gap, layers, blend: Blend::Overprint, marks };
    for arrange in [Arrange::Overlay, Arrange::Difference] {
        let picture = plot(&t.reels, &options("files", arrange)).unwrap();
        want.check("files", &picture, 0, &LIGHT, false);
        assert!(["first", "second"].iter().all(|name| picture.svg().contains(&format!("·  {name}</text>"))));
    }
    // Of threads: one in each reel, and a lane of the device, in which there is nothing here.
    let (rows, gap) = (6, 1);
    let mark = |reel: usize, o: &Op| {
        let from = reel as u32 * (rows + gap);
        Mark { layer: reel, time: (o.start_ns, o.start_ns + o.dur_ns), rows: (from, from + rows - 1) }
    };
    let marks = (0..2).flat_map(|reel| t.calls[reel].iter().map(move |o| mark(reel, o))).collect();
    let layers = vec![(Ink::Hue(0), false), (Ink::Hue(1), false)];
    let want = Want { time: TIME, rows: 4 * (rows + gap) - gap, layers, blend: Blend::Overprint, marks };
    want.check("gantt", &plot(&t.reels, &options("gantt", Arrange::Overlay)).unwrap(), 0, &LIGHT, false);
}

#[test]
fn charts_of_all_reels_lie_on_each_other() {
    let t = two();
    let svg = plot(&t.reels, &PlotOptions { width: Some(900), ..options("sizes", Arrange::Overlay) }).unwrap().svg();
    assert!(!svg.contains("of the first reel alone"));
    let frames = frames(&svg, &LIGHT);
    let mut sizes: BTreeMap<i64, i64> = BTreeMap::new();
    t.blocks.iter().flatten().for_each(|b| *sizes.entry(b.len_bytes).or_default() += 1);
    let mut ranked: Vec<(i64, i64)> = sizes.into_iter().collect();
    ranked.sort_by_key(|(size, n)| (-n, *size));
    for (reel, blocks) in t.blocks.iter().enumerate() {
        let power = |p: i64| blocks.iter().filter(|b| i64::from(b.len_bytes.ilog2()) == p).count() as f64;
        let logs: Vec<f64> = (9..=20).map(power).collect();
        let exact = |(size, _): &(i64, i64)| blocks.iter().filter(|b| b.len_bytes == *size).count() as f64;
        let exact: Vec<f64> = ranked[..16].iter().map(exact).collect();
        for (n, want) in [logs, exact].into_iter().enumerate() {
            // The axis is the same for both: relative heights are what can be compared.
            let frame = frames[n];
            let lines = steps(&svg, LIGHT.color(Ink::Hue(reel)), frame, 1.0);
            let inside = |l: &&Vec<(f64, f64)>| l[0].0 >= frame.x - 0.1 && l[0].0 < frame.x + frame.w;
            let line = lines.iter().find(inside).unwrap();
            let at = |slot: usize| {
                let x = frame.x + frame.w * (slot as f64 + 0.5) / want.len() as f64;
                line.iter().rfind(|(left, _)| *left <= x).unwrap().1
            };
            let scale = want.iter().sum::<f64>() / (0..want.len()).map(at).sum::<f64>();
            for (slot, want) in want.iter().enumerate() {
                assert!((at(slot) * scale - want).abs() < 0.01 * scale, "reel {reel}, chart {n}: slot {slot}");
            }
        }
    }
}

/// Requests of bios of four classes, three threads and three files; the first request's bios disagree.
fn carried(dir: &Path) -> (Reel, Vec<(Block, &'static str, &'static str, &'static str)>) {
    let m = manifest("ext4", T, 0);
    let mut w = ReelWriter::create(&dir.join("c.reel"), &m, WriterOptions::default()).unwrap();
    let mut rng = Lcg(41);
    let mut rows = Vec::new();
    for (file, path) in [(1, "/mnt/t/alpha"), (2, "/mnt/t/beta"), (3, "/mnt/t/gamma")] {
        w.files.push(File { file, path: Some(path.into()), kind: "regular".into(), ..File::default() }).unwrap();
    }
    w.tasks.push(Task { task_id: 1, pid: 1, tid: 1, comm: "one".into(), ..Task::default() }).unwrap();
    for i in 0..600 {
        let row =
            Block { rq_id: i, ..block("write", rng.below(9 * MS), 1 + rng.below(MS), LOW + rng.below(1 << 16), 8) };
        // More bytes of what comes first, so that its rank is known.
        let pick = |rng: &mut Lcg| [0, 0, 0, 0, 1, 1, 2][rng.below(7) as usize];
        let (class, comm, file) = (pick(&mut rng), pick(&mut rng), pick(&mut rng));
        let class = ["data", "journal", "tree"][class];
        let comm = ["tar", "kworker", "jbd2"][comm];
        let name = ["alpha", "beta", "gamma"][file];
        let bio = Bio {
            bio_id: -1,
            rq_id: Some(i),
            queue_ns: row.queue_ns.unwrap(),
            complete_ns: row.complete_ns,
            dev: LOOP0,
            sector: row.sector,
            len_bytes: 4096,
            op: "write".into(),
            comm: comm.into(),
            file: Some(file as i64 + 1),
            class: class.into(),
            ..Bio::default()
        };
        // A tenth has no bios: nobody knows what it carried.
        let known = i % 10 != 9;
        if known {
            w.bio.push(bio.clone()).unwrap();
        }
        w.block.push(row.clone()).unwrap();
        rows.push(if known { (row, class, comm, name) } else { (row, "", "", "") });
    }
    w.close(m).unwrap();
    (Reel::open(dir.join("c.reel")).unwrap(), rows)
}

/// What a panel shows does not depend on which others there are.
#[test]
fn panels_do_not_change_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let m = manifest("ext4", T, 0);
    let mut w = ReelWriter::create(&dir.path().join("all.reel"), &m, WriterOptions::default()).unwrap();
    for (i, row) in blocks(51, 60).into_iter().enumerate() {
        let bio = Bio {
            bio_id: -1,
            rq_id: Some(i as i64),
            queue_ns: row.queue_ns.unwrap(),
            complete_ns: row.complete_ns,
            dev: LOOP0,
            sector: row.sector,
            len_bytes: row.len_bytes,
            op: row.op.clone(),
            file: Some(i as i64 % 3),
            file_offset_bytes: Some(i as i64 % 40 * 4096),
            class: ["data", "journal"][i % 2].into(),
            cause: Some(i as i64 % 300),
            ..Bio::default()
        };
        w.bio.push(bio).unwrap();
        w.block.push(Block { rq_id: i as i64, ..row }).unwrap();
    }
    calls(52).into_iter().for_each(|o| w.ops.push(o).unwrap());
    w.close(m).unwrap();
    let reel = Reel::open(dir.path().join("all.reel")).unwrap();
    let drawn = |panels: Vec<String>, color_by| {
        let options = PlotOptions { panels, color_by: Some(color_by), ..options("offsets", Arrange::SideBySide) };
        let svg = plot(std::slice::from_ref(&reel), &options).unwrap().svg();
        images(&svg).into_iter().map(|i| (i.w, i.h, i.map.data().to_vec())).collect::<Vec<_>>()
    };
    for by in [ColorBy::Op, ColorBy::Class, ColorBy::File, ColorBy::Process, ColorBy::Latency] {
        let names: Vec<String> = ioreel_visualize::panel_names().into_iter().map(String::from).collect();
        let alone: Vec<_> = names.iter().flat_map(|n| drawn(vec![n.clone()], by)).collect();
        assert!(alone.len() >= 8);
        assert!(drawn(names, by) == alone, "{by:?}");
    }
}

#[test]
fn requests_have_the_colours_of_their_bios() {
    let dir = tempfile::tempdir().unwrap();
    let (reel, rows) = carried(dir.path());
    let edges: Vec<i64> = (0..8).chain((3..40).flat_map(|log| (8..16).map(move |part| part << (log - 3)))).collect();
    let step = |ns: i64| edges.iter().rposition(|e| *e <= ns).unwrap();
    for (by, names) in [
        (ColorBy::Class, ["data", "journal", "tree"]),
        (ColorBy::Process, ["tar", "kworker", "jbd2"]),
        (ColorBy::File, ["alpha", "beta", "gamma"]),
    ] {
        let layer = |r: &(Block, &str, &str, &str)| {
            let word = match by {
                ColorBy::Class => r.1,
                ColorBy::Process => r.2,
                _ => r.3,
            };
            names.iter().position(|n| *n == word).map_or(0, |i| i + 1)
        };
        let layers: Vec<(Ink, bool)> =
            std::iter::once(Ink::Grey).chain((0..3).map(Ink::Hue)).map(|ink| (ink, false)).collect();
        let took = |b: &Block| b.complete_ns.unwrap() - b.issue_ns;
        let used = || rows.iter().map(|r| step(took(&r.0)));
        let low = used().min().unwrap() / 8 * 8;
        let high = ((used().max().unwrap() / 8 + 1) * 8).max(low + 32);
        let mark = |r: &(Block, &str, &str, &str)| {
            let (row, t) = ((high - 1 - step(took(&r.0))) as u32, r.0.complete_ns.unwrap());
            Mark { layer: layer(r), time: (t, t), rows: (row, row) }
        };
        let marks = rows.iter().map(mark).collect();
        let want = Want { time: TIME, rows: (high - low) as u32, layers: layers.clone(), blend: Blend::Most, marks };
        let draw = |panel: &str| {
            let options = PlotOptions { color_by: Some(by), ..options(panel, Arrange::SideBySide) };
            plot(std::slice::from_ref(&reel), &options).unwrap()
        };
        want.check(&format!("latency by {by:?}"), &draw("latency"), 0, &LIGHT, false);
        // Ten milliseconds are too short for seconds: twenty parts of 10.15 ms are less than a millisecond each.
        let mark = |r: &(Block, &str, &str, &str)| {
            let (part, within) = (r.0.issue_ns / MS, r.0.issue_ns % MS);
            let row = 67 - cell(within, 0, MS, 68);
            Mark { layer: layer(r), time: (part * MS, part * MS + MS - 1), rows: (row, row) }
        };
        let want = Want { time: TIME, rows: 68, layers, blend: Blend::Most, marks: rows.iter().map(mark).collect() };
        want.check(&format!("phase by {by:?}"), &draw("phase"), 0, &LIGHT, false);
    }
}
