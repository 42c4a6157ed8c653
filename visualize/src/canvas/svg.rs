//! Writes SVG: a few elements, numbers with at most two decimals, escaped text. The output depends only on the
//! arguments, so equal pictures have equal bytes.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::canvas::font;

/// An SVG picture under construction.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    body: String,
}

/// Horizontal anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// At its left end.
    Start,
    /// In its middle.
    Middle,
    /// At its right end.
    End,
}

/// Text style.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Font size, px.
    pub size: f64,
    /// Bold face.
    pub bold: bool,
    /// Colour.
    pub fill: &'static str,
}

/// A rectangle, px.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Top edge.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
}

impl Area {
    /// Right edge.
    pub fn right(&self) -> f64 {
        self.x + self.w
    }

    /// Bottom edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.h
    }
}

/// A number with at most two decimals, without trailing zeroes.
pub fn number(v: f64) -> String {
    let v = (v * 100.0).round() / 100.0;
    // -0 and NaN would make equal pictures differ.
    if v == 0.0 || !v.is_finite() { "0".into() } else { format!("{v}") }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in font::showable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

impl Svg {
    /// Writes one element. Writing to a `String` cannot fail.
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// A filled rectangle, or nothing if it is empty. `opacity`: 0 to 1.
    pub fn rect(&mut self, a: Area, fill: &str, opacity: f64) {
        // Less than 0.005 would be written as 0, which is not a valid size.
        if a.w < 0.005 || a.h < 0.005 {
            return;
        }
        let (x, y, w, h) = (number(a.x), number(a.y), number(a.w), number(a.h));
        let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{}\"", number(opacity)) } else { String::new() };
        self.put(format_args!(r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{fill}"{opacity}/>"#));
    }

    /// A rectangle outline on whole pixels.
    pub fn frame(&mut self, a: Area, stroke: &str) {
        let (x, y, w, h) = (number(a.x - 0.5), number(a.y - 0.5), number(a.w + 1.0), number(a.h + 1.0));
        self.put(format_args!(r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="none" stroke="{stroke}"/>"#));
    }

    /// A straight line. An empty `dash` means solid.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64, dash: &str) {
        let [x1, y1, x2, y2, w] = [from.0, from.1, to.0, to.1, width].map(number);
        let dash = if dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dash}""#) };
        self.put(format_args!(
            r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{stroke}" stroke-width="{w}"{dash}/>"#
        ));
    }

    /// A path with path data `d`. An empty `dash` means solid.
    pub fn path(&mut self, d: &str, fill: &str, fill_opacity: f64, stroke: &str, width: f64, dash: &str) {
        let (o, w) = (number(fill_opacity), number(width));
        let dash = if dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dash}""#) };
        self.put(format_args!(
            r#"<path d="{d}" fill="{fill}" fill-opacity="{o}" stroke="{stroke}" stroke-width="{w}" stroke-linejoin="round"{dash}/>"#
        ));
    }

    /// A line of text with baseline `at`. Its length is fixed to that of the built-in font, so that the layout is right
    /// in viewers that do not load embedded fonts.
    pub fn text(&mut self, at: (f64, f64), text: &str, style: Style, anchor: Anchor) {
        if text.is_empty() {
            return;
        }
        let (x, y, size) = (number(at.0), number(at.1), number(style.size));
        let weight = if style.bold { r#" font-weight="bold""# } else { "" };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let (fill, body) = (style.fill, escape(text));
        self.put(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{weight}{anchor}>{body}</text>"#
        ));
    }

    /// A PNG, one pixel per unit, without smoothing.
    pub fn image(&mut self, a: Area, png: &[u8]) {
        let (x, y, w, h) = (number(a.x), number(a.y), number(a.w), number(a.h));
        let data = STANDARD.encode(png);
        self.put(format_args!(
            r#"<image x="{x}" y="{y}" width="{w}" height="{h}" preserveAspectRatio="none" image-rendering="optimizeSpeed" style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>"#
        ));
    }

    /// Appends another picture on top.
    pub fn append(&mut self, other: &Self) {
        self.body.push_str(&other.body);
    }

    /// The document. `fonts` embeds the font for viewers; the built-in rasteriser does not need it.
    pub fn document(&self, width: u32, height: u32, fonts: bool) -> String {
        let family = font::FAMILY;
        let mut out = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{family}, Verdana, sans-serif">"#
        );
        out.push('\n');
        if fonts {
            out.push_str("<style>\n");
            for (data, weight) in [(font::REGULAR, "normal"), (font::BOLD, "bold")] {
                let data = STANDARD.encode(data);
                let _ = writeln!(
                    out,
                    r#"@font-face{{font-family:"{family}";font-weight:{weight};src:url("data:font/ttf;base64,{data}")}}"#
                );
            }
            out.push_str("</style>\n");
        }
        out.push_str(&self.body);
        out.push_str("</svg>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_odd() {
        assert_eq!(
            [1.0, 1.239, -0.001, f64::NAN, 1e7, 0.5].map(number),
            ["1", "1.24", "0", "0", "10000000", "0.5"].map(String::from)
        );
    }

    #[test]
    fn text_cannot_become_markup() {
        let mut s = Svg::default();
        let style = Style { size: 12.0, bold: false, fill: "#000" };
        s.text((0.0, 0.0), "<script>&\"", style, Anchor::Start);
        assert!(s.document(1, 1, false).contains("&lt;script&gt;&amp;&quot;"));
    }
}
