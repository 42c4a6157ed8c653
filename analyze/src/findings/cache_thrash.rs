//! `cache-thrash`: blocks read again after they were evicted.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, over_groups, percent},
};
use crate::{events::requests::Class, facts::Facts};

/// Least part of the time in reads.
const LEAST_PART: f64 = 0.1;
/// Fewer reads show no pattern.
const LEAST_READS: u64 = 50;

const SQL: &str = "SELECT dev, sector, count(*), any_value(file) FROM 'bio/*.parquet' WHERE op = 'read' GROUP BY dev, sector HAVING \
                   count(*) > 1 ORDER BY 3 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let sum = over_groups(facts, |g| g.op == Class::Read && (g.recorded || !facts.has_operations));
    let all = sum.flow;
    if all.count < LEAST_READS || all.reread_ns < LEAST_PART * all.share_ns {
        return None;
    }
    let mut files: Vec<_> =
        facts.traffic.files.iter().filter(|(_, f)| f.read.reread_ns > 0.0).map(|(id, f)| (*id, f.read)).collect();
    files.sort_by(|a, b| b.1.reread_ns.total_cmp(&a.1.reread_ns).then(a.0.cmp(&b.0)));
    let files: Vec<Part> = files
        .into_iter()
        .take(5)
        .map(|(id, f)| Part { name: facts.names.path(id), count: f.count, bytes: f.bytes, share_s: f.reread_ns / S })
        .collect();
    let part = all.reread_ns / all.share_ns.max(1.0);
    Some(Draft {
        summary: format!("{} of the time in reads goes to blocks that had been read before", percent(part)),
        cost_ns: sum.reread_cost_ns,
        time_ns: None,
        confidence: Confidence::High,
        evidence: Evidence { files, ..Evidence::default() }
            .window(all.first_ns, all.last_ns)
            .figure("share of the time in reads", part)
            .figure("reads", all.count as f64)
            .sql(SQL),
        remedy: "Give the job more memory (memory.max of its control group), drop what streams through (POSIX_FADV_DONTNEED, \
                 RWF_DONTCACHE, O_DIRECT), or read in an order that reuses what is cached."
            .into(),
        check: "Record with --cache and compare evictions; record again with twice the memory".into(),
    })
}
