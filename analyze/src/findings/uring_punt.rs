//! `uring-punt`: requests to io_uring carried out by worker threads instead of in place.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, percent},
};
use crate::facts::Facts;

/// Fewer requests show no pattern.
const LEAST_REQUESTS: u64 = 100;
/// Least part of the requests.
const LEAST_PART: f64 = 0.2;

const SQL: &str = "SELECT op, count(*), avg(dur_ns), sum(CASE WHEN sqe_flags & 256 <> 0 THEN 1 ELSE 0 END) FROM 'ops/*.parquet' WHERE \
                   source = 'io_uring' GROUP BY op ORDER BY 2 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (all, punted) = (facts.calls.uring, facts.calls.punted);
    if punted.count < LEAST_REQUESTS || (punted.count as f64) < LEAST_PART * all.count as f64 {
        return None;
    }
    let inline = all.count - punted.count;
    // Without a request in place to compare with, the hand-over takes about half of a short request.
    let rest = if inline > 0 {
        ((all.time_ns - punted.time_ns) / inline as f64 / punted.mean_ns().max(1.0)).min(1.0)
    } else {
        0.5
    };
    Some(Draft {
        summary: format!(
            "{} of {} requests to io_uring ({}) are handed to worker threads",
            punted.count,
            all.count,
            percent(punted.count as f64 / all.count as f64)
        ),
        cost_ns: punted.share_ns * (1.0 - rest),
        time_ns: Some(punted.time_ns),
        confidence: if inline > 0 { Confidence::Medium } else { Confidence::Low },
        evidence: Evidence { processes: busiest_processes(facts), ..Evidence::default() }
            .window(punted.first_ns, punted.last_ns)
            .figure("requests", all.count as f64)
            .figure("handed to workers", punted.count as f64)
            .figure("mean time of these, ms", punted.mean_ns() / 1e6)
            .sql(SQL),
        remedy: "Use O_DIRECT with aligned buffers, or overwrite allocated space: buffered writes that extend a file and fsync cannot \
                 complete in place. Do not set IOSQE_ASYNC."
            .into(),
        check: "Count rows with bit 256 of sqe_flags afterwards".into(),
    })
}
