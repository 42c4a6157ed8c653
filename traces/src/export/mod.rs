//! Writes a reel in the formats of other tools.
//!
//! In: a reel. Out: files for blkparse, fio or Perfetto, or a table as CSV or JSON lines.
//! May use: `format`, `reader`, `blktrace`, `suggest`.

pub mod blktrace;
pub mod fio;
pub mod perfetto;
pub mod table;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use crate::ReelError;

/// Why a reel could not be exported, one line: the thing, the cause, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The reel does not hold what the format is about, or the output cannot be as asked.
    #[error("{path}: {why}", path = path.display())]
    Refused {
        /// The reel or the output.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The reel cannot be read, or the output not written.
    #[error(transparent)]
    Reel(#[from] ReelError),
}

impl ExportError {
    pub(crate) fn refused(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Refused { path: path.into(), why: why.into() }
    }
}

/// Shorthand for results of an export.
pub type Result<T, E = ExportError> = std::result::Result<T, E>;

/// Makes an output file, which must not be there yet.
fn create(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => ReelError::Exists { path: path.into() }.into(),
        _ => ReelError::io(path, "making the file")(e).into(),
    })
}
