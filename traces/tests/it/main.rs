//! The reel from outside: written, read, damaged, checked, documented.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod anonymize;
mod blktrace;
mod common;
mod doc;
mod formats;
mod fuzz;
mod limits;
mod perfetto;
mod private;
mod reel;
mod samples;
mod validate;
