//! P4, seeks of reads and writes in dispatch order, by both definitions of [`ioreel_analyze::meters::seeks`].

use ioreel_analyze::meters::bins::Bins;

use super::panel::{About, Issue, Needs, Panel, RATE_HEIGHT, Spec};
use crate::{
    canvas::theme::Ink,
    model::shape::{Line, Lines, Shape},
};

pub(super) const SPEC: Spec = Spec {
    name: "seeks",
    title: "Seeks",
    unit: "per second, reads and writes in dispatch order",
    about: About::Device,
    height: RATE_HEIGHT,
    make: |s| {
        let zeroes = vec![0; s.bins.count()];
        Ok(Box::new(Seeks { bins: s.bins, exact: zeroes.clone(), sw64k: zeroes }))
    },
};

struct Seeks {
    bins: Bins,
    exact: Vec<u64>,
    sw64k: Vec<u64>,
}

impl Panel for Seeks {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn requests(&mut self, batch: &[Issue]) {
        for i in batch.iter().filter(|i| i.seek.exact) {
            if let Some(bin) = self.bins.index(i.request.issue_ns) {
                self.exact[bin] += 1;
                self.sw64k[bin] += u64::from(i.seek.sw64k);
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let rates = |counts: &[u64]| Line::rates(self.bins, counts, 1.0);
        // Both often agree, so one is drawn as the outline of the other.
        let area = Line::plain(Ink::Seek, "far seeks, over 64 KiB (seeks.sw64k)", rates(&self.sw64k));
        let area = Line { width: 0.0, fill: Some(1.0), ..area };
        let line = Line::plain(Ink::Text, "adjacent seeks (seeks.exact)", rates(&self.exact));
        Shape::Lines(Lines { bins: self.bins, lines: vec![area, line], stacked: false, top: None, note: String::new() })
    }
}
