//! Text read line by line, in bounded memory.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use super::{ImportError, Result};

/// The longest line taken: no trace of calls has longer ones, and what is no text has no lines.
const MOST_BYTES: usize = 1 << 20;

/// The lines of a file.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Number of the line at hand, from 1.
    pub(super) number: i64,
    /// Whether the line at hand is the file's last and has no end: it may be cut.
    pub(super) cut: bool,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(ImportError::reading(path))?;
        let reader = BufReader::with_capacity(256 * 1024, file);
        Ok(Self { path: path.into(), reader, line: Vec::new(), number: 0, cut: false })
    }

    /// The next line without its end; none at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let mut limited = (&mut self.reader).take(MOST_BYTES as u64);
        let got = limited.read_until(b'\n', &mut self.line).map_err(ImportError::reading(&self.path))?;
        if got == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.cut = self.line.last() != Some(&b'\n');
        if self.cut && got >= MOST_BYTES {
            return Err(self.wrong("has no end within 1 MiB, so this is no text; name a text file"));
        }
        while matches!(self.line.last(), Some(b'\n' | b'\r')) {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }

    /// An error at the line at hand.
    pub(super) fn wrong(&self, why: impl std::fmt::Display) -> ImportError {
        ImportError::input(&self.path, format!("line {}: {why}", self.number))
    }
}
