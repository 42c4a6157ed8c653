//! The engine: threads, deadlines, and the calls they issue.
//!
//! In: a plan, inside a prepared target. Out: the outcome of each operation.
//!
//! * [`engine`] runs a thread's program, [`pace`] says when a step is due; [`threads`] starts the threads;
//! * `open_initial` and `take_initial_locks` make what threads have before their first step;
//! * [`issue`] makes system calls, `rings` requests to io_uring and of Linux AIO;
//! * [`progress`] lets steps wait for each other, `load` limits the number in flight; [`outcomes`] keeps what happened.
//!
//! May use: `base`, `reel`, `contents`, `model`, `plan`, `prepare`.

pub(crate) mod credentials;
pub mod engine;
pub mod issue;
pub(crate) mod load;
pub mod memory_limit;
pub(crate) mod open_initial;
pub mod outcomes;
pub mod pace;
pub(crate) mod pieces;
pub mod progress;
pub(crate) mod rings;
pub(crate) mod take_initial_locks;
pub mod threads;
