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

mod apart;
pub mod begin;
mod blame;
pub mod block;
mod border;
pub mod buffers;
mod bytes;
pub mod cache;
pub mod call;
pub mod checks;
pub mod chunk;
mod clock;
mod commit;
pub mod concurrency;
mod config;
pub mod contain;
pub mod data;
mod draft;
pub mod edge;
mod effects;
pub mod endstate;
pub mod engine;
pub mod errno;
mod error;
mod feed;
pub mod fill;
pub mod followed;
mod ground;
mod held;
mod in_flight;
pub mod input;
pub mod issue;
pub mod keys;
mod kind;
pub mod latencies;
pub mod layout;
mod led;
mod linear;
mod load;
pub mod locked;
mod locking;
pub mod maps;
pub mod memory;
mod merge;
pub mod names;
pub mod order;
pub mod outcomes;
mod output;
mod outside;
pub mod pace;
mod pieces;
mod pipes;
pub mod plan;
mod planner;
pub mod prepare;
pub mod procs;
pub mod progress;
mod races;
mod replay;
mod requests;
pub mod restore;
pub mod results;
mod rings;
mod rounds;
pub mod scale;
pub mod sizes;
mod skip;
pub mod spread;
mod start;
mod start_locks;
pub mod store;
pub mod target;
pub mod texts;
pub mod timing;
pub mod users;
mod uses;
pub mod verdict;
pub mod via;
mod view;
pub mod watch;
pub mod world;
mod written;

pub use border::Slice;
pub use call::Call;
pub use config::{Config, Phase, Report, Summary};
pub use error::ReplayError;
pub use planner::{PlanOptions, plan};
pub use replay::{Prepared, Replay};
pub use skip::Skip;
