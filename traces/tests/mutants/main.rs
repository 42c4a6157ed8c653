//! Mutated reels in all programs that read reels. Whatever a reel says, `info`, `validate`, `stats`, `plot`, `report`,
//! `export` and `replay` end by themselves, within 60 s and 1.5 GiB, without a panic, and change nothing outside their
//! output and target.
//!
//! The mutants are made of the first rows of the samples. Mutant N is the same in every run. `--count N` makes N mutants,
//! `--from N` begins with that one, `--keep DIR` keeps the reels that failed. A few run with the other tests; `make fuzz`
//! runs more.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod guard;
mod mutate;
mod tables;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use guard::{Walk, run, walk};
use mutate::{Random, mutant};
use tables::Tables;

/// Mutants where no number is given.
const DEFAULT_COUNT: u64 = 20;
/// Rows of each table that mutants are made of.
const ROWS: usize = 300;

struct Arguments {
    count: u64,
    from: u64,
    keep: Option<PathBuf>,
}

/// Other arguments are the test runner's.
fn arguments() -> Arguments {
    let words: Vec<String> = env::args().collect();
    let after = |name: &str| words.iter().position(|w| w == name).and_then(|i| words.get(i + 1));
    let number = |name: &str, default| after(name).map_or(default, |n| n.parse().unwrap());
    Arguments {
        count: number("--count", DEFAULT_COUNT),
        from: number("--from", 1),
        keep: after("--keep").map(Into::into),
    }
}

/// The program under test, beside this test's own; `None` where it has not been built.
fn program() -> Option<PathBuf> {
    let beside = || Some(env::current_exe().ok()?.parent()?.parent()?.join("ioreel"));
    env::var_os("IOREEL_PROGRAM").map(PathBuf::from).or_else(beside).filter(|p| p.exists())
}

/// What nobody may touch: a folder beside the target, with what names in mutants lead to.
fn make_outside(dir: &Path) {
    fs::create_dir_all(dir.join("folder/below")).unwrap();
    fs::write(dir.join("file"), "untouched").unwrap();
    fs::write(dir.join("folder/file"), "untouched").unwrap();
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
}

struct Place {
    program: PathBuf,
    dir: PathBuf,
    outside: PathBuf,
}

impl Place {
    /// The command lines that read a reel, of which one of several formats is chosen.
    fn commands(&self, reel: &Path, random: &mut Random) -> Vec<Vec<String>> {
        let (out, target) = (self.dir.join("out"), self.dir.join("target"));
        let path = |p: &Path| p.to_str().unwrap().to_owned();
        let reel = path(reel);
        let export: &[&str] = match random.below(5) {
            0 => &["csv"],
            1 => &["jsonl"],
            2 => &["fio", "-o", "fio.log"],
            3 => &["perfetto", "-o", "trace.perfetto"],
            _ => &["blktrace", "-o", "trace"],
        };
        let own = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let pace = ["max", "load", "scale=0.1"][random.below(3)];
        let trust = ["--trusted", "--untrusted"][random.below(2)];
        vec![
            own(&["info", &reel]),
            own(&["validate", &reel]),
            own(&["stats", "--json", &reel]),
            own(&["diagnose", &reel, "--all"]),
            own(&["explain", &reel, "--slowest", "5"]),
            own(&["plot", &reel, "-o", &path(&out.join("x.svg"))]),
            own(&["report", &reel, "-o", &path(&out.join("x.html"))]),
            [own(&["export", &reel]), own(export)].concat(),
            own(&[
                "replay",
                &reel,
                "--target",
                &path(&target),
                "--max-bytes",
                "16M",
                "--pace",
                pace,
                trust,
                "-o",
                &path(&out.join("x.reel")),
            ]),
        ]
    }

    /// Runs all commands on mutant `number`; what went wrong.
    fn attempt(&self, samples: &[Tables], number: u64, keep: Option<&Path>) -> Vec<String> {
        let mut random = Random::of(number);
        let reel = self.dir.join("mutant.reel");
        for made in ["mutant.reel", "out"] {
            let _ = fs::remove_dir_all(self.dir.join(made));
        }
        let tables = &samples[random.below(samples.len())];
        let told = mutant(tables, &mut random, &reel, &self.outside);
        let before: Walk = walk(&[&self.outside, &reel]);
        let mut failures = Vec::new();
        for words in self.commands(&reel, &mut random) {
            let target = self.dir.join("target");
            guard::empty(&target);
            let _ = fs::remove_dir_all(self.dir.join("out"));
            fs::create_dir(self.dir.join("out")).unwrap();
            let mut command = Command::new(&self.program);
            command.args(&words).current_dir(self.dir.join("out"));
            if let Err(why) = run(&mut command, &self.dir.join("said")) {
                failures.push(format!("mutant {number}: {}: {why}", words[0]));
            }
            let after = walk(&[&self.outside, &reel]);
            for change in before.differences(&after) {
                failures.push(format!("mutant {number}: {} changed {change}", words[0]));
            }
        }
        if !failures.is_empty() {
            println!("mutant {number}: {}", told.join("; "));
            if let Some(keep) = keep {
                let to = keep.join(format!("{number}.reel"));
                let copied = Command::new("cp").arg("-r").args([&reel, &to]).status().unwrap();
                assert!(copied.success());
            }
        }
        failures
    }
}

fn main() -> ExitCode {
    let Some(program) = program() else {
        assert!(env::var_os("CI").is_none(), "the program is not built; run the tests of the workspace");
        println!("mutants: skipped, the program is not built (cargo build -p ioreel)");
        return ExitCode::SUCCESS;
    };
    let arguments = arguments();
    let started = Instant::now();
    let base = tempfile::Builder::new().prefix("ioreel-mutants-").tempdir().unwrap();
    let place = Place { program, dir: base.path().join("work"), outside: base.path().join("outside") };
    for dir in ["out", "target"] {
        fs::create_dir_all(place.dir.join(dir)).unwrap();
    }
    make_outside(&place.outside);
    guard::mount_small(&place.dir.join("target"));
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("samples");
    let mut samples: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    samples.retain(|p| p.extension().is_some_and(|e| e == "reel"));
    samples.sort();
    let samples: Vec<Tables> = samples.iter().map(|p| Tables::read(p, ROWS)).collect();
    let mut bad = 0;
    for number in arguments.from..arguments.from + arguments.count {
        let failures = place.attempt(&samples, number, arguments.keep.as_deref());
        failures.iter().for_each(|f| println!("{f}"));
        bad += u64::from(!failures.is_empty());
    }
    guard::unmount_small(&place.dir.join("target"));
    let (word, good) = (if bad == 0 { "ok" } else { "FAILED" }, arguments.count - bad);
    println!(
        "mutants {} to {}, {} s",
        arguments.from,
        arguments.from + arguments.count - 1,
        started.elapsed().as_secs()
    );
    println!("test result: {word}. {good} passed; {bad} failed; 0 ignored; 0 measured; 0 filtered out");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
