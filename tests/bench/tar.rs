//! A whole job, with and without recording: unpacking an archive.

use std::{
    ffi::OsStr,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use ioreel_traces::{Reel, rows::Op};

use crate::{
    Bench,
    session::{RECORD, remove},
    stats::{median, quantile},
};

/// Files of an archive made here, in folders of [`FILES_PER_FOLDER`].
const FILES: usize = 3000;
const FILES_PER_FOLDER: usize = 50;

/// Aims: elapsed against unrecorded, and size.
const AIM_RATIO: f64 = 1.05;
const AIM_BYTES: f64 = 10.0;

/// Unpacks, recorded and not, in turn, and prints the comparison.
pub(crate) fn measure(bench: &Bench, rounds: usize, archive: Option<PathBuf>) -> Result<()> {
    let archive = match archive {
        Some(given) => given,
        None => make_archive(bench.dir.path())?,
    };
    let (mut plain, mut recorded) = (Vec::new(), Vec::new());
    let (mut events, mut lost, mut bytes) = (0, 0, 0.0);
    // The first round fills the page cache and is not counted.
    for round in 0..=rounds {
        let without = unpack(bench, &archive, None)?;
        let reel = bench.reels.path().join("tar.reel");
        remove(&reel)?;
        let with = unpack(bench, &archive, Some(&reel))?;
        if round == 0 {
            continue;
        }
        plain.push(without);
        recorded.push(with);
        let reel = Reel::open(&reel)?;
        events = reel.count::<Op>();
        lost += reel.manifest.lost();
        let size: i64 = reel.manifest.segments.get("ops").into_iter().flatten().map(|s| s.bytes).sum();
        bytes = size as f64 / events.max(1) as f64;
    }
    println!("\ntar xf {}, {rounds} rounds A B A B\n", archive.display());
    println!("{:<16}{:>12}{:>12}{:>8}{:>20}   aim", "ms", "unrecorded", "recorded", "ratio", "(10 % to 90 %)");
    type Pick = fn(&Taken) -> f64;
    let rows: [(&str, Pick, String); 2] =
        [("elapsed", |t| t.elapsed_s, format!("at most {AIM_RATIO}")), ("CPU of tar", |t| t.cpu_s, String::new())];
    for (name, pick, aim) in rows {
        let ratios: Vec<f64> = plain.iter().zip(&recorded).map(|(without, with)| pick(with) / pick(without)).collect();
        let ms = |taken: &[Taken]| median(&taken.iter().map(pick).collect::<Vec<_>>()) * 1e3;
        let spread = format!("({:.3} to {:.3})", quantile(&ratios, 0.1), quantile(&ratios, 0.9));
        println!("{name:<16}{:>12.1}{:>12.1}{:>8.3}{spread:>20}   {aim}", ms(&plain), ms(&recorded), median(&ratios));
    }
    println!("\n{events} operations, lost in all rounds: {lost}");
    println!("bytes per event, table ops: {bytes:.2}, aim at most {AIM_BYTES:.0}");
    Ok(())
}

/// What an unpacking took.
#[derive(Clone, Copy, Debug)]
struct Taken {
    elapsed_s: f64,
    /// User and system time of tar: what the disk does is not in it.
    cpu_s: f64,
}

/// Unpacks once into a new folder; what tar took is measured the same way whether recorded or not.
fn unpack(bench: &Bench, archive: &Path, reel: Option<&Path>) -> Result<Taken> {
    let to = bench.dir.path().join("unpacked");
    let out = bench.dir.path().join("elapsed");
    fs::create_dir(&to)?;
    // What the round before left to write shall not be written in this one.
    rustix::fs::sync();
    let mut command = match reel {
        Some(reel) => {
            let mut c = Command::new(&bench.ioreel);
            c.args(RECORD).arg("-o").arg(reel).arg("--").arg(&bench.own);
            c
        }
        None => Command::new(&bench.own),
    };
    let status = command.arg("time").arg(&out).args(["tar", "xf"]).arg(archive).arg("-C").arg(&to).status()?;
    if !status.success() {
        bail!("unpacking {}: {status}", archive.display());
    }
    fs::remove_dir_all(&to)?;
    let text = fs::read_to_string(&out)?;
    let figures: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match figures[..] {
        [elapsed_s, cpu_s] => Ok(Taken { elapsed_s, cpu_s }),
        _ => bail!("tar's time is {text:?}"),
    }
}

/// `time OUT COMMAND…`: runs the command and writes the seconds it took, on the clock and on the CPU.
pub(crate) fn timed(words: &[String]) -> Result<ExitCode> {
    let [out, program, arguments @ ..] = words else { bail!("time wants a file and a command") };
    let began = Instant::now();
    let status = Command::new(program).args(arguments).status().with_context(|| program.clone())?;
    let elapsed = began.elapsed().as_secs_f64();
    // SAFETY: a zeroed rusage is valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    fs::write(out, format!("{elapsed} {}\n", seconds(usage.ru_utime) + seconds(usage.ru_stime)))?;
    let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// An archive of many small files, 30 MB in all.
fn make_archive(dir: &Path) -> Result<PathBuf> {
    let tree = dir.join("tree");
    for i in 0..FILES {
        let folder = tree.join(format!("folder{:03}", i / FILES_PER_FOLDER));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("file{i:05}.c")), vec![b'x'; 512 + i * 7919 % 20_000])?;
    }
    let archive = dir.join("tree.tar");
    let words = [OsStr::new("cf"), archive.as_os_str(), OsStr::new("-C"), dir.as_os_str(), OsStr::new("tree")];
    let status = Command::new("tar").args(words).status().context("tar")?;
    if !status.success() {
        bail!("making an archive: {status}");
    }
    fs::remove_dir_all(&tree)?;
    Ok(archive)
}
