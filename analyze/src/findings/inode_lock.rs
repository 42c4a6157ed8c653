//! `inode-lock`: threads that use one file one at a time.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, busiest_processes, lock_holders, over_files, percent},
};
use crate::facts::Facts;

/// Fewer waits show no pattern.
const LEAST_WAITS: u64 = 10;
/// Least part of the time in writes that overlaps with writes of other threads.
const LEAST_SERIAL: f64 = 0.25;

const SQL: &str = "SELECT o.file, w.op, w.lock_kind, w.owner_comm, w.waker_comm, count(*), sum(w.dur_ns) FROM 'waits/*.parquet' w \
                   JOIN 'ops/*.parquet' o ON o.task_id = w.task_id AND o.start_ns = w.op_start_ns WHERE w.reason IN \
                   ('inode_lock', 'lock') GROUP BY ALL ORDER BY 7 DESC";
const SQL_WITHOUT_WAITS: &str = "SELECT file, count(DISTINCT task_id), count(*), sum(dur_ns) FROM 'ops/*.parquet' WHERE op LIKE \
                                 '%write%' GROUP BY ALL HAVING count(DISTINCT task_id) > 1 ORDER BY 4 DESC";
const REMEDY: &str = "Give each thread a file of its own, let one thread write for all, or use O_DIRECT: XFS and recent ext4 then \
                      lock overwrites shared. btrfs locks ranges.";
const CHECK: &str = "Run with one thread: if the rate is the same, the lock was the limit";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    if facts.calls.waits_recorded { by_waits(facts) } else { by_overlap(facts) }
}

fn by_waits(facts: &Facts) -> Option<Draft> {
    let (waits, files) = over_files(facts, |f| &f.lock_waits, |_, _| true);
    if waits.count < LEAST_WAITS {
        return None;
    }
    let lock_ns = facts.calls.parts.lock_ns;
    let holders = lock_holders(facts);
    let by = holders.first().map_or(String::new(), |most| {
        format!("; {} of that time {}", percent(most.time_ns / lock_ns.max(1.0)), most.words())
    });
    // The time of waits, as a share of the elapsed time.
    let share = waits.share_ns / lock_ns.max(1.0);
    let holders = holders
        .into_iter()
        .map(|h| Part { name: h.words(), count: h.waits, bytes: 0, share_s: h.time_ns * share / S })
        .collect();
    Some(Draft {
        summary: format!(
            "{} operations wait for a lock of a file or of its pages, {:.2} ms on average{by}",
            waits.count,
            waits.share_ns / waits.count as f64 / 1e6
        ),
        cost_ns: waits.share_ns,
        time_ns: Some(lock_ns),
        confidence: Confidence::High,
        evidence: Evidence { files, holders, processes: busiest_processes(facts), ..Evidence::default() }
            .window(waits.first_ns, waits.last_ns)
            .figure("operations that waited", waits.count as f64)
            .figure("time waiting for locks, s", lock_ns / S)
            .sql(SQL),
        remedy: REMEDY.into(),
        check: CHECK.into(),
    })
}

/// Without recorded waits: writes of one file that overlap in time wait for one another where the file system lets only
/// one in.
fn by_overlap(facts: &Facts) -> Option<Draft> {
    let serial = &facts.stats.lock_serial;
    let mut cost_ns = 0.0;
    let mut time_ns = 0.0;
    let mut files = Vec::new();
    for one in serial.iter().filter(|l| l.serial >= LEAST_SERIAL) {
        let Some(used) = facts.calls.files.get(&one.file) else { continue };
        let share_ns = used.writes.share_ns * one.serial;
        cost_ns += share_ns;
        time_ns += one.time_ns as f64;
        files.push(Part {
            name: facts.names.path(one.file),
            count: used.writes.count,
            bytes: used.writes.bytes,
            share_s: share_ns / S,
        });
    }
    let first = serial.first()?;
    if files.is_empty() {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{} threads write {} at the same time: {} of their time in writes overlaps",
            first.threads,
            facts.names.path(first.file),
            percent(first.serial)
        ),
        cost_ns,
        time_ns: Some(time_ns),
        confidence: Confidence::Low,
        evidence: Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
            .figure("threads", first.threads as f64)
            .figure("share of overlapping time", first.serial)
            .sql(SQL_WITHOUT_WAITS),
        remedy: format!("{REMEDY} Record with --waits to see who waits for the lock."),
        check: CHECK.into(),
    })
}
