//! How punctual replays are: `cargo bench --bench replays`, root.
//!
//! Calls: 50,000 a second onto tmpfs by 1, 2 and 8 threads. Bios: one block trace of random reads at a steady mean rate is
//! replayed by ioreel, by fio (`read_iolog`) and by btreplay on the same loop device, in turn. What is printed was seen by
//! the recorder's probes, not said by the replayers: lateness of each against the schedule, with the most
//! punctual hundredth taken for the start, and its drift. For ioreel, what its own report says stands beside.

#[path = "punctual_calls.rs"]
mod calls;

use std::{
    collections::HashMap,
    error::Error,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions, export,
    manifest::{Device, Kind, Span},
    rows::{Bio, Block},
};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Reads of the block trace, a second and in all.
const PER_S: i64 = 10_000;
const READS: i64 = 50_000;
/// Size of the device; each of its pages is read at most once, so that a read is known by its place.
const PAGES: i64 = 1 << 18;
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    if std::env::args().skip(1).any(|a| a != "--bench") {
        return Err("usage: replays; it takes no arguments".into());
    }
    let dir = tempfile::tempdir_in("/dev/shm")?;
    println!("\nCalls at {}/s onto tmpfs, as the probes saw them\n", calls::PER_S);
    heading();
    for threads in [1, 2, 8] {
        calls::measure(dir.path(), threads)?;
    }
    let image = dir.path().join("disk");
    File::create(&image)?.set_len(PAGES as u64 * 4096)?;
    let out = Command::new("losetup").args(["--find", "--show"]).arg(&image).output()?;
    if !out.status.success() {
        return Err(format!("losetup: {}", String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    let device = String::from_utf8(out.stdout)?.trim().to_owned();
    let done = measure(dir.path(), &device);
    Command::new("losetup").args(["--detach", &device]).status()?;
    done
}

/// When each page is read, ns from the start; sorted.
fn schedule() -> Vec<(i64, i64)> {
    let (mut seed, mut at) = (7u64, 0i64);
    let every_ns = 1_000_000_000 / PER_S;
    (0..READS)
        .map(|i| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            at += (seed >> 33) as i64 % (2 * every_ns);
            // An odd factor visits all pages, in no order that readahead could like.
            (at, i * 104_729 % PAGES)
        })
        .collect()
}

fn measure(dir: &Path, device: &str) -> Result<()> {
    let name = device.trim_start_matches("/dev/");
    let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev"))?;
    let (major, minor) = numbers.trim().split_once(':').ok_or("no device number")?;
    let dev = major.parse::<i64>()? << 20 | minor.parse::<i64>()?;
    let planned = schedule();
    let reel = dir.join("trace.reel");
    make(&reel, dev, name, &planned)?;
    export::blktrace::export(&Reel::open(&reel)?, &dir.join("dump"), true)?;
    // btreplay takes what btrecord makes of a trace by processors.
    export::blktrace::export(&Reel::open(&reel)?, &dir.join(name), false)?;
    run(Command::new("btrecord").arg("-d").arg(dir).arg("-D").arg(dir).arg(name))?;
    println!("\n{READS} reads of 4 KiB at {PER_S}/s on {name}, as the probes saw them (round by round)\n");
    heading();
    let ioreel = env!("CARGO_BIN_EXE_ioreel");
    let (reel, dump) = (reel.display().to_string(), dir.join("dump").display().to_string());
    for _ in 0..ROUNDS {
        let own = dir.join("own.json");
        // 3: done, but too late to be called faithful; the figures say so.
        let ours = format!(
            "{ioreel} replay {reel} --layer block --device {device} --pace original --order none --json >{} || [ $? = 3 ]",
            own.display()
        );
        seen(dir, dev, "ioreel", &planned, Command::new("sh").args(["-c", &ours]))?;
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&own)?)?;
        let (done, elapsed_ns) = (report["done"].as_i64(), report["elapsed_ns"].as_f64());
        by_own_report(done, &report["schedule_ns"], report["drift_ppm"].as_f64(), elapsed_ns);
        let mut fio = Command::new("fio");
        fio.args([
            "--name=replay",
            "--ioengine=libaio",
            "--iodepth=256",
            "--direct=1",
            "--thread",
            "--output=/dev/null",
        ]);
        fio.arg(format!("--read_iolog={dump}")).arg(format!("--replay_redirect={device}"));
        seen(dir, dev, "fio read_iolog", &planned, &mut fio)?;
        // It was seen to wait for ever, without a thread at work, and to wait on after SIGTERM.
        let mut btreplay = Command::new("timeout");
        btreplay.args(["-k", "5", "60", "btreplay", "-d"]).arg(dir).arg(name);
        seen(dir, dev, "btreplay", &planned, &mut btreplay)?;
    }
    Ok(())
}

