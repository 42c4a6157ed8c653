//! Bytes moved by system calls, at their return.

use ioreel_analyze::{events::calls::Call, summary::series::CallSeries};

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
    make: |s| Ok(Box::new(CallThroughput { series: CallSeries::new(s.bins) })),
};

struct CallThroughput {
    series: CallSeries,
}

impl Panel for CallThroughput {
    fn needs(&self) -> Needs {
        Needs::Calls
    }

    fn call(&mut self, call: &Call<'_>) {
        self.series.push(call);
    }

    fn finish(self: Box<Self>) -> Shape {
        let CallSeries { bins, read_bytes, write_bytes, other_bytes, .. } = self.series;
        let rates = |counts: &[u64]| Line::rates(bins, counts, MIB);
        let mut lines = vec![
            Line::area(Ink::Read, "read", rates(&read_bytes)),
            Line::area(Ink::Write, "write", rates(&write_bytes)),
        ];
        // What does not reach a file system is told apart, where there is any.
        let looks = [(Ink::Other, "5 3"), (Ink::Text, "2 2"), (Ink::Grey, "1 3")];
        for ((counts, label), (ink, dash)) in other_bytes.iter().zip(CallSeries::OTHERS).zip(looks) {
            if counts.iter().any(|n| *n > 0) {
                lines.push(Line { dash, ..Line::plain(ink, label, rates(counts)) });
            }
        }
        Shape::Lines(Lines { bins, lines, stacked: false, top: None, note: String::new() })
    }
}
