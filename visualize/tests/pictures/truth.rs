//! The picture against truths that are known without it.

use crate::{
    brute::images,
    common::{Lcg, MS, S, block, manifest, op, reel},
};
use ioreel_visualize::{PlotOptions, model::survey::Choice, plot};

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
    assert_eq!(error, "no time between 5 s and 1 s; --from must be before --to and before the end of the reel");
}

#[test]
fn widths_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "w", manifest("xfs", S, 0), Vec::new(), Vec::new());
    for width in [0, 100, 1_000_000] {
        let error = plot(std::slice::from_ref(&r), &PlotOptions { width: Some(width), ..PlotOptions::default() });
        assert!(
            error.unwrap_err().to_string().starts_with(&format!("--width {width}: out of range for 1 reels")),
            "{width}"
        );
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

#[test]
fn every_panel_is_documented() {
    let text = include_str!("../../../docs/pictures.md");
    for name in ioreel_visualize::panel_names() {
        assert!(text.contains(&format!("`{name}`")), "{name}");
    }
}
