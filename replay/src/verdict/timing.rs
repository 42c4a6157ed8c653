//! Lateness: when operations were issued, against their deadlines. `docs/replay.md` defines the figures.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io,
};

use serde::Serialize;

use crate::{
    base::distribution::{Distance, Spread, Times},
    plan::{
        dependencies::Stamp,
        edge::EdgeKind,
        program::{Act, Plan},
    },
    reel::submission::Phase,
    run::{engine::Outcome, outcomes::Outcomes, pace::Pace},
    verdict::{
        merge::by_recorded_start,
        replayer_delay::{Blame, blame},
    },
};

/// Number of points for the drift, at most: one from each of this many equal parts of the schedule.
const DRIFT_POINTS: usize = 512;
/// The drift of a schedule shorter than this is not computed.
const DRIFT_SPAN_NS: i64 = 1_000_000_000;

/// Dependency edges of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Edges {
    /// Number of edges.
    pub edges: i64,
    /// Edges that were violated: the operation was issued before the one that it waits for had returned. Always 0.
    pub violations: i64,
}

/// Inter-arrival times of the replay against those of the original, stretched by the pace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gaps {
    /// Absolute error of the time between two operations that follow each other in the original.
    pub error_ns: Spread,
    /// Distance of the two distributions.
    pub distance: Option<Distance>,
}

/// The timing of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timing {
    /// Issue time minus deadline: own plus forced lateness. At paces without a schedule, equal to own lateness.
    pub schedule_ns: Spread,
    /// Own lateness: issue time minus the earliest time at which deadline, own thread and order allowed it. Caused by
    /// the replayer.
    pub own_ns: Spread,
    /// Forced lateness: that earliest time minus the deadline. Caused by the target or by order.
    pub forced_ns: Spread,
    /// Caused lateness: own lateness and what followed from earlier own lateness.
    pub caused_ns: Spread,
    /// Increase of the elapsed time through caused lateness.
    pub cost_ns: i64,
    /// The same as a share of the time from the start to the last return.
    pub cost_share: f64,
    /// Share of operations issued within 10 us of the deadline.
    pub within_10us: f64,
    /// Share within 100 us.
    pub within_100us: f64,
    /// Share within 1 ms.
    pub within_1ms: f64,
    /// Operations issued before their deadline. Always 0.
    pub early: i64,
    /// Operations issued before the previous one of their thread had returned. Always 0.
    pub overtaking: i64,
    /// Slope of lateness over the schedule (Theil-Sen), parts per million. Null without a schedule of at least 1 s.
    pub drift_ppm: Option<f64>,
    /// Lateness of the last operation in the schedule.
    pub end_late_ns: i64,
    /// Dependency edges by kind.
    pub edges: BTreeMap<EdgeKind, Edges>,
    /// Inter-arrival times over all threads. Null at paces without a schedule.
    pub gaps: Option<Gaps>,
    /// Inter-arrival times within each thread. Null at paces without a schedule.
    pub thread_gaps: Option<Gaps>,
    /// Absolute error of the think time between a return and the thread's next operation, if that waited for nothing.
    /// Null at other paces than `think`.
    pub think_error_ns: Option<Spread>,
    /// Share of operations issued after one that was entered later in the original.
    pub reordered: f64,
    /// How much later: time from its issue to the latest issue before it.
    pub displacement_ns: Spread,
}

#[derive(Default)]
struct Shares {
    all: i64,
    within: [i64; 3],
}

/// Computes the timing of a replay.
pub fn timing(plan: &Plan, pace: Pace, outcomes: &Outcomes) -> Timing {
    let mut t = Timing::default();
    let Blame { caused_ns, cost_ns, end_ns } = blame(plan, pace, outcomes);
    (t.caused_ns, t.cost_ns, t.cost_share) = (caused_ns, cost_ns, cost_ns as f64 / end_ns.max(1) as f64);
    lateness(plan, pace, outcomes, &mut t);
    in_order_of_recording(plan, pace, outcomes, &mut t);
    t
}

