//! The picture against truths that are known without it.

use crate::common::{Lcg, MS, S, block, manifest, op, reel};
use base64::{Engine, engine::general_purpose::STANDARD};
use ioreel_traces::rows::Block;
use ioreel_visualize::{
    PlotOptions,
    color::{OTHER_RAMP, READ_RAMP, Ramp, Rgb, WRITE_RAMP, overprint},
    plot,
    raster::log_density,
    survey::Choice,
};
use resvg::tiny_skia::Pixmap;

/// An `<image>` of an SVG: place and size, and its pixels.
struct Image {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
    map: Pixmap,
}

fn images(svg: &str) -> Vec<Image> {
    let attribute = |element: &str, name: &str| {
        let from = element.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
        element[from..].split('"').next().unwrap().to_owned()
    };
    svg.lines()
        .filter(|l| l.starts_with("<image"))
        .map(|l| {
            let number = |name| attribute(l, name).parse::<u32>().unwrap();
            let data = attribute(l, "href");
            let png = STANDARD.decode(data.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
            let (x, y, w, h) = (number("x"), number("y"), number("width"), number("height"));
            Image { x, y, w, h, map: Pixmap::decode_png(&png).unwrap() }
        })
        .collect()
}

/// Counts, cell by cell, which requests touch it - by comparing fractions, not by any shared code.
fn brute(rows: &[Block], class: &str, (t0, t1): (i64, i64), (s0, s1): (i64, i64), (w, h): (u32, u32)) -> Vec<u32> {
    let mut out = vec![0; (w * h) as usize];
    // Cell i of n over [from, to) holds v when i/n <= (v-from)/(to-from) < (i+1)/n; the last also `to`.
    let cell = |v: i64, from: i64, to: i64, n: u32| {
        (0..n).rev().find(|i| i128::from(v - from) * i128::from(n) >= i128::from(*i) * i128::from(to - from)).unwrap()
    };
    for r in rows.iter().filter(|r| r.op == *class) {
        let end_ns = r.complete_ns.unwrap_or(r.issue_ns);
        let end = r.sector + r.len_bytes / 512;
        if end <= s0 || r.sector >= s1 {
            continue;
        }
        let (x0, x1) = (cell(r.issue_ns, t0, t1, w), cell(end_ns, t0, t1, w));
        let (y0, y1) = (cell(r.sector.max(s0), s0, s1, h), cell((end - 1).min(s1), s0, s1, h));
        for y in y0..=y1 {
            for x in x0..=x1 {
                out[((h - 1 - y) * w + x) as usize] += 1;
            }
        }
    }
    out
}

#[test]
fn every_pixel_equals_counting_out() {
    let dir = tempfile::tempdir().unwrap();
    for (name, base) in [("low", 100_000), ("high", (1 << 40) - 3_000_000)] {
        let mut rng = Lcg(base as u64);
        // One contiguous range, so that the axis has one band: margins are 2 % of it each way.
        let (low, high) = (base, base + 1_000_000);
        let mut rows = vec![block("read", 0, MS, low, 8), block("write", 9 * MS, MS, high - 8, 8)];
        for i in 0..2000 {
            let class = ["read", "write", "discard"][rng.below(3) as usize];
            let len = 1 + rng.below(if i % 50 == 0 { 90_000 } else { 700 });
            rows.push(block(class, rng.below(9 * MS), 1 + rng.below(MS), low + rng.below(900_000), len));
        }
        rows.iter_mut().step_by(17).for_each(|r| r.complete_ns = None);
        rows.push(Block { complete_ns: Some(10 * MS), ..block("read", 0, 0, low, 1_000_000) });
        let r = reel(dir.path(), name, manifest("ext4", 10 * MS, 0), rows.clone(), Vec::new());
        let picture = plot(&[r], &PlotOptions { width: Some(500), ..PlotOptions::default() }).unwrap();
        let image = &images(&picture.svg())[0];
        let (w, h) = (image.map.width(), image.map.height());
        assert_eq!((image.w / w, image.h / h), (3, 3), "few requests are drawn in large cells");
        let sectors = (low - 20_000, high + 20_000);
        // The axis has a margin of a 64th at its end.
        let end_ns = 10 * MS + 10 * MS / 64;
        let layers: Vec<(Vec<u32>, Ramp)> = [("discard", OTHER_RAMP), ("read", READ_RAMP), ("write", WRITE_RAMP)]
            .map(|(class, ramp)| (brute(&rows, class, (0, end_ns), sectors, (w, h)), ramp))
            .into();
        let most = layers[1..].iter().flat_map(|(c, _)| c.iter().copied()).max().unwrap();
        let png = Pixmap::decode_png(&picture.png().unwrap()).unwrap();
        let mut drawn = 0;
        for i in 0..(w * h) {
            let mut want: Option<Rgb> = None;
            for (n, (counts, ramp)) in layers.iter().enumerate() {
                let count = counts[i as usize];
                if count > 0 {
                    let ink = ramp.at(log_density(count, if n == 0 { u32::MAX } else { most }));
                    want = Some(want.map_or(ink, |under| overprint(under, ink)));
                }
            }
            let (x, y) = (i % w, i / w);
            let pixel = image.map.pixel(x, y).unwrap();
            match want {
                None => assert_eq!(pixel.alpha(), 0, "{name} {x},{y}"),
                Some(want) => {
                    drawn += 1;
                    assert_eq!([pixel.red(), pixel.green(), pixel.blue()], want, "{name} {x},{y}");
                    // And the rasteriser puts it where the SVG says, unsmoothed.
                    for (dx, dy) in [(0, 0), (2, 0), (0, 2), (2, 2)] {
                        let p = png.pixel(image.x + x * 3 + dx, image.y + y * 3 + dy).unwrap();
                        assert_eq!([p.red(), p.green(), p.blue()], want, "{name} {x},{y} in the PNG");
                    }
                }
            }
        }
        assert!(drawn > 3000, "{name}: {drawn}");
    }
}

#[test]
fn a_device_far_away_is_drawn_as_fine_as_a_near_one() {
    let dir = tempfile::tempdir().unwrap();
    let sequential = |base: i64| (0..5_000).map(|i| block("write", i * MS, MS, base + i * 64, 64)).collect::<Vec<_>>();
    let raster = |name: &str, base: i64| {
        let r = reel(dir.path(), name, manifest("xfs", 5 * S, 0), sequential(base), Vec::new());
        images(&plot(&[r], &PlotOptions::default()).unwrap().svg())[0].map.data().to_vec()
    };
    assert!(raster("near", 1 << 20) == raster("far", 1 << 40));
}

#[test]
fn a_window_draws_what_happened_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let rows = (0..1000).map(|i| block("write", i * MS, MS / 2, i * 8, 8)).collect();
    let r = reel(dir.path(), "w", manifest("xfs", S, 0), rows, Vec::new());
    let window = |from: i64, to: i64| PlotOptions {
        choice: Choice { from_ns: Some(from), to_ns: Some(to), ..Choice::default() },
        ..PlotOptions::default()
    };
    let svg = plot(std::slice::from_ref(&r), &window(200 * MS, 299 * MS + MS / 2)).unwrap().svg();
    assert!(svg.contains(">100</text>"), "100 requests in the table");
    let error = plot(&[r], &window(5 * S, 6 * S)).unwrap_err().to_string();
    assert_eq!(error, "the window from 5 s to 1 s is empty; --from must be before --to and before the reel's end");
}

