//! A time window of a reel, and its segments.

use ioreel_analyze::events::requests::Class;
use ioreel_traces::{
    Reel,
    rows::{Bio, Block, Op},
    table::Row,
};

/// Latest valid time, 73 years. Later times are damage, and would overflow calculations.
pub(super) const MOST_NS: i64 = 1 << 61;

/// A time window, ns since the start of the reel. Both ends are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its start.
    pub from_ns: i64,
    /// Its end, after the start.
    pub to_ns: i64,
}

impl Window {
    /// Whether `[from_ns, to_ns]` overlaps with it.
    pub fn meets(&self, from_ns: i64, to_ns: i64) -> bool {
        from_ns <= self.to_ns && to_ns >= self.from_ns
    }
}

/// The reel with only those segments of events that may overlap with the window. `longest_ns` is the longest duration
/// of a request, needed because segments are listed by issue time.
pub(crate) fn narrowed(reel: &Reel, window: Window, longest_ns: i64) -> Reel {
    let mut narrow = reel.clone();
    for table in [Op::TABLE, Block::TABLE, Bio::TABLE] {
        if let Some(segments) = narrow.manifest.segments.get_mut(table) {
            segments.retain(|s| window.meets(s.from_ns, s.to_ns.saturating_add(longest_ns)));
        }
    }
    narrow
}

/// Layer of a request: reads, writes, others.
pub(super) fn layer(class: Class) -> usize {
    match class {
        Class::Read => 0,
        Class::Write => 1,
        _ => 2,
    }
}

/// Rows of the logarithmic axis of heat maps: eight per doubling, from 1 ns.
pub(super) const HEAT_ROWS: u32 = 8 * 44;

/// Row of a duration, from the bottom.
pub(super) fn heat_row(took_ns: i64) -> u32 {
    let ns = took_ns.max(1) as u64;
    // The octave is exact, the eighth within it is from the logarithm.
    let octave = ns.ilog2();
    let part = (ns as f64 / 2f64.powi(octave as i32)).log2() * 8.0;
    (octave * 8 + (part as u32).min(7)).min(HEAT_ROWS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_heat_are_eighths_of_octaves() {
        assert_eq!([0, 1, 2, 4, 1023, 1024].map(heat_row), [0, 0, 8, 16, 79, 80]);
        assert_eq!(heat_row(i64::MAX), HEAT_ROWS - 1);
        for ns in 1..100_000i64 {
            assert_eq!(heat_row(ns), (((ns as f64).log2() * 8.0) + 1e-9) as u32, "{ns}");
        }
    }
}
