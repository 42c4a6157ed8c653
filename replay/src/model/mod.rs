//! The recorded machine: names, processes, descriptors, sizes, locks.

pub mod locks;
pub(crate) mod named_files;
pub mod names;
pub mod processes;
pub mod sizes;
