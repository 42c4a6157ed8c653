//! `periodic-stall`: operations that stall at regular intervals, as with a commit every five seconds.

use super::{
    finding::{Confidence, Evidence},
    support::{Draft, S},
};
use crate::facts::{Facts, Stall};

/// Fewer stalls show no period.
const LEAST_STALLS: usize = 3;
/// Stalls closer than this are one.
const JOINED_NS: i64 = 500_000_000;
/// Shorter and longer periods are no commit and no flush.
const PERIOD_NS: std::ops::Range<i64> = 800_000_000..70_000_000_000;
/// The stalls that stand out take at least a quarter of the fifth longest.
const LONGEST: usize = 4;
const STAND_OUT: i64 = 4;
/// Greatest relative deviation of the intervals.
const MOST_VARIATION: f64 = 0.35;

const SQL: &str =
    "SELECT start_ns, dur_ns, op, task_id, file FROM 'ops/*.parquet' WHERE dur_ns > 10000000 ORDER BY start_ns";

/// How long an operation takes at least to count: on a slow device, many take ten milliseconds, and the stalls are those
/// that stand out.
fn least_stall_ns(stalls: &[Stall]) -> i64 {
    let mut lengths: Vec<i64> = stalls.iter().map(|s| s.end_ns - s.start_ns).collect();
    lengths.sort_unstable_by_key(|ns| std::cmp::Reverse(*ns));
    lengths.get(LONGEST.min(lengths.len().saturating_sub(1))).map_or(0, |ns| ns / STAND_OUT)
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let mut starts: Vec<i64> = Vec::new();
    let mut last_ns = i64::MIN / 2;
    let mut share_ns = 0.0;
    let least_ns = least_stall_ns(&facts.calls.stalls);
    for stall in facts.calls.stalls.iter().filter(|s| s.end_ns - s.start_ns >= least_ns) {
        if stall.start_ns - last_ns > JOINED_NS {
            starts.push(stall.start_ns);
        }
        last_ns = last_ns.max(stall.end_ns);
        share_ns += stall.share_ns;
    }
    if starts.len() < LEAST_STALLS {
        return None;
    }
    let mut gaps: Vec<i64> = starts.windows(2).map(|w| w[1] - w[0]).collect();
    gaps.sort_unstable();
    let period_ns = *gaps.get(gaps.len() / 2)?;
    let spread = gaps.iter().map(|g| (g - period_ns).abs() as f64).sum::<f64>() / gaps.len() as f64;
    if !PERIOD_NS.contains(&period_ns) || spread > MOST_VARIATION * period_ns as f64 {
        return None;
    }
    let (first, last) = (facts.calls.stalls.first()?, facts.calls.stalls.last()?);
    Some(Draft {
        summary: format!("Operations stall {} times, every {:.1} s", starts.len(), period_ns as f64 / S),
        cost_ns: share_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence::default()
            .window(first.start_ns, last.end_ns)
            .figure("stalls", starts.len() as f64)
            .figure("period, s", period_ns as f64 / S)
            .figure("mean deviation of the period, s", spread / S)
            .sql(SQL),
        remedy: "Spread the writing: lower vm.dirty_background_bytes and vm.dirty_writeback_centisecs, or call sync_file_range while \
                 writing. A period of 5 s is ext4's commit (mount option commit=), 30 s is btrfs's commit or the age of dirty pages."
            .into(),
        check: "Compare the 99.9th percentile of writes: ioreel stats".into(),
    })
}
