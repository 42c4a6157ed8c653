//! The clauses of a verdict: what a replay that is not faithful did wrong.
//!
//! Each clause has a word in JSON and a bit of its own in the exit status, so that scripts can tell them apart.

use serde::Serialize;

/// What a reason is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clause {
    /// Results of operations, and data read.
    Results,
    /// The tree left behind.
    Tree,
    /// Work of the original that the replay does not contain.
    LeftOut,
    /// When, and in which order, operations were issued.
    Timing,
}

impl Clause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Results, Self::Tree, Self::LeftOut, Self::Timing];

    /// Its bit in the exit status. Statuses 1 (error) and 2 (wrong usage) have other bits.
    pub fn bit(self) -> u8 {
        match self {
            Self::Results => 4,
            Self::Tree => 8,
            Self::LeftOut => 16,
            Self::Timing => 32,
        }
    }
}

/// The reasons why a replay is not faithful, by clause. A clause without reasons holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Clauses {
    /// See [`Clause::Results`].
    pub results: Vec<String>,
    /// See [`Clause::Tree`].
    pub tree: Vec<String>,
    /// See [`Clause::LeftOut`].
    pub left_out: Vec<String>,
    /// See [`Clause::Timing`].
    pub timing: Vec<String>,
}

impl Clauses {
    /// The reasons of a clause.
    pub fn of(&self, clause: Clause) -> &[String] {
        match clause {
            Clause::Results => &self.results,
            Clause::Tree => &self.tree,
            Clause::LeftOut => &self.left_out,
            Clause::Timing => &self.timing,
        }
    }

    /// Adds a reason.
    pub(crate) fn push(&mut self, clause: Clause, reason: String) {
        match clause {
            Clause::Results => self.results.push(reason),
            Clause::Tree => self.tree.push(reason),
            Clause::LeftOut => self.left_out.push(reason),
            Clause::Timing => self.timing.push(reason),
        }
    }

    /// All reasons.
    pub fn reasons(&self) -> Vec<String> {
        Clause::ALL.into_iter().flat_map(|clause| self.of(clause)).cloned().collect()
    }

    /// The exit status: the bits of the clauses that do not hold, 0 if all hold.
    pub fn status(&self) -> u8 {
        Clause::ALL.into_iter().filter(|clause| !self.of(*clause).is_empty()).map(Clause::bit).sum()
    }

    /// The verdict on a replay that is not faithful.
    pub(crate) fn sentence(&self, subject: &str) -> String {
        let reasons = self.reasons().join("; ");
        if self.status() == Clause::Timing.bit() {
            return format!("{subject} is not faithful in its timing alone: {reasons}.");
        }
        format!("{subject} is not faithful: {reasons}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clause_has_a_bit_of_its_own() {
        let mut clauses = Clauses::default();
        assert_eq!((clauses.status(), clauses.reasons().len()), (0, 0));
        let mut seen = Vec::new();
        for clause in Clause::ALL {
            let mut alone = Clauses::default();
            alone.push(clause, "why".into());
            assert!(alone.status().is_power_of_two() && alone.status() > 3, "{clause:?}");
            seen.push(alone.status());
            clauses.push(clause, "why".into());
        }
        seen.dedup();
        assert_eq!((seen.len(), clauses.status()), (4, 60));
    }

    #[test]
    fn bad_timing_is_not_told_like_a_wrong_tree() {
        let mut clauses = Clauses::default();
        clauses.push(Clause::Timing, "the replayer itself was late".into());
        assert!(clauses.sentence("The replay").contains("in its timing alone"));
        clauses.push(Clause::Tree, "1 name differs".into());
        assert!(clauses.sentence("The replay").starts_with("The replay is not faithful: 1 name differs; the replayer"));
    }
}
