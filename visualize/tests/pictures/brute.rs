//! The brute-force rasteriser that every field is held against: cells are found by comparing fractions, events are counted out
//! cell by cell, colours are mixed pixel by pixel. Nothing of the program's counting is used but the colours of its themes.

use base64::{Engine, engine::general_purpose::STANDARD};
use ioreel_visualize::{
    Picture,
    canvas::{
        color::Rgb,
        raster::Blend,
        theme::{Ink, Theme},
    },
};
use resvg::tiny_skia::Pixmap;

/// An `<image>` of an SVG: place and size, and its pixels.
pub(crate) struct Image {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) w: u32,
    pub(crate) h: u32,
    pub(crate) map: Pixmap,
}

pub(crate) fn attribute(element: &str, name: &str) -> String {
    let from = element.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
    element[from..].split('"').next().unwrap().to_owned()
}

pub(crate) fn images(svg: &str) -> Vec<Image> {
    svg.lines()
        .filter(|l| l.starts_with("<image"))
        .map(|l| {
            let number = |name| attribute(l, name).parse::<u32>().unwrap();
            let data = attribute(l, "href");
            let png = STANDARD.decode(data.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
            let (x, y, w, h) = (number("x"), number("y"), number("width"), number("height"));
            Image { x, y, w, h, map: Pixmap::decode_png(&png).unwrap() }
        })
        .collect()
}

/// Cell `i` of `n` over `[from, to)` holds `v` when i/n <= (v-from)/(to-from) < (i+1)/n; the last also `to`.
pub(crate) fn cell(v: i64, from: i64, to: i64, n: u32) -> u32 {
    let at = |i: u32| i128::from(v - from) * i128::from(n) >= i128::from(i) * i128::from(to - from);
    (0..n).rev().find(|i| at(*i)).unwrap()
}

/// What an event covers: its layer, its time, and its rows from the top.
pub(crate) struct Mark {
    pub(crate) layer: usize,
    pub(crate) time: (i64, i64),
    pub(crate) rows: (u32, u32),
}

/// What is made of the counts of each layer.
type Derived<'a> = &'a dyn Fn(Vec<Vec<u32>>) -> Vec<Vec<u32>>;

/// A raster as it must be.
pub(crate) struct Want {
    /// The time axis.
    pub(crate) time: (i64, i64),
    /// Rows.
    pub(crate) rows: u32,
    /// Colour of each layer, and whether it is one tint.
    pub(crate) layers: Vec<(Ink, bool)>,
    pub(crate) blend: Blend,
    pub(crate) marks: Vec<Mark>,
}

impl Want {
    fn counts(&self, width: u32) -> Vec<Vec<u32>> {
        let mut counts = vec![vec![0u32; (width * self.rows) as usize]; self.layers.len()];
        for m in &self.marks {
            let (from, to) = (m.time.0.max(self.time.0), m.time.1.max(m.time.0).min(self.time.1));
            if from > to {
                continue;
            }
            let columns = cell(from, self.time.0, self.time.1, width)..=cell(to, self.time.0, self.time.1, width);
            for x in columns {
                (m.rows.0..=m.rows.1).for_each(|y| counts[m.layer][(y * width + x) as usize] += 1);
            }
        }
        counts
    }

    /// The colours of all cells, row by row.
    fn colors(&self, width: u32, theme: &Theme, derived: Derived<'_>) -> Vec<Option<Rgb>> {
        let counts = derived(self.counts(width));
        let ramped = counts.iter().zip(&self.layers).filter(|(_, (_, flat))| !flat);
        let most = ramped.flat_map(|(c, _)| c.iter().copied()).max().unwrap_or(0).max(1);
        let ink = |layer: usize, n: u32| {
            let (ink, flat) = self.layers[layer];
            let share = if flat || n <= 1 || most <= 1 { 0.0 } else { f64::from(n).ln() / f64::from(most).ln() };
            // A flat layer is as dark as one event among the most there can be.
            let share = if flat && n > 1 { f64::from(n).ln() / f64::from(u32::MAX).ln() } else { share };
            theme.ramp(ink).at(share)
        };
        let mix = |under: Rgb, over: Rgb| -> Rgb {
            std::array::from_fn(|i| {
                let (a, b) = (u32::from(under[i]), u32::from(over[i]));
                let print = |a: u32, b: u32| (a * b + 127) / 255;
                (if theme.dark { 255 - print(255 - a, 255 - b) } else { print(a, b) }) as u8
            })
        };
        (0..(width * self.rows) as usize)
            .map(|i| {
                let there: Vec<(usize, u32)> =
                    (0..self.layers.len()).map(|l| (l, counts[l][i])).filter(|(_, n)| *n > 0).collect();
                match self.blend {
                    Blend::Overprint => there.iter().map(|(l, n)| ink(*l, *n)).reduce(mix),
                    Blend::Last => there.last().map(|(l, n)| ink(*l, *n)),
                    Blend::Most => {
                        let most = there.iter().map(|(_, n)| *n).max()?;
                        there.iter().find(|(_, n)| *n == most).map(|(l, n)| ink(*l, *n))
                    }
                }
            })
            .collect()
    }

    /// Holds the picture's raster number `index` against this, in the SVG and - where nothing may lie on it - in the PNG.
    pub(crate) fn check(&self, name: &str, picture: &Picture, index: usize, theme: &Theme, bare: bool) {
        self.check_derived(name, picture, (index, theme, bare), &|counts| counts);
    }

    /// The same of counts that are made of those of the marks, as differences are.
    pub(crate) fn check_derived(
        &self,
        name: &str,
        picture: &Picture,
        (index, theme, bare): (usize, &Theme, bool),
        derived: Derived<'_>,
    ) {
        let image = &images(&picture.svg())[index];
        let (w, h) = (image.map.width(), image.map.height());
        assert_eq!(h, self.rows, "{name}: rows");
        let (px, py) = (image.w / w, image.h / h);
        assert_eq!((px * w, py * h), (image.w, image.h), "{name}: cells of whole pixels");
        let png = Pixmap::decode_png(&picture.png().unwrap()).unwrap();
        let rgb = |map: &Pixmap, x: u32, y: u32| {
            let p = map.pixel(x, y).unwrap();
            [p.red(), p.green(), p.blue()]
        };
        let mut drawn = 0;
        for (i, want) in self.colors(w, theme, derived).into_iter().enumerate() {
            let (x, y) = (i as u32 % w, i as u32 / w);
            let Some(want) = want else {
                assert_eq!(image.map.pixel(x, y).unwrap().alpha(), 0, "{name}: {x},{y} is empty");
                continue;
            };
            drawn += 1;
            assert_eq!(rgb(&image.map, x, y), want, "{name}: {x},{y}");
            // The rasteriser puts it where the SVG says, unsmoothed.
            let corners = [(0, 0), (px - 1, 0), (0, py - 1), (px - 1, py - 1)];
            for (dx, dy) in corners.into_iter().filter(|_| bare) {
                let (x, y) = (image.x + x * px + dx, image.y + y * py + dy);
                assert_eq!(rgb(&png, x, y), want, "{name}: {x},{y} in the PNG");
            }
        }
        assert!(drawn > 20 || self.marks.len() < 20, "{name}: {drawn} cells are drawn");
    }
}

/// A plot's frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) w: f64,
    pub(crate) h: f64,
}

