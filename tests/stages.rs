//! The order inside the crates: which stage may use which, how large circles, files and functions may be.
//!
//! A stage is a folder or a file at the top of a crate's `src`. [`CRATES`] lists the stages of each crate from the bottom up,
//! each with those it may use. To add an edge, change the table and say in the stage's `mod.rs` why.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

#[path = "stages/graph.rs"]
mod graph;
#[path = "stages/pending.rs"]
mod pending;
#[path = "stages/source.rs"]
mod source;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use graph::Graph;
use tempfile::TempDir;

/// A stage and the stages it may use.
type Stage<'a> = (&'a str, &'a [&'a str]);

/// The crates whose stages are declared, by the folder of their source, with their stages from the bottom up.
const CRATES: &[(&str, &[Stage<'static>])] = &[
    (
        "capture/src",
        &[
            ("host", &[]),
            ("calls", &["host"]),
            ("decode", &["host", "calls"]),
            ("probes", &["host", "calls", "decode"]),
            ("assemble", &["host", "calls", "decode", "probes"]),
            ("before", &["host", "calls", "decode", "probes", "assemble"]),
            ("pipeline", &["host", "calls", "decode", "probes", "assemble", "before"]),
            ("record", &["host", "calls", "decode", "probes", "assemble", "before", "pipeline"]),
            ("monitor", &["host", "calls", "decode", "probes", "assemble", "before", "pipeline", "record"]),
        ],
    ),
    (
        "replay/src",
        &[
            ("error", &[]),
            ("base", &["error"]),
            ("reel", &["error", "base"]),
            ("contents", &["error", "base", "reel"]),
            ("model", &["error", "base", "reel", "contents"]),
            ("plan", &["error", "base", "reel", "contents", "model"]),
            ("prepare", &["error", "base", "reel", "contents", "model", "plan"]),
            ("run", &["error", "base", "reel", "contents", "model", "plan", "prepare"]),
            ("verdict", &["error", "base", "reel", "contents", "model", "plan", "prepare", "run"]),
            ("block", &["error", "base", "reel", "contents", "model", "plan", "prepare", "run", "verdict"]),
            ("session", &["error", "base", "reel", "contents", "model", "plan", "prepare", "run", "verdict", "block"]),
        ],
    ),
    (
        "traces/src",
        &[
            ("error", &[]),
            ("confine", &[]),
            ("private", &[]),
            ("format", &["error", "private"]),
            ("host", &["error", "format"]),
            ("anonymize", &["error", "format", "host"]),
            ("reader", &["error", "private", "format"]),
            ("writer", &["error", "private", "format", "anonymize", "reader"]),
            ("validate", &["error", "private", "format", "reader", "writer"]),
            ("blktrace", &[]),
            ("suggest", &[]),
            ("shared_map", &[]),
            ("import", &["error", "format", "host", "writer", "blktrace", "suggest", "shared_map"]),
            ("export", &["error", "private", "format", "reader", "blktrace", "suggest"]),
        ],
    ),
    (
        "analyze/src",
        &[
            ("events", &[]),
            ("meters", &[]),
            ("summary", &["events", "meters"]),
            ("stats", &["events", "meters"]),
            ("facts", &["events", "meters", "stats"]),
            ("findings", &["events", "facts", "stats"]),
            ("explain", &["events", "facts"]),
        ],
    ),
    (
        "visualize/src",
        &[
            ("canvas", &[]),
            ("model", &["canvas"]),
            ("panels", &["canvas", "model"]),
            ("draw", &["canvas", "model", "panels"]),
            ("plot", &["canvas", "model", "panels", "draw"]),
            ("terminal", &["canvas", "model", "panels", "draw"]),
            ("movie", &["canvas", "model"]),
            ("report", &["canvas", "model"]),
            ("serve", &["report"]),
        ],
    ),
];

/// The most files of one stage that may import each other in a circle.
const MOST_IN_A_CIRCLE: usize = 8;
const MOST_LINES_OF_A_FILE: usize = 550;
const MOST_LINES_OF_A_FUNCTION: usize = 80;

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] =
    &[("traces/src/format/rows.rs", "the list of all tables and columns, which is read from top to bottom")];

/// The stage of a file: its first folder, or its own name.
fn stage_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// The edges against the order of stages, and the files in no declared stage.
fn against_order(src: &str, imports: &Graph, files: &[String], stages: &[Stage<'_>]) -> Vec<String> {
    let may_use: BTreeMap<&str, &[&str]> = stages.iter().copied().collect();
    let undeclared = files.iter().filter(|f| !matches!(f.as_str(), "lib.rs" | "main.rs"));
    let mut found: Vec<String> = undeclared
        .filter(|f| !may_use.contains_key(stage_of(f)))
        .map(|f| format!("{src}/{f} is in no declared stage; add `{}` to the table of tests/stages.rs", stage_of(f)))
        .collect();
    for (file, targets) in imports {
        let stage = stage_of(file);
        let Some(allowed) = may_use.get(stage) else { continue };
        for (target, line) in targets {
            let used = stage_of(target);
            if used != stage && !allowed.contains(&used) {
                let path = target.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
                let allowed = if allowed.is_empty() { "no other stage".into() } else { allowed.join(", ") };
                found.push(format!("{src}/{file}:{line} uses {path}; {stage} may use {allowed}"));
            }
        }
    }
    found
}

/// The circles within one stage that have too many files.
fn large_circles(src: &str, imports: &Graph) -> Vec<String> {
    let mut within = imports.clone();
    for (file, targets) in &mut within {
        targets.retain(|target, _| stage_of(target) == stage_of(file));
    }
    let large = graph::circles(&within).into_iter().filter(|c| c.len() > MOST_IN_A_CIRCLE);
    large.map(|c| format!("{src}: {} files import each other in a circle: {c:?}", c.len())).collect()
}

/// The circles of includes.
fn include_circles(dir: &str, includes: &Graph) -> Vec<String> {
    let circles = graph::circles(includes).into_iter();
    circles.map(|c| format!("{dir}: headers include each other in a circle: {c:?}")).collect()
}

/// The files that are too long and have no reason.
fn long_files(files: &BTreeMap<String, String>, exempt: &[(&str, &str)]) -> Vec<String> {
    let lines = files.iter().map(|(f, text)| (f, text.lines().count()));
    lines
        .filter(|(f, n)| *n > MOST_LINES_OF_A_FILE && !exempt.iter().any(|(e, _)| e == f))
        .map(|(f, n)| format!("{f} has {n} lines; at most {MOST_LINES_OF_A_FILE}"))
        .collect()
}

/// All functions with the file of each, the longest first.
fn functions(files: &BTreeMap<String, String>) -> Vec<(&str, source::Function)> {
    let mut found = Vec::new();
    for (file, text) in files {
        let those = if file.ends_with(".rs") { source::functions(text) } else { source::c_functions(text) };
        found.extend(those.into_iter().map(|f| (file.as_str(), f)));
    }
    found.sort_by_key(|(_, f)| std::cmp::Reverse(f.lines));
    found
}

/// The functions that are too long and do not say why.
fn long_functions(files: &BTreeMap<String, String>) -> Vec<String> {
    let long = functions(files).into_iter().filter(|(_, f)| f.lines > MOST_LINES_OF_A_FUNCTION && !f.reason);
    long.map(|(file, f)| {
        let what = format!("{file}:{} {} has {} lines", f.line, f.name, f.lines);
        format!("{what}; at most {MOST_LINES_OF_A_FUNCTION}, or a doc line beginning \"Long because\"")
    })
    .collect()
}

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
}

/// The source files written here: without what is generated from the kernel.
fn written_here() -> BTreeMap<String, String> {
    let mut files = graph::files(&root(), &[".rs", ".c", ".h"]);
    files.retain(|f, _| !f.contains("vmlinux"));
    files
}

/// Fails on each finding that [`pending`] does not list, and prints the listed ones that are gone.
#[track_caller]
fn none_but(pending: &[&str], found: &[String]) {
    // Lines shift: a listed finding has none.
    let is = |found: &str, listed: &str| {
        let (place, what) = found.split_once(' ').unwrap_or((found, ""));
        let file = place.split(':').next().unwrap_or(place);
        format!("{file} {what}").starts_with(listed)
    };
    for gone in pending.iter().filter(|p| !found.iter().any(|f| is(f, p))) {
        println!("no longer found, remove it from tests/stages/pending.rs: {gone}");
    }
    let new: Vec<&str> = found.iter().map(String::as_str).filter(|f| !pending.iter().any(|p| is(f, p))).collect();
    assert!(new.is_empty(), "{}\n", new.join("\n"));
}

#[test]
fn stages_use_each_other_one_way() {
    let mut found = Vec::new();
    for (src, stages) in CRATES {
        for (n, (stage, allowed)) in stages.iter().enumerate() {
            let below = |used: &&str| stages[..n].iter().any(|(s, _)| *s == *used);
            let above = allowed.iter().filter(|used| !below(used));
            found.extend(above.map(|used| format!("{src}: the table has {stage} use {used}, which is not below it")));
        }
        let dir = root().join(src);
        let files: Vec<String> = graph::files(&dir, &[".rs"]).into_keys().collect();
        let imports = graph::imports(&dir);
        found.extend(against_order(src, &imports, &files, stages));
        found.extend(large_circles(src, &imports));
    }
    none_but(pending::EDGES, &found);
}

#[test]
fn headers_include_downwards() {
    none_but(&[], &include_circles("bpf/src/bpf", &graph::includes(&root().join("bpf/src/bpf"))));
}

#[test]
fn files_are_short() {
    none_but(pending::FILES, &long_files(&written_here(), LONG_FILES));
}

#[test]
fn long_functions_say_why() {
    let files = written_here();
    println!("the ten longest functions:");
    for (file, f) in functions(&files).iter().take(10) {
        println!("{:5} lines  {}  {file}:{}", f.lines, f.name, f.line);
    }
    none_but(pending::FUNCTIONS, &long_functions(&files));
}

/// A tree of files in a folder of its own.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// The edges of a small tree against `base <- model <- run`.
fn judged(files: &[(&str, &str)]) -> Vec<String> {
    const STAGES: &[Stage<'_>] = &[("base", &[]), ("model", &["base"]), ("run", &["base", "model"])];
    let dir = tree(files);
    let names: Vec<String> = graph::files(dir.path(), &[".rs"]).into_keys().collect();
    against_order("src", &graph::imports(dir.path()), &names, STAGES)
}

const ROOT: (&str, &str) = ("lib.rs", "mod base;\nmod model;\nmod run;\npub use run::Clock;\n");
const RUN: (&str, &str) = ("run/mod.rs", "pub(crate) mod clock;\npub use clock::Clock;\n");
const CLOCK: (&str, &str) = ("run/clock.rs", "use crate::base::ns;\npub struct Clock;\n");
const BASE: (&str, &str) = ("base.rs", "pub fn ns() {}\n");

#[test]
fn a_model_that_uses_run_fails() {
    let expected = "src/model/sizes.rs:2 uses run::clock; model may use base";
    // Every way to write it.
    for text in [
        "\nuse crate::run::clock::Clock;",
        "\nuse crate::{base::{self, ns}, run::clock::{self as time}};",
        "\nuse super::super::run::Clock;",
        "\nfn f() { crate::run::clock::now() }",
        "\npub(crate) use crate::Clock;",
        "mod inner {\nuse super::super::super::run::clock::Clock; }",
        "use crate::base;\nfn f(c: &crate::Clock) {}",
    ] {
        let found = judged(&[ROOT, RUN, CLOCK, BASE, ("model/mod.rs", "mod sizes;\n"), ("model/sizes.rs", text)]);
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn what_is_allowed_or_no_use_passes() {
    for text in [
        "use crate::base::ns;",
        "// use crate::run::clock;\nconst A: &str = \"crate::run::clock\";\n/* crate::run::Clock */",
        "#[cfg(test)]\nuse crate::run::clock::Clock;",
        "#[cfg(test)]\nmod tests {\n    use crate::run::{clock::Clock};\n}\n",
        "const Q: char = '\"';\nconst R: &str = r#\"\" crate::run::clock \"#;\nfn f<'a>(a: &'a str) {}",
        "#[cfg(test)]\nmod tests;",
    ] {
        let tests = ("model/sizes/tests.rs", "use crate::run::clock::Clock;");
        let mut files = vec![ROOT, RUN, CLOCK, BASE, ("model/mod.rs", "mod sizes;\n"), ("model/sizes.rs", text)];
        if text.ends_with("mod tests;") {
            files.push(tests);
        }
        assert_eq!(judged(&files), [""; 0], "{text}");
    }
}

#[test]
fn a_file_in_no_stage_fails() {
    let found = judged(&[ROOT, RUN, CLOCK, BASE, ("other.rs", "")]);
    assert_eq!(found, ["src/other.rs is in no declared stage; add `other` to the table of tests/stages.rs"]);
}

#[test]
fn a_large_circle_fails() {
    let around = |count: usize| {
        let files: Vec<(String, String)> = (0..count)
            .map(|i| (format!("model/f{i}.rs"), format!("use super::f{0}::X{0};", (i + 1) % count)))
            .collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|(f, t)| (f.as_str(), t.as_str())).collect();
        files.push(("model/mod.rs", ""));
        large_circles("src", &graph::imports(tree(&files).path())).len()
    };
    assert_eq!((around(MOST_IN_A_CIRCLE), around(MOST_IN_A_CIRCLE + 1)), (0, 1));
}

#[test]
fn includes_in_a_circle_fail() {
    let there = ("a.h", "#include \"b.h\"\n#include <stdint.h>\n");
    let found =
        |back: &'static str| include_circles("bpf", &graph::includes(tree(&[there, ("b.h", back)]).path())).len();
    assert_eq!((found(""), found("#include \"a.h\"\n")), (0, 1));
}

#[test]
fn long_files_and_functions_fail() {
    let body = "    let _ = '{';\n".repeat(MOST_LINES_OF_A_FUNCTION);
    let files = |head: &str| {
        let dir = tree(&[("a.rs", &format!("{head}fn f() {{\n{body}}}\nfn g() {{}}\n"))]);
        graph::files(dir.path(), &[".rs"])
    };
    assert_eq!(long_functions(&files("")).len(), 1);
    assert_eq!(long_functions(&files("/// Does it.\n///\n/// Long because it is a table.\n#[inline]\n")).len(), 0);
    let long = BTreeMap::from([("a.rs".to_owned(), "\n".repeat(MOST_LINES_OF_A_FILE + 1))]);
    assert_eq!((long_files(&long, &[]).len(), long_files(&long, &[("a.rs", "generated")]).len()), (1, 0));
    assert!(Path::new(&root()).join("tests/stages.rs").exists());
}
