//! What recording costs the block layer: the most reads of 4 KiB a second that fio's io_uring reaches, recorded and not,
//! on a device without requests (zram) and on one with (loop); once the block layer alone, once with the requests to
//! io_uring and the calls above it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use ioreel_bpf::empty::Observed;

use crate::{
    Bench,
    floor::{FLOORS, Floor, beside},
    session::{RECORD, remove},
    stats::{median, quantile},
};

/// Aim: at most this share of the IOPS is lost.
const AIM_LESS: f64 = 0.08;
const DEVICE_BYTES: u64 = 256 << 20;
const SECONDS: u32 = 3;
/// With what fio reaches the most on both devices: of 1 to 4 jobs, 1 to 256 requests in flight and batches of 1 to 64.
/// A request at a time reaches half as much, and the time that fio and the kernel's worker take to wake each other then
/// hides what a request costs.
const HIGHEST: &[&str] = &[
    "--numjobs=2",
    "--group_reporting",
    "--iodepth=64",
    "--iodepth_batch_submit=32",
    "--iodepth_batch_complete_min=32",
    "--fixedbufs",
    "--registerfiles",
    "--norandommap",
];

/// A device that ends with its owner.
enum Device {
    Zram(u32),
    Loop(String, PathBuf),
}

impl Device {
    fn zram() -> Result<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").context("adding a zram device")?;
        let device = Self::Zram(number.trim().parse()?);
        if let Self::Zram(n) = &device {
            fs::write(format!("/sys/block/zram{n}/disksize"), DEVICE_BYTES.to_string())?;
        }
        Ok(device)
    }

    /// On a file in memory, so that no disk is in the way.
    fn looped(bench: &Bench) -> Result<Self> {
        let file = bench.reels.path().join("loop.img");
        fs::File::create(&file)?.set_len(DEVICE_BYTES)?;
        let out = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().context("losetup")?;
        if !out.status.success() {
            bail!("losetup: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(Self::Loop(String::from_utf8(out.stdout)?.trim().to_owned(), file))
    }

    fn path(&self) -> String {
        match self {
            Self::Zram(n) => format!("/dev/zram{n}"),
            Self::Loop(device, _) => device.clone(),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Best effort: nothing more can be done here.
        match self {
            Self::Zram(n) => drop(fs::write("/sys/class/zram-control/hot_remove", n.to_string())),
            Self::Loop(device, file) => {
                let _ = Command::new("losetup").args(["-d", device.as_str()]).status();
                let _ = fs::remove_file(file);
            }
        }
    }
}

/// Who watches fio.
#[derive(Clone, Copy)]
enum Watcher {
    Floor(Floor),
    /// With these options.
    Ioreel(&'static [&'static str]),
}

/// What the recorder is asked for.
const RECORDED: [(&str, Watcher); 2] =
    [("block", Watcher::Ioreel(&["--block-only"])), ("block and calls", Watcher::Ioreel(&[]))];

/// What one watcher came to, over all rounds.
#[derive(Default)]
struct Came {
    iops: Vec<f64>,
    ratios: Vec<f64>,
    /// CPU that the recorder used for each read, beyond what it uses to start and end.
    own_ns: Vec<f64>,
    /// CPU that it uses to start and end, ns.
    idle_ns: Option<i64>,
    lost: i64,
}

/// Measures both devices, `rounds` times in turn, and prints the table.
pub(crate) fn measure(bench: &Bench, rounds: usize) -> Result<()> {
    println!("\nBlock layer: fio, io_uring, random reads of 4 KiB, {SECONDS} s each, {rounds} rounds in turn\n");
    println!(
        "{:<36}{:>12}{:>12}{:>8}{:>20}{:>10}{:>8}   aim",
        "device, watched", "IOPS", "watched", "ratio", "(10 % to 90 %)", "own ns", "lost"
    );
    for (name, device) in [("zram", Device::zram()?), ("loop", Device::looped(bench)?)] {
        fill(&device)?;
        let mut plain = Vec::new();
        let floors = FLOORS.map(|(name, floor)| (name, Watcher::Floor(floor)));
        let mut watchers: Vec<_> =
            floors.into_iter().chain(RECORDED).map(|(what, watcher)| (what, watcher, Came::default())).collect();
        for _ in 0..rounds {
            let (without, _) = fio(bench, &device, None)?;
            plain.push(without);
            for (_, watcher, came) in &mut watchers {
                let with = match watcher {
                    Watcher::Floor(floor) => beside(bench, Observed::Block, *floor, || fio(bench, &device, None))?.0,
                    Watcher::Ioreel(options) => recorded(bench, &device, options, came)?,
                };
                came.iops.push(with);
                came.ratios.push(with / without);
            }
        }
        for (what, watcher, came) in &watchers {
            let spread = format!("({:.3} to {:.3})", quantile(&came.ratios, 0.1), quantile(&came.ratios, 0.9));
            print!(
                "{:<36}{:>12.0}{:>12.0}{:>8.3}{spread:>20}",
                format!("{name}, {what}"),
                median(&plain),
                median(&came.iops),
                median(&came.ratios),
            );
            match watcher {
                Watcher::Floor(_) => println!(),
                Watcher::Ioreel(_) => {
                    println!("{:>10.0}{:>8}   at least {:.2}", median(&came.own_ns), came.lost, 1.0 - AIM_LESS);
                }
            }
        }
    }
    Ok(())
}

/// One run beside a recording; its IOPS.
fn recorded(bench: &Bench, device: &Device, options: &[&str], came: &mut Came) -> Result<f64> {
    let reel = bench.reels.path().join("block.reel");
    let idle_ns = match came.idle_ns {
        Some(ns) => ns,
        None => *came.idle_ns.insert(idle(bench, device, options)?),
    };
    let (with, reads) = fio(bench, device, Some((&reel, options)))?;
    let manifest = ioreel_traces::Reel::open(&reel)?.manifest;
    came.own_ns.push((manifest.cost.cpu_ns - idle_ns).max(0) as f64 / reads);
    came.lost += manifest.lost();
    remove(&reel)?;
    Ok(with)
}

/// CPU time of a recording in which nothing happens.
fn idle(bench: &Bench, device: &Device, options: &[&str]) -> Result<i64> {
    let reel = bench.reels.path().join("idle.reel");
    remove(&reel)?;
    let status = recording(bench, device, &reel, options).arg("true").status().context("starting ioreel")?;
    if !status.success() {
        bail!("ioreel record -- true: {status}");
    }
    let cpu_ns = ioreel_traces::Reel::open(&reel)?.manifest.cost.cpu_ns;
    remove(&reel)?;
    Ok(cpu_ns)
}

fn recording(bench: &Bench, device: &Device, reel: &Path, options: &[&str]) -> Command {
    let mut c = Command::new(&bench.ioreel);
    c.args(RECORD).args(options).args(["--device", &device.path(), "-o"]).arg(reel).arg("--");
    c
}

/// Reads of what was never written cost a device nothing.
fn fill(device: &Device) -> Result<()> {
    let status = Command::new("dd")
        .args(["if=/dev/urandom", &format!("of={}", device.path()), "bs=1M", "oflag=direct", "status=none"])
        .args([format!("count={}", DEVICE_BYTES >> 20)])
        .status()
        .context("dd")?;
    if status.success() { Ok(()) } else { bail!("filling {}: {status}", device.path()) }
}

/// One run of fio; its IOPS and its reads.
fn fio(bench: &Bench, device: &Device, reel: Option<(&Path, &[&str])>) -> Result<(f64, f64)> {
    let mut command = match reel {
        Some((reel, options)) => {
            remove(reel)?;
            let mut c = recording(bench, device, reel, options);
            c.arg("fio");
            c
        }
        None => Command::new("fio"),
    };
    let out = bench.dir.path().join("fio.json");
    let status = command
        .args(["--name=read", "--ioengine=io_uring", "--rw=randread", "--bs=4k", "--direct=1"])
        .args(HIGHEST)
        .args(["--time_based", &format!("--runtime={SECONDS}"), &format!("--filename={}", device.path())])
        .args(["--output-format=json", &format!("--output={}", out.display())])
        .status()
        .context("fio")?;
    if !status.success() {
        bail!("fio on {}: {status}", device.path());
    }
    let told: serde_json::Value = serde_json::from_slice(&fs::read(&out)?).context("what fio tells")?;
    let read = &told["jobs"][0]["read"];
    read["iops"].as_f64().zip(read["total_ios"].as_f64()).context("fio tells no IOPS")
}
