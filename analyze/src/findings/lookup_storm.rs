//! `lookup-storm`: look-ups that fail, and repeated look-ups of the same names.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, busiest_processes, percent},
};
use crate::facts::Facts;

/// Fewer useless look-ups are no storm.
const LEAST_LOOKUPS: u64 = 200;
/// Least part of all look-ups.
const LEAST_PART: f64 = 0.3;

const SQL: &str = "SELECT path, ret, count(*), sum(dur_ns) FROM 'ops/*.parquet' WHERE path IS NOT NULL AND op IN ('openat', \
                   'newfstatat', 'statx', 'access', 'faccessat2', 'readlinkat') GROUP BY ALL ORDER BY 4 DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let lookups = &facts.calls.lookups;
    let (repeated, repeated_ns) = lookups.repeated();
    let useless = lookups.failed.count + repeated;
    let all = lookups.failed.count + lookups.found.count;
    if useless < LEAST_LOOKUPS || (useless as f64) < LEAST_PART * all as f64 {
        return None;
    }
    let mut names: Vec<(f64, u64, u32)> = lookups
        .names
        .iter()
        .map(|(path, used)| {
            let again = used.found.count.saturating_sub(1);
            let share = used.found.share_ns * again as f64 / used.found.count.max(1) as f64;
            (used.failed.share_ns + share, used.failed.count + again, *path)
        })
        .collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    let files = names
        .into_iter()
        .take(5)
        .filter_map(|(ns, count, path)| {
            let name = facts.calls.paths.get(path as usize)?.to_string();
            Some(Part { name, count, bytes: 0, share_s: ns / S })
        })
        .collect();
    Some(Draft {
        summary: format!(
            "{} of {} look-ups of names are useless: {} find nothing, {} repeat an earlier one",
            useless, all, lookups.failed.count, repeated
        ),
        cost_ns: lookups.failed.share_ns + repeated_ns,
        time_ns: Some(
            lookups.failed.time_ns + lookups.found.time_ns * repeated as f64 / lookups.found.count.max(1) as f64,
        ),
        confidence: Confidence::High,
        evidence: Evidence { files, processes: busiest_processes(facts), ..Evidence::default() }
            .figure("look-ups that find nothing", lookups.failed.count as f64)
            .figure("look-ups of a name found before", repeated as f64)
            .figure("their share of all look-ups", useless as f64 / all as f64)
            .sql(SQL),
        remedy: format!(
            "Shorten search paths or put the directory that has the files first (PATH, -I, LD_LIBRARY_PATH, PYTHONPATH); keep \
             descriptors and results of stat instead of asking again. {} of the look-ups are affected.",
            percent(useless as f64 / all as f64)
        ),
        check: "Count the look-ups afterwards: ioreel stats (lookup_neg, stat_per_open)".into(),
    })
}
