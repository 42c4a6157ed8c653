//! What happened, by thread and step.

use crate::engine::Outcome;

/// The outcomes of a replay: each thread's in the order of its program.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Vec<Vec<Outcome>>);

impl Outcomes {
    /// Of so many threads, nothing yet.
    pub fn new(threads: usize) -> Self {
        Self(vec![Vec::new(); threads])
    }

    /// A thread's, in the order of its program.
    pub fn put(&mut self, task: u32, outcomes: Vec<Outcome>) {
        if let Some(place) = self.0.get_mut(task as usize) {
            *place = outcomes;
        }
    }

    /// What became of a step; `None` when it is no call, or was never issued.
    pub fn of(&self, task: u32, step: u32) -> Option<&Outcome> {
        let all = self.0.get(task as usize)?;
        all.binary_search_by_key(&step, |o| o.step).ok().map(|i| &all[i])
    }

    /// The last thing a thread issued.
    pub fn last(&self, task: u32) -> Option<&Outcome> {
        self.0.get(task as usize)?.last()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// All of them, thread after thread.
    pub fn iter(&self) -> impl Iterator<Item = &Outcome> {
        self.0.iter().flatten()
    }

    /// Likewise, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Outcome> {
        self.0.iter_mut().flatten()
    }

    /// Forgets those for which `keep` says no.
    pub fn retain(&mut self, mut keep: impl FnMut(&Outcome) -> bool) {
        self.0.iter_mut().for_each(|t| t.retain(&mut keep));
    }
}
