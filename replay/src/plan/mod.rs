//! The plan: the program of each thread, and what each step waits for.
//!
//! In: operations of a reel, and the recorded machine. Out: a [`program::Plan`], made without touching a file system.
//!
//! * `walk` visits operations in the order in which they took effect; `overlap` and `races` determine it where calls
//!   overlap, `pool` holds those in flight;
//! * `commit` adds one operation to its thread's program; `resources` lists what it uses;
//! * [`dependencies`] and [`edge`] determine what a step waits for; `requests` and `pipes` plan io_uring and AIO
//!   requests, and streams; `messages` and `receipts` plan descriptors that change hands;
//! * `slice_start` and `initial_*` describe the state at the start, which [`run`](crate::run) opens, maps and locks;
//! * [`gaps`] counts the operations on replayed files that are left out;
//! * [`chunk`] and [`store`] store programs in pieces.
//!
//! May use: `base`, `reel`, `contents`, `model`.

pub mod chunk;
pub(crate) mod commit;
pub mod dependencies;
pub mod edge;
pub mod gaps;
pub mod initial_descriptors;
pub(crate) mod initial_locks;
pub(crate) mod initial_threads;
pub(crate) mod lock_steps;
pub(crate) mod messages;
pub(crate) mod overlap;
pub(crate) mod pipes;
pub(crate) mod planner;
pub(crate) mod pool;
pub mod program;
pub(crate) mod programs;
pub(crate) mod races;
pub(crate) mod receipts;
pub(crate) mod requests;
pub(crate) mod resources;
pub(crate) mod slice_start;
pub mod store;
pub(crate) mod walk;
