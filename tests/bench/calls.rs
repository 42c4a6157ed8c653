//! What a call costs while nobody, or somebody, watches.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use ioreel_bpf::empty::{Least, Observed};

use crate::{
    Bench,
    floor::{Floor, beside},
    producer::Told,
    session::{Idle, RECORD, remove},
    stats::median,
};

/// Who watches the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watcher {
    None,
    Floor(Floor),
    Untraced,
    Traced,
    Perf,
    Bpftrace,
    Strace,
}

/// Watchers in the order of each round, with their names and the calls of one run.
const WATCHERS: &[(Watcher, &str, usize)] = &[
    (Watcher::None, "none", 1_000_000),
    (Watcher::Floor(Floor::Probes(Least::Empty)), "empty probe pair", 1_000_000),
    (Watcher::Floor(Floor::Probes(Least::Clock)), "a pair that looks at the clock", 1_000_000),
    (Watcher::Floor(Floor::Recorder), "the least recorder", 300_000),
    (Watcher::Untraced, "ioreel, another task recorded", 1_000_000),
    (Watcher::Traced, "ioreel, this one recorded", 300_000),
    (Watcher::Perf, "perf record -e raw_syscalls:*", 100_000),
    (Watcher::Bpftrace, "bpftrace, a line per call", 100_000),
    (Watcher::Strace, "strace -f", 30_000),
];

/// What bpftrace is asked for: when, how long, which call, with what result.
const BPFTRACE: &str = "tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @[tid] = nsecs; } \
     tracepoint:raw_syscalls:sys_exit /pid == cpid/ { printf(\"%lu %lu %d %d\\n\", @[tid], nsecs - @[tid], args->id, args->ret); }";

/// Aims over the empty pair, ns.
const AIMS_NS: &[(Watcher, f64)] = &[(Watcher::Untraced, 8.0), (Watcher::Traced, 90.0)];

/// What the bare call took where the aims were set, ns.
const AIMED_AT_NS: f64 = 165.0;

/// Kernel memory for the rings of a recorded producer: none of its calls shall be cheap because it was lost.
const RING_MIB: &str = "256";

/// Measures all watchers, `rounds` times in turn, and prints the table.
pub(crate) fn measure(bench: &Bench, rounds: usize) -> Result<()> {
    let data = bench.dir.path().join("data");
    fs::write(&data, [7u8; 4096])?;
    let mut told: Vec<Vec<Told>> = vec![Vec::new(); WATCHERS.len()];
    for _ in 0..rounds {
        for (i, (watcher, name, calls)) in WATCHERS.iter().enumerate() {
            told[i].push(run(bench, *watcher, *calls, &data).with_context(|| format!("measuring: {name}"))?);
        }
    }
    let of = |i: usize| {
        let pick = |f: fn(&Told) -> f64| median(&told[i].iter().map(f).collect::<Vec<_>>());
        (pick(|t| t.quiet_ns), pick(|t| t.median_ns))
    };
    let ((none, _), (pair, pair_median)) = (of(0), of(1));
    println!(
        "\nCost of a call: pread of one cached byte, one producer on CPU {}, {rounds} rounds interleaved; ns, the tenth",
        bench.cpu
    );
    println!("percentile of batches, median over rounds (in brackets the median of batches, disturbances included)\n");
    println!("{:<32}{:>16}{:>9}{:>20}   aim", "watched by", "ns a call", "times", "over the empty pair");
    for (i, (watcher, name, _)) in WATCHERS.iter().enumerate() {
        let (ns, median) = of(i);
        let over = match watcher {
            Watcher::None | Watcher::Floor(Floor::Probes(Least::Empty)) => String::new(),
            _ => format!("{:+.0} ({:+.0})", ns - pair, median - pair_median),
        };
        let aim = AIMS_NS
            .iter()
            .find(|(w, _)| w == watcher)
            .map_or(String::new(), |(_, aim)| format!("at most +{aim:.0}, here +{:.0}", aim * none / AIMED_AT_NS));
        let figure = format!("{ns:.0} ({median:.0})");
        println!("{name:<32}{figure:>16}{:>8.2}x{over:>20}   {aim}", ns / none);
    }
    println!(
        "\nThe aims are meant where the bare call takes {AIMED_AT_NS:.0} ns; `here` is the same share of this machine's."
    );
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

fn run(bench: &Bench, watcher: Watcher, calls: usize, data: &Path) -> Result<Told> {
    let out = bench.dir.path().join("told");
    let reel = bench.reels.path().join("calls.reel");
    let perf = bench.reels.path().join("perf.data");
    let mut command = match watcher {
        Watcher::None | Watcher::Floor(_) | Watcher::Untraced => Command::new(&bench.own),
        Watcher::Traced => {
            remove(&reel)?;
            let mut c = Command::new(&bench.ioreel);
            c.args(RECORD).args(["--ring-mib", RING_MIB, "-o"]).arg(&reel).arg("--").arg(&bench.own);
            c
        }
        Watcher::Perf => {
            let mut c = Command::new("perf");
            c.args(["record", "-q", "-e", "raw_syscalls:*", "-o"]).arg(&perf).arg("--").arg(&bench.own);
            c
        }
        Watcher::Bpftrace => {
            let mut c = Command::new("bpftrace");
            c.args(["-o", "/dev/null", "-e", BPFTRACE, "-c"]);
            c
        }
        Watcher::Strace => {
            let mut c = Command::new("strace");
            c.args(["-f", "-o", "/dev/null", "--"]).arg(&bench.own);
            c
        }
    };
    let words = ["produce".into(), "pread".into(), bench.cpu.to_string(), calls.to_string(), "0".into()];
    if watcher == Watcher::Bpftrace {
        // It wants the command as one word.
        command.arg([text(&bench.own)?, &words.join(" "), text(data)?, text(&out)?].join(" "));
    } else {
        command.args(&words).arg(data).arg(&out);
    }
    command.stdout(Stdio::null());
    if watcher == Watcher::Bpftrace {
        // It tells how many lines it lost.
        command.stderr(Stdio::null());
    }
    let mut produce = || -> Result<()> {
        let status = command.status().with_context(|| format!("{:?}", command.get_program()))?;
        if !status.success() {
            bail!("{:?}: {status}", command.get_program());
        }
        Ok(())
    };
    match watcher {
        Watcher::Floor(floor) => beside(bench, Observed::Calls, floor, produce)?,
        Watcher::Untraced => {
            let idle = Idle::start(bench)?;
            let done = produce();
            idle.stop()?;
            done?;
        }
        _ => produce()?,
    }
    Told::read(&out)
}
