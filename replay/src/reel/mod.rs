//! The reel as a replay reads it: operations in the order of their return, with paths as bytes.

pub mod call;
pub(crate) mod feed;
pub mod footprint;
pub(crate) mod in_flight;
pub mod input;
pub(crate) mod record_kind;
pub(crate) mod skip;
pub(crate) mod slice;
pub mod submission;
pub mod texts;
