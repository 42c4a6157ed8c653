//! The picture: panels over one time axis, a column per reel, a table below.

use ioreel_analyze::{
    Summary,
    bins::{Bins, nice_width_ns},
    coverage::Coverage,
    series::CallSeries,
};
use ioreel_traces::Reel;

use crate::{
    PlotError, Result,
    bands::OffsetAxis,
    color, facts, font,
    layers::{self, CallLayers, DeviceLayers, LatencyAxis},
    panel::{self, Entry, Key, Line, TICK},
    raster::{self, Cells, Counts},
    render,
    scale::{ValueScale, count, duration, quantity, time_unit},
    survey::{Choice, Survey, survey},
    svg::{Anchor, Area, Style, Svg},
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
    svg: Svg,
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
/// Left of the plots: labels of the value axes.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 28.0;
/// Between columns.
const BETWEEN: f64 = 26.0;
/// Heights of plots, px; those of rasters are multiples of every cell size.
const OFFSET_HEIGHT: u32 = 402;
const LATENCY_HEIGHT: u32 = 204;
const RATE_HEIGHT: f64 = 96.0;
/// Above each plot, for its name and legend.
const HEADING: f64 = 34.0;
/// Height of the strip of flushes.
const FLUSH_STRIP: f64 = 7.0;
/// Pixels per bin of the rates: narrower ones flicker, wider ones hide bursts.
const BIN_PX: f64 = 3.2;
/// Reels whose lengths differ by more than this factor get time axes of their own.
const SHARED_TIME_FACTOR: f64 = 8.0;

/// One reel's column.
struct Column {
    survey: Survey,
    time: Cells,
    bins: Bins,
    x: f64,
    w: f64,
    device: Option<DeviceLayers>,
    calls: Option<CallLayers>,
}

impl Column {
    fn area(&self, y: f64, h: f64) -> Area {
        Area { x: self.x, y, w: self.w, h }
    }
}

/// Draws the reels side by side.
pub fn plot(reels: &[Reel], options: &PlotOptions) -> Result<Picture> {
    let n = reels.len().max(1);
    let width = options.width.unwrap_or(DEFAULT_WIDTH.max(140 + n as u32 * COLUMN_WIDTH));
    let least = (LEFT + RIGHT + BETWEEN * (n - 1) as f64) as u32 + LEAST_COLUMN * n as u32;
    if width < least || width > MOST_WIDTH {
        return Err(PlotError::Width { width, columns: n, least, most: MOST_WIDTH });
    }
    // Calls are drawn where at least one reel has no device to draw: then for all, so that they compare.
    let calls = reels.iter().any(|r| !Summary::has(r).0);
    let surveys = reels.iter().map(|r| survey(r, &options.choice, calls)).collect::<Result<Vec<_>>>()?;
    let cell_px = cell_px(&surveys);
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
        let time = Cells { from: survey.from_ns, to: shared.unwrap_or(survey.to_ns).max(survey.to_ns), count: cells };
        let bin_ns = nice_width_ns(time.to - time.from, (column_px / BIN_PX) as usize, 1);
        let bins = Bins::new(survey.from_ns, survey.to_ns, bin_ns);
        let device = match &survey.device {
            Some(d) => Some(layers::device(reel, &options.choice, d.dev, time, &offsets, bins)?),
            None => None,
        };
        let call_layers = if calls { Some(layers::calls(reel, time, latency, bins)?) } else { None };
        let x = LEFT + i as f64 * (column_px + BETWEEN);
        columns.push(Column { survey, time, bins, x, w: column_px, device, calls: call_layers });
    }
    let mut painter = Painter { svg: Svg::default(), columns, width: f64::from(width), cell_px, y: 0.0 };
    painter.draw(reels, options, &offsets, latency, shared.is_some())
}

