//! Stores the outcome of each step, by thread: in memory up to a limit, then in a file.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io,
    ops::RangeInclusive,
    sync::Arc,
};

use crate::{
    plan::{
        dependencies::Stamp,
        store::{DEFAULT_MEMORY_BYTES, Piece, Store, Stored},
    },
    run::engine::Outcome,
};

/// Pieces read back from the file that are cached.
const AT_HAND: usize = 64;
/// Size of an encoded outcome.
const OUTCOME_BYTES: usize = 52;

/// Pieces of a thread's outcomes, in program order: the first step, and where the piece is.
type Pieces = Vec<(u32, Stored<Vec<Outcome>>)>;

/// Cached pieces, by thread and first step.
type AtHand = HashMap<(u32, u32), Arc<Vec<Outcome>>>;

/// The outcomes of a replay, by thread in program order.
#[derive(Debug)]
pub struct Outcomes {
    store: Store,
    /// By thread: the first step of each piece, and where the piece is.
    by_task: Vec<Pieces>,
    at_hand: RefCell<AtHand>,
    count: i64,
}

impl Piece for Vec<Outcome> {
    fn size_bytes(&self) -> usize {
        self.len() * size_of::<Outcome>()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() * OUTCOME_BYTES);
        for o in self {
            out.extend_from_slice(&o.step.to_le_bytes());
            out.extend_from_slice(&o.cpu.to_le_bytes());
            out.extend_from_slice(&o.row.to_le_bytes());
            [o.due_ns, o.start_ns, o.end_ns, o.ret, o.free_ns]
                .iter()
                .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        out
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |b: &[u8], at: usize| b.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let long = |b: &[u8], at: usize| b.get(at..at + 8)?.try_into().ok().map(i64::from_le_bytes);
        bytes
            .chunks(OUTCOME_BYTES)
            .map(|b| {
                Some(Outcome {
                    step: word(b, 0)?,
                    cpu: word(b, 4)? as i32,
                    row: word(b, 8)?,
                    due_ns: long(b, 12)?,
                    start_ns: long(b, 20)?,
                    end_ns: long(b, 28)?,
                    ret: long(b, 36)?,
                    free_ns: long(b, 44)?,
                })
            })
            .collect()
    }
}

impl Outcomes {
    /// No outcomes yet, for this number of threads.
    pub fn new(threads: usize) -> Self {
        Self::within(threads, DEFAULT_MEMORY_BYTES)
    }

    /// The same with a limit of memory.
    pub fn within(threads: usize, memory_bytes: usize) -> Self {
        Self {
            store: Store::new(memory_bytes),
            by_task: vec![Vec::new(); threads],
            at_hand: RefCell::default(),
            count: 0,
        }
    }

    /// Appends outcomes of a thread, in program order.
    pub fn put(&mut self, task: u32, outcomes: Vec<Outcome>) -> io::Result<()> {
        let Some(first) = outcomes.first().map(|o| o.step) else { return Ok(()) };
        self.count += outcomes.len() as i64;
        let kept = self.store.put(outcomes)?;
        if let Some(pieces) = self.by_task.get_mut(task as usize) {
            pieces.push((first, kept));
        }
        Ok(())
    }

    fn piece(&self, task: u32, index: usize) -> Option<Arc<Vec<Outcome>>> {
        let (first, kept) = self.by_task.get(task as usize)?.get(index)?;
        if let Stored::Memory(piece) = kept {
            return Some(piece.clone());
        }
        let key = (task, *first);
        if let Some(piece) = self.at_hand.borrow().get(&key) {
            return Some(piece.clone());
        }
        let piece = self.store.get(kept).map_err(|e| log::error!("cannot read the stored outcomes: {e}")).ok()?;
        let mut at_hand = self.at_hand.borrow_mut();
        if at_hand.len() >= AT_HAND {
            at_hand.clear();
        }
        at_hand.insert(key, piece.clone());
        Some(piece)
    }

    /// The outcome of a step. `None` if the step is not a call or was never issued.
    pub fn of(&self, task: u32, step: u32) -> Option<Outcome> {
        let index = self.by_task.get(task as usize)?.partition_point(|(first, _)| *first <= step).checked_sub(1)?;
        let piece = self.piece(task, index)?;
        // Most steps are calls, so the index in the piece is at most the distance from its first step, and mostly
        // equal.
        let most = (step - piece.first()?.step) as usize;
        let near = piece.get(most).filter(|o| o.step == step).copied();
        near.or_else(|| piece.binary_search_by_key(&step, |o| o.step).ok().map(|i| piece[i]))
    }

