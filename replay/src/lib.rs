//! Replays a reel against a mounted file system.
//!
//! The modules are stages. Each uses only those before it:
//!
//! * [`base`]: clock, distributions, errno names;
//! * [`reel`]: reads the operations of a reel in the order of their return;
//! * [`contents`]: generates the data that is written and checks the data that is read;
//! * [`model`]: the recorded machine: names, processes, descriptors, sizes, locks, credentials;
//! * [`mod@plan`]: a program of steps for each thread and the dependency edges between steps. It touches no file
//!   system;
//! * [`prepare`]: creates the initial tree and confines the replay to its target;
//! * [`run`]: issues the steps: threads, deadlines, system calls, io_uring and Linux AIO;
//! * [`verdict`]: compares the replay with the recording;
//! * [`block`]: replays bios on a device;
//! * [`session`]: runs a replay from reel to report: [`Replay`].
//!
//! `docs/internals/replay.md` describes the design.

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
