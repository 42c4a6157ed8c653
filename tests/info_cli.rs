//! `ioreel info` as a user meets it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{self, Clock, Device, Host, Kind, Ledger, Loss, Mount, Span},
    rows::{Bio, Block, Exec, File, Op, Task, Tree, Wait},
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
        span: Span { elapsed_ns: 2_000_000_000, settle_ns: 500_000_000, ..Span::default() },
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
        "Operations 4 (2/s), 1 failed, 6.0 us in calls",
        "Bytes      files: 9 B read, 8.0 KiB written",
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

/// Three files of one path, one after the other, a pipe, a terminal and `/dev/null`: calls on each move bytes of another
/// order of magnitude.
fn of_all_targets(dir: &Path) -> PathBuf {
    let path = dir.join("targets.reel");
    let m =
        Manifest { span: Span { elapsed_ns: 1_000_000, ..Span::default() }, ..Manifest::new(Kind::Recording, "test") };
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    w.tasks.push(Task { task_id: 7, pid: 42, comm: "db".into(), ..Task::default() }).unwrap();
    let files = [
        (1, "regular", "/t/s.db-journal"),
        (2, "regular", "/t/s.db-journal"),
        (3, "regular", "/t/s.db-journal"),
        (4, "regular", "/t/s.db"),
        (5, "fifo", "pipe:[9]"),
        (6, "char", "/dev/pts/0"),
        (7, "char", "/dev/null"),
        (8, "char", "/dev/zero"),
    ];
    for (file, kind, path) in files {
        w.files.push(File { file, kind: kind.into(), path: Some(path.into()), ..File::default() }).unwrap();
    }
    let calls = [
        ("write", 1, None, 100),
        ("write", 2, None, 100),
        ("write", 3, None, 100),
        ("write", 4, None, 250),
        ("read", 4, None, 50),
        ("write", 5, None, 1_000),
        ("write", 6, None, 10_000),
        ("write", 7, None, 100_000),
        ("read", 8, None, 200_000),
        ("splice", 4, Some(5), 7),
        ("io_uring_enter", 5, None, 8),
    ];
    for (i, (op, file, file2, ret)) in calls.into_iter().enumerate() {
        let op = Op {
            op_id: -1,
            op: op.into(),
            source: "syscall".into(),
            state: "complete".into(),
            start_ns: i as i64 * 10,
            dur_ns: 5,
            task_id: 7,
            file: Some(file),
            file2,
            ret: Some(ret),
            ..Op::default()
        };
        w.ops.push(op).unwrap();
    }
    w.close(m).unwrap();
    path
}

#[test]
fn files_pipes_devices_and_nowhere_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = of_all_targets(dir.path());
    let out = info(&[path.to_str().unwrap(), "--json"]);
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    let bytes = |read: u64, written: u64| serde_json::json!({ "read_bytes": read, "write_bytes": written });
    let moved = serde_json::json!({
        "files": bytes(57, 550), "pipes": bytes(0, 1_007), "devices": bytes(0, 10_000), "nowhere": bytes(200_000, 100_000),
    });
    assert_eq!(v["total"]["moved"], moved);
    assert_eq!(v["processes_by_time"][0]["moved"], moved);
    // The sum of all stays.
    assert_eq!((v["total"]["read_bytes"].as_u64(), v["total"]["write_bytes"].as_u64()), (Some(200_057), Some(111_557)));
    let of = |op: &str| v["operations"].as_array().unwrap().iter().find(|o| o["op"] == op).unwrap().clone();
    assert_eq!(of("write")["moved"]["files"], bytes(0, 550));
    assert_eq!((&of("splice")["moved"]["files"], &of("splice")["moved"]["pipes"]), (&bytes(7, 0), &bytes(0, 7)));
    assert_eq!(of("io_uring_enter")["kind"], "other");
    let said = text(&info(&[path.to_str().unwrap()]).stdout);
    for line in [
        "Bytes      files: 57 B read, 550 B written",
        "           pipes and sockets: 0 B read, 1007 B written",
        "           devices: 0 B read, 9.8 KiB written",
        "           nowhere (/dev/null, /dev/zero, …): 195.3 KiB read, 97.7 KiB written",
    ] {
        assert!(said.lines().any(|l| l == line), "no line {line:?} in\n{said}");
    }
}

