//! `ioreel report` as a person with a browser meets it: pages are shown by a headless Chromium (`scripts/setup test`).
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod browser;
mod extremes;
mod looks;
mod reels;
mod serve;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::{Reel, rows::Block};
use ioreel_visualize::{Finding, ReportOptions, report};
use serde_json::Value;

use browser::visit;

fn ioreel(args: &[&str]) -> Vec<u8> {
    let done = Command::new(env!("CARGO_BIN_EXE_ioreel")).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn page(reel: &Path, dir: &Path, more: &[&str]) -> PathBuf {
    let out = dir.join("page.html");
    let mut args = vec!["report", reel.to_str().unwrap(), "-o", out.to_str().unwrap()];
    args.extend(more);
    assert!(ioreel(&args).is_empty(), "nothing to say on success");
    out
}

/// Reads what a person would: the numbers, the tables, a tooltip, a selection, the windows after zooming.
const TOUR: &str = r#"
  const text = (id) => document.getElementById(id).textContent;
  const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((tr) => [...tr.cells].map((c) => c.textContent));
  const tab = (id) => document.querySelector(`[data-tab="${id}"]`).click();
  const out = { statistics: {}, whole: text('shown'), notices: text('notices'), command: text('command'), title: document.title };
  tab('statistics');
  for (const cell of document.querySelectorAll('[data-statistic]')) out.statistics[cell.dataset.statistic] = Number(cell.dataset.value);
  tab('files');
  out.files = rows('table-files');
  tab('processes');
  out.processes = rows('table-processes');
  await pause(300);
  out.tiles = text('selection');
  out.images = document.images.length;
  out.panels = [...document.querySelectorAll('canvas[data-panel]')].map((c) => {
    const g = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    const colors = new Set();
    for (let i = 0; i < g.length; i += 4) colors.add((g[i] << 16) | (g[i + 1] << 8) | g[i + 2]);
    return [c.dataset.panel, colors.size];
  });
  // Up and down over one moment, until a request is met.
  const canvas = document.querySelector('canvas[data-panel="latency"]');
  canvas.scrollIntoView();
  await pause(50);
  const box = canvas.getBoundingClientRect();
  const plot = box.width - 92 - 16;
  out.tips = [];
  for (let y = box.top + 10; y < box.bottom && out.tips.length < 3; y += 3) {
    pointer(canvas, 'pointermove', box.left + 92 + plot * 0.6, y);
    if (!document.getElementById('tip').hidden && text('tip').includes('took')) out.tips.push(text('tip'));
  }
  const at = (share) => box.left + 92 + plot * share;
  pointer(canvas, 'pointerdown', at(0.25), box.top + 50);
  pointer(canvas, 'pointermove', at(0.4), box.top + 50);
  pointer(canvas, 'pointermove', at(0.5), box.top + 50);
  pointer(canvas, 'pointerup', at(0.5), box.top + 50);
  await pause(400);
  out.selection = text('selection');
  document.getElementById('zoom').click();
  await pause(400);
  out.zoomed = text('shown');
  canvas.dispatchEvent(new WheelEvent('wheel', { clientX: at(0.5), clientY: box.top + 50, deltaY: -240, bubbles: true, cancelable: true }));
  await pause(100);
  out.wheeled = text('shown');
  document.getElementById('back').click();
  document.getElementById('back').click();
  await pause(100);
  out.back = text('shown');
  out.pwned = document.documentElement.dataset.pwned || 'no';
  return out;
"#;

#[test]
fn a_page_says_what_stats_says_and_names_cannot_inject() {
    let dir = tempfile::tempdir().unwrap();
    let reel = reels::full(dir.path(), reels::HOSTILE);
    let html = page(&reel, dir.path(), &["--title", reels::HOSTILE]);
    let raw = fs::read_to_string(&html).unwrap();
    assert!(
        !raw.contains("onerror") && !raw.contains("http:") && !raw.contains("https:"),
        "nothing of the reel is markup"
    );
    let shown = visit(&html, TOUR, dir.path());
    assert!(shown.requested.is_empty(), "the page asked for {:?}", shown.requested);
    let r = shown.result;

    // Every number of `ioreel stats`, none more and none less.
    let stats: Value = serde_json::from_slice(&ioreel(&["stats", "--json", reel.to_str().unwrap()])).unwrap();
    let told = r["statistics"].as_object().unwrap();
    let rows = stats["comparison"].as_array().unwrap();
    assert!(rows.len() > 100 && rows.len() == told.len(), "{} of {}", told.len(), rows.len());
    for row in rows {
        let key = format!("{}/{}", row["device"].as_str().unwrap(), row["name"].as_str().unwrap());
        let want = row["groups"][0]["mean"].as_f64().unwrap();
        assert_eq!(told.get(&key).and_then(Value::as_f64), Some(want), "{key}");
    }
    // Counts by construction: sda has 900 requests of which ten are flushes, and one of its reads failed.
    let tiles = r["tiles"].as_str().unwrap();
    for words in [
        "requests issued to sda (8:0)900 (",
        "flush10",
        "failed1",
        "operations entered1,000 (",
        "read250, 1000.0 KiB",
        "write750, 2.9 MiB",
    ] {
        assert!(tiles.contains(words), "{words}: {tiles}");
    }
    let cells = |table: &str| -> Vec<String> {
        r[table].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((r["files"].as_array().unwrap().len(), cells("processes").len()), (5, 2));
    // Hostile names are text, and what cannot be seen in them is spelled out.
    let seen = "</script><img src=x onerror=\"document.documentElement.dataset.pwned='yes'\">\\n<b>&amp;\\u202e\\xff";
    assert!(cells("files").contains(&format!("/{seen}/{seen}")), "{:?}", cells("files"));
    assert!(r["command"].as_str().unwrap().contains(seen) && r["title"].as_str().unwrap().contains(seen));
    assert!(r["notices"].as_str().unwrap().contains(&format!("warning of {seen}")));
    assert_eq!((r["images"].as_i64(), r["pwned"].as_str()), (Some(0), Some("no")));
    assert!(!shown.dom.contains("<img"), "names are no elements");

    // Losses are told, and everything has been drawn.
    assert!(r["notices"].as_str().unwrap().contains("7 of 1,007 events of ops were lost"), "{}", r["notices"]);
    let panels = r["panels"].as_array().unwrap();
    assert_eq!(panels.len(), 8);
    assert!(panels.iter().all(|p| p[1].as_i64().unwrap() > 8), "{panels:?}");

    // A tooltip of one request.
    let tip = r["tips"][0].as_str().unwrap();
    assert!(tip.contains("on sda (8:0)") && tip.contains("size8.0 KiB") && tip.contains("contentdata"), "{tip}");

    // A quarter of the time was selected, became the window, and was left again.
    let selection = r["selection"].as_str().unwrap();
    assert!(selection.starts_with("Selected"), "{selection}");
    assert!(r["zoomed"].as_str().unwrap().contains("(299.85 ms)"), "{}", r["zoomed"]);
    assert_ne!(r["wheeled"], r["zoomed"]);
    assert_eq!(r["back"], r["whole"]);
}

#[test]
fn reels_of_next_to_nothing_make_pages() {
    let dir = tempfile::tempdir().unwrap();
    let one = Block {
        rq_id: -1,
        issue_ns: 0,
        complete_ns: Some(5),
        dev: 8 << 20,
        sector: 1 << 40,
        len_bytes: 512,
        op: "read".into(),
        ..Block::default()
    };
    for (name, rows, words) in [
        ("none", vec![], "This reel contains no operations and no requests"),
        ("one", vec![one.clone()], "all 1 requests with an address shown"),
        ("endless", vec![Block { complete_ns: None, ..one.clone() }], "all 1 requests with an address shown"),
        // What no machine says, and damage may.
        (
            "damaged",
            vec![
                Block {
                    issue_ns: -5,
                    complete_ns: Some(i64::MAX),
                    sector: i64::MAX,
                    len_bytes: i64::MAX,
                    ..one.clone()
                },
                Block {
                    issue_ns: i64::MAX,
                    complete_ns: Some(i64::MIN),
                    sector: -7,
                    len_bytes: -1,
                    op: "strange".into(),
                    ..one
                },
            ],
            "2",
        ),
    ] {
        let reel = reels::requests(dir.path(), name, rows.into_iter());
        let html = page(&reel, dir.path(), &[]);
        let shown = visit(
            &html,
            "await pause(300); return document.body.innerText + document.documentElement.dataset.ready;",
            dir.path(),
        );
        let text = shown.result.as_str().unwrap();
        assert!(text.contains(words) && text.ends_with("yes"), "{name}: {text}");
    }
}

#[test]
fn a_page_is_bounded_and_says_what_it_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let reel = reels::many(dir.path());
    let html = page(&reel, dir.path(), &[]);
    let size = fs::metadata(&html).unwrap().len();
    assert!(size < 15_000_000, "{size} bytes");
    let script = "await pause(300); return [document.getElementById('notices').textContent, document.querySelector('#events tbody tr').textContent, document.getElementById('selection').textContent];";
    let r = visit(&html, script, dir.path()).result;
    let told = r[0].as_str().unwrap();
    assert!(
        told.contains("Of 600,000 requests of sda (8:0), this page contains ")
            && told.contains("the slowest, and one in 4"),
        "{told}"
    );
    assert!(r[1].as_str().unwrap().contains("50.00 ms"), "the slowest is there: {}", r[1]);
    assert!(r[2].as_str().unwrap().contains("600,000"), "sums are of all: {}", r[2]);
}

/// Selects what colours stand for, and reads the keys and the different colours on the map.
const COLOURS: &str = r#"
  const select = document.getElementById('colors');
  const canvas = document.querySelector('canvas[data-panel="offsets"]');
  const out = { choices: [...select.options].map((o) => o.value), seen: {} };
  for (const by of out.choices) {
    select.value = by;
    select.dispatchEvent(new Event('change'));
    await pause(200);
    const g = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colors = new Set();
    for (let i = 0; i < g.length; i += 4) if (g[i + 3] === 255) colors.add((g[i] << 16) | (g[i + 1] << 8) | g[i + 2]);
    const hue = (hex) => colors.has(parseInt(hex.slice(1), 16));
    const keys = [...document.querySelectorAll('#panel-offsets .legend button')].map((b) => b.textContent);
    const colored = document.getElementById('colored').textContent;
    out.seen[by] = { keys, colored, told: document.querySelector('#panel-offsets .told').textContent, colors: colors.size, blue: hue('#0072b2') };
  }
  out.files = document.querySelector('#panel-files .told').textContent;
  out.title = document.querySelector('#panel-files h2').textContent;
  out.pwned = document.documentElement.dataset.pwned || 'no';
  out.images = document.images.length;
  out.notices = document.getElementById('notices').textContent;
  return out;
"#;

#[test]
fn offsets_are_coloured_by_what_is_asked_and_bios_have_places_in_files() {
    let dir = tempfile::tempdir().unwrap();
    // All of them in the page, and more than it holds by themselves.
    for (n, all) in [(2000, true), (300_000, false)] {
        let reel = reels::block_only(dir.path(), reels::HOSTILE, n);
        let shown = visit(&page(&reel, dir.path(), &[]), COLOURS, dir.path());
        let r = &shown.result;
        let list = |v: &Value| v.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(list(&r["choices"]), ["op", "process", "class", "file", "latency"]);
        let keys = |by: &str| list(&r["seen"][by]["keys"]);
        // Only what there is: no flush, no discard, and none but is of a class or of a thread.
        assert_eq!(keys("op"), ["read", "write"]);
        let others = usize::from(!all);
        assert_eq!(keys("class")[others..], ["data", "journal"]);
        let mut files = keys("file");
        files.sort();
        assert_eq!(files, ["1", "2", "3", "others"], "files by the ends of their paths");
        assert_eq!((keys("process")[others].as_str(), keys("process").len()), ("writer", 2 + others));
        assert!(keys("process")[1 + others].starts_with("</script><img"), "{:?}", keys("process"));
        assert_eq!((r["pwned"].as_str(), r["images"].as_i64()), (Some("no"), Some(0)));
        assert_eq!(keys("latency").len(), if all { 3 } else { 5 }, "{:?}", keys("latency"));
        for by in ["op", "process", "class", "file", "latency"] {
            assert!(r["seen"][by]["colors"].as_i64().unwrap() > 2, "{by}: {r}");
            // What of a sample is coloured is said beside the choice, and nothing where all is.
            let colored = r["seen"][by]["colored"].as_str().unwrap();
            let plain = colored.starts_with("coloured and drawn: ") && colored.contains(" of 300,000 requests");
            assert!(if all || by == "op" { colored.is_empty() } else { plain }, "{by}: {colored}");
        }
        let told = |by: &str| r["seen"][by]["told"].as_str().unwrap();
        assert_eq!(told("op").starts_with("all 2,000"), all, "{}", told("op"));
        assert_eq!(told("class").contains(" of 300,000 requests"), !all, "{}", told("class"));
        let map = r["files"].as_str().unwrap();
        let want = if all { "all 1,600 bios of files shown" } else { "density of 240,000 bios of files" };
        assert!(map.starts_with(want), "{map}");
        assert_eq!(r["title"], "Places in files, by bios");
        assert!(r["notices"].as_str().unwrap().contains("clock goes back 1 times"), "{}", r["notices"]);
        fs::remove_dir_all(reel).unwrap();
    }
}

#[test]
fn where_events_were_lost_is_red() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(&reels::full(dir.path(), "plain"), dir.path(), &[]);
    // The columns of each panel that are washed in the colour of alarm, as shares of its plot.
    let script = r#"
      return [...document.querySelectorAll('canvas[data-panel]')].map((c) => {
        const scale = c.width / c.clientWidth;
        const g = c.getContext('2d').getImageData(0, 0, c.width, c.height);
        const red = [];
        for (let x = 0; x < c.width; x += 1) {
          let n = 0;
          for (let y = 0; y < c.height; y += 1) {
            const [r, green, b, a] = g.data.subarray((y * c.width + x) * 4, (y * c.width + x) * 4 + 4);
            n += Math.abs(r - 193) < 8 && green < 40 && b < 50 && a > 30 && a < 80 ? 1 : 0;
          }
          if (n > 5) red.push((x / scale - 92) / (c.clientWidth - 92 - 16));
        }
        return [c.dataset.panel, red.length ? Math.min(...red) : null, red.length ? Math.max(...red) : null];
      });
    "#;
    let shown = visit(&html, script, dir.path());
    let panels = shown.result.as_array().unwrap();
    assert_eq!(panels.len(), 8);
    // The last request ends at 1199.4 ms.
    let share = |ms: f64| ms / 1199.3999;
    for p in panels {
        let (from, to) = (p[1].as_f64().unwrap_or(-1.0), p[2].as_f64().unwrap_or(-1.0));
        assert!((from - share(300.0)).abs() < 0.003 && (to - share(310.0)).abs() < 0.003, "{p}");
    }
}

