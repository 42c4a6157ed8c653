//! Parsers for times and sizes on the command line.

use std::time::Duration;

/// Parses a time: `1.5`, `90s`, `10m`, `2h`, `250ms`, `100us`, `500ns`; seconds without a unit.
pub(crate) fn duration(s: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
    ];
    let (number, factor) = UNITS.iter().find_map(|(unit, f)| s.strip_suffix(unit).map(|n| (n, *f))).unwrap_or((s, 1.0));
    let bad = || "expected a time such as 1.5, 90s, 10m, 2h, 250ms, 100us or 500ns".to_owned();
    let value: f64 = number.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(value * factor).map_err(|_| bad())
}

/// Parses a time that is not zero.
#[cfg(feature = "capture")]
pub(crate) fn some_time(s: &str) -> Result<Duration, String> {
    duration(s).and_then(|d| if d.is_zero() { Err("must be greater than zero".into()) } else { Ok(d) })
}

/// Parses a time with a unit ending in `s`: a bare number or `m` could be meant as ms.
#[cfg(feature = "capture")]
pub(crate) fn latency(s: &str) -> Result<Duration, String> {
    if !s.ends_with('s') {
        return Err("expected a unit: ns, us, ms or s".into());
    }
    duration(s)
}

/// Parses a size: `4096`, `512K`, `100M`, `2G`, `1T`, also with `iB`; units are powers of 1024.
pub(crate) fn bytes(s: &str) -> Result<i64, String> {
    let bare = s.strip_suffix("iB").or_else(|| s.strip_suffix('B')).unwrap_or(s);
    let (number, shift) = match bare.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&bare[..at], 10),
        Some((at, 'M')) => (&bare[..at], 20),
        Some((at, 'G')) => (&bare[..at], 30),
        Some((at, 'T')) => (&bare[..at], 40),
        _ => (bare, 0),
    };
    match number.parse::<f64>() {
        Ok(n) if n >= 0.0 && n * f64::from(shift).exp2() < i64::MAX as f64 => Ok((n * f64::from(shift).exp2()) as i64),
        _ => Err("expected a size such as 4096, 512K, 100M or 2G".into()),
    }
}

/// Parses a size that is not zero.
#[cfg(feature = "capture")]
pub(crate) fn some_bytes(s: &str) -> Result<i64, String> {
    bytes(s).and_then(|n| if n == 0 { Err("must be greater than zero".into()) } else { Ok(n) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("500ns"), Ok(Duration::from_nanos(500)));
        assert_eq!(latency("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(["5", "ms", "5m"].iter().all(|bad| latency(bad).is_err()));
        assert_eq!(some_time("1ns"), Ok(Duration::from_nanos(1)));
        assert!(["0", "0s", "0.1ns"].iter().all(|none| some_time(none).is_err()));
        for bad in ["", "s", "-1", "NaN", "inf", "1e300h", "1 week"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("1.5K"), Ok(1536));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("3MB"), Ok(3 << 20));
        assert_eq!(some_bytes("1"), Ok(1));
        assert!(["0", "0M", "0.5"].iter().all(|none| some_bytes(none).is_err()));
        for bad in ["", "M", "-1", "NaN", "inf", "1e30T", "12X"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
