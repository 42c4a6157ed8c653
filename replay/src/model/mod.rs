//! The recorded machine, followed operation by operation.
//!
//! In: operations of a reel. Out: the state of the machine as of each operation, and what results prove of the state at the start.
//!
//! * `machine` holds the parts; [`names`] is the name space, [`processes`] the processes, descriptors and mappings;
//! * [`sizes`], [`locks`], [`attributes`] and [`credentials`] follow these;
//! * [`operands`] resolves the descriptors and paths of a call; `effects` applies its result;
//! * `outside_roots` follows what crosses the border of `--root`.
//!
//! May use: `base`, `reel`, `contents`.

pub mod attributes;
pub mod credentials;
pub mod data_keys;
pub(crate) mod effects;
pub(crate) mod lock_effects;
pub mod locks;
pub(crate) mod lookups;
pub(crate) mod machine;
pub(crate) mod mappings;
pub(crate) mod named_files;
pub mod names;
pub mod operands;
pub(crate) mod outside_roots;
pub(crate) mod path_resolution;
pub mod processes;
pub mod sizes;
