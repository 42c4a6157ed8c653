//! Pictures of workloads that a person should be able to tell apart, written to the build's temporary
//! folder (`target/tmp`) to be looked at.

use std::{fs, path::PathBuf};

use crate::common::{GIB, Lcg, MS, S, block, manifest, op, reel};
use ioreel_traces::{
    Manifest, Reel,
    manifest::{Kind, Ledger, Loss},
    rows::{Block, Op},
};
use ioreel_visualize::{Arrange, ColorBy, PlotOptions, SkipIdle, model::survey::Choice, panel_names, plot};

fn out(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gallery");
    fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}

fn draw(name: &str, reels: &[Reel], options: &PlotOptions) {
    let picture = plot(reels, options).unwrap();
    let png = picture.png().unwrap();
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    fs::write(out(&format!("{name}.png")), &png).unwrap();
    let svg = picture.svg();
    fs::write(out(&format!("{name}.svg")), &svg).unwrap();
    assert!(svg.len() < 4 << 20, "{} bytes", svg.len());
    // The same reels give the same bytes.
    assert!(plot(reels, options).unwrap().svg() == svg);
}

/// Two sequential writers in turn, 3 s; then a random writer, 3 s; then a scan, 4 s; flushes every 500 ms.
fn mixed(seed: u64) -> Vec<Block> {
    let mut rng = Lcg(seed);
    let mut rows = Vec::new();
    for i in 0..3000 {
        let (t, base) = (i * MS, if i % 2 == 0 { 2 * GIB } else { 5 * GIB });
        rows.push(block("write", t, 2 * MS + rng.below(3 * MS), base + i / 2 * 1024, 1024));
    }
    for i in 0..24_000 {
        rows.push(block("write", 3 * S + i * 125_000, 300_000 + rng.below(MS), 8 * GIB + rng.below(GIB / 8) * 8, 8));
    }
    for i in 0..16_000 {
        rows.push(block("read", 6 * S + i * 250_000, 400_000 + rng.below(MS / 2), 2 * GIB + i * 256, 256));
    }
    for i in 0..20 {
        rows.push(block("flush", i * 500 * MS, 20 * MS, -1, 0));
        rows.push(block("write", i * 500 * MS + 20 * MS, 2 * MS, 30 * GIB + i * 64, 64));
    }
    for i in 0..5 {
        rows.push(block("discard", 9 * S + i * 100 * MS, 30 * MS, 3 * GIB + i * GIB / 4, GIB / 8));
    }
    rows
}

#[test]
fn sequential_random_and_scan() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "mixed", manifest("ext4", 9 * S, S), mixed(1), Vec::new());
    draw("mixed", std::slice::from_ref(&r), &PlotOptions::default());
    let png = || plot(std::slice::from_ref(&r), &PlotOptions::default()).unwrap().png().unwrap();
    assert!(png() == png(), "and the same pixels");
    let choice = Choice { from_ns: Some(2_900 * MS), to_ns: Some(3_100 * MS), ..Choice::default() };
    draw("window", &[r], &PlotOptions { choice, width: Some(1000), ..PlotOptions::default() });
}

fn stretched(rows: Vec<Block>, numerator: i64, denominator: i64, shift: i64) -> Vec<Block> {
    let scale = |t: i64| t * numerator / denominator;
    rows.into_iter()
        .map(|b| Block {
            queue_ns: b.queue_ns.map(scale),
            issue_ns: scale(b.issue_ns),
            complete_ns: b.complete_ns.map(scale),
            sector: if b.sector < 0 { -1 } else { b.sector + shift },
            ..b
        })
        .collect()
}

#[test]
fn side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, fs: &str, n: i64, d: i64, shift: i64| {
        let m = manifest(fs, 9 * S * n / d, S * n / d);
        reel(dir.path(), name, m, stretched(mixed(n as u64), n, d, shift), Vec::new())
    };
    let three = [
        make("compile-ext4", "ext4", 1, 1, 0),
        make("compile-on-xfs", "xfs", 7, 10, GIB),
        make("compile-on-btrfs-with-a-name-that-is-rather-long-and-goes-on-and-on-and-on", "btrfs", 13, 10, 0),
    ];
    draw(
        "three",
        &three,
        &PlotOptions { title: Some("Compile on three file systems".into()), ..PlotOptions::default() },
    );
    let odd = [make("short", "xfs", 1, 100, 0), make("long", "btrfs", 6, 1, 0), make("middle", "ext4", 1, 1, 0)];
    draw("lengths", &odd, &PlotOptions::default());
}

#[test]
fn losses_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let mut m = manifest("ext4", 9 * S, S);
    m.ledger.insert("block".into(), Ledger { seen: 100_000, written: 98_766, lost: 1234, filtered: 0 });
    m.losses = vec![
        Loss { cpu: 0, from_ns: 2 * S, to_ns: 2_400 * MS, events: 1000 },
        Loss { cpu: 1, from_ns: 7 * S, to_ns: 7 * S, events: 234 },
    ];
    let r = reel(dir.path(), "lossy", m, mixed(3), Vec::new());
    draw("lossy", &[r], &PlotOptions::default());
}

