//! The page: headings, panels from top to bottom, markers through all of them, axes, table. [`crate::draw`] draws the
//! panels' contents.

use ioreel_analyze::meters::bins::Bins;
use ioreel_traces::manifest::Loss;

use crate::{
    Result,
    canvas::{
        font,
        raster::Cells,
        scale::{duration, time_unit},
        svg::{Anchor, Area, Style, Svg},
        theme::Ink,
    },
    draw::{
        self, charts,
        facts::Table,
        fields,
        frame::{self, Pen},
        lines, marks,
        picture::{Arrange, Picture},
    },
    model::{caption, idle::Squeeze, shape::Shape, sheet::Sheet, survey::Survey},
    panels::panel::{About, Spec},
};

/// Width left of the plots, for labels of the value axes.
pub(crate) const LEFT: f64 = 78.0;
pub(crate) const RIGHT: f64 = 28.0;
/// Width between columns.
pub(crate) const BETWEEN: f64 = 26.0;
/// Height of the strip with the label at the end of the work.
pub(crate) const MARK_LANE: f64 = 16.0;
/// Height above each plot for its heading and legend.
const HEADING: f64 = 34.0;

/// A column: one reel, or several combined.
pub(crate) struct Column {
    /// Its reels.
    pub(crate) surveys: Vec<Survey>,
    /// Losses of events in these reels.
    pub(crate) losses: Vec<Loss>,
    /// Its time axis, in raster cells.
    pub(crate) time: Cells,
    /// What is cut out of its time axis.
    pub(crate) squeeze: Squeeze,
    /// Bins of its rates.
    pub(crate) bins: Bins,
    /// Left edge and width of its plots.
    pub(crate) x: f64,
    pub(crate) w: f64,
    /// Content of each panel. `None` if its reels have no data for it.
    pub(crate) shapes: Vec<Option<Shape>>,
    /// Named markers in the time window.
    pub(crate) marks: Vec<marks::Placed>,
}

impl Column {
    /// End of the work and end of the settling, if both are in the window: times of the reel.
    pub(crate) fn settling(&self) -> Option<(i64, i64)> {
        let [s] = &self.surveys[..] else { return None };
        let until = s.to_ns;
        (s.settle_ns > 0 && s.elapsed_ns > self.time.from && s.elapsed_ns < until).then_some((s.elapsed_ns, until))
    }

    pub(crate) fn area(&self, y: f64, h: f64) -> Area {
        Area { x: self.x, y, w: self.w, h }
    }
}

/// Draws panels from top to bottom.
pub(crate) struct Painter {
    pub(crate) svg: Svg,
    pub(crate) pen: Pen,
    pub(crate) columns: Vec<Column>,
    pub(crate) width: f64,
    pub(crate) cell_px: u32,
    pub(crate) arrange: Arrange,
    /// Bottom of the drawing so far.
    pub(crate) y: f64,
    /// Top of the strip above the first panel, for names of markers.
    pub(crate) lane: Option<f64>,
    /// Plots over time, for drawing through all of them.
    pub(crate) plots: Vec<Area>,
    /// Notes in corners of plots, which are written over all lines.
    pub(crate) corners: Vec<(Area, String)>,
}

impl Painter {
    pub(crate) fn new(pen: Pen, columns: Vec<Column>, width: f64, cell_px: u32, arrange: Arrange) -> Self {
        let (svg, plots, corners) = (Svg::default(), Vec::new(), Vec::new());
        Self { svg, pen, columns, width, cell_px, arrange, y: 0.0, lane: None, plots, corners }
    }

    /// Width of headings and tables.
    pub(crate) fn room(&self) -> f64 {
        self.width - LEFT - RIGHT
    }

