//! A finding: what is wrong, what it costs, and what to do.

use serde::Serialize;

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The reel shows the pattern, its cost is an estimate from indirect signs.
    Low,
    /// The reel shows the pattern and most of its cost.
    Medium,
    /// The reel shows the pattern, and who waited for it and how long.
    High,
}

/// Something that takes part in the pattern.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Path of a file, a name that was looked up, `comm[pid]`, a device, or who held a lock.
    pub name: String,
    /// Operations or requests.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its part of the cost, seconds. It is not corrected for what remains after the remedy.
    pub share_s: f64,
}

/// A figure of the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is, with the unit.
    pub name: &'static str,
    /// The number.
    pub value: f64,
}

/// What shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Start of the window, ns since the start of the reel. Null: all of the reel.
    pub from_ns: Option<i64>,
    /// End of the window, ns.
    pub to_ns: Option<i64>,
    /// Files or names, most costly first.
    pub files: Vec<Part>,
    /// Processes, most costly first.
    pub processes: Vec<Part>,
    /// Who held the locks that operations waited for, most time first. Empty unless waits were recorded.
    pub holders: Vec<Part>,
    /// Devices.
    pub devices: Vec<Part>,
    /// Figures.
    pub figures: Vec<Figure>,
    /// The query that lists the rows, for DuckDB in the folder of the reel.
    pub sql: String,
}

impl Evidence {
    /// Adds a figure.
    #[must_use]
    pub(super) fn figure(mut self, name: &'static str, value: f64) -> Self {
        self.figures.push(Figure { name, value });
        self
    }

    /// Sets the query.
    #[must_use]
    pub(super) fn sql(mut self, sql: &str) -> Self {
        sql.clone_into(&mut self.sql);
        self
    }

    /// Sets the window.
    #[must_use]
    pub(super) fn window(mut self, from_ns: i64, to_ns: i64) -> Self {
        (self.from_ns, self.to_ns) = (Some(from_ns), Some(to_ns));
        self
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Id of the pattern: see [`super::DETECTORS`].
    pub id: &'static str,
    /// What is seen, as a sentence.
    pub summary: String,
    /// By how much the elapsed time would be shorter with the remedy, seconds.
    pub cost_s: f64,
    /// `cost_s` over the elapsed time.
    pub share: f64,
    /// Time in the calls of the pattern, summed over threads, over the time in all calls. Null if it consists of
    /// requests.
    pub call_time_share: Option<f64>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What shows it.
    pub evidence: Evidence,
    /// What to change.
    pub remedy: String,
    /// How to check that it helped.
    pub check: String,
}
