//! P3, IOPS: requests completed, by class.

use ioreel_analyze::{events::requests::Class, meters::bins::Bins};

use super::panel::{About, Issue, Needs, Panel, RATE_HEIGHT, Spec};
use crate::{
    canvas::theme::Ink,
    model::shape::{Line, Lines, Shape},
};

pub(super) const SPEC: Spec = Spec {
    name: "iops",
    title: "IOPS",
    unit: "requests completed per second",
    about: About::Device,
    height: RATE_HEIGHT,
    make: |s| Ok(Box::new(Iops { bins: s.bins, counts: std::array::from_fn(|_| vec![0; s.bins.count()]) })),
};

struct Iops {
    bins: Bins,
    /// Discards and others, flushes, reads, writes.
    counts: [Vec<u64>; 4],
}

impl Panel for Iops {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request) {
            let row = match r.class {
                Class::Read => 2,
                Class::Write => 3,
                Class::Flush => 1,
                _ => 0,
            };
            if let Some(bin) = r.complete_ns.and_then(|t| self.bins.index(t)) {
                self.counts[row][bin] += 1;
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let rates = |row: usize| Line::rates(self.bins, &self.counts[row], 1.0);
        let mut lines = Vec::new();
        for (row, ink, label) in [(0, Ink::Other, "discard, zeroing"), (1, Ink::Flush, "flush")] {
            if self.counts[row].iter().any(|n| *n > 0) {
                lines.push(Line::plain(ink, label, rates(row)));
            }
        }
        lines.push(Line::area(Ink::Read, "read", rates(2)));
        lines.push(Line::area(Ink::Write, "write", rates(3)));
        Shape::Lines(Lines { bins: self.bins, lines, stacked: false, top: None, note: String::new() })
    }
}