fn calls() -> Vec<Op> {
    let mut rng = Lcg(9);
    let mut rows = Vec::new();
    for i in 0..20_000 {
        let t = i * 100_000;
        let (name, dur, ret) = match rng.below(10) {
            0..4 => ("write", 3_000 + rng.below(5_000) * rng.below(8), 4096 * (1 + rng.below(16))),
            4..6 => ("read", 1_500 + rng.below(2_000), 65_536),
            6 => ("openat", 8_000 + rng.below(30_000), if rng.below(5) == 0 { -2 } else { 5 }),
            7 => ("newfstatat", 900 + rng.below(900), 0),
            8 => ("close", 400 + rng.below(300), 0),
            _ => ("lseek", 150 + rng.below(60), 0),
        };
        rows.push(op(name, t, dur, Some(rng.below(40)), ret));
        if i % 500 == 0 {
            rows.push(op("fsync", t, 4 * MS + rng.below(30 * MS), Some(3), 0));
        }
    }
    rows
}

/// Each panel by itself, in both themes, and every arrangement of two reels.
#[test]
fn every_panel() {
    let dir = tempfile::tempdir().unwrap();
    let one = reel(dir.path(), "one", manifest("ext4", 9 * S, S), mixed(1), calls());
    let two = reel(dir.path(), "two", manifest("xfs", 7 * S, S), stretched(mixed(2), 7, 9, 0), calls());
    for name in panel_names() {
        for dark in [false, true] {
            let options = PlotOptions { panels: vec![name.to_owned()], dark, ..PlotOptions::default() };
            let theme = if dark { "dark" } else { "light" };
            draw(&format!("panel-{name}-{theme}"), std::slice::from_ref(&one), &options);
        }
    }
    let panels: Vec<String> = panel_names().into_iter().map(String::from).collect();
    let all = PlotOptions { panels, ..PlotOptions::default() };
    let both = [one, two];
    draw("all-overlay", &both, &PlotOptions { arrange: Arrange::Overlay, ..all.clone() });
    draw("all-diff", &both, &PlotOptions { arrange: Arrange::Difference, dark: true, ..all.clone() });
    draw("all-side", &both, &all);
    for (name, color_by) in [("latency", ColorBy::Latency), ("process", ColorBy::Process), ("reel", ColorBy::Reel)] {
        draw(&format!("by-{name}"), &both, &PlotOptions { color_by: Some(color_by), ..PlotOptions::default() });
    }
    let odd = PlotOptions { panels: vec!["offsets".into(), "nonsense".into()], ..PlotOptions::default() };
    let error = plot(&both, &odd).unwrap_err().to_string();
    assert!(error.starts_with("unknown panel 'nonsense'; there are: offsets, files"), "{error}");
}

#[test]
fn without_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let m = Manifest { devices: Vec::new(), ..manifest("tmpfs", 2 * S, 0) };
    let t = reel(dir.path(), "on-tmpfs", m.clone(), Vec::new(), calls());
    draw("tmpfs", std::slice::from_ref(&t), &PlotOptions::default());
    let both = reel(dir.path(), "on-ext4", manifest("ext4", 2 * S, 0), stretched(mixed(5), 1, 5, 0), calls());
    draw("half", &[both, t], &PlotOptions::default());
}

#[test]
fn hardly_anything() {
    let dir = tempfile::tempdir().unwrap();
    let empty = reel(dir.path(), "empty", Manifest::new(Kind::Synthetic, "synthetic"), Vec::new(), Vec::new());
    draw("empty", std::slice::from_ref(&empty), &PlotOptions::default());
    let one = reel(dir.path(), "one", manifest("xfs", 0, 0), vec![block("write", 0, 0, 1 << 40, 8)], Vec::new());
    draw("one", std::slice::from_ref(&one), &PlotOptions::default());
    let rows = (0..200).map(|i| block("read", i * 2_000, 1_500, (1 << 40) + i * 8, 8)).collect();
    let quick = reel(dir.path(), "quick", manifest("xfs", 400_000, 0), rows, Vec::new());
    draw("quick", std::slice::from_ref(&quick), &PlotOptions::default());
    let flush = reel(dir.path(), "flush", manifest("xfs", S, 0), vec![block("flush", 5, 9, -1, 0)], Vec::new());
    draw("flush", &[flush], &PlotOptions::default());
    let unended = Block { complete_ns: None, ..block("write", 5 * MS, 0, 64, 8) };
    let unended = reel(dir.path(), "unended", manifest("xfs", 10 * MS, 0), vec![unended], Vec::new());
    draw("few", &[empty, one, quick, unended], &PlotOptions::default());
}