    /// Draws the whole picture.
    pub(crate) fn draw(mut self, title: Option<&str>, specs: &[&'static Spec], shared: bool) -> Result<Picture> {
        self.titles(title);
        let shapes: Vec<Vec<Option<Shape>>> = self.columns.iter_mut().map(|c| std::mem::take(&mut c.shapes)).collect();
        let of = |i: usize| shapes.iter().map(|s| s.get(i).and_then(Option::as_ref)).collect::<Vec<Option<&Shape>>>();
        let over_time =
            |i: usize| !of(i).into_iter().flatten().any(|s| matches!(s, Shape::Charts(_) | Shape::Table(_)));
        for (i, spec) in specs.iter().enumerate().filter(|(i, _)| over_time(*i)) {
            if of(i).into_iter().flatten().any(|s| matches!(s, Shape::Field(_))) {
                fields::draw(&mut self, spec, &of(i))?;
            } else {
                lines::draw(&mut self, spec, &of(i));
            }
        }
        draw::through::draw(&mut self);
        for (area, text) in std::mem::take(&mut self.corners) {
            frame::corner(&mut self.svg, &self.pen, area, &text);
        }
        if !self.plots.is_empty() {
            self.time_axes(shared);
        }
        for (i, spec) in specs.iter().enumerate() {
            if of(i).into_iter().flatten().any(|s| matches!(s, Shape::Charts(_))) {
                charts::draw(&mut self, spec, &of(i));
            }
        }
        if let Some(i) = specs.iter().position(|s| s.name == "table") {
            let detailed = specs.iter().any(|s| s.name == "call-throughput" || s.name == "latency-calls");
            self.table(&of(i), detailed);
        }
        let height = (self.y + 18.0).ceil();
        // The background comes first in the file, but needs the height.
        let mut svg = Svg::default();
        svg.rect(Area { x: 0.0, y: 0.0, w: self.width, h: height }, self.pen.theme.paper, 1.0);
        svg.append(&self.svg);
        Ok(Picture { width: self.width as u32, height: height as u32, svg })
    }

    /// The title, and a description of each column.
    fn titles(&mut self, title: Option<&str>) {
        let theme = self.pen.theme;
        let room = self.width - LEFT - RIGHT;
        self.y = 14.0;
        if let Some(title) = title {
            let style = Style { size: 21.0, bold: true, fill: theme.ink };
            let text = font::fit(&font::showable(title), style.size, true, room);
            self.svg.text((LEFT, self.y + 23.0), &text, style, Anchor::Start);
            self.y += 32.0;
        }
        // Several reels in one column have one line each, with their colour.
        if self.columns.iter().any(|c| c.surveys.len() > 1) {
            self.legend();
            return;
        }
        let named = self.columns.len() > 1;
        let all = || self.columns.iter().flat_map(|c| &c.surveys);
        let notes = all().any(|s| !caption::notes(s).is_empty());
        let commands = all().any(|s| !s.command.is_empty());
        let y = self.y;
        for c in &self.columns {
            let Some(survey) = c.surveys.first() else { continue };
            let (room, mut y) = (c.w, y);
            let mut say = |text: &str, style: Style, dy: f64| {
                y += dy;
                let text = font::fit(&font::showable(text), style.size, style.bold, room);
                self.svg.text((c.x, y), &text, style, Anchor::Start);
            };
            if named {
                say(&survey.name, Style { size: 16.0, bold: true, fill: theme.ink }, 20.0);
            }
            say(&caption::subtitle(survey), Style { size: 13.0, bold: false, fill: theme.ink }, 19.0);
            if commands {
                say(&survey.command, Style { size: 12.0, bold: false, fill: theme.faint }, 17.0);
            }
            if notes {
                say(&caption::notes(survey), Style { size: 12.0, bold: true, fill: theme.alarm }, 18.0);
            }
        }
        self.y += if named { 39.0 } else { 19.0 };
        self.y += if commands { 17.0 } else { 0.0 } + if notes { 18.0 } else { 0.0 };
    }

    /// The reels of one column, one line each.
    fn legend(&mut self) {
        let theme = self.pen.theme;
        for c in &self.columns {
            for (i, survey) in c.surveys.iter().enumerate() {
                self.y += 19.0;
                self.svg.rect(Area { x: c.x, y: self.y - 10.0, w: 12.0, h: 12.0 }, theme.color(Ink::Hue(i)), 1.0);
                let role = match (self.arrange, i) {
                    (Arrange::Difference, 0) => "A: ",
                    (Arrange::Difference, _) => "B: ",
                    _ => "",
                };
                let style = Style { size: 13.0, bold: true, fill: theme.ink };
                let name = font::fit(&font::showable(&format!("{role}{}", survey.name)), style.size, true, c.w * 0.4);
                self.svg.text((c.x + 18.0, self.y), &name, style, Anchor::Start);
                let left = c.x + 30.0 + font::width(&name, style.size, true);
                let mut text = caption::subtitle(survey);
                let notes = caption::notes(survey);
                if !notes.is_empty() {
                    text = format!("{text}  ·  {notes}");
                }
                let fill = if notes.is_empty() { theme.ink } else { theme.alarm };
                let text = font::fit(&font::showable(&text), 13.0, false, (c.x + c.w - left).max(20.0));
                self.svg.text((left, self.y), &text, Style { size: 13.0, bold: false, fill }, Anchor::Start);
            }
        }
        self.y += 4.0;
    }

    /// Reserves space for a panel, with `extra` between its heading and its plots, and `more` for further lines of the
    /// heading. Returns the top of the plots and the area of the heading. The first panel over time has the strip for
    /// markers above it.
    pub(crate) fn panel(&mut self, height: f64, extra: f64, more: f64, over_time: bool) -> (f64, Area) {
        let first = over_time && self.lane.is_none();
        let lane = if first && self.columns.iter().any(|c| c.settling().is_some()) { MARK_LANE } else { 0.0 };
        let lane = if first { lane + marks::height(&self.columns) } else { 0.0 };
        let y = (self.y + HEADING + more + extra + lane).round();
        if first {
            self.lane = Some(y - extra - lane);
        }
        self.y = y + height;
        (y, Area { x: LEFT, y: y - extra - lane - more, w: self.room(), h: height })
    }

    /// The message in a plot without data.
    pub(crate) fn nothing(&mut self, area: Area, about: About) {
        let why = match about {
            About::Device => "no block device below, or none recorded",
            About::Calls => "no operations recorded",
            About::All => "nothing of that kind recorded",
        };
        frame::nothing(&mut self.svg, &self.pen, area, why);
    }

    fn time_axes(&mut self, shared: bool) {
        let y = self.y;
        for c in &self.columns {
            let area = c.area(y, 0.0);
            let (unit, _) = time_unit(c.squeeze.span_ns(c.time));
            let own = if shared { "" } else { ", separate axis" };
            let cut = if c.squeeze.cuts().next().is_some() { ", quiet stretches cut out" } else { "" };
            let caption = format!("time, {unit}{own}{cut} (rates per {})", duration(c.bins.width_ns()));
            frame::time_axis(&mut self.svg, &self.pen, area, (c.time, &c.squeeze), &caption);
        }
        self.y += 48.0;
    }

    fn table(&mut self, shapes: &[Option<&Shape>], detailed: bool) {
        let sheets: Vec<Sheet> = shapes
            .iter()
            .flatten()
            .filter_map(|s| if let Shape::Table(sheets) = s { Some(sheets) } else { None })
            .flatten()
            .cloned()
            .collect();
        self.y += 8.0;
        let area = Area { x: LEFT - 8.0, y: self.y, w: self.width - LEFT - RIGHT + 8.0, h: 0.0 };
        let table = Table::new(&sheets, detailed, self.arrange == Arrange::Difference, area.w);
        table.draw(&mut self.svg, &self.pen, area);
        self.y += table.height();
    }
}
