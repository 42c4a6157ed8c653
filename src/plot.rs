//! `ioreel plot`: draws reels.

use crate::output::{as_it_is, tell};
use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use ioreel_traces::Reel;
use ioreel_visualize::{
    Arrange, ColorBy, PlotOptions,
    movie::{DEFAULT_SECONDS, MOST_SECONDS, MovieOptions, movie},
    plot,
    survey::Choice,
    terminal::{SketchOptions, sketch},
};

use crate::units::seconds;

/// What the colours tell apart.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colors {
    /// Reads, writes, the rest
    Op,
    /// Names of processes, by the bios they queued
    Process,
    /// What bios carry: data, journal, inode table, ...
    Class,
    /// Files, by their names
    File,
    /// How long it took
    Latency,
    /// The reels
    Reel,
}

/// What is behind the picture.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// On white
    Light,
    /// On nearly black
    Dark,
}

impl From<Colors> for ColorBy {
    fn from(c: Colors) -> Self {
        match c {
            Colors::Op => Self::Op,
            Colors::Process => Self::Process,
            Colors::Class => Self::Class,
            Colors::File => Self::File,
            Colors::Latency => Self::Latency,
            Colors::Reel => Self::Reel,
        }
    }
}

const NOTES: &str = "\
Panels (docs/pictures.md): offsets, files, throughput, iops, seeks, latency, latency-q2c, latency-q2d, latency-calls, depth,
calls, call-throughput, stages, phase, gantt, rewrites over time; sizes, distances, hot, reuse; table.";

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reels, drawn side by side unless --overlay or --diff
    #[arg(required = true, value_name = "REEL")]
    reels: Vec<PathBuf>,
    /// Where the picture goes; its name ends in .png or .svg, or in .mp4 or .apng for a movie of the disk
    #[arg(short, long, value_name = "FILE", required_unless_present = "terminal")]
    output: Option<PathBuf>,
    /// Prints the picture of one reel as characters instead
    #[arg(long, conflicts_with_all = ["output", "panels", "overlay", "diff", "title", "width"])]
    terminal: bool,
    /// How long a movie lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SECONDS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SECONDS)))]
    seconds: u32,
    /// Panels to draw, in this order, as names with commas between them (see below) [default: by what the reels hold]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    panels: Vec<String>,
    /// What the colours of densities tell apart
    #[arg(long, value_name = "WHAT", default_value = "op")]
    color_by: Colors,
    /// Dark on white or light on black [default: light; dark for --terminal]
    #[arg(long, value_name = "NAME")]
    theme: Option<Theme>,
    /// Draws all reels over each other, each in a colour of its own
    #[arg(long, conflicts_with = "diff")]
    overlay: bool,
    /// Draws the difference of two reels: the second less the first
    #[arg(long)]
    diff: bool,
    /// Heading of the picture [default: the reel's name]
    #[arg(long)]
    title: Option<String>,
    /// Block device to draw, by name or number [default: of each reel the one with most bytes]
    #[arg(long, value_name = "NAME|MAJ:MIN")]
    device: Option<String>,
    /// Width of the picture in pixels [default: 1400, more for three reels and up]
    #[arg(long, value_name = "PIXELS")]
    width: Option<u32>,
    /// Draws only from this moment on, in seconds since the reel's start
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    from: Option<i64>,
    /// Draws only up to this moment, in seconds since the reel's start
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    to: Option<i64>,
}

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.terminal {
        return print(&args);
    }
    let output = args.output.clone().unwrap_or_default();
    let kind = output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let svg = match kind.as_deref() {
        Some("svg") => true,
        Some("png") => false,
        Some("mp4" | "apng") => return film(args, &output),
        _ => bail!("{}: pictures are written as .png, .svg, .mp4 or .apng; name the file so", output.display()),
    };
    let reels = args.reels.iter().map(Reel::open).collect::<Result<Vec<_>, _>>()?;
    let choice = Choice { device: args.device, from_ns: args.from, to_ns: args.to };
    let arrange = match (args.overlay, args.diff) {
        (true, _) => Arrange::Overlay,
        (_, true) => Arrange::Difference,
        _ => Arrange::SideBySide,
    };
    let options = PlotOptions {
        title: args.title,
        width: args.width,
        choice,
        panels: args.panels,
        dark: args.theme == Some(Theme::Dark),
        color_by: args.color_by.into(),
        arrange,
    };
    let picture = plot(&reels, &options)?;
    let bytes = if svg { picture.svg().into_bytes() } else { picture.png()? };
    fs::write(&output, bytes)
        // Half a picture is worse than none.
        .inspect_err(|_| _ = fs::remove_file(&output))
        .with_context(|| format!("{}: writing the picture", output.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Size of a sketch that goes to no terminal.
const PAGE: (u16, u16) = (120, 40);

/// Prints one reel as characters.
fn print(args: &Args) -> anyhow::Result<ExitCode> {
    let [reel] = &args.reels[..] else {
        bail!("--terminal shows one reel; draw several side by side as a .png");
    };
    let terminal = std::io::stdout().is_terminal();
    let size = if terminal { ratatui::crossterm::terminal::size().unwrap_or(PAGE) } else { PAGE };
    let options = SketchOptions {
        choice: Choice { device: args.device.clone(), from_ns: args.from, to_ns: args.to },
        dark: args.theme != Some(Theme::Light),
        color_by: args.color_by.into(),
        columns: size.0,
        // The prompt needs a line.
        rows: size.1.saturating_sub(1),
    };
    let text = sketch(&Reel::open(reel)?, &options)?.text(if terminal { colors() } else { 0 });
    as_it_is(text.trim_end_matches('\n'));
    Ok(ExitCode::SUCCESS)
}

/// Colours that the terminal says it has; none where they are not wanted (https://no-color.org).
pub(crate) fn colors() -> u32 {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    match (var("NO_COLOR").is_empty(), var("COLORTERM").as_str(), var("TERM").as_str()) {
        (false, ..) | (.., "dumb") => 0,
        (_, "truecolor" | "24bit", _) => 1 << 24,
        _ => 256,
    }
}

/// Makes a movie.
fn film(args: Args, output: &Path) -> anyhow::Result<ExitCode> {
    let [reel] = &args.reels[..] else {
        bail!("a movie shows one reel; make one of each, or draw them side by side as a .png");
    };
    let reel = Reel::open(reel)?;
    let choice = Choice { device: args.device, from_ns: args.from, to_ns: args.to };
    let options = MovieOptions { title: args.title, choice, seconds: args.seconds };
    let path = movie(&reel, &options, output)?;
    if path != output {
        tell!(
            "ioreel: {}: there is no ffmpeg here, so the movie is an animated PNG, which browsers play",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