/// Pixels of a raster's cell: few events are drawn larger, so that each can be seen; many as fine as can be.
fn cell_px(surveys: &[Survey]) -> u32 {
    let most = surveys.iter().map(|s| {
        let requests = s.device.as_ref().map_or(0, |d| d.summary.requests);
        requests.max(s.calls.as_ref().map_or(0, |c| c.totals.calls))
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

struct Painter {
    svg: Svg,
    columns: Vec<Column>,
    width: f64,
    cell_px: u32,
    /// Bottom of what is drawn so far.
    y: f64,
}

impl Painter {
    fn draw(
        &mut self,
        reels: &[Reel],
        options: &PlotOptions,
        offsets: &OffsetAxis,
        latency: LatencyAxis,
        shared: bool,
    ) -> Result<Picture> {
        // The background is put in front once the height is known.
        let title = options.title.clone().or_else(|| (reels.len() == 1).then(|| reels[0].name()));
        self.titles(title.as_deref());
        let top = self.y + HEADING;
        let mut plots: Vec<Area> = Vec::new();
        if self.columns.iter().any(|c| c.device.is_some()) {
            self.offset_panel(offsets, &mut plots)?;
            self.rates(&throughput(), &mut plots);
            self.rates(&iops(), &mut plots);
            self.rates(&seeks(), &mut plots);
            self.rates(&depth(), &mut plots);
        }
        if self.columns.iter().any(|c| c.calls.is_some()) {
            self.latency_panel(latency, &mut plots)?;
            self.rates(&call_throughput(), &mut plots);
            self.rates(&call_rates(), &mut plots);
        }
        self.marks(reels, top, &plots);
        self.time_axes(shared);
        let area = Area { x: LEFT - 8.0, y: self.y, w: self.width - LEFT - RIGHT + 8.0, h: 0.0 };
        let surveys: Vec<Survey> = self.columns.iter().map(|c| c.survey.clone()).collect();
        facts::draw(&mut self.svg, area, &surveys);
        let height = (self.y + facts::height(surveys.len()) + 18.0).ceil();
        let mut svg = Svg::default();
        svg.rect(Area { x: 0.0, y: 0.0, w: self.width, h: height }, color::PAPER, 1.0);
        svg.append(&self.svg);
        Ok(Picture { width: self.width as u32, height: height as u32, svg })
    }

    /// The title, and what each column shows.
    fn titles(&mut self, title: Option<&str>) {
        let room = self.width - LEFT - RIGHT;
        self.y = 14.0;
        if let Some(title) = title {
            let style = Style { size: 21.0, bold: true, fill: color::INK };
            let text = font::fit(&font::showable(title), style.size, true, room);
            self.svg.text((LEFT, self.y + 23.0), &text, style, Anchor::Start);
            self.y += 32.0;
        }
        let named = self.columns.len() > 1;
        let notes = self.columns.iter().any(|c| !notes(&c.survey).is_empty());
        let commands = self.columns.iter().any(|c| !c.survey.command.is_empty());
        let y = self.y;
        for c in &self.columns {
            let (room, mut y) = (c.w, y);
            let mut say = |text: &str, style: Style, dy: f64| {
                y += dy;
                let text = font::fit(&font::showable(text), style.size, style.bold, room);
                self.svg.text((c.x, y), &text, style, Anchor::Start);
            };
            if named {
                say(&c.survey.name, Style { size: 16.0, bold: true, fill: color::INK }, 20.0);
            }
            say(&subtitle(&c.survey), Style { size: 13.0, bold: false, fill: color::INK }, 19.0);
            if commands {
                say(&c.survey.command, Style { size: 12.0, bold: false, fill: color::FAINT }, 17.0);
            }
            if notes {
                say(&notes_text(&c.survey), Style { size: 12.0, bold: true, fill: color::ALARM }, 18.0);
            }
        }
        self.y += if named { 39.0 } else { 19.0 };
        self.y += if commands { 17.0 } else { 0.0 } + if notes { 18.0 } else { 0.0 };
    }

    /// Room for a panel below the others: the area of the first column, the heading's width set to all.
    fn panel(&mut self, height: f64, extra: f64) -> (f64, Area) {
        let y = (self.y + HEADING + extra).round();
        self.y = y + height;
        (y, Area { x: LEFT, y: y - extra, w: self.width - LEFT - RIGHT, h: height })
    }

    fn offset_panel(&mut self, axis: &OffsetAxis, plots: &mut Vec<Area>) -> Result<()> {
        let flushes = self.columns.iter().any(|c| c.survey.device.as_ref().is_some_and(|d| d.flushes));
        let others = self.columns.iter().any(|c| c.survey.device.as_ref().is_some_and(|d| d.others));
        let extra = if flushes { FLUSH_STRIP + 4.0 } else { 0.0 };
        let height = f64::from(axis.rows * axis.row_px);
        let (y, heading) = self.panel(height, extra);
        let layers = || self.columns.iter().filter_map(|c| c.device.as_ref());
        let most = layers().flat_map(|d| [d.reads.max(), d.writes.max()]).max().unwrap_or(0).max(1);
        let most_flushes = layers().map(|d| d.flushes.max()).max().unwrap_or(0);
        let mut entries = vec![
            Entry { key: Key::Ramp(color::READ_RAMP), label: "reads".into() },
            Entry {
                key: Key::Ramp(color::WRITE_RAMP),
                label: format!("writes, 1 to {} per {} (log)", count(u64::from(most)), dots(self.cell_px)),
            },
        ];
        if others {
            entries.push(Entry { key: Key::Line("#a0dec8"), label: "discards, zeroing".into() });
        }
        if flushes {
            entries.push(Entry { key: Key::Line(color::FLUSH), label: "flushes (strip on top)".into() });
        }
        let cut = if axis.bands.len() > 1 { ", unused gaps cut out" } else { "" };
        panel::heading(
            &mut self.svg,
            heading,
            "Device offset",
            &format!("{} from the device's start{cut}", axis.unit().0),
            &entries,
        );
        for (i, c) in self.columns.iter().enumerate() {
            let area = c.area(y, height);
            panel::paper(&mut self.svg, area, c.time);
            for (from_top, label) in axis.ticks() {
                let at = area.y + from_top.round().min(height - 1.0) + 0.5;
                self.svg.line((area.x, at), (area.right(), at), color::GRID, 1.0, "");
                if i == 0 {
                    self.svg.text((area.x - 8.0, at + 4.0), &label, TICK, Anchor::End);
                }
            }
            settle_shade(&mut self.svg, area, c);
            if let Some(d) = &c.device {
                // Discards lie below the data, in one tint: they say that space was given up, not that it was busy.
                let layers = [
                    (&d.others, color::OTHER_RAMP, u32::MAX),
                    (&d.reads, color::READ_RAMP, most),
                    (&d.writes, color::WRITE_RAMP, most),
                ];
                self.svg.image(area, &raster::png(&layers)?);
                if flushes {
                    let strip = Area { y: area.y - FLUSH_STRIP - 2.0, h: FLUSH_STRIP, ..area };
                    self.svg.rect(strip, "#f6f1f5", 1.0);
                    self.svg.image(strip, &raster::png(&[(&d.flushes, color::FLUSH_RAMP, most_flushes)])?);
                }
            }
            for band in axis.bands.iter().skip(1) {
                let px = |rows: u32| f64::from(rows * axis.row_px);
                let gap = Area { y: area.bottom() - px(band.row), h: px(axis.gap_rows), ..area };
                self.svg.rect(gap, "#eef0f3", 1.0);
                let middle = gap.y + (gap.h / 2.0).floor() + 0.5;
                self.svg.line((gap.x, middle), (gap.right(), middle), color::FRAME, 1.0, "3 4");
            }
            if c.device.is_none() {
                self.svg.rect(area, color::PAPER, 1.0);
                panel::nothing(&mut self.svg, area, NO_DEVICE);
            }
            self.svg.frame(area, color::FRAME);
            plots.push(area);
        }
        Ok(())
    }

    /// A panel of rates: lines per column, one scale for all.
    fn rates(&mut self, panel: &RatePanel, plots: &mut Vec<Area>) {
        let lines: Vec<Option<Vec<Line>>> = self.columns.iter().map(|c| (panel.lines)(c)).collect();
        let most = lines.iter().flatten().flatten().flat_map(|l| l.values.iter().copied()).fold(0.0, f64::max);
        let scale = ValueScale::new(most, 4);
        let (y, heading) = self.panel(RATE_HEIGHT, 0.0);
        panel::heading(&mut self.svg, heading, panel.name, panel.unit, &panel.entries);
        for (i, (c, lines)) in self.columns.iter().zip(&lines).enumerate() {
            let area = c.area(y, RATE_HEIGHT);
            panel::paper(&mut self.svg, area, c.time);
            panel::value_grid(&mut self.svg, area, scale, i == 0);
            settle_shade(&mut self.svg, area, c);
            match lines {
                Some(lines) => {
                    for line in lines {
                        panel::steps(&mut self.svg, area, c.time, c.bins, scale.top, line);
                    }
                    // One scale for all may leave little to see of a slower one.
                    if self.columns.len() > 1 {
                        let peak = lines.iter().flat_map(|l| l.values.iter().copied()).fold(0.0, f64::max);
                        panel::corner(&mut self.svg, area, &format!("peak {}", quantity(peak)));
                    }
                }
                None => panel::nothing(&mut self.svg, area, NO_DEVICE),
            }
            self.svg.frame(area, color::FRAME);
            plots.push(area);
        }
    }

    fn latency_panel(&mut self, axis: LatencyAxis, plots: &mut Vec<Area>) -> Result<()> {
        let height = f64::from(axis.rows * self.cell_px);
        let (y, heading) = self.panel(height, 0.0);
        let layers = || self.columns.iter().filter_map(|c| c.calls.as_ref());
        let max = |f: fn(&CallLayers) -> &Counts| layers().map(|l| f(l).max()).max().unwrap_or(0);
        let most = max(|l| &l.reads).max(max(|l| &l.writes)).max(max(|l| &l.others)).max(1);
        let entries = [
            Entry { key: Key::Ramp(color::READ_RAMP), label: "read".into() },
            Entry { key: Key::Ramp(color::WRITE_RAMP), label: "write, copy".into() },
            Entry {
                key: Key::Ramp(color::OTHER_RAMP),
                label: format!("all other calls, 1 to {} per {} (log)", count(u64::from(most)), dots(self.cell_px)),
            },
        ];
        panel::heading(&mut self.svg, heading, "Duration of system calls", "at the time of their return", &entries);
        for (i, c) in self.columns.iter().enumerate() {
            let area = c.area(y, height);
            panel::paper(&mut self.svg, area, c.time);
            let mut decade = axis.least_ns;
            while decade <= axis.most_ns * 1.001 {
                let at = (area.y + axis.from_top(decade) * height).round() + 0.5;
                self.svg.line((area.x, at), (area.right(), at), color::GRID, 1.0, "");
                if i == 0 {
                    let label = match decade.round() as i64 {
                        d @ 0..1_000 => format!("{d} ns"),
                        d @ 1_000..1_000_000 => format!("{} µs", d / 1_000),
                        d @ 1_000_000..1_000_000_000 => format!("{} ms", d / 1_000_000),
                        d => format!("{} s", d / 1_000_000_000),
                    };
                    self.svg.text((area.x - 8.0, at + 4.0), &label, TICK, Anchor::End);
                }
                decade *= 10.0;
            }
            if let Some(l) = &c.calls {
                let layers = [
                    (&l.others, color::OTHER_RAMP, most),
                    (&l.reads, color::READ_RAMP, most),
                    (&l.writes, color::WRITE_RAMP, most),
                ];
                self.svg.image(area, &raster::png(&layers)?);
            }
            if c.survey.calls.as_ref().is_none_or(|calls| calls.totals.calls == 0) {
                panel::nothing(&mut self.svg, area, "no operations recorded");
            }
            self.svg.frame(area, color::FRAME);
            plots.push(area);
        }
        Ok(())
    }

    /// What goes through all panels: where the work ended and settling began, and where events were lost.
    fn marks(&mut self, reels: &[Reel], top: f64, plots: &[Area]) {
        let bottom = plots.iter().map(Area::bottom).fold(top, f64::max);
        for (c, reel) in self.columns.iter().zip(reels) {
            let column = c.area(top, bottom - top);
            for (i, loss) in reel.manifest.losses.iter().enumerate() {
                let (from, to) = (loss.from_ns.max(c.time.from), loss.to_ns.min(c.time.to));
                if from > to || i >= MOST_LOSSES {
                    continue;
                }
                let (left, right) = (panel::time_x(column, c.time, from), panel::time_x(column, c.time, to));
                for plot in plots.iter().filter(|p| p.x == c.x) {
                    let shade = Area { x: left.min(right - 2.0).max(plot.x), w: (right - left).max(2.0), ..*plot };
                    self.svg.rect(shade, color::ALARM, 0.22);
                }
            }
            let end = c.survey.elapsed_ns;
            if c.survey.settle_ns > 0 && end > c.time.from && end < c.time.to {
                let x = panel::time_x(column, c.time, end).round() + 0.5;
                for plot in plots.iter().filter(|p| p.x == c.x) {
                    self.svg.line((x, plot.y), (x, plot.bottom()), color::INK, 1.0, "5 4");
                }
                let text = format!("last operation {}", duration(end));
                let wide = font::width(&text, TICK.size, false);
                let style = Style { fill: color::INK, ..TICK };
                let (at, anchor) =
                    if x + wide + 12.0 < column.right() { (x + 6.0, Anchor::Start) } else { (x - 6.0, Anchor::End) };
                let left = if anchor == Anchor::Start { at - 3.0 } else { at - wide - 3.0 };
                let Some(first) = plots.iter().find(|p| p.x == c.x) else { continue };
                let y = first.y + 17.0;
                self.svg.rect(Area { x: left, y: y - 12.0, w: wide + 6.0, h: 16.0 }, color::PAPER, 0.8);
                self.svg.text((at, y), &text, style, anchor);
            }
        }
    }

    fn time_axes(&mut self, shared: bool) {
        let y = self.y;
        for c in &self.columns {
            let area = c.area(y, 0.0);
            let (unit, _) = time_unit(c.time.to - c.time.from);
            let own = if shared { "" } else { ", axis of its own" };
            let caption = format!("time, {unit}{own} (rates per {})", duration(c.bins.width_ns()));
            panel::time_axis(&mut self.svg, area, c.time, &caption);
        }
        self.y += 56.0;
    }
}

/// What is said where a reel has no requests.
const NO_DEVICE: &str = "no block device below, or none recorded";

/// A cell in words.
fn dots(cell_px: u32) -> String {
    if cell_px == 1 { "pixel".into() } else { format!("{cell_px}×{cell_px} pixels") }
}

/// Loss intervals drawn at most: shades beyond lie on each other.
const MOST_LOSSES: usize = 2_000;

/// A wash over the time in which the file systems settled.
fn settle_shade(svg: &mut Svg, area: Area, c: &Column) {
    let end = c.survey.elapsed_ns.max(c.time.from);
    if c.survey.settle_ns > 0 && end < c.time.to {
        let x = panel::time_x(area, c.time, end);
        let right = panel::time_x(area, c.time, c.survey.to_ns.min(c.time.to));
        svg.rect(Area { x, w: (right - x).max(0.0), ..area }, "#aab4c0", 0.13);
    }
}

/// What a column shows, in one line.
fn subtitle(s: &Survey) -> String {
    let mut parts = Vec::new();
    match (&s.device, s.fstype.is_empty()) {
        (Some(d), no_fs) => {
            let fs = if no_fs { String::new() } else { format!("{} on ", s.fstype) };
            let of = if d.devices > 1 { format!(", one of {} devices", d.devices) } else { String::new() };
            parts.push(format!("{fs}{}{of}", d.label));
        }
        (None, false) => parts.push(format!("{}, no block device below", s.fstype)),
        (None, true) => parts.push("no block device below, or none recorded".into()),
    }
    if s.elapsed_ns > 0 {
        let settle = if s.settle_ns > 0 { format!(" + {} settling", duration(s.settle_ns)) } else { String::new() };
        parts.push(format!("{}{settle}", duration(s.elapsed_ns)));
    }
    parts.join("  ·  ")
}

fn notes(s: &Survey) -> Vec<String> {
    let mut out = Vec::new();
    if s.lost > 0 {
        out.push(format!("{} events were lost (shaded red where known)", count(s.lost as u64)));
    }
    if s.unfinished {
        out.push("the recording was not closed: its end is missing".into());
    }
    out
}

fn notes_text(s: &Survey) -> String {
    notes(s).join("; ")
}

/// A panel of rates.
struct RatePanel {
    name: &'static str,
    unit: &'static str,
    entries: Vec<Entry>,
    lines: fn(&Column) -> Option<Vec<Line>>,
}

fn entry(color: &'static str, label: &str) -> Entry {
    Entry { key: Key::Line(color), label: label.into() }
}

fn line(bins: Bins, values: &[u64], unit: f64, color: &'static str, filled: bool) -> Line {
    let values = values.iter().enumerate().map(|(i, n)| bins.rate(i, *n) / unit).collect();
    Line { values, color, width: 1.3, fill: filled.then_some(0.16) }
}

const MIB: f64 = 1024.0 * 1024.0;

fn throughput() -> RatePanel {
    RatePanel {
        name: "Throughput",
        unit: "MiB/s at completion",
        entries: vec![entry(color::READ, "read"), entry(color::WRITE, "write")],
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            Some(vec![
                line(s.bins, &s.read_bytes, MIB, color::READ, true),
                line(s.bins, &s.write_bytes, MIB, color::WRITE, true),
            ])
        },
    }
}

fn iops() -> RatePanel {
    RatePanel {
        name: "IOPS",
        unit: "requests completed per second",
        entries: vec![
            entry(color::READ, "read"),
            entry(color::WRITE, "write"),
            entry(color::FLUSH, "flush, discard, other"),
        ],
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            Some(vec![
                line(s.bins, &s.others, 1.0, color::FLUSH, false),
                line(s.bins, &s.reads, 1.0, color::READ, true),
                line(s.bins, &s.writes, 1.0, color::WRITE, true),
            ])
        },
    }
}

/// Area of `seeks.sw64k`.
const SW64K_TINT: &str = "#9fd8c4";

fn seeks() -> RatePanel {
    RatePanel {
        name: "Seeks",
        unit: "per second, in dispatch order, reads and writes",
        entries: vec![
            entry(color::INK, "seeks.exact: start ≠ previous end"),
            entry(SW64K_TINT, "seeks.sw64k: more than 64 KiB from it"),
        ],
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            // Often they agree: then the one is seen as the outline of the other.
            let sw64k = Line { width: 0.0, fill: Some(1.0), ..line(s.bins, &s.seeks_sw64k, 1.0, SW64K_TINT, true) };
            Some(vec![sw64k, line(s.bins, &s.seeks_exact, 1.0, color::INK, false)])
        },
    }
}

