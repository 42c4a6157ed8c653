//! A movie of the disk: a map whose cells light up when they are read or written, and curves of throughput and seeks
//! with a time cursor.
//!
//! In: a reel. Out: a video file. May use: `canvas`, `model`.
//!
//! The reel is read twice, as for a picture. Events are counted per frame and cell, so memory depends on the number of
//! frames and pixels. Each frame draws only what changes.

mod encode;
mod stage;

use std::path::Path;

use ioreel_analyze::{
    events::requests::{Class, requests},
    meters::{
        bins::Bins,
        seeks::{Seek, SeekCounter},
    },
    summary::series::DeviceSeries,
};
use ioreel_traces::Reel;

pub use self::encode::Format;
use self::{
    encode::Encoder,
    stage::{COLUMNS, HEIGHT, ROWS, STRIP_BINS, Stage, WIDTH},
};
use crate::{
    PlotError, Result,
    canvas::raster::Cells,
    model::{
        offset_axis::OffsetAxis,
        survey::{Choice, Survey, survey},
    },
};

/// Content and duration of a movie.
#[derive(Clone, Debug)]
pub struct MovieOptions {
    /// Title. Default: the reel's name.
    pub title: Option<String>,
    /// Device and window.
    pub choice: Choice,
    /// Duration of the movie, s.
    pub seconds: u32,
}

/// Default duration, s.
pub const DEFAULT_SECONDS: u32 = 30;
/// Maximum duration, s. Memory is proportional to it.
pub const MOST_SECONDS: u32 = 600;
/// Share of its brightness that a cell keeps per 1/25 s.
const AFTERGLOW: f32 = 0.86;

/// Colours of a cell: reads, writes, others.
const INKS: usize = 3;

/// Number of events per frame and cell.
struct Film {
    cells: usize,
    /// Counts by frame, colour and cell, limited to 255.
    counts: Vec<u8>,
}

impl Film {
    fn new(frames: u32, cells: usize) -> Self {
        Self { cells, counts: vec![0; frames as usize * INKS * cells] }
    }

    fn add(&mut self, frame: u32, ink: usize, cells: std::ops::RangeInclusive<usize>) {
        let at = (frame as usize * INKS + ink) * self.cells;
        if let Some(row) = self.counts.get_mut(at..at + self.cells)
            && let Some(row) = row.get_mut(cells)
        {
            row.iter_mut().for_each(|n| *n = n.saturating_add(1));
        }
    }

    fn frame(&self, frame: u32, ink: usize) -> &[u8] {
        let at = (frame as usize * INKS + ink) * self.cells;
        &self.counts[at..at + self.cells]
    }
}

/// Writes a movie of the reel's device to `output`, in the format of its name.
///
/// # Errors
/// When the reel cannot be read, holds no requests, or the movie cannot be written, for example as `.mp4` without
/// ffmpeg.
pub fn movie(reel: &Reel, options: &MovieOptions, output: &Path) -> Result<()> {
    let survey = survey(reel, &options.choice)?;
    let Some(device) = &survey.device else { return Err(PlotError::NothingToShow { reel: reel.name() }) };
    let format = Format::for_output(output)?;
    let seconds = options.seconds.clamp(1, MOST_SECONDS);
    let frames = seconds * format.frames_per_s();
    let time = Cells { from: survey.from_ns, to: survey.to_ns, count: frames };
    let places = OffsetAxis::new(&device.used.ranges(), COLUMNS * ROWS, 1);
    let bins = Bins::new(survey.from_ns, survey.to_ns, (survey.to_ns - survey.from_ns) / i64::from(STRIP_BINS) + 1);
    let (film, series) = shoot(reel, &survey.choice, device.dev, time, &places, bins)?;
    let title = options.title.clone().unwrap_or_else(|| reel.name());
    let mut stage = Stage::new(&title, &survey, &places, &series)?;
    let mut encoder = Encoder::start(format, output, WIDTH, HEIGHT, frames)?;
    let keep = AFTERGLOW.powf(25.0 / format.frames_per_s() as f32);
    for frame in 0..frames {
        stage.fade(keep);
        for ink in 0..INKS {
            stage.light(ink, film.frame(frame, ink));
        }
        let t_ns = moment(&survey, frame, frames);
        encoder.frame(stage.draw(t_ns)?)?;
    }
    encoder.finish()
}

/// End time of a frame.
fn moment(survey: &Survey, frame: u32, frames: u32) -> i64 {
    let span = i128::from(survey.to_ns - survey.from_ns);
    survey.from_ns + (span * i128::from(frame + 1) / i128::from(frames.max(1))) as i64
}

fn shoot(
    reel: &Reel,
    choice: &Choice,
    dev: i64,
    time: Cells,
    places: &OffsetAxis,
    bins: Bins,
) -> Result<(Film, DeviceSeries)> {
    let mut film = Film::new(time.count, places.rows as usize);
    let mut series = DeviceSeries::new(bins);
    let mut seeks = SeekCounter::default();
    for request in requests(reel) {
        let r = request?;
        if r.dev != dev || !choice.holds(r.issue_ns) {
            continue;
        }
        let seek = if r.class.is_data() { seeks.push(r.sector, r.end_sector()) } else { Seek::default() };
        series.push(&r, seek);
        let ink = match r.class {
            Class::Read => 0,
            Class::Write => 1,
            _ => 2,
        };
        if let Some((first, last)) = time.span(r.issue_ns, r.last_ns()) {
            places.spans(r.sector, r.end_sector(), |(top, bottom)| {
                // Rows count from the top of an ascending axis; the map starts with the lowest address.
                let cells = (places.rows - 1 - bottom) as usize..=(places.rows - 1 - top) as usize;
                (first..=last).for_each(|frame| film.add(frame, ink, cells.clone()));
            });
        }
    }
    Ok((film, series))
}
