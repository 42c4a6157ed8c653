//! `tiny-buffers`: reads and writes of few bytes, one after another.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, over_files},
};
use crate::facts::Facts;

/// Fewer calls take no time.
const LEAST_CALLS: u64 = 1000;
/// Size of a buffer after the remedy: larger ones save no more (TLPI, table 13-1).
const BUFFER_BYTES: f64 = 65_536.0;

const SQL: &str = "SELECT file, op, count(*), avg(ret), sum(dur_ns) FROM 'ops/*.parquet' WHERE op IN ('read', 'write', \
                   'pread64', 'pwrite64') AND ret BETWEEN 1 AND 4095 GROUP BY ALL ORDER BY 5 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (tiny, files) = over_files(facts, |f| &f.tiny, |_, f| f.tiny.count >= LEAST_CALLS / 10);
    if tiny.count < LEAST_CALLS {
        return None;
    }
    let mean = tiny.mean_bytes();
    Some(Draft {
        summary: format!("{} sequential reads and writes move {mean:.0} bytes each", tiny.count),
        cost_ns: tiny.share_ns * (1.0 - mean / BUFFER_BYTES),
        time_ns: Some(tiny.time_ns),
        confidence: Confidence::High,
        evidence: Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
            .window(tiny.first_ns, tiny.last_ns)
            .figure("calls", tiny.count as f64)
            .figure("mean bytes of a call", mean)
            .figure("calls per MiB", f64::from(1 << 20) / mean.max(1.0))
            .sql(SQL),
        remedy: "Use a buffer of 64 KiB: setvbuf, BufReader and BufWriter, bs=64k, writev.".into(),
        check: "Record again and compare the time in reads and writes: ioreel info".into(),
    })
}
