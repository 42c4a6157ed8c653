//! Ticks and number formats of axes.

/// The smallest of 1, 2, 5, 10, … (times any power of ten) that is at least `least`.
pub fn nice_step(least: f64) -> f64 {
    if !least.is_finite() || least <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(least.log10().floor());
    // Tolerance for rounding errors: 0.1 + 0.2 must not select the next step.
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * decade).find(|s| *s >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

/// An axis of rates or counts from 0 to a round number, or of differences from its negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueScale {
    /// The bottom: 0, or `-top`.
    pub bottom: f64,
    /// The top.
    pub top: f64,
    /// Distance between ticks.
    pub step: f64,
}

impl ValueScale {
    /// An axis up to `most` with about `ticks` ticks.
    pub fn new(most: f64, ticks: u32) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = nice_step(most / f64::from(ticks.max(1)));
        Self { bottom: 0.0, top: (most / step * (1.0 - 1e-9)).ceil() * step, step }
    }

    /// An axis of differences from `-most` to `most`.
    pub fn signed(most: f64, ticks: u32) -> Self {
        let scale = Self::new(most, (ticks / 2).max(1));
        Self { bottom: -scale.top, ..scale }
    }

    /// The ticks, from bottom to top.
    pub fn ticks(&self) -> Vec<f64> {
        let steps = (self.top / self.step).round() as i64;
        let first = if self.bottom < 0.0 { -steps } else { 0 };
        (first..=steps).map(|i| i as f64 * self.step).collect()
    }

    /// Label of a tick.
    pub fn label(&self, v: f64) -> String {
        let (v, unit, step) = match self.top {
            t if t >= 2e6 => (v / 1e6, "M", self.step / 1e6),
            t if t >= 2e4 => (v / 1e3, "k", self.step / 1e3),
            _ => (v, "", self.step),
        };
        if v == 0.0 { "0".into() } else { format!("{v:.*}{unit}", decimals(step)) }
    }
}

/// Number of decimals that show multiples of `step` exactly, at most 9.
pub fn decimals(step: f64) -> usize {
    (0..9)
        .find(|d| {
            let scaled = step * 10f64.powi(*d as i32);
            (scaled - scaled.round()).abs() < 1e-6 * scaled.abs().max(1e-300)
        })
        .unwrap_or(9)
}

/// Time unit of an axis: its name and its length in ns.
pub fn time_unit(span_ns: i64) -> (&'static str, f64) {
    match span_ns {
        ..2_000 => ("ns", 1.0),
        2_000..2_000_000 => ("µs", 1e3),
        2_000_000..2_000_000_000 => ("ms", 1e6),
        2_000_000_000..1_200_000_000_000 => ("s", 1e9),
        1_200_000_000_000..14_400_000_000_000 => ("min", 60e9),
        _ => ("h", 3600e9),
    }
}

/// About `count` ticks for `[from_ns, to_ns]`: time and label.
pub fn time_ticks(from_ns: i64, to_ns: i64, count: u32) -> Vec<(i64, String)> {
    let span_ns = to_ns.saturating_sub(from_ns).max(1);
    let (_, unit) = time_unit(span_ns);
    // Steps are at least one nanosecond.
    let step = nice_step(span_ns as f64 / unit / f64::from(count.max(1))).max(1.0 / unit);
    let first = (from_ns as f64 / unit / step).ceil();
    (0..=count * 6)
        .map(|i| (first + f64::from(i)) * step)
        .map(|v| ((v * unit).round() as i64, format!("{v:.*}", decimals(step))))
        .take_while(|(t, _)| *t <= to_ns)
        .collect()
}

/// `12.3 s`, `450 ms`, `80 µs`: a duration with three digits.
pub fn duration(ns: i64) -> String {
    let v = ns as f64;
    let (v, unit) = match ns.abs() {
        0..1_000 => (v, "ns"),
        // A value that rounds to 1000 uses the next unit.
        1_000..999_500 => (v / 1e3, "µs"),
        999_500..999_500_000 => (v / 1e6, "ms"),
        _ => (v / 1e9, "s"),
    };
    if unit == "ns" { format!("{ns} ns") } else { format!("{} {unit}", three_digits(v)) }
}

/// `1.5 MiB` with three digits.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut v, mut unit) = (n as f64, 0);
    while v >= 1000.0 && unit + 1 < UNITS.len() {
        v /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{} {}", three_digits(v), UNITS[unit]) }
}

/// `12.3`, `4.56k`, `1.20M`: a rate with three digits.
pub fn quantity(v: f64) -> String {
    match v.abs() {
        a if a >= 1e6 => format!("{}M", three_digits(v / 1e6)),
        a if a >= 1e4 => format!("{}k", three_digits(v / 1e3)),
        0.0 => "0".into(),
        _ => three_digits(v),
    }
}

fn three_digits(v: f64) -> String {
    match v.abs() {
        a if a >= 99.95 => format!("{v:.0}"),
        a if a >= 9.995 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    }
}

/// `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([0.3, 1.0, 1.1, 45.0, 0.0, f64::NAN].map(nice_step), [0.5, 1.0, 2.0, 50.0, 1.0, 1.0]);
    }

    #[test]
    fn scales_hold_their_values() {
        for most in [0.0, 0.2, 1.0, 99.0, 100.0, 101.0, 1.2e6, f64::INFINITY] {
            let s = ValueScale::new(most, 4);
            assert!(s.ticks().len() >= 2 && s.ticks().len() <= 7, "{most}: {s:?}");
            assert!(!most.is_finite() || s.top >= most * 0.999_999, "{most}: {s:?}");
        }
        assert_eq!(ValueScale::new(100.0, 4).ticks(), [0.0, 50.0, 100.0]);
        let k = ValueScale::new(48_000.0, 4);
        assert_eq!(k.label(k.top), "60k");
    }

    #[test]
    fn time_ticks_are_in_range_and_round() {
        let labels = |from, to| time_ticks(from, to, 5).into_iter().map(|t| t.1).collect::<Vec<_>>();
        assert_eq!(labels(0, 10_000_000_000), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(0, 1_000_000), ["0", "200", "400", "600", "800", "1000"]);
        assert!(!labels(0, 1).is_empty());
        assert!(
            time_ticks(5_500_000_000, 9_000_000_000, 5).iter().all(|t| (5_500_000_000..=9_000_000_000).contains(&t.0))
        );
    }

    #[test]
    fn quantities_have_three_digits() {
        assert_eq!([999, 1_500, 12_345_678, 123_456_789_000].map(duration), ["999 ns", "1.50 µs", "12.3 ms", "123 s"]);
        assert_eq!([999_499, 999_700].map(duration), ["999 µs", "1.00 ms"]);
        assert_eq!([512, 1000, 1536, 105 << 20].map(bytes), ["512 B", "0.98 KiB", "1.50 KiB", "105 MiB"]);
        assert_eq!(count(1_234_567), "1,234,567");
    }
}
