//! Draws panels over one time axis with a table below. Each reel has a column; an overlay or a difference has one
//! column.
//!
//! In: reels and options. Out: a picture as SVG or PNG. May use: `canvas`, `model`, `panels`, `draw`.

mod combine;

use std::sync::Arc;

use ioreel_analyze::meters::{
    bins::{Bins, nice_width_ns},
    coverage::Coverage,
};
use ioreel_traces::{Reel, manifest::Mark};

use crate::{
    PlotError, Result,
    canvas::{
        raster::Cells,
        theme::{DARK, LIGHT},
    },
    draw::{
        self,
        frame::Pen,
        marks,
        painter::{BETWEEN, Column, LEFT, Painter, RIGHT},
        picture::{Arrange, Picture},
    },
    model::{
        caption,
        idle::{SkipIdle, Squeeze},
        occupants,
        offset_axis::OffsetAxis,
        palette::{ColorBy, Palette},
        shape::{Field, Shape},
        survey::{Choice, Survey, survey},
    },
    panels::{
        self,
        gather::{Early, Gathered, gather},
        panel::{About, OFFSET_HEIGHT, Setup, Spec},
        table::Table,
    },
};

/// Options of a picture.
#[derive(Clone, Debug, Default)]
pub struct PlotOptions {
    /// Title. Default: the name of the reel if there is only one.
    pub title: Option<String>,
    /// Width in pixels. Default: depends on the number of reels.
    pub width: Option<u32>,
    /// Device and window.
    pub choice: Choice,
    /// Names of panels, see [`panels::names`]. If empty, the reels' contents determine the panels.
    pub panels: Vec<String>,
    /// Dark theme.
    pub dark: bool,
    /// Meaning of the colours of densities. Default: processes if several matter, else files, else the kind of operation.
    pub color_by: Option<ColorBy>,
    /// Arrangement of several reels.
    pub arrange: Arrange,
    /// Whether quiet stretches are cut out of the picture of one reel.
    pub skip_idle: SkipIdle,
}

/// Default width for one reel, px.
pub const DEFAULT_WIDTH: u32 = 1400;
/// Default width per reel if there are more, px.
const COLUMN_WIDTH: u32 = 640;
/// Minimum width of a reel's plots, px.
const LEAST_COLUMN: u32 = 160;
/// Maximum width, px. Viewers fail beyond it.
const MOST_WIDTH: u32 = 16_384;
/// Pixels per bin of rates. Narrower bins flicker, wider ones hide bursts.
const BIN_PX: f64 = 3.2;
/// Margin at the end of the time axis: one part in this many.
const MARGIN_SHARE: i64 = 64;
/// Reels whose lengths differ by more than this factor have separate time axes.
const SHARED_TIME_FACTOR: f64 = 8.0;

