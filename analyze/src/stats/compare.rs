//! Compares reels: differences, and confidence intervals for repeated runs.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::flat::{Unit, Value};

/// A mean over repeated runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Mean {
    /// Number of runs with this statistic.
    pub runs: usize,
    /// Mean of these runs.
    pub mean: f64,
    /// Half-width of the mean's 95 % confidence interval (Student's t). Null for a single run.
    pub ci95: Option<f64>,
}

/// A statistic of two or more groups of reels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Device, as named in the first reel that has it. Empty for statistics of the whole scope.
    pub device: String,
    /// The statistic.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// One entry per group. Null if no reel of the group has the statistic.
    pub groups: Vec<Option<Mean>>,
    /// Mean of the last group minus mean of the first. Null if either is missing.
    pub difference: Option<f64>,
    /// Half-width of the difference's 95 % confidence interval (Welch's t). Null unless both groups have several runs.
    pub difference_ci95: Option<f64>,
}

/// Aligns the statistics of groups of reels. Devices are matched by rank: the first is the one with most bytes.
pub fn compare(groups: &[Vec<Vec<Value>>]) -> Vec<Row> {
    let mut keys: Vec<((usize, String), Value)> = Vec::new();
    let mut known: HashSet<(usize, String)> = HashSet::new();
    let mut tables = Vec::new();
    for group in groups {
        let mut runs = Vec::new();
        for values in group {
            // A map, because a damaged reel may contain any number of devices.
            let mut devices: HashMap<&str, usize> = HashMap::new();
            let mut run = HashMap::new();
            for v in values {
                let next = devices.len();
                let place = *devices.entry(&v.device).or_insert(next);
                let key = (place, v.name.clone());
                if known.insert(key.clone()) {
                    keys.push((key.clone(), v.clone()));
                }
                run.insert(key, v.value);
            }
            runs.push(run);
        }
        tables.push(runs);
    }
    // A statistic that only a later reel has is listed with its device, not at the end.
    keys.sort_by_key(|((place, _), _)| *place);
    let row = |((place, name), first): ((usize, String), Value)| {
        let key = (place, name);
        let groups: Vec<Option<Moments>> = tables
            .iter()
            .map(|runs| moments(&runs.iter().filter_map(|r| r.get(&key).copied()).collect::<Vec<_>>()))
            .collect();
        let ends = groups.first().copied().flatten().zip(groups.last().copied().flatten());
        let ends = ends.filter(|_| groups.len() > 1);
        Row {
            device: first.device,
            name: key.1,
            unit: first.unit,
            difference: ends.map(|(a, b)| b.mean - a.mean),
            difference_ci95: ends.and_then(|(a, b)| welch(a, b)),
            groups: groups.into_iter().map(|m| m.map(Moments::mean)).collect(),
        }
    };
    keys.into_iter().map(row).collect()
}

#[derive(Clone, Copy, Debug)]
struct Moments {
    n: usize,
    mean: f64,
    variance: Option<f64>,
}

impl Moments {
    fn mean(self) -> Mean {
        let half = |v: f64| student95((self.n - 1) as f64) * (v / self.n as f64).sqrt();
        Mean { runs: self.n, mean: self.mean, ci95: self.variance.map(half) }
    }
}

fn moments(values: &[f64]) -> Option<Moments> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let variance = (n > 1).then(|| values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64);
    Some(Moments { n, mean, variance })
}

/// Half-width of the difference's 95 % confidence interval with unknown and unequal variances (Welch 1947).
fn welch(a: Moments, b: Moments) -> Option<f64> {
    let (va, vb) = (a.variance? / a.n as f64, b.variance? / b.n as f64);
    let sum = va + vb;
    if sum == 0.0 {
        return Some(0.0);
    }
    let freedom = sum.powi(2) / (va.powi(2) / (a.n - 1) as f64 + vb.powi(2) / (b.n - 1) as f64);
    Some(student95(freedom) * sum.sqrt())
}

/// The two-sided 95 % quantile of Student's t for 1, 2, … 30 degrees of freedom.
const STUDENT95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The quantile for any degrees of freedom: interpolated between integers, and beyond 30 towards 1.960 of the normal
/// distribution, by 1/f.
fn student95(freedom: f64) -> f64 {
    let f = freedom.max(1.0);
    let below = f.floor().min(30.0);
    let at = |i: f64| STUDENT95[(i as usize - 1).min(29)];
    if f >= 30.0 {
        return 1.960 + (at(30.0) - 1.960) * 30.0 / f;
    }
    let share = (1.0 / below - 1.0 / f) / (1.0 / below - 1.0 / (below + 1.0));
    at(below) + (at(below + 1.0) - at(below)) * share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(value: f64) -> Vec<Value> {
        vec![Value { device: "sda".into(), name: "iops".into(), unit: Unit::PerSecond, value }]
    }

    #[test]
    fn intervals_are_students() {
        // Textbook: 1..5 has mean 3, s = 1.5811, t(4) = 2.776: 3 ± 1.963.
        let rows = compare(&[(1..=5).map(|v| run(f64::from(v))).collect(), vec![run(10.0)]]);
        let mean = rows[0].groups[0].unwrap_or_default();
        assert!((mean.mean - 3.0).abs() < 1e-12 && (mean.ci95.unwrap_or(0.0) - 1.963).abs() < 1e-3, "{mean:?}");
        assert_eq!((rows[0].difference, rows[0].difference_ci95), (Some(7.0), None));
    }

    #[test]
    fn the_difference_of_repeated_runs_has_welchs_interval() {
        let group = |v: &[f64]| v.iter().map(|v| run(*v)).collect::<Vec<_>>();
        let rows = compare(&[group(&[10.0, 11.0, 12.0]), group(&[20.0, 24.0, 28.0])]);
        // se = sqrt(1/3 + 16/3) = 2.3805; freedom = 32.11/(0.0556+14.22) = 2.249: t between 4.303 and 3.182.
        let ci = rows[0].difference_ci95.unwrap_or_default();
        assert_eq!(rows[0].difference, Some(13.0));
        assert!((2.3805 * 3.182..2.3805 * 4.303).contains(&ci), "{ci}");
    }

    #[test]
    fn devices_of_different_hosts_compare_by_their_place() {
        let a = vec![Value { device: "sda".into(), name: "iops".into(), unit: Unit::PerSecond, value: 1.0 }];
        let b = vec![Value { device: "nvme0n1".into(), name: "iops".into(), unit: Unit::PerSecond, value: 3.0 }];
        let rows = compare(&[vec![a], vec![b]]);
        assert_eq!((rows.len(), rows[0].difference), (1, Some(2.0)));
    }
}
