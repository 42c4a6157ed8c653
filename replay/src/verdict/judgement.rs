//! Decides whether a replay is faithful: it did what the original did, when the original did it. If not, why.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    plan::{edge::EdgeKind, program::Plan},
    run::{
        outcomes::Outcomes,
        pace::{Clockwork, Pace},
    },
    verdict::{
        clauses::{Clause, Clauses},
        concurrency::{Concurrency, concurrency},
        end_state::TreeCheck,
        latencies::{Latency, latencies},
        left_out::LeftOut,
        results::{Class, Results, results},
        timing::{Timing, timing},
    },
};

/// Default limit of the replayer's own lateness: p99 at paces with deadlines, mean at the others.
pub const DEFAULT_MAX_OWN_LATENESS_NS: i64 = 1_000_000;
/// Limit of the drift of issue times against the schedule, parts per million.
pub const MAX_DRIFT_PPM: f64 = 1_000.0;

/// With fewer operations than this, lateness mostly measures the start of threads. It counts only if it exceeds
/// [`FEW_TIMES`] times the limit.
pub(crate) const ENOUGH: i64 = 100;
/// See [`ENOUGH`].
const FEW_TIMES: i64 = 100;
/// At paces without a schedule: limit of the replayer's cost as a share of the elapsed time. It applies if the mean own
/// lateness exceeds the limit divided by [`TRIFLE`]. It is smaller at `think`, where most of the time is think time.
const MAX_COST_SHARE: f64 = 0.5;
const MAX_THINK_COST_SHARE: f64 = 0.2;
const TRIFLE: i64 = 10;

/// Limits above which a replay is not faithful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of wrong results.
    pub wrong: i64,
    /// Number of calls that one of the two file systems cannot do.
    pub unsupported: i64,
    /// Number of operations on replayed files that are left out, and of names whose owner cannot be set.
    pub left_out: i64,
    /// Lateness caused by the replayer, ns: p99 of caused lateness at paces with a schedule, p99 of own lateness at
    /// `think`, mean of own lateness at the others.
    pub own_lateness_ns: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { wrong: 0, unsupported: 0, left_out: 0, own_lateness_ns: DEFAULT_MAX_OWN_LATENESS_NS }
    }
}

/// The verdict, with all figures that it is based on.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// One sentence: whether the replay is faithful, and if not, why.
    pub sentence: String,
    /// Whether the replay is faithful.
    pub faithful: bool,
    /// Why it is not. Empty if it is.
    pub reasons: Vec<String>,
    /// The same by clause.
    pub clauses: Clauses,
    /// The exit status that these give: see [`Clause::bit`].
    pub status: u8,
    /// Work of the original that the replay does not contain.
    pub left_out: LeftOut,
    /// Operations that were planned but not issued, or for which another was issued. Always 0.
    pub missing: i64,
    /// Comparison of results.
    pub results: Results,
    /// Issue times.
    pub timing: Timing,
    /// Number of operations in flight.
    pub concurrency: Concurrency,
    /// Latencies by call.
    pub latencies: Vec<Latency>,
    /// Time that threads of the original spent inside replayed calls or with requests in flight, summed over threads,
    /// ns. Overlaps within a thread count once.
    pub original_in_calls_ns: i64,
    /// The same of the replay.
    pub replay_in_calls_ns: i64,
    /// Comparison of the final tree. Null if it was not compared.
    pub tree: Option<TreeCheck>,
}

/// Inputs of the verdict that are not in the outcomes.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Events of the original that the recorder lost.
    pub lost: i64,
    /// Comparison of the final tree, if it was compared.
    pub tree: Option<TreeCheck>,
    /// Reads that returned other data than was written.
    pub bad_reads: i64,
    /// Calls were skipped (`--dry-run`): results are the recorded ones.
    pub dry: bool,
}

