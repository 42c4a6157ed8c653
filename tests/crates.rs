//! Which crate may use which: edges run one way, and without capture nothing needs libbpf.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

/// The crates of this workspace and those of it that each may use. `docs/architecture.md` says why.
const EDGES: &[(&str, &[&str])] = &[
    (
        "ioreel",
        &["ioreel-analyze", "ioreel-bpf", "ioreel-capture", "ioreel-replay", "ioreel-traces", "ioreel-visualize"],
    ),
    ("ioreel-analyze", &["ioreel-traces"]),
    ("ioreel-bpf", &[]),
    ("ioreel-capture", &["ioreel-bpf", "ioreel-traces"]),
    ("ioreel-replay", &["ioreel-traces"]),
    ("ioreel-traces", &[]),
    ("ioreel-visualize", &["ioreel-analyze", "ioreel-traces"]),
];

/// Crates from outside that only some may use: the format belongs to one crate, BPF to two, the command line to one.
const KEPT: &[(&str, &[&str])] = &[
    ("parquet", &["ioreel-traces"]),
    ("libbpf-rs", &["ioreel-bpf", "ioreel-capture"]),
    ("libbpf-cargo", &["ioreel-bpf"]),
    ("clap", &["ioreel"]),
    ("anyhow", &["ioreel"]),
];

fn metadata(arguments: &[&str]) -> Value {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--filter-platform", &platform])
        .args(arguments)
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .output()
        .unwrap();
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// What each package of the workspace names in its `Cargo.toml`, tests' needs included.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let names =
        |package: &Value| package["dependencies"].as_array().unwrap().iter().map(|d| text(&d["name"])).collect();
    let found = metadata(&["--no-deps"]);
    found["packages"].as_array().unwrap().iter().map(|p| (text(&p["name"]), names(p))).collect()
}

#[test]
fn crates_use_each_other_one_way() {
    let found = dependencies();
    let expected: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    assert_eq!(found.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "crates of the workspace");
    for (name, allowed) in EDGES {
        for used in found[*name].iter().filter(|d| expected.contains(d.as_str())) {
            assert!(allowed.contains(&used.as_str()), "{name} may not use {used}; it may use {allowed:?}");
        }
    }
}

#[test]
fn outside_crates_stay_where_they_belong() {
    for (name, used) in dependencies() {
        for (outside, allowed) in KEPT {
            assert!(!used.contains(*outside) || allowed.contains(&name.as_str()), "{name} may not use {outside}");
        }
    }
}

#[test]
fn without_capture_nothing_needs_libbpf() {
    let found = metadata(&["--no-default-features"]);
    let nodes: BTreeMap<&str, &Value> =
        found["resolve"]["nodes"].as_array().unwrap().iter().map(|n| (n["id"].as_str().unwrap(), n)).collect();
    let mut reached = BTreeSet::new();
    let mut open = vec![found["resolve"]["root"].as_str().unwrap()];
    while let Some(id) = open.pop() {
        if !reached.insert(id) {
            continue;
        }
        for dep in nodes[id]["deps"].as_array().unwrap() {
            // What tests alone need does not count; what build scripts need does.
            if dep["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"] != "dev") {
                open.push(dep["pkg"].as_str().unwrap());
            }
        }
    }
    assert!(reached.iter().any(|id| id.contains("parquet")), "the walk reaches the dependencies");
    let bpf: Vec<_> = reached.iter().filter(|id| id.contains("libbpf") || id.contains("ioreel-bpf")).collect();
    assert!(bpf.is_empty(), "without the capture feature these are still needed: {bpf:?}");
}

/// The words of a list in `deny.toml`, one a line.
fn list_of_deny_toml(name: &str) -> BTreeSet<String> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let text = std::fs::read_to_string(std::path::Path::new(&root).join("deny.toml")).unwrap();
    let head = format!("{name} = [");
    let lines = text.lines().skip_while(|l| *l != head).skip(1).take_while(|l| *l != "]");
    let words: BTreeSet<String> = lines.map(|l| l.trim().trim_matches([',', '"']).to_owned()).collect();
    assert!(!words.is_empty(), "deny.toml has the list {name}");
    words
}

/// Whether an SPDX expression can be met with these licenses: `A OR (B AND C)`, and `A/B` of older crates.
fn licensed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    fn any(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
        let mut found = all(words, allowed);
        while let ["OR", rest @ ..] = *words {
            *words = rest;
            found |= all(words, allowed);
        }
        found
    }
    fn all(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
        let mut found = one(words, allowed);
        while let ["AND", rest @ ..] = *words {
            *words = rest;
            found &= one(words, allowed);
        }
        found
    }
    fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
        match *words {
            ["(", rest @ ..] => {
                *words = rest;
                let found = any(words, allowed);
                assert_eq!(words.first(), Some(&")"));
                *words = &words[1..];
                found
            }
            [license, "WITH", exception, rest @ ..] => {
                *words = rest;
                allowed.contains(&format!("{license} WITH {exception}"))
            }
            [license, rest @ ..] => {
                *words = rest;
                allowed.contains(*license)
            }
            [] => false,
        }
    }
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut left = &words[..];
    any(&mut left, allowed) && left.is_empty()
}

#[test]
fn expressions_of_licenses_are_understood() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    for yes in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND Zlib", "Apache-2.0 WITH X OR MIT"] {
        assert!(licensed(yes, &allowed), "{yes}");
    }
    for no in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT WITH X", "(MIT OR Zlib) AND GPL-3.0"] {
        assert!(!licensed(no, &allowed), "{no}");
    }
}

/// What `cargo deny check licenses bans` says, also where it is not installed. `cargo metadata` lists packages too whose
/// features are off.
#[test]
fn dependencies_have_allowed_licenses_and_one_version() {
    let (allowed, skipped) = (list_of_deny_toml("allow"), list_of_deny_toml("skip"));
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let out = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--all-features",
            "--prefix",
            "none",
            "--format",
            "{p}|{l}",
            "--target",
            &platform,
        ])
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .output()
        .unwrap();
    assert!(out.status.success(), "cargo tree: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.is_empty()) {
        let (package, license) = line.split_once('|').unwrap();
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap().trim_start_matches('v'));
        let license = license.trim_end_matches("(*)").trim();
        assert!(licensed(license, &allowed), "{name} {version} is licensed by {license:?}: see deny.toml");
        let is_skipped = skipped.iter().any(|s| {
            let (of, begin) = s.split_once('@').unwrap();
            of == name && version.starts_with(&format!("{begin}."))
        });
        if !is_skipped {
            versions.entry(name).or_default().insert(version);
        }
    }
    assert!(versions.len() > 50, "the dependencies are seen");
    let twice: Vec<_> = versions.iter().filter(|(_, v)| v.len() > 1).collect();
    assert!(twice.is_empty(), "in several versions: {twice:?}; see deny.toml");
}
