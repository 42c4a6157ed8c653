//! Formats numbers for people.

/// Formats a size: `1.5 MiB`.
pub(crate) fn bytes(n: i64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats a duration: `1.50 ms`.
pub(crate) fn duration(ns: i64) -> String {
    let v = ns as f64;
    match ns.abs() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", v / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", v / 1e6),
        _ => format!("{:.3} s", v / 1e9),
    }
}

/// Parses seconds, with fractions, to ns.
pub(crate) fn seconds(text: &str) -> Result<i64, String> {
    let s: f64 = text.trim().trim_end_matches('s').parse().map_err(|_| "expected a number of seconds".to_owned())?;
    let ns = s * 1e9;
    if s.is_finite() && (0.0..9e18).contains(&ns) {
        Ok(ns.round() as i64)
    } else {
        Err("expected 0 to 9000000000 seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500), "1.5 us");
        assert_eq!(duration(61_000_000_000), "61.000 s");
    }

    #[test]
    fn seconds_are_exact_and_checked() {
        assert_eq!(seconds("1.5"), Ok(1_500_000_000));
        assert_eq!(seconds("0.000001s"), Ok(1_000));
        for bad in ["", "x", "-1", "inf", "NaN", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
