//! How long a diagnosis takes: `cargo bench -p ioreel-analyze`.
//!
//! A made-up database on one disk: four threads read 4 KiB at random, each read with a request of its own, and one in
//! sixteen appends and syncs (`--operations N`, default 10 million, and as many bios and requests). Prints the elapsed
//! and CPU time and the largest resident size. The aim: 10 million of each in 10 s and 2 GiB on two cores.

use std::{error::Error, time::Instant};

use ioreel_analyze::findings::Diagnosis;
use ioreel_traces::{
    Manifest, Reel, ReelWriter, Text, WriterOptions,
    manifest::{Device, Kind, Span},
    rows::{Bio, Block, File, Op, Task},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const DEV: i64 = 8 << 20;
/// Between two operations, ns.
const EVERY_NS: i64 = 25_000;
const THREADS: i64 = 4;
/// Duration of a read, ns: four are in flight.
const READ_NS: i64 = 90_000;
/// Files that are read.
const FILES: i64 = 64;
/// Each n-th operation is a sync.
const SYNC_EVERY: i64 = 16;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let count: i64 = match &words[..] {
        [] => 10_000_000,
        [name, n] if name == "--operations" => n.parse()?,
        _ => return Err("usage: diagnosis [--operations N]".into()),
    };
    let dir = tempfile::tempdir_in("/var/tmp")?;
    let path = dir.path().join("made.reel");
    make(&path, count)?;
    let (cpu, peak) = (cpu_s()?, peak_kib()?);
    let began = Instant::now();
    let diagnosis = Diagnosis::of(&Reel::open(&path)?, false)?;
    let elapsed = began.elapsed().as_secs_f64();
    println!(
        "{count} operations, bios and requests: {elapsed:.2} s, {:.2} CPU s, {} MiB ({} before), findings: {}",
        cpu_s()? - cpu,
        peak_kib()? / 1024,
        peak / 1024,
        diagnosis.findings.iter().map(|f| f.id).collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

fn make(path: &std::path::Path, count: i64) -> Result<()> {
    let mut manifest = Manifest::new(Kind::Synthetic, "bench");
    manifest.span = Span { elapsed_ns: count * EVERY_NS + READ_NS, ..Span::default() };
    manifest.host.cpus = 4;
    manifest.devices = vec![Device { dev: DEV, name: "sda".into(), ..Device::default() }];
    let mut w = ReelWriter::create(path, &manifest, WriterOptions::default())?;
    for task_id in 0..THREADS {
        w.tasks.push(Task { task_id, pid: 100, tid: 100 + task_id as i32, comm: "db".into(), ..Task::default() })?;
    }
    for file in 0..FILES {
        let path = Some(Text::from(format!("/db/{file}").as_str()));
        w.files.push(File { file, sb_dev: DEV, ino: file, kind: "regular".into(), path, ..File::default() })?;
    }
    let (read, sync, call, complete, data) = (
        Text::from("pread64"),
        Text::from("fdatasync"),
        Text::from("syscall"),
        Text::from("complete"),
        Text::from("data"),
    );
    let (reads, writes, comm) = (Text::from("read"), Text::from("write"), Text::from("db"));
    let mut dice = 1_u64;
    for i in 0..count {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let place = (dice >> 33) as i64 % (1 << 24);
        let (start_ns, is_sync) = (i * EVERY_NS, i % SYNC_EVERY == 0);
        let file = Some(place % FILES);
        let op = if is_sync { sync.clone() } else { read.clone() };
        let rw = if is_sync { writes.clone() } else { reads.clone() };
        w.ops.push(Op {
            op_id: i,
            start_ns,
            dur_ns: READ_NS,
            task_id: i % THREADS,
            pid: 100,
            tid: 100 + (i % THREADS) as i32,
            op,
            source: call.clone(),
            state: complete.clone(),
            file,
            offset_bytes: (!is_sync).then_some(place * 4096),
            len_bytes: Some(4096),
            ret: Some(if is_sync { 0 } else { 4096 }),
            ..Op::default()
        })?;
        w.block.push(Block {
            rq_id: i,
            queue_ns: Some(start_ns + 1000),
            issue_ns: start_ns + 2000,
            complete_ns: Some(start_ns + READ_NS - 1000),
            dev: DEV,
            sector: place * 8,
            len_bytes: 4096,
            op: rw.clone(),
            ..Block::default()
        })?;
        w.bio.push(Bio {
            bio_id: i,
            rq_id: Some(i),
            queue_ns: start_ns + 1000,
            complete_ns: Some(start_ns + READ_NS - 1000),
            dev: DEV,
            sector: place * 8,
            len_bytes: 4096,
            op: rw,
            task_id: Some(i % THREADS),
            comm: comm.clone(),
            file,
            file_offset_bytes: Some(place * 4096),
            class: data.clone(),
            cause: Some(i),
            ..Bio::default()
        })?;
    }
    w.close(manifest)?;
    Ok(())
}

/// CPU time of this process so far, seconds, from `/proc/self/stat`.
fn cpu_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}

/// Largest resident size so far, KiB.
fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
