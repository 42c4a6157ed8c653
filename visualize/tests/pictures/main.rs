//! Pictures, looked at by people and by programs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod brute;
mod common;
mod faults;
mod fields;
mod film;
mod gallery;
mod lines;
mod truth;
