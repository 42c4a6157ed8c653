//! The BPF programs: choosing, loading, attaching and reading them.
//!
//! In: a [`plan::Plan`]. Out: a [`session::Session`], which adopts threads and drains the rings, and the maps that may
//! change during a recording. May use `host`, `calls` and `decode`.

pub mod features;
pub(crate) mod fentry;
pub mod filter;
pub(crate) mod lossless;
pub(crate) mod plan;
mod refusal;
pub(crate) mod rings;
pub mod session;
pub(crate) mod tables;
