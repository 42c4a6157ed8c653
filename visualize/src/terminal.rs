//! A picture in characters: the offset map in half blocks, rates as bars, and the files with the most bytes.
//!
//! In: a reel and a size in characters. Out: coloured text. May use: `canvas`, `model`, `panels`, `draw`. Uses the same
//! panels as pictures.

use std::sync::Arc;

use ioreel_analyze::{
    events::{bios::each_bio, calls::each_call, requests::Class, targets::Target},
    meters::bins::Bins,
    summary::actor::{ActorMeter, FileSummary, Totals},
};
use ioreel_traces::{
    Reel,
    manifest::Loss,
    rows::{File, Op},
    text::is_harmful,
};

use crate::{
    Result,
    canvas::{
        color::{Rgb, rgb},
        font,
        raster::{self, Cells, Counts, Inked},
        scale::{bytes, count, duration, quantity, time_ticks, time_unit},
        theme::{DARK, Ink, LIGHT, Theme},
    },
    draw::fields::cut_to_use,
    model::{
        caption,
        idle::Squeeze,
        offset_axis::OffsetAxis,
        palette::{ColorBy, Palette},
        shape::{Field, Line, Shape},
        survey::{Choice, Survey, survey},
        value_axis::Rows,
    },
    panels::{self, gather::gather, panel::Setup},
};

/// A character with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyph {
    /// It.
    pub ch: char,
    /// Its colour. `None`: the terminal's default.
    pub fg: Option<Rgb>,
    /// Its background.
    pub bg: Option<Rgb>,
}

const BLANK: Glyph = Glyph { ch: ' ', fg: None, bg: None };

/// Lines of characters, all of the same length.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Line by line.
    pub lines: Vec<Vec<Glyph>>,
    /// The shown window, ns, for moving it.
    pub window: (i64, i64),
}

/// Content and size of a sketch.
#[derive(Clone, Debug, Default)]
pub struct SketchOptions {
    /// Device and window.
    pub choice: Choice,
    /// For a dark terminal.
    pub dark: bool,
    /// Meaning of the colours.
    pub color_by: ColorBy,
    /// Characters per line, at least [`LEAST`].
    pub columns: u16,
    /// Lines, at least [`LEAST`].
    pub rows: u16,
}

/// Minimum columns and rows.
pub const LEAST: (u16, u16) = (40, 14);
/// Characters left of the map for labels.
const LEFT: usize = 11;
/// Lines per rate.
const RATE_LINES: usize = 2;

