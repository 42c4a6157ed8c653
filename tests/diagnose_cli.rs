//! `ioreel diagnose` on the sample reels and on traces whose truth is known by construction.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ioreel_analyze::findings::DETECTORS;
use serde_json::Value;

fn ioreel(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ioreel")).args(args).output().unwrap()
}

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
}

fn sample(name: &str) -> String {
    root().join("traces/samples").join(name).display().to_string()
}

fn json(reel: &str, options: &[&str]) -> Value {
    let out = ioreel(&[&["diagnose", "--json", reel], options].concat());
    assert!(out.status.success(), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Imports a table of requests.
fn import(dir: &Path, name: &str, table: &str) -> String {
    let (csv, reel) = (dir.join(format!("{name}.csv")), dir.join(format!("{name}.reel")));
    fs::write(&csv, table).unwrap();
    let out = ioreel(&["import", "csv", "--table", "block", csv.to_str().unwrap(), "-o", reel.to_str().unwrap()]);
    assert!(out.status.success(), "{out:?}");
    reel.display().to_string()
}

/// Two thousand reads, two of three 8 GiB away from the previous one; those take 8 ms, the others 0.2 ms.
fn seeking() -> String {
    let mut table = String::from("issue_ns,complete_ns,sector,len_bytes,op\n");
    let (mut t, mut sector) = (0_i64, 0);
    for i in 0..2000_i64 {
        let far = i % 3 != 0;
        sector = if far { (i * 7919 % 1000) << 24 } else { sector + 8 };
        let took = if far { 8_000_000 } else { 200_000 };
        writeln!(table, "{t},{},{sector},4096,read", t + took).unwrap();
        t += took;
    }
    table
}

/// As many sequential reads, each as fast.
fn streaming() -> String {
    let mut table = String::from("issue_ns,complete_ns,sector,len_bytes,op\n");
    for i in 0..2000_i64 {
        // Four in flight.
        let t = i * 50_000;
        writeln!(table, "{t},{},{},131072,read", t + 200_000, i * 256).unwrap();
    }
    table
}

#[test]
fn a_mail_server_has_a_sync_storm() {
    let d = json(&sample("mail.reel"), &[]);
    assert_eq!(d["schema"], "ioreel.diagnosis/1");
    let first = &d["findings"][0];
    assert_eq!(first["id"], "sync-storm", "{d}");
    // Fsync takes 84 % of the time in calls and 7.7 % of the elapsed time, of which groups of eight save seven eighths.
    let (of_calls, share) = (first["call_time_share"].as_f64().unwrap(), first["share"].as_f64().unwrap());
    assert!((0.80..0.88).contains(&of_calls), "{of_calls}");
    assert!((0.055..0.08).contains(&share), "{share}");
    for member in ["summary", "remedy", "check"] {
        assert!(!first[member].as_str().unwrap().is_empty(), "{member}");
    }
    assert!(!first["evidence"]["sql"].as_str().unwrap().is_empty());
}

#[test]
fn the_parts_add_up_to_the_time_in_calls() {
    for name in ["mail.reel", "compile.reel", "postmark.reel", "untar.reel"] {
        let time = &json(&sample(name), &[])["time"];
        let total = time["time_ns"].as_f64().unwrap();
        let sum: f64 = time["parts"].as_object().unwrap().values().map(|ns| ns.as_f64().unwrap()).sum();
        assert!((sum - total).abs() <= 1e-6 * total, "{name}: {sum} of {total}");
    }
}

#[test]
fn a_seeking_disk_is_found_with_its_cost_and_a_stream_is_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let d = json(&import(dir.path(), "seeking", &seeking()), &[]);
    let found = d["findings"].as_array().unwrap().iter().find(|f| f["id"] == "seek-storm").unwrap();
    // 1333 seeks that take 7.8 ms longer than the other requests.
    let cost_s = found["cost_s"].as_f64().unwrap();
    assert!((cost_s - 1333.0 * 0.0078).abs() < 0.05, "{cost_s}");
    assert!(d["time"].is_null(), "no operations");
    assert!(d["not_looked_for"].as_array().unwrap().contains(&"sync-storm".into()));

    let healthy = import(dir.path(), "streaming", &streaming());
    assert_eq!(json(&healthy, &[])["findings"], Value::Array(Vec::new()));
    let out = ioreel(&["diagnose", &healthy]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("Nothing found") && text.contains("Looked for"), "{text}");
}

#[test]
fn fail_on_sets_the_status() {
    let mail = sample("mail.reel");
    let status = |options: &[&str]| ioreel(&[&["diagnose", &mail], options].concat()).status.code();
    assert_eq!(status(&["--fail-on", "sync-storm"]), Some(3));
    assert_eq!(status(&["--fail-on", "sync-storm:0.1"]), Some(3));
    assert_eq!(status(&["--fail-on", "sync-storm:100"]), Some(0));
    assert_eq!(status(&["--fail-on", "seek-storm"]), Some(0));
    let wrong = ioreel(&["diagnose", &mail, "--fail-on", "sync-strom"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("did you mean 'sync-storm'"));
    assert_eq!(ioreel(&["diagnose", &mail, "--fail-on", "sync-storm:x"]).status.code(), Some(2));
}

#[test]
fn all_lists_what_costs_little_and_the_threshold_counts_it() {
    let mail = sample("mail.reel");
    let (few, all) = (json(&mail, &[]), json(&mail, &["--all"]));
    let count = |d: &Value| d["findings"].as_array().unwrap().len();
    assert_eq!(count(&few) + few["below_threshold"].as_u64().unwrap() as usize, count(&all));
    assert!(few["findings"].as_array().unwrap().iter().all(|f| f["share"].as_f64().unwrap() >= 0.05));
}

#[test]
fn every_pattern_is_documented_and_has_a_case() {
    let docs = fs::read_to_string(root().join("docs/diagnosis.md")).unwrap();
    for detector in DETECTORS {
        assert!(docs.contains(&format!("| `{}` | {} |", detector.id, detector.pattern)), "{}", detector.id);
        assert!(root().join("tests/diagnosis/cases").join(detector.id).exists(), "no case for {}", detector.id);
    }
}

#[test]
fn explain_tells_the_slowest_and_the_named_one() {
    let mail = sample("mail.reel");
    let stories = |options: &[&str]| -> Vec<Value> {
        let out = ioreel(&[&["explain", "--json", &mail], options].concat());
        assert!(out.status.success(), "{out:?}");
        let document: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(document["schema"], "ioreel.stories/1");
        document["stories"].as_array().unwrap().clone()
    };
    let five = stories(&["--slowest", "5", "--of", "fsync", "--file", "/srv/sample/home/*"]);
    assert_eq!(five.len(), 5);
    assert!(five.windows(2).all(|w| w[0]["dur_ns"].as_i64() >= w[1]["dur_ns"].as_i64()));
    assert!(five.iter().all(|s| s["op"] == "fsync"));
    // The journal's thread writes while an fsync waits.
    let others = five[0]["others"].as_array().unwrap();
    assert!(others.iter().any(|o| o["comm"].as_str().unwrap().starts_with("jbd2/")), "{}", five[0]);

    let id = five[0]["op_id"].to_string();
    assert_eq!(stories(&["--op", &id]), five[..1]);
    let none = ioreel(&["explain", &mail, "--of", "no-such-call"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(String::from_utf8(none.stderr).unwrap().lines().count(), 1);
}

#[test]
fn the_difference_between_reels_adds_up() {
    let (mail, untar) = (sample("mail.reel"), sample("untar.reel"));
    let d = json(&mail, &["--against", &untar]);
    assert_eq!(d["schema"], "ioreel.difference/1");
    let number = |v: &Value| v.as_f64().unwrap();
    let sum: f64 = d["parts"].as_array().unwrap().iter().map(|p| number(&p["ns"]) - number(&p["against_ns"])).sum();
    let whole = number(&d["elapsed_ns"]) - number(&d["against_elapsed_ns"]);
    assert!((sum - whole).abs() <= 1e-6 * whole.abs(), "{sum} of {whole}");
    assert!(d["only_here"].as_array().unwrap().contains(&"sync-storm".into()), "{d}");
    // A reel does not differ from itself.
    let same = json(&mail, &["--against", &mail]);
    assert!(same["first_cause"].is_null() && same["operations"].as_array().unwrap().is_empty(), "{same}");
}