    /// The outcome of the last call of a thread up to and including this step.
    pub fn until(&self, Stamp { task, step }: Stamp) -> Option<Outcome> {
        let index = self.by_task.get(task as usize)?.partition_point(|(first, _)| *first <= step).checked_sub(1)?;
        let piece = self.piece(task, index)?;
        piece.partition_point(|o| o.step <= step).checked_sub(1).map(|i| piece[i])
    }

    /// Number of outcomes.
    pub fn len(&self) -> i64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All outcomes of a thread, in program order.
    pub fn of_task(&self, task: u32) -> impl Iterator<Item = Outcome> {
        let mut index = 0;
        std::iter::from_fn(move || {
            let piece = self.piece(task, index)?;
            index += 1;
            Some(piece)
        })
        .flat_map(|piece| (0..piece.len()).map(move |i| piece[i]))
    }

    /// All outcomes, in order of issue.
    pub fn by_issue(&self) -> impl Iterator<Item = Outcome> {
        let mut threads: Vec<_> = (0..self.by_task.len() as u32).map(|t| self.of_task(t)).collect();
        let mut heads: Vec<Option<Outcome>> = threads.iter_mut().map(Iterator::next).collect();
        let key = |(i, o): (usize, &Option<Outcome>)| o.map(|o| Reverse((o.start_ns, i)));
        let mut next: BinaryHeap<Reverse<(i64, usize)>> = heads.iter().enumerate().filter_map(key).collect();
        std::iter::from_fn(move || {
            let Reverse((_, thread)) = next.pop()?;
            let following = threads[thread].next();
            next.extend(key((thread, &following)));
            std::mem::replace(&mut heads[thread], following)
        })
    }

    /// Changes the outcomes of these steps of a thread, in order.
    pub fn change(
        &mut self,
        task: u32,
        steps: RangeInclusive<u32>,
        mut change: impl FnMut(&mut Outcome),
    ) -> io::Result<()> {
        let Some(pieces) = self.by_task.get(task as usize) else { return Ok(()) };
        // The first step may be inside the piece before.
        let begin = pieces.partition_point(|(first, _)| first <= steps.start()).saturating_sub(1);
        let end = pieces.partition_point(|(first, _)| first <= steps.end());
        for index in begin..end {
            let Some(piece) = self.piece(task, index) else { continue };
            let mut piece = piece.to_vec();
            piece.iter_mut().filter(|o| steps.contains(&o.step)).for_each(&mut change);
            let (first, kept) = &mut self.by_task[task as usize][index];
            self.at_hand.borrow_mut().remove(&(task, *first));
            self.store.replace(kept, piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::plan::dependencies::FINISH;

    #[test]
    fn outcomes_come_back_from_the_file_as_from_memory() {
        for memory in [0, 1 << 20] {
            let mut all = Outcomes::within(3, memory);
            let outcome = |task: u32, step: u32| Outcome {
                step,
                cpu: -1,
                due_ns: i64::MIN,
                start_ns: i64::from(step * 10 + task),
                end_ns: i64::from(step * 10 + task + 3),
                ret: -2,
                free_ns: 3,
                row: step + 7,
            };
            for task in 0..3 {
                for piece in 0..10 {
                    // Steps other than calls have no outcome.
                    let steps = (piece * 100..piece * 100 + 100).filter(|s| s % 7 != 0);
                    all.put(task, steps.map(|s| outcome(task, s)).collect()).unwrap();
                }
            }
            assert_eq!((all.of(1, 456), all.of(1, 455), all.of(2, 5000)), (Some(outcome(1, 456)), None, None));
            let until = |task, step| all.until(Stamp { task, step });
            assert_eq!((until(1, 456), until(1, 455)), (Some(outcome(1, 456)), Some(outcome(1, 454))));
            assert_eq!((until(2, FINISH), until(2, 0)), (Some(outcome(2, 999)), None));
            let issued: Vec<i64> = all.by_issue().map(|o| o.start_ns).collect();
            assert!(issued.len() as i64 == all.len() && issued.is_sorted());
            // From the middle of one piece to the middle of the next but one.
            all.change(1, 450..=608, |o| o.due_ns = o.start_ns).unwrap();
            let dues = |task| [449, 450, 499, 501, 608, 610].map(|step| all.of(task, step).unwrap().due_ns);
            assert_eq!(dues(1), [i64::MIN, 4501, 4991, 5011, 6081, i64::MIN]);
            assert_eq!(dues(0), [i64::MIN; 6]);
        }
    }
}
