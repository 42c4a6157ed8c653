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
