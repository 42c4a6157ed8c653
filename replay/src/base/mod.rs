//! Small parts that every stage uses: clock, error names, file kinds, distributions, path maps.

pub(crate) mod clock;
pub(crate) mod codec;
pub mod distribution;
pub mod errno;
pub(crate) mod file_kind;
pub(crate) mod ids;
