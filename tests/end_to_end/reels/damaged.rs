//! Reels that are missing, damaged or newer than this program: one clear line, no panic. Needs no privileges.

use std::{fs, path::Path};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{Kind, Ledger},
    rows::{File, Op, Task},
};

use crate::harness::{describe, ioreel, one_line, run, succeed, temp_dir, text};

/// A small reel without fault.
fn sound(path: &Path) {
    let mut manifest = Manifest::new(Kind::Synthetic, "test");
    manifest.ledger.insert("ops".into(), Ledger { seen: 500, written: 500, ..Ledger::default() });
    let mut writer = ReelWriter::create(path, &manifest, WriterOptions::default()).unwrap();
    writer.tasks.push(Task { task_id: 1, pid: 7, tid: 7, comm: "cat".into(), ..Task::default() }).unwrap();
    let file = File { file: 1, kind: "regular".into(), path: Some("/d/f".into()), ..File::default() };
    writer.files.push(file).unwrap();
    for i in 0..500 {
        let op = Op {
            op_id: -1,
            start_ns: i * 1000,
            dur_ns: 1 + i % 37,
            task_id: 1,
            pid: 7,
            tid: 7,
            op: "pread64".into(),
            source: "syscall".into(),
            state: "complete".into(),
            fd: Some(3),
            ofd: Some(1),
            file: Some(1),
            offset_bytes: Some(i * 4096),
            len_bytes: Some(4096),
            ret: Some(4096),
            ..Op::default()
        };
        writer.ops.push(op).unwrap();
    }
    manifest.span.elapsed_ns = 500_000;
    writer.close(manifest).unwrap();
}

/// The commands that read a reel.
fn readers(reel: &Path, out: &Path) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    let target = out.join("target");
    fs::create_dir_all(&target).unwrap();
    vec![
        words(&["info", text(reel)]),
        words(&["validate", text(reel)]),
        words(&["plot", text(reel), "-o", text(&out.join("x.png"))]),
        words(&["replay", text(reel), "--target", text(&target)]),
    ]
}

pub(crate) fn a_sound_reel_is_valid() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    sound(&reel);
    succeed(&mut ioreel(["validate", text(&reel)]));
    succeed(&mut ioreel(["info", text(&reel)]));
}

pub(crate) fn a_missing_reel() {
    let out = temp_dir();
    for words in readers(&out.path().join("missing.reel"), out.path()) {
        let line = one_line(&mut ioreel(&words), 1);
        assert!(line.contains("missing.reel"), "{line}");
    }
}

pub(crate) fn a_newer_format() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    sound(&reel);
    let manifest = reel.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let (major, minor) = ioreel_traces::manifest::FORMAT;
    let newer = text.replace(&format!("\"format\": \"{major}.{minor}\""), "\"format\": \"9.3\"");
    assert_ne!(newer, text);
    fs::write(&manifest, newer).unwrap();
    for words in readers(&reel, out.path()) {
        let line = one_line(&mut ioreel(&words), 1);
        assert!(line.contains("9.3") && line.contains("newer"), "{line}");
    }
}

pub(crate) fn a_broken_manifest() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    sound(&reel);
    let manifest = reel.join("manifest.json");
    let bytes = fs::read(&manifest).unwrap();
    fs::write(&manifest, &bytes[..bytes.len() / 2]).unwrap();
    for words in readers(&reel, out.path()) {
        let line = one_line(&mut ioreel(&words), 1);
        assert!(line.contains("manifest.json"), "{line}");
    }
}

pub(crate) fn a_truncated_segment() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    sound(&reel);
    let segment = reel.join("ops/000000.parquet");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() / 2]).unwrap();
    for words in readers(&reel, out.path()) {
        let output = run(&mut ioreel(&words));
        let said = describe(&output);
        let code = if words[0] == "validate" { 3 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains("000000.parquet") && !said.contains("panicked"), "{words:?}: {said}");
    }
}

/// As in `ioreel info x.reel | head -1`.
pub(crate) fn a_reader_that_goes_away() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    sound(&reel);
    let mut command = ioreel(["info", text(&reel)]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(command);
    let output = crate::harness::finish(child);
    assert!(output.stderr.is_empty(), "{}", describe(&output));
}
