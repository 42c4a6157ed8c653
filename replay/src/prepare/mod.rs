//! Prepares the target before the first step.
//!
//! In: a plan and the directories to replay into. Out: a directory tree as the workload found it, and threads confined
//! to it.
//!
//! * [`target`] opens the directory, [`path_map`] those of `--map`; `inside_reel` refuses paths inside the reel;
//! * [`tree`] lists and creates files, [`layout`] reproduces their extents, [`page_cache`] fills or empties the page
//!   cache;
//! * [`restore`] returns a target to that state after a replay;
//! * [`containment`] enters namespaces and limits privileges.
//!
//! May use: `base`, `reel`, `contents`, `model`, `plan`.

pub mod containment;
pub mod directory;
pub(crate) mod inside_reel;
pub mod layout;
pub(crate) mod mapped_targets;
pub mod page_cache;
pub mod path_map;
pub mod restore;
pub mod target;
pub mod tree;
