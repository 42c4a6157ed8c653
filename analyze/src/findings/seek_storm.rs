//! `seek-storm`: requests in no order on a device that is slower for them.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, over_disks, own_disks, percent},
};
use crate::facts::{Disk, Facts};

/// Fewer seeks are no storm.
const LEAST_SEEKS: u64 = 200;
/// Least part of all reads and writes.
const LEAST_PART: f64 = 0.3;
/// On a device that seeks, a distant request takes at least so many times as long.
const SLOWER: f64 = 1.5;
/// Fewer sequential requests say nothing about their time.
const LEAST_SEQUENTIAL: u64 = 20;

const SQL: &str = "SELECT dev, count(*) FROM (SELECT dev, abs(sector - lag(sector + len_bytes // 512) OVER (PARTITION BY dev ORDER \
                   BY issue_ns)) AS distance FROM 'block/*.parquet' WHERE op IN ('read', 'write')) WHERE distance > 128 GROUP BY dev";

/// By how much the device would be busy for less time without seeks, ns.
pub(super) fn seek_cost_ns(disk: &Disk) -> f64 {
    let (seeks, rest) = (&disk.seeks, &disk.sequential);
    let measured = rest.count >= LEAST_SEQUENTIAL && seeks.mean_share_ns() > SLOWER * rest.mean_share_ns()
        // A long request takes its time without a seek.
        && seeks.mean_bytes() <= 2.0 * rest.mean_bytes().max(4096.0);
    match (measured, disk.rotational) {
        (true, _) => (seeks.mean_share_ns() - rest.mean_share_ns()) * seeks.count as f64,
        // Two thirds of a random access are seek and rotation where a track holds less than a megabyte.
        (false, true) if rest.count < LEAST_SEQUENTIAL => seeks.share_ns * 2.0 / 3.0,
        _ => 0.0,
    }
}

fn is_stormy(disk: &Disk) -> bool {
    let all = disk.seeks.count + disk.sequential.count;
    disk.seeks.count >= LEAST_SEEKS && disk.seeks.count as f64 >= LEAST_PART * all as f64
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let stormy: Vec<(&Disk, f64)> = own_disks(facts).into_iter().filter(|(d, _)| is_stormy(d)).collect();
    let (first, _) = stormy.first()?;
    let cost_ns: f64 = stormy.iter().map(|(d, weight)| seek_cost_ns(d) * weight).sum();
    let count: u64 = stormy.iter().map(|(d, _)| d.seeks.count).sum();
    let all: u64 = stormy.iter().map(|(d, _)| d.seeks.count + d.sequential.count).sum();
    Some(Draft {
        summary: format!(
            "{} of the requests ({count}) are more than 64 KiB away from the previous one; on {} each takes {:.2} ms, others {:.2} ms",
            percent(count as f64 / all.max(1) as f64),
            first.name,
            first.seeks.mean_time_ns() / 1e6,
            first.sequential.mean_time_ns() / 1e6
        ),
        cost_ns,
        time_ns: None,
        confidence: if stormy.iter().any(|(d, _)| d.rotational) { Confidence::High } else { Confidence::Low },
        evidence: Evidence {
            devices: over_disks(facts, |d| if is_stormy(d) { d.seeks.share_ns } else { 0.0 }),
            ..Evidence::default()
        }
        .window(first.first_ns, first.last_ns)
        .figure("seeks", count as f64)
        .figure("mean time of a request after a seek, ms", first.seeks.mean_time_ns() / 1e6)
        .figure("mean time of another request, ms", first.sequential.mean_time_ns() / 1e6)
        .sql(SQL),
        remedy: "Issue requests in the order of the disk: sort by offset or inode before reading and flushing, keep more of them \
                 in flight, use the scheduler mq-deadline or bfq on a rotating disk."
            .into(),
        check: "Compare seeks.sw64k and seeks.hdd_ms: ioreel stats".into(),
    })
}
