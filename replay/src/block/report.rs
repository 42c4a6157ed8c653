//! Compares a block replay with the original. `docs/replay.md` defines the figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Config, Summary, bios::Kind, order::Edge, run::Outcome};
use crate::{
    base::{
        distribution::{Distance, Spread},
        errno,
    },
    verdict::{
        clauses::{Clause, Clauses},
        concurrency::Concurrency,
        judgement::{ENOUGH, MAX_DRIFT_PPM, time},
        latencies::Latency,
    },
};

/// Bios with a different outcome than in the original.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Their operation.
    pub kind: Kind,
    /// Name of the error. `short` if less was transferred than requested.
    pub error: String,
    /// Number of bios.
    pub count: i64,
    /// The device does not support the operation (EOPNOTSUPP). Anything else is wrong.
    pub unsupported: bool,
}

/// The report of a block replay. Its fields are the JSON output: `docs/json.md`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was going to be done.
    pub summary: Summary,
    /// `--pace`.
    pub pace: String,
    /// `--order`.
    pub order: &'static str,
    /// `--fit`.
    pub fit: &'static str,
    /// Nothing was issued.
    pub dry_run: bool,
    /// Bios that were issued and have ended.
    pub done: i64,
    /// Bytes transferred, discarded or zeroed.
    pub bytes: i64,
    /// Bios that failed or transferred less than requested.
    pub differences: Vec<Difference>,
    /// Number of these that are not unsupported.
    pub wrong: i64,
    /// Places that were widened to this device's blocks or shortened to its size.
    pub adjusted: i64,
    /// Time from time 0 to the last end.
    pub elapsed_ns: i64,
    /// The same of the original.
    pub original_elapsed_ns: i64,
    /// Issue time minus deadline: own plus forced lateness.
    pub schedule_ns: Spread,
    /// Own lateness: issue time minus the earliest possible time.
    pub own_ns: Spread,
    /// Forced lateness: that earliest time minus the deadline.
    pub forced_ns: Spread,
    /// Share of bios issued within 10 us, 100 us and 1 ms of the deadline.
    pub within: [f64; 3],
    /// Bios issued before their deadline. Always 0.
    pub early: i64,
    /// See [`crate::verdict::timing::Timing::drift_ppm`].
    pub drift_ppm: Option<f64>,
    /// Distance of the inter-arrival times from the recorded ones. Null at paces without a schedule.
    pub gaps: Option<Distance>,
    /// Number of edges, by kind.
    pub edges: BTreeMap<Edge, i64>,
    /// Number of bios in flight, original and replay.
    pub concurrency: Concurrency,
    /// Latency by operation, in decreasing order of time spent in the replay.
    pub latencies: Vec<Latency>,
    /// CPU time of the process, including reading the reel.
    pub cpu_ns: i64,
    /// Time spent busy-waiting for deadlines.
    pub spun_ns: i64,
    /// How much stalls moved the schedule later.
    pub shift_ns: i64,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Whether the replay is faithful: the bios did what they did in the original, in time.
    pub faithful: bool,
    /// Why it is not.
    pub reasons: Vec<String>,
    /// The same by clause. A block replay has no tree.
    pub clauses: Clauses,
    /// The exit status that these give: see [`Clause::bit`].
    pub status: u8,
    /// The verdict in one sentence.
    pub sentence: String,
    #[serde(skip)]
    pub(super) epoch_ns: i64,
    /// Some bios had to wait for room in the ring.
    #[serde(skip)]
    held: bool,
}