/// Calls `tell` for each operation, thread by thread in program order, with the time at which its thread and its edges
/// allowed it, and the ends of what it waited for. `until` is [`Outcomes::until`]: a step without a call (a write to a
/// pipe that is not replayed) counts as done when its thread's previous call had returned.
fn each_ready(
    plan: &Plan,
    until: impl Fn(Stamp) -> Option<Outcome>,
    mut tell: impl FnMut(Stamp, i64, &[(EdgeKind, i64)]),
) {
    // Parents come before their children in this order.
    let mut free_at = vec![i64::MIN; plan.tasks.len()];
    let mut ends = Vec::new();
    // Requests in flight, by row: when each could have been submitted, and the ends of what it waited for.
    let mut submitted: HashMap<u32, (i64, Vec<(EdgeKind, i64)>)> = HashMap::new();
    for task in 0..plan.tasks.len() as u32 {
        let mut free = free_at[task as usize];
        ends.clear();
        plan.each_step(task, |number, step, chunk| {
            for e in step.after.of(&chunk.edges) {
                ends.extend(until(e.on).map(|o| (e.kind, o.end_ns)));
            }
            free = ends.iter().map(|(_, end)| *end).fold(free, i64::max);
            let me = Stamp { task, step: number };
            match step.act {
                Act::Spawn { task } => free_at[task as usize] = free,
                Act::Submit { rec, .. } => {
                    submitted.insert(chunk.recs[rec as usize].row, (free, ends.clone()));
                }
                Act::Call { rec, .. } => {
                    let done = until(me).filter(|o| o.step == number);
                    match submitted.remove(&chunk.recs[rec as usize].row) {
                        Some((free, ends)) => tell(me, free.max(done.map_or(free, |o| o.free_ns)), &ends),
                        None => tell(me, free.max(done.map_or(free, |o| o.free_ns)), &ends),
                    }
                    if let Some(o) = done {
                        free = free.max(o.end_ns);
                    }
                }
                // Nothing is issued here. The edges of this step count for the thread's next call.
                Act::Passed { .. } => return,
                _ => {}
            }
            ends.clear();
        });
    }
}

/// The deadline of an operation. At paces without a schedule, the time at which it could be issued.
fn due(pace: Pace, free_ns: i64, o: &Outcome) -> i64 {
    if matches!(pace, Pace::Max | Pace::Load) { free_ns.max(0) } else { o.due_ns }
}

/// For paces without a schedule: sets the deadline of each outcome to the time at which it could be issued.
pub fn tell_dues(plan: &Plan, outcomes: &mut Outcomes) -> io::Result<()> {
    let outcomes = RefCell::new(outcomes);
    let mut dues: Vec<(Stamp, i64)> = Vec::new();
    let mut told = Ok(());
    let mut flush = |dues: &mut Vec<(Stamp, i64)>| {
        let (Some((first, _)), Some((last, _))) = (dues.first(), dues.last()) else { return };
        let steps = first.step..=last.step;
        let changed = outcomes.borrow_mut().change(first.task, steps, |o| {
            if let Ok(at) = dues.binary_search_by_key(&o.step, |(s, _)| s.step) {
                o.due_ns = dues[at].1;
            }
        });
        told = std::mem::replace(&mut told, Ok(())).and(changed);
        dues.clear();
    };
    each_ready(
        plan,
        |s| outcomes.borrow().until(s),
        |me, free, _| {
            if dues.len() >= DUES || dues.last().is_some_and(|(s, _)| s.task != me.task) {
                flush(&mut dues);
            }
            dues.push((me, free.max(0)));
        },
    );
    flush(&mut dues);
    told
}

/// Deadlines set at a time.
const DUES: usize = 1 << 16;

fn lateness(plan: &Plan, pace: Pace, outcomes: &Outcomes, t: &mut Timing) {
    let (mut schedule, mut own, mut forced) = (Times::default(), Times::default(), Times::default());
    let mut shares = Shares::default();
    each_ready(
        plan,
        |s| outcomes.until(s),
        |me, free, ends| {
            let Some(o) = outcomes.of(me.task, me.step) else { return };
            for (kind, end) in ends {
                let edges = t.edges.entry(*kind).or_default();
                edges.edges += 1;
                edges.violations += i64::from(o.start_ns < *end);
            }
            let due_ns = due(pace, free, &o);
            t.early += i64::from(o.start_ns < due_ns);
            let late = o.start_ns.saturating_sub(due_ns);
            schedule.add(late);
            own.add(o.start_ns.saturating_sub(free.max(due_ns)));
            forced.add(free.max(due_ns).saturating_sub(due_ns));
            shares.all += 1;
            for (n, limit) in shares.within.iter_mut().zip([10_000, 100_000, 1_000_000]) {
                *n += i64::from(late.abs() <= limit);
            }
        },
    );
    (t.schedule_ns, t.own_ns, t.forced_ns) = (schedule.spread(), own.spread(), forced.spread());
    let share = |n: i64| n as f64 / shares.all.max(1) as f64;
    [t.within_10us, t.within_100us, t.within_1ms] = shares.within.map(share);
}

