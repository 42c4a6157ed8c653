//! Documents lead somewhere: relative links and their anchors, and paths of this repository in backticks.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
}

/// All Markdown documents of the top folder and of `docs`.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/internals"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The anchor of a heading, as code hosts form it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn has_anchor(path: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|l| l.starts_with('#')).any(|l| anchor(l) == wanted)
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut dead = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            if !target.exists() || !heading.is_empty() && !has_anchor(&target, heading) {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Paths in backticks that begin with a folder of the repository exist. A `*` stands for part of a name; the changelog
/// names what was there at the time.
#[test]
fn named_files_exist() {
    const FOLDERS: [&str; 10] = [
        "analyze/",
        "bpf/src/",
        "capture/",
        "docs/",
        "packaging/",
        "replay/src/",
        "scripts/",
        "src/",
        "tests/",
        "traces/",
    ];
    let mut missing = Vec::new();
    for document in documents().into_iter().filter(|d| !d.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(&document).unwrap();
        for name in text.split('`').skip(1).step_by(2) {
            let path = name.split("::").next().unwrap_or(name);
            let is_path = FOLDERS.iter().any(|f| path.starts_with(f)) && !path.contains(|c: char| " *{\n…".contains(c));
            if is_path && !path.contains("NAME") && !root().join(path).exists() {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "paths that do not exist:\n{}", missing.join("\n"));
}
