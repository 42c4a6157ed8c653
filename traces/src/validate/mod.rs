//! Checks a reel against the rules of the format, and repairs one whose writer died.
//!
//! In: a reel's folder. Out: findings; after a repair, a complete reel. May use: `format`, `reader`.
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

use crate::{Reel, ReelError, Result, format::manifest::State};

/// What [`validate`] found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The reel as named.
    pub reel: String,
    /// Whether the reel keeps its promises: no problem was found.
    pub valid: bool,
    /// Whether it was closed by its writer.
    pub state: State,
    /// What was wrong, one entry per kind, at most [`MAX_PROBLEMS`] entries.
    pub problems: Vec<Problem>,
    /// How many rows, files and sums are wrong, the unlisted ones included.
    pub problem_count: u64,
    /// Things a reader should know that break no promise.
    pub notes: Vec<String>,
    /// What `repair` changed.
    pub repaired: Vec<String>,
    /// Rows found per table.
    pub tables: Vec<TableReport>,
}

/// What was read of one table.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct TableReport {
    /// The table.
    pub table: &'static str,
    /// Segments that could be read to the end.
    pub segments: u64,
    /// Rows in them.
    pub rows: i64,
}

/// Entries in [`Report::problems`]: more would not be read.
pub const MAX_PROBLEMS: usize = 100;

/// Checks the reel at `path`. With `repair`, first takes in segments that the manifest does not list, removes
/// what a dead writer left half written, moves damaged segments aside (`.damaged`) and brings the manifest in line.
///
/// # Errors
/// When there is no reel to check, its manifest cannot be read or is of a newer format, or the repair cannot be
/// done. What is wrong *inside* the reel is in the report instead.
pub fn validate(path: &Path, repair: bool) -> Result<Report> {
    let mut reel = Reel::open_as_it_is(path)?;
    let busy = folder::writer_at_work(path)?;
    let mut repaired = Vec::new();
    if repair {
        if busy {
            return Err(ReelError::Busy { path: path.into() });
        }
        repaired = repair::repair(path, &mut reel.manifest)?;
    }
    let mut found = findings::Findings::new(reel.manifest.state != State::Complete);
    folder::check(&reel, &mut found)?;
    if reel.manifest.state == State::Recording {
        let what = if busy {
            "the reel is still being recorded; validate it when the recording has ended"
        } else {
            "the recording was not completed; `ioreel validate --repair` completes the reel with what was written"
        };
        found.add(Check::State, "manifest.json", "state", None, || what.into());
    }
    let sums = tables::check(&reel, &mut found);
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
