//! P6, queue depth: requests in flight, as mean over time and as maximum per bin (not sampled at dispatch).

use std::{cmp::Reverse, collections::BinaryHeap};

use ioreel_analyze::meters::bins::{Bins, Overlap};

use super::panel::{About, Issue, Needs, Panel, RATE_HEIGHT, Spec};
use crate::{
    canvas::theme::Ink,
    model::shape::{Line, Lines, Shape},
};

pub(super) const SPEC: Spec = Spec {
    name: "depth",
    title: "Queue depth",
    unit: "requests in flight",
    about: About::Device,
    height: RATE_HEIGHT,
    make: |s| {
        Ok(Box::new(Depth {
            bins: s.bins,
            mean: Overlap::new(s.bins),
            most: vec![0; s.bins.count()],
            ends_ns: BinaryHeap::new(),
            at: 0,
        }))
    },
};

struct Depth {
    bins: Bins,
    mean: Overlap,
    most: Vec<u64>,
    /// Completion times of the requests in flight.
    ends_ns: BinaryHeap<Reverse<i64>>,
    /// The current bin.
    at: usize,
}

impl Depth {
    /// Applies the current depth until `t_ns`.
    fn go_to(&mut self, t_ns: i64) {
        let depth = self.ends_ns.len() as u64;
        let to = match self.bins.index(t_ns) {
            Some(bin) => bin,
            // Before the window nothing counts; after it, the rest of the window does.
            None if t_ns < self.bins.edges_ns(0).0 => return,
            None => self.most.len() - 1,
        };
        // At the left edge of a bin, the next depth applies.
        let reached = if self.bins.edges_ns(to).0 >= t_ns { to } else { to + 1 };
        for most in self.most.iter_mut().take(reached.max(self.at)).skip(self.at) {
            *most = depth.max(*most);
        }
        self.at = self.at.max(to);
    }
}

impl Panel for Depth {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn cost(&self) -> u32 {
        3
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request) {
            let Some(complete_ns) = r.complete_ns.filter(|c| *c > r.issue_ns) else { continue };
            self.mean.add(r.issue_ns, complete_ns);
            while let Some(Reverse(end_ns)) = self.ends_ns.peek().copied()
                && end_ns <= r.issue_ns
            {
                self.go_to(end_ns);
                self.ends_ns.pop();
            }
            self.go_to(r.issue_ns);
            self.ends_ns.push(Reverse(complete_ns));
        }
    }

    fn finish(mut self: Box<Self>) -> Shape {
        while let Some(Reverse(end_ns)) = self.ends_ns.peek().copied() {
            self.go_to(end_ns);
            self.ends_ns.pop();
        }
        let most = self.most.iter().map(|n| *n as f64).collect();
        let lines = vec![
            Line { width: 1.0, ..Line::plain(Ink::Grey, "most", most) },
            Line::area(Ink::Text, "mean over time", self.mean.means()),
        ];
        Shape::Lines(Lines { bins: self.bins, lines, stacked: false, top: None, note: String::new() })
    }
}
