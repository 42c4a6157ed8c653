//! `fault-storm`: mapped files touched page by page.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, busiest_processes, over_files},
};
use crate::facts::Facts;

/// Fewer faults are no storm.
const LEAST_FAULTS: u64 = 256;
/// The remedy reads so many pages at once.
const JOINED: f64 = 16.0;

const SQL: &str = "SELECT file, count(*), sum(dur_ns) FROM 'ops/*.parquet' WHERE source = 'fault' AND op = 'fault' GROUP BY file ORDER \
                   BY 3 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let (faults, files) = over_files(facts, |f| &f.faults, |_, _| true);
    if faults.count < LEAST_FAULTS {
        return None;
    }
    Some(Draft {
        summary: format!(
            "{} touches of mapped pages wait {:.3} ms each for the page to be read",
            faults.count,
            faults.mean_ns() / 1e6
        ),
        cost_ns: faults.share_ns * (1.0 - 1.0 / JOINED),
        time_ns: Some(faults.time_ns),
        confidence: Confidence::High,
        evidence: Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
            .window(faults.first_ns, faults.last_ns)
            .figure("faults that wait", faults.count as f64)
            .figure("mean time, ms", faults.mean_ns() / 1e6)
            .sql(SQL),
        remedy: "madvise(MADV_WILLNEED or MADV_POPULATE_READ) before the use, MAP_POPULATE, or read into a buffer; MADV_RANDOM turns \
                 readahead off and makes it worse for a scan."
            .into(),
        check: "Count the faults afterwards: ioreel info (fault)".into(),
    })
}
