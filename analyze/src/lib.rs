//! Statistics of a reel: streaming passes with bounded memory and exact 64-bit integers.
//!
//! A statistic has one name everywhere - struct field, JSON member, table head, plot legend - and one
//! definition, given where it is computed:
//!
//! * [`requests`] streams a reel's requests in dispatch order, [`bios`] its bios, [`calls`] its operations;
//! * [`stages`] tells what came before a request's issue, of imported block traces;
//! * [`seeks`] defines `seeks.exact` and `seeks.sw64k`;
//! * [`depth`] is the queue depth, weighted with time, [`peaks`] its greatest per bin;
//! * [`latency`] keeps percentiles at three digits;
//! * [`bins`] and [`series`] are rates over time, [`coverage`] the used part of an address space;
//! * [`device`], [`operation`], [`actor`] are the totals; [`summary`] is all of them for one reel.

pub mod actor;
pub mod bins;
pub mod bios;
pub mod calls;
pub mod coverage;
pub mod depth;
pub mod device;
pub mod latency;
pub mod operation;
mod order;
pub mod peaks;
pub mod requests;
pub mod scope;
pub mod seeks;
pub mod series;
pub mod stages;
pub mod stats;
pub mod summary;
pub mod waits;

pub use scope::Scope;
pub use stats::Stats;
pub use summary::Summary;

use ioreel_traces::ReelError;

/// What can go wrong with a statistic: nothing but reading the reel.
pub type Result<T, E = ReelError> = std::result::Result<T, E>;

/// An error for a segment whose columns are not what the format says.
pub(crate) fn bad_column(table: &'static str) -> impl FnOnce(String) -> ReelError {
    move |why| ReelError::BadSegment { path: table.into(), why }
}
