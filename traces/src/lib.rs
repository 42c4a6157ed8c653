//! The reel: a folder of Parquet tables that says what happened to files and devices.
//!
//! Everything ioreel does reads or writes a reel: recording makes one, replaying one makes another,
//! statistics and pictures read nothing else. `docs/trace-format.md` describes the format for people
//! with other Parquet readers.
//!
//! * [`rows`] declares the tables, one Rust struct each;
//! * [`tables`] lists them;
//! * [`table`] turns such structs into Arrow batches and back;
//! * [`columns`] collects rows as columns;
//! * [`writer`] cuts them into segments that survive a crash;
//! * [`reader`] opens a reel and streams its rows;
//! * [`fiemap`] asks where a file lies on its disk;
//! * [`host`] reads what a manifest says of the machine;
//! * [`manifest`] is what is true of the reel as a whole;
//! * [`anonymize`] replaces names by keyed hashes;
//! * [`export`] writes reels in other tools' formats;
//! * [`import`] makes reels of other tools' traces;
//! * [`blktrace`] is the format of block traces;
//! * [`validate`] holds a reel against its own promises.

pub mod anonymize;
pub mod blktrace;
pub mod error;
pub mod export;
pub mod format;
pub mod host;
pub mod import;
pub mod reader;
pub mod validate;
pub mod writer;

pub use error::ReelError;
pub use format::{columns, disk, manifest, manifest::Manifest, rows, table, tables, text, text::Text};
pub use host::fiemap;
pub use reader::Reel;
pub use writer::{ReelWriter, TableWriter, WriterOptions, anonymized, causes, rotate};

/// Shorthand for results of this crate.
pub type Result<T, E = ReelError> = std::result::Result<T, E>;