/// Judges a replay.
pub fn judge(plan: &Plan, clockwork: Clockwork, outcomes: &Outcomes, limits: Limits, facts: Facts) -> Judgement {
    let results = results(plan, outcomes);
    let timing = timing(plan, clockwork.pace, outcomes);
    let (latencies, (original_in_calls_ns, replay_in_calls_ns)) = latencies(plan, outcomes);
    let mut out = Judgement {
        sentence: String::new(),
        faithful: false,
        reasons: Vec::new(),
        clauses: Clauses::default(),
        status: 0,
        left_out: LeftOut::of(plan, facts.tree.as_ref()),
        missing: results.missing,
        results,
        concurrency: concurrency(plan, outcomes),
        timing,
        latencies,
        original_in_calls_ns,
        replay_in_calls_ns,
        tree: facts.tree.clone(),
    };
    out.clauses = clauses(&out, clockwork.pace, limits, &facts);
    let skipped: i64 = plan.skipped.values().sum();
    match (plan.calls, skipped) {
        (0, 0) => out.clauses.push(Clause::LeftOut, "nothing was replayed: the reel has no operations".into()),
        (0, _) => {
            out.clauses.push(Clause::LeftOut, format!("nothing was replayed: all {skipped} operations were skipped"));
        }
        _ => {}
    }
    out.reasons = out.clauses.reasons();
    out.status = out.clauses.status();
    out.faithful = out.reasons.is_empty();
    out.sentence = sentence(&out, plan, facts.dry);
    out
}

fn clauses(j: &Judgement, pace: Pace, limits: Limits, facts: &Facts) -> Clauses {
    let mut why = Clauses::default();
    results_differ(&mut why, j, limits, facts);
    if let Some(tree) = j.tree.as_ref().filter(|t| t.differing > 0) {
        why.push(Clause::Tree, format!("{} names of the final tree differ", tree.differing));
    }
    if facts.lost > 0 {
        let lost = facts.lost;
        why.push(Clause::LeftOut, format!("{lost} events of the original were lost while recording"));
    }
    if let Some(reason) = j.left_out.reason(limits.left_out) {
        why.push(Clause::LeftOut, reason);
    }
    out_of_time(&mut why, j, pace, limits);
    why
}

/// Which results are not those of the original.
fn results_differ(why: &mut Clauses, j: &Judgement, limits: Limits, facts: &Facts) {
    let mut push = |reason| why.push(Clause::Results, reason);
    if facts.bad_reads > 0 {
        push(format!("{} reads returned wrong data", facts.bad_reads));
    }
    if j.missing != 0 {
        push(format!("{} operations were not issued", j.missing));
    }
    if j.results.strayed != 0 {
        push(format!("{} operations were issued more than once or out of turn", j.results.strayed));
    }
    let classes = j.results.classes;
    if classes.wrong > limits.wrong {
        push(format!("{} results are wrong", classes.wrong));
    }
    if classes.unsupported > limits.unsupported {
        push(unsupported(j));
    }
}

/// What was not issued at its time, or not in its order.
fn out_of_time(why: &mut Clauses, j: &Judgement, pace: Pace, limits: Limits) {
    let mut push = |reason| why.push(Clause::Timing, reason);
    if j.timing.overtaking > 0 {
        push(format!(
            "{} operations were issued before the previous one of their thread had returned",
            j.timing.overtaking
        ));
    }
    if j.timing.early > 0 {
        push(format!("{} operations were issued early", j.timing.early));
    }
    let broken: Vec<(&EdgeKind, i64)> =
        j.timing.edges.iter().map(|(k, e)| (k, e.violations)).filter(|(_, n)| *n > 0).collect();
    if !broken.is_empty() {
        let kinds: Vec<String> = broken.iter().map(|(k, n)| format!("{n} of {k}")).collect();
        push(format!("operations did not wait for others they depend on ({})", kinds.join(", ")));
    }
    if let Some(reason) = late(&j.timing, pace, limits.own_lateness_ns) {
        push(reason);
    }
    if let Some(ppm) = j.timing.drift_ppm.filter(|ppm| ppm.abs() > MAX_DRIFT_PPM) {
        let t = &j.timing;
        let whose =
            if t.caused_ns.p50 < t.schedule_ns.p50 / 2 { "the target is too slow" } else { "the replayer is too slow" };
        push(format!("issue times drift by {ppm:.0} ppm: {whose}"));
    }
}

