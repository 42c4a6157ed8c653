//! `ioreel plot`: draws reels.

use crate::{
    WrongUsage,
    beside::beside,
    output::{as_it_is, say, write_private},
    progress::Progress,
};
use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use ioreel_traces::{Reel, confine::Needs};
use ioreel_visualize::{
    Arrange, ColorBy, PlotError, PlotOptions, SkipIdle,
    model::survey::Choice,
    movie::{DEFAULT_SECONDS, MOST_SECONDS, MovieOptions, movie},
    plot,
    terminal::{SketchOptions, sketch},
};

use crate::units::seconds;

/// What colours stand for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colors {
    /// Read, write, other
    Op,
    /// Process that queued the bio
    Process,
    /// Class of the bio: data, journal, inode table, …
    Class,
    /// File
    File,
    /// Latency
    Latency,
    /// Reel (with --overlay)
    Reel,
}

/// When quiet stretches are cut out.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    /// If more than half of the time is quiet
    Auto,
    /// Whenever there are any of at least 2 % of the time
    Always,
    /// Never
    Never,
}

impl From<Skip> for SkipIdle {
    fn from(skip: Skip) -> Self {
        match skip {
            Skip::Auto => Self::Auto,
            Skip::Always => Self::Always,
            Skip::Never => Self::Never,
        }
    }
}

/// Colour scheme.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// White background
    Light,
    /// Dark background
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
Panels over time: offsets, files, throughput, iops, seeks, latency, latency-q2c, latency-q2d, latency-calls, depth, calls,
call-time, call-throughput, stages, phase, gantt, rewrites. Charts: sizes, distances, hot, reuse. Table: table. See docs/pictures.md.";

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reels to draw, side by side unless --overlay or --diff is given
    #[arg(required = true, value_name = "REEL")]
    reels: Vec<PathBuf>,
    /// Output file: .png or .svg for a picture, .mp4 (needs ffmpeg) or .apng for a movie of the disk [default: REEL with
    /// .png for .reel]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print one reel as text instead
    #[arg(long, conflicts_with_all = ["output", "panels", "overlay", "diff", "title", "width"])]
    terminal: bool,
    /// Length of a movie, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SECONDS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SECONDS)))]
    seconds: u32,
    /// Panels to draw, in this order, separated by commas (see below) [default: depends on the tables in the reels]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    panels: Vec<String>,
    /// What colours stand for [default: process if several of them matter, else file, else op; op with --terminal]
    #[arg(long, value_name = "WHAT")]
    color_by: Option<Colors>,
    /// Colour scheme [default: light; dark with --terminal]
    #[arg(long, value_name = "NAME")]
    theme: Option<Theme>,
    /// Cut stretches in which nothing happens out of the time axis, each with a mark. `auto`: if more than half of the time is
    /// quiet. Only for one reel, and not with the panels stages, phase, rewrites, hot and reuse
    #[arg(long, value_name = "WHEN", default_value = "auto", conflicts_with_all = ["terminal", "overlay", "diff"])]
    skip_idle: Skip,
    /// Draw all reels over each other, each in its own colour
    #[arg(long, conflicts_with = "diff")]
    overlay: bool,
    /// Draw the difference of two reels (second minus first)
    #[arg(long)]
    diff: bool,
    /// Title of the picture [default: the reel's name]
    #[arg(long)]
    title: Option<String>,
    /// Block device to draw [default: in each reel, the one below the files that the workload used most]
    #[arg(long, value_name = "NAME|MAJ:MIN")]
    device: Option<String>,
    /// Width in pixels [default: 1400; more for three or more reels]
    #[arg(long, value_name = "PIXELS")]
    width: Option<u32>,
    /// Start of the window: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    from: Option<i64>,
    /// End of the window: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    to: Option<i64>,
}

