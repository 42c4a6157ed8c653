//! The panels of rates: their names, legends and lines.

use ioreel_analyze::{bins::Bins, series::CallSeries};

use crate::{
    color,
    painter::Column,
    panel::{Entry, Key, Line},
};

/// A panel of rates.
pub(crate) struct RatePanel {
    /// Its name.
    pub(crate) name: &'static str,
    /// The unit and, where it matters, at what moment an event counts.
    pub(crate) unit: &'static str,
    /// The legend.
    pub(crate) entries: Vec<Entry>,
    /// The lines of a column; none where its reel has nothing to draw.
    pub(crate) lines: fn(&Column) -> Option<Vec<Line>>,
}

fn entry(color: &'static str, label: &str) -> Entry {
    Entry { key: Key::Line(color), label: label.into() }
}

fn line(bins: Bins, values: &[u64], unit: f64, color: &'static str, filled: bool) -> Line {
    let values = values.iter().enumerate().map(|(i, n)| bins.rate(i, *n) / unit).collect();
    Line { values, color, width: 1.3, fill: filled.then_some(0.16) }
}

const MIB: f64 = 1024.0 * 1024.0;

/// Bytes of requests.
pub(crate) fn throughput() -> RatePanel {
    RatePanel {
        name: "Throughput",
        unit: "MiB/s at completion",
        entries: vec![entry(color::READ, "read"), entry(color::WRITE, "write")],
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            Some(vec![
                line(s.bins, &s.read_bytes, MIB, color::READ, true),
                line(s.bins, &s.write_bytes, MIB, color::WRITE, true),
            ])
        },
    }
}

/// Requests.
pub(crate) fn iops() -> RatePanel {
    RatePanel {
        name: "IOPS",
        unit: "requests completed per second",
        entries: vec![
            entry(color::READ, "read"),
            entry(color::WRITE, "write"),
            entry(color::FLUSH, "flush, discard, other"),
        ],
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            Some(vec![
                line(s.bins, &s.others, 1.0, color::FLUSH, false),
                line(s.bins, &s.reads, 1.0, color::READ, true),
                line(s.bins, &s.writes, 1.0, color::WRITE, true),
            ])
        },
    }
}

/// Area of `seeks.sw64k`.
const SW64K_TINT: &str = "#9fd8c4";

/// Seeks by both definitions.
pub(crate) fn seeks() -> RatePanel {
    RatePanel {
        name: "Seeks",
        unit: "per second, reads and writes of the device in dispatch order",
        entries: vec![
            entry(color::INK, "seeks.exact: start ≠ previous end"),
            entry(SW64K_TINT, "seeks.sw64k: more than 64 KiB from it"),
        ],
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            // Often they agree: then the one is seen as the outline of the other.
            let sw64k = Line { width: 0.0, fill: Some(1.0), ..line(s.bins, &s.seeks_sw64k, 1.0, SW64K_TINT, true) };
            Some(vec![sw64k, line(s.bins, &s.seeks_exact, 1.0, color::INK, false)])
        },
    }
}

/// Requests in flight.
pub(crate) fn depth() -> RatePanel {
    RatePanel {
        name: "Queue depth",
        unit: "requests in flight, mean over time",
        entries: Vec::new(),
        lines: |c| {
            let s = &c.device.as_ref()?.series;
            Some(vec![Line { values: s.in_flight.means(), color: color::GREY, width: 1.3, fill: Some(0.16) }])
        },
    }
}

/// Bytes of system calls.
pub(crate) fn call_throughput() -> RatePanel {
    RatePanel {
        name: "Bytes moved by calls",
        unit: "MiB/s",
        entries: vec![entry(color::READ, "read"), entry(color::WRITE, "write")],
        lines: |c| {
            let s = &c.calls.as_ref()?.series;
            Some(vec![
                line(s.bins, &s.read_bytes, MIB, color::READ, true),
                line(s.bins, &s.write_bytes, MIB, color::WRITE, true),
            ])
        },
    }
}

/// Colours of [`CallSeries::ROWS`].
const CALL_COLORS: [&str; 5] = [color::READ, color::WRITE, color::FLUSH, color::OTHER, color::GREY];

/// System calls by what they are about.
pub(crate) fn call_rates() -> RatePanel {
    RatePanel {
        name: "System calls",
        unit: "returned per second",
        entries: CallSeries::ROWS.iter().zip(CALL_COLORS).map(|(name, c)| entry(c, name)).collect(),
        lines: |c| {
            let s = &c.calls.as_ref()?.series;
            Some(s.calls.iter().zip(CALL_COLORS).map(|(row, c)| line(s.bins, row, 1.0, c, false)).collect())
        },
    }
}