/// A journal that is removed and made again is one line.
#[test]
fn files_of_one_path_are_counted_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = of_all_targets(dir.path());
    let v: Value = serde_json::from_slice(&info(&[path.to_str().unwrap(), "--json"]).stdout).unwrap();
    assert_eq!((v["files"].as_u64(), v["paths"].as_u64()), (Some(8), Some(6)));
    let by_bytes = v["files_by_bytes"].as_array().unwrap();
    let journal = by_bytes.iter().position(|f| f["path"] == "/t/s.db-journal").unwrap();
    let row = &by_bytes[journal];
    assert_eq!(
        (row["files"].as_u64(), row["write_bytes"].as_u64(), row["calls"].as_u64()),
        (Some(3), Some(300), Some(3))
    );
    assert_eq!(row["target"], "files");
    let said = text(&info(&[path.to_str().unwrap()]).stdout);
    assert!(said.contains("/t/s.db-journal, 3 files"), "{said}");
    assert!(said.lines().any(|l| l.contains("nowhere") && l.ends_with("/dev/null")), "{said}");
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

/// What a reel from elsewhere may hold in any of its words.
const EVIL: &str = "x\nFORGED \x1b[2J\u{9b}2J\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}y\r\t";

/// Makes all words of a manifest evil but those without which it is none.
fn make_evil(value: &mut Value) {
    match value {
        Value::String(text) => *text = EVIL.into(),
        Value::Array(all) => all.iter_mut().for_each(make_evil),
        Value::Object(all) => {
            let needed = ["format", "kind", "state", "segments"];
            all.iter_mut().filter(|(name, _)| !needed.contains(&name.as_str())).for_each(|(_, v)| make_evil(v));
        }
        _ => {}
    }
}

/// A reel of evil words.
fn evil_sample(path: &Path) {
    let evil = || EVIL.into();
    let mut m = Manifest {
        devices: vec![Device { dev: 8 << 20, name: evil(), backing_file: Some(evil()), ..Device::default() }],
        marks: vec![manifest::Mark { ns: 1, name: evil() }],
        ended: evil(),
        filters: vec![evil()],
        tool: evil(),
        warnings: vec![evil()],
        command: Some(manifest::Command { argv: vec![evil(), evil()], cwd: evil(), exit_status: None }),
        host: Host { name: evil(), kernel: evil(), arch: evil(), ..Host::default() },
        ..Manifest::new(Kind::Recording, EVIL)
    };
    m.mounts.push(Mount { sb_dev: 1 << 20, fstype: evil(), mountpoint: evil(), source: evil(), ..Mount::default() });
    m.ledger.insert(evil(), Ledger { seen: 10, written: 4, lost: 5, filtered: 1 });
    m.left_out.insert(evil(), 1);
    let mut w = ReelWriter::create(path, &m, WriterOptions::default()).unwrap();
    let words = |op: &str, ret| Op {
        op: op.into(),
        source: EVIL.into(),
        state: EVIL.into(),
        dur_ns: 5,
        task_id: 7,
        file: Some(3),
        fd: Some(3),
        len_bytes: Some(5),
        offset_bytes: Some(0),
        ret: Some(ret),
        path: Some(EVIL.into()),
        ..Op::default()
    };
    for op in [words(EVIL, 5), words(EVIL, -28), words("write", 5), words("openat", -2)] {
        w.ops.push(op).unwrap();
    }
    w.tasks.push(Task { task_id: 7, pid: 42, comm: EVIL.into(), cwd: Some(EVIL.into()), ..Task::default() }).unwrap();
    w.execs.push(Exec { task_id: 7, path: EVIL.into(), comm: EVIL.into(), ..Exec::default() }).unwrap();
    w.waits.push(Wait { task_id: 7, reason: EVIL.into(), ..Wait::default() }).unwrap();
    w.files
        .push(File { file: 3, sb_dev: 1 << 20, kind: EVIL.into(), path: Some(EVIL.into()), ..File::default() })
        .unwrap();
    w.tree.push(Tree { path: EVIL.into(), kind: EVIL.into(), ..Tree::default() }).unwrap();
    w.block
        .push(Block {
            issue_ns: 1,
            complete_ns: Some(9),
            dev: 8 << 20,
            len_bytes: 512,
            op: EVIL.into(),
            ..Block::default()
        })
        .unwrap();
    w.bio.push(Bio { dev: 8 << 20, len_bytes: 512, op: EVIL.into(), class: EVIL.into(), ..Bio::default() }).unwrap();
    w.close(m).unwrap();
}

