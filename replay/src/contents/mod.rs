//! What files hold: made-up data, recorded data, and the check of what is read back.

pub mod buffers;
pub mod data;
pub mod fill;
pub mod read_checks;
pub(crate) mod slice_contents;
