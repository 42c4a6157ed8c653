//! Events of a reel as streams, and the scope that selects them.
//!
//! In: the tables of a reel. Out: requests in dispatch order, bios and system calls, one at a time. May use: nothing
//! else of this crate.
//!
//! * [`requests`], [`bios`] and [`calls`] stream one table each; `order` sorts rows of overlapping segments;
//! * [`targets`] tells files from pipes, devices and nowhere; [`scope`] selects by time, device, file and task; [`stages`] finds the block-layer stages before a request's issue.

pub mod bios;
pub mod calls;
pub(crate) mod order;
pub mod requests;
pub mod scope;
pub mod stages;
pub mod targets;