impl Report {
    pub(super) fn new(summary: Summary, config: &Config, o: Outcome, lost: i64, direct: bool) -> Self {
        let differences: Vec<Difference> = o
            .differing
            .iter()
            .map(|((kind, errno), count)| Difference {
                kind: *kind,
                error: if *errno == 0 { "short".into() } else { errno::errno_name(i64::from(*errno)) },
                count: *count,
                unsupported: *errno == libc::EOPNOTSUPP,
            })
            .collect();
        let mut latencies: Vec<(i64, Latency)> = o
            .latencies
            .iter()
            .map(|(kind, (then, now))| {
                let (original_ns, replay_ns) = (then.spread(), now.spread());
                (now.sum(), Latency { op: kind.name(), original_ns, replay_ns, distance: then.distance(now) })
            })
            .collect();
        latencies.sort_by_key(|(sum, _)| -sum);
        let pace = config.clockwork.pace;
        let share = |n: i64| n as f64 / o.done.max(1) as f64;
        let mut out = Self {
            pace: pace.name(),
            order: config.order.name(),
            fit: config.fit.name(),
            dry_run: config.dry_run,
            done: o.done,
            bytes: o.bytes,
            wrong: differences.iter().filter(|d| !d.unsupported).map(|d| d.count).sum(),
            differences,
            adjusted: o.adjusted,
            elapsed_ns: o.last_end_ns,
            original_elapsed_ns: o.original_last_end_ns,
            schedule_ns: o.schedule.spread(),
            own_ns: o.own.spread(),
            forced_ns: o.forced.spread(),
            within: o.within.map(share),
            early: o.early,
            drift_ppm: o.drift_ppm,
            gaps: pace.has_schedule().then(|| o.gaps.0.distance(&o.gaps.1)).flatten(),
            edges: o.edges,
            concurrency: Concurrency::of(&o.then.shares(), &o.now.shares(), None),
            latencies: latencies.into_iter().map(|(_, l)| l).collect(),
            cpu_ns: o.cpu_ns,
            spun_ns: o.spun_ns,
            shift_ns: o.shift_ns,
            warnings: Vec::new(),
            faithful: false,
            reasons: Vec::new(),
            clauses: Clauses::default(),
            status: 0,
            sentence: String::new(),
            epoch_ns: o.epoch_ns,
            held: o.held > 0,
            summary,
        };
        if !direct {
            out.warnings.push("this file does not support direct I/O; times are those of the page cache".into());
        }
        if o.held > 0 {
            out.warnings.push(format!(
                "at most {} bios are in flight at once; {} bios had to wait for this",
                super::ring::MOST_IN_FLIGHT,
                o.held
            ));
        }
        out.clauses = out.clauses(config, lost);
        out.reasons = out.clauses.reasons();
        out.status = out.clauses.status();
        out.faithful = out.reasons.is_empty();
        out.sentence = out.sentence();
        out
    }

    fn clauses(&self, config: &Config, lost: i64) -> Clauses {
        let mut why = Clauses::default();
        if lost > 0 {
            why.push(Clause::LeftOut, format!("{lost} events of the original were lost while recording"));
        }
        let missing = self.summary.survey.ios - self.done;
        if missing != 0 {
            why.push(Clause::Results, format!("{missing} bios were not issued"));
        }
        if self.wrong > config.limits.wrong {
            why.push(Clause::Results, format!("{} bios failed or transferred less than requested", self.wrong));
        }
        let unsupported: i64 = self.differences.iter().filter(|d| d.unsupported).map(|d| d.count).sum();
        if unsupported > config.limits.unsupported {
            why.push(Clause::Results, format!("{unsupported} bios are not supported by this device"));
        }
        if self.early > 0 {
            why.push(Clause::Timing, format!("{} bios were issued early", self.early));
        }
        let timed = config.clockwork.pace.has_schedule();
        let own = if timed { self.own_ns.p99 } else { self.own_ns.mean };
        // Waiting for room in the ring is not the replayer's lateness.
        let counts = timed || !self.held;
        if counts && own > config.limits.own_lateness_ns && self.own_ns.count >= ENOUGH {
            why.push(
                Clause::Timing,
                format!("the replayer itself was late ({} {})", if timed { "p99" } else { "mean" }, time(own)),
            );
        }
        if let Some(ppm) = self.drift_ppm.filter(|ppm| ppm.abs() > MAX_DRIFT_PPM) {
            let whose = if self.forced_ns.p50 > self.own_ns.p50 {
                "the device is too slow"
            } else {
                "the replayer is too slow"
            };
            why.push(Clause::Timing, format!("issue times drift by {ppm:.0} ppm: {whose}"));
        }
        why
    }

    fn sentence(&self) -> String {
        let subject = if self.dry_run { "The replayer" } else { "The replay" };
        if !self.faithful {
            return self.clauses.sentence(subject);
        }
        let own = time(self.own_ns.p99);
        if self.dry_run {
            return format!("The replayer keeps up, with nothing issued: its own lateness is {own} at p99.");
        }
        let left: i64 = self.summary.survey.skipped.values().sum();
        let but = if left > 0 {
            let share = left as f64 / (left + self.done).max(1) as f64 * 100.0;
            format!(" ({share:.1} % of bios skipped)")
        } else {
            String::new()
        };
        format!(
            "The replay is faithful{but}: {} bios gave the recorded results, none early or out of order, own lateness {own} at p99.",
            self.done
        )
    }
}
