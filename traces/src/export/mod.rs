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

/// Why an export failed. One line that names the thing, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The reel lacks what the format represents, or the output is not possible as given.
    #[error("{path}: {why}", path = path.display())]
    Refused {
        /// The reel or the output.
        path: PathBuf,
        /// The cause and the remedy.
        why: String,
    },
    /// The reel cannot be read, or the output cannot be written.
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

/// Creates an output file, which must not exist.
fn create(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => ReelError::Exists { path: path.into() }.into(),
        _ => ReelError::io(path, "making the file")(e).into(),
    })
}
