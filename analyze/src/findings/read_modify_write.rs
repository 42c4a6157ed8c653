//! `read-modify-write`: reads forced by writes of parts of blocks.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, over_files, percent},
};
use crate::facts::Facts;

/// Fewer writes show no pattern.
const LEAST_WRITES: u64 = 20;

const SQL: &str = "SELECT o.file, o.offset_bytes, o.ret, b.len_bytes, o.dur_ns FROM 'ops/*.parquet' o JOIN 'bio/*.parquet' b ON b.cause = \
                   o.op_id WHERE b.op = 'read' AND o.op LIKE '%write%' ORDER BY o.dur_ns DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (writes, files) = over_files(facts, |f| &f.read_before_write, |_, _| true);
    if writes.count < LEAST_WRITES {
        return None;
    }
    let unaligned: u64 = facts.calls.files.values().map(|f| f.unaligned).sum();
    let part = unaligned as f64 / writes.count as f64;
    Some(Draft {
        summary: format!(
            "{} writes wait until the block that they change is read; {} of them are not aligned to 4 KiB",
            writes.count,
            percent(part)
        ),
        cost_ns: writes.share_ns,
        time_ns: Some(writes.time_ns),
        confidence: Confidence::High,
        evidence: Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
            .window(writes.first_ns, writes.last_ns)
            .figure("writes that read first", writes.count as f64)
            .figure("MiB read for them", writes.bytes as f64 / f64::from(1 << 20))
            .figure("share not aligned", part)
            .sql(SQL),
        remedy: "Write whole blocks at multiples of the block size (4 KiB; the stripe on RAID), collect small changes, or read the file \
                 before in one go."
            .into(),
        check: "Compare rmw and the reads of the job: ioreel stats".into(),
    })
}
