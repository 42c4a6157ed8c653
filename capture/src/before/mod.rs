//! What existed before the workload: the `tree` table.
//!
//! In: a snapshot of the requested directories, and the operations of the reel. Out: one row per file and per name
//! known to be absent. May use `host`, `calls` and `assemble`.

pub mod derive;
pub(crate) mod extents;
pub(crate) mod namespace;
pub(crate) mod snapshot;
