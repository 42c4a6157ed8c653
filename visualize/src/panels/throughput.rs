//! P2, throughput: bytes of successful reads and writes, at completion. Discards and zeroing do not count.

use ioreel_analyze::{events::requests::Class, meters::bins::Bins};

use super::panel::{About, Issue, Needs, Panel, RATE_HEIGHT, Spec};
use crate::{
    canvas::theme::Ink,
    model::shape::{Line, Lines, Shape},
};

pub(super) const MIB: f64 = 1024.0 * 1024.0;

pub(super) const SPEC: Spec = Spec {
    name: "throughput",
    title: "Throughput",
    unit: "MiB/s at completion",
    about: About::Device,
    height: RATE_HEIGHT,
    make: |s| {
        let zeroes = vec![0; s.bins.count()];
        Ok(Box::new(Throughput { bins: s.bins, read: zeroes.clone(), written: zeroes }))
    },
};

struct Throughput {
    bins: Bins,
    read: Vec<u64>,
    written: Vec<u64>,
}

impl Panel for Throughput {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().map(|i| &i.request) {
            let to = match r.class {
                Class::Read => &mut self.read,
                Class::Write => &mut self.written,
                _ => continue,
            };
            let bin = r.complete_ns.filter(|_| r.error == 0).and_then(|t| self.bins.index(t));
            if let Some(bin) = bin {
                to[bin] = to[bin].saturating_add(u64::try_from(r.len_bytes).unwrap_or(0));
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let line = |ink, label, counts: &[u64]| Line::area(ink, label, Line::rates(self.bins, counts, MIB));
        let lines = vec![line(Ink::Read, "read", &self.read), line(Ink::Write, "write", &self.written)];
        Shape::Lines(Lines { bins: self.bins, lines, stacked: false, top: None, note: String::new() })
    }
}
