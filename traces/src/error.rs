//! Errors of a reel. Each is one line that names the thing, the cause and the remedy.

use std::path::PathBuf;

/// What can go wrong with a reel.
#[derive(Debug, thiserror::Error)]
pub enum ReelError {
    /// The folder does not exist or is not a reel.
    #[error("{path}: not a reel ({why}); name a folder written by `ioreel record -o`", path = path.display())]
    NotAReel {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The manifest cannot be parsed.
    #[error("{path}: cannot read the manifest: {why}; the reel is damaged or was not made by ioreel", path = path.display())]
    BadManifest {
        /// The manifest's path.
        path: PathBuf,
        /// The parser's message.
        why: String,
    },
    /// The reel has a newer major format.
    #[error(
        "{path}: reel format {found} is newer than this ioreel understands ({known}); use a newer ioreel", path = path.display()
    )]
    NewerFormat {
        /// The reel.
        path: PathBuf,
        /// Its format version.
        found: String,
        /// The newest format this build reads.
        known: String,
    },
    /// A table's segment cannot be read.
    #[error("{path}: cannot read this segment: {why}; `ioreel validate` lists every damaged segment", path = path.display())]
    BadSegment {
        /// The Parquet file.
        path: PathBuf,
        /// The reader's message.
        why: String,
    },
    /// A writer has locked the reel.
    #[error("{path}: is still being recorded; stop the recording first", path = path.display())]
    Busy {
        /// The reel.
        path: PathBuf,
    },
    /// The reel's writer died or is still running.
    #[error("{path}: the recording was not completed; run `ioreel validate --repair` first", path = path.display())]
    Unclosed {
        /// The reel.
        path: PathBuf,
    },
    /// A key so short that it could be found by trying all keys.
    #[error("{path}: the key is too short ({found} bytes); use at least {least}, for example from `head -c 32 /dev/urandom`", path = path.display())]
    ShortKey {
        /// The key file.
        path: PathBuf,
        /// Its length.
        found: usize,
        /// The minimum length.
        least: usize,
    },
    /// The output already exists.
    #[error("{path}: already exists; choose another name or remove it first", path = path.display())]
    Exists {
        /// The output's path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{path}: {doing}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The reel's path leads elsewhere than when its writer began.
    #[error(
        "{path}: was moved or replaced while it was written; the reel is in the folder that its recorder created", path = path.display()
    )]
    Moved {
        /// The path as named.
        path: PathBuf,
    },
    /// A segment could not be encoded or written.
    #[error("{path}: cannot write this segment: {why}; the segments before it form a valid reel", path = path.display())]
    Write {
        /// The Parquet file.
        path: PathBuf,
        /// The writer's message.
        why: String,
    },
}

impl ReelError {
    /// An I/O error of the action `doing` on `path`.
    pub fn io(path: impl Into<PathBuf>, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, doing, source }
    }
}