/// Draws the reels.
///
/// # Errors
/// If a reel cannot be read, or the options are not valid for it.
pub fn plot(reels: &[Reel], options: &PlotOptions) -> Result<Picture> {
    if options.arrange == Arrange::Difference && reels.len() != 2 {
        return Err(PlotError::NotTwo { given: reels.len() });
    }
    let together = options.arrange != Arrange::SideBySide && reels.len() > 1;
    let n = if together { 1 } else { reels.len().max(1) };
    let width = options.width.unwrap_or(DEFAULT_WIDTH.max(140 + n as u32 * COLUMN_WIDTH));
    let least = (LEFT + RIGHT + BETWEEN * (n - 1) as f64) as u32 + LEAST_COLUMN * n as u32;
    if width < least || width > MOST_WIDTH {
        return Err(PlotError::Width { width, columns: n, least, most: MOST_WIDTH });
    }
    let mut surveys = reels.iter().map(|r| survey(r, &options.choice)).collect::<Result<Vec<_>>>()?;
    let specs = specs(&surveys, &options.panels)?;
    let palettes = Palette::of(reels, &surveys, color_by(reels, &surveys, options, together)?)?;
    let cell_px = cell_px(reels, &surveys, &specs);
    let offsets = offset_axis(reels, &surveys, &specs, cell_px)?;
    let room = (f64::from(width) - LEFT - RIGHT - BETWEEN * (n - 1) as f64) / n as f64;
    let cells = (room / f64::from(cell_px)) as u32;
    let column_px = f64::from(cells * cell_px);
    let shared = if together { Some(one_window(&mut surveys)) } else { shared_end(&surveys) };
    let title = options.title.clone().or_else(|| caption::title(&surveys));
    let squeeze = squeeze(reels, &surveys, &specs, options.skip_idle)?;
    let mut shapes: Vec<Vec<Option<Shape>>> = Vec::new();
    let (mut axes, mut jumps) = (Vec::new(), Vec::new());
    for ((reel, survey), mut palette) in reels.iter().zip(&surveys).zip(palettes) {
        if let Some(device) = survey.device.as_ref().filter(|_| specs.iter().any(|s| panels::colors_requests(s))) {
            palette.look_at_bios(reel, device.of_bios)?;
        }
        let end_ns = squeeze.place(shared.unwrap_or(survey.to_ns).max(survey.to_ns));
        // The last event should not touch the frame.
        let margin_ns = if options.choice.to_ns.is_some() { 0 } else { (end_ns - survey.from_ns) / MARGIN_SHARE };
        let time = Cells { from: survey.from_ns, to: end_ns.saturating_add(margin_ns), count: cells };
        let bin_ns = nice_width_ns(time.to - time.from, (column_px / BIN_PX) as usize, 1);
        // Overlaid reels need the same bins; otherwise bins end with the reel.
        let bins = Bins::new(survey.from_ns, if together { end_ns } else { squeeze.place(survey.to_ns) }, bin_ns);
        let palette = Arc::new(palette);
        let setup = Setup { reel, survey, time, squeeze: &squeeze, bins, offsets: &offsets, palette };
        let (counted, early) = count(&setup, &specs)?;
        shapes.push(counted);
        axes.push((time, bins));
        jumps.push(early);
    }
    for (survey, early) in surveys.iter_mut().zip(jumps) {
        survey.clock_jumps += early.count;
        survey.clock_jumps_ns.extend(early.at_ns);
        survey.clock_jumps_ns.sort_unstable();
    }
    for i in 0..specs.len() {
        let fields = shapes.iter_mut().filter_map(|s| match &mut s[i] {
            Some(Shape::Field(field)) => Some(field),
            _ => None,
        });
        draw::fields::cut_to_use(&mut fields.collect::<Vec<&mut Field>>());
    }
    let manifests = reels.iter().map(|r| &r.manifest);
    let parts = surveys.into_iter().zip(manifests).zip(shapes).zip(axes);
    let mut columns: Vec<Column> = parts
        .enumerate()
        .map(|(i, (((survey, manifest), shapes), (time, bins)))| Column {
            losses: manifest.losses.clone(),
            marks: marks::place(&moved(&manifest.marks, &squeeze), time, column_px),
            squeeze: squeeze.clone(),
            surveys: vec![survey],
            time,
            bins,
            x: LEFT + i as f64 * (column_px + BETWEEN),
            w: column_px,
            shapes,
        })
        .collect();
    if together {
        columns = combine::one(columns, options.arrange);
    }
    let pen = Pen { theme: if options.dark { &DARK } else { &LIGHT } };
    Painter::new(pen, columns, f64::from(width), cell_px, options.arrange).draw(
        title.as_deref(),
        &specs,
        shared.is_some(),
    )
}

/// The panels to draw.
fn specs(surveys: &[Survey], asked: &[String]) -> Result<Vec<&'static Spec>> {
    if !asked.is_empty() {
        return panels::chosen(asked);
    }
    let requests = surveys.iter().any(|s| s.device.is_some());
    let calls = surveys.iter().any(|s| s.has_calls);
    let mut names: Vec<&str> = panels::default_names(requests, calls || !requests).to_vec();
    // If one reel has no device, operations are the common basis.
    if requests && calls && surveys.iter().any(|s| s.device.is_none()) {
        let at = names.len() - 1;
        names.splice(at..at, ["latency-calls", "call-throughput"]);
    }
    panels::chosen(&names.into_iter().map(String::from).collect::<Vec<_>>())
}