fn make(path: &Path, dev: i64, name: &str, planned: &[(i64, i64)]) -> Result<()> {
    let last_ns = planned.last().map_or(0, |p| p.0);
    let size_bytes = PAGES * 4096;
    let manifest = Manifest {
        span: Span { elapsed_ns: last_ns + 1_000_000, ..Span::default() },
        devices: vec![Device { dev, name: name.into(), size_bytes, ..Device::default() }],
        ..Manifest::new(Kind::Synthetic, "bench")
    };
    let mut w = ReelWriter::create(path, &manifest, WriterOptions::default())?;
    for (i, (at_ns, page)) in planned.iter().enumerate() {
        let (rq_id, sector, complete_ns) = (i as i64, page * 8, Some(at_ns + 20_000));
        w.block.push(Block {
            rq_id,
            queue_ns: Some(*at_ns),
            issue_ns: at_ns + 1000,
            complete_ns,
            dev,
            sector,
            len_bytes: 4096,
            op: "read".into(),
            ..Block::default()
        })?;
        w.bio.push(Bio {
            bio_id: -1,
            rq_id: Some(rq_id),
            queue_ns: *at_ns,
            complete_ns,
            dev,
            sector,
            len_bytes: 4096,
            op: "read".into(),
            comm: "reader".into(),
            class: "data".into(),
            ..Bio::default()
        })?;
    }
    w.close(manifest)?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if !out.status.success() {
        return Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    Ok(())
}

/// Runs a replayer below the recorder, and prints how late its reads were.
fn seen(dir: &Path, dev: i64, name: &str, planned: &[(i64, i64)], replayer: &mut Command) -> Result<()> {
    let reel = dir.join("seen.reel");
    let _ = fs::remove_dir_all(&reel);
    let mut record = Command::new(env!("CARGO_BIN_EXE_ioreel"));
    record.args(["record", "--block-only", "--settle", "none", "-o"]).arg(&reel);
    record.args(["--device", &format!("{}:{}", dev >> 20, dev & 0xf_ffff), "--"]);
    record.arg(replayer.get_program()).args(replayer.get_args()).current_dir(dir);
    run(&mut record)?;
    let when: HashMap<i64, i64> = planned.iter().map(|(at, page)| (page * 8, *at)).collect();
    let mut late: Vec<(i64, i64)> = Vec::new();
    for bio in Reel::open(&reel)?.rows::<Bio>() {
        let bio = bio?;
        if bio.dev == dev && bio.op == *"read" && bio.len_bytes == 4096 && bio.error.unwrap_or(0) == 0 {
            late.extend(when.get(&bio.sector).map(|at| (*at, bio.queue_ns - at)));
        }
    }
    tell(name, late)
}

fn heading() {
    println!(
        "{:<20} {:>9} {:>10} {:>10} {:>10} {:>10} {:>9}",
        "replayer", "issued", "p50 us", "p99 us", "max us", "drift ppm", "end s"
    );
}

/// What the replayer says of itself.
fn by_own_report(done: Option<i64>, late_ns: &serde_json::Value, drift_ppm: Option<f64>, elapsed_ns: Option<f64>) {
    let us = |of: &str| late_ns[of].as_f64().unwrap_or(f64::NAN) / 1e3;
    println!(
        "{:<20} {:>9} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>9.3}",
        "  by its own report",
        done.unwrap_or(0),
        us("p50"),
        us("p99"),
        us("max"),
        drift_ppm.unwrap_or(f64::NAN),
        elapsed_ns.unwrap_or(f64::NAN) / 1e9
    );
}

/// Prints how late things were that were planned for a time: (planned, late by).
fn tell(name: &str, mut late: Vec<(i64, i64)>) -> Result<()> {
    late.sort_unstable();
    let mut by: Vec<i64> = late.iter().map(|l| l.1).collect();
    by.sort_unstable();
    let Some(start) = by.get(by.len() / 100).copied() else { return Err(format!("{name} issued nothing").into()) };
    let end_s = late.iter().map(|(at, l)| at + l - start).max().unwrap_or(0) as f64 / 1e9;
    let drift = drift_ppm(&late);
    let mut all: Vec<i64> = late.iter().map(|(_, l)| (l - start).abs()).collect();
    all.sort_unstable();
    let at = |q: f64| all[((all.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    println!(
        "{name:<20} {:>9} {:>10.1} {:>10.1} {:>10.1} {drift:>10.1} {end_s:>9.3}",
        all.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

/// Theil-Sen slope of lateness over the schedule, of 256 reads at equal distances.
fn drift_ppm(late: &[(i64, i64)]) -> f64 {
    let points: Vec<&(i64, i64)> = late.iter().step_by(late.len().div_ceil(256)).collect();
    let mut slopes: Vec<f64> = Vec::new();
    for (i, a) in points.iter().enumerate() {
        slopes.extend(
            points[i + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) as f64 / (b.0 - a.0) as f64 * 1e6),
        );
    }
    slopes.sort_unstable_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or(f64::NAN)
}
