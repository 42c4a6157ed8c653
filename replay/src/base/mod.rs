//! Small parts that every stage uses.
//!
//! They know nothing of reels or plans: the clock, a byte codec, distributions, names of errors, kinds of files, paths
//! and user ids. A part goes here if at least two stages need it and it has no state of a replay.
//!
//! May use: no other stage.

pub(crate) mod clock;
pub(crate) mod codec;
pub mod distribution;
pub mod errno;
pub(crate) mod file_kind;
pub(crate) mod ids;
pub(crate) mod paths;
pub mod privileges;
