//! Whole jobs, with and without recording: unpacking an archive, and a search through what was unpacked.

use std::{
    ffi::OsStr,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use ioreel_bpf::empty::Observed;
use ioreel_traces::{Reel, rows::Op};

use crate::{
    Bench,
    floor::{FLOORS, Floor, beside},
    session::{RECORD, remove},
    stats::{median, quantile},
};

/// Files of an archive made here, in folders of [`FILES_PER_FOLDER`].
const FILES: usize = 3000;
const FILES_PER_FOLDER: usize = 50;

/// Aims: elapsed against unrecorded, and size.
const AIM_TAR: f64 = 1.03;
const AIM_FIND: f64 = 1.15;
const AIM_BYTES: f64 = 8.0;
/// How often a search goes through the tree: once is over before it can be measured.
const SEARCHES: usize = 20;

/// A fresh ext4 in memory, gone with its owner: on a disk in use each new folder lies elsewhere, and takes another time.
struct Fresh {
    dir: PathBuf,
    image: PathBuf,
}

impl Fresh {
    fn new(bench: &Bench) -> Result<Self> {
        const BYTES: u64 = 1 << 30;
        let fresh = Self { dir: bench.reels.path().join("fresh"), image: bench.reels.path().join("fresh.img") };
        fs::create_dir(&fresh.dir)?;
        fs::File::create(&fresh.image)?.set_len(BYTES)?;
        for (program, words) in [
            ("mkfs.ext4", vec![OsStr::new("-qF"), fresh.image.as_os_str()]),
            ("mount", vec![OsStr::new("-oloop"), fresh.image.as_os_str(), fresh.dir.as_os_str()]),
        ] {
            let status = Command::new(program).args(words).status().context(program)?;
            if !status.success() {
                bail!("{program}: {status}");
            }
        }
        Ok(fresh)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Best effort: nothing more can be done here.
        let _ = Command::new("umount").arg(&self.dir).status();
        let _ = fs::remove_file(&self.image);
    }
}

/// Unpacks and searches, recorded and not, in turn, and prints the comparisons.
pub(crate) fn measure(bench: &Bench, rounds: usize, archive: Option<PathBuf>) -> Result<()> {
    let archive = match archive {
        Some(given) => given,
        None => make_archive(bench.dir.path())?,
    };
    let fresh = Fresh::new(bench)?;
    let tree = fresh.dir.join("unpacked");
    let unpack = [OsStr::new("tar"), OsStr::new("xf"), archive.as_os_str(), OsStr::new("-C"), tree.as_os_str()];
    let mut tar = Compared::default();
    // The first round fills the page cache and is not counted.
    for round in 0..=rounds {
        let run = |watcher: Watcher<'_>| {
            remove(&tree)?;
            fs::create_dir(&tree)?;
            // What the round before left to write shall not be written in this one.
            rustix::fs::sync();
            run(bench, &unpack, watcher)
        };
        tar.round(round, run, &bench.reels.path().join("tar.reel"))?;
    }
    println!("\ntar xf {}, {rounds} rounds in turn\n", archive.display());
    tar.print(AIM_TAR);
    println!("bytes per event, table ops: {:.2}, aim at most {AIM_BYTES:.0}", tar.bytes);

    let mut search = vec![OsStr::new("find")];
    search.extend(std::iter::repeat_n(tree.as_os_str(), SEARCHES));
    search.extend(["-size", "+1000k"].map(OsStr::new));
    let mut find = Compared::default();
    for round in 0..=rounds {
        find.round(round, |watcher| run(bench, &search, watcher), &bench.reels.path().join("find.reel"))?;
    }
    println!("\nfind TREE… -size +1000k, {SEARCHES} times through what was unpacked, {rounds} rounds\n");
    find.print(AIM_FIND);
    remove(&tree)
}

/// Who watches a job.
#[derive(Clone, Copy, Debug)]
enum Watcher<'a> {
    None,
    Floor(Floor),
    /// Into this reel.
    Ioreel(&'a Path),
}

/// The recorder's name in the table.
const IOREEL: &str = "ioreel";

