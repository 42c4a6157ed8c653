//! What recording costs the block layer: the most reads of 4 KiB a second that fio's io_uring reaches, recorded and not,
//! on a device without requests (zram) and on one with (loop).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    Bench,
    session::{RECORD, remove},
    stats::{median, quantile},
};

/// Aim: at most this share of the IOPS is lost.
const AIM_LESS: f64 = 0.08;
const DEVICE_BYTES: u64 = 256 << 20;
const SECONDS: u32 = 3;

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

/// Measures both devices, `rounds` times in turn, and prints the table.
pub(crate) fn measure(bench: &Bench, rounds: usize) -> Result<()> {
    println!("\nBlock layer: fio, io_uring, random reads of 4 KiB, {SECONDS} s each, {rounds} rounds A B A B\n");
    println!(
        "{:<16}{:>14}{:>14}{:>8}{:>20}{:>8}   aim",
        "device", "IOPS", "recorded", "ratio", "(10 % to 90 %)", "lost"
    );
    for (name, device) in [("zram", Device::zram()?), ("loop", Device::looped(bench)?)] {
        fill(&device)?;
        let (mut plain, mut recorded, mut lost) = (Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            plain.push(fio(bench, &device, None)?);
            let reel = bench.reels.path().join("block.reel");
            recorded.push(fio(bench, &device, Some(&reel))?);
            lost += ioreel_traces::Reel::open(&reel)?.manifest.lost();
            remove(&reel)?;
        }
        let ratios: Vec<f64> = plain.iter().zip(&recorded).map(|(without, with)| with / without).collect();
        let spread = format!("({:.3} to {:.3})", quantile(&ratios, 0.1), quantile(&ratios, 0.9));
        println!(
            "{name:<16}{:>14.0}{:>14.0}{:>8.3}{spread:>20}{lost:>8}   at least {:.2}",
            median(&plain),
            median(&recorded),
            median(&ratios),
            1.0 - AIM_LESS
        );
    }
    Ok(())
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

/// One run of fio; its IOPS.
fn fio(bench: &Bench, device: &Device, reel: Option<&Path>) -> Result<f64> {
    let mut command = match reel {
        Some(reel) => {
            remove(reel)?;
            let mut c = Command::new(&bench.ioreel);
            c.args(RECORD).args(["--device", &device.path(), "-o"]).arg(reel).args(["--", "fio"]);
            c
        }
        None => Command::new("fio"),
    };
    let out = bench.dir.path().join("fio.json");
    let status = command
        .args(["--name=read", "--ioengine=io_uring", "--rw=randread", "--bs=4k", "--iodepth=32", "--direct=1"])
        .args(["--time_based", &format!("--runtime={SECONDS}"), &format!("--filename={}", device.path())])
        .args(["--output-format=json", &format!("--output={}", out.display())])
        .status()
        .context("fio")?;
    if !status.success() {
        bail!("fio on {}: {status}", device.path());
    }
    let told: serde_json::Value = serde_json::from_slice(&fs::read(&out)?).context("what fio tells")?;
    told["jobs"][0]["read"]["iops"].as_f64().context("fio tells no IOPS")
}
