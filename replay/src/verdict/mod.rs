//! The replay compared with the recording.

pub mod concurrency;
pub mod end_state;
pub mod judgement;
pub mod latencies;
pub(crate) mod merge;
pub(crate) mod replayer_delay;
pub(crate) mod result_reel;
pub mod results;
pub mod timing;
