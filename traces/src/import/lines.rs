//! Reads text line by line with bounded memory.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use super::{ImportError, Result};

/// Maximum length of a line. Traces have no longer lines, so a longer one means that the file is not text.
const MOST_BYTES: usize = 1 << 20;

/// Characters of a line that an error message shows.
const MOST_QUOTED: usize = 40;

/// Lines of a file.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Number of the current line, from 1.
    pub(super) number: i64,
    /// Whether the current line is the last one and has no line break: it may be incomplete.
    pub(super) cut: bool,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(ImportError::reading(path))?;
        let reader = BufReader::with_capacity(256 * 1024, file);
        Ok(Self { path: path.into(), reader, line: Vec::new(), number: 0, cut: false })
    }

    /// The next line without its line break. `None` at the end of the file.
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
            return Err(self.wrong("longer than 1 MiB, so this is not a text file; name a text file"));
        }
        while matches!(self.line.last(), Some(b'\n' | b'\r')) {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }

    /// An error in the current line: `line 3: WHY`.
    pub(super) fn wrong(&self, why: impl std::fmt::Display) -> ImportError {
        self.error(format!("line {}: {why}", self.number))
    }

    /// An error about this file.
    pub(super) fn error(&self, why: impl Into<String>) -> ImportError {
        ImportError::input(&self.path, why)
    }

    /// A message about the current line as a whole: `line 3 WHAT: 'its beginning…'; REMEDY`.
    pub(super) fn describe(&self, what: &str, remedy: &str) -> String {
        format!("line {} {what}: {}; {remedy}", self.number, quoted(&self.line))
    }
}

/// The beginning of a text in quotes, for an error message.
pub(super) fn quoted(text: &[u8]) -> String {
    let start = String::from_utf8_lossy(&text[..text.len().min(4 * MOST_QUOTED)]);
    let cut = text.len() > 4 * MOST_QUOTED || start.chars().count() > MOST_QUOTED;
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let shown: String = start.chars().take(MOST_QUOTED).map(plain).collect();
    format!("'{shown}{}'", if cut { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_short() {
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"a\r\x1b[2J"), "'a\u{fffd}\u{fffd}[2J'");
        assert_eq!(quoted("é".repeat(40).as_bytes()), format!("'{}'", "é".repeat(40)));
        assert_eq!(quoted(&[b'x'; 5000]), format!("'{}…'", "x".repeat(40)));
    }
}
