//! The reel: a folder of Parquet tables that records what happened to files and devices.
//!
//! Recording and replaying write reels; statistics and pictures read them. `docs/trace-format.md` describes the format for
//! other Parquet readers. Stages, each of which uses only those named:
//!
//! * [`confine`]: confines threads that handle input from elsewhere. Uses nothing else;
//! * [`format`]: rows, columns, tables and the manifest. Uses [`error`] only, as every stage may;
//! * [`host`]: facts of this machine, and FIEMAP. Uses `format`;
//! * [`anonymize`]: replaces names by keyed hashes. Uses `format`, `host`;
//! * [`reader`]: opens a reel and streams its rows. Uses `format`;
//! * [`writer`]: writes segments that survive a crash; rotates, copies and anonymizes reels. Uses `format`, `anonymize`, `reader`;
//! * [`validate`]: checks and repairs a reel. Uses `format`, `reader`, `writer`;
//! * [`blktrace`]: the records of block traces. Uses nothing else;
//! * [`suggest`]: messages about unknown names. Uses nothing else;
//! * [`shared_map`]: a map whose copies share memory. Uses nothing else;
//! * [`import`]: makes reels from other tools' traces. Uses `format`, `host`, `writer`, `blktrace`, `suggest`,
//!   `shared_map`;
//! * [`export`]: writes other tools' formats. Uses `format`, `reader`, `blktrace`, `suggest`.

pub mod anonymize;
pub mod blktrace;
pub mod confine;
pub mod error;
pub mod export;
pub mod format;
pub mod host;
pub mod import;
pub mod private;
pub mod reader;
pub mod shared_map;
pub mod suggest;
pub mod validate;
pub mod writer;

pub use error::ReelError;
pub use format::{
    calls, columns, disk, manifest, manifest::Manifest, mounting, rows, table, tables, text, text::Text, xattrs,
};
pub use host::fiemap;
pub use reader::Reel;
pub use writer::{ReelWriter, TableWriter, WriterOptions, anonymized, causes, rotate};

/// Shorthand for results of this crate.
pub type Result<T, E = ReelError> = std::result::Result<T, E>;