fn depth() -> RatePanel {
    RatePanel {
        name: "Queue depth",
        unit: "requests in flight, mean over time",
        entries: Vec::new(),
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            Some(vec![Line { values: s.in_flight.means(), color: color::GREY, width: 1.3, fill: Some(0.16) }])
        },
    }
}

fn call_throughput() -> RatePanel {
    RatePanel {
        name: "Bytes moved by calls",
        unit: "MiB/s",
        entries: vec![entry(color::READ, "read"), entry(color::WRITE, "write")],
        lines: |c| {
            let s = &c.calls.as_ref()?.series;
            Some(vec![
                line(s.bins, &s.read_bytes, MIB, color::READ, true),
                line(s.bins, &s.write_bytes, MIB, color::WRITE, true),
            ])
        },
    }
}

/// Colours of [`CallSeries::ROWS`].
const CALL_COLORS: [&str; 5] = [color::READ, color::WRITE, color::FLUSH, color::OTHER, color::GREY];

fn call_rates() -> RatePanel {
    RatePanel {
        name: "System calls",
        unit: "per second",
        entries: CallSeries::ROWS.iter().zip(CALL_COLORS).map(|(name, c)| entry(c, name)).collect(),
        lines: |c| {
            let s = &c.calls.as_ref()?.series;
            Some(s.calls.iter().zip(CALL_COLORS).map(|(row, c)| line(s.bins, row, 1.0, c, false)).collect())
        },
    }
}
