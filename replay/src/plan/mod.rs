//! The plan: what each thread does, and what each step waits for.

pub mod attributes;
pub mod chunk;
pub(crate) mod commit;
pub mod credentials;
pub mod dependencies;
pub(crate) mod draft;
pub mod edge;
pub(crate) mod effects;
pub mod initial_descriptors;
pub(crate) mod initial_locks;
pub(crate) mod initial_threads;
pub(crate) mod lock_effects;
pub(crate) mod operands;
pub(crate) mod outside_roots;
pub(crate) mod overlap;
pub(crate) mod path_resolution;
pub(crate) mod pipes;
pub(crate) mod planner;
pub mod program;
pub(crate) mod races;
pub(crate) mod requests;
pub(crate) mod resources;
pub(crate) mod root_rounds;
pub(crate) mod slice;
pub mod store;
