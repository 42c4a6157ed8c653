//! `ioreel import` and `ioreel export` as a user meets them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn ioreel(dir: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ioreel")).args(line.split(' ')).current_dir(dir).output().unwrap()
}

fn sample() -> PathBuf {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    root.join("traces/tests/data/blktrace/6.1.0-56-amd64-ext4-fsync")
}

#[test]
fn a_trace_goes_in_is_summarised_drawn_and_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    for cpu in 0..2 {
        let name = format!("vda.blktrace.{cpu}");
        fs::copy(sample().join(&name), dir.path().join(&name)).unwrap();
    }
    for (line, told) in [
        ("import blktrace vda -o a.reel", "a.reel: 212 requests, 186 bios over 7.966 s, from 969 records"),
        ("validate a.reel", "valid"),
        ("info a.reel", "Reel       a (import, format"),
        ("plot a.reel -o a.png", ""),
        ("export a.reel blktrace -o b", "b.blktrace.0 … (2 files): 969 records"),
        ("export a.reel csv --table block -o block.csv", "block.csv: 212 rows of table block"),
        ("export a.reel jsonl --table actions", "\"event\":\"timestamp\""),
        ("export a.reel perfetto -o a.pftrace", "a.pftrace: 212 slices"),
    ] {
        let done = ioreel(dir.path(), line);
        let out = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && out.contains(told), "{line}: {out} {}", String::from_utf8_lossy(&done.stderr));
    }
    // A trace of more records than are looked at says that these stages are not computed; by its manifest this is one.
    let path = dir.path().join("a.reel/manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let stats = |more: &str| String::from_utf8(ioreel(dir.path(), &format!("stats a.reel{more}")).stdout).unwrap();
    assert!(!stats("").contains("not computed") && stats(" --json").contains("\"stages_not_told\": null"));
    manifest["segments"]["actions"][0]["rows"] = 8_000_001.into();
    fs::write(&path, manifest.to_string()).unwrap();
    let line = "a: Q2G, G2I and I2D not computed: the trace has 8,000,001 records, the limit is 8,000,000";
    assert!(stats("").lines().any(|l| l.trim() == line), "{}", stats(""));
    assert!(stats(" --json").contains("\"stages_not_told\": 8000001"));
    for cpu in 0..2 {
        let bytes = |name: &str| fs::read(dir.path().join(format!("{name}.blktrace.{cpu}"))).unwrap();
        assert!(bytes("vda") == bytes("b"));
    }
}

#[test]
fn failures_are_one_line_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), "no trace\n").unwrap();
    fs::create_dir(dir.path().join("there.reel")).unwrap();
    for (line, told) in [
        ("import blktrace sdz -o a.reel", "name a trace (sda), one of its files, or a dump"),
        ("import blktrace text -o a.reel", "name files written by blktrace, or a dump of"),
        ("import fio text -o a.reel", "name a file written by fio's write_iolog"),
        ("import strace text -o a.reel", "expected `PID TIME call(…) = N` from `strace -f -ttt -T -y`"),
        ("import csv text --table block -o a.reel", "name the columns in order with --columns"),
        ("export nowhere.reel blktrace -o x", "not a reel"),
    ] {
        let done = ioreel(dir.path(), line);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{line}: {said}");
        assert!(said.lines().count() == 1 && said.contains(told), "{line}: {said}");
        assert!(!dir.path().join("a.reel").exists(), "{line}");
    }
    for line in
        ["import blktrace -o a.reel", "import tar x -o a.reel", "export there.reel", "import csv text -o a.reel"]
    {
        assert_eq!(ioreel(dir.path(), line).status.code(), Some(2), "{line}");
    }
}