/// No word of a reel forges a line, controls the terminal or turns the direction of writing, whatever command prints it.
#[test]
fn no_word_of_a_reel_disturbs_what_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    std::fs::remove_dir_all(&path).unwrap();
    evil_sample(&path);
    let manifest = path.join("manifest.json");
    let plain = std::fs::read_to_string(&manifest).unwrap();
    let mut worse: Value = serde_json::from_str(&plain).unwrap();
    make_evil(&mut worse);
    let mut unlisted: Value = serde_json::from_str(&plain).unwrap();
    unlisted["segments"][EVIL] = serde_json::json!([{ "file": EVIL, "rows": 1 }]);
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let mut printed = 0;
    for manifest_text in [plain, worse.to_string(), unlisted.to_string()] {
        std::fs::write(&manifest, manifest_text).unwrap();
        for line in [
            "info R",
            "info R --json",
            "stats R",
            "stats R --json",
            "stats R --flat",
            "stats R R",
            "stats R --device none",
            "validate R",
            "validate R --json",
            "export R fio -o T/log",
            "export R blktrace -o T/trace",
            "export R perfetto -o T/perfetto",
            "plot R --terminal",
            "plot R --panels none -o T/x.svg",
            "plot R --device none -o T/x.svg",
            "replay R --target T --dry-run",
            "replay R --target T",
        ] {
            let args = line.split(' ').map(|word| match word {
                "R" => path.to_str().unwrap().to_owned(),
                word => word.replace("T", target.to_str().unwrap()),
            });
            let done = Command::new(env!("CARGO_BIN_EXE_ioreel")).args(args).output().unwrap();
            for said in [text(&done.stdout), text(&done.stderr)] {
                // Tabs between cells are ours; those in words are replaced, or there would be more cells.
                let ours = |c: char| c == '\n' || c == '\t' && line.ends_with("--flat");
                let harmful = said.chars().find(|c| !ours(*c) && ioreel_traces::text::is_harmful(*c));
                assert!(
                    !line.ends_with("--flat") || said.lines().all(|l| [0, 4].contains(&l.matches('\t').count())),
                    "{said}"
                );
                assert!(harmful.is_none(), "{line}: {harmful:?} in {said:?}");
                assert!(!said.lines().any(|l| l.trim_start().starts_with("FORGED")), "{line}: {said}");
                printed += said.matches("FORGED").count();
            }
        }
    }
    assert!(printed > 50, "the words are printed {printed} times");
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

/// The lines of `stats --flat` are the statistics of `--json`, exactly.
#[test]
fn flat_statistics_are_those_of_the_json() {
    let dir = tempfile::tempdir().unwrap();
    let reel = sample(dir.path());
    let stats = |option: &str| {
        let done = Command::new(env!("CARGO_BIN_EXE_ioreel")).args(["stats", reel.to_str().unwrap(), option]).output();
        text(&done.unwrap().stdout)
    };
    let json: Value = serde_json::from_str(&stats("--json")).unwrap();
    let flat = stats("--flat");
    let mut lines = flat.lines();
    assert_eq!(lines.next(), Some("reel\tdevice\tstatistic\tunit\tvalue"));
    let rows = json["comparison"].as_array().unwrap();
    assert!(rows.len() > 20, "{}", rows.len());
    for (line, row) in lines.by_ref().zip(rows) {
        let cells: Vec<&str> = line.split('\t').collect();
        let words = ["device", "name", "unit"].map(|word| row[word].as_str().unwrap());
        assert_eq!((cells.len(), cells[0], &cells[1..4]), (5, "sample", &words[..]), "{line}");
        assert_eq!(cells[4].parse::<f64>().ok(), row["groups"][0]["mean"].as_f64(), "{line}");
    }
    assert_eq!((lines.next(), flat.lines().count()), (None, rows.len() + 1));
}
