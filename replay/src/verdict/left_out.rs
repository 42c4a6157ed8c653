//! Work of the original that the replay does not contain although it concerns replayed files.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{plan::program::Plan, verdict::end_state::TreeCheck};

/// What is left out. Operations outside `--root`, below `/proc`, `/sys` and `/dev`, and on pipes, sockets and devices
/// are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Operations on replayed files that succeeded in the original and are not replayed.
    pub operations: i64,
    /// The same by reason.
    pub by_reason: BTreeMap<String, i64>,
    /// The first of them: call, path and reason.
    pub examples: Vec<String>,
    /// The first mounts of the workload that the replay does not follow.
    pub unfollowed_mounts: Vec<String>,
    /// Names whose owner differs because only root can set it.
    pub owners: i64,
    /// The first of them.
    pub owner_examples: Vec<String>,
    /// Names of the final tree that the recorder did not look at.
    pub unseen: i64,
    /// Names that the workload did not use are missing, since the snapshot of the tree was cut.
    pub lacks_unused: bool,
}

impl LeftOut {
    /// From the plan, and the comparison of the final tree.
    pub(crate) fn of(plan: &Plan, tree: Option<&TreeCheck>) -> Self {
        Self {
            operations: plan.gaps.by_reason.values().sum(),
            by_reason: plan.gaps.by_reason.iter().map(|(why, n)| (why.label().to_owned(), *n)).collect(),
            examples: plan.gaps.examples.clone(),
            unfollowed_mounts: plan.gaps.unfollowed_mounts.clone(),
            owners: tree.map_or(0, |t| t.owners_not_set),
            owner_examples: tree.map_or_else(Vec::new, |t| t.owner_examples.clone()),
            unseen: tree.map_or(0, |t| t.unseen),
            lacks_unused: tree.is_some_and(|t| t.lacks_unused),
        }
    }

    /// Number of operations and names, which `--max-left-out` limits. Unknown names count as one.
    pub fn total(&self) -> i64 {
        self.operations.saturating_add(self.owners).saturating_add(self.unseen).saturating_add(self.lacks_unused.into())
    }

    /// Why this makes the replay unfaithful; `None` if it is within the limit.
    pub(crate) fn reason(&self, limit: i64) -> Option<String> {
        (self.total() > limit).then(|| self.words())
    }

    /// What is left out, in words.
    pub(crate) fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.operations > 0 {
            let reasons: Vec<String> = self.by_reason.iter().map(|(why, n)| format!("{n} {why}")).collect();
            let first = self.examples.first().map(|e| format!("; the first is {e}")).unwrap_or_default();
            let n = self.operations;
            let not_followed = match &self.unfollowed_mounts[..] {
                [] => String::new(),
                mounts => format!("; not followed: {}", mounts.join(", ")),
            };
            let reasons = reasons.join(", ");
            parts.push(format!("{n} operations on replayed files are left out ({reasons}{first}{not_followed})"));
        }
        if self.owners > 0 {
            let first = self.owner_examples.first().map(|e| format!(" ({e})")).unwrap_or_default();
            parts.push(format!("{} names have another owner, which only root can set{first}", self.owners));
        }
        if self.unseen > 0 {
            let n = self.unseen;
            parts.push(format!(
                "{n} names were not looked at when the recording ended (something else is mounted there, or the path is too long)"
            ));
        }
        if self.lacks_unused {
            parts.push(
                "names that the workload did not use are missing (the snapshot was cut, see record --snapshot-limit)"
                    .into(),
            );
        }
        parts.join("; ")
    }
}
