//! Colour values, density ramps and mixing. [`crate::canvas::theme`] assigns colours to meanings.

/// An RGB colour.
pub type Rgb = [u8; 3];

/// A ramp from few to many events: a tint in which one event is visible, the hue, and a shade of it.
#[derive(Clone, Copy, Debug)]
pub struct Ramp(pub [Rgb; 3]);

/// Ramp of reads.
pub const READ_RAMP: Ramp = Ramp([[150, 199, 230], [0, 114, 178], [0, 38, 84]]);
/// Ramp of writes.
pub const WRITE_RAMP: Ramp = Ramp([[252, 190, 133], [213, 94, 0], [104, 30, 0]]);
/// Ramp of discards and other calls.
pub const OTHER_RAMP: Ramp = Ramp([[160, 222, 200], [0, 158, 115], [0, 70, 50]]);
/// Ramp of flushes.
pub const FLUSH_RAMP: Ramp = Ramp([[222, 150, 205], [176, 48, 140], [80, 0, 66]]);

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
