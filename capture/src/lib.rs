//! Records file-system activity with eBPF into a reel.
//!
//! Facts, decision, effect: [`host`] reads facts, [`record::Config`] and [`session::Plan`] hold what was
//! decided, [`record()`](record::record) acts. The way of an event: `session` drains bytes from the rings,
//! `pipeline` orders them, `wire` parses them, `calls` knows what a call's arguments mean, `assemble`
//! makes rows of them.

mod aio;
mod assemble;
mod block;
mod cache;
pub mod calls;
mod changed;
mod classify;
mod command;
pub mod contents;
pub mod derive;
pub mod doctor;
mod error;
mod extents;
mod fault;
mod fentry;
pub mod filter;
mod functions;
mod holes;
pub mod host;
mod layout;
mod ledger;
pub mod live;
mod lossless;
mod mappings;
pub mod marks;
mod met;
mod names;
mod op_rings;
mod pipeline;
pub mod probes;
mod reasons;
pub mod record;
pub mod session;
mod settle;
mod sieve;
mod signals;
mod snapshot;
mod start;
mod symbols;
mod uring;
mod vfs;
mod waits;
pub mod watch;
pub mod wire;

pub use error::CaptureError;