/// Why the replayer was too late, if it was.
fn late(t: &Timing, pace: Pace, limit_ns: i64) -> Option<String> {
    let own = t.own_ns;
    if own.count < ENOUGH {
        let late = own.mean > limit_ns.saturating_mul(FEW_TIMES);
        return late.then(|| format!("the replayer itself was late (mean {})", time(own.mean)));
    }
    let (value, what) = match pace {
        Pace::Original | Pace::Scale(_) => (t.caused_ns.p99, "p99 with the delays that followed"),
        Pace::Think => (own.p99, "p99"),
        Pace::Load | Pace::Max => (own.mean, "mean"),
    };
    if value > limit_ns {
        return Some(format!("the replayer itself was late ({what} {})", time(value)));
    }
    let most = if pace == Pace::Think { MAX_THINK_COST_SHARE } else { MAX_COST_SHARE };
    let long = !pace.has_schedule() && own.mean > limit_ns / TRIFLE && t.cost_share > most;
    let share = t.cost_share * 100.0;
    long.then(|| format!("the replayer itself took {share:.0} % of the time (mean {})", time(own.mean)))
}

/// Which calls this file system cannot do, with counts. Calls that the original's could not do are normally not
/// replayed.
fn unsupported(j: &Judgement) -> String {
    let mut by_call: BTreeMap<String, i64> = BTreeMap::new();
    for d in j.results.differences.iter().filter(|d| d.class == Class::Unsupported) {
        *by_call.entry(format!("{} ({})", d.op, d.replayed)).or_default() += d.count;
    }
    let words: Vec<String> = by_call.into_iter().map(|(call, n)| format!("{n} {call}")).collect();
    let c = j.results.classes;
    let all = (c.same + c.benign + c.unsupported + c.wrong).max(1) as f64;
    let share = c.unsupported as f64 / all * 100.0;
    format!("{} calls ({share:.2} %) are not supported by this file system: {}", c.unsupported, words.join(", "))
}

fn sentence(j: &Judgement, plan: &Plan, dry: bool) -> String {
    let skipped: i64 = plan.skipped.values().sum();
    let share = skipped as f64 / (skipped + plan.calls).max(1) as f64 * 100.0;
    let but = if skipped > 0 { format!(" ({share:.1} % of operations skipped)") } else { String::new() };
    let subject = if dry { "The replayer" } else { "The replay" };
    if !j.faithful {
        return j.clauses.sentence(subject);
    }
    let own = format!("{} at p99, {} at most", time(j.timing.own_ns.p99), time(j.timing.own_ns.max));
    if dry {
        return format!("The replayer keeps up, with calls skipped: its own lateness is {own}.");
    }
    let n = outcomes_in_words(j);
    format!("The replay is faithful{but}: {n}, none early or out of order, own lateness {own}.")
}

fn outcomes_in_words(j: &Judgement) -> String {
    let c = j.results.classes;
    let mut out = format!("{} results are the same", c.same);
    if c.benign > 0 {
        out += &format!(", {} differ but raced in the original", c.benign);
    }
    if c.wrong > 0 {
        out += &format!(", {} are wrong, which was allowed", c.wrong);
    }
    if c.unsupported > 0 {
        out += &format!(", {} are not supported by this file system, which was allowed", c.unsupported);
    }
    if j.left_out.total() > 0 {
        out += &format!(", {}, which was allowed", j.left_out.words());
    }
    if j.tree.is_some() {
        out += ", the final tree is the same";
    }
    out
}

/// A time with its unit.
pub(crate) fn time(ns: i64) -> String {
    match ns {
        ..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
