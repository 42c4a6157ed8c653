//! `device-cap`: a provisioned limit: the rate is flat at its top while requests wait.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S, own_disks},
};
use crate::facts::{Bin, Disk, Facts};

/// Fewer busy bins show no limit.
const LEAST_BINS: usize = 20;
/// Greatest relative deviation of a limited rate. What a device can do varies more.
const MOST_DEVIATION: f64 = 0.04;
/// Least mean number of requests in flight.
const LEAST_DEPTH: f64 = 2.0;
/// The fastest requests take at most this part of the mean time: they came before the limit was reached.
const FAST_PART: f64 = 0.25;
/// Least part of the busy bins at the top.
const LEAST_AT_TOP: f64 = 0.5;

const SQL: &str = "SELECT complete_ns // 100000000 AS tenth, count(*), sum(len_bytes), avg(complete_ns - issue_ns) FROM \
                   'block/*.parquet' WHERE op IN ('read', 'write') GROUP BY tenth ORDER BY tenth";

/// Median rate and relative deviation of the bins at the top. `None` if the rate has no plateau.
fn plateau(bins: &[Bin], of: impl Fn(&Bin) -> f64) -> Option<(f64, f64)> {
    let mut rates: Vec<f64> = bins.iter().map(of).collect();
    rates.sort_by(f64::total_cmp);
    let top = *rates.get(rates.len() * 9 / 10)?;
    let at_top: Vec<f64> = rates.iter().copied().filter(|r| *r > 0.8 * top).collect();
    if (at_top.len() as f64) < LEAST_AT_TOP * rates.len() as f64 {
        return None;
    }
    let mean = at_top.iter().sum::<f64>() / at_top.len() as f64;
    let deviation = at_top.iter().map(|r| (r - mean).abs()).sum::<f64>() / at_top.len() as f64 / mean.max(1.0);
    Some((mean, deviation))
}

fn capped(disk: &Disk) -> Option<(&'static str, f64, f64)> {
    let bins = disk.rates.busy();
    if bins.len() < LEAST_BINS || disk.depth() < LEAST_DEPTH {
        return None;
    }
    let per_s = S / disk.rates.width_ns as f64;
    let count = plateau(&bins, |b| b.count as f64).map(|(mean, deviation)| ("requests", mean * per_s, deviation));
    let bytes = plateau(&bins, |b| b.bytes as f64).map(|(mean, deviation)| ("bytes", mean * per_s, deviation));
    let least = [count, bytes].into_iter().flatten().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let fast = [&disk.read_latency, &disk.write_latency]
        .iter()
        .map(|l| l.summary())
        .filter(|l| l.count > 100)
        .any(|l| l.min_ns as f64 <= FAST_PART * l.mean_ns as f64);
    (least.2 <= MOST_DEVIATION && fast).then_some(least)
}

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let disks = own_disks(facts);
    let (disk, (what, rate, deviation)) = disks.iter().find_map(|(d, _)| Some((*d, capped(d)?)))?;
    let rate_words = if what == "bytes" {
        format!("{:.1} MiB/s", rate / f64::from(1 << 20))
    } else {
        format!("{rate:.0} requests/s")
    };
    // At depth n, a device without the limit would answer n times as fast, as far as is known.
    let cost_ns = disk.busy_ns * (1.0 - 1.0 / disk.depth()) * facts.weight_of(disk.dev);
    Some(Draft {
        summary: format!(
            "{} stays at {rate_words} within {:.1} %, with {:.1} requests waiting: a provisioned limit",
            disk.name,
            deviation * 100.0,
            disk.depth()
        ),
        cost_ns,
        time_ns: None,
        confidence: Confidence::Medium,
        evidence: Evidence {
            devices: vec![Part { name: disk.name.clone(), count: 0, bytes: 0, share_s: cost_ns / S }],
            ..Evidence::default()
        }
        .window(disk.first_ns, disk.last_ns)
        .figure(if what == "bytes" { "MiB/s" } else { "requests/s" }, if what == "bytes" {
            rate / f64::from(1 << 20)
        } else {
            rate
        })
        .figure("relative deviation", deviation)
        .figure("mean depth", disk.depth())
        .sql(SQL),
        remedy: "Raise the limit: the volume's provisioned IOPS or throughput, io.max of the control group, QEMU's throttling; or join \
                 requests, where the limit counts them."
            .into(),
        check: "Compare the plateau in ioreel plot --panels iops,throughput".into(),
    })
}
