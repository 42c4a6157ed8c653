//! `readahead-missing`: a sequential reader that waits for the device at each small read.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, over_files},
};
use crate::facts::{Facts, FileUse};

/// Fewer reads show no pattern.
const LEAST_READS: u64 = 50;
/// With readahead, requests are larger.
const MOST_REQUEST_BYTES: f64 = 65_536.0;
/// The remedy joins so many reads in one request.
const JOINED: f64 = 8.0;
/// Least part of a file's reads that wait for the device.
const LEAST_PART: f64 = 0.5;

const SQL: &str = "SELECT o.file, count(*), avg(o.ret), avg(o.dur_ns) FROM 'ops/*.parquet' o JOIN 'bio/*.parquet' b ON b.cause = \
                   o.op_id WHERE o.op IN ('read', 'pread64', 'readv', 'preadv') AND b.op = 'read' GROUP BY o.file ORDER BY 2 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let small = |file: i64, used: &FileUse| {
        used.sequential_waits.count as f64 >= LEAST_PART * used.reads.count as f64
            && used.reads.mean_bytes() <= MOST_REQUEST_BYTES
            && facts.traffic.files.get(&file).is_some_and(|f| f.read.mean_bytes() <= MOST_REQUEST_BYTES)
    };
    let (waits, files) = over_files(facts, |f| &f.sequential_waits, small);
    if waits.count < LEAST_READS {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{} sequential reads of {:.1} KiB wait for the device one by one: nothing is read ahead",
            waits.count,
            waits.mean_bytes() / 1024.0
        ),
        cost_ns: waits.share_ns * (1.0 - 1.0 / JOINED),
        time_ns: Some(waits.time_ns),
        confidence: Confidence::High,
        evidence: Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
            .window(waits.first_ns, waits.last_ns)
            .figure("reads that wait", waits.count as f64)
            .figure("mean bytes of a read", waits.mean_bytes())
            .figure("mean time of a read, ms", waits.mean_ns() / 1e6)
            .sql(SQL),
        remedy: "Do not open with O_DIRECT or advise POSIX_FADV_RANDOM for a scan; set POSIX_FADV_SEQUENTIAL; raise \
                 /sys/block/DEV/queue/read_ahead_kb; or read larger blocks."
            .into(),
        check: "Compare the sizes of read requests: ioreel stats, ioreel plot --panels sizes".into(),
    })
}
