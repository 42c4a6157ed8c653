//! Collects problems: one entry per kind and table, with the first position and a count.

use std::{collections::HashMap, fmt};

use serde::Serialize;

use super::MAX_PROBLEMS;

/// The rule that is broken.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The reel was closed by its writer.
    State,
    /// The folder holds what the manifest lists and no more.
    Folder,
    /// A segment can be read completely and has the columns of its table.
    Segment,
    /// Rows, bytes and times of a segment match the manifest.
    Listed,
    /// Rows are sorted by time within a segment.
    Order,
    /// Ids are unique, and ascending where the table requires it.
    Ids,
    /// An id refers to an existing row of the other table.
    Reference,
    /// Times and durations are possible.
    Times,
    /// A word is in the list of its column, a number is in its range.
    Values,
    /// Every seen event was written, lost or left out.
    Ledger,
}

/// One kind of problem in one place.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken.
    pub check: Check,
    /// The file in the reel with the first occurrence.
    pub file: String,
    /// The row in that file, counted from 0.
    pub row: Option<i64>,
    /// The problem.
    pub what: String,
    /// Number of occurrences in this table, the first one included.
    pub times: u64,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(row) = self.row {
            write!(f, " row {row}")?;
        }
        write!(f, ": {}", self.what)?;
        match self.times {
            0 | 1 => Ok(()),
            2 => write!(f, " (and one more like it)"),
            n => write!(f, " (and {} more like it)", n - 1),
        }
    }
}

/// What has been found so far.
#[derive(Debug)]
pub(super) struct Findings {
    problems: Vec<Problem>,
    excused: Vec<Problem>,
    index: HashMap<(String, Check, &'static str), usize>,
    count: u64,
    notes: Vec<String>,
    /// Whether the reel is truncated. Dangling references are then expected: the writer did not write the rows they
    /// refer to.
    truncated: bool,
}

impl Findings {
    pub(super) fn new(truncated: bool) -> Self {
        Self {
            problems: Vec::new(),
            excused: Vec::new(),
            index: HashMap::new(),
            count: 0,
            notes: Vec::new(),
            truncated,
        }
    }

    /// Adds a remark that is not a problem.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds a problem in `file`. Problems with the same table, check and `column` are counted together.
    pub(super) fn add(
        &mut self,
        check: Check,
        file: &str,
        column: &'static str,
        row: Option<i64>,
        what: impl FnOnce() -> String,
    ) {
        let excused = self.truncated && check == Check::Reference;
        if !excused {
            self.count += 1;
        }
        let list = if excused { &mut self.excused } else { &mut self.problems };
        // Problems of rows may repeat a million times, so they are grouped by table. Problems of files are separate.
        let place = if row.is_some() { file.split('/').next().unwrap_or(file) } else { file };
        let key = (place.to_owned(), check, column);
        if let Some(at) = self.index.get(&key) {
            if let Some(p) = list.get_mut(*at) {
                p.times += 1;
            }
        } else if list.len() < MAX_PROBLEMS {
            self.index.insert(key, list.len());
            list.push(Problem { check, file: file.to_owned(), row, what: what(), times: 1 });
        }
    }

    /// The problems, their total number including unlisted ones, and the notes.
    pub(super) fn into_parts(mut self) -> (Vec<Problem>, u64, Vec<String>) {
        self.notes.extend(self.excused.iter().map(|p| format!("{p}; expected, because the reel is truncated")));
        (self.problems, self.count, self.notes)
    }
}