#[test]
fn findings_are_listed_and_go_to_their_windows() {
    let dir = tempfile::tempdir().unwrap();
    let reel = Reel::open(reels::full(dir.path(), "plain")).unwrap();
    let finding = Finding {
        title: format!("Seeks {}", reels::HOSTILE),
        severity: "critical".into(),
        text: "They cost half the time.".into(),
        from_ns: 400_000_000,
        to_ns: 600_000_000,
    };
    let html = dir.path().join("page.html");
    let script = "document.querySelector('#findings button')?.click(); await pause(300); return [document.getElementById('findings').hidden, document.getElementById('findings').innerText, document.getElementById('shown').textContent];";
    for findings in [vec![finding], vec![]] {
        let there = !findings.is_empty();
        fs::write(&html, report(&reel, &ReportOptions { findings, ..ReportOptions::default() }).unwrap()).unwrap();
        let r = visit(&html, script, dir.path()).result;
        let (list, shown) = (r[1].as_str().unwrap(), r[2].as_str().unwrap());
        assert_eq!(r[0].as_bool(), Some(!there));
        assert_eq!(list.contains("Seeks </script><img") && list.contains("half the time"), there, "{list}");
        assert_eq!(shown.starts_with("370.0 ms – 630.0 ms"), there, "{shown}");
    }
}

#[test]
fn what_cannot_be_done_gets_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let reel = reels::requests(dir.path(), "none", std::iter::empty());
    let reel = reel.to_str().unwrap();
    for (args, status, words) in [
        (&["report", reel, "-o", "x.png"][..], 2, "x.png: a report is an HTML file"),
        (&["report", "/nowhere.reel", "-o", "x.html"], 1, "not a reel"),
        (&["report", reel, "-o", "/nowhere/x.html"], 1, "/nowhere/x.html: writing the report"),
    ] {
        let done = Command::new(env!("CARGO_BIN_EXE_ioreel")).args(args).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{args:?}");
        assert!(said.lines().count() == 1 && said.contains(words), "{args:?}: {said}");
    }
}
