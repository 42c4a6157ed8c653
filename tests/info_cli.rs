//! `ioreel info` as a user meets it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{self, Clock, Host, Kind, Ledger, Loss, Mount, Span},
    rows::{Block, File, Op, Task},
};
use serde_json::Value;

fn info(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ioreel")).arg("info").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Three writes of which one fails, one read, a request each way, and 5 events lost.
fn sample(dir: &Path) -> PathBuf {
    let path = dir.join("sample.reel");
    let mut m = Manifest {
        host: Host { name: "h1".into(), kernel: "6.18.44".into(), arch: "x86_64".into(), cpus: 2, ..Host::default() },
        clock: Clock { monotonic_ns: 5, realtime_ns: 1_795_262_403_000_000_000 },
        command: Some(manifest::Command {
            argv: ["sh", "-c", "echo it's > a"].map(String::from).to_vec(),
            cwd: "/mnt/t".into(),
            exit_status: Some(0x300),
        }),
        span: Span { elapsed_ns: 2_000_000_000, settle_ns: 500_000_000 },
        mounts: vec![Mount {
            sb_dev: 1 << 20,
            fstype: "ext4".into(),
            mountpoint: "/mnt/t".into(),
            source: "/dev/sda".into(),
            ..Mount::default()
        }],
        warnings: vec!["something to know".into()],
        ..Manifest::new(Kind::Recording, "tracepoint")
    };
    m.ledger.insert("ops".into(), Ledger { seen: 10, written: 4, lost: 5, filtered: 1 });
    m.losses.push(Loss { cpu: 1, from_ns: 10, to_ns: 2000, events: 5 });
    m.left_out.insert("calls of the recorder itself".into(), 1);
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    let op = |name: &str, start_ns, dur_ns, ret| Op {
        op_id: -1,
        op: name.into(),
        source: "syscall".into(),
        state: "complete".into(),
        start_ns,
        dur_ns,
        task_id: 7,
        file: Some(3),
        ret: Some(ret),
        ..Op::default()
    };
    for o in
        [op("write", 0, 1000, 4096), op("write", 10, 2000, 4096), op("write", 20, 3000, -28), op("read", 30, 10, 9)]
    {
        w.ops.push(o).unwrap();
    }
    w.tasks.push(Task { task_id: 7, pid: 4242, comm: "sh".into(), ..Task::default() }).unwrap();
    let path_of = Some("/mnt/t/a".into());
    w.files.push(File { file: 3, sb_dev: 1 << 20, kind: "regular".into(), path: path_of, ..File::default() }).unwrap();
    for (op, len_bytes) in [("write", 8192), ("discard", 1 << 30)] {
        let complete_ns = Some(9000);
        w.block
            .push(Block {
                rq_id: -1,
                issue_ns: 5000,
                complete_ns,
                dev: 8 << 20,
                len_bytes,
                op: op.into(),
                ..Block::default()
            })
            .unwrap();
    }
    w.close(m).unwrap();
    path
}

#[test]
fn the_summary_names_everything_and_has_no_colour_on_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let out = info(&[sample(dir.path()).to_str().unwrap()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    for line in [
        "Command    sh -c 'echo it'\\''s > a'",
        "           in /mnt/t, exit status 3",
        "Made       2026-11-21 12:00:03 UTC on h1 (Linux 6.18.44 x86_64, 2 CPUs, 0 B)",
        "Elapsed    2.000 s to the last operation, 2.500 s with settling",
        "Operations 4 (2/s), 1 failed, 9 B read, 8.0 KiB written, 6.0 us in calls",
        "  failed: write ENOSPC 1",
        "Events: SOME WERE LOST",
        "Warning: something to know",
    ] {
        assert!(said.lines().any(|l| l == line), "no line {line:?} in\n{said}");
    }
    for words in [
        &["write", "3", "1", "8.0 KiB", "6.0 us"][..],
        &["8:0", "write", "1", "8.0 KiB"],
        &["discard", "1", "1.0 GiB"],
        &["ops", "10", "4", "5", "1"],
        &["4", "9 B", "8.0 KiB", "ext4", "/mnt/t/a"],
        &["4242", "(sh)"],
        &["1", "calls of the recorder itself"],
    ] {
        let has = |l: &str| words.iter().try_fold(l, |rest, w| Some(&rest[rest.find(w)? + w.len()..])).is_some();
        assert!(said.lines().any(has), "no line with {words:?} in\n{said}");
    }
    assert!(!said.contains('\x1b') && said.lines().all(|l| l.trim_end() == l));
}

#[test]
fn the_json_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let out = info(&[sample(dir.path()).to_str().unwrap(), "--json", "--top", "1"]);
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["schema"], "ioreel.info/1");
    assert_eq!(v["reel"], "sample");
    assert_eq!(v["recorded_at"], "2026-11-21T12:00:03Z");
    assert_eq!(v["span"]["total_ns"], 2_500_000_000i64);
    assert_eq!(v["total"]["calls"], 4);
    assert_eq!(v["operations"][0]["op"], "write");
    assert_eq!(v["operations"][0]["errnos"]["28"], 1);
    assert_eq!(v["operations"][0]["latency"]["total_ns"], 6000);
    assert_eq!(v["devices"][0]["write_bytes"], 8192);
    assert_eq!(v["devices"][0]["classes"][1]["op"], "discard");
    assert_eq!(v["devices"][0]["seeks"]["exact"], 0);
    assert_eq!(v["files_by_bytes"][0]["path"], "/mnt/t/a");
    assert_eq!(v["ledger"]["ops"]["lost"], 5);
    assert_eq!(v["manifest"]["command"]["exit_status"], 0x300);
}

/// Every member that `--json` prints is in `docs/json.md`, and the other way round.
#[test]
fn the_json_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let out = info(&[sample(dir.path()).to_str().unwrap(), "--json"]);
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    let doc = std::fs::read_to_string(Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("docs/json.md"))
        .unwrap();
    let section = doc.split("## `ioreel info --json`").nth(1).unwrap().split("\n## ").next().unwrap();
    let documented: std::collections::BTreeSet<&str> =
        section.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    let printed: std::collections::BTreeSet<&str> = v.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(documented, printed);
}

#[test]
fn a_name_with_line_breaks_is_told_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = info(&[dir.path().join("a\nb.reel").to_str().unwrap()]);
    let told = text(&out.stderr);
    assert!(out.status.code() == Some(1) && told.lines().count() == 1 && told.contains("b.reel"), "{told}");
}

#[test]
fn bad_input_gets_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = info(&[dir.path().join("none.reel").to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.lines().count() == 1 && said.contains("not a reel"), "{said}");

    let path = sample(dir.path());
    std::fs::write(path.join("ops/000000.parquet"), b"PAR1 cut short").unwrap();
    let out = info(&[path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.lines().count() == 1 && said.contains("ops/000000.parquet"), "{said}");
}
