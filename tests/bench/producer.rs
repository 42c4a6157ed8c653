//! The workloads: reads of one byte from a cached file; seeks, the cheapest calls there are that have a row each.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::{
    fs::{SeekFrom, seek},
    io::pread,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::stats::{median, quantile};

/// Calls between two looks at the clock: few enough to tell quiet moments from disturbed ones.
const BATCH: usize = 1000;
/// Calls between two waits of a paced producer.
const PACE: usize = 50;

/// What a producer tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Median over batches, ns per call.
    pub(crate) median_ns: f64,
    /// Tenth percentile: the cost when nothing disturbs.
    pub(crate) quiet_ns: f64,
    /// Calls per second over the whole run.
    pub(crate) rate: f64,
}

impl Told {
    /// Reads what a producer left in `file`.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).context("the producer left no figures")?;
        let figures: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        match figures[..] {
            [median_ns, quiet_ns, rate] => Ok(Self { median_ns, quiet_ns, rate }),
            _ => bail!("the producer left {text:?}"),
        }
    }
}

/// The highest CPU this process may run on: the lowest ones get most interrupts.
pub(crate) fn last_cpu() -> Result<usize> {
    let allowed = sched_getaffinity(None).context("asking for the CPUs")?;
    (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)).context("no CPU to run on")
}

/// `produce pread|lseek CPU CALLS CALLS_PER_SECOND DATA OUT`; 0 calls per second is as fast as it goes.
pub(crate) fn main(words: &[String]) -> Result<()> {
    let [call, rest @ ..] = words else { bail!("produce what?") };
    match call.as_str() {
        "pread" => {
            let mut byte = [0u8; 1];
            produce(rest, move |file, i| Ok(pread(file, &mut byte, (i & 4095) as u64).map(drop)?))
        }
        "lseek" => produce(rest, |file, i| Ok(seek(file, SeekFrom::Start((i & 4095) as u64)).map(drop)?)),
        other => bail!("produce {other}?"),
    }
}

fn produce(words: &[String], mut call: impl FnMut(&File, usize) -> Result<()>) -> Result<()> {
    let [cpu, calls, rate, data, out] = words else { bail!("produce wants five words after the call") };
    let mut only = CpuSet::new();
    only.set(cpu.parse()?);
    sched_setaffinity(None, &only).context("pinning the producer")?;
    let (calls, rate): (usize, f64) = (calls.parse()?, rate.parse()?);
    let file = File::open(data)?;
    for i in 0..2 * BATCH {
        call(&file, i)?;
    }
    let began = Instant::now();
    let mut batches = Vec::with_capacity(calls / BATCH);
    if rate > 0.0 {
        for done in (0..calls).step_by(PACE) {
            while began.elapsed().as_secs_f64() < done as f64 / rate {
                std::hint::spin_loop();
            }
            for i in 0..PACE {
                call(&file, i)?;
            }
        }
    } else {
        for _ in 0..calls / BATCH {
            let before = Instant::now();
            for i in 0..BATCH {
                call(&file, i)?;
            }
            batches.push(before.elapsed().as_nanos() as f64 / BATCH as f64);
        }
    }
    let rate = calls as f64 / began.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
    fs::write(out, format!("{} {} {rate}\n", median(&batches), quantile(&batches, 0.1)))?;
    Ok(())
}
