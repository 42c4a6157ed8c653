//! Light and dark themes: every colour of a picture, by meaning.

use crate::canvas::color::{self, Ramp, Rgb};

/// Meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ink {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes and syncs.
    Flush,
    /// Discards, zeroing, metadata calls.
    Other,
    /// Everything else.
    Grey,
    /// Text colour.
    Text,
    /// The area of `seeks.sw64k`.
    Seek,
    /// A category by rank: process, file, class or reel.
    Hue(usize),
    /// A step between low and high.
    Heat(usize),
}

/// Number of hues. Further categories are grey.
pub const HUES: usize = 7;
/// Steps of [`Ink::Heat`].
pub const HEATS: usize = 5;

/// The colours of a theme. Inks are from the palette of Okabe and Ito, which is distinguishable with all common colour
/// blindnesses, or mixtures of it. Steps are from viridis.
#[derive(Debug)]
pub struct Theme {
    /// Light on dark.
    pub dark: bool,
    /// Background.
    pub paper: &'static str,
    /// Text.
    pub ink: &'static str,
    /// Less important text.
    pub faint: &'static str,
    /// Frames.
    pub frame: &'static str,
    /// Grid lines.
    pub grid: &'static str,
    /// Losses and errors.
    pub alarm: &'static str,
    /// Named markers.
    pub mark: &'static str,
    /// Clock jumps.
    pub clock: &'static str,
    /// Tint over the settling time.
    pub shade: &'static str,
    /// Between the bands of an axis, and behind table headers.
    pub gap: &'static str,
    /// Behind the strip of flushes.
    pub strip: &'static str,
    fixed: [&'static str; 7],
    hues: [&'static str; HUES],
    heats: [&'static str; HEATS],
}

/// The light theme.
pub static LIGHT: Theme = Theme {
    dark: false,
    paper: "#ffffff",
    ink: "#1c2530",
    faint: "#66707c",
    frame: "#c3c9d1",
    grid: "#e9ecf0",
    alarm: "#c1121f",
    mark: "#5b3fa0",
    clock: "#b0308c",
    shade: "#aab4c0",
    gap: "#eef0f3",
    strip: "#f6f1f5",
    fixed: ["#0072b2", "#d55e00", "#b0308c", "#009e73", "#8a8f98", "#1c2530", "#4f9f84"],
    hues: ["#0072b2", "#d55e00", "#009e73", "#b0308c", "#ef0b53", "#5d4037", "#0b3206"],
    heats: ["#a5d32f", "#35b779", "#21908d", "#3b528b", "#440154"],
};

/// The dark theme.
pub static DARK: Theme = Theme {
    dark: true,
    paper: "#11151b",
    ink: "#e6eaf0",
    faint: "#98a2af",
    frame: "#3b4450",
    grid: "#222932",
    alarm: "#ff6b6b",
    mark: "#b9a3f5",
    clock: "#f08ad8",
    shade: "#8fa0b5",
    gap: "#1b2129",
    strip: "#221a26",
    fixed: ["#56b4e9", "#f0883e", "#e07bcb", "#2fc79a", "#8b95a1", "#e6eaf0", "#32806a"],
    hues: ["#56b4e9", "#f0883e", "#2fc79a", "#e07bcb", "#f5f7ff", "#f2cc3d", "#8d6e63"],
    heats: ["#4a5fa5", "#21908d", "#35b779", "#a5d32f", "#fde725"],
};

impl Theme {
    /// The colour of lines and legends.
    pub fn color(&self, ink: Ink) -> &'static str {
        match ink {
            Ink::Read => self.fixed[0],
            Ink::Write => self.fixed[1],
            Ink::Flush => self.fixed[2],
            Ink::Other => self.fixed[3],
            Ink::Grey => self.fixed[4],
            Ink::Text => self.fixed[5],
            Ink::Seek => self.fixed[6],
            Ink::Hue(i) => self.hues.get(i).copied().unwrap_or(self.fixed[4]),
            Ink::Heat(i) => self.heats[i.min(HEATS - 1)],
        }
    }

    /// The ramp from one event to many: darker on white, brighter on black.
    pub fn ramp(&self, ink: Ink) -> Ramp {
        if !self.dark {
            match ink {
                Ink::Read => return color::READ_RAMP,
                Ink::Write => return color::WRITE_RAMP,
                Ink::Flush => return color::FLUSH_RAMP,
                Ink::Other => return color::OTHER_RAMP,
                _ => {}
            }
        }
        let c = color::rgb(self.color(ink));
        let many = if self.dark { [255; 3] } else { [0; 3] };
        let few = color::tint(c, color::rgb(self.paper));
        match ink {
            // A step has the same colour for any count.
            Ink::Heat(_) => Ramp([c, c, c]),
            // Hues vary little, because two reels over each other must not become black.
            Ink::Hue(_) => Ramp([few, c, color::mix(c, many, 0.3)]),
            _ => Ramp([few, c, color::mix(c, many, 0.58)]),
        }
    }

    /// What two inks make where both are: on white both take light away, on black both give it.
    pub fn overprint(&self, under: Rgb, over: Rgb) -> Rgb {
        if self.dark {
            std::array::from_fn(|i| 255 - color::overprint(under.map(|c| 255 - c), over.map(|c| 255 - c))[i])
        } else {
            color::overprint(under, over)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contrast(a: &str, b: &str) -> f64 {
        color::contrast(color::rgb(a), color::rgb(b))
    }

    /// A single event is seen, in whatever colour.
    #[test]
    fn one_event_is_seen() {
        for t in [&LIGHT, &DARK] {
            let inks = [Ink::Read, Ink::Write, Ink::Flush, Ink::Other, Ink::Grey, Ink::Seek];
            for ink in inks.into_iter().chain((0..HUES).map(Ink::Hue)) {
                let contrast = color::contrast(t.ramp(ink).0[0], color::rgb(t.paper));
                assert!(contrast >= 3.0, "{ink:?} dark={}: {contrast}", t.dark);
            }
        }
    }

    #[test]
    fn text_is_readable_and_lines_are_seen() {
        for t in [&LIGHT, &DARK] {
            for (text, least) in [(t.ink, 7.0), (t.faint, 4.5), (t.alarm, 4.5), (t.mark, 4.5)] {
                assert!(contrast(text, t.paper) >= least, "{text} on {}: {}", t.paper, contrast(text, t.paper));
            }
            for ink in [Ink::Read, Ink::Write, Ink::Flush, Ink::Other, Ink::Grey] {
                assert!(contrast(t.color(ink), t.paper) >= 3.0, "{ink:?}");
            }
        }
    }

    /// As a dichromat sees it (Viénot, Brettel and Mollon 1999, in linear RGB).
    fn seen(c: Rgb, green_blind: bool) -> [f64; 3] {
        let l = c.map(|v| (f64::from(v) / 255.0).powf(2.2));
        let m = if green_blind {
            [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]
        } else {
            [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]
        };
        m.map(|row| (0..3).map(|i| row[i] * l[i]).sum::<f64>().max(0.0).powf(1.0 / 2.2) * 255.0)
    }

    #[test]
    fn categories_are_told_apart_by_the_colour_blind() {
        for t in [&LIGHT, &DARK] {
            let hues: Vec<Rgb> = (0..HUES).map(|i| color::rgb(t.color(Ink::Hue(i)))).collect();
            for green_blind in [false, true] {
                for (i, a) in hues.iter().enumerate() {
                    for b in &hues[..i] {
                        let (a, b) = (seen(*a, green_blind), seen(*b, green_blind));
                        let distance = (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt();
                        assert!(distance > 18.0, "{i}: {distance} {a:?} {b:?} dark={}", t.dark);
                    }
                }
            }
        }
    }

    #[test]
    fn overprints_darken_on_white_and_brighten_on_black() {
        let (a, b) = ([200, 100, 50], [100, 200, 50]);
        assert!(color::luminance(LIGHT.overprint(a, b)) < color::luminance(a).min(color::luminance(b)));
        assert!(color::luminance(DARK.overprint(a, b)) > color::luminance(a).max(color::luminance(b)));
    }
}
