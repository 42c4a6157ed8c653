//! `ioreel plot`: draws reels.

use crate::output::tell;
use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use ioreel_traces::Reel;
use ioreel_visualize::{
    PlotOptions,
    movie::{DEFAULT_SECONDS, MOST_SECONDS, MovieOptions, movie},
    plot,
    survey::Choice,
};

use crate::units::seconds;

/// Arguments.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Reels, drawn side by side
    #[arg(required = true, value_name = "REEL")]
    reels: Vec<PathBuf>,
    /// Where the picture goes; its name ends in .png or .svg, or in .mp4 or .apng for a movie of the disk
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long a movie lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SECONDS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SECONDS)))]
    seconds: u32,
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
    let kind = args.output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let svg = match kind.as_deref() {
        Some("svg") => true,
        Some("png") => false,
        Some("mp4" | "apng") => return film(args),
        _ => bail!("{}: pictures are written as .png, .svg, .mp4 or .apng; name the file so", args.output.display()),
    };
    let reels = args.reels.iter().map(Reel::open).collect::<Result<Vec<_>, _>>()?;
    let choice = Choice { device: args.device, from_ns: args.from, to_ns: args.to };
    let picture = plot(&reels, &PlotOptions { title: args.title, width: args.width, choice })?;
    let bytes = if svg { picture.svg().into_bytes() } else { picture.png()? };
    fs::write(&args.output, bytes)
        // Half a picture is worse than none.
        .inspect_err(|_| _ = fs::remove_file(&args.output))
        .with_context(|| format!("{}: writing the picture", args.output.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a movie.
fn film(args: Args) -> anyhow::Result<ExitCode> {
    let [reel] = &args.reels[..] else {
        bail!("a movie shows one reel; make one of each, or draw them side by side as a .png");
    };
    let reel = Reel::open(reel)?;
    let choice = Choice { device: args.device, from_ns: args.from, to_ns: args.to };
    let options = MovieOptions { title: args.title, choice, seconds: args.seconds };
    let path = movie(&reel, &options, &args.output)?;
    if path != args.output {
        tell!(
            "ioreel: {}: there is no ffmpeg here, so the movie is an animated PNG, which browsers play",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
