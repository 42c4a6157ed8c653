//! Accumulators with bounded memory, the building blocks of statistics.
//!
//! In: numbers (times, sizes, offsets). Out: counts, percentiles, and values per time bin. May use: nothing else of
//! this crate. Meters are independent of reels and rows.
//!
//! * [`bins`] and [`peaks`] count over time, [`coverage`] measures the used part of an address range;
//! * [`depth`] is the queue depth, [`latency`] keeps percentiles, [`seeks`] counts seeks;
//! * [`visits`] bounds the work that the lengths in rows cause.

pub mod bins;
pub mod coverage;
pub mod depth;
pub mod latency;
pub mod peaks;
pub mod seeks;
pub mod share;
pub mod visits;
