//! `rewrites`: the same blocks written again and again within a short time.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, over_groups, percent, writes},
};
use crate::facts::Facts;

/// Least part of the devices' time in writes.
const LEAST_PART: f64 = 0.2;
/// Fewer writes show no pattern.
const LEAST_WRITES: u64 = 50;

const SQL: &str = "SELECT dev, sector, count(*), any_value(class), any_value(file) FROM 'bio/*.parquet' WHERE op = 'write' AND \
                   class <> 'journal' GROUP BY dev, sector HAVING count(*) > 1 ORDER BY 3 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    // A journal reuses its blocks by design.
    let sum = over_groups(facts, |g| writes(g) && &*g.content != "journal");
    let all = sum.flow;
    if all.count < LEAST_WRITES || all.rewritten_ns < LEAST_PART * all.share_ns {
        return None;
    }
    let mut files: Vec<_> =
        facts.traffic.files.iter().filter(|(_, f)| f.write.rewritten_ns > 0.0).map(|(id, f)| (*id, f.write)).collect();
    files.sort_by(|a, b| b.1.rewritten_ns.total_cmp(&a.1.rewritten_ns).then(a.0.cmp(&b.0)));
    let files: Vec<Part> = files
        .into_iter()
        .take(5)
        .map(|(file, flow)| Part {
            name: facts.names.path(file),
            count: flow.count,
            bytes: flow.bytes,
            share_s: flow.rewritten_ns / S,
        })
        .collect();
    let part = all.rewritten_ns / all.share_ns.max(1.0);
    let rewritten_files: f64 = files.iter().map(|f| f.share_s * S).sum();
    Some(Draft {
        summary: format!("{} of the time in writes goes to blocks written less than 5 s before", percent(part)),
        cost_ns: sum.rewritten_cost_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence { files, ..Evidence::default() }
            .window(all.first_ns, all.last_ns)
            .figure("share of the time in writes", part)
            .figure("part of it in file data", rewritten_files / all.rewritten_ns.max(1.0))
            .sql(SQL),
        remedy: "Collect changes and write each block once: fewer syncs, larger transactions, a buffer in the program. Blocks of \
                 metadata are rewritten at each commit: commit less often (mount option commit=)."
            .into(),
        check: "Compare waf and rewrite_le: ioreel stats".into(),
    })
}
