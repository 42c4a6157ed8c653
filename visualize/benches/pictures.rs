//! How long pictures and statistics take, beside iowatcher and btt on the same trace: `cargo bench -p ioreel-visualize`.
//!
//! A made-up disk of a terabyte: two files written in turn, one read from end to end, and random writes of 4 KiB, on ten or a
//! hundred million requests (`--requests N`, repeatable). Each step is a process of its own, so that its memory is its own; given
//! are the time passed, the CPU time and the largest resident size.
//!
//! `make bench` runs it with ten million; the aims: 10 M requests to PNG in 2 s and 1 GiB, 100 M in 20 s, statistics of 10 M in
//! 2 s, a movie of 30 s in 10 s.

use std::{
    error::Error,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use ioreel_analyze::{Scope, Stats};
use ioreel_traces::{
    Manifest, Reel, ReelWriter, Text, WriterOptions, export,
    manifest::{Device, Kind, Span},
    rows::{Bio, Block},
};
use ioreel_visualize::{
    PlotOptions,
    movie::{DEFAULT_SECONDS, MovieOptions, movie},
    plot,
    terminal::{SketchOptions, sketch},
};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const DEV: i64 = 8 << 20;
/// Between two requests, ns.
const EVERY_NS: i64 = 10_000;
/// Sectors of a gibibyte.
const GIB: i64 = 1 << 21;
/// Requests whose bios are made as well, where they merge.
const BIOS_PER_REQUEST: i64 = 4;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [step, reel, output] = &words[..]
        && STEPS.contains(&step.as_str())
    {
        return one(step, Path::new(reel), Path::new(output));
    }
    let mut sizes: Vec<i64> = Vec::new();
    for pair in words.chunks(2) {
        match pair {
            [name, n] if name == "--requests" => sizes.push(n.parse()?),
            _ => return Err("usage: pictures [--requests N]...".into()),
        }
    }
    if sizes.is_empty() {
        sizes = vec![1_000_000, 10_000_000];
    }
    let dir = tempfile::tempdir()?;
    println!("\nPictures and statistics, each in a process of its own\n");
    println!("{:<44} {:>12} {:>8} {:>8} {:>9}", "step", "requests", "s", "CPU s", "MiB");
    for n in &sizes {
        let reel = dir.path().join("made.reel");
        make(&reel, *n, false)?;
        for (step, name, output) in [
            ("png", "default picture to PNG", "x.png"),
            ("stats", "all statistics", "-"),
            ("terminal", "terminal", "-"),
            ("movie", "movie of 30 s", "x.mp4"),
        ] {
            measure(name, *n, &mut own(step, &reel, &dir.path().join(output))?)?;
        }
        if *n <= 10_000_000 {
            others(&reel, dir.path(), *n)?;
        }
        fs::remove_dir_all(&reel)?;
        make(&reel, *n / BIOS_PER_REQUEST, true)?;
        let bios = format!("PNG, {BIOS_PER_REQUEST} bios merged in each");
        measure(&bios, *n / BIOS_PER_REQUEST, &mut own("png", &reel, &dir.path().join("x.png"))?)?;
        fs::remove_dir_all(&reel)?;
    }
    Ok(())
}

const STEPS: [&str; 4] = ["png", "stats", "terminal", "movie"];

fn own(step: &str, reel: &Path, output: &Path) -> Result<Command> {
    let mut c = Command::new(std::env::current_exe()?);
    c.arg(step).arg(reel).arg(output);
    Ok(c)
}

/// One step, in this process.
fn one(step: &str, reel: &Path, output: &Path) -> Result<()> {
    let reel = Reel::open(reel)?;
    match step {
        "png" => fs::write(output, plot(&[reel], &PlotOptions::default())?.png()?)?,
        "stats" => drop(Stats::of(&reel, &Scope::default())?),
        "terminal" => {
            let options = SketchOptions { dark: true, columns: 160, rows: 48, ..SketchOptions::default() };
            drop(sketch(&reel, &options)?.text(256));
        }
        _ => {
            let options = MovieOptions { title: None, choice: Default::default(), seconds: DEFAULT_SECONDS };
            movie(&reel, &options, output)?;
        }
    }
    Ok(())
}

