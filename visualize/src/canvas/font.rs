//! The built-in font: DejaVu Sans, reduced to Latin and a few symbols (`assets/subset.sh`).

use std::sync::OnceLock;

use skrifa::{FontRef, MetadataProvider, instance::LocationRef, instance::Size};

/// Font family in SVG.
pub const FAMILY: &str = "DejaVu Sans";
/// Upright, regular weight.
pub const REGULAR: &[u8] = include_bytes!("../../assets/DejaVuSans.subset.ttf");
/// Upright, bold.
pub const BOLD: &[u8] = include_bytes!("../../assets/DejaVuSans-Bold.subset.ttf");

/// Replaces characters that the font does not contain.
const MISSING: char = '?';

#[derive(Debug)]
struct Advances {
    /// Width of each character in units of the font size, indexed by code point.
    widths: Vec<Option<f32>>,
}

impl Advances {
    fn of(font: &'static [u8]) -> Self {
        let mut widths = vec![None; 0x2700];
        // The fonts are built in, and a test loads them.
        if let Ok(font) = FontRef::new(font) {
            let metrics = font.glyph_metrics(Size::new(1.0), LocationRef::default());
            for (code, glyph) in font.charmap().mappings() {
                if let Some(width) = widths.get_mut(code as usize) {
                    *width = metrics.advance_width(glyph);
                }
            }
        }
        Self { widths }
    }

    fn get(&self, c: char) -> Option<f32> {
        self.widths.get(c as usize).copied().flatten()
    }
}

fn advances(bold: bool) -> &'static Advances {
    static FACES: [OnceLock<Advances>; 2] = [OnceLock::new(), OnceLock::new()];
    FACES[usize::from(bold)].get_or_init(|| Advances::of(if bold { BOLD } else { REGULAR }))
}

/// Replaces characters that the font does not contain. Line breaks and tabs, which occur in commands, become spaces.
pub fn showable(text: &str) -> String {
    let shown = |c: char| match c {
        c if c.is_whitespace() => ' ',
        c if advances(false).get(c).is_some() => c,
        _ => MISSING,
    };
    text.trim().chars().map(shown).collect()
}

/// Width of `text` in pixels. `size`: font size in pixels.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    let face = advances(bold);
    let ems: f32 = text.chars().map(|c| face.get(c).or_else(|| face.get(MISSING)).unwrap_or(0.6)).sum();
    f64::from(ems) * size
}

/// `text`, shortened with an ellipsis in the middle to at most `room` pixels. The ends of names and commands are more
/// useful than their middles.
pub fn fit(text: &str, size: f64, bold: bool, room: f64) -> String {
    if width(text, size, bold) <= room {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    for keep in (1..chars.len()).rev() {
        let head = keep.div_ceil(2);
        let cut: String = chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - (keep - head)..]).collect();
        if width(&cut, size, bold) <= room {
            return cut;
        }
    }
    "…".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_faces_know_latin_and_the_symbols_in_use() {
        for bold in [false, true] {
            for c in ('!'..='~').chain("µ×–—…≤≥≠·°é".chars()) {
                assert!(advances(bold).get(c).is_some_and(|w| w > 0.0), "{c} bold={bold}");
            }
        }
    }

    #[test]
    fn text_is_cut_to_fit() {
        let long = "a very long reel name that goes on and on.reel";
        let cut = fit(long, 12.0, false, 100.0);
        assert!(width(&cut, 12.0, false) <= 100.0 && cut.contains('…'));
        assert!(cut.starts_with("a very") && cut.ends_with("reel"));
        assert_eq!(fit("short", 12.0, false, 100.0), "short");
        assert_eq!(fit(long, 12.0, false, 0.0), "…");
    }

    #[test]
    fn unknown_characters_are_replaced() {
        assert_eq!(showable("a漢b\n\tc\n"), "a?b  c");
    }
}
