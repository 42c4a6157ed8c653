//! The table `names` summarised for `ioreel info`.

use std::collections::BTreeMap;

use ioreel_traces::{Reel, Result, rows::Name, table::Row};
use serde::Serialize;

use crate::columns::count;

/// Counts over the table `names`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NameFacts {
    /// Rows. A name that a file had twice counts twice.
    names: u64,
    /// Rows whose file is known.
    with_file: u64,
    /// Rows by how the file got the name (words of `names.how`).
    how: BTreeMap<String, u64>,
    /// Rows by how the file lost the name (words of `names.ended`); names still valid at the end are not counted.
    ended: BTreeMap<String, u64>,
}

impl NameFacts {
    /// Counts the rows of `reel`; `None` if it has no such table.
    pub(crate) fn of(reel: &Reel) -> Result<Option<Self>> {
        if !reel.manifest.segments.contains_key(Name::TABLE) {
            return Ok(None);
        }
        let mut facts = Self::default();
        for name in reel.rows::<Name>() {
            let name = name?;
            facts.names += 1;
            facts.with_file += u64::from(name.file.is_some());
            *facts.how.entry(name.how.to_string()).or_default() += 1;
            if let Some(ended) = name.ended {
                *facts.ended.entry(ended.to_string()).or_default() += 1;
            }
        }
        Ok(Some(facts))
    }

    /// One line: `9 (8 existed before, 1 appeared during the recording)`.
    pub(crate) fn line(&self) -> String {
        let list = |of: &BTreeMap<String, u64>| {
            let mut parts: Vec<_> = of.iter().collect();
            parts.sort_by_key(|(word, n)| (std::cmp::Reverse(**n), *word));
            parts.iter().map(|(word, n)| format!("{} {}", count(**n), phrase(word))).collect::<Vec<_>>().join(", ")
        };
        let ended = if self.ended.is_empty() { String::new() } else { format!("; {} by the end", list(&self.ended)) };
        format!("{} ({}){ended}", count(self.names), list(&self.how))
    }
}

/// A word of `names.how` or `names.ended` as people read it.
fn phrase(word: &str) -> &str {
    match word {
        "there" => "existed before",
        "seen" => "appeared during the recording",
        word => word,
    }
}