fn in_order_of_recording(plan: &Plan, pace: Pace, outcomes: &Outcomes, t: &mut Timing) {
    let first = plan.tasks.iter().filter(|t| t.program.calls > 0).map(|t| t.program.first_ns).min().unwrap_or(0);
    let mut drift = Drift::new(first, plan.last_end_ns);
    let (mut gap_error, mut gaps_then, mut gaps_now) = (Times::default(), Times::default(), Times::default());
    let (mut own_error, mut own_then, mut own_now) = (Times::default(), Times::default(), Times::default());
    let (mut think, mut displaced) = (Times::default(), Times::default());
    let mut last: Option<(i64, i64)> = None;
    // By thread: recorded entry and return of its last operation, then issue and return in the replay.
    let mut last_of: Vec<Option<[i64; 4]>> = vec![None; plan.tasks.len()];
    let mut latest = i64::MIN;
    let mut returned = vec![i64::MIN; plan.tasks.len()];
    by_recorded_start(plan, outcomes, |at, step, r, o| {
        let (start, end) = (r.start_ns, r.end_ns);
        // A request may be submitted while others of its thread are in flight.
        if r.phase != Phase::Ended {
            let returned = &mut returned[at.task as usize];
            t.overtaking += i64::from(o.start_ns < *returned);
            *returned = o.end_ns.max(*returned);
        }
        drift.add(start, o.due_ns, o.start_ns);
        t.end_late_ns = o.start_ns - o.due_ns;
        if let Some((then, now)) = last {
            let was = pace.stretched_ns(start - then);
            gap_error.add((o.start_ns - now - was).abs());
            gaps_then.add(was);
        }
        last = Some((start, o.start_ns));
        let mine = &mut last_of[at.task as usize];
        if let Some([a, c, issue, done]) = *mine {
            let was = pace.stretched_ns(start - a);
            own_error.add((o.start_ns - issue - was).abs());
            own_then.add(was);
            own_now.add(o.start_ns - issue);
            if step.after.len == 0 && o.free_ns == i64::MIN {
                let computed = pace.stretched_ns(start - c) - pace.recorder_ns(plan.recorder);
                think.add((o.start_ns - done - computed.max(0)).abs());
            }
        }
        *mine = Some([start, end, o.start_ns, o.end_ns]);
        if o.start_ns < latest {
            displaced.add(latest - o.start_ns);
        }
        latest = latest.max(o.start_ns);
    });
    let mut before = None;
    for o in outcomes.by_issue() {
        if let Some(before) = before.replace(o.start_ns) {
            gaps_now.add(o.start_ns - before);
        }
    }
    t.reordered = displaced.count() as f64 / outcomes.len().max(1) as f64;
    t.displacement_ns = displaced.spread();
    if pace.has_schedule() {
        t.drift_ppm = drift.ppm();
        t.gaps = Some(Gaps { error_ns: gap_error.spread(), distance: gaps_then.distance(&gaps_now) });
        t.thread_gaps = Some(Gaps { error_ns: own_error.spread(), distance: own_then.distance(&own_now) });
    }
    if pace == Pace::Think {
        t.think_error_ns = Some(think.spread());
    }
}

/// Drift: the slope of lateness over the schedule, as the median of the slopes between any two points (Theil-Sen). A
/// stall that was caught up with does not count, however long it was.
pub(crate) struct Drift {
    from_ns: i64,
    part_ns: i64,
    /// The point of each part: deadline and lateness.
    points: Vec<Option<(i64, i64)>>,
}

impl Drift {
    pub(crate) fn new(from_ns: i64, to_ns: i64) -> Self {
        let part_ns = (to_ns.saturating_sub(from_ns) / DRIFT_POINTS as i64).max(1);
        Self { from_ns, part_ns, points: vec![None; DRIFT_POINTS + 1] }
    }

    pub(crate) fn add(&mut self, recorded_ns: i64, due_ns: i64, issued_ns: i64) {
        let part = (recorded_ns.saturating_sub(self.from_ns) / self.part_ns).max(0) as usize;
        if let Some(point @ None) = self.points.get_mut(part) {
            *point = Some((due_ns, issued_ns - due_ns));
        }
    }

    pub(crate) fn ppm(&self) -> Option<f64> {
        let points: Vec<(i64, i64)> = self.points.iter().flatten().copied().collect();
        let span = points.last()?.0 - points.first()?.0;
        if span < DRIFT_SPAN_NS {
            return None;
        }
        let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * points.len() / 2);
        for (i, a) in points.iter().enumerate() {
            slopes.extend(
                points[i + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) as f64 / (b.0 - a.0) as f64 * 1e6),
            );
        }
        if slopes.is_empty() {
            return None;
        }
        slopes.sort_unstable_by(f64::total_cmp);
        Some(slopes[slopes.len() / 2])
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_no_drift_and_a_slow_clock_is() {
        let (mut stalled, mut slow) = (Drift::new(0, 10_000_000_000), Drift::new(0, 10_000_000_000));
        for i in 0..10_000 {
            let due = i * 1_000_000;
            let late = if (3000..3500).contains(&i) { 500_000_000 - (i - 3000) * 1_000_000 } else { 10 };
            stalled.add(due, due, due + late);
            slow.add(due, due, due + due / 20);
        }
        assert!(stalled.ppm().unwrap().abs() < 1.0, "{:?}", stalled.ppm());
        assert!((slow.ppm().unwrap() - 50_000.0).abs() < 1.0, "{:?}", slow.ppm());
        assert_eq!(Drift::new(0, 1000).ppm(), None);
    }
}
