//! Makes reels from traces of other tools.
//!
//! In: files of blktrace, blkparse, kernel tracepoints, bcc, fio, strace or CSV. Out: a reel. May use: `format`, `host`,
//! `writer`, `blktrace`, `suggest`, `shared_map`. A new importer is a file here that fills rows of `format::rows`, a line in
//! `detect.rs`, and a subcommand in `src/import.rs`.

pub mod bcc;
pub mod blkparse;
pub mod blktrace;
pub mod csv;
mod damage;
pub mod detect;
pub mod fio;
mod input;
pub mod ktrace;
mod lines;
mod made;
mod paths;
mod records;
pub mod strace;
mod syscalls;
mod words;

use std::path::PathBuf;

use crate::ReelError;

/// Why an import failed. One line that names the thing, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input is not in the expected format.
    #[error("{path}: {why}", path = path.display())]
    Input {
        /// The input.
        path: PathBuf,
        /// The cause and the remedy.
        why: String,
    },
    /// The reel cannot be written.
    #[error(transparent)]
    Reel(#[from] ReelError),
}

impl ImportError {
    /// A format error of this input.
    pub(crate) fn input(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Input { path: path.into(), why: why.into() }
    }

    /// A system error of this input, or why the import cannot go on.
    pub(crate) fn reading(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |e| {
            let why = input::stopped(&e).map_or_else(|| format!("cannot read this file: {e}"), str::to_owned);
            Self::Input { path, why }
        }
    }
}

/// Shorthand for results of an import.
pub type Result<T, E = ImportError> = std::result::Result<T, E>;
