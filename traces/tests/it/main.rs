//! The reel from outside: written, read, damaged, checked, documented.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod anonymize;
mod blkparse;
mod blktrace;
mod common;
mod datasets;
mod doc;
mod formats;
mod fuzz;
mod ktrace;
mod limits;
mod perfetto;
mod private;
mod reel;
mod samples;
mod strace;
mod validate;
