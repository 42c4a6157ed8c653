//! Recorded waits (`record --waits`): by operation, by the limit that held writers back, and by who held a lock.

use std::collections::BTreeMap;

use ioreel_traces::{
    Reel, Text,
    rows::Wait,
    table::{Cell, Column, Row, column},
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{names::text, operation::Operation, time::Waited};
use crate::{Result, bad_column, events::calls::Source};

/// Maximum number of operations whose recorded waits are kept. The times of further ones are derived.
const MOST_WAITING: usize = 1 << 23;
/// Maximum number of waits for locks whose holder's operation is looked for. Of further ones only the holder is known.
const MOST_LOCK_WAITS: usize = 1 << 20;
/// Maximum number of holders told apart. Further ones count as not known.
const MOST_HOLDERS: usize = 1 << 16;

/// Waits of writers that were held back, by the limit. Their remedies differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throttles {
    /// Too many pages are dirty: in memory, for the device, or in the control group.
    pub dirty_limit_ns: f64,
    /// Write-back throttling of the device (wbt).
    pub wbt_ns: f64,
    /// Limits and weights of control groups (iocost, iolatency).
    pub block_throttle_ns: f64,
}

impl Throttles {
    fn add(&mut self, reason: &str, ns: f64) {
        match reason {
            "dirty_limit" => self.dirty_limit_ns += ns,
            "wbt" => self.wbt_ns += ns,
            "block_throttle" => self.block_throttle_ns += ns,
            _ => {}
        }
    }
}

/// Who held a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HolderKey {
    /// The thread, if it was recorded.
    pub task: Option<i64>,
    /// The thread's name. Empty: not known.
    pub comm: Text,
    /// Number of the call that it was in when the wait began, as in [`super::Calls::call_names`]. `None`: outside calls,
    /// or not recorded.
    pub op: Option<usize>,
    /// The file of that call.
    pub file: Option<i64>,
    /// Kind of the lock, and how it was wanted: a word of `waits.lock_kind`.
    pub lock_kind: Option<Text>,
    /// The lock does not tell its holder; this is who released it, by waking the thread that waited.
    pub released: bool,
}

/// Waits for locks that one holder caused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Waits.
    pub count: u64,
    /// Their time, ns.
    pub time_ns: f64,
    /// The longest, ns.
    pub max_ns: i64,
}

/// The times of a wait, as the probes gave them, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimes {
    /// When it began: its holder held the lock.
    pub held_ns: i64,
    /// When it was woken: who released the lock did so.
    pub woken_ns: i64,
    /// Time asleep.
    pub slept_ns: i64,
    /// Time in which it then waited for a CPU.
    pub run_queue_ns: i64,
}

impl WaitTimes {
    /// Of the columns `start_ns`, `dur_ns` and `run_queue_ns`.
    pub fn of(start_ns: i64, dur_ns: i64, run_queue_ns: i64) -> Self {
        let dur_ns = dur_ns.max(0);
        let run_queue_ns = run_queue_ns.clamp(0, dur_ns);
        let slept_ns = dur_ns - run_queue_ns;
        Self { held_ns: start_ns, woken_ns: start_ns.saturating_add(slept_ns), slept_ns, run_queue_ns }
    }
}

/// Whether a thread was in this operation of its own at a moment. Of several, it is laid to the one that ends first: the
/// innermost. Requests to io_uring and parts of other operations are not what a thread is in.
pub fn was_in(source: Source, op: (i64, i64), at_ns: i64) -> bool {
    matches!(source, Source::Call | Source::Fault) && op.0 <= at_ns && at_ns < op.1
}

/// A wait for a lock of a recorded holder.
#[derive(Debug)]
struct LockWait {
    dur_ns: i64,
    key: HolderKey,
}

/// The waits of a reel. Memory: one entry per operation with a recorded wait, and per wait for a lock.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// By thread and start of the operation.
    by_operation: FxHashMap<(i64, i64), Waited>,
    /// Whether waits were recorded.
    pub(super) recorded: bool,
    pub(super) throttles: Throttles,
    /// Waits for locks that are laid to no operation yet, by the thread that held the lock. By when it held or released
    /// it, and a number.
    by_holder: FxHashMap<i64, BTreeMap<(i64, usize), LockWait>>,
    holders: FxHashMap<HolderKey, Held>,
}

/// Columns that are read. Those of the lock are missing in older reels.
const COLUMNS: [&str; 11] = [
    "task_id",
    "op_start_ns",
    "start_ns",
    "dur_ns",
    "run_queue_ns",
    "reason",
    "waker_task_id",
    "waker_comm",
    "lock_kind",
    "owner_task_id",
    "owner_comm",
];

