//! Comparison of the replay with the recording.
//!
//! In: the plan and the outcomes of its steps. Out: a verdict with its reasons, and a result reel.
//!
//! * [`results`] compares return values, [`end_state`] the final trees, [`recorded_tree`] is the one
//!   that the recorder saw;
//! * [`timing`], [`latencies`], [`concurrency`] and `replayer_delay` compare times;
//! * [`left_out`] tells which work of the original is missing;
//! * [`judgement`] decides whether the replay is faithful, [`clauses`] what exit status that gives;
//! * `result_reel` writes what was issued, when, and with which results.
//!
//! May use: every stage before it; not `session`.

pub mod clauses;
pub mod concurrency;
pub mod end_state;
mod entry;
pub mod judgement;
pub mod latencies;
pub mod left_out;
pub(crate) mod merge;
pub mod recorded_tree;
pub(crate) mod replayer_delay;
pub(crate) mod result_reel;
pub mod results;
pub mod timing;
