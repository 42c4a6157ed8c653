//! Checks a reel against the rules of the format, and repairs one whose writer died.
//!
//! In: a reel's folder. Out: findings; after a repair, a complete reel. May use: `format`, `private`, `reader`, and `writer` to write the rows of
//! open segments.
//! Memory: one batch of rows and one bit per id. `docs/trace-format.md` lists what is checked.

mod checks;
mod columns;
mod findings;
mod folder;
mod ids;
mod ledger;
mod repair;
mod tables;

use std::path::Path;

use serde::Serialize;

pub use findings::{Check, Problem};

use crate::{Reel, ReelError, Result, format::manifest::State, private::Folder};

/// Result of [`validate`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Path of the reel, as given.
    pub reel: String,
    /// Whether no problem was found.
    pub valid: bool,
    /// Whether it was closed by its writer.
    pub state: State,
    /// The problems, one entry per kind, at most [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// Total number of problems in rows, files and sums, unlisted ones included.
    pub problem_count: u64,
    /// Remarks that are not problems.
    pub notes: Vec<String>,
    /// What `repair` changed.
    pub repaired: Vec<String>,
    /// Rows found per table.
    pub tables: Vec<TableReport>,
}

/// Contents of a table.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct TableReport {
    /// Name of the table.
    pub table: &'static str,
    /// Number of segments that could be read completely.
    pub segments: u64,
    /// Rows in them.
    pub rows: i64,
}

/// Maximum length of [`Report::problems`].
pub const MAX_PROBLEMS: usize = 100;

/// Checks the reel at `path`. With `repair`, first adds segments that the manifest does not list, removes incomplete
/// files of a dead writer, moves damaged segments aside (`.damaged`), and updates the manifest.
///
/// # Errors
/// If this is not a reel, its manifest cannot be read or has a newer format, or the repair fails. Problems inside the
/// reel are in the report instead.
pub fn validate(path: &Path, repair: bool) -> Result<Report> {
    let reel_folder = Folder::open(path).map_err(|e| ReelError::NotAReel { path: path.into(), why: e.to_string() })?;
    let mut reel = Reel::open_in(&reel_folder)?;
    let busy = folder::writer_at_work(&reel_folder)?;
    let mut repaired = Vec::new();
    if repair {
        if busy {
            return Err(ReelError::Busy { path: path.into() });
        }
        repaired = repair::repair(&reel_folder, &mut reel.manifest)?;
    }
    let mut found = findings::Findings::new(reel.manifest.state != State::Complete);
    folder::check(&reel, &reel_folder, &mut found)?;
    if reel.manifest.state == State::Recording {
        let what = if busy {
            "the reel is still being recorded; validate it when the recording has ended"
        } else {
            "the recording was not completed; `ioreel validate --repair` completes the reel with what was written"
        };
        found.add(Check::State, "manifest.json", "state", None, || what.into());
    }
    if reel.manifest.snapshot.is_some_and(|s| s.partial) {
        found.note("the snapshot of the tree is partial: a name that is not in `tree` is unknown, not absent".into());
    }
    let sums = tables::check(&reel, &reel_folder, &mut found);
    ledger::check(&reel.manifest, &sums, &mut found);
    let (problems, problem_count, notes) = found.into_parts();
    Ok(Report {
        reel: path.display().to_string(),
        valid: problem_count == 0,
        state: reel.manifest.state,
        problems,
        problem_count,
        notes,
        repaired,
        tables: sums.tables,
    })
}
