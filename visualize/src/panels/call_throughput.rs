//! Bytes moved by system calls, at their return.

use ioreel_analyze::{
    events::calls::{Call, Kind},
    meters::bins::Bins,
};

use super::{
    panel::{About, Needs, Panel, RATE_HEIGHT, Spec},
    throughput::MIB,
};
use crate::{
    canvas::theme::Ink,
    model::shape::{Line, Lines, Shape},
};

pub(super) const SPEC: Spec = Spec {
    name: "call-throughput",
    title: "Bytes moved by calls",
    unit: "MiB/s at return",
    about: About::Calls,
    height: RATE_HEIGHT,
    make: |s| {
        let zeroes = vec![0; s.bins.count()];
        Ok(Box::new(CallThroughput { bins: s.bins, read: zeroes.clone(), written: zeroes }))
    },
};

struct CallThroughput {
    bins: Bins,
    read: Vec<u64>,
    written: Vec<u64>,
}

impl Panel for CallThroughput {
    fn needs(&self) -> Needs {
        Needs::Calls
    }

    fn call(&mut self, call: &Call<'_>) {
        let Some(bin) = call.dur_ns.and_then(|_| self.bins.index(call.end_ns())) else { return };
        // A copy reads and writes.
        if matches!(call.kind, Kind::Read | Kind::Copy) {
            self.read[bin] = self.read[bin].saturating_add(call.bytes());
        }
        if matches!(call.kind, Kind::Write | Kind::Copy) {
            self.written[bin] = self.written[bin].saturating_add(call.bytes());
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let line = |ink, label, counts: &[u64]| Line::area(ink, label, Line::rates(self.bins, counts, MIB));
        let lines = vec![line(Ink::Read, "read", &self.read), line(Ink::Write, "write", &self.written)];
        Shape::Lines(Lines { bins: self.bins, lines, stacked: false, top: None, note: String::new() })
    }
}
