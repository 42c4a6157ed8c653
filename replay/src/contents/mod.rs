//! The contents of files.
//!
//! In: what the reel says of written data, and the options for it. Out: bytes to write, and the check of bytes read.
//!
//! * [`data`] generates data from a key and a position; [`buffers`] holds the memory that calls read from and write to;
//! * [`fill`] fills files before the start;
//! * [`read_checks`] compares reads with what was written (`--verify`);
//! * `slice_contents` tracks how much of a file holds data when a slice starts.
//!
//! May use: `base`, `reel`.

pub mod buffers;
pub mod data;
pub mod fill;
pub mod read_checks;
pub(crate) mod slice_contents;
