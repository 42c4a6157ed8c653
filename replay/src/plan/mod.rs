//! The plan: what each thread does, and what each step waits for.
//!
//! In: operations of a reel, and the recorded machine. Out: a [`program::Plan`], made without touching a file system.
//!
//! * `walk` goes through the reel in the order of effects; `overlap` and `races` find that order where calls overlap;
//! * `commit` adds one operation to its thread's program; `resources` lists what it uses;
//! * [`dependencies`] and [`edge`] are what a step waits for; `requests` and `pipes` plan these;
//! * `slice_start` and `initial_*` describe the state at the start: [`run`](crate::run) opens, maps and locks it;
//! * [`chunk`] and [`store`] keep programs in pieces.
//!
//! May use: `base`, `reel`, `contents`, `model`.

pub mod chunk;
pub(crate) mod commit;
pub mod dependencies;
pub mod edge;
pub mod initial_descriptors;
pub(crate) mod initial_locks;
pub(crate) mod initial_threads;
pub(crate) mod lock_steps;
pub(crate) mod overlap;
pub(crate) mod pipes;
pub(crate) mod planner;
pub mod program;
pub(crate) mod programs;
pub(crate) mod races;
pub(crate) mod requests;
pub(crate) mod resources;
pub(crate) mod slice_start;
pub mod store;
pub(crate) mod walk;
