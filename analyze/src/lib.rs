//! Statistics of a reel, in streaming passes with bounded memory and exact 64-bit integers.
//!
//! A statistic has the same name in struct fields, JSON, tables and plots. It is defined where it is computed. Stages,
//! each of which uses only those named:
//!
//! * [`events`]: streams requests, bios and system calls of a reel, and selects them by a [`Scope`]. Uses nothing else;
//! * [`meters`]: accumulators that know no reel: bins, percentiles, queue depth, seeks. Uses nothing else;
//! * [`summary`]: everything that `ioreel info` prints. Uses `events`, `meters`;
//! * [`stats`]: every named statistic, for `ioreel stats`. Uses `events`, `meters`;
//! * [`facts`]: what detectors look at. Uses `events`, `meters`, `stats`;
//! * [`findings`]: what is wrong, for `ioreel diagnose`. Uses `facts`, `stats`;
//! * [`explain`]: the story of one operation, for `ioreel explain`. Uses `events`, `facts`.

pub mod events;
pub mod explain;
pub mod facts;
pub mod findings;
pub mod meters;
pub mod stats;
pub mod summary;

pub use events::scope::Scope;
pub use stats::Stats;
pub use summary::Summary;

use ioreel_traces::ReelError;

/// Result of a statistic. The only possible failure is reading the reel.
pub type Result<T, E = ReelError> = std::result::Result<T, E>;

/// An error for a segment whose columns do not match the format.
pub(crate) fn bad_column(table: &'static str) -> impl FnOnce(String) -> ReelError {
    move |why| ReelError::BadSegment { path: table.into(), why }
}