impl Args {
    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        let output = self.output();
        let is_movie = output.as_ref().is_some_and(|o| o.extension().is_some_and(|e| e.eq_ignore_ascii_case("mp4")));
        Needs { runs_programs: is_movie, ..Needs::to_write(output.as_deref()) }
    }

    /// The file to write, if any.
    fn output(&self) -> Option<PathBuf> {
        if self.terminal { None } else { self.output.clone().or_else(|| Some(beside(&self.reels, "png"))) }
    }
}

/// Runs `ioreel plot`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(output) = args.output() else { return print(&args) };
    let kind = output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let svg = match kind.as_deref() {
        Some("svg") => true,
        Some("png") => false,
        Some("mp4" | "apng") => return film(args, &output),
        _ => {
            let what = "unknown picture format; expected a name ending in .png, .svg, .mp4 or .apng";
            return Err(WrongUsage(format!("{}: {what}", output.display())).into());
        }
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
        color_by: args.color_by.map(Into::into),
        arrange,
        skip_idle: args.skip_idle.into(),
    };
    let progress = Progress::start(&format!("drawing {}", output.display()));
    let picture = plot(&reels, &options).map_err(usage_or_failure)?;
    let bytes = if svg { picture.svg().into_bytes() } else { picture.png()? };
    write_private(&output, &bytes).with_context(|| format!("{}: writing the picture", output.display()))?;
    drop(progress);
    if args.output.is_none() {
        say!("ioreel: drew {}", output.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What is wrong whatever the reels hold is wrong usage.
fn usage_or_failure(e: PlotError) -> anyhow::Error {
    match e {
        PlotError::UnknownPanel { .. } | PlotError::NotTwo { .. } | PlotError::Width { .. } => {
            WrongUsage(e.to_string()).into()
        }
        e => e.into(),
    }
}

/// Columns and rows of a sketch that is not printed on a terminal.
const PAGE: (u16, u16) = (120, 40);

/// Prints one reel as text.
fn print(args: &Args) -> anyhow::Result<ExitCode> {
    let [reel] = &args.reels[..] else {
        return Err(WrongUsage("--terminal draws only one reel; to compare several, write a .png".into()).into());
    };
    let terminal = std::io::stdout().is_terminal();
    let size = if terminal { ratatui::crossterm::terminal::size().unwrap_or(PAGE) } else { PAGE };
    let options = SketchOptions {
        choice: Choice { device: args.device.clone(), from_ns: args.from, to_ns: args.to },
        dark: args.theme != Some(Theme::Light),
        color_by: args.color_by.unwrap_or(Colors::Op).into(),
        columns: size.0,
        // The prompt needs a line.
        rows: size.1.saturating_sub(1),
    };
    let text = sketch(&Reel::open(reel)?, &options)?.text(if terminal { colors() } else { 0 });
    as_it_is(text.trim_end_matches('\n'));
    Ok(ExitCode::SUCCESS)
}

/// Number of colours that the terminal supports; 0 if NO_COLOR is set (https://no-color.org).
pub(crate) fn colors() -> u32 {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    match (var("NO_COLOR").is_empty(), var("COLORTERM").as_str(), var("TERM").as_str()) {
        (false, ..) | (.., "dumb") => 0,
        (_, "truecolor" | "24bit", _) => 1 << 24,
        _ => 256,
    }
}

/// Writes a movie.
fn film(args: Args, output: &Path) -> anyhow::Result<ExitCode> {
    let [reel] = &args.reels[..] else {
        let what = "a movie shows only one reel; make one movie per reel, or draw them side by side as a .png";
        return Err(WrongUsage(what.into()).into());
    };
    let reel = Reel::open(reel)?;
    let choice = Choice { device: args.device, from_ns: args.from, to_ns: args.to };
    let options = MovieOptions { title: args.title, choice, seconds: args.seconds };
    let _progress = Progress::start(&format!("filming {}", output.display()));
    movie(&reel, &options, output)?;
    Ok(ExitCode::SUCCESS)
}