/// A damaged or hostile reel may hold anything: it gets a picture or an error, never a panic.
#[test]
fn absurd_values() {
    let dir = tempfile::tempdir().unwrap();
    const ODD: [i64; 9] = [i64::MIN, i64::MIN + 1, -1, 0, 1, 511, 1 << 55, i64::MAX - 1, i64::MAX];
    let mut rng = Lcg(77);
    for round in 0..12 {
        let mut odd = || if rng.below(4) == 0 { rng.below(1 << 40) } else { ODD[rng.below(9) as usize] };
        let blocks = (0..40)
            .map(|i| Block {
                queue_ns: Some(odd()),
                issue_ns: odd(),
                complete_ns: Some(odd()),
                sector: odd(),
                len_bytes: odd(),
                dev: i % 3,
                op: ["read", "write", "flush", "discard", "?"][(i % 5) as usize].into(),
                ..block("read", 0, 0, 0, 0)
            })
            .collect();
        let ops = (0..40)
            .map(|i| op(["read", "write", "copy_file_range", "x"][(i % 4) as usize], odd(), odd(), Some(odd()), odd()))
            .collect();
        let r = reel(dir.path(), &format!("odd{round}"), manifest("ext4", odd(), odd()), blocks, ops);
        let _ = plot(std::slice::from_ref(&r), &PlotOptions::default()).map(|p| p.png().unwrap());
        let choice = Choice { from_ns: Some(odd()), to_ns: Some(odd()), ..Choice::default() };
        let _ =
            plot(std::slice::from_ref(&r), &PlotOptions { choice, ..PlotOptions::default() }).map(|p| p.png().unwrap());
        ioreel_analyze::Summary::of(&r, 3).unwrap();
    }
}

#[test]
fn the_device_that_was_worked_on_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    // The other disk is busier, but the operations wrote to a file on this one.
    let other = 8 << 20;
    let busy = (0..500).map(|i| Block { dev: other, ..block("read", i * MS, MS, i * 2048, 1024) });
    let rows = busy.chain([block("write", MS, MS, 0, 64)]).collect();
    let ops = vec![op("write", 0, 1000, Some(1), 32_768), op("read", 2000, 1000, Some(2), 40_000)];
    let r = reel(dir.path(), "meant", manifest("ext4", S, 0), rows, ops);
    assert!(plot(&[r], &PlotOptions::default()).unwrap().svg().contains("loop0 (7:0), one of 2 devices"));
}

#[test]
fn the_quiet_at_the_end_is_not_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let rows = || vec![block("write", 0, MS, 0, 64), block("write", 1200 * MS, MS, 64, 64)];
    let r = reel(dir.path(), "quiet", manifest("ext4", S, 20 * S), rows(), Vec::new());
    let options = PlotOptions { skip_idle: SkipIdle::Never, ..PlotOptions::default() };
    let svg = plot(std::slice::from_ref(&r), &options).unwrap().svg();
    assert!(svg.contains(">time, ms (rates per 5.00 ms)<") && svg.contains("1.00 s + 20.0 s settling"));
    // Between the two requests there is nothing either.
    let cut = plot(&[r], &PlotOptions::default()).unwrap().svg();
    assert!(cut.contains("quiet stretches cut out") && cut.contains("1.20 s quiet"), "{cut}");
}

#[test]
fn a_device_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let other = 8 << 20;
    let rows = (0..500).flat_map(|i| {
        [block("write", i * MS, MS, i * 8, 8), Block { dev: other, ..block("read", i * MS, MS, i * 2048, 1024) }]
    });
    let r = reel(dir.path(), "two", manifest("ext4", S, 0), rows.collect(), Vec::new());
    let choose = |device: &str| PlotOptions {
        choice: Choice { device: Some(device.into()), ..Choice::default() },
        ..PlotOptions::default()
    };
    draw("busiest", std::slice::from_ref(&r), &PlotOptions::default());
    for name in ["loop0", "7:0", "/dev/loop0"] {
        draw("chosen", std::slice::from_ref(&r), &choose(name));
    }
    let error = plot(&[r], &choose("sdz")).unwrap_err().to_string();
    assert_eq!(error, "two: no requests of device 'sdz'; devices with requests: loop0 (7:0), 8:0");
}

#[test]
fn legends_name_what_is_drawn_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for (there, missing) in [("read", "write"), ("write", "read")] {
        let rows = (0..500).map(|i| block(there, i * MS, MS, i * 8, 8)).collect();
        let ops = (0..500).map(|i| op(there, i * MS, 1000, Some(1), 4096)).collect();
        let r = reel(dir.path(), there, manifest("ext4", S, 0), rows, ops);
        for panel in ["offsets", "files", "latency", "phase", "throughput"] {
            let options = PlotOptions { panels: vec![panel.into()], ..PlotOptions::default() };
            let svg = plot(std::slice::from_ref(&r), &options).unwrap().svg();
            let legend = |word: &str| {
                let labels = svg.split("</text>").filter_map(|t| t.rsplit('>').next());
                let word = [word.to_owned(), format!("{word}s")];
                labels.filter(|l| l.split([',', ' ']).next().is_some_and(|w| word.iter().any(|x| x == w))).count()
            };
            // Lines of nothing are lines all the same.
            let line = usize::from(panel == "throughput");
            assert!(legend(there) > 0, "{panel} of {there}s");
            assert_eq!((legend(missing), legend("discard")), (line, 0), "{panel} of {there}s");
        }
    }
}
