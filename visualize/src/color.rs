//! Colours: distinguishable with every common colour blindness (Okabe and Ito's set), on white.

/// Reads.
pub const READ: &str = "#0072b2";
/// Writes.
pub const WRITE: &str = "#d55e00";
/// Flushes and syncs.
pub const FLUSH: &str = "#b0308c";
/// Discards, zeroing and whatever else has an address but moves no data; metadata calls.
pub const OTHER: &str = "#009e73";
/// What none of these is.
pub const GREY: &str = "#8a8f98";
/// Losses and errors.
pub const ALARM: &str = "#c1121f";
/// Text.
pub const INK: &str = "#1c2530";
/// Less important text.
pub const FAINT: &str = "#66707c";
/// Frames.
pub const FRAME: &str = "#c3c9d1";
/// Grid lines.
pub const GRID: &str = "#e9ecf0";
/// Background of plots.
pub const PAPER: &str = "#ffffff";

/// An RGB colour.
pub type Rgb = [u8; 3];

/// A ramp from few to many: a tint that one event can be seen by, the hue, and a shade of it.
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
        let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * (t - i as f64)).round() as u8;
        let (a, b) = (self.0[i], self.0[i + 1]);
        [mix(a[0], b[0]), mix(a[1], b[1]), mix(a[2], b[2])]
    }
}

/// Two inks on the same paper: where reads and writes overlap it is darker than either.
pub fn overprint(a: Rgb, b: Rgb) -> Rgb {
    std::array::from_fn(|i| ((u32::from(a[i]) * u32::from(b[i]) + 127) / 255) as u8)
}

/// `#rrggbb`.
pub fn hex(c: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", c[0], c[1], c[2])
}
