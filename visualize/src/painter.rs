//! Lays the panels out: headings, plots of every column, what goes through all of them, axes, table.

use ioreel_analyze::bins::Bins;
use ioreel_traces::Reel;

use crate::{
    Result,
    bands::OffsetAxis,
    caption, color, facts, font,
    layers::{CallLayers, DeviceLayers, LatencyAxis},
    marks,
    panel::{self, Entry, Key, Line, TICK},
    picture::{Picture, PlotOptions},
    raster::{self, Cells, Counts},
    rates,
    scale::{ValueScale, count, duration, quantity, time_unit},
    survey::Survey,
    svg::{Anchor, Area, Style, Svg},
};

/// Left of the plots: labels of the value axes.
pub(crate) const LEFT: f64 = 78.0;
pub(crate) const RIGHT: f64 = 28.0;
/// Between columns.
pub(crate) const BETWEEN: f64 = 26.0;
/// Heights of plots, px; those of rasters are multiples of every cell size.
pub(crate) const OFFSET_HEIGHT: u32 = 402;
pub(crate) const LATENCY_HEIGHT: u32 = 204;
/// Height of the lane where marks have their names.
const MARK_LANE: f64 = 16.0;
const RATE_HEIGHT: f64 = 96.0;
/// Above each plot, for its name and legend.
const HEADING: f64 = 34.0;
/// Height of the strip of flushes.
const FLUSH_STRIP: f64 = 7.0;
/// One reel's column.
pub(crate) struct Column {
    pub(crate) survey: Survey,
    /// Its time axis, in cells of the rasters.
    pub(crate) time: Cells,
    /// The bins of its rates.
    pub(crate) bins: Bins,
    /// Left edge and width of its plots.
    pub(crate) x: f64,
    pub(crate) w: f64,
    /// Its requests, where it has any.
    pub(crate) device: Option<DeviceLayers>,
    /// Its operations, where they are drawn.
    pub(crate) calls: Option<CallLayers>,
    /// Named moments within the time axis.
    pub(crate) marks: Vec<marks::Placed>,
}

impl Column {
    /// Whether the end of the work and the beginning of the settling are both drawn.
    fn settles(&self) -> bool {
        let end = self.survey.elapsed_ns;
        self.survey.settle_ns > 0 && end > self.time.from && end < self.survey.to_ns.min(self.time.to)
    }

    fn area(&self, y: f64, h: f64) -> Area {
        Area { x: self.x, y, w: self.w, h }
    }
}

/// Draws panels from top to bottom.
pub(crate) struct Painter {
    pub(crate) svg: Svg,
    pub(crate) columns: Vec<Column>,
    pub(crate) width: f64,
    pub(crate) cell_px: u32,
    /// Whether operations have all their panels.
    pub(crate) detailed: bool,
    /// Bottom of what is drawn so far.
    pub(crate) y: f64,
    /// Top of the lane above the first panel, where marks have their names.
    pub(crate) lane: Option<f64>,
}

impl Painter {
    /// The whole picture.
    pub(crate) fn draw(
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
            self.rates(&rates::throughput(), &mut plots);
            self.rates(&rates::iops(), &mut plots);
            self.rates(&rates::seeks(), &mut plots);
            self.rates(&rates::depth(), &mut plots);
        }
        if self.detailed {
            self.latency_panel(latency, &mut plots)?;
            self.rates(&rates::call_throughput(), &mut plots);
        }
        if self.columns.iter().any(|c| c.calls.is_some()) {
            self.rates(&rates::call_rates(), &mut plots);
        }
        self.marks(reels, top, &plots);
        if let Some(lane) = self.lane {
            let settling = if self.columns.iter().any(Column::settles) { MARK_LANE } else { 0.0 };
            self.named_moments(lane + settling + marks::height(&self.columns) - 4.0, &plots);
        }
        self.time_axes(shared);
        let area = Area { x: LEFT - 8.0, y: self.y, w: self.width - LEFT - RIGHT + 8.0, h: 0.0 };
        let surveys: Vec<Survey> = self.columns.iter().map(|c| c.survey.clone()).collect();
        facts::draw(&mut self.svg, area, &surveys, self.detailed);
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
        let notes = self.columns.iter().any(|c| !caption::notes(&c.survey).is_empty());
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
            say(&caption::subtitle(&c.survey), Style { size: 13.0, bold: false, fill: color::INK }, 19.0);
            if commands {
                say(&c.survey.command, Style { size: 12.0, bold: false, fill: color::FAINT }, 17.0);
            }
            if notes {
                say(&caption::notes(&c.survey), Style { size: 12.0, bold: true, fill: color::ALARM }, 18.0);
            }
        }
        self.y += if named { 39.0 } else { 19.0 };
        self.y += if commands { 17.0 } else { 0.0 } + if notes { 18.0 } else { 0.0 };
    }

    /// Room for a panel below the others, with `extra` between its heading and its plots: the plots' top, and the
    /// area that the heading stands on.
    fn panel(&mut self, height: f64, extra: f64) -> (f64, Area) {
        let first = self.lane.is_none();
        let lane = if first && self.columns.iter().any(Column::settles) { MARK_LANE } else { 0.0 };
        let lane = if first { lane + marks::height(&self.columns) } else { 0.0 };
        let y = (self.y + HEADING + extra + lane).round();
        self.lane.get_or_insert(y - extra - lane);
        self.y = y + height;
        (y, Area { x: LEFT, y: y - extra - lane, w: self.width - LEFT - RIGHT, h: height })
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
            Entry { key: Key::Ramp(color::WRITE_RAMP), label: format!("writes, {}", density(most, self.cell_px)) },
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
            if c.device.is_some() {
                plots.push(area);
            }
        }
        Ok(())
    }

    /// A panel of rates: lines per column, one scale for all.
    fn rates(&mut self, panel: &rates::RatePanel, plots: &mut Vec<Area>) {
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
            if lines.is_some() {
                plots.push(area);
            }
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
                label: format!("all other calls, {}", density(most, self.cell_px)),
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
            if !c.settles() {
                continue;
            }
            let end = c.survey.elapsed_ns;
            let x = panel::time_x(column, c.time, end).round() + 0.5;
            for plot in plots.iter().filter(|p| p.x == c.x) {
                self.svg.line((x, plot.y), (x, plot.bottom()), color::INK, 1.0, "5 4");
            }
            let Some(lane) = self.lane else { continue };
            let text = format!("last operation {}", duration(end));
            let half = font::width(&text, TICK.size, false) / 2.0;
            let at = x.clamp(column.x + half, (column.right() - half).max(column.x + half));
            let style = Style { fill: color::INK, ..TICK };
            self.svg.text((at, lane + MARK_LANE - 6.0), &text, style, Anchor::Middle);
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

/// What the ramps span, in words.
fn density(most: u32, cell_px: u32) -> String {
    let cell = if cell_px == 1 { "pixel".into() } else { format!("{cell_px}×{cell_px} pixels") };
    if most <= 1 { format!("1 per {cell}") } else { format!("1 to {} per {cell} (log)", count(u64::from(most))) }
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