/// The content of each panel for a reel. `None` if the reel has no data for it.
fn count(setup: &Setup<'_>, specs: &[&'static Spec]) -> Result<(Vec<Option<Shape>>, Early)> {
    let (device, calls) = (setup.survey.device.is_some(), setup.survey.has_calls);
    let drawn = |spec: &Spec| match spec.about {
        About::Device => device,
        About::Calls => calls,
        About::All => true,
    };
    let mut made = specs.iter().filter(|s| drawn(s)).map(|s| (s.make)(setup)).collect::<Result<Vec<_>>>()?;
    let with_table = specs.iter().any(|s| s.name == "table");
    if with_table {
        made.push(Table::of_calls(setup)?);
    }
    let Gathered { mut shapes, early } =
        gather(setup.reel, setup.survey, setup.squeeze, setup.palette.needs_bios(), made)?;
    let of_calls = if with_table { shapes.pop() } else { None };
    let mut shapes = shapes.into_iter();
    let mut out: Vec<Option<Shape>> = specs.iter().map(|s| drawn(s).then(|| shapes.next()).flatten()).collect();
    if let Some(Shape::Table(calls)) = of_calls {
        for shape in out.iter_mut().flatten() {
            if let Shape::Table(sheets) = shape {
                sheets.iter_mut().zip(&calls).for_each(|(sheet, calls)| sheet.join(calls));
            }
        }
    }
    Ok((out, early))
}

/// Size of a raster cell, px. With few events, cells are larger, so that each is visible.
fn cell_px(reels: &[Reel], surveys: &[Survey], specs: &[&'static Spec]) -> u32 {
    let of_calls = specs.iter().any(|s| s.about == About::Calls && s.height > 100 || s.name == "files");
    let most = reels.iter().zip(surveys).map(|(reel, s)| {
        let calls = if of_calls { reel.count::<ioreel_traces::rows::Op>().max(0) as u64 } else { 0 };
        calls.max(s.device.as_ref().map_or(0, |d| d.requests))
    });
    match most.max().unwrap_or(0) {
        0..4_000 => 3,
        4_000..400_000 => 2,
        _ => 1,
    }
}

/// A common axis for all devices: the union of their used ranges.
fn offset_axis(reels: &[Reel], surveys: &[Survey], specs: &[&'static Spec], cell_px: u32) -> Result<OffsetAxis> {
    let mut used = Coverage::default();
    surveys.iter().filter_map(|s| s.device.as_ref()).for_each(|d| used.merge(&d.used));
    let mut axis = OffsetAxis::new(&used.ranges(), OFFSET_HEIGHT / cell_px, cell_px);
    if specs.iter().any(|s| s.name == "offsets") {
        occupants::describe(&mut axis, reels, surveys)?;
    }
    Ok(axis)
}

/// What to cut out of the time axis of a single reel.
fn squeeze(reels: &[Reel], surveys: &[Survey], specs: &[&'static Spec], when: SkipIdle) -> Result<Squeeze> {
    match (reels, surveys) {
        ([reel], [survey]) if !specs.iter().any(|s| panels::needs_idle(s)) => Squeeze::of(reel, survey, when),
        _ => Ok(Squeeze::default()),
    }
}

/// The meaning of colours.
fn color_by(reels: &[Reel], surveys: &[Survey], options: &PlotOptions, together: bool) -> Result<ColorBy> {
    match options.color_by {
        _ if together => Ok(ColorBy::Reel),
        Some(by) => Ok(by),
        None => Palette::telling(reels, surveys),
    }
}

/// The markers at their places on the time axis.
fn moved(marks: &[Mark], squeeze: &Squeeze) -> Vec<Mark> {
    marks.iter().map(|m| Mark { ns: squeeze.place(m.ns), name: m.name.clone() }).collect()
}

/// Makes all reels start where the first of them does, for one axis. Returns the end of the last one.
fn one_window(surveys: &mut [Survey]) -> i64 {
    let from_ns = surveys.iter().map(|s| s.from_ns).min().unwrap_or(0);
    surveys.iter_mut().for_each(|s| s.from_ns = from_ns);
    surveys.iter().map(|s| s.to_ns).max().unwrap_or(0)
}

/// The common end of the time axes, unless the reels start at different times or their lengths differ too much.
fn shared_end(surveys: &[Survey]) -> Option<i64> {
    let first = surveys.first().map(|s| s.from_ns);
    if surveys.iter().any(|s| Some(s.from_ns) != first) {
        return None;
    }
    let spans = surveys.iter().map(|s| s.to_ns - s.from_ns);
    let (least, most) = (spans.clone().min()?, spans.max()?);
    let comparable = most as f64 <= least as f64 * SHARED_TIME_FACTOR;
    if comparable { surveys.iter().map(|s| s.to_ns).max() } else { None }
}
