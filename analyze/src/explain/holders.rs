//! What the holders and wakers of waits were doing.

use ioreel_traces::{
    Reel, Text,
    rows::{Op, Wait},
};

use rustc_hash::FxHashMap;

use super::{Actor, around::segments};
use crate::{
    Result,
    events::calls::Source,
    facts::{Names, WaitTimes, was_in},
};

/// Maximum number of times that an operation is tried for a moment. In a reel of a recording, each moment is in few
/// operations of its thread.
const MOST_TRIES: usize = 1 << 24;

/// A thread whose operation at one moment is looked for.
pub(super) struct Wanted {
    /// Indices of the operation to explain and of its moment.
    pub(super) of: (usize, usize),
    pub(super) is_holder: bool,
    task: i64,
    at_ns: i64,
    /// The operation that was found.
    pub(super) found: Option<Op>,
}

/// Who held the lock.
pub(super) fn holder(wait: &Wait, names: &Names) -> Option<Actor> {
    actor(wait.owner_task_id, wait.owner_comm.as_ref(), names)
}

/// Who ended the wait.
pub(super) fn waker(wait: &Wait, names: &Names) -> Option<Actor> {
    actor(wait.waker_task_id, wait.waker_comm.as_ref(), names)
}

fn actor(task: Option<i64>, comm: Option<&Text>, names: &Names) -> Option<Actor> {
    if task.is_none() && comm.is_none() {
        return None;
    }
    let known = task.map(|t| names.task(t));
    let comm = comm.map(ToString::to_string).or_else(|| known.as_ref().map(|k| k.comm.to_string()));
    Some(Actor { comm: comm.unwrap_or_default(), pid: known.map(|k| k.pid), op_id: None, op: None, path: None })
}

/// The holder and the waker of a wait, to be looked for: the holder when the wait began, the waker when it ended.
pub(super) fn wanted(wait: &Wait, of: (usize, usize)) -> impl Iterator<Item = Wanted> {
    let times = WaitTimes::of(wait.start_ns, wait.dur_ns, wait.run_queue_ns);
    [(wait.owner_task_id, true, times.held_ns), (wait.waker_task_id, false, times.woken_ns)]
        .into_iter()
        .filter_map(move |(task, is_holder, at_ns)| Some(Wanted { of, is_holder, task: task?, at_ns, found: None }))
}

/// Finds the operations of these threads.
pub(super) fn find(reel: &Reel, wanted: &mut [Wanted]) -> Result<()> {
    // The moments of each thread, in order.
    let mut by_task: FxHashMap<i64, Vec<(i64, usize)>> = FxHashMap::default();
    for (i, one) in wanted.iter().enumerate() {
        by_task.entry(one.task).or_default().push((one.at_ns, i));
    }
    by_task.values_mut().for_each(|of| of.sort_unstable());
    let windows: Vec<(i64, i64)> = wanted.iter().map(|w| (w.at_ns, w.at_ns)).collect();
    let mut tries = 0;
    for segment in segments::<Op>(reel, &windows) {
        for op in reel.segment_rows::<Op>(segment) {
            let op = op?;
            let Some(moments) = by_task.get(&op.task_id) else { continue };
            let (source, times) = (Source::of(&op.source), (op.start_ns, end_ns(&op)));
            let from = moments.partition_point(|(at_ns, _)| *at_ns < op.start_ns);
            for (_, i) in moments[from..].iter().take_while(|(at_ns, _)| was_in(source, times, *at_ns)) {
                tries += 1;
                let one = &mut wanted[*i];
                if one.found.as_ref().is_none_or(|found| times.1 < end_ns(found)) {
                    one.found = Some(op.clone());
                }
            }
            if tries >= MOST_TRIES {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn end_ns(op: &Op) -> i64 {
    op.start_ns.saturating_add(op.dur_ns)
}

/// Adds the operation that was found.
pub(super) fn complete(actor: &mut Actor, op: &Op, names: &Names) {
    actor.op_id = Some(op.op_id);
    actor.op = Some(op.op.to_string());
    actor.path = op.path.as_ref().map(ToString::to_string).or_else(|| op.file.map(|f| names.path(f)));
}
