//! The engine: threads, deadlines, and the calls they issue.

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
