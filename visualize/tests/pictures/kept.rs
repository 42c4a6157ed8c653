//! A rotated reel: the picture of what it keeps is that of the same window of the whole reel.

use std::{path::Path, time::Duration};

use ioreel_traces::{
    Reel, ReelWriter, WriterOptions,
    rotate::Keep,
    rows::{Block, File, Op},
};
use ioreel_visualize::{PlotOptions, model::survey::Choice, plot, report};

use crate::common::{LOOP0, MS, S, block, manifest, op};

/// A reel of a second, in segments of 50 rows, of which rotation keeps the last tenth.
fn written(dir: &Path, rotated: bool) -> Reel {
    let path = dir.join("r.reel");
    let m = manifest("ext4", S, 0);
    let options = WriterOptions { segment_rows: 50, segment_age: Duration::MAX };
    let mut w = ReelWriter::create(&path, &m, options).unwrap();
    for i in 0..1000i64 {
        let op_at = |name: &str, n: i64| Op {
            offset_bytes: Some(i % 300 * 4096),
            ..op(name, i * MS + n * 1000, 700_000 + i % 7 * 100_000, Some(i % 3), 4096)
        };
        w.ops.push(op_at(["pread64", "pwrite64", "fsync"][i as usize % 3], 0)).unwrap();
        let row = |n: i64| Block {
            rq_id: 2 * i + n,
            ..block(
                ["read", "write"][n as usize],
                i * MS + n * 1000,
                300_000 + i % 5 * 400_000,
                (i * 7919 + n) % 90_000 * 8,
                8,
            )
        };
        w.block.push(row(0)).unwrap();
        w.block.push(row(1)).unwrap();
    }
    for file in 0..3 {
        let path = Some(format!("/mnt/t/{file}").into());
        w.files.push(File { file, sb_dev: LOOP0, kind: "regular".into(), path, ..File::default() }).unwrap();
    }
    w.flush().unwrap();
    let keep = Keep { max_bytes: None, span_ns: rotated.then_some(S / 10) };
    assert_eq!(w.rotate(keep, S, &[]).unwrap(), rotated);
    w.close(m).unwrap();
    Reel::open(path).unwrap()
}

/// The picture without the words that say which part it is.
fn svg(reel: &Reel, from_ns: Option<i64>) -> String {
    let names =
        "offsets,files,throughput,iops,seeks,latency,latency-calls,depth,calls,call-throughput,gantt,sizes,table";
    let options = PlotOptions {
        choice: Choice { from_ns, ..Choice::default() },
        panels: names.split(',').map(str::to_owned).collect(),
        ..PlotOptions::default()
    };
    let picture = plot(std::slice::from_ref(reel), &options).unwrap().svg();
    let said = |l: &&str| l.contains("were dropped") || l.contains("window from");
    assert_eq!(picture.lines().filter(said).count(), 1, "it says which part it is");
    picture.lines().filter(|l| !said(l)).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_kept_is_drawn_as_that_window() {
    let (all, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (all, cut) = (written(all.path(), false), written(cut.path(), true));
    let from_ns = cut.kept_from_ns().unwrap();
    assert!((S * 8 / 10..S * 92 / 100).contains(&from_ns), "{from_ns}");
    let (want, got) = (svg(&all, Some(from_ns)), svg(&cut, None));
    let differ = want.lines().zip(got.lines()).find(|(a, b)| a != b);
    assert!(want == got, "{differ:?}");
}

#[test]
fn a_report_begins_where_the_reel_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let cut = written(dir.path(), true);
    let from_ns = cut.kept_from_ns().unwrap();
    let window = report::bundle(&cut, None, &[], 1 << 20).unwrap().window;
    assert_eq!((window.from_ns, window.to_ns >= S), (from_ns, true));
}