#[test]
fn widths_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "w", manifest("xfs", S, 0), Vec::new(), Vec::new());
    for width in [0, 100, 1_000_000] {
        let error = plot(std::slice::from_ref(&r), &PlotOptions { width: Some(width), ..PlotOptions::default() });
        assert!(error.unwrap_err().to_string().starts_with(&format!("a picture {width} pixels wide")), "{width}");
    }
}

/// A million requests and as many calls, timed for whoever runs it with `--ignored --nocapture` on an optimised build.
#[test]
#[ignore = "a measurement, not a check"]
fn a_million_of_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Lcg(4);
    let rows = (0..1_000_000)
        .map(|i| {
            let class = if i % 3 == 0 { "read" } else { "write" };
            block(class, i * 10_000, 5_000 + rng.below(MS), rng.below(1 << 32) * 8, 8 << rng.below(6))
        })
        .collect();
    let calls =
        (0..1_000_000).map(|i| op("write", i * 10_000, 5_000 + rng.below(MS), Some(rng.below(5000)), 4096)).collect();
    let r = reel(dir.path(), "million", manifest("xfs", 10 * S, 0), rows, calls);
    let start = std::time::Instant::now();
    let picture = plot(&[r], &PlotOptions::default()).unwrap();
    let plotted = start.elapsed();
    let png = picture.png().unwrap();
    println!("plotted in {plotted:?}, with the PNG {:?}, {} bytes", start.elapsed(), png.len());
}
