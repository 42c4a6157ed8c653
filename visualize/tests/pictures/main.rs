//! Pictures, looked at by people and by programs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod brute;
mod charts;
mod common;
mod compare;
mod faults;
mod fields;
mod film;
mod gallery;
mod imported;
mod kept;
mod lines;
mod table;
mod truth;
