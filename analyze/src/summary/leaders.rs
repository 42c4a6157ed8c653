//! Finds the leader of the process of each thread.

use std::collections::HashSet;

use ioreel_traces::{
    Reel,
    rows::Task,
    table::{Cell, Row, column},
};
use rustc_hash::FxHashMap;

use crate::{Result, bad_column};

/// `CLONE_THREAD`: the new task is a thread of its parent's process.
const CLONE_THREAD: i64 = 0x1_0000;
/// Maximum number of threads. Further ones count as processes.
const MOST_THREADS: usize = 3_500_000;

/// The leaders of threads. Memory: one entry per thread that does not lead its process.
#[derive(Debug, Default)]
pub(super) struct Leaders(FxHashMap<i64, i64>);

impl Leaders {
    /// Reads the table `tasks`.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(super) fn of(reel: &Reel) -> Result<Self> {
        let mut parents: FxHashMap<i64, i64> = FxHashMap::default();
        for batch in reel.batches::<Task>(&["task_id", "parent", "clone_flags"]) {
            let batch = batch?;
            let id = column::<i64>(&batch, "task_id").map_err(bad_column(Task::TABLE))?;
            let parent = column::<Option<i64>>(&batch, "parent").map_err(bad_column(Task::TABLE))?;
            let flags = column::<i64>(&batch, "clone_flags").map_err(bad_column(Task::TABLE))?;
            for i in 0..batch.num_rows() {
                if <i64 as Cell>::get(&flags, i) & CLONE_THREAD != 0
                    && let Some(parent) = <Option<i64> as Cell>::get(&parent, i)
                    && parents.len() < MOST_THREADS
                {
                    parents.insert(<i64 as Cell>::get(&id, i), parent);
                }
            }
        }
        let others: HashSet<i64> = parents.values().filter(|p| !parents.contains_key(p)).copied().collect();
        let mut there = HashSet::new();
        if !others.is_empty() {
            for batch in reel.batches::<Task>(&["task_id"]) {
                let batch = batch?;
                let id = column::<i64>(&batch, "task_id").map_err(bad_column(Task::TABLE))?;
                there
                    .extend((0..batch.num_rows()).map(|i| <i64 as Cell>::get(&id, i)).filter(|id| others.contains(id)));
            }
        }
        Ok(Self::from_parents(&parents, &there))
    }

    /// `parents` has the parent of each thread. `there` has those parents that are not threads themselves and have a row.
    fn from_parents(parents: &FxHashMap<i64, i64>, there: &HashSet<i64>) -> Self {
        let mut leaders: FxHashMap<i64, i64> = FxHashMap::default();
        let mut path = Vec::new();
        for id in parents.keys() {
            let mut at = *id;
            let leader = loop {
                // Parents in a damaged reel may form a cycle. It ends where it was entered.
                if let Some(leader) = leaders.get(&at) {
                    break *leader;
                }
                let Some(parent) = parents.get(&at) else { break at };
                leaders.insert(at, at);
                path.push(at);
                if !parents.contains_key(parent) && !there.contains(parent) {
                    break at;
                }
                at = *parent;
            };
            leaders.extend(path.drain(..).map(|thread| (thread, leader)));
        }
        Self(leaders)
    }

    /// The leader of a thread. The thread itself, if it leads its process.
    pub(super) fn of_task(&self, task_id: i64) -> i64 {
        self.0.get(&task_id).copied().unwrap_or(task_id)
    }

    /// Number of threads of each process besides its leader.
    pub(super) fn threads(&self) -> FxHashMap<i64, u64> {
        let mut threads = FxHashMap::default();
        for (_, leader) in self.0.iter().filter(|(thread, leader)| thread != leader) {
            *threads.entry(*leader).or_default() += 1;
        }
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaders(parents: &[(i64, i64)], there: &[i64]) -> Leaders {
        Leaders::from_parents(&parents.iter().copied().collect(), &there.iter().copied().collect())
    }

    #[test]
    fn threads_of_threads_belong_to_the_first() {
        let l = leaders(&[(2, 1), (3, 2), (4, 3), (6, 5)], &[1]);
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(|t| l.of_task(t)), [1, 1, 1, 1, 5, 6, 7], "5 has no row");
        assert_eq!(l.threads().get(&1), Some(&3));
    }

    #[test]
    fn long_chains_and_rings_end() {
        let chain: Vec<(i64, i64)> = (1..1_000_000).map(|t| (t, t - 1)).collect();
        assert_eq!(leaders(&chain, &[0]).of_task(999_999), 0);
        let rings: Vec<(i64, i64)> = (0..1_000_000).map(|t| (t, t ^ 1)).collect();
        let l = leaders(&rings, &[]);
        assert_eq!(l.of_task(10), l.of_task(11));
        assert_eq!(l.threads().len(), 500_000);
    }
}
