//! The recorded machine: a model of the traced system, updated operation by operation.
//!
//! In: operations of a reel. Out: the state of the machine at each operation, and what results prove about the state at
//! the start.
//!
//! * `machine` holds the parts; [`names`] is the name space, [`processes`] has processes, descriptors and mappings;
//! * [`sizes`], [`locks`], [`attributes`] and [`credentials`] follow file sizes, locks, attributes and user ids;
//! * [`operands`] resolves the descriptors and paths of a call; `effects` applies its result;
//! * `outside_roots` follows what crosses the boundary of `--root`.
//!
//! May use: `base`, `reel`, `contents`.

pub(crate) mod access_lists;
pub mod attributes;
pub mod credentials;
pub mod data_keys;
pub(crate) mod device_nodes;
pub(crate) mod effects;
pub(crate) mod handles;
pub(crate) mod holes;
pub(crate) mod left_out;
pub(crate) mod lock_effects;
pub mod locks;
pub(crate) mod lookups;
pub(crate) mod machine;
pub(crate) mod mappings;
pub(crate) mod mounts;
pub(crate) mod named_files;
pub mod names;
pub mod operands;
pub(crate) mod outside_roots;
pub(crate) mod path_resolution;
pub mod processes;
pub mod sizes;
pub(crate) mod subvolumes;
mod user_name_spaces;
