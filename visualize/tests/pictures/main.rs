//! Pictures, looked at by people and by programs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod film;
mod gallery;
mod truth;