/// All watchers with their names, in the order of each round.
fn watchers(reel: &Path) -> Vec<(&'static str, Watcher<'_>)> {
    let floors = FLOORS.map(|(name, floor)| (name, Watcher::Floor(floor)));
    [("none", Watcher::None)].into_iter().chain(floors).chain([(IOREEL, Watcher::Ioreel(reel))]).collect()
}

/// One job under each of the watchers, round by round.
#[derive(Default)]
struct Compared {
    /// Of each watcher, by name.
    taken: Vec<(&'static str, Vec<Taken>)>,
    events: i64,
    lost: i64,
    bytes: f64,
}

impl Compared {
    fn round(&mut self, round: usize, job: impl Fn(Watcher<'_>) -> Result<Taken>, reel: &Path) -> Result<()> {
        let mut taken = Vec::new();
        for (name, watcher) in watchers(reel) {
            taken.push((name, job(watcher)?));
        }
        if round == 0 {
            self.taken = taken.into_iter().map(|(name, _)| (name, Vec::new())).collect();
            return Ok(());
        }
        for ((_, all), (_, taken)) in self.taken.iter_mut().zip(taken) {
            all.push(taken);
        }
        let reel = Reel::open(reel)?;
        self.events = reel.count::<Op>();
        self.lost += reel.manifest.lost();
        let size: i64 = reel.manifest.segments.get("ops").into_iter().flatten().map(|s| s.bytes).sum();
        self.bytes = size as f64 / self.events.max(1) as f64;
        Ok(())
    }

    fn print(&self, aim: f64) {
        println!(
            "{:<32}{:>12}{:>8}{:>20}{:>12}{:>8}   aim",
            "watched by", "elapsed ms", "times", "(10 % to 90 %)", "CPU ms", "times"
        );
        let Some((_, unwatched)) = self.taken.first() else { return };
        for (name, taken) in &self.taken {
            type Pick = fn(&Taken) -> f64;
            let all = |taken: &[Taken], pick: Pick| taken.iter().map(pick).collect::<Vec<_>>();
            let ratios = |pick: Pick| -> Vec<f64> {
                unwatched.iter().zip(taken).map(|(without, with)| pick(with) / pick(without)).collect()
            };
            let (elapsed, cpu): (Pick, Pick) = (|t| t.elapsed_s, |t| t.cpu_s);
            let times = ratios(elapsed);
            let spread = format!("({:.3} to {:.3})", quantile(&times, 0.1), quantile(&times, 0.9));
            println!(
                "{name:<32}{:>12.1}{:>8.3}{spread:>20}{:>12.1}{:>8.3}   {}",
                median(&all(taken, elapsed)) * 1e3,
                median(&times),
                median(&all(taken, cpu)) * 1e3,
                median(&ratios(cpu)),
                if *name == IOREEL { format!("at most {aim}") } else { String::new() }
            );
        }
        println!("\n{} operations, lost in all rounds: {}", self.events, self.lost);
    }
}

/// What a job took.
#[derive(Clone, Copy, Debug)]
struct Taken {
    elapsed_s: f64,
    /// User and system time of the job: what the disk does is not in it.
    cpu_s: f64,
}

/// Runs a job once; what it took is measured the same way whoever watches.
fn run(bench: &Bench, job: &[&OsStr], watcher: Watcher<'_>) -> Result<Taken> {
    let out = bench.dir.path().join("elapsed");
    let mut command = match watcher {
        Watcher::Ioreel(reel) => {
            remove(reel)?;
            let mut c = Command::new(&bench.ioreel);
            c.args(RECORD).arg("-o").arg(reel).arg("--").arg(&bench.own);
            c
        }
        Watcher::None | Watcher::Floor(_) => Command::new(&bench.own),
    };
    command.arg("time").arg(&out).args(job).stdout(Stdio::null());
    let status = match watcher {
        Watcher::Floor(floor) => beside(bench, Observed::Calls, floor, || command.status().context("running the job"))?,
        _ => command.status()?,
    };
    if !status.success() {
        bail!("{}: {status}", job[0].display());
    }
    let text = fs::read_to_string(&out)?;
    let figures: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match figures[..] {
        [elapsed_s, cpu_s] => Ok(Taken { elapsed_s, cpu_s }),
        _ => bail!("the job's time is {text:?}"),
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
