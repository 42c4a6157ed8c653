//! How many events a second reach the reel without one being lost.

use std::{fs, process::Command};

use anyhow::{Context, Result, bail};
use ioreel_traces::{Reel, rows::Op};

use crate::{
    Bench,
    producer::Told,
    session::{RECORD, remove},
};

/// How long each rate is held: long enough that rings alone cannot take the difference.
const SECONDS: f64 = 5.0;
/// Rates to begin with, events a second: the first is meant to hold, the second not to.
const FIRST: (f64, f64) = (100_000.0, 6_400_000.0);
/// Halvings of the interval between a rate that held and one that did not.
const STEPS: usize = 7;

/// One rate, held.
struct Held {
    /// Events a second that the producer really made.
    rate: f64,
    lost: i64,
    /// CPU time of the recorder per event, ns.
    cpu_ns: f64,
}

/// Looks for the highest rates without loss and prints them. A recorded producer makes fewer reads than the recorder
/// can take on some machines: seeks are cheaper, and a row each as well.
pub(crate) fn measure(bench: &Bench) -> Result<()> {
    println!(
        "\nSustained without loss: one producer on CPU {}, each rate held for {SECONDS} s, default rings\n",
        bench.cpu
    );
    println!("{:>6}{:>14}{:>14}{:>10}{:>24}", "call", "asked for/s", "events/s", "lost", "recorder's CPU ns/event");
    for call in ["pread", "lseek"] {
        highest(bench, call)?;
    }
    Ok(())
}

fn highest(bench: &Bench, call: &str) -> Result<()> {
    let (mut low, mut high) = FIRST;
    let mut best = 0.0;
    for _ in 0..STEPS {
        let asked = f64::sqrt(low * high);
        let held = hold(bench, call, asked)?;
        println!("{call:>6}{asked:>14.0}{:>14.0}{:>10}{:>24.0}", held.rate, held.lost, held.cpu_ns);
        if held.lost == 0 {
            best = f64::max(best, held.rate);
            low = asked;
        } else {
            high = asked;
        }
        // Faster than this it cannot produce.
        if held.lost == 0 && held.rate < asked * 0.9 {
            println!("the producer makes no more of them than this while it is recorded");
            break;
        }
    }
    println!("highest without loss, {call}: {best:.0} events/s\n");
    Ok(())
}

fn hold(bench: &Bench, call: &str, asked: f64) -> Result<Held> {
    let (out, data) = (bench.dir.path().join("told"), bench.dir.path().join("data"));
    let path = bench.reels.path().join("sustained.reel");
    fs::write(&data, [7u8; 4096])?;
    remove(&path)?;
    let status = Command::new(&bench.ioreel)
        .args(RECORD)
        .arg("-o")
        .arg(&path)
        .arg("--")
        .arg(&bench.own)
        .args(["produce", call, &bench.cpu.to_string(), &format!("{:.0}", asked * SECONDS), &asked.to_string()])
        .args([&data, &out])
        .stderr(std::process::Stdio::null())
        .status()
        .context("starting ioreel")?;
    if !status.success() {
        bail!("ioreel record: {status}");
    }
    let reel = Reel::open(&path)?;
    let rows = reel.count::<Op>().max(1) as f64;
    let held = Held {
        rate: Told::read(&out)?.rate,
        lost: reel.manifest.lost(),
        cpu_ns: reel.manifest.cost.cpu_ns as f64 / rows,
    };
    remove(&path)?;
    Ok(held)
}
