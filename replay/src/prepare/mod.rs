//! The target before the first step: its tree, layout, page cache, and the containment of the replay.

pub mod containment;
pub mod layout;
pub(crate) mod mapped_targets;
pub mod page_cache;
pub mod restore;
pub(crate) mod separate;
pub mod target;
pub mod tree;
