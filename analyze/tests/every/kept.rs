//! A rotated reel: every number is that of the same window of the whole reel, not that of a time of which most was dropped.

use ioreel_analyze::{Scope, Stats, Summary};
use ioreel_traces::{Reel, manifest::Segment, rotate::Keep};
use serde_json::Value;

use crate::{MS, check, reel, rotated, world};

/// Members that describe the reel as a whole, not what is counted.
const OF_THE_REEL: [&str; 4] = ["tables", "ledger", "left_out", "cost"];

fn json(of: impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

/// The flat statistics, and all that `ioreel info` tells of the counted part.
fn told(reel: &Reel, from_ns: Option<i64>) -> (Value, Value, Value) {
    let stats = Stats::of(reel, &Scope { from_ns, ..Scope::default() }).unwrap();
    let mut info = json(Summary::of_part(reel, (from_ns, None), 10).unwrap());
    OF_THE_REEL.iter().for_each(|name| drop(info.as_object_mut().unwrap().remove(*name)));
    (json(stats.values()), json(&stats), info)
}

#[test]
fn a_rotated_reel_is_that_window_of_the_whole() {
    for (seed, n, step_ns) in [(11, 2_000, MS), (12, 1_500, 100_000), (13, 900, 150 * MS)] {
        let mut w = world(seed, n, step_ns);
        // Whether a file was mapped before the window is not in the kept part, so its readahead cannot be the same.
        w.ops.retain(|op| op.op != "mmap");
        let (all, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let all = reel(all.path(), &w);
        // The last tenth of the time in which events began.
        let busy_ns = n * step_ns;
        let cut = rotated(cut.path(), &w, Keep { max_bytes: None, span_ns: Some(w.span_ns - busy_ns * 9 / 10) });
        let from_ns = cut.kept_from_ns().unwrap();
        assert!(from_ns > busy_ns * 3 / 4 && from_ns < busy_ns, "{from_ns} of {busy_ns}");
        assert_eq!((cut.manifest.span.kept_from_ns, all.kept_from_ns().unwrap()), (from_ns, 0));

        let (flat, stats, info) = told(&all, Some(from_ns));
        let (cut_flat, cut_stats, cut_info) = told(&cut, None);
        assert!(check("flat", &flat, &cut_flat) > 250);
        assert!(check("stats", &stats, &cut_stats) > 300);
        assert!(check("info", &info, &cut_info) > 150);
        // Rates are those of the window.
        let total = &cut_info["total"];
        let per_s = total["calls"].as_f64().unwrap() * 1e9 / (w.span_ns - from_ns) as f64;
        assert!((total["ops_per_s"].as_f64().unwrap() / per_s - 1.0).abs() < 1e-9, "{total}: {per_s}");
    }
}

/// The start of a reel whose first segments somebody removed is that of the first event in it.
#[test]
fn a_reel_without_its_first_segments_starts_late() {
    let w = world(14, 2_000, MS);
    let dir = tempfile::tempdir().unwrap();
    let mut reel = reel(dir.path(), &w);
    let late = |segments: &mut Vec<Segment>| drop(segments.drain(..segments.len() / 2));
    reel.manifest.segments.values_mut().for_each(late);
    let from_ns = reel.kept_from_ns().unwrap();
    assert!((w.span_ns * 4 / 10..w.span_ns * 6 / 10).contains(&from_ns), "{from_ns} of {}", w.span_ns);
    let stats = Stats::of(&reel, &Scope::default()).unwrap();
    assert_eq!((stats.from_ns, stats.from_ns + stats.span_ns >= w.span_ns), (from_ns, true));
    // One that lacks a single segment of one table was damaged, not rotated.
    let dir = tempfile::tempdir().unwrap();
    let mut damaged = super::reel(dir.path(), &w);
    damaged.manifest.segments.get_mut("bio").unwrap().remove(0);
    assert_eq!(damaged.kept_from_ns().unwrap(), 0);
}
