//! Replays a reel against a mounted file system.
//!
//! * [`input`] reads what a replay needs of a reel;
//! * [`plan()`] turns it into a program per thread, and what each step waits for, without touching a file system:
//!   [`names`] models the name space, [`procs`] the processes, [`order`] collects the edges, [`sizes`] the room;
//! * [`prepare`] makes the tree that the workload found, [`contain`] keeps all of it inside the target;
//! * [`engine`] runs a thread's program; [`world`] is the real one: threads, clock and, in [`issue`], the calls;
//! * [`verdict`] holds the result against the original; [`Replay`] is all of it in a row.
//!
//! `docs/replay.md` says why it is so.

pub mod buffers;
pub mod call;
mod commit;
pub mod contain;
mod effects;
pub mod engine;
mod error;
pub mod input;
pub mod issue;
mod kind;
mod linear;
pub mod names;
pub mod order;
mod output;
pub mod pace;
pub mod plan;
mod planner;
pub mod prepare;
pub mod procs;
pub mod progress;
mod replay;
pub mod sizes;
mod skip;
pub mod target;
mod uses;
pub mod verdict;
mod view;
pub mod watch;
pub mod world;

pub use call::Call;
pub use error::ReplayError;
pub use planner::{PlanOptions, plan};
pub use replay::{Config, Phase, Replay, Report, Summary};
pub use skip::Skip;
