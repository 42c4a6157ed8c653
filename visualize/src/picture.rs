//! The picture: panels over one time axis, a column per reel, a table below.

use ioreel_analyze::{
    Summary,
    bins::{Bins, nice_width_ns},
    coverage::Coverage,
};
use ioreel_traces::Reel;

use crate::{
    PlotError, Result,
    bands::OffsetAxis,
    layers::{self, LatencyAxis},
    marks,
    painter::{BETWEEN, Column, LATENCY_HEIGHT, LEFT, OFFSET_HEIGHT, Painter, RIGHT},
    raster::Cells,
    render,
    survey::{Choice, Survey, survey},
    svg::Svg,
};

/// What is drawn, and how wide.
#[derive(Clone, Debug, Default)]
pub struct PlotOptions {
    /// Heading; the reel's name when there is one reel, none otherwise.
    pub title: Option<String>,
    /// Width in pixels; by number of reels otherwise.
    pub width: Option<u32>,
    /// Device and window.
    pub choice: Choice,
}

/// A finished picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Width, px.
    pub width: u32,
    /// Height, px.
    pub height: u32,
    pub(crate) svg: Svg,
}

impl Picture {
    /// As an SVG document that carries its typeface.
    pub fn svg(&self) -> String {
        self.svg.document(self.width, self.height, true)
    }

    /// As PNG.
    pub fn png(&self) -> Result<Vec<u8>> {
        render::png(&self.svg.document(self.width, self.height, false), self.width, self.height)
    }
}

/// Width for one reel, px: fits a screen.
pub const DEFAULT_WIDTH: u32 = 1400;
/// Width that each reel has when there are more, px.
const COLUMN_WIDTH: u32 = 640;
/// Narrowest plot area of a reel, px.
const LEAST_COLUMN: u32 = 160;
/// Widest picture, px: beyond, viewers fail.
const MOST_WIDTH: u32 = 16_384;
/// Pixels per bin of the rates: narrower ones flicker, wider ones hide bursts.
const BIN_PX: f64 = 3.2;
/// Free time at the end of the axis: one such part of the whole.
const MARGIN_SHARE: i64 = 64;
/// Reels whose lengths differ by more than this factor get time axes of their own.
const SHARED_TIME_FACTOR: f64 = 8.0;

/// Draws the reels side by side.
pub fn plot(reels: &[Reel], options: &PlotOptions) -> Result<Picture> {
    let n = reels.len().max(1);
    let width = options.width.unwrap_or(DEFAULT_WIDTH.max(140 + n as u32 * COLUMN_WIDTH));
    let least = (LEFT + RIGHT + BETWEEN * (n - 1) as f64) as u32 + LEAST_COLUMN * n as u32;
    if width < least || width > MOST_WIDTH {
        return Err(PlotError::Width { width, columns: n, least, most: MOST_WIDTH });
    }
    // Operations are drawn in all detail where at least one reel has no device to draw: then for all, so that they
    // compare. Elsewhere one panel of them says what the devices' work came from.
    let detailed = reels.iter().any(|r| !Summary::has(r).0);
    let calls = detailed || reels.iter().any(|r| Summary::has(r).1);
    let surveys = reels.iter().map(|r| survey(r, &options.choice, calls)).collect::<Result<Vec<_>>>()?;
    let cell_px = cell_px(&surveys, detailed);
    let offsets = offset_axis(&surveys, cell_px);
    let room = (f64::from(width) - LEFT - RIGHT - BETWEEN * (n - 1) as f64) / n as f64;
    let cells = (room / f64::from(cell_px)) as u32;
    let column_px = f64::from(cells * cell_px);
    let latency = LatencyAxis::new(
        surveys.iter().filter_map(|s| s.calls.as_ref()).map(|c| c.latency.min_ns).min().unwrap_or(1),
        surveys.iter().filter_map(|s| s.calls.as_ref()).map(|c| c.latency.max_ns).max().unwrap_or(1),
        LATENCY_HEIGHT / cell_px,
    );
    let shared = shared_end(&surveys);
    let mut columns = Vec::new();
    for (i, (reel, survey)) in reels.iter().zip(surveys).enumerate() {
        let end_ns = shared.unwrap_or(survey.to_ns).max(survey.to_ns);
        // What happens last should not stick to the frame.
        let margin_ns = if options.choice.to_ns.is_some() { 0 } else { (end_ns - survey.from_ns) / MARGIN_SHARE };
        let time = Cells { from: survey.from_ns, to: end_ns.saturating_add(margin_ns), count: cells };
        let bin_ns = nice_width_ns(time.to - time.from, (column_px / BIN_PX) as usize, 1);
        let bins = Bins::new(survey.from_ns, survey.to_ns, bin_ns);
        let device = match &survey.device {
            Some(d) => Some(layers::device(reel, &options.choice, d.dev, time, &offsets, bins)?),
            None => None,
        };
        let call_layers = if calls { Some(layers::calls(reel, time, latency, bins)?) } else { None };
        let x = LEFT + i as f64 * (column_px + BETWEEN);
        let marks = marks::place(&reel.manifest.marks, time, column_px);
        columns.push(Column { survey, time, bins, x, w: column_px, device, calls: call_layers, marks });
    }
    let mut painter =
        Painter { svg: Svg::default(), columns, width: f64::from(width), cell_px, detailed, y: 0.0, lane: None };
    painter.draw(reels, options, &offsets, latency, shared.is_some())
}

/// Pixels of a raster's cell: few events are drawn larger, so that each can be seen; many as fine as can be.
fn cell_px(surveys: &[Survey], detailed: bool) -> u32 {
    let most = surveys.iter().map(|s| {
        let requests = s.device.as_ref().map_or(0, |d| d.summary.requests);
        requests.max(s.calls.as_ref().filter(|_| detailed).map_or(0, |c| c.totals.calls))
    });
    match most.max().unwrap_or(0) {
        0..4_000 => 3,
        4_000..400_000 => 2,
        _ => 1,
    }
}

/// One axis for all devices: the union of what they use.
fn offset_axis(surveys: &[Survey], cell_px: u32) -> OffsetAxis {
    let mut used = Coverage::default();
    surveys.iter().filter_map(|s| s.device.as_ref()).for_each(|d| used.merge(&d.used));
    OffsetAxis::new(&used.ranges(), OFFSET_HEIGHT / cell_px, cell_px)
}

/// The common end of the time axes, unless the reels' lengths are too different for one.
fn shared_end(surveys: &[Survey]) -> Option<i64> {
    let spans = surveys.iter().map(|s| s.to_ns - s.from_ns);
    let (least, most) = (spans.clone().min()?, spans.max()?);
    let comparable = most as f64 <= least as f64 * SHARED_TIME_FACTOR;
    if comparable { surveys.iter().map(|s| s.to_ns).max() } else { None }
}
