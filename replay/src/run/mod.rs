//! The engine: threads, deadlines, and the calls that threads issue.
//!
//! In: a plan, inside a prepared target. Out: the outcome of each operation.
//!
//! * [`engine`] runs a thread's program, [`pace`] computes deadlines, [`threads`] starts the threads;
//! * `open_initial` and `take_initial_locks` open descriptors and take locks that exist before the first step;
//! * [`issue`] makes system calls, `rings` submits io_uring and Linux AIO requests;
//! * `handover` hands descriptors from thread to thread;
//! * `space` limits the disk space that calls take, `control_group` and `memory_limit` memory and tasks;
//! * [`progress`] lets steps wait for each other, `load` limits the number in flight, [`outcomes`] stores outcomes.
//!
//! May use: `base`, `reel`, `contents`, `model`, `plan`, `prepare`.

pub mod control_group;
pub(crate) mod credentials;
pub mod engine;
pub(crate) mod handover;
pub mod issue;
pub(crate) mod load;
pub mod memory_limit;
pub(crate) mod open_initial;
pub mod outcomes;
pub mod pace;
pub(crate) mod pieces;
pub mod progress;
pub(crate) mod rings;
pub(crate) mod space;
pub(crate) mod take_initial_locks;
pub mod threads;