/// Runs a program to its end and prints what it took.
fn measure(name: &str, requests: i64, command: &mut Command) -> Result<()> {
    let before = cpu_of_children()?;
    let began = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut most_kib = 0;
    // Its peak is known to the kernel while it lives.
    let status = loop {
        most_kib = peak_kib(child.id()).unwrap_or(0).max(most_kib);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_of_children()? - before);
    let failed = if status.success() { "" } else { "  FAILED" };
    println!("{name:<44} {requests:>12} {wall:>8.2} {cpu:>8.2} {:>9}{failed}", most_kib / 1024);
    Ok(())
}

fn peak_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").parse().ok()
}

/// CPU time of children that have ended, s.
fn cpu_of_children() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    // Fields 16 and 17 of the line, in hundredths of a second.
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(13) + ticks(14)) / 100.0)
}

/// iowatcher and btt on the same requests, as a block trace of three records each.
fn others(reel: &Path, dir: &Path, n: i64) -> Result<()> {
    let reel = Reel::open(reel)?;
    let dump = dir.join("trace.dump");
    export::blktrace::export(&reel, &dump, true)?;
    let there =
        |program: &str| Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if there("iowatcher") {
        let mut c = Command::new("iowatcher");
        measure("iowatcher to SVG", n, c.arg("-t").arg(&dump).arg("-o").arg(dir.join("iowatcher.svg")))?;
    }
    if there("btt") {
        let mut c = Command::new("btt");
        // It leaves files where it runs.
        measure("btt", n, c.current_dir(dir).arg("-i").arg(&dump).arg("-o").arg(dir.join("btt")))?;
    }
    fs::remove_file(dump)?;
    Ok(())
}

/// Writes a reel of `n` requests; with `merged`, bios too.
fn make(path: &PathBuf, n: i64, merged: bool) -> Result<()> {
    let span = Span { elapsed_ns: n * EVERY_NS, ..Span::default() };
    let device = Device { dev: DEV, name: "sda".into(), size_bytes: 1 << 40, ..Device::default() };
    let m = Manifest { span, devices: vec![device], ..Manifest::new(Kind::Synthetic, "bench") };
    let mut w = ReelWriter::create(path, &m, WriterOptions::default())?;
    let (read, write) = (Text::word("read"), Text::word("write"));
    let mut random = 1u64;
    for i in 0..n {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (random >> 20) as i64;
        // Two writers in turn, a scan, a random writer.
        let (op, sector, sectors) = match i % 4 {
            0 => (&write, 10 * GIB + i / 4 * 64 % (100 * GIB), 64),
            1 => (&write, 400 * GIB + i / 4 * 64 % (100 * GIB), 64),
            2 => (&read, 200 * GIB + i / 4 * 128 % (100 * GIB), 128),
            _ => (&write, 700 * GIB + at % (GIB * 200 / 8) * 8, 8),
        };
        let issue_ns = i * EVERY_NS + at % 5_000;
        w.block.push(Block {
            rq_id: if merged { i } else { -1 },
            queue_ns: Some(issue_ns - 2_000),
            issue_ns,
            complete_ns: Some(issue_ns + 20_000 + at % 200_000),
            dev: DEV,
            sector,
            len_bytes: sectors * 512,
            op: op.clone(),
            ..Block::default()
        })?;
        for k in 0..if merged { BIOS_PER_REQUEST } else { 0 } {
            w.bio.push(Bio {
                bio_id: -1,
                rq_id: Some(i),
                queue_ns: issue_ns - 2_000 + k,
                complete_ns: Some(issue_ns + 20_000 + at % 200_000),
                dev: DEV,
                sector: sector + k * sectors / BIOS_PER_REQUEST,
                len_bytes: sectors * 512 / BIOS_PER_REQUEST,
                op: op.clone(),
                comm: Text::word("writer"),
                class: Text::word("data"),
                ..Bio::default()
            })?;
        }
    }
    w.close(m)?;
    // The pages of what was just written are in memory for all alike.
    File::open(path)?.sync_all()?;
    Ok(())
}
