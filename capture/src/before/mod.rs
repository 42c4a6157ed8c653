//! What existed before the workload: the `tree` table.
//!
//! In: a snapshot of the directories asked for, and the operations of the reel. Out: one row for each file and each absent
//! name. May use `host`, `calls` and `assemble`.

pub mod derive;
pub(crate) mod extents;
pub(crate) mod namespace;
pub(crate) mod snapshot;
