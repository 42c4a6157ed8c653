//! The plan: what each thread does, and what each step waits for.

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
