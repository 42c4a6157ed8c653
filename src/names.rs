//! What `ioreel info` says of the names that files had over time.

use std::collections::BTreeMap;

use ioreel_traces::{Reel, Result, rows::Name, table::Row};
use serde::Serialize;

use crate::columns::count;

/// The table `names` in numbers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NameFacts {
    /// Rows: a name that a file had twice counts twice.
    names: u64,
    /// Those whose file is known.
    with_file: u64,
    /// Rows by how a file came to its name.
    how: BTreeMap<String, u64>,
    /// Rows by how it lost it; those that it kept are not in here.
    ended: BTreeMap<String, u64>,
}

impl NameFacts {
    /// Of this reel; `None` where it has no such table.
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

    /// One line.
    pub(crate) fn line(&self) -> String {
        let list = |of: &BTreeMap<String, u64>| {
            let mut parts: Vec<_> = of.iter().collect();
            parts.sort_by_key(|(word, n)| (std::cmp::Reverse(**n), *word));
            parts.iter().map(|(word, n)| format!("{} {word}", count(**n))).collect::<Vec<_>>().join(", ")
        };
        let ended =
            if self.ended.is_empty() { String::new() } else { format!("; until the end {}", list(&self.ended)) };
        format!("{} over time ({}){ended}", count(self.names), list(&self.how))
    }
}
