//! Writes a reel in the formats of other tools.
//!
//! In: a reel. Out: files for blkparse, fio or Perfetto, or a table as CSV or JSON lines.
//! May use: `format`, `private`, `reader`, `blktrace`, `suggest`.

pub mod blktrace;
pub mod fio;
pub mod perfetto;
pub mod table;

use std::path::{Path, PathBuf};

use crate::{ReelError, private::Output};

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

/// Creates an output file, which must not exist. It is removed again unless [`keep`] is called.
fn create(path: &Path) -> Result<Output> {
    Output::create(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => ReelError::Exists { path: path.into() }.into(),
        _ => ReelError::io(path, "making the file")(e).into(),
    })
}

/// Lets an output file stay: it is whole.
fn keep(output: Output) -> Result<()> {
    let path = output.path().to_owned();
    Ok(output.keep().map_err(ReelError::io(&path, "completing the file"))?)
}
