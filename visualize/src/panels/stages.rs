//! P9, the stages of requests as shares of their time: in the queue and at the device, at completion. An imported block
//! trace also contains creation (G) and insertion into the scheduler (I).

use ioreel_analyze::{
    events::stages::{MOST_ACTIONS, Moments, too_many},
    meters::bins::Bins,
};

use super::panel::{About, Issue, Needs, Panel, RATE_HEIGHT, Setup, Spec};
use crate::{
    Result,
    canvas::{scale::count, theme::Ink},
    model::shape::{Line, Lines, Shape},
};

pub(super) const SPEC: Spec = Spec {
    name: "stages",
    title: "Stages",
    unit: "share of the time of requests, % at completion",
    about: About::Device,
    height: RATE_HEIGHT,
    make,
};

/// Colour and name of each stage, in order of time.
const STAGES: [(Ink, &str); 4] = [
    (Ink::Hue(5), "Q2G making the request"),
    (Ink::Hue(4), "G2I to the scheduler"),
    (Ink::Other, "Q2D in the queue (I2D)"),
    (Ink::Read, "D2C at the device"),
];

fn make(s: &Setup<'_>) -> Result<Box<dyn Panel>> {
    let sums = std::array::from_fn(|_| vec![0u64; s.bins.count()]);
    let note = too_many(s.reel, MOST_ACTIONS).map_or_else(String::new, |n| {
        format!("no Q2G, G2I: {} records, the limit is {}", count(n.unsigned_abs()), count(MOST_ACTIONS.unsigned_abs()))
    });
    Ok(Box::new(Stages { bins: s.bins, moments: Moments::of(s.reel, MOST_ACTIONS)?, sums, note }))
}

struct Stages {
    bins: Bins,
    /// Stages of an imported block trace.
    moments: Option<Moments>,
    /// Time in each stage, by bin, ns.
    sums: [Vec<u64>; 4],
    /// Why stages are missing, if they are.
    note: String,
}

impl Panel for Stages {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request) {
            let Some(complete_ns) = r.complete_ns else { continue };
            let Some(bin) = self.bins.index(complete_ns) else { continue };
            let queue_ns = r.queue_ns.unwrap_or(r.issue_ns).min(r.issue_ns);
            let known = self.moments.as_ref().and_then(|m| m.stages(r));
            let made_ns = known.and_then(|k| k.made_ns).unwrap_or(queue_ns);
            let inserted_ns = known.and_then(|k| k.inserted_ns).unwrap_or(made_ns);
            let ends = [queue_ns, made_ns, inserted_ns, r.issue_ns, complete_ns.max(r.issue_ns)];
            for (sum, stage) in self.sums.iter_mut().zip(ends.windows(2)) {
                sum[bin] = sum[bin].saturating_add(stage[1].abs_diff(stage[0]));
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let all: Vec<f64> = (0..self.bins.count()).map(|bin| self.sums.iter().map(|s| s[bin] as f64).sum()).collect();
        let stages = STAGES.iter().zip(&self.sums).filter(|(_, sum)| sum.iter().any(|n| *n > 0));
        let lines = stages.map(|((ink, label), sum)| {
            let share = |(n, all): (&u64, &f64)| if *all > 0.0 { *n as f64 * 100.0 / all } else { 0.0 };
            let values = sum.iter().zip(&all).map(share).collect();
            Line { fill: Some(0.75), width: 0.0, ..Line::plain(*ink, label, values) }
        });
        let lines = lines.collect();
        Shape::Lines(Lines { bins: self.bins, lines, stacked: true, top: Some(100.0), note: self.note })
    }
}
