//! Reads text line by line with bounded memory.

use std::{
    io::{BufRead, Read},
    path::PathBuf,
};

use super::{
    ImportError, Result,
    input::{self, Bytes, Source},
};

/// Maximum length of a line. A longer one is skipped and counted.
const MOST_BYTES: usize = 1 << 20;

/// Characters of a line that an error message shows.
const MOST_QUOTED: usize = 40;

/// Lines of one file after the other.
pub(super) struct Lines {
    /// Files not yet begun, last first.
    left: Vec<Source>,
    path: PathBuf,
    reader: Option<Bytes>,
    compressed: bool,
    line: Vec<u8>,
    /// Number of the current line in its file, from 1.
    pub(super) number: i64,
    /// Number of lines read from all files.
    pub(super) read: i64,
    /// Whether the current line is the last one and has no line break: it may be incomplete.
    pub(super) cut: bool,
    /// Number of files begun.
    pub(super) files: usize,
    /// Lines skipped for their length.
    pub(super) too_long: i64,
    /// Why compressed files end early, one message for each.
    pub(super) broken: Vec<String>,
}

impl Lines {
    pub(super) fn of(sources: &[Source]) -> Self {
        Self {
            left: sources.iter().rev().cloned().collect(),
            path: sources.first().map(|s| s.name.clone()).unwrap_or_default(),
            reader: None,
            compressed: false,
            line: Vec::new(),
            number: 0,
            read: 0,
            cut: false,
            files: 0,
            too_long: 0,
            broken: Vec::new(),
        }
    }

    /// Opens the next file. False if there is none.
    fn begin(&mut self) -> Result<bool> {
        let Some(source) = self.left.pop() else { return Ok(false) };
        let (reader, compressed) = source.open()?;
        (self.path, self.reader, self.compressed) = (source.name, Some(reader), compressed);
        (self.number, self.cut) = (0, false);
        self.files += 1;
        Ok(true)
    }

    /// The next line without its line break. `None` at the end of the last file.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let Some(reader) = &mut self.reader else {
                if self.begin()? {
                    continue;
                }
                return Ok(None);
            };
            self.line.clear();
            let mut got = reader.take(MOST_BYTES as u64).read_until(b'\n', &mut self.line);
            if matches!(got, Ok(MOST_BYTES)) && self.line.last() != Some(&b'\n') {
                self.too_long += 1;
                self.number += 1;
                match reader.skip_until(b'\n') {
                    Ok(_) => continue,
                    Err(e) => got = Err(e),
                }
            }
            match got {
                Ok(0) => self.reader = None,
                Ok(_) => break,
                // A copy that cannot be kept is no damage of the file.
                Err(e) if self.compressed && input::stopped(&e).is_none() => {
                    let (path, n) = (self.path.display(), self.number);
                    self.broken.push(format!("{path}: the compressed data is damaged or ends after line {n}: {e}"));
                    self.reader = None;
                }
                Err(e) => return Err(ImportError::reading(&self.path)(e)),
            }
        }
        self.number += 1;
        self.read += 1;
        self.cut = self.line.last() != Some(&b'\n');
        while matches!(self.line.last(), Some(b'\n' | b'\r')) {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }

    /// The current line.
    pub(super) fn current(&self) -> &[u8] {
        &self.line
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
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_short() {
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"a\r\x1b[2J"), "'a\u{fffd}\u{fffd}[2J'");
        assert_eq!(quoted("é".repeat(40).as_bytes()), format!("'{}'", "é".repeat(40)));
        assert_eq!(quoted(&[b'x'; 5000]), format!("'{}…'", "x".repeat(40)));
    }

    #[test]
    fn a_long_line_is_skipped_and_files_follow_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let long = "x".repeat(MOST_BYTES + 7);
        std::fs::write(at("a"), format!("one\n{long}\ntwo\r\n{long}")).unwrap();
        std::fs::write(at("b"), "three").unwrap();
        let mut lines = Lines::of(&[Source::of(&at("a")), Source::of(&at("b"))]);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let line = String::from_utf8(line.to_vec()).unwrap();
            seen.push((line, lines.number, lines.cut));
        }
        let line = |text: &str, number, cut| (text.to_owned(), number, cut);
        assert_eq!(seen, [line("one", 1, false), line("two", 3, false), line("three", 1, true)]);
        assert_eq!((lines.too_long, lines.read, lines.files), (2, 3, 2));
    }
}