pub(crate) fn frames(svg: &str, theme: &Theme) -> Vec<Frame> {
    let stroke = format!(r#"fill="none" stroke="{}"/>"#, theme.frame);
    svg.lines()
        .filter(|l| l.starts_with("<rect") && l.ends_with(&stroke))
        .map(|l| {
            let n = |name| attribute(l, name).parse::<f64>().unwrap();
            Frame { x: n("x") + 0.5, y: n("y") + 0.5, w: n("width") - 1.0, h: n("height") - 1.0 }
        })
        .collect()
}

/// The value that a plot of `top` shows at height `y`.
fn value(frame: Frame, top: f64, y: f64) -> f64 {
    (frame.y + frame.h - y) / frame.h * top
}

/// The steps of the stroked lines of a colour: left edge and value of each.
pub(crate) fn steps(svg: &str, color: &str, frame: Frame, top: f64) -> Vec<Vec<(f64, f64)>> {
    let stroke = format!(r#" fill="none" fill-opacity="0" stroke="{color}""#);
    let lines = svg.lines().filter(|l| l.starts_with("<path") && l.contains(&stroke));
    lines
        .map(|l| {
            let d = attribute(l, "d").replace('M', " M ").replace('H', " H ").replace('V', " V ");
            let mut words = d.split_whitespace();
            let (mut out, mut x) = (Vec::new(), 0.0);
            while let Some(command) = words.next() {
                let mut number = || words.next().unwrap().parse::<f64>().unwrap();
                match command {
                    "M" => {
                        x = number();
                        out.push((x, value(frame, top, number())));
                    }
                    "H" => x = number(),
                    _ => out.push((x, value(frame, top, number()))),
                }
            }
            out
        })
        .collect()
}

/// Bins over `[0, to]` as a picture `px` wide has them for its rates, `times` as wide: of 3.2 pixels or somewhat more, with a round
/// width; less than half a bin at the end belongs to the one before. The last holds its end, too.
pub(crate) fn bins(to: i64, px: u32, times: i64) -> Vec<(i64, i64)> {
    let most = (f64::from(px) / 3.2).floor();
    let round = (0..18).flat_map(|power| [1, 2, 5].map(|m| m * 10i64.pow(power)));
    let width = times * round.into_iter().find(|w| (to + to / 64) as f64 / *w as f64 <= most).unwrap();
    let mut out = Vec::new();
    let mut from = 0;
    while to - from >= width + (width + 1) / 2 {
        out.push((from, from + width));
        from += width;
    }
    out.push((from, to + 1));
    out
}
