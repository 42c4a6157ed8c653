//! What other tools' pictures get wrong, one test each, and what must be told of a reel that is not whole.

use crate::{
    brute::{frames, steps},
    common::{LOOP0, Lcg, MS, S, block, manifest, reel},
};
use ioreel_traces::{
    Reel,
    manifest::{Ledger, Loss},
    rows::Block,
};
use ioreel_visualize::{
    PlotOptions,
    canvas::theme::{Ink, LIGHT},
    model::survey::Choice,
    plot,
};

const TIB: i64 = 1 << 31;

fn draw(panel: &str, rows: Vec<Block>, elapsed_ns: i64) -> String {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "r", manifest("ext4", elapsed_ns, 0), rows, Vec::new());
    svg(panel, &[r], Choice::default())
}

fn svg(panel: &str, reels: &[Reel], choice: Choice) -> String {
    plot(reels, &PlotOptions { panels: vec![panel.into()], choice, ..PlotOptions::default() }).unwrap().svg()
}

/// Values of a colour's line, as parts of the axis.
fn line(svg: &str, ink: Ink) -> Vec<f64> {
    let frame = frames(svg, &LIGHT)[0];
    steps(svg, LIGHT.color(ink), frame, 1.0).into_iter().flatten().map(|(_, v)| v).collect()
}

/// Seekwatcher keeps sectors as 32-bit floats: a sequential stream at 1 TiB shows thousands of seeks.
#[test]
fn a_sequential_stream_far_out_has_no_seeks() {
    let svg = draw("seeks", (0..20_000).map(|i| block("write", i * MS / 20, 1000, TIB + i * 8, 8)).collect(), S);
    assert!(line(&svg, Ink::Text).is_empty());
}

/// biopattern compares in the order of completion: at a queue depth above one a stream looks random.
#[test]
fn a_stream_that_completes_out_of_order_has_no_seeks() {
    let mut rng = Lcg(2);
    let rows = (0..5000).map(|i| block("read", i * MS / 5, 1 + rng.below(20 * MS), i * 64, 64)).collect();
    assert!(line(&draw("seeks", rows, S), Ink::Text).is_empty());
}

/// Both plotters count discards as write throughput.
#[test]
fn discards_are_no_throughput() {
    let rows = ["discard", "write_zeroes", "secure_erase"].map(|op| block(op, 0, MS, 0, 1 << 20)).to_vec();
    let svg = draw("throughput", rows, S);
    assert!(line(&svg, Ink::Write).is_empty() && line(&svg, Ink::Read).is_empty());
}

/// iowatcher's line graphs of a trace under one second are empty.
#[test]
fn a_trace_of_microseconds_has_lines() {
    let rows = || (0..300).map(|i| block("read", i * 1000, 700, i * 8, 8)).collect::<Vec<_>>();
    for panel in ["throughput", "iops"] {
        let values = line(&draw(panel, rows(), 300_000), Ink::Read);
        assert!(!values.is_empty() && values.iter().any(|v| *v > 0.3), "{panel}: {values:?}");
    }
}