impl Waits {
    pub(super) fn of(reel: &Reel) -> Result<Self> {
        let recorded = reel.count::<Wait>() > 0 || reel.manifest.waits_min_ns.is_some();
        let mut waits = Self { recorded, ..Self::default() };
        let mut locks = 0;
        for batch in reel.batches::<Wait>(&COLUMNS) {
            let batch = batch?;
            let bad = |why| bad_column(Wait::TABLE)(why);
            let number = |name| column::<i64>(&batch, name).map_err(bad);
            let maybe = |name| column::<Option<i64>>(&batch, name).map_err(bad);
            let words = |name| column::<Option<Text>>(&batch, name).map_err(bad);
            let (task, op_start_ns, start_ns) = (number("task_id")?, number("op_start_ns")?, number("start_ns")?);
            let (dur_ns, run_queue_ns, reason) = (number("dur_ns")?, number("run_queue_ns")?, words("reason")?);
            let (waker, waker_comm) = (maybe("waker_task_id")?, words("waker_comm")?);
            let (owner, owner_comm, lock_kind) = (maybe("owner_task_id")?, words("owner_comm")?, words("lock_kind")?);
            let get = |column: &Column<'_>, i| <i64 as Cell>::get(column, i);
            for i in 0..batch.num_rows() {
                let times = WaitTimes::of(get(&start_ns, i), get(&dur_ns, i), get(&run_queue_ns, i));
                let slept_ns = times.slept_ns;
                let reason = text(&reason, i).map_or("", |r| r);
                waits.add((get(&task, i), get(&op_start_ns, i)), reason, slept_ns, times.run_queue_ns);
                if !matches!(reason, "lock" | "inode_lock") {
                    continue;
                }
                let named = |id: &Column<'_>, comm: &Column<'_>| {
                    let task = <Option<i64> as Cell>::get(id, i);
                    let comm = text(comm, i).cloned();
                    (task.is_some() || comm.is_some()).then(|| (task, comm.unwrap_or_default()))
                };
                let owner = named(&owner, &owner_comm);
                let released = owner.is_none();
                let (task, comm) = owner.or_else(|| named(&waker, &waker_comm)).unwrap_or_default();
                let lock_kind = text(&lock_kind, i).cloned();
                let key = HolderKey { task, comm, op: None, file: None, lock_kind, released };
                let at_ns = if released { times.woken_ns } else { times.held_ns };
                match task {
                    Some(task) if locks < MOST_LOCK_WAITS => {
                        locks += 1;
                        let wait = LockWait { dur_ns: slept_ns, key };
                        waits.by_holder.entry(task).or_default().insert((at_ns, locks), wait);
                    }
                    _ => count(&mut waits.holders, key, slept_ns),
                }
            }
        }
        Ok(waits)
    }

    fn add(&mut self, key: (i64, i64), reason: &str, slept_ns: i64, run_queue_ns: i64) {
        self.throttles.add(reason, slept_ns as f64);
        if self.by_operation.len() >= MOST_WAITING && !self.by_operation.contains_key(&key) {
            return;
        }
        let waited = self.by_operation.entry(key).or_default();
        *waited.of_reason(reason) += slept_ns as f64;
        waited.parts.run_queue_ns += run_queue_ns as f64;
    }

    /// The waits of an operation.
    pub(super) fn of_operation(&self, op: &Operation) -> Waited {
        self.by_operation.get(&(op.task, op.start_ns)).copied().unwrap_or_default()
    }

    /// An operation ended: waits for locks that its thread held meanwhile are laid to it.
    pub(super) fn ended(&mut self, op: &Operation) {
        let Some(waits) = self.by_holder.get_mut(&op.task) else { return };
        while let Some(first) = waits.range((op.start_ns, 0)..).next().map(|(at, _)| *at)
            && was_in(op.source, (op.start_ns, op.end_ns), first.0)
            && let Some(wait) = waits.remove(&first)
        {
            let key = HolderKey { op: Some(op.op), file: op.file, ..wait.key.clone() };
            count(&mut self.holders, key, wait.dur_ns);
        }
        if waits.is_empty() {
            self.by_holder.remove(&op.task);
        }
    }

    /// Who held the locks that operations waited for. Call it when all operations have ended.
    pub(super) fn holders(&mut self) -> FxHashMap<HolderKey, Held> {
        for (_, wait) in std::mem::take(&mut self.by_holder).into_values().flatten() {
            count(&mut self.holders, wait.key, wait.dur_ns);
        }
        std::mem::take(&mut self.holders)
    }
}

fn count(holders: &mut FxHashMap<HolderKey, Held>, key: HolderKey, ns: i64) {
    let full = holders.len() >= MOST_HOLDERS && !holders.contains_key(&key);
    let held = holders.entry(if full { HolderKey::default() } else { key }).or_default();
    held.count += 1;
    held.time_ns += ns as f64;
    held.max_ns = held.max_ns.max(ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::calls::Kind;

    fn operation(task: i64, op: usize, start_ns: i64, end_ns: i64) -> Operation {
        Operation { task, op, start_ns, end_ns, file: Some(7), ..Operation::of_kind(Kind::Write) }
    }

    #[test]
    fn a_wait_is_laid_to_the_call_that_its_holder_was_in() {
        let key = HolderKey { task: Some(1), comm: "w".into(), ..HolderKey::default() };
        let mut waits = Waits::default();
        let all = [50, 150, 199, 300].into_iter().enumerate();
        let all = all.map(|(i, at_ns)| ((at_ns, i), LockWait { dur_ns: 10, key: key.clone() })).collect();
        waits.by_holder.insert(1, all);
        for op in [operation(1, 3, 0, 100), operation(2, 4, 140, 160), operation(1, 5, 100, 200)] {
            waits.ended(&op);
        }
        let holders = waits.holders();
        let of = |op: Option<usize>| {
            let file = op.map(|_| 7);
            holders.get(&HolderKey { op, file, ..key.clone() }).map(|h| (h.count, h.time_ns as i64))
        };
        assert_eq!((of(Some(3)), of(Some(5)), of(None)), (Some((1, 10)), Some((2, 20)), Some((1, 10))));
        assert_eq!(holders.len(), 3);
    }
}
