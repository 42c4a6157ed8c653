//! The reel's format: tables, columns and the manifest.
//!
//! In: Rust structs, one per table. Out: Arrow columns and batches, and back; the manifest as JSON.
//! May use: `error`, `private`. Independent of writers, the recorder and the command line.
//!
//! * [`rows`] declares the tables, [`tables`] lists them, [`table`] converts rows to and from Arrow batches;
//! * [`columns`] builds columns, [`bytes`] and [`text`] are the cell types for bytes and strings;
//! * [`calls`] lists system calls that several crates treat alike;
//! * [`mounting`] says what the flags of mount(2) ask for;
//! * [`xattrs`] stores the extended attributes of a file as one text;
//! * [`manifest`] describes the reel as a whole, [`disk`] groups block-layer rows with their manifest entries.

pub mod bytes;
pub mod calls;
pub mod columns;
pub mod disk;
pub mod manifest;
pub mod mounting;
pub mod rows;
pub mod table;
pub mod tables;
pub mod text;
pub mod xattrs;
