//! `--help` of every subcommand equals the text in `tests/help`, so that each change of wording is reviewed.
#![cfg(feature = "capture")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// How to bring the stored texts up to date.
const UPDATE: &str = "IOREEL_UPDATE_HELP=1 cargo test --test help_cli";

/// Subcommands, with those of their own; "" is `ioreel --help`.
const COMMANDS: [&str; 28] = [
    "",
    "doctor",
    "record",
    "mark",
    "top",
    "info",
    "stats",
    "diagnose",
    "explain",
    "validate",
    "anonymize",
    "plot",
    "view",
    "report",
    "serve",
    "replay",
    "import",
    "import blktrace",
    "import fio",
    "import strace",
    "import csv",
    "export",
    "export blktrace",
    "export fio",
    "export perfetto",
    "export csv",
    "export jsonl",
    "manual",
];

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
}

/// The help text at 100 columns. All streams are redirected, so that the terminal's width does not matter.
fn help(command: &str) -> String {
    let mut run = Command::new(env!("CARGO_BIN_EXE_ioreel"));
    run.args(command.split_whitespace()).arg("--help").env("COLUMNS", "100").stdin(Stdio::null());
    let out = run.output().unwrap();
    assert!(out.status.success(), "ioreel {command} --help: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn stored(command: &str) -> PathBuf {
    let name = if command.is_empty() { "ioreel".to_owned() } else { command.replace(' ', "-") };
    root().join("tests/help").join(name).with_extension("txt")
}

#[test]
fn help_equals_the_stored_text() {
    for command in COMMANDS {
        let (path, text) = (stored(command), help(command));
        if std::env::var_os("IOREEL_UPDATE_HELP").is_some() {
            fs::write(&path, &text).unwrap();
            continue;
        }
        let before = fs::read_to_string(&path).unwrap_or_default();
        if let Some((old, new)) = before.lines().chain([""]).zip(text.lines().chain([""])).find(|(a, b)| a != b) {
            panic!("{} differs:\n- {old}\n+ {new}\nto accept the new text: {UPDATE}", path.display());
        }
        assert_eq!(before, text, "{}; to accept the new text: {UPDATE}", path.display());
    }
}

/// Every subcommand that `ioreel --help` lists is in [`COMMANDS`].
#[test]
fn every_subcommand_is_compared() {
    let text = help("");
    let listed = text.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names: Vec<&str> =
        listed.filter_map(|l| l.strip_prefix("  ")?.split(' ').next()).filter(|n| !n.is_empty()).collect();
    assert!(names.len() > 10, "{text}");
    assert_eq!(names.iter().find(|n| **n != "help" && !COMMANDS.contains(n)), None);
}

/// Documents that help texts name exist.
#[test]
fn named_documents_exist() {
    for command in COMMANDS {
        for word in help(command).split(|c: char| c.is_whitespace() || "(),;:".contains(c)) {
            if let Some(at) = word.find("docs/") {
                let path = word[at..].trim_end_matches('.');
                assert!(Path::new(&root()).join(path).exists(), "ioreel {command} --help names {path}");
            }
        }
    }
}
