//! The content of a picture before drawing.
//!
//! In: reels, and the device and time window to show. Out: a survey of each reel, axes, palettes, and the shapes
//! that panels fill. May use: `canvas`.
//!
//! * [`survey`] reads a reel once for its devices, address ranges and end; `caption` describes it in words;
//! * [`idle`] cuts quiet stretches out of the time axis;
//! * [`offset_axis`] is the address axis without unused gaps, `occupants` what lies in its bands, `value_axis` the rows of
//!   other vertical axes;
//! * `shape` contains the panels' output, `sheet` the totals for the table, `palette` the meaning of colours.

pub(crate) mod caption;
pub mod idle;
pub(crate) mod occupants;
pub mod offset_axis;
pub(crate) mod palette;
pub(crate) mod shape;
pub(crate) mod sheet;
pub mod survey;
pub(crate) mod value_axis;
