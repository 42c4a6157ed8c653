//! `single-depth`: one thread, one request in flight, on a device that could do many.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, over_disks, over_files, own_disks, percent},
};
use crate::{
    events::requests::Class,
    facts::{Disk, Facts},
};

/// Fewer reads show no pattern.
const LEAST_READS: u64 = 50;
/// Least part of the busy time with one request in flight.
const LEAST_SINGLE: f64 = 0.7;
/// The remedy keeps so many requests in flight. Rotating disks gain less: the head is one.
const DEPTH: f64 = 4.0;
const DEPTH_ROTATING: f64 = 1.5;

const SQL: &str = "SELECT file, count(*), avg(dur_ns) FROM 'ops/*.parquet' o WHERE op IN ('read', 'pread64') AND EXISTS (FROM \
                   'bio/*.parquet' b WHERE b.cause = o.op_id) GROUP BY file ORDER BY 2 DESC";

fn is_single(disk: &Disk) -> bool {
    disk.single_ns >= LEAST_SINGLE * disk.busy_ns && disk.of(Class::Read).count >= LEAST_READS
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let disks = own_disks(facts);
    let (disk, _) = *disks.iter().find(|(d, _)| is_single(d))?;
    let gain = 1.0 - 1.0 / if disk.rotational { DEPTH_ROTATING } else { DEPTH };
    let (waits, files) = over_files(facts, |f| &f.random_waits, |_, _| true);
    let (share_ns, time_ns, count) = if facts.has_operations {
        (waits.share_ns, Some(waits.time_ns), waits.count)
    } else {
        (disk.of(Class::Read).share_ns, None, disk.of(Class::Read).count)
    };
    if count < LEAST_READS {
        return None;
    }
    let single = disk.single_ns / disk.busy_ns.max(1.0);
    Some(Draft {
        summary: format!(
            "{} has one request in flight for {} of its busy time; {count} reads wait for one another, {:.2} ms each",
            disk.name,
            percent(single),
            disk.of(Class::Read).mean_time_ns() / 1e6
        ),
        cost_ns: share_ns * gain,
        time_ns,
        confidence: if facts.has_operations { Confidence::Medium } else { Confidence::Low },
        evidence: Evidence {
            files,
            processes: busiest_processes(facts),
            devices: over_disks(facts, |d| if is_single(d) { d.single_ns } else { 0.0 }),
            ..Evidence::default()
        }
        .window(disk.first_ns, disk.last_ns)
        .figure("share of the busy time with one request", single)
        .figure("mean depth while busy", disk.depth())
        .figure("reads that wait", count as f64)
        .sql(SQL),
        remedy: "Keep several requests in flight: io_uring, AIO, several threads, posix_fadvise(POSIX_FADV_WILLNEED) or readahead \
                 for what will be read. The cost assumes four."
            .into(),
        check: "Record with four in flight and compare qd_mean and the elapsed time: ioreel stats".into(),
    })
}