/// The seed plotters extrapolate the last partial bin into a spike.
#[test]
fn an_even_rate_is_even_to_its_end() {
    // Ends within a bin of 20 ms.
    let end = 3 * S + 7 * MS + MS / 2;
    let rows = (0..end / (MS / 10)).map(|i| block("write", i * MS / 10, 50_000, i * 8, 8)).collect();
    let values = line(&draw("throughput", rows, end), Ink::Write);
    let (least, most) = values.iter().fold((1.0f64, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
    assert!(most - least < 0.02 * most, "{least} to {most}");
}

/// Seekwatcher fails on traces of several devices.
#[test]
fn several_devices_are_kept_apart() {
    let rows = (0..2000).flat_map(|i| {
        [block("write", i * MS, MS, i * 8, 8), Block { dev: 5, ..block("write", i * MS, MS, TIB + i * 8, 8) }]
    });
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "r", manifest("ext4", 2 * S, 0), rows.collect(), Vec::new());
    let choice = Choice { device: Some("loop0".into()), ..Choice::default() };
    assert!(line(&svg("seeks", &[r], choice), Ink::Text).is_empty(), "each device is sequential, {LOOP0}");
}

/// iowatcher's SVG has one element per cell: 219 MB for a random trace of ten million events.
#[test]
fn the_size_of_a_picture_does_not_follow_the_number_of_events() {
    let size = |n: i64| {
        let mut rng = Lcg(3);
        draw("offsets", (0..n).map(|i| block("write", i * S / n, 1000, rng.below(1 << 33), 8)).collect(), S).len()
    };
    // Fonts are most of it; a raster of noise at one pixel is as large as it gets.
    assert!(size(500) < 2 << 20 && size(400_000) < 6 << 20);
}

/// A bio-based device (zram) makes no requests: its bios are drawn.
#[test]
fn a_device_of_bios_alone_is_drawn() {
    use ioreel_traces::{ReelWriter, WriterOptions, rows::Bio};
    let dir = tempfile::tempdir().unwrap();
    let m = manifest("ext4", S, 0);
    let mut w = ReelWriter::create(&dir.path().join("z.reel"), &m, WriterOptions::default()).unwrap();
    for i in 0..100 {
        let bio = Bio {
            bio_id: -1,
            queue_ns: i * 10 * MS,
            complete_ns: Some(i * 10 * MS + 1000),
            dev: LOOP0,
            sector: i * 8,
            len_bytes: 4096,
            op: "write".into(),
            ..Bio::default()
        };
        w.bio.push(bio).unwrap();
    }
    w.close(m).unwrap();
    let r = Reel::open(dir.path().join("z.reel")).unwrap();
    let drawn = svg("throughput", &[r], Choice::default());
    assert!(!line(&drawn, Ink::Write).is_empty() && drawn.contains("loop0 (7:0)"));
}

#[test]
fn what_is_not_whole_is_told_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let rows = || (0..100).map(|i| block("write", i * 10 * MS, MS, i * 8, 8)).collect::<Vec<_>>();
    // Lost events: shaded where they are known, counted in the heading.
    let mut m = manifest("ext4", S, 0);
    m.ledger.insert("block".into(), Ledger { seen: 107, written: 100, lost: 7, filtered: 0 });
    m.losses = vec![Loss { cpu: 0, from_ns: S / 4, to_ns: S / 2, events: 7 }];
    let lossy = reel(dir.path(), "lossy", m, rows(), Vec::new());
    let drawn = svg("iops", &[lossy], Choice::default());
    let frame = frames(&drawn, &LIGHT)[0];
    let shade = format!("fill=\"{}\" fill-opacity=\"0.22\"", LIGHT.alarm);
    let shade = drawn.lines().find(|l| l.contains(&shade)).unwrap();
    let x = |t_ns: i64| frame.x + frame.w * t_ns as f64 / (S + S / 64) as f64;
    let at = |name| crate::brute::attribute(shade, name).parse::<f64>().unwrap();
    assert!((at("x") - x(S / 4)).abs() < 0.01 && (at("width") - (x(S / 2) - x(S / 4))).abs() < 0.01, "{shade}");
    assert!(drawn.contains("7 events were lost"));
    // A recording that was ended by a limit: a torn edge, and why.
    let mut m = manifest("ext4", S, 0);
    m.ended = "max_size".into();
    let cut = reel(dir.path(), "cut", m, rows(), Vec::new());
    let drawn = svg("iops", std::slice::from_ref(&cut), Choice::default());
    let torn = |svg: &str, color: &str| {
        svg.lines()
            .filter(|l| l.starts_with("<path") && l.contains(&format!("stroke=\"{color}\" stroke-width=\"1.6\"")))
            .count()
    };
    assert!(drawn.contains("ended by --max-size") && torn(&drawn, LIGHT.alarm) == 1);
    // A window: torn on both sides, in another colour.
    let choice = Choice { from_ns: Some(S / 4), to_ns: Some(S / 2), ..Choice::default() };
    let drawn = svg("iops", &[cut], choice);
    assert!(
        (torn(&drawn, LIGHT.faint), torn(&drawn, LIGHT.alarm)) == (2, 0)
            && drawn.contains("window from 250 ms to 500 ms")
    );
    // Clocks that jump: something ends before it begins.
    let mut back = rows();
    back[50].complete_ns = Some(back[50].issue_ns - 5 * MS);
    let jump = reel(dir.path(), "jump", manifest("ext4", S, 0), back, Vec::new());
    let drawn = svg("iops", &[jump], Choice::default());
    assert!(drawn.contains("clock jumps: 1 request has times out of order"));
    assert_eq!(drawn.lines().filter(|l| l.starts_with("<line") && l.contains(LIGHT.clock)).count(), 1);
}
