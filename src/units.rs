//! Formats numbers for people.

use crate::quantity;

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

/// Parses a time of the reel to ns: `1.5`, `90s`, `250ms`, `2m`; seconds without a unit.
pub(crate) fn seconds(text: &str) -> Result<i64, String> {
    let time = quantity::duration(text.trim())?;
    i64::try_from(time.as_nanos()).map_err(|_| "expected at most 292 years".to_owned())
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
        assert_eq!([seconds("250ms"), seconds("2m"), seconds("7ns")], [Ok(250_000_000), Ok(120_000_000_000), Ok(7)]);
        for bad in ["", "x", "-1", "inf", "NaN", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
