//! Integers of 64 bits come out of a page as they went in, and places in files stay to scale beside them.

use std::path::{Path, PathBuf};

use ioreel_traces::{
    ReelWriter, WriterOptions,
    rows::{Bio, Block, File, Op, Task},
};
use serde_json::{Value, json};

use crate::{browser::visit, page, reels};

/// What a column may hold at most, numbers that a double cannot hold, and those around them.
const EXTREMES: [i64; 12] = [
    0,
    i64::MAX,
    i64::MIN,
    1,
    -1,
    (1 << 53) + 1,
    -(1 << 53) - 1,
    1 << 53,
    i64::MAX - 1,
    (1 << 62) + 1,
    i64::MIN + 1,
    4096,
];
/// The latest time that a page draws.
const LAST_NS: i64 = 1 << 61;

/// An extreme time: within what a page draws.
fn time(i: usize) -> i64 {
    (EXTREMES[i] & (LAST_NS - 1)).clamp(0, LAST_NS - 2)
}

/// A duration that ends where the window does at the latest.
fn lasted(i: usize) -> i64 {
    (EXTREMES[(i + 5) % EXTREMES.len()] & (LAST_NS - 1)).min(LAST_NS - 1 - time(i))
}

fn at(i: usize, shift: usize) -> i64 {
    EXTREMES[(i + shift) % EXTREMES.len()]
}

fn positive(n: i64) -> i64 {
    n & i64::MAX
}

/// Operations and requests, each column extreme in turn; and two files of a few pages beside a directory that is listed.
fn reel(dir: &Path, with_ops: bool) -> PathBuf {
    let path = dir.join("extreme.reel");
    let m = reels::manifest("extreme");
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    w.tasks.push(Task { task_id: 1, pid: 1, tid: 1, comm: "ls".into(), ..Task::default() }).unwrap();
    for (file, kind) in [(0, "regular"), (1, "regular"), (2, "directory"), (3, "regular")] {
        let path = Some(format!("/data/{file}").into());
        w.files.push(File { file, path, kind: kind.into(), ..File::default() }).unwrap();
    }
    for i in 0..EXTREMES.len() {
        let near = Op {
            op_id: -1,
            start_ns: time(i),
            dur_ns: lasted(i),
            task_id: 1,
            op: "pread64".into(),
            source: "syscall".into(),
            state: "complete".into(),
            file: Some(0),
            offset_bytes: Some(i as i64 * 4096),
            ret: Some(4096),
            ..Op::default()
        };
        let far = i64::MAX - 65_536 + i as i64 * 4096;
        let listed =
            Op { op: "getdents64".into(), file: Some(2), offset_bytes: Some(i64::MAX), ret: Some(96), ..near.clone() };
        if with_ops {
            w.ops
                .push(Op {
                    op: "fcntl".into(),
                    file: Some(3),
                    offset_bytes: Some(at(i, 1)),
                    ret: Some(at(i, 2)),
                    ..near.clone()
                })
                .unwrap();
            w.ops.push(Op { file: Some(1), offset_bytes: Some(far), ..near.clone() }).unwrap();
            w.ops.push(near).unwrap();
            w.ops.push(listed).unwrap();
        }
        w.block
            .push(Block {
                rq_id: i as i64,
                queue_ns: Some(time(i) - positive(at(i, 3)) / 2),
                issue_ns: time(i),
                complete_ns: Some(time(i) + lasted(i)),
                dev: 8 << 20,
                sector: at(i, 4),
                len_bytes: positive(at(i, 6)),
                op: "write".into(),
                error: at(i, 2) as i32,
                ..Block::default()
            })
            .unwrap();
        w.bio
            .push(Bio {
                bio_id: -1,
                rq_id: Some(i as i64),
                queue_ns: time(i),
                complete_ns: Some(time(i) + lasted(i)),
                dev: 8 << 20,
                sector: 1,
                len_bytes: 4096,
                op: "write".into(),
                class: "data".into(),
                file: Some(3),
                file_offset_bytes: Some(positive(at(i, 1))),
                ..Bio::default()
            })
            .unwrap();
    }
    w.close(m).unwrap();
    path
}

/// The page's own scripts for its data. Those in the page cannot be reached from outside.
const SCRIPTS: [&str; 2] = [
    include_str!("../../visualize/src/report/page/bundle.js"),
    include_str!("../../visualize/src/report/page/dataset.js"),
];

