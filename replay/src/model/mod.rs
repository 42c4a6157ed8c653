//! The recorded machine: names, processes, descriptors, sizes, locks.

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
