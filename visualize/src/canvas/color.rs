//! Colour values, density ramps and mixing. [`crate::canvas::theme`] assigns colours to meanings.

/// An RGB colour.
pub type Rgb = [u8; 3];

/// A ramp from few to many events: a tint in which one event is visible, the hue, and a shade of it.
#[derive(Clone, Copy, Debug)]
pub struct Ramp(pub [Rgb; 3]);

/// Ramp of reads.
pub const READ_RAMP: Ramp = Ramp([[75, 155, 200], [0, 114, 178], [0, 38, 84]]);
/// Ramp of writes.
pub const WRITE_RAMP: Ramp = Ramp([[219, 121, 43], [213, 94, 0], [104, 30, 0]]);
/// Ramp of discards and other calls.
pub const OTHER_RAMP: Ramp = Ramp([[22, 166, 126], [0, 158, 115], [0, 70, 50]]);
/// Ramp of flushes.
pub const FLUSH_RAMP: Ramp = Ramp([[202, 118, 179], [176, 48, 140], [80, 0, 66]]);

impl Ramp {
    /// The colour at `t`, 0 (one event) to 1 (most).
    pub fn at(&self, t: f64) -> Rgb {
        let t = t.clamp(0.0, 1.0) * 2.0;
        let i = if t < 1.0 { 0 } else { 1 };
        mix(self.0[i], self.0[i + 1], t - i as f64)
    }
}

/// `a` mixed with the share `t` of `b`.
pub fn mix(a: Rgb, b: Rgb, t: f64) -> Rgb {
    std::array::from_fn(|i| (f64::from(a[i]) + (f64::from(b[i]) - f64::from(a[i])) * t).round() as u8)
}

/// Parses `#rrggbb`. Black if invalid.
pub fn rgb(hex: &str) -> Rgb {
    let channel = |i: usize| hex.get(i..i + 2).and_then(|c| u8::from_str_radix(c, 16).ok()).unwrap_or(0);
    [channel(1), channel(3), channel(5)]
}

/// Two inks printed over each other: overlapping reads and writes are darker than either.
pub fn overprint(a: Rgb, b: Rgb) -> Rgb {
    std::array::from_fn(|i| ((u32::from(a[i]) * u32::from(b[i]) + 127) / 255) as u8)
}

/// The colour as `#rrggbb`.
pub fn hex(c: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", c[0], c[1], c[2])
}

/// Relative luminance, WCAG 2.
pub(crate) fn luminance(c: Rgb) -> f64 {
    let channel = |v: u8| {
        let v = f64::from(v) / 255.0;
        if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2])
}

/// Contrast of two colours, WCAG 2: 1 to 21.
pub(crate) fn contrast(a: Rgb, b: Rgb) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Least contrast of a single event with the paper.
const LEAST_CONTRAST: f64 = 3.05;

/// The colour nearest to the paper, on the way to it, that is still seen on it.
pub(crate) fn tint(c: Rgb, paper: Rgb) -> Rgb {
    let share = (0..=100).rev().map(|i| f64::from(i) / 100.0);
    share.map(|share| mix(c, paper, share)).find(|c| contrast(*c, paper) >= LEAST_CONTRAST).unwrap_or(c)
}
