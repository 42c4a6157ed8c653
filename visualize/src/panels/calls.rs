//! Rates of system calls by kind, at their return.

use ioreel_analyze::{events::calls::Call, meters::bins::Bins, summary::series::CallSeries};

use super::panel::{About, Needs, Panel, RATE_HEIGHT, Spec};
use crate::{
    canvas::theme::Ink,
    model::shape::{Line, Lines, Shape},
};

pub(super) const SPEC: Spec = Spec {
    name: "calls",
    title: "System calls",
    unit: "returned per second",
    about: About::Calls,
    height: RATE_HEIGHT,
    make: |s| Ok(Box::new(Calls { bins: s.bins, counts: std::array::from_fn(|_| vec![0; s.bins.count()]) })),
};

struct Calls {
    bins: Bins,
    counts: [Vec<u64>; 5],
}

/// Colours of [`CallSeries::ROWS`].
pub(super) const INKS: [Ink; 5] = [Ink::Read, Ink::Write, Ink::Flush, Ink::Other, Ink::Grey];

impl Panel for Calls {
    fn needs(&self) -> Needs {
        Needs::Calls
    }

    fn call(&mut self, call: &Call<'_>) {
        if let Some(bin) = call.dur_ns.and_then(|_| self.bins.index(call.end_ns())) {
            self.counts[CallSeries::row(call.kind)][bin] += 1;
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let rows = CallSeries::ROWS.iter().zip(INKS).zip(&self.counts);
        let lines = rows.map(|((name, ink), n)| Line::plain(ink, name, Line::rates(self.bins, n, 1.0))).collect();
        Shape::Lines(Lines { bins: self.bins, lines, stacked: false, top: None, note: String::new() })
    }
}
