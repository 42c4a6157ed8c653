//! Comparison of the replay with the recording.
//!
//! In: the plan and the outcomes of its steps. Out: a verdict with its reasons, and a result reel.
//!
//! * [`results`] compares return values, [`end_state`] the final trees;
//! * [`timing`], [`latencies`], [`concurrency`] and `replayer_delay` compare times;
//! * [`judgement`] decides whether the replay is faithful;
//! * `result_reel` writes what was issued, when, and with which results.
//!
//! May use: every stage before it; not `session`.

pub mod concurrency;
pub mod end_state;
pub mod judgement;
pub mod latencies;
pub(crate) mod merge;
pub(crate) mod replayer_delay;
pub(crate) mod result_reel;
pub mod results;
pub mod timing;
