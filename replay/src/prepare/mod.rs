//! The target before the first step: its tree, layout, page cache, and the containment of the replay.

pub mod containment;
pub(crate) mod inside_reel;
pub mod layout;
pub(crate) mod mapped_targets;
pub mod page_cache;
pub mod path_map;
pub mod restore;
pub mod target;
pub mod tree;
