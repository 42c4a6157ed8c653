//! Statistics of a reel: streaming passes with bounded memory and exact 64-bit integers.
//!
//! A statistic has one name everywhere - struct field, JSON member, table head, plot legend - and one
//! definition, given where it is computed:
//!
//! * [`events::requests`] streams a reel's requests in dispatch order, [`events::bios`] its bios, [`events::calls`] its operations;
//! * [`events::stages`] tells what came before a request's issue, of imported block traces;
//! * [`meters::seeks`] defines `seeks.exact` and `seeks.sw64k`;
//! * [`meters::depth`] is the queue depth, weighted with time, [`meters::peaks`] its greatest per bin;
//! * [`meters::latency`] keeps percentiles at three digits;
//! * [`meters::bins`] and [`summary::series`] are rates over time, [`meters::coverage`] the used part of an address space;
//! * [`summary::device`], [`summary::operation`], [`summary::actor`] are the totals; [`summary`] is all of them for one reel.

pub mod events;
pub mod meters;
pub mod stats;
pub mod summary;

pub use events::scope::Scope;
pub use stats::Stats;
pub use summary::Summary;

use ioreel_traces::ReelError;

/// What can go wrong with a statistic: nothing but reading the reel.
pub type Result<T, E = ReelError> = std::result::Result<T, E>;

/// An error for a segment whose columns are not what the format says.
pub(crate) fn bad_column(table: &'static str) -> impl FnOnce(String) -> ReelError {
    move |why| ReelError::BadSegment { path: table.into(), why }
}
