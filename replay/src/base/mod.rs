//! Small parts that every stage uses.
//!
//! They know nothing of reels or plans: clock, byte codec, distributions, errno names, file types, paths, user ids
//! and what planning may cost.
//! A part belongs here if at least two stages need it and it has no state of a replay.
//!
//! May use: no other stage.

pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod codec;
pub mod distribution;
pub mod errno;
pub(crate) mod file_kind;
pub(crate) mod ids;
pub(crate) mod paths;
pub mod privileges;
pub(crate) mod subvolumes;