/// Draws a reel as text.
///
/// # Errors
/// If the reel cannot be read, or the options are not valid for it.
pub fn sketch(reel: &Reel, options: &SketchOptions) -> Result<Sketch> {
    let theme = if options.dark { &DARK } else { &LIGHT };
    let (width, height) = (options.columns.max(LEAST.0) as usize, options.rows.max(LEAST.1) as usize);
    let survey = survey(reel, &options.choice)?;
    let cells = (width - LEFT) as u32;
    let time = Cells { from: survey.from_ns, to: survey.to_ns, count: cells };
    let span = survey.to_ns - survey.from_ns;
    let bins = Bins::new(survey.from_ns, survey.to_ns, (span / i64::from(cells)).max(1));
    let files = (height / 6).clamp(1, 8);
    // The rest of the lines: title, legend, axis, header of the files, three rates.
    let map = (height - 4 - files - 3 * RATE_LINES).max(2);
    let used = survey.device.as_ref().map(|d| d.used.ranges()).unwrap_or_default();
    let axis = OffsetAxis::new(&used, 400, 1).scaled(2 * map as u32);
    let palette = Palette::of(std::slice::from_ref(reel), std::slice::from_ref(&survey), options.color_by)?.pop();
    let Some(palette) = palette else { return Ok(Sketch { lines: Vec::new(), window: (0, 1) }) };
    let squeeze = Squeeze::default();
    let setup =
        Setup { reel, survey: &survey, time, squeeze: &squeeze, bins, offsets: &axis, palette: Arc::new(palette) };
    let names: &[&str] = match (&survey.device, survey.has_calls) {
        (Some(_), _) => &["offsets", "throughput", "seeks"],
        (None, true) => &["latency-calls", "call-throughput", "calls"],
        (None, false) => &[],
    };
    let specs = panels::chosen(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
    let made = specs.iter().map(|s| (s.make)(&setup)).collect::<Result<Vec<_>>>()?;
    let (shapes, top) = std::thread::scope(|threads| {
        let top = threads.spawn(|| top_files(reel, &survey.choice, files));
        (gather(reel, &survey, &squeeze, false, made), top.join())
    });
    let top = top.unwrap_or_else(|_| Ok(Vec::new()))?;
    let mut page = Page { theme, width, lines: Vec::new() };
    page.title(reel, &survey);
    let mut rates: Vec<(String, Vec<f64>, Ink)> = Vec::new();
    for shape in shapes?.shapes {
        match shape {
            Shape::Field(mut field) => {
                cut_to_use(&mut [&mut field]);
                page.legend(&field, &survey);
                page.map(&field, map);
            }
            Shape::Lines(lines) => rates.extend(rows(lines.lines, rates.len())),
            Shape::Charts(_) | Shape::Table(_) => {}
        }
    }
    page.axis(&survey, &reel.manifest.losses, time);
    page.rates(&rates);
    page.files(&top, files);
    page.lines.truncate(height);
    Ok(Sketch { lines: page.lines, window: (survey.from_ns, survey.to_ns) })
}

/// The rates of a panel that fit: two of throughput, one of others.
fn rows(lines: Vec<Line>, before: usize) -> Vec<(String, Vec<f64>, Ink)> {
    if before == 0 {
        return lines.into_iter().map(|l| (format!("{} MiB/s", l.label), l.values, l.ink)).collect();
    }
    if let Some(exact) = lines.iter().find(|l| l.label.starts_with("adjacent seeks")) {
        return vec![("seeks/s".to_owned(), exact.values.clone(), Ink::Other)];
    }
    let slots = lines.first().map_or(0, |l| l.values.len());
    let sum = (0..slots).map(|i| lines.iter().filter_map(|l| l.values.get(i)).sum()).collect();
    vec![("calls/s".to_owned(), sum, Ink::Other)]
}

/// The files with most bytes, from calls; without calls, from bios.
fn top_files(reel: &Reel, choice: &Choice, top: usize) -> Result<Vec<FileSummary>> {
    if reel.count::<Op>() > 0 {
        let mut actors = ActorMeter::default();
        each_call(reel, |c| {
            if !c.by_tool && choice.holds(c.end_ns()) {
                actors.push(c);
            }
        })?;
        return Ok(actors.files(reel, top)?.by_bytes);
    }
    let mut totals: std::collections::HashMap<i64, Totals> = std::collections::HashMap::new();
    each_bio(reel, |b| {
        if let Some(file) = b.file.filter(|_| choice.holds(b.queue_ns)) {
            let t = totals.entry(file).or_default();
            let n = u64::try_from(b.len_bytes).unwrap_or(0);
            t.read_bytes = t.read_bytes.saturating_add(if b.class == Class::Read { n } else { 0 });
            t.write_bytes = t.write_bytes.saturating_add(if b.class == Class::Write { n } else { 0 });
        }
    })?;
    let mut ranked: Vec<(i64, Totals)> = totals.into_iter().collect();
    ranked.sort_by_key(|(file, t)| (std::cmp::Reverse(t.bytes()), *file));
    ranked.truncate(top);
    let mut out: Vec<FileSummary> = ranked
        .into_iter()
        .map(|(file, totals)| FileSummary {
            file,
            files: 1,
            keys: vec![file],
            path: None,
            target: Target::Files,
            kind: String::new(),
            fstype: String::new(),
            totals,
        })
        .collect();
    for row in reel.rows::<File>() {
        let row = row?;
        if let Some(f) = out.iter_mut().find(|f| f.file == row.file) {
            f.path = row.path.map(|p| p.to_string());
        }
    }
    Ok(out)
}

/// The output under construction.
struct Page {
    theme: &'static Theme,
    width: usize,
    lines: Vec<Vec<Glyph>>,
}

impl Page {
    fn line(&mut self) -> &mut Vec<Glyph> {
        self.lines.push(vec![BLANK; self.width]);
        let last = self.lines.len() - 1;
        &mut self.lines[last]
    }

    fn put(line: &mut [Glyph], at: usize, text: &str, fg: Rgb) -> usize {
        let mut end = at;
        // A name may hold anything.
        let text = text.replace(is_harmful, "\u{FFFD}");
        for (glyph, ch) in line.iter_mut().skip(at).zip(text.chars()) {
            *glyph = Glyph { ch, fg: Some(fg), bg: None };
            end += 1;
        }
        end
    }

    fn title(&mut self, reel: &Reel, survey: &Survey) {
        let (ink, faint) = (rgb(self.theme.ink), rgb(self.theme.faint));
        let name = plain(&reel.name());
        let text = plain(&caption::subtitle(survey));
        let line = self.line();
        let end = Self::put(line, 0, &name, ink);
        Self::put(line, end + 2, &text, faint);
    }

    fn legend(&mut self, field: &Field, survey: &Survey) {
        let theme = self.theme;
        let notes = caption::notes(survey);
        let line = self.line();
        let mut at = 0;
        for layer in field.layers.iter().chain(&field.strip).filter(|l| !l.label.is_empty()) {
            at = Self::put(line, at, "■ ", rgb(theme.color(layer.ink)));
            at = Self::put(line, at, &plain(&layer.label), rgb(theme.faint)) + 2;
        }
        Self::put(line, at, &notes, rgb(theme.alarm));
    }

    /// Draws two rows of cells per line.
    fn map(&mut self, field: &Field, lines: usize) {
        let theme = self.theme;
        let layers: Vec<Counts> = field.layers.iter().map(|l| squeezed(&l.counts, 2 * lines)).collect();
        let most = layers.iter().zip(&field.layers).filter(|(_, l)| !l.flat).map(|(c, _)| c.max()).max().unwrap_or(1);
        let inked: Vec<Inked<'_>> = layers
            .iter()
            .zip(&field.layers)
            .map(|(c, l)| (c, theme.ramp(l.ink), if l.flat { u32::MAX } else { most.max(1) }))
            .collect();
        let colors = raster::colors(&inked, field.blend, theme);
        let width = layers.first().map_or(0, |c| c.width);
        let labels = map_labels(&field.rows, lines);
        for row in 0..lines {
            let at = |half: usize, x: usize| colors.get((2 * row + half) * width + x).copied().flatten();
            let label = labels.iter().find(|(line, _)| *line == row).map(|(_, l)| l.clone()).unwrap_or_default();
            let line = self.line();
            Self::put(line, (LEFT - 1).saturating_sub(label.chars().count()), &label, rgb(theme.faint));
            for x in 0..width.min(line.len().saturating_sub(LEFT)) {
                line[LEFT + x] = match (at(0, x), at(1, x)) {
                    (None, None) => BLANK,
                    (Some(fg), None) => Glyph { ch: '▀', fg: Some(fg), bg: None },
                    (None, Some(fg)) => Glyph { ch: '▄', fg: Some(fg), bg: None },
                    (Some(fg), Some(bg)) => Glyph { ch: '▀', fg: Some(fg), bg: Some(bg) },
                };
            }
        }
    }

    /// Draws the time axis, with `x` for losses and `!` for clock jumps.
    fn axis(&mut self, survey: &Survey, losses: &[Loss], time: Cells) {
        let theme = self.theme;
        let unit = time_unit(time.to - time.from).0;
        let ticks = time_ticks(time.from, time.to, (time.count / 14).max(2));
        let line = self.line();
        Self::put(line, 0, unit, rgb(theme.faint));
        let mut free = LEFT;
        for (t, label) in ticks {
            let at = LEFT + time.index(t).unwrap_or(0) as usize;
            if at >= free && at + label.chars().count() < line.len() {
                free = Self::put(line, at, &label, rgb(theme.faint)) + 1;
            }
        }
        for loss in losses {
            if let Some((from, to)) = time.span(loss.from_ns, loss.to_ns) {
                (from..=to).for_each(|x| _ = Self::put(line, LEFT + x as usize, "x", rgb(theme.alarm)));
            }
        }
        for x in survey.clock_jumps_ns.iter().filter_map(|t| time.index(*t)) {
            Self::put(line, LEFT + x as usize, "!", rgb(theme.clock));
        }
    }

    /// Draws rates as bars, with a common scale for each unit.
    fn rates(&mut self, rates: &[(String, Vec<f64>, Ink)]) {
        const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let theme = self.theme;
        let unit = |label: &str| label.rsplit(' ').next().unwrap_or_default().to_owned();
        for (label, values, ink) in rates {
            let same = rates.iter().filter(|(l, ..)| unit(l) == unit(label)).flat_map(|(_, v, _)| v);
            let most = same.copied().fold(0.0, f64::max);
            let peak = values.iter().copied().fold(0.0, f64::max);
            for row in 0..RATE_LINES {
                let line = self.line();
                let text = if row == 0 { label.clone() } else { format!("to {}", quantity(peak)) };
                Self::put(line, (LEFT - 1).saturating_sub(text.chars().count()), &text, rgb(theme.faint));
                for (glyph, v) in line.iter_mut().skip(LEFT).zip(values) {
                    let eighths = if most > 0.0 { (v / most * 8.0 * RATE_LINES as f64).ceil() as usize } else { 0 };
                    let here = eighths.saturating_sub(8 * (RATE_LINES - 1 - row)).min(8);
                    *glyph = Glyph { ch: EIGHTHS[here], fg: Some(rgb(theme.color(*ink))), bg: None };
                }
            }
        }
    }

    fn files(&mut self, top: &[FileSummary], lines: usize) {
        if top.is_empty() {
            return;
        }
        let theme = self.theme;
        let head = format!("{:>10} {:>10}  files with most bytes", "read", "written");
        Self::put(self.line(), 0, &head, rgb(theme.faint));
        let width = self.width;
        for f in top.iter().take(lines) {
            let mut path = plain(f.path.as_deref().unwrap_or("(unknown)"));
            if f.files > 1 {
                path.push_str(&format!(", {} files", count(f.files)));
            }
            let room = width.saturating_sub(24);
            let skip = path.chars().count().saturating_sub(room);
            // The end of a path is more useful than its start.
            let shown: String =
                if skip == 0 { path } else { std::iter::once('…').chain(path.chars().skip(skip + 1)).collect() };
            let text = format!("{:>10} {:>10}  {shown}", bytes(f.totals.read_bytes), bytes(f.totals.write_bytes));
            Self::put(self.line(), 0, &text, rgb(theme.ink));
        }
    }
}

/// Replaces control characters.
fn plain(text: &str) -> String {
    font::showable(text)
}

/// The counts with `rows` rows: rows are merged or repeated.
fn squeezed(counts: &Counts, rows: usize) -> Counts {
    if counts.height == rows {
        return counts.clone();
    }
    let mut out = Counts { width: counts.width, height: rows, cells: vec![0; counts.width * rows] };
    for to in 0..rows {
        let first = to * counts.height / rows;
        let last = ((to + 1) * counts.height / rows).max(first + 1).min(counts.height);
        for from in first..last {
            for x in 0..counts.width {
                let cell = &mut out.cells[to * counts.width + x];
                *cell = cell.saturating_add(counts.cells[from * counts.width + x]);
            }
        }
    }
    out
}

/// Labels beside the map: line and text.
fn map_labels(rows: &Rows, lines: usize) -> Vec<(usize, String)> {
    match rows {
        Rows::Offsets(axis) => axis
            .bands
            .iter()
            .flat_map(|b| {
                let line = |row: u32| (axis.rows.saturating_sub(1 + row) / 2) as usize;
                let at = |sector: i64| bytes(sector.max(0) as u64 * 512);
                let bottom = (line(b.row), at(b.sectors.from));
                let top = (b.sectors.count >= 8).then(|| (line(b.row + b.sectors.count - 1), at(b.sectors.to)));
                [Some(bottom), top].into_iter().flatten()
            })
            .collect(),
        Rows::Octaves { .. } | Rows::Phase { .. } => {
            let share = lines as f64 / f64::from(rows.count().max(1));
            rows.ticks(1).into_iter().map(|(from_top, label)| ((from_top * share) as usize, label)).collect()
        }
        Rows::Lanes { .. } => Vec::new(),
    }
}

impl Sketch {
    /// The sketch as text with escape sequences for this number of colours: 0, 256 or more.
    pub fn text(&self, colors: u32) -> String {
        let mut out = String::new();
        for line in &self.lines {
            let mut now = (None, None);
            let end = line.iter().rposition(|g| g.ch != ' ' || g.bg.is_some()).map_or(0, |i| i + 1);
            for g in &line[..end] {
                if colors > 0 && now != (g.fg, g.bg) && (g.ch != ' ' || g.bg.is_some() || now.1.is_some()) {
                    out.push_str("\x1b[0");
                    let mut add = |code: u8, c: Option<Rgb>| {
                        if let Some([r, g, b]) = c {
                            if colors > 256 {
                                out.push_str(&format!(";{code};2;{r};{g};{b}"));
                            } else {
                                out.push_str(&format!(";{code};5;{}", indexed([r, g, b])));
                            }
                        }
                    };
                    add(38, g.fg);
                    add(48, g.bg);
                    out.push('m');
                    now = (g.fg, g.bg);
                }
                // Without colours, the lower half-block would be invisible.
                out.push(if colors == 0 && g.ch == '▀' && g.bg.is_some() { '█' } else { g.ch });
            }
            if now != (None, None) {
                out.push_str("\x1b[0m");
            }
            out.push('\n');
        }
        out
    }
}

/// The nearest colour of the 6×6×6 cube of terminals with 256 colours.
fn indexed(c: Rgb) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |v: u8| (0..6u8).min_by_key(|i| LEVELS[*i as usize].abs_diff(v)).unwrap_or(0);
    16 + 36 * nearest(c[0]) + 6 * nearest(c[1]) + nearest(c[2])
}

/// Description of a window.
pub fn window_words(window: (i64, i64)) -> String {
    format!("{} to {}", duration(window.0), duration(window.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_256_are_near() {
        assert_eq!([[0, 0, 0], [255, 255, 255], [255, 0, 0], [96, 134, 176]].map(indexed), [16, 231, 196, 67]);
    }

    #[test]
    fn rows_are_summed_and_none_is_lost() {
        let counts = Counts { width: 2, height: 5, cells: (1..=10).collect() };
        assert_eq!(squeezed(&counts, 2).cells.iter().sum::<u32>(), 55);
        assert_eq!(squeezed(&counts, 10).height, 10);
    }
}
