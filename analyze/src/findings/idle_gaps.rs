//! `idle-gaps`: neither CPU nor device is busy all the time: a thread computes, waits for the device, computes.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, S, busiest_processes},
};
use crate::facts::Facts;

/// Least part of the elapsed time that each of both takes.
const LEAST_PART: f64 = 0.15;
/// The thread makes at least this part of all calls' time.
const LEAST_OF_CALLS: f64 = 0.8;

const SQL: &str = "SELECT start_ns, dur_ns, start_ns - lag(start_ns + dur_ns) OVER (PARTITION BY task_id ORDER BY start_ns) AS gap_ns FROM \
                   'ops/*.parquet' ORDER BY start_ns";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (_, task) = facts.calls.tasks.iter().max_by(|a, b| a.1.calls.time_ns.total_cmp(&b.1.calls.time_ns))?;
    let least = LEAST_PART * facts.elapsed_ns;
    if task.calls.time_ns < LEAST_OF_CALLS * facts.calls.all.time_ns
        || task.waits_ns < least
        || task.computing_ns < least
    {
        return None;
    }
    Some(Draft {
        summary: format!(
            "One thread computes for {:.2} s and waits for the device for {:.2} s, never both at once",
            task.computing_ns / S,
            task.waits_ns / S
        ),
        cost_ns: task.waits_ns.min(task.computing_ns),
        time_ns: Some(task.waits_ns),
        confidence: Confidence::Low,
        evidence: Evidence { processes: busiest_processes(facts), ..Evidence::default() }
            .figure("computing between calls, s", task.computing_ns / S)
            .figure("waiting for the device, s", task.waits_ns / S)
            .sql(SQL),
        remedy: "Read ahead while computing: a second thread, io_uring, POSIX_FADV_WILLNEED for the next piece.".into(),
        check: "Record again: the elapsed time should approach the longer of both".into(),
    })
}
