//! Replays a reel against a mounted file system.
//!
//! * [`input`] reads what a replay needs of a reel;
//! * [`plan()`] turns it into a program per thread, and what each step waits for, without touching a file system:
//!   [`names`] models the name space, [`procs`] the processes, [`order`] collects the edges, [`sizes`] the room;
//! * [`prepare`] makes the tree that the workload found, [`contain`] keeps all of it inside the target;
//! * requests to io_uring and of Linux AIO are planned in `requests` and issued in `rings`;
//! * [`engine`] runs a thread's program; [`world`] is the real one: threads, clock and, in [`issue`], the calls;
//! * [`verdict`] holds the result against the original: [`results`], [`timing`], [`concurrency`], [`latencies`],
//!   [`endstate`]; [`Replay`] is all of it in a row;
//! * [`block`] does the same with what a file system asked of a disk.
//!
//! `docs/replay.md` says why it is so.

#[cfg(test)]
extern crate self as ioreel_replay;

pub mod base;
pub mod block;
pub mod contents;
mod error;
pub mod model;
pub mod plan;
pub mod prepare;
pub mod reel;
pub mod run;
pub mod session;
pub mod verdict;

pub use error::ReplayError;
pub use plan::planner::{PlanOptions, plan};
pub use reel::{call::Call, skip::Skip, slice::Slice};
pub use session::{
    config::{Config, Phase, Report, Summary},
    replay::{Prepared, Replay},
};