/// All columns of the single events, as text; and what is shown of places in files.
const READ: &str = r#"
  const all = (source, names) => {
    const rows = [...Array(source.singles.n).keys()].map((i) => names.map((name) => String(exactAt(source.singles[name], i))));
    return rows.sort((a, b) => (a.join() < b.join() ? -1 : 1));
  };
  const out = { requests: all(base.devices[0], ['at', 'took', 'waited', 'sector', 'bytes', 'error']) };
  const source = base.calls || base.bios;
  out.events = all(source, base.calls ? ['at', 'took', 'offset', 'ret'] : ['at', 'took', 'offset', 'bytes']);
  out.lanes = [...Array(base.lanes.n).keys()].map((k) => [base.lanes.paths[k], String(exactAt(base.lanes.from, k)), String(exactAt(base.lanes.to, k))]);
  if (base.calls) {
    const s = base.calls.singles;
    const reads = [...Array(s.n).keys()].filter((i) => base.index.ops[s.op[i]] === 'pread64');
    out.places = reads.map((i) => s.high[i] - s.low[i]);
    [...document.querySelectorAll('#selection button')].find((b) => b.textContent === 'operations').click();
    await pause(300);
    out.listed = [...document.querySelectorAll('#events tbody tr')].map((tr) => [...tr.cells].map((c) => c.textContent));
  }
  return out;
"#;

/// Shows the page, and reads its data.
fn read(html: &Path, dir: &Path) -> Value {
    let page = std::fs::read_to_string(html).unwrap();
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let [bundle, dataset] = SCRIPTS;
    let script =
        format!("{bundle}\n{dataset}\nconst base = makeDataset(await readBundle(fromBase64('{data}')));\n{READ}");
    visit(html, &script, dir).result
}

fn sorted(rows: impl Iterator<Item = Vec<i64>>) -> Value {
    let mut rows: Vec<Vec<String>> = rows.map(|r| r.iter().map(i64::to_string).collect()).collect();
    rows.sort_by_key(|r| r.join(","));
    json!(rows)
}

#[test]
fn extreme_integers_are_exact_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(&reel(dir.path(), true), dir.path(), &[]);
    let r = read(&html, dir.path());
    let n = EXTREMES.len();
    let requests = (0..n).map(|i| {
        let waited = positive(at(i, 3)) / 2;
        let bytes = positive(at(i, 6)).min(i64::from(u32::MAX));
        vec![time(i), lasted(i), waited, at(i, 4), bytes, i64::from(at(i, 2) as i32)]
    });
    assert_eq!(r["requests"], sorted(requests));
    let events = (0..n).flat_map(|i| {
        let far = i64::MAX - 65_536 + i as i64 * 4096;
        // The position of a directory is no offset.
        let places = [(at(i, 1), at(i, 2)), (far, 4096), (i as i64 * 4096, 4096), (0, 96)];
        places.map(|(offset, ret)| vec![time(i), lasted(i), offset, ret])
    });
    assert_eq!(r["events"], sorted(events));
    let listed = r["listed"].as_array().unwrap();
    let of = |op: &str| listed.iter().filter(move |row| row[1] == op).collect::<Vec<_>>();
    assert_eq!((listed.len(), of("getdents64").len()), (4 * n, n));
    assert!(of("getdents64").iter().all(|row| row[3] == ""), "a directory has no offsets: {listed:?}");
    for (column, text) in
        [(0, "2305843009.213693950 s"), (3, "9,223,372,036,854,775,807"), (3, "-9,007,199,254,740,993")]
    {
        assert!(of("fcntl").iter().any(|row| row[column] == text), "{text}: {listed:?}");
    }
    let lane = |path: &str, from: i64, to: i64| json!([path, from.to_string(), to.to_string()]);
    let far = i64::MAX - 65_536;
    assert_eq!(r["lanes"], json!([lane("/data/0", 0, n as i64 * 4096), lane("/data/1", far, far + n as i64 * 4096)]));
    // Each read is a twelfth of its file, in both files.
    let places = r["places"].as_array().unwrap();
    assert_eq!(places.len(), 2 * n);
    assert!(places.iter().all(|p| (p.as_f64().unwrap() * 2.0 * n as f64 - 1.0).abs() < 0.02), "{places:?}");
}

#[test]
fn extreme_bios_are_exact_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(&reel(dir.path(), false), dir.path(), &[]);
    let r = read(&html, dir.path());
    let bios = (0..EXTREMES.len()).map(|i| vec![time(i), lasted(i), positive(at(i, 1)), 4096]);
    assert_eq!(r["events"], sorted(bios));
}
